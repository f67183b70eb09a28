//! Reads what lists show of many lanes. A walk over a hundred thousand lanes mostly waits for memory, so it reads as
//! little memory as possible.

use compact_str::CompactString;

use super::Dispatch;
use crate::config::Tenant;
use crate::engine::{Brief, hash_ids};

/// Lanes that are read under one hold of a shard's lock, which takes up to some tens of microseconds: up to 1.5 µs for
/// each lane, because most of its memory is in no cache.
const TOGETHER: usize = 16;

/// A lane to be looked up. It owns its names: a reference to the tenant would have to be counted, and the count is in
/// memory that every sender of the tenant uses.
#[derive(Debug)]
pub(crate) struct LaneLookup {
    pub(crate) tenant: CompactString,
    pub(crate) vendor: CompactString,
    hash: u64,
    shard: usize,
}

impl Dispatch {
    /// Makes the key by which [`briefs`](Self::briefs) looks up the lane of a tenant.
    pub(crate) fn lane_lookup(&self, tenant: &Tenant) -> LaneLookup {
        let hash = hash_ids(&self.hasher, &tenant.id, &tenant.vendor.name);
        LaneLookup {
            tenant: CompactString::new(&tenant.id),
            vendor: CompactString::new(&tenant.vendor.name),
            hash,
            shard: self.number_of(self.home_hash(tenant, hash)),
        }
    }

    /// What a list shows of these lanes, in their order; `None` for lanes that are not in memory. At most [`TOGETHER`]
    /// lanes are read under one hold of a lock.
    pub(crate) fn briefs(&self, lanes: &[LaneLookup]) -> Vec<Option<Brief>> {
        let mut found = vec![None; lanes.len()];
        let mut by_shard: Vec<Vec<usize>> = vec![Vec::new(); self.shards.len()];
        for (number, lane) in lanes.iter().enumerate() {
            by_shard[lane.shard].push(number);
        }
        for (shard, wanted) in self.shards.iter().zip(by_shard) {
            for some in wanted.chunks(TOGETHER) {
                shard.look(|engine, now| {
                    for (number, lane) in some.iter().map(|number| (*number, &lanes[*number])) {
                        let key = engine.find(lane.hash, &lane.tenant, &lane.vendor);
                        found[number] = key.and_then(|key| engine.brief(now, key));
                    }
                });
            }
        }
        found
    }
}
