//! The places at which limits are in use whose units several processes share.

use hashbrown::HashSet;

use super::keys::{HolderKey, LaneKey};

/// Who has pooled limits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Place {
    Lane(LaneKey),
    Holder(HolderKey),
}

/// A pooled limit of this engine. It is found again as long as no change of the configuration has gone through
/// and its units have not gone to another engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PooledLimit {
    pub(super) place: Place,
    pub(super) version: u32,
    pub(super) index: usize,
}

/// The places at which pooled limits are in use.
#[derive(Default)]
pub(super) struct Pools {
    pub(super) places: HashSet<Place>,
    pub(super) starved: bool,
    /// Some limit is pooled.
    pub(super) is_used: bool,
}

impl Pools {
    #[inline]
    pub(super) fn is_starved(&self) -> bool {
        self.starved
    }
}
