//! The keys of rows: the id of a job, and its tenant, vendor and priority.

use std::time::Duration;

use crate::clock::Clock;

/// The id of a job, and of the dead letter that the job may become.
pub(crate) type Id = uuid::Uuid;

/// A lane (a tenant at a vendor) and a tier; tier 0 has the highest priority.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct LaneTier {
    pub(crate) tenant: String,
    pub(crate) vendor: String,
    pub(crate) tier: i64,
}

/// Creates a unique id. Ids sort by the time of their creation, and 74 bits of each are random.
pub(crate) fn new_id(clock: Clock) -> Id {
    let since = clock.wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let at = uuid::Timestamp::from_unix(uuid::NoContext, since.as_secs(), since.subsec_nanos());
    Id::new_v7(at)
}

pub(crate) fn millis_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
