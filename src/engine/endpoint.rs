//! How the engine names a vendor's endpoints.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The number of an endpoint in its [`Plan`](super::plan::Plan); [`NO_ENDPOINT`] for requests to none.
pub(crate) type EndpointId = u16;

/// A request that belongs to no endpoint.
pub(crate) const NO_ENDPOINT: EndpointId = EndpointId::MAX;

/// An endpoint by the hash of its name. Its number differs from plan to plan when a reload adds or removes endpoints; the
/// hash does not, so limits that lanes of different plans share are compared by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EndpointHash(u64);

impl EndpointHash {
    /// Of requests that belong to no endpoint.
    pub(crate) const NONE: EndpointHash = EndpointHash(0);

    pub(crate) fn of(name: &str) -> EndpointHash {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        EndpointHash(hasher.finish().max(1))
    }
}
