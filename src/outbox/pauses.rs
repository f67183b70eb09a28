//! Pauses that vendors asked for, kept in the store so that the next process keeps to them.
//!
//! Notices say in which lanes a pause has begun, changed or ended. About once a second the task that writes usage looks at
//! those lanes, compares what the engine says with what is written, and writes the differences. So a refusal costs no
//! write of its own, and a store that is away delays nothing: what is to be written is looked at again later.
//!
//! Pauses of [`LEAST`] and less are not written, and the end is written [`LATER`] than it is, so that refusals that come
//! moments apart and state the same end are one write.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Time, millis};
use crate::config::Tenant;
use crate::dispatch::LaneRef;
use crate::engine::{Only, StatedPause, Waits};
use crate::store::pauses::{Begun, Holder, Paused, Shortened};

/// A pause that lasts no longer is not written: a process takes about as long to start.
const LEAST: Duration = Duration::from_secs(10);
/// How much later than it is an end is written.
const LATER: Duration = Duration::from_secs(1);
/// How much later than it was meant to be a row may end, because its write took long.
const SLOW: Duration = Duration::from_secs(10);
/// The most lanes that are remembered while the store is unreachable.
const MOST: usize = 100_000;
/// All requests, in a row.
const ALL: &str = "*";

/// A lane, and those whose limits it counts in: itself, its account and its vendor.
pub(super) type Looked = ([Holder; 3], LaneRef);
type Lane = (Arc<str>, Arc<str>);
type Key = (Holder, Paused);

/// The lane's tenant, its account and its vendor, in this order.
pub(super) fn holders_of(tenant: &Tenant) -> [Holder; 3] {
    let vendor = &tenant.vendor;
    let holder = |scope, name: &str| Holder {
        vendor: (*vendor.name).to_owned(),
        environment: (*vendor.environment).to_owned(),
        scope,
        name: name.to_owned(),
    };
    [holder("tenant", &tenant.id), holder("account", &tenant.account), holder("vendor", "")]
}

/// The index of who waits in what [`holders_of`] returns.
pub(super) fn place_of(who: Waits) -> usize {
    match who {
        Waits::Lane => 0,
        Waits::Account => 1,
        Waits::Vendor => 2,
    }
}

fn in_row(only: &Only) -> String {
    only.as_deref().unwrap_or(ALL).to_owned()
}

fn from_row(text: &str) -> Only {
    (text != ALL).then(|| text.into())
}

/// A pause as the store keeps it.
fn paused(pause: &StatedPause) -> Paused {
    let endpoint = in_row(&pause.endpoint);
    match &pause.limit {
        Some((name, of)) => Paused { limit: (**name).to_owned(), limit_of: in_row(of), endpoint },
        None => Paused { limit: String::new(), limit_of: ALL.to_owned(), endpoint },
    }
}

/// A stored pause as the engine knows it.
pub(super) fn stated(who: Waits, paused: &Paused, until: Time) -> StatedPause {
    let limit = (!paused.limit.is_empty()).then(|| (paused.limit.as_str().into(), from_row(&paused.limit_of)));
    StatedPause { who, limit, endpoint: from_row(&paused.endpoint), until }
}

/// The differences between the pauses in force and those in the store.
#[derive(Default)]
pub(super) struct Changes {
    /// Pauses to be written, each with its end.
    begun: BTreeMap<Key, Time>,
    /// Pauses that end earlier than the store says: their end, and what is written.
    shortened: BTreeMap<Key, (Time, Time)>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.shortened.is_empty()
    }

    pub(super) fn rows(&self, now: Time) -> (Vec<Begun>, Vec<Shortened>) {
        let left = |until: Time| i64::try_from(millis(until.since(now))).unwrap_or(i64::MAX);
        let row = |(holder, paused): &Key, until: Time| {
            let (holder, paused) = (holder.clone(), paused.clone());
            Begun { holder, paused, left_ms: left(until) }
        };
        let begun = self.begun.iter().map(|(key, until)| row(key, *until)).collect();
        let shortened = self
            .shortened
            .iter()
            .map(|(key, (until, written))| Shortened { pause: row(key, *until), known_ms: left(*written + SLOW) });
        (begun, shortened.collect())
    }
}

/// What the store has of the pauses of this process, and the lanes that may differ from it.
#[derive(Default)]
pub(super) struct Pauses {
    changed: Mutex<HashMap<Lane, Looked>>,
    /// The ends of the pauses that this process has written, or that it has read and restored.
    written: Mutex<HashMap<Holder, HashMap<Paused, Time>>>,
}

impl Pauses {
    /// Records that a pause of the lane, or of a limit that it counts in, has begun, changed or ended.
    pub(super) fn changed(&self, tenant: &Tenant, place: LaneRef) {
        let lane = (tenant.id.clone(), tenant.vendor.name.clone());
        let mut changed = self.changed.lock();
        if changed.len() < MOST || changed.contains_key(&lane) {
            changed.insert(lane, (holders_of(tenant), place));
        }
    }

    /// Takes the lanes to look at.
    pub(super) fn take(&self) -> Vec<(Lane, Looked)> {
        std::mem::take(&mut *self.changed.lock()).into_iter().collect()
    }

    /// Takes back lanes whose pauses could not be written, so that they are looked at again.
    pub(super) fn take_back(&self, lanes: &[(Lane, Looked)]) {
        let mut changed = self.changed.lock();
        for (lane, looked) in lanes {
            changed.entry(lane.clone()).or_insert_with(|| looked.clone());
        }
    }

    /// Compares what is in force in these lanes with what is written.
    pub(super) fn compare(&self, lanes: &[(Lane, Looked)], now: Time) -> Changes {
        let mut looked = BTreeSet::new();
        let mut standing: BTreeMap<Key, Time> = BTreeMap::new();
        for (_, (holders, place)) in lanes {
            // A lane that has gone or moved says nothing.
            let Some(pauses) = place.shard.look(|engine, now| engine.stated_pauses(now, place.lane)) else { continue };
            looked.extend(holders.iter().cloned());
            for pause in pauses {
                let until = standing.entry((holders[place_of(pause.who)].clone(), paused(&pause))).or_default();
                *until = pause.until.max(*until);
            }
        }
        self.differences(&looked, standing, now)
    }

    fn differences(&self, looked: &BTreeSet<Holder>, standing: BTreeMap<Key, Time>, now: Time) -> Changes {
        let mut written = self.written.lock();
        written.retain(|_, pauses| {
            pauses.retain(|_, until| *until > now);
            !pauses.is_empty()
        });
        let mut changes = Changes::default();
        for holder in looked {
            for (paused, until) in written.get(holder).into_iter().flatten() {
                let key = (holder.clone(), paused.clone());
                let stands = standing.get(&key).map_or(now, |stands| (*stands + LATER).max(now));
                if stands + LATER < *until {
                    changes.shortened.insert(key, (stands, *until));
                }
            }
        }
        for (key, until) in standing {
            let known = written.get(&key.0).and_then(|pauses| pauses.get(&key.1));
            if until > now + LEAST && known.is_none_or(|known| until > *known) {
                changes.begun.insert(key, until + LATER);
            }
        }
        changes
    }

    /// Records that the changes are in the store.
    pub(super) fn are_written(&self, changes: Changes) {
        let shortened = changes.shortened.into_iter().map(|(key, (until, _))| (key, until));
        let mut written = self.written.lock();
        for ((holder, paused), until) in changes.begun.into_iter().chain(shortened) {
            written.entry(holder).or_default().insert(paused, until);
        }
    }

    /// Records that a pause was read from the store and restored.
    pub(super) fn is_restored(&self, holder: &Holder, paused: &Paused, until: Time) {
        let mut written = self.written.lock();
        let known = written.entry(holder.clone()).or_default().entry(paused.clone()).or_default();
        *known = until.max(*known);
    }

    /// Whether this process has written or restored the pause already.
    pub(super) fn is_known(&self, holder: &Holder, paused: &Paused, until: Time) -> bool {
        let written = self.written.lock();
        written.get(holder).and_then(|pauses| pauses.get(paused)).is_some_and(|known| until <= *known + LATER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn holder() -> Holder {
        Holder { vendor: "v".into(), environment: "live".into(), scope: "tenant", name: "a".into() }
    }

    fn limit(name: &str) -> Paused {
        Paused { limit: name.into(), limit_of: ALL.into(), endpoint: ALL.into() }
    }

    /// Compares with the limits that are paused now, writes the differences, and returns how many seconds each begun and
    /// each shortened pause lasts.
    fn write(pauses: &Pauses, standing: &[(&str, Time)], now: Time) -> (Vec<i64>, Vec<i64>) {
        let standing = standing.iter().map(|(name, until)| ((holder(), limit(name)), *until)).collect();
        let changes = pauses.differences(&BTreeSet::from([holder()]), standing, now);
        let (begun, shortened) = changes.rows(now);
        pauses.are_written(changes);
        let seconds = |left_ms: i64| left_ms / 1_000;
        (
            begun.iter().map(|pause| seconds(pause.left_ms)).collect(),
            shortened.iter().map(|shortened| seconds(shortened.pause.left_ms)).collect(),
        )
    }

    #[test]
    fn pause_is_written_once_and_when_longer() {
        let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
        let (none, until) = (Vec::new(), now + 60 * SECOND);
        assert_eq!(write(&pauses, &[("a", until), ("brief", now + LEAST)], now), (vec![61], none.clone()));
        // Another refusal, which came a little later, states the same wait.
        let later = until + Duration::from_millis(300);
        assert_eq!(write(&pauses, &[("a", later)], now + SECOND), (none.clone(), none.clone()));
        assert_eq!(write(&pauses, &[("a", until + 30 * SECOND)], now + 2 * SECOND), (vec![89], none.clone()));
        // It has passed, and the row with it.
        assert_eq!(write(&pauses, &[], now + 100 * SECOND), (none.clone(), none));
    }

    #[test]
    fn early_end_is_written() {
        let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
        write(&pauses, &[("a", now + 60 * SECOND), ("b", now + 90 * SECOND)], now);
        let (begun, shortened) = write(&pauses, &[("b", now + 30 * SECOND)], now + SECOND);
        assert_eq!((begun, shortened), (Vec::new(), vec![0, 30]));
        assert_eq!(write(&pauses, &[("b", now + 30 * SECOND)], now + 2 * SECOND), (Vec::new(), Vec::new()));
    }

    #[test]
    fn restored_pause_is_not_written_again() {
        let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
        let until = now + 60 * SECOND;
        pauses.is_restored(&holder(), &limit("a"), until);
        assert!(pauses.is_known(&holder(), &limit("a"), until) && !pauses.is_known(&holder(), &limit("b"), until));
        assert_eq!(write(&pauses, &[("a", until)], now), (Vec::new(), Vec::new()));
        // An operator ends it.
        assert_eq!(write(&pauses, &[], now + SECOND), (Vec::new(), vec![0]));
    }

    #[test]
    fn rows_name_endpoints_and_all_requests() {
        let until = Time::ZERO + SECOND;
        for (limit, endpoint) in [
            (None, None),
            (Some(("day".into(), None)), Some("search".into())),
            (Some(("day".into(), Some("search".into()))), None),
            (Some(("day".into(), Some("".into()))), Some("".into())),
        ] {
            let pause = StatedPause { who: Waits::Account, limit, endpoint, until };
            assert_eq!(stated(Waits::Account, &paused(&pause), until), pause);
        }
    }
}
