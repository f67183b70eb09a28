//! Pauses that vendors asked for, kept in the store so that the next process keeps to them.
//!
//! This process remembers what it has written. The task that writes usage compares that with what the engine says now, and
//! writes the differences: of each lane of which a notice came within about a second, and of all that is written every
//! [`LOOK_EVERY`]. So a notice only says where to look soon: no change is missed because none came, and none because a
//! write failed. A refusal costs no write of its own, and a store that is away delays nothing.
//!
//! Processes share rows, and the row of a pause that stands here may be ended by a process in which it has ended. So a row
//! whose pause stands is written again every [`AGAIN`].
//!
//! Pauses of [`LEAST`] and less are not written, and the end is written [`LATER`] than it is, so that refusals that come
//! moments apart and state the same end are one write.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::clock::Time;
use crate::config::Tenant;
use crate::core::Core;
use crate::dispatch::LaneRef;
use crate::engine::{Group, Only, StatedPause, Waits};
use crate::store::pauses::{Begun, Holder, Paused, Shortened};

/// A pause that lasts no longer is not written: a process takes about as long to start.
const LEAST: Duration = Duration::from_secs(10);
/// How much later than it is an end is written.
const LATER: Duration = Duration::from_secs(1);
/// How much later than it was meant to be a row may end: the clocks of process and store differ, and a transaction may take
/// long.
const SLOW: Duration = Duration::from_secs(10);
/// How often all that is written is compared with the engine, and what could not be written is tried again.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often the row of a pause that stands is written again.
const AGAIN: Duration = Duration::from_secs(60);
/// The most lanes that are remembered while the store is unreachable, and the most holders that an operator has resumed.
const MOST: usize = 100_000;
/// For how long it is remembered, at least, that an operator has resumed a holder. Its rows are ended earlier than that.
const RESUMED: Duration = Duration::from_secs(60);
/// All requests, in a row.
const ALL: &str = "*";

type Lane = (Arc<str>, Arc<str>);
type Key = (Holder, Paused);
/// A pause that was read: whose it is, what is paused, and the end in the store.
type Stored<'a> = (&'a Holder, &'a Paused, Time);

/// A lane to look at.
#[derive(Clone)]
pub(super) struct Looked {
    lane: Lane,
    /// Those whose limits it counts in: itself, its account and its vendor.
    holders: Arc<[Holder; 3]>,
    place: LaneRef,
}

impl Looked {
    pub(super) fn new(tenant: &Tenant, place: LaneRef) -> Looked {
        let lane = (tenant.id.clone(), tenant.vendor.name.clone());
        Looked { lane, holders: Arc::new(holders_of(tenant)), place }
    }

    /// The lane as it is now: it may have moved, and its tenant may have changed. One that was evicted is made anew, without
    /// pauses of its own. Without the tenant or the client it is where it was, if it is still there.
    fn at_present(&self, core: Option<&Core>) -> Looked {
        let found = core.and_then(|core| {
            let route = core.registry.routes.find(&self.lane.0, &self.lane.1)?;
            let place = core.registry.place(&route).ok()?;
            Some(Looked::new(&route, place))
        });
        found.unwrap_or_else(|| self.clone())
    }
}

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

/// The account of which `holder` is.
fn group_of(holder: &Holder) -> Group<'_> {
    Group { vendor: &holder.vendor, environment: &holder.environment, account: Some(&holder.name) }
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

/// What is in the store of a pause.
#[derive(Clone, Copy, Default, Debug)]
struct Row {
    until: Time,
    /// When this process wrote or read it last.
    at: Time,
}

/// The pauses of one holder.
type Rows = HashMap<Paused, Row>;

/// What this process has written of a holder's pauses.
#[derive(Default)]
struct Written {
    rows: Rows,
    /// A lane that shows the holder's pauses.
    seen_by: Option<Looked>,
}

/// The differences between the pauses in force and those in the store.
#[derive(Default)]
pub(super) struct Changes {
    /// Pauses to be written, each with its end.
    begun: BTreeMap<Key, Time>,
    /// Pauses that end earlier than the store says: their end, and what is written.
    shortened: BTreeMap<Key, (Time, Time)>,
    /// For each holder, a lane that shows its pauses.
    seen_by: BTreeMap<Holder, Looked>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.shortened.is_empty()
    }

    pub(super) fn rows(&self) -> (Vec<Begun>, Vec<Shortened>) {
        let row = |(holder, paused): &Key, until: Time| {
            let (holder, paused) = (holder.clone(), paused.clone());
            Begun { holder, paused, until }
        };
        let begun = self.begun.iter().map(|(key, until)| row(key, *until)).collect();
        let shortened = self
            .shortened
            .iter()
            .map(|(key, (until, written))| Shortened { pause: row(key, *until), known: *written + SLOW });
        (begun, shortened.collect())
    }
}

/// The differences between the rows that were written of the holders that were looked at, and the pauses that stand.
fn differences(written: &BTreeMap<Holder, Rows>, standing: BTreeMap<Key, Time>, now: Time) -> Changes {
    let mut changes = Changes::default();
    for (holder, rows) in written {
        for (paused, row) in rows.iter().filter(|(_, row)| row.until > now) {
            let key = (holder.clone(), paused.clone());
            let stands = standing.get(&key).map_or(now, |stands| (*stands + LATER).max(now));
            if stands + LATER < row.until {
                changes.shortened.insert(key, (stands, row.until));
            }
        }
    }
    for (key, until) in standing {
        let row = written.get(&key.0).and_then(|rows| rows.get(&key.1));
        let is_due = row.is_none_or(|row| until > row.until || now.since(row.at) >= AGAIN);
        if until > now + LEAST && is_due && !changes.shortened.contains_key(&key) {
            // A row that is written again keeps its end. Otherwise a pause that was read from it, and ends when the row
            // does, would become longer with each process.
            let end = row.filter(|row| until <= row.until).map_or(until + LATER, |row| row.until);
            changes.begun.insert(key, end);
        }
    }
    changes
}

/// The holders whose pauses an operator has ended lately, and when. A row that is read may be of such a pause: the engine
/// did not know of it yet, or the row's end is not written yet. A holder is remembered for as long as lanes wait to be
/// read that were there before, and for [`RESUMED`].
#[derive(Default)]
pub(super) struct Resumed {
    at: HashMap<Holder, Time>,
    /// Since when lanes wait to be read.
    reading_since: Option<Time>,
}

impl Resumed {
    pub(super) fn contains(&self, holder: &Holder) -> bool {
        self.at.contains_key(holder)
    }

    fn add(&mut self, holder: Holder, now: Time) {
        if self.at.len() < MOST || self.at.contains_key(&holder) {
            self.at.insert(holder, now);
        }
    }

    fn forget(&mut self, now: Time) {
        let since = self.reading_since.unwrap_or(now);
        self.at.retain(|_, at| *at + RESUMED > since);
    }
}

/// What the store has of the pauses of this process, and the lanes that may differ from it.
#[derive(Default)]
pub(super) struct Pauses {
    /// Lanes of which a notice came since the last look.
    changed: Mutex<HashMap<Lane, Looked>>,
    /// Lanes whose differences could not be written.
    failed: Mutex<HashMap<Lane, Looked>>,
    /// The pauses that this process has written, or that it has read and restored.
    written: Mutex<HashMap<Holder, Written>>,
    /// When all of them were compared last.
    compared_at: Mutex<Time>,
    /// Locked before `written`, if both are.
    resumed: Mutex<Resumed>,
}

impl Pauses {
    /// Records that a pause of the lane, or of a limit that it counts in, may have begun, changed or ended.
    pub(super) fn changed(&self, tenant: &Tenant, place: LaneRef) {
        let looked = Looked::new(tenant, place);
        let mut changed = self.changed.lock();
        if changed.len() < MOST || changed.contains_key(&looked.lane) {
            changed.insert(looked.lane.clone(), looked);
        }
    }

    /// Records that an operator ends all pauses of the tenant, of its account and of its vendor. Called before that is done.
    pub(super) fn resume(&self, tenant: &Tenant, now: Time) {
        let mut resumed = self.resumed.lock();
        holders_of(tenant).into_iter().for_each(|holder| resumed.add(holder, now));
    }

    /// The holders that an operator has resumed. Locked while a pause is restored, so that an operator who resumes it
    /// meanwhile ends it.
    pub(super) fn resumed(&self) -> MutexGuard<'_, Resumed> {
        self.resumed.lock()
    }

    /// Records whether there are lanes whose rows have not been read.
    pub(super) fn lanes_wait(&self, wait: bool, now: Time) {
        let mut resumed = self.resumed.lock();
        resumed.reading_since = if wait { resumed.reading_since.or(Some(now)) } else { None };
    }

    /// Takes the lanes to look at: those of which a notice came and, every [`LOOK_EVERY`] or with `all`, one lane for each
    /// holder of which something is written, and those that could not be written.
    pub(super) fn take(&self, now: Time, all: bool) -> Vec<Looked> {
        let mut lanes = std::mem::take(&mut *self.changed.lock());
        if all || self.is_due(now) {
            self.resumed.lock().forget(now);
            let failed = std::mem::take(&mut *self.failed.lock());
            lanes.extend(failed);
            let mut written = self.written.lock();
            written.retain(|_, written| {
                written.rows.retain(|_, row| row.until > now);
                !written.rows.is_empty()
            });
            for looked in written.values().filter_map(|written| written.seen_by.as_ref()) {
                lanes.entry(looked.lane.clone()).or_insert_with(|| looked.clone());
            }
        }
        lanes.into_values().collect()
    }

    fn is_due(&self, now: Time) -> bool {
        let mut compared_at = self.compared_at.lock();
        let is_due = now.since(*compared_at) >= LOOK_EVERY;
        if is_due {
            *compared_at = now;
        }
        is_due
    }

    /// Has lanes whose pauses could not be written looked at again with all others.
    pub(super) fn put_off(&self, lanes: impl IntoIterator<Item = Looked>) {
        let mut failed = self.failed.lock();
        for looked in lanes {
            if failed.len() < MOST || failed.contains_key(&looked.lane) {
                failed.insert(looked.lane.clone(), looked);
            }
        }
    }

    /// Compares what is in force in these lanes with what is written. `core`: none if the client has ended.
    pub(super) fn compare(&self, core: Option<&Core>, lanes: &[Looked], now: Time) -> Changes {
        let mut written: BTreeMap<Holder, Rows> = BTreeMap::new();
        let mut standing: BTreeMap<Key, Time> = BTreeMap::new();
        let mut seen_by = BTreeMap::new();
        for looked in lanes {
            let looked = looked.at_present(core);
            // Read before the engine is: a pause that is restored in between is then not taken for one that has ended.
            let known = self.rows_of(&looked.holders[..]);
            let (place, account) = (&looked.place, group_of(&looked.holders[place_of(Waits::Account)]));
            let found = place.shard.look(|engine, now| {
                let pauses = engine.stated_pauses(now, place.lane)?;
                Some((pauses, engine.counts_in(place.lane, account)))
            });
            let Some((pauses, is_current)) = found else { continue };
            if !is_current {
                // A reload has not come to the lane yet. Its pauses are those of its earlier account.
                self.put_off([looked]);
                continue;
            }
            for (holder, rows) in looked.holders.iter().zip(known) {
                written.entry(holder.clone()).or_insert(rows);
                seen_by.insert(holder.clone(), looked.clone());
            }
            for pause in pauses {
                let key = (looked.holders[place_of(pause.who)].clone(), paused(&pause));
                let until = standing.entry(key).or_default();
                *until = pause.until.max(*until);
            }
        }
        self.are_seen(&seen_by);
        Changes { seen_by, ..differences(&written, standing, now) }
    }

    fn rows_of(&self, holders: &[Holder]) -> Vec<Rows> {
        let written = self.written.lock();
        let rows = |holder: &Holder| written.get(holder).map(|written| written.rows.clone()).unwrap_or_default();
        holders.iter().map(rows).collect()
    }

    /// Looks at the holders through these lanes from now on: the lanes before may be gone.
    fn are_seen(&self, seen_by: &BTreeMap<Holder, Looked>) {
        let mut written = self.written.lock();
        for (holder, looked) in seen_by {
            if let Some(written) = written.get_mut(holder) {
                written.seen_by = Some(looked.clone());
            }
        }
    }

    /// Records that the changes are in the store.
    pub(super) fn are_written(&self, changes: Changes, now: Time) {
        let Changes { begun, shortened, seen_by } = changes;
        // A pause that stands after the operator's call is a new one.
        let mut resumed = self.resumed.lock();
        for (holder, _) in begun.keys() {
            if resumed.at.get(holder).is_some_and(|at| *at < now) {
                resumed.at.remove(holder);
            }
        }
        drop(resumed);
        let shortened = shortened.into_iter().map(|(key, (until, _))| (key, until));
        let mut written = self.written.lock();
        for ((holder, paused), until) in begun.into_iter().chain(shortened) {
            let seen_by = seen_by.get(&holder).cloned();
            let of_holder = written.entry(holder).or_default();
            of_holder.seen_by = seen_by.or(of_holder.seen_by.take());
            of_holder.rows.insert(paused, Row { until, at: now });
        }
    }

    /// Records that a pause of a holder was read from the store at `now`, and restored. `seen_by`: a lane that shows it.
    pub(super) fn is_restored(&self, (holder, paused, until): Stored<'_>, seen_by: Option<Looked>, now: Time) {
        let mut written = self.written.lock();
        let of_holder = written.entry(holder.clone()).or_default();
        of_holder.seen_by = seen_by.or(of_holder.seen_by.take());
        let row = of_holder.rows.entry(paused.clone()).or_default();
        *row = Row { until: until.max(row.until), at: now };
    }

    /// Whether this process has written or restored the pause already.
    pub(super) fn is_known(&self, holder: &Holder, paused: &Paused, until: Time) -> bool {
        let written = self.written.lock();
        let row = written.get(holder).and_then(|written| written.rows.get(paused));
        row.is_some_and(|row| until <= row.until + LATER)
    }
}

#[cfg(test)]
mod tests;
