//! The times of a ledger in a store that has no clock to trust: etcd, an object store, ZooKeeper. Pure.
//!
//! Such a ledger states each time as what was left of it when it was written, and names that writing. A process counts what was left
//! from the moment at which it first saw the writing, by its own clock. It saw it after it was written, so it never waits too
//! short, whatever any wall clock does. By that alone a process that has seen nothing yet would wait for all that was left. So a
//! writing has the date that the store's answer to the reading before it had; of what lies between the dates of a writing and of
//! its first sight, all but [`MARGIN_S`] counts as waited for.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::call::{Call, Entry};
use super::ledger::times::Moment;
use super::ledger::{Got, Ledger};

/// Two clocks may run apart by this part of a time: 200 millionths.
const RATES: u64 = 5_000;
/// Between two dates of answers, of whichever servers, lie at most so many seconds more than have passed: servers whose clocks
/// differ, and one that steps by 10 s.
const MARGIN_S: u64 = 20;
/// Sights of a limit are kept for so long after a call, beyond all that was left then.
const KEEP_US: u64 = 3_600_000_000;

/// A time as it is kept: the writing that said it first, its date in seconds (0 for none), and what was left then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Stamp(u64, u64, u64);

/// The moment after a reading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Now {
    /// The clock of the process, which was read *after* the text.
    pub(super) clock_us: u64,
    /// What the store's clock shows now: from the earliest to the latest second. 0: the answer had no date.
    pub(super) dates: (u64, u64),
}

impl Now {
    /// `asked_us` is the clock of the process before it asked; the answer's date is of a moment since.
    pub(super) fn new(asked_us: u64, clock_us: u64, date: Option<u64>) -> Now {
        let waited = clock_us.saturating_sub(asked_us).div_ceil(1_000_000);
        let latest = |date: u64| date.saturating_add(1).saturating_add(waited);
        Now { clock_us, dates: date.map_or((0, 0), |date| (date, latest(date))) }
    }

    /// When a writing was made at the latest that is seen now for the first time.
    fn first_sight(&self, dated: u64) -> u64 {
        let is_dated = dated > 0 && self.dates.0 > 0;
        let passed = if is_dated { self.dates.0.saturating_sub(dated).saturating_sub(MARGIN_S) } else { 0 };
        self.clock_us.saturating_sub(passed.saturating_mul(1_000_000))
    }
}

/// A ledger as it is kept: its times are places in `stamps`, counted from 1.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    stamps: Vec<Stamp>,
    ledger: Ledger,
}

/// What one process has seen of one limit's writings.
#[derive(Debug, Default)]
struct Sights {
    /// When it first saw each of them, by its own clock.
    first: HashMap<u64, u64>,
    /// After this they are of little use.
    until: u64,
}

/// What one process has seen of all limits.
#[derive(Debug, Default)]
pub(super) struct AllSights(HashMap<String, Sights>);

/// What is to be written, if the text that was read is still there.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: String,
    /// What the call is told if this is written.
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
    /// Answers the line `entry` of a call by the `text` of its ledger, which was read before `now` and is empty where there is none.
    /// `writing` is a random number that no other writing has.
    pub(super) fn answer(&mut self, call: &Call, entry: &Entry, text: &str, now: &Now, writing: u64) -> Written {
        self.0.retain(|_, sights| sights.until > now.clock_us);
        let sights = self.0.entry(entry.limit.clone()).or_default();
        sights.until = sights.until.max(now.clock_us.saturating_add(KEEP_US));
        let (ledger, times) = match sights.read(text, now) {
            Some((ledger, times)) => (Some(ledger), times),
            None => (None, Times::new()),
        };
        // These stores lose nothing by themselves: what is missing is new.
        let is_new = text.is_empty();
        let (got, ledger) =
            call.exchange(entry, ledger, if is_new { None } else { call.loss(now.clock_us) }, now.clock_us);
        Written { text: sights.write(ledger, &times, now, writing), got }
    }
}

impl Sights {
    /// The ledger with times of this process's clock. None where the text is no ledger.
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
            // Units of two stamps stay apart, also where they come to the same moment here: elsewhere they do not.
            while is_of_units(moment) && times.contains_key(&key(moment, time)) {
                time = time.saturating_add(1);
            }
            times.insert(key(moment, time), Known { time, stamp, units });
            time
        });
        is_whole.then_some((ledger, times))
    }

    /// The text of a ledger that came of one that was read at `now` with these `times`.
    fn write(&mut self, mut ledger: Ledger, times: &Times, now: &Now, writing: u64) -> String {
        let mut stamps: Vec<Stamp> = Vec::new();
        let mut places: HashMap<Stamp, u64> = HashMap::new();
        ledger.map_times(0, |moment, time, units| {
            if moment == Moment::Pool && time <= now.clock_us {
                // What is free by one clock is free.
                return 0;
            }
            let known = times.get(&key(moment, time)).filter(|known| known.time == time);
            // Units that others of the same moment came to may have to wait for longer elsewhere.
            let known = known.filter(|known| units <= known.units);
            let stamp =
                known.map_or(Stamp(writing, now.dates.1, time.saturating_sub(now.clock_us)), |known| known.stamp);
            *places.entry(stamp).or_insert_with(|| {
                stamps.push(stamp);
                stamps.len() as u64
            })
        });
        // Its writer knows what it says from now on. If this is not written, the next reading forgets it.
        self.first.insert(writing, now.clock_us);
        serde_json::to_string(&Kept { stamps, ledger }).unwrap_or_default()
    }
}

/// There is one time of each kind, but for those of units.
fn key(moment: Moment, time: u64) -> (Moment, u64) {
    (moment, if is_of_units(moment) { time } else { 0 })
}

fn is_of_units(moment: Moment) -> bool {
    matches!(moment, Moment::Pool | Moment::Last(_))
}
