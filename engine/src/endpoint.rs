//! How the engine names a vendor's endpoints.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The number of an endpoint in its [`Plan`](super::plan::Plan); [`NO_ENDPOINT`] for requests to none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(u16);

/// A request that belongs to no endpoint.
pub const NO_ENDPOINT: EndpointId = EndpointId(u16::MAX);

impl EndpointId {
    /// The endpoint at this place of a plan, or of a vendor's configuration; they have the same order.
    #[inline]
    pub const fn at(place: usize) -> EndpointId {
        if place < u16::MAX as usize { EndpointId(place as u16) } else { NO_ENDPOINT }
    }

    /// Its place; one that no plan has for [`NO_ENDPOINT`].
    #[inline]
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// An endpoint by the hash of its name. Its number differs from plan to plan when a reload adds or removes endpoints; the
/// hash does not, so limits that lanes of different plans share are compared by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointHash(u64);

impl EndpointHash {
    /// Of requests that belong to no endpoint.
    pub const NONE: EndpointHash = EndpointHash(0);

    pub fn of(name: &str) -> EndpointHash {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        EndpointHash(hasher.finish().max(1))
    }
}
