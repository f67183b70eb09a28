//! Pauses that vendors asked for, kept in the store so that the next process keeps to them.
//!
//! This process remembers what it has written. The task that writes usage (`keep_usage.rs`) compares that with what the
//! engine says now (`looked.rs`), and writes the differences: of each lane of which a notice came within about a second, and
//! of all that is written every [`LOOK_EVERY`]. So a notice only says where to look soon: no change is missed because none
//! came, and none because a write failed. A refusal costs no write of its own, and a store that is away delays nothing.
//!
//! Processes share rows, and the row of a pause that stands here may be ended by a process in which it has ended. So a row
//! whose pause stands is written again every [`AGAIN`].
//!
//! Pauses of [`LEAST`] and less are not written, and the end is written [`LATER`] than it is, so that refusals that come
//! moments apart and state the same end are one write.

mod looked;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;

use self::looked::{Key, Lane, Seen};
pub(super) use self::looked::{Looked, account_of, holders_of, stated};
use crate::clock::Time;
use crate::core::Core;
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
/// The most lanes that are listed while nothing of them is written, and the most holders that an operator has resumed.
const MOST: usize = 100_000;
/// For how long it is remembered, at least, that an operator has resumed a holder. Its rows are ended earlier than that.
const RESUMED: Duration = Duration::from_secs(60);

/// Why a lane is looked at. The last reason is the most urgent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Why {
    /// It shows pauses of which there are rows, or may be soon.
    Shows,
    /// It could not be compared, or the differences could not be written.
    Failed,
    /// A notice came.
    Told,
}

/// What is in the store of a pause.
#[derive(Clone, Copy, Default, Debug)]
struct Row {
    until: Time,
    /// When this process wrote or read it last.
    at: Time,
}

/// The rows of some holders.
type Rows = BTreeMap<Holder, HashMap<Paused, Row>>;

/// The differences between the pauses in force and those in the store.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) begun: Vec<Begun>,
    pub(super) shortened: Vec<Shortened>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.shortened.is_empty()
    }

    /// Adds what is to be written of one pause, which stands until `stands`.
    fn add(&mut self, (holder, paused): Key, row: Option<Row>, stands: Option<Time>, now: Time) {
        let row = row.filter(|row| row.until > now);
        let end = stands.map_or(now, |until| (until + LATER).max(now));
        match (row, stands) {
            (Some(row), _) if end + LATER < row.until => {
                let pause = Begun { holder, paused, until: end };
                self.shortened.push(Shortened { pause, known: row.until + SLOW });
            }
            // The row keeps its end. Otherwise a pause that was read from it, and ends when the row does, would become
            // longer with each process.
            (Some(row), Some(until)) if until <= row.until => {
                let is_due = until > now + LEAST && now.since(row.at) >= AGAIN;
                self.begun.extend(is_due.then_some(Begun { holder, paused, until: row.until }));
            }
            (_, Some(until)) if until > now + LEAST => self.begun.push(Begun { holder, paused, until: end }),
            _ => {}
        }
    }
}

/// The differences between rows and the pauses that stand.
fn differences(rows: Rows, standing: BTreeMap<Key, Time>, now: Time) -> Changes {
    let mut pauses: BTreeMap<Key, (Option<Row>, Option<Time>)> = BTreeMap::new();
    for (holder, rows) in rows {
        pauses.extend(rows.into_iter().map(|(paused, row)| ((holder.clone(), paused), (Some(row), None))));
    }
    for (key, until) in standing {
        pauses.entry(key).or_default().1 = Some(until);
    }
    let mut changes = Changes::default();
    pauses.into_iter().for_each(|(key, (row, stands))| changes.add(key, row, stands, now));
    changes
}

/// The lanes of which a notice came since lanes were last taken. They have a lock of their own, which is held for one lane
/// at a time: tasks that send give notices, and must not wait while all that is written is gone through.
#[derive(Default)]
pub(super) struct Told(Mutex<HashMap<Lane, Looked>>);

impl Told {
    /// Records that a notice of the lane came.
    pub(super) fn add(&self, looked: Looked) {
        let mut lanes = self.0.lock();
        if lanes.len() < MOST || lanes.contains_key(&looked.lane) {
            lanes.insert(looked.lane.clone(), looked);
        }
    }
}

/// What the store has of the pauses of this process, and the lanes to look at, but for those in [`Told`]. Pure.
#[derive(Default)]
pub(super) struct Pauses {
    /// The lanes to look at, and why.
    lanes: HashMap<Lane, (Looked, Why)>,
    /// The pauses that this process has written, or that it has read and restored.
    rows: Rows,
    /// When all of them were compared last.
    compared_at: Time,
    /// The holders whose pauses an operator has ended lately, and when. A row that is read may be of such a pause: the
    /// engine did not know of it yet, or the row's end is not written yet. A holder is remembered for as long as lanes wait
    /// to be read that were there before, and for [`RESUMED`].
    resumed: HashMap<Holder, Time>,
    /// Since when lanes wait to be read.
    reading_since: Option<Time>,
}

impl Pauses {
    /// Has the lane looked at for this reason, or for a more urgent one if there is one already.
    fn list(&mut self, looked: Looked, why: Why) {
        let is_full = self.lanes.len() >= MOST + self.rows.len();
        match self.lanes.entry(looked.lane.clone()) {
            Entry::Occupied(mut known) => {
                let why = why.max(known.get().1);
                known.insert((looked, why));
            }
            Entry::Vacant(_) if is_full => {}
            Entry::Vacant(free) => {
                free.insert((looked, why));
            }
        }
    }

    /// The lanes to look at now: those of which a notice came and, every [`LOOK_EVERY`] or with `all`, those that failed
    /// and a lane for each holder that has rows.
    fn take(&mut self, now: Time, all: bool) -> Vec<Looked> {
        let all = all || now.since(self.compared_at) >= LOOK_EVERY;
        if all {
            self.compared_at = now;
            let since = self.reading_since.unwrap_or(now);
            self.resumed.retain(|_, at| *at + RESUMED > since);
            self.rows.retain(|_, rows| {
                rows.retain(|_, row| row.until > now);
                !rows.is_empty()
            });
            let (rows, mut shown) = (&self.rows, HashSet::new());
            self.lanes.retain(|_, (looked, why)| {
                let with_rows = looked.holders.iter().filter_map(|holder| rows.get_key_value(holder));
                *why > Why::Shows || with_rows.filter(|(holder, _)| shown.insert(*holder)).count() > 0
            });
        }
        let taken = self.lanes.values_mut().filter(|(_, why)| all || *why == Why::Told);
        let looked = taken.map(|(looked, why)| {
            *why = Why::Shows;
            looked.clone()
        });
        looked.collect()
    }

    /// The rows of the holders of these lanes.
    fn rows_of(&self, lanes: &[Looked]) -> Rows {
        let holders: BTreeSet<&Holder> = lanes.iter().flat_map(|looked| looked.holders.iter()).collect();
        let with_rows = holders.into_iter().filter_map(|holder| self.rows.get_key_value(holder));
        with_rows.map(|(holder, rows)| (holder.clone(), rows.clone())).collect()
    }

    /// Compares what was seen in lanes with `rows`, which are those of their holders from before the lanes were seen.
    fn compare(&mut self, mut rows: Rows, lanes: Vec<(Seen, Looked)>, now: Time) -> Changes {
        let (mut standing, mut shown) = (BTreeMap::<Key, Time>::new(), HashSet::new());
        for (seen, looked) in lanes {
            let has_rows = |holders: &[Holder]| holders.iter().any(|holder| self.rows.contains_key(holder));
            let why = match seen {
                Seen::Pauses(pauses) => {
                    shown.extend(looked.holders.iter().filter(|holder| rows.contains_key(*holder)).cloned());
                    let shows = !pauses.is_empty() || has_rows(&looked.holders[..]);
                    for (key, until) in pauses {
                        let stands = standing.entry(key).or_default();
                        *stands = until.max(*stands);
                    }
                    shows.then_some(Why::Shows)
                }
                Seen::Earlier => Some(Why::Failed),
                // Its tenant may come back before the lane's own rows end. It shows no rows of others.
                Seen::Gone => has_rows(&looked.holders[..1]).then_some(Why::Failed),
            };
            match why {
                Some(why) => self.list(looked, why),
                None if self.lanes.get(&looked.lane).is_some_and(|(_, why)| *why == Why::Shows) => {
                    self.lanes.remove(&looked.lane);
                }
                None => {}
            }
        }
        rows.retain(|holder, _| shown.contains(holder));
        differences(rows, standing, now)
    }

    /// Has lanes whose pauses could not be written looked at again with all others.
    pub(super) fn put_off(&mut self, lanes: impl IntoIterator<Item = Looked>) {
        lanes.into_iter().for_each(|looked| self.list(looked, Why::Failed));
    }

    /// Records that the changes are in the store.
    pub(super) fn are_written(&mut self, changes: Changes, now: Time) {
        for pause in &changes.begun {
            // A pause that stands after the operator's call is a new one.
            if self.resumed.get(&pause.holder).is_some_and(|at| *at < now) {
                self.resumed.remove(&pause.holder);
            }
        }
        let shortened = changes.shortened.into_iter().map(|shortened| shortened.pause);
        for Begun { holder, paused, until } in changes.begun.into_iter().chain(shortened) {
            self.rows.entry(holder).or_default().insert(paused, Row { until, at: now });
        }
    }

    /// Whether this process has written or restored the pause already.
    pub(super) fn is_known(&self, holder: &Holder, paused: &Paused, until: Time) -> bool {
        let row = self.rows.get(holder).and_then(|rows| rows.get(paused));
        row.is_some_and(|row| until <= row.until + LATER)
    }

    /// Records that a pause was read from the store at `now`.
    fn is_read(&mut self, holder: &Holder, paused: &Paused, until: Time, now: Time) {
        let row = self.rows.entry(holder.clone()).or_default().entry(paused.clone()).or_default();
        *row = Row { until: until.max(row.until), at: now };
    }

    /// Restores a pause that was read from the store at `now`, by `put_back`, unless an operator has ended it. `looked`
    /// shows it. `None` if it is not restored.
    pub(super) fn restore<T>(
        &mut self,
        looked: Looked,
        (holder, paused, until): (&Holder, &Paused, Time),
        now: Time,
        put_back: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let is_ended = self.resumed.contains_key(holder);
        let told = if is_ended { None } else { Some(put_back()?) };
        self.is_read(holder, paused, until, now);
        // A row without a pause is ended by the next comparison.
        self.list(looked, if is_ended { Why::Told } else { Why::Shows });
        told
    }

    /// Records that an operator ends all pauses of these holders. Called before that is done.
    pub(super) fn resume(&mut self, holders: impl IntoIterator<Item = Holder>, now: Time) {
        for holder in holders {
            if self.resumed.len() < MOST || self.resumed.contains_key(&holder) {
                self.resumed.insert(holder, now);
            }
        }
    }

    /// Records whether there are lanes whose rows have not been read.
    pub(super) fn lanes_wait(&mut self, wait: bool, now: Time) {
        self.reading_since = if wait { self.reading_since.or(Some(now)) } else { None };
    }
}

/// The lanes to look at now, with those of which a notice came: see [`Pauses::take`].
pub(super) fn take_lanes(pauses: &Mutex<Pauses>, told: &Told, now: Time, all: bool) -> Vec<Looked> {
    // The two locks are not held together.
    let told = std::mem::take(&mut *told.0.lock());
    let mut pauses = pauses.lock();
    told.into_values().for_each(|looked| pauses.list(looked, Why::Told));
    pauses.take(now, all)
}

/// Compares what is in force in these lanes with what is written. `core`: none if the client has ended.
pub(super) fn compare(pauses: &Mutex<Pauses>, core: Option<&Core>, lanes: &[Looked], now: Time) -> Changes {
    let lanes: Vec<Looked> = lanes.iter().map(|looked| looked.at_present(core)).collect();
    // Read before the engine is: a pause that is restored in between is then not taken for one that has ended.
    let rows = pauses.lock().rows_of(&lanes);
    let seen = lanes.into_iter().map(|looked| (looked.see(), looked)).collect();
    pauses.lock().compare(rows, seen, now)
}

#[cfg(test)]
mod tests;
