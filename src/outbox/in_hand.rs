//! How many jobs and bytes this process holds, and which lanes may take more. Pure.
//!
//! All tenants and vendors share one pool, and no vendor can be relied on to respond soon: a vendor that hangs keeps
//! its jobs until they time out. Fixed shares would leave most of the pool unused. So a vendor may take more while it
//! holds less than eight times the free part of the pool, and a tenant at a vendor while it holds less than four times
//! that part ("dynamic thresholds", Choudhury and Hahne 1998). A lane with no competitor gets all that is configured
//! for it, and there is always room for a lane that comes later: the pool is larger than the most that one tenant may
//! hold, by the part that is kept free for the others.

use std::collections::HashMap;

use crate::store::LaneTier;

/// A vendor may take more while it holds less than this many times the free part of the pool.
const VENDOR: usize = 8;
/// A tenant at a vendor may take more while it holds less than this many times the free part of the pool.
const TENANT: usize = 4;
/// The least number of jobs that is kept free for others, however small the pool is.
const SPARE_JOBS: usize = 4;

/// Jobs, and the bytes that they take in the store.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Amount {
    pub(super) jobs: usize,
    pub(super) bytes: usize,
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.jobs += other.jobs;
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: Amount) {
        debug_assert!(self.jobs >= other.jobs && self.bytes >= other.bytes, "more is given back than was taken");
        self.jobs = self.jobs.saturating_sub(other.jobs);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

#[derive(Default)]
struct Group {
    held: Amount,
    tenants: HashMap<String, Amount>,
}

pub(super) struct Pool {
    /// The most that one tenant may hold at one vendor.
    most: Amount,
    /// The most that all tenants may hold together.
    whole: Amount,
    held: Amount,
    vendors: HashMap<String, Group>,
}

/// How many more a holder of `held` may take so that it then holds at most `times` the free amount. A holder of
/// nothing may take the last free one.
fn more(held: usize, free: usize, times: usize) -> usize {
    let more = times.saturating_mul(free).saturating_sub(held) / (times + 1);
    if held == 0 { more.max(free.min(1)) } else { more }
}

impl Pool {
    /// A pool of which one tenant may hold `most` while no other tenant has work.
    pub(super) fn new(most: Amount) -> Pool {
        let with_spare = |most: usize, least: usize| most.saturating_add(most.div_ceil(TENANT).max(least));
        let whole = Amount { jobs: with_spare(most.jobs, SPARE_JOBS), bytes: with_spare(most.bytes, 1) };
        Pool { most, whole, held: Amount::default(), vendors: HashMap::new() }
    }

    pub(super) fn add(&mut self, lane: &LaneTier, amount: Amount) {
        self.held.add(amount);
        if !self.vendors.contains_key(&lane.vendor) {
            self.vendors.insert(lane.vendor.clone(), Group::default());
        }
        let Some(group) = self.vendors.get_mut(&lane.vendor) else { return };
        group.held.add(amount);
        match group.tenants.get_mut(&lane.tenant) {
            Some(tenant) => tenant.add(amount),
            None => drop(group.tenants.insert(lane.tenant.clone(), amount)),
        }
    }

    pub(super) fn remove(&mut self, lane: &LaneTier, amount: Amount) {
        self.held.subtract(amount);
        let Some(group) = self.vendors.get_mut(&lane.vendor) else { return };
        group.held.subtract(amount);
        if let Some(tenant) = group.tenants.get_mut(&lane.tenant) {
            tenant.subtract(amount);
            if *tenant == Amount::default() {
                group.tenants.remove(&lane.tenant);
            }
        }
        if group.tenants.is_empty() {
            self.vendors.remove(&lane.vendor);
        }
    }

    /// The part of the pool that no lane holds.
    pub(super) fn free(&self) -> Amount {
        Amount {
            jobs: self.whole.jobs.saturating_sub(self.held.jobs),
            bytes: self.whole.bytes.saturating_sub(self.held.bytes),
        }
    }

    /// How many jobs may be taken for a holder of `held`.
    fn room(&self, held: Amount, times: usize) -> usize {
        let free = self.free();
        if more(held.bytes, free.bytes, times) == 0 { 0 } else { more(held.jobs, free.jobs, times) }
    }

    /// How many jobs may be taken for a vendor.
    pub(super) fn vendor_room(&self, vendor: &str) -> usize {
        self.room(self.vendors.get(vendor).map(|group| group.held).unwrap_or_default(), VENDOR)
    }

    /// How many jobs may be taken for a tenant at a vendor.
    pub(super) fn lane_room(&self, lane: &LaneTier) -> usize {
        let held = self.vendors.get(&lane.vendor).and_then(|group| group.tenants.get(&lane.tenant));
        let held = held.copied().unwrap_or_default();
        if held.bytes >= self.most.bytes {
            return 0;
        }
        let most = self.most.jobs.saturating_sub(held.jobs);
        self.room(held, TENANT).min(self.vendor_room(&lane.vendor)).min(most)
    }
}

#[cfg(test)]
mod tests;
