//! The stored jobs that wait because they cost more than a limit holds, by tenant, vendor and limit. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::clock::Time;
use crate::config::Tenant;

/// The most limits of lanes, and the most jobs at each of them, that are remembered.
const LIMITS: usize = 200;
const JOBS: usize = 1_000;
/// How long after its wait a job is remembered that is not claimed here: another process may have claimed or ended it.
const FORGET: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct CostlyJobs(Mutex<BTreeMap<[Arc<str>; 3], Costly>>);

/// Jobs that cost more than a limit of their lane holds.
#[derive(Default)]
struct Costly {
    holds: u32,
    /// The highest cost.
    cost: u32,
    /// The jobs' ids, and until when each is remembered.
    jobs: HashMap<Box<str>, Time>,
}

impl CostlyJobs {
    /// Remembers a job that waits until `until` and is claimed again then.
    pub(crate) fn waits(&self, id: &str, of: &Tenant, limit: &Arc<str>, [cost, holds]: [u32; 2], until: Time) {
        let key = [of.id.clone(), of.vendor.name.clone(), limit.clone()];
        let mut limits = self.0.lock();
        if limits.len() >= LIMITS && !limits.contains_key(&key) {
            return;
        }
        let known = limits.entry(key).or_default();
        (known.holds, known.cost) = (holds, known.cost.max(cost));
        if known.jobs.len() < JOBS {
            known.jobs.insert(id.into(), until + FORGET);
        }
    }

    /// Forgets a job that is claimed again.
    pub(crate) fn claimed(&self, id: &str) {
        self.0.lock().retain(|_, known| {
            known.jobs.remove(id);
            !known.jobs.is_empty()
        });
    }

    /// The limits and the number of jobs at each, as JSON.
    pub(crate) fn status(&self, now: Time) -> Vec<Value> {
        let mut limits = self.0.lock();
        limits.retain(|_, known| {
            known.jobs.retain(|_, until| now < *until);
            !known.jobs.is_empty()
        });
        let shown = |([tenant, vendor, limit], known): (&[Arc<str>; 3], &Costly)| {
            let Costly { holds, cost, jobs } = known;
            json!({
                "tenant": tenant, "vendor": vendor, "limit": limit, "holds": holds, "cost": cost, "jobs": jobs.len(),
            })
        };
        limits.iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests;
