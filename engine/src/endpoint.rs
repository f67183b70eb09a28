//! How the engine names a vendor's endpoints.

use std::hash::Hash;

/// The number of an endpoint in its [`Plan`](super::plan::Plan); [`NO_ENDPOINT`] for requests to none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(u16);

/// A request that belongs to no endpoint.
pub const NO_ENDPOINT: EndpointId = EndpointId(u16::MAX);

impl EndpointId {
    /// The endpoint at this index of a plan or of a vendor's configuration, which have the same order.
    #[inline]
    pub const fn at(place: usize) -> EndpointId {
        if place < u16::MAX as usize { EndpointId(place as u16) } else { NO_ENDPOINT }
    }

    /// Its index in the plan; [`NO_ENDPOINT`] has one that no plan reaches.
    #[inline]
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// The hash of an endpoint's name. An endpoint's number differs between plans when a reload adds or removes endpoints,
/// but the hash does not, so limits that lanes of different plans share compare endpoints by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointHash(u64);

impl EndpointHash {
    /// For requests that belong to no endpoint.
    pub const NONE: EndpointHash = EndpointHash(0);

    /// Hashes a name by 64-bit FNV-1a (Fowler, Noll and Vo), which gives the same value in every process and version.
    pub fn of(name: &str) -> EndpointHash {
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        EndpointHash(hash.max(1))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}
