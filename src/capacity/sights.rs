//! The times of a ledger in a store without a trustworthy clock: etcd, an object store, ZooKeeper. Pure.
//!
//! Such a ledger states each time as the time that was left when it was written, and names that write. A process counts
//! the time left from the moment at which it first saw the write, by its own clock. It sees a write only after it was
//! made, so it never waits too short, whatever any wall clock does. By this rule alone, however, a process that has
//! seen nothing yet would wait for all of the time left. So each write is dated: it carries the date of the store's
//! answer to the read before it. Of the time between this date and the date at first sight, all but [`MARGIN_S`] counts
//! as waited for.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::call::{Call, Entry, Reading};
use super::ledger::times::Moment;
use super::ledger::{Got, Ledger};

/// Two clocks may run apart by one part in this number: 200 millionths.
const RATES: u64 = 5_000;
/// The dates of two answers, from any servers, differ by at most this many seconds more than the time that has passed
/// between them: 10 s for servers whose clocks differ, and 10 s for a clock that steps.
const MARGIN_S: u64 = 20;
/// How long what was seen of a limit is kept after a call, beyond all of the time that was left then.
const KEEP_US: u64 = 3_600_000_000;

/// A time as it is stored: the write that stated it first, the date of that write in seconds (0 if unknown), and the
/// time left then in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Stamp(u64, u64, u64);

/// The moment after a read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Now {
    /// The clock of this process, read *after* the text.
    pub(super) clock_us: u64,
    /// The earliest and the latest second that the store's clock may show now; 0 if the answer had no date.
    pub(super) dates: (u64, u64),
}

impl Now {
    /// `asked_us` is this process's clock before the read. The answer's date lies between that moment and now.
    pub(super) fn new(asked_us: u64, clock_us: u64, date: Option<u64>) -> Now {
        let waited = clock_us.saturating_sub(asked_us).div_ceil(1_000_000);
        let latest = |date: u64| date.saturating_add(1).saturating_add(waited);
        Now { clock_us, dates: date.map_or((0, 0), |date| (date, latest(date))) }
    }

    /// The latest moment, by this process's clock, at which a write of date `dated` that is seen now for the first time
    /// can have been made.
    fn first_sight(&self, dated: u64) -> u64 {
        let is_dated = dated > 0 && self.dates.0 > 0;
        let passed = if is_dated { self.dates.0.saturating_sub(dated).saturating_sub(MARGIN_S) } else { 0 };
        self.clock_us.saturating_sub(passed.saturating_mul(1_000_000))
    }
}

/// A ledger as it is stored. Its times are indices into `stamps`, counted from 1.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    stamps: Vec<Stamp>,
    ledger: Ledger,
}

/// When one process has first seen the writes of one limit.
#[derive(Debug, Default)]
struct Sights {
    /// The moment of first sight of each write, by this process's own clock.
    first: HashMap<u64, u64>,
    /// After this time the entry is of little use and is deleted.
    until: u64,
}

/// When one process has first seen the writes of all limits.
#[derive(Debug, Default)]
pub(super) struct AllSights(HashMap<String, Sights>);

/// What to write, provided that the text that was read is unchanged.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: String,
    /// The answer to the line, valid if the write succeeds.
    pub(super) got: Option<Got>,
}

/// The times of a ledger that was read, by the reader's clock, with their stamps.
type Times = HashMap<(Moment, u64), Known>;

#[derive(Clone, Copy, Debug)]
struct Known {
    time: u64,
    stamp: Stamp,
    units: u32,
}

impl AllSights {
    /// Answers the line `entry` of a call from the stored `text` of its ledger, which was read before `now` and is
    /// empty if there is none. `writing` is a random number that identifies this write.
    pub(super) fn answer(&mut self, call: &Call, entry: &Entry, text: &str, now: &Now, writing: u64) -> Written {
        self.0.retain(|_, sights| sights.until > now.clock_us);
        let sights = self.0.entry(entry.limit.clone()).or_default();
        sights.until = sights.until.max(now.clock_us.saturating_add(KEEP_US));
        let (ledger, times) = match sights.read(text, now) {
            Some((ledger, times)) => (Some(ledger), times),
            None => (None, Times::new()),
        };
        // These stores lose nothing by themselves, so a missing ledger is a new one.
        let is_new = text.is_empty();
        let loss = if is_new { None } else { call.loss(now.clock_us) };
        let (got, ledger) = call.exchange(entry, ledger, loss, Reading { clock_us: now.clock_us, waited_us: 0 });
        Written { text: sights.write(ledger, &times, now, writing), got }
    }
}

impl Sights {
    /// The ledger, with its times converted to this process's clock. `None` if the text is not a ledger.
    fn read(&mut self, text: &str, now: &Now) -> Option<(Ledger, Times)> {
        if text.is_empty() {
            return None;
        }
        let kept = serde_json::from_str::<Kept>(text);
        let Kept { stamps, mut ledger } = kept
            .inspect_err(|error| {
                tracing::error!(%error, "what the store keeps of a shared limit cannot be read: it is made anew");
            })
            .ok()?;
        let present: HashSet<u64> = stamps.iter().map(|stamp| stamp.0).collect();
        self.first.retain(|writing, _| present.contains(writing));
        let longest = stamps.iter().map(|stamp| stamp.2).max().unwrap_or_default();
        self.until = self.until.max(now.clock_us.saturating_add(longest).saturating_add(KEEP_US));
        let mut times = Times::new();
        let mut is_whole = true;
        ledger.map_times(now.clock_us, |moment, place, units| {
            let place = usize::try_from(place.saturating_sub(1)).unwrap_or(usize::MAX);
            let Some(stamp) = stamps.get(place).copied() else {
                is_whole = false;
                return 0;
            };
            let Stamp(writing, dated, left) = stamp;
            let seen = *self.first.entry(writing).or_insert_with(|| now.first_sight(dated));
            let mut time = seen.saturating_add(left).saturating_add(left / RATES);
            // Units of two stamps stay separate even if both are free at the same moment by this clock: by another
            // process's clock they are not.
            while is_of_units(moment) && times.contains_key(&key(moment, time)) {
                time = time.saturating_add(1);
            }
            times.insert(key(moment, time), Known { time, stamp, units });
            time
        });
        is_whole.then_some((ledger, times))
    }

    /// The text of a ledger that was computed from the one read at `now` with these `times`.
    fn write(&mut self, mut ledger: Ledger, times: &Times, now: &Now, writing: u64) -> String {
        let mut stamps: Vec<Stamp> = Vec::new();
        let mut places: HashMap<Stamp, u64> = HashMap::new();
        ledger.map_times(0, |moment, time, units| {
            if moment == Moment::Pool && time <= now.clock_us {
                // Units that are free by one process's clock are free for all.
                return 0;
            }
            let known = times.get(&key(moment, time)).filter(|known| known.time == time);
            // If the ledger has merged more units into this moment, the old stamp does not cover them: for another
            // process they may be free later. So they get a new stamp.
            let known = known.filter(|known| units <= known.units);
            let stamp =
                known.map_or(Stamp(writing, now.dates.1, time.saturating_sub(now.clock_us)), |known| known.stamp);
            *places.entry(stamp).or_insert_with(|| {
                stamps.push(stamp);
                stamps.len() as u64
            })
        });
        // The writer has seen its own write now. If the write fails, the next read forgets this entry.
        self.first.insert(writing, now.clock_us);
        serde_json::to_string(&Kept { stamps, ledger }).unwrap_or_default()
    }
}

/// A ledger has one time of each kind, except for times of units, of which there are several.
fn key(moment: Moment, time: u64) -> (Moment, u64) {
    (moment, if is_of_units(moment) { time } else { 0 })
}

fn is_of_units(moment: Moment) -> bool {
    matches!(moment, Moment::Pool | Moment::Last(_))
}
