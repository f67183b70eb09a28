//! The retry budgets of all lanes. A lane that never had to retry has none.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::Budget;
use crate::clock::Time;

/// A budget unused for this long is dropped: it looks back a minute only.
const FORGOTTEN: Duration = Duration::from_secs(120);
const SHARDS: usize = 64;

/// Budgets by the hash of tenant and vendor. Two lanes with the same hash share a budget, which only makes it stricter.
pub(crate) struct Budgets {
    /// Set by the first retry of any lane.
    any: AtomicBool,
    shards: Box<[Shard]>,
}

#[derive(Default)]
struct Shard {
    count: AtomicUsize,
    budgets: Mutex<HashMap<u64, (Time, Budget)>>,
}

impl Budgets {
    pub(crate) fn new() -> Budgets {
        Budgets { any: AtomicBool::new(false), shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    fn shard(&self, lane: u64) -> &Shard {
        &self.shards[lane as usize % SHARDS]
    }

    /// Counts a request that is sent for the first time.
    #[inline]
    pub(crate) fn request(&self, lane: impl FnOnce() -> u64, now: Time) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let lane = lane();
        let shard = self.shard(lane);
        if shard.count.load(Ordering::Relaxed) > 0
            && let Some((_, budget)) = shard.budgets.lock().get_mut(&lane)
        {
            budget.request(now);
        }
    }

    /// Retries per request in the last minute; 0 if the lane has no budget.
    pub(crate) fn share_of_retries(&self, lane: u64, now: Time) -> f64 {
        let mut budgets = self.shard(lane).budgets.lock();
        // Requests are counted only from the first retry on, so the share may exceed 1 at first.
        budgets.get_mut(&lane).map_or(0.0, |(_, budget)| budget.share_of_retries(now).min(1.0))
    }

    /// Whether the lane may retry now. Counts the retry if so.
    pub(crate) fn try_retry(&self, lane: u64, now: Time) -> bool {
        self.any.store(true, Ordering::Relaxed);
        let shard = self.shard(lane);
        let mut budgets = shard.budgets.lock();
        if !budgets.contains_key(&lane) {
            budgets.retain(|_, (used, _)| now.since(*used) < FORGOTTEN);
        }
        let (used, budget) = budgets.entry(lane).or_insert_with(|| (now, Budget::default()));
        *used = now;
        let allowed = budget.try_retry(now);
        shard.count.store(budgets.len(), Ordering::Relaxed);
        allowed
    }
}
