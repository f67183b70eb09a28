//! The room, which is the share that is left, of each limit of the lanes that users look at: a sample every two
//! seconds, for the last five minutes. Pure functions.
//!
//! A lane is sampled from the first time that a user looks at it until nobody has looked for a minute. Other lanes cost
//! nothing, however many there are.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Time;
use crate::status::LimitStatus;

/// The time between two samples.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// The number of samples that are kept: five minutes.
const KEPT: usize = 150;
/// The most lanes that are sampled at the same time; users hardly ever look at more.
const MAX_LANES: usize = 64;
/// A lane is forgotten when nobody has looked at it for this long.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// A tenant and a vendor.
pub(super) type Name = (Arc<str>, Arc<str>);
/// A limit of a lane: its name, its scope and its endpoint.
type LimitName = (Arc<str>, &'static str, Option<Arc<str>>);

#[derive(Debug)]
struct Watched {
    looked: Time,
    limits: HashMap<LimitName, VecDeque<u8>>,
}

/// The samples of all lanes that users look at.
#[derive(Debug, Default)]
pub(super) struct Recent {
    lanes: HashMap<Name, Watched>,
}

impl Recent {
    /// Records that a user looks at a lane. Returns the samples of its `limits`, in percent, the oldest first.
    pub(super) fn look(&mut self, now: Time, lane: Name, limits: &[LimitStatus]) -> Vec<Vec<u8>> {
        self.forget(now);
        let has_room = self.lanes.len() < MAX_LANES;
        let watched = match self.lanes.get_mut(&lane) {
            Some(watched) => watched,
            None if has_room => self.lanes.entry(lane).or_insert(Watched { looked: now, limits: HashMap::new() }),
            None => return vec![Vec::new(); limits.len()],
        };
        watched.looked = now;
        let line = |limit: &LimitStatus| watched.limits.get(&name(limit)).map(|line| line.iter().copied().collect());
        limits.iter().map(|limit| line(limit).unwrap_or_default()).collect()
    }

    /// The lanes that are to be sampled.
    pub(super) fn lanes(&mut self, now: Time) -> Vec<Name> {
        self.forget(now);
        self.lanes.keys().cloned().collect()
    }

    /// Takes a sample of a lane's limits, and forgets limits that the lane does not have any more.
    pub(super) fn sample(&mut self, lane: &Name, limits: &[LimitStatus]) {
        let Some(watched) = self.lanes.get_mut(lane) else { return };
        watched.limits.retain(|known, _| limits.iter().any(|limit| name(limit) == *known));
        for limit in limits {
            let line = watched.limits.entry(name(limit)).or_default();
            if line.len() == KEPT {
                line.pop_front();
            }
            let percent = u64::from(limit.remaining) * 100 / u64::from(limit.guard.max(1));
            line.push_back(u8::try_from(percent.min(100)).unwrap_or(100));
        }
    }

    fn forget(&mut self, now: Time) {
        self.lanes.retain(|_, watched| now.since(watched.looked) < FORGOTTEN);
    }
}

fn name(limit: &LimitStatus) -> LimitName {
    (limit.name.clone(), limit.scope, limit.endpoint.clone())
}

#[cfg(test)]
mod tests;
