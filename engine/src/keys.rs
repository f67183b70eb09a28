//! A type for each kind of key. With plain numbers, the key of a waiter could be passed where a permit's is meant.

use super::slab::Key;

/// One tenant at one vendor.
pub type LaneKey = Key<OfLane>;
/// An account or a vendor whose lanes share limits.
pub(crate) type HolderKey = Key<OfHolder>;
/// A waiting request.
pub type WaiterKey = Key<OfWaiter>;
/// The queue of a lane, tier and endpoint.
pub(crate) type QueueKey = Key<OfQueue>;
/// A node of the scheduler's tree.
pub(crate) type NodeKey = Key<OfNode>;
/// The right to one exchange.
pub type PermitKey = Key<OfPermit>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OfLane {}
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum OfHolder {}
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OfWaiter {}
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum OfQueue {}
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum OfNode {}
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OfPermit {}
