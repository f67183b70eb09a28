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
mod tests {
    use super::*;

    const JOB: Amount = Amount { jobs: 1, bytes: 10 };

    fn lane(vendor: &str, tenant: &str) -> LaneTier {
        LaneTier { tenant: tenant.to_owned(), vendor: vendor.to_owned(), tier: 1 }
    }

    fn fill(pool: &mut Pool, lane: &LaneTier, job: Amount) -> usize {
        let mut taken = 0;
        while pool.lane_room(lane) > 0 {
            pool.add(lane, job);
            taken += 1;
        }
        taken
    }

    #[test]
    fn single_lane_takes_all_that_is_configured() {
        for most in [1, 2, 3, 10, 100, 1_000, 100_000] {
            let mut pool = Pool::new(Amount { jobs: most, bytes: 1 << 40 });
            assert_eq!(fill(&mut pool, &lane("v", "a"), JOB), most);
            let mut pool = Pool::new(Amount { jobs: most, bytes: 1 << 40 });
            let many = (0..5_000).map(|tenant| fill(&mut pool, &lane("v", &tenant.to_string()), JOB)).sum::<usize>();
            let (least, largest) = (most * 9 / 10, most * 9 / 8 + SPARE_JOBS);
            assert!((least..=largest).contains(&many), "{many} of {most} for all tenants of one vendor together");
            assert!(pool.lane_room(&lane("other", "a")) > 0, "{most}");
        }
    }

    #[test]
    fn full_lane_leaves_room_for_others() {
        let mut pool = Pool::new(Amount { jobs: 1_000, bytes: 1 << 40 });
        assert_eq!(fill(&mut pool, &lane("hangs", "a"), JOB), 1_000);
        let other = fill(&mut pool, &lane("well", "c"), JOB);
        assert!(other >= 100, "{other}");
        assert!(pool.lane_room(&lane("third", "d")) > 0, "and for one more");
    }

    #[test]
    fn hanging_tenant_leaves_room_at_its_vendor() {
        let mut pool = Pool::new(Amount { jobs: 500, bytes: 1 << 40 });
        assert_eq!(fill(&mut pool, &lane("v", "a"), JOB), 500);
        assert!(pool.lane_room(&lane("v", "b")) >= 50);
    }

    #[test]
    fn pool_bounds_bytes_and_jobs() {
        let job = Amount { jobs: 1, bytes: 500 << 10 };
        let mut pool = Pool::new(Amount { jobs: 1_000, bytes: 64 << 20 });
        let taken = fill(&mut pool, &lane("v", "a"), job);
        assert!((130..=132).contains(&taken), "{taken} jobs of 500 KiB are 64 MiB");
        assert!(pool.lane_room(&lane("other", "a")) > 0);
        for _ in 0..taken {
            pool.remove(&lane("v", "a"), job);
        }
        assert_eq!((pool.held, pool.vendors.len()), (Amount::default(), 0), "nothing is left of it");
    }

    #[test]
    fn pool_is_never_exceeded_by_random_use() {
        let mut rng = fastrand::Rng::with_seed(7);
        let most = Amount { jobs: 50, bytes: 5_000 };
        let (mut pool, mut held) = (Pool::new(most), Vec::new());
        for _ in 0..100_000 {
            let lane = lane(["u", "v", "w"][rng.usize(..3)], ["a", "b", "c", "d"][rng.usize(..4)]);
            if rng.bool() && pool.lane_room(&lane) > 0 {
                let amount = Amount { jobs: 1, bytes: rng.usize(0..500) };
                pool.add(&lane, amount);
                held.push((lane, amount));
            } else if !held.is_empty() {
                let (lane, amount) = held.swap_remove(rng.usize(..held.len()));
                pool.remove(&lane, amount);
            }
            assert!(pool.held.jobs <= pool.whole.jobs && pool.held.bytes <= pool.whole.bytes + 500);
        }
        held.into_iter().for_each(|(lane, amount)| pool.remove(&lane, amount));
        assert_eq!((pool.held, pool.vendors.len()), (Amount::default(), 0));
    }
}
