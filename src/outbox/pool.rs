//! How many jobs are in hand, and how many bytes of them, and who may take more. Pure.
//!
//! All tenants and vendors share one pool, and none can be trusted to give back what it has: one that hangs keeps its jobs until their
//! time is up. Fixed shares would leave most of the pool unused. So a vendor may take more while it has less than eight
//! times what is free, and a tenant at a vendor while it has less than four times that ("dynamic thresholds", Choudhury and
//! Hahne 1998): one alone may have all that it is to have, and there is always room for one that comes later. The pool is
//! larger than what one may have by what is kept free for the others.

use std::collections::HashMap;

use crate::store::LaneTier;

/// A vendor may take more while it has less than so many times what is free.
const VENDOR: usize = 8;
/// The same for a tenant at a vendor.
const TENANT: usize = 4;
/// Jobs that are kept free for others at least, however small the pool is.
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
    /// What one tenant may have at one vendor.
    most: Amount,
    /// What all may have together.
    whole: Amount,
    held: Amount,
    vendors: HashMap<String, Group>,
}

/// How many more may be taken by one that has `held`, so that it has at most `times` what is free then. One that has nothing
/// may have the last that is free.
fn more(held: usize, free: usize, times: usize) -> usize {
    let more = times.saturating_mul(free).saturating_sub(held) / (times + 1);
    if held == 0 { more.max(free.min(1)) } else { more }
}

impl Pool {
    /// A pool of which one tenant may have `most` while no other has work.
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

    /// What nobody has.
    pub(super) fn free(&self) -> Amount {
        Amount {
            jobs: self.whole.jobs.saturating_sub(self.held.jobs),
            bytes: self.whole.bytes.saturating_sub(self.held.bytes),
        }
    }

    /// Jobs that may be taken for one that has `held`.
    fn room(&self, held: Amount, times: usize) -> usize {
        let free = self.free();
        if more(held.bytes, free.bytes, times) == 0 { 0 } else { more(held.jobs, free.jobs, times) }
    }

    /// Jobs that may be taken for a vendor.
    pub(super) fn vendor_room(&self, vendor: &str) -> usize {
        self.room(self.vendors.get(vendor).map(|group| group.held).unwrap_or_default(), VENDOR)
    }

    /// Jobs that may be taken for a tenant at a vendor.
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
    fn one_alone_takes_all_that_is_configured() {
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
    fn room_is_left_for_others_whoever_holds_all_it_may() {
        let mut pool = Pool::new(Amount { jobs: 1_000, bytes: 1 << 40 });
        assert_eq!(fill(&mut pool, &lane("hangs", "a"), JOB), 1_000);
        let other = fill(&mut pool, &lane("well", "c"), JOB);
        assert!(other >= 100, "{other}");
        assert!(pool.lane_room(&lane("third", "d")) > 0, "and for one more");
    }

    #[test]
    fn one_hanging_tenant_leaves_room_to_others_of_its_vendor() {
        let mut pool = Pool::new(Amount { jobs: 500, bytes: 1 << 40 });
        assert_eq!(fill(&mut pool, &lane("v", "a"), JOB), 500);
        assert!(pool.lane_room(&lane("v", "b")) >= 50);
    }

    #[test]
    fn bytes_are_bounded_as_jobs_are() {
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
    fn random_use_never_exceeds_the_pool_and_ends_empty() {
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
