//! The keys of rows: the id of a job, and its tenant, vendor and priority.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    let since = clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = uuid::Timestamp::from_unix(uuid::NoContext, since.as_secs(), since.subsec_nanos());
    Id::new_v7(at)
}

/// Creates the id of a job that is made from a message; `content` is a hash of the message and its request. The id begins
/// with the time, like those of [`new_id`], so that jobs which are accepted together are neighbours in every index of ids.
/// The last 74 bits are those of the hash.
pub(crate) fn id_with_content(now: SystemTime, content: Id) -> Id {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let [.., a, b, c, d, e, f, g, h, i, j] = content.into_bytes();
    uuid::Builder::from_unix_timestamp_millis(millis, &[a, b, c, d, e, f, g, h, i, j]).into_uuid()
}

/// Whether two ids of [`id_with_content`] were made for the same content, at whatever time.
pub(crate) fn same_content(one: Id, other: Id) -> bool {
    // The bits before are the time and the version.
    const CONTENT: u128 = (1 << 76) - 1;
    (one.as_u128() ^ other.as_u128()) & CONTENT == 0
}

/// The least id of [`id_by_number`]. The ids under which earlier versions recorded messages are smaller: they are hashes,
/// of which one in 65,536 begins with these bits.
pub(crate) const FIRST_BY_NUMBER: Id = Id::from_u128(0xffff << 112);

/// Creates the id under which a message is recorded; `name` is what its source calls it, and `hash` a hash of all by which
/// the message is known. Messages that are numbered one after the other, as `3:1041`, get neighbouring ids, so that a
/// group of new messages changes few pages of the index of ids; hashes alone would change a page for each message of
/// a large index. The 72 last bits are those of the hash, and tell messages apart whose names have the same number.
pub(crate) fn id_by_number(name: &str, hash: Id) -> Id {
    // Every number of 19 digits fits into a `u64`.
    let digits = name.bytes().rev().take(19).take_while(u8::is_ascii_digit).count();
    let (before, number) = name.split_at(name.len() - digits);
    let number = number.parse::<u64>().unwrap_or(0) & u64::from(u32::MAX);
    let [before, ..] = Id::new_v5(&Id::NAMESPACE_URL, before.as_bytes()).into_bytes();
    let order = u128::from(before) << 104 | u128::from(number) << 72;
    const HASH: u128 = (1 << 72) - 1;
    Id::from_u128(FIRST_BY_NUMBER.as_u128() | order | hash.as_u128() & HASH)
}

pub(crate) fn millis_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
