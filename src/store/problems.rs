//! The store's current problems, by the kind of work that the store does.
//!
//! A full disk can still be read, and one damaged page stops the claims of one lane while jobs are accepted. So a
//! success of one kind of work says nothing about the others: each kind keeps its problem until the same kind succeeds,
//! or was not tried for long. The log gets one line a minute for each kind, however often it fails; callers of the
//! store do not log its errors.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::LaneTier;
use super::driver::DbError;
use crate::clock::{Clock, Time};

/// A kind of work that the store does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Accept jobs.
    Accept,
    /// Claim jobs.
    Claim,
    /// Record exchanges before they leave.
    Start,
    /// Write the outcomes of jobs.
    End,
    /// Heartbeats, retention, and all other writes.
    Keep,
    /// Everything that only reads.
    Read,
}

impl Work {
    pub(crate) const ALL: [Work; 6] = [Work::Accept, Work::Claim, Work::Start, Work::End, Work::Keep, Work::Read];

    /// The label of the metric `integration_client_store_failures_total`.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "a label of a metric"))]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Work::Accept => "accept",
            Work::Claim => "claim",
            Work::Start => "start",
            Work::End => "end",
            Work::Keep => "keep",
            Work::Read => "read",
        }
    }

    const fn failing(self) -> &'static str {
        match self {
            Work::Accept => "no job can be accepted",
            Work::Claim => "no job can be claimed",
            Work::Start => "no exchange can be recorded, so none leaves",
            Work::End => "the outcomes of jobs cannot be written",
            Work::Keep => "the maintenance of the store fails",
            Work::Read => "the store cannot be read",
        }
    }
}

/// The interval of log lines about one kind of work.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// How long a problem is reported after its latest failure. Periodic work runs more often than this. Work that is not
/// periodic, such as accepting jobs, may not have been tried since, so its state is unknown by then.
const STALE: Duration = Duration::from_secs(150);
/// How long a lane is skipped after its jobs could not be claimed.
const PARK: Duration = Duration::from_secs(30);
/// The most parked lanes that are named. Further lanes are only counted.
const NAMED: usize = 3;

pub(crate) struct Problems {
    /// One clock for all: times of two clocks cannot be compared.
    clock: Clock,
    kinds: [Kind; Work::ALL.len()],
    lanes: Mutex<HashMap<LaneTier, Parked>>,
    any_lane: AtomicBool,
}

#[derive(Default)]
struct Kind {
    fails: AtomicBool,
    failures: AtomicU64,
    /// Calls that succeeded, and how long they took together, in nanoseconds.
    calls: AtomicU64,
    took_ns: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The message and the time of the latest failure.
    problem: Option<(String, Time)>,
    /// When the failures were last logged, and their total number at that time.
    told: Option<(Time, u64)>,
    /// Whether this problem was logged, so that its end is logged too.
    is_told: bool,
}

impl Kind {
    /// The message of the latest failure, unless this work has succeeded or was not tried for long since then.
    fn problem(&self, now: Time) -> Option<String> {
        let state = self.state.lock();
        state.problem.as_ref().filter(|(_, at)| now.since(*at) < STALE).map(|(problem, _)| problem.clone())
    }
}

struct Parked {
    until: Time,
    why: String,
}

impl Problems {
    pub(crate) fn new(clock: Clock) -> Problems {
        let (kinds, lanes) = (Default::default(), Mutex::default());
        Problems { clock, kinds, lanes, any_lane: AtomicBool::new(false) }
    }

    /// Records the result of some work.
    pub(crate) fn note<T>(&self, work: Work, result: &Result<T, DbError>) {
        let kind = &self.kinds[work as usize];
        match result {
            Ok(_) if !kind.fails.load(Relaxed) => {}
            Ok(_) => {
                kind.fails.store(false, Relaxed);
                let mut state = kind.state.lock();
                state.problem = None;
                if std::mem::take(&mut state.is_told) {
                    let failures = kind.failures.load(Relaxed);
                    drop(state);
                    tracing::info!(work = work.as_str(), failures, "the store works again");
                }
            }
            Err(error) => {
                kind.fails.store(true, Relaxed);
                let failures = kind.failures.fetch_add(1, Relaxed) + 1;
                let now = self.clock.now();
                let mut state = kind.state.lock();
                state.problem = Some((error.to_string(), now));
                let is_due = state.told.is_none_or(|(at, _)| now.since(at) >= TELL_EVERY);
                if is_due {
                    let before = state.told.replace((now, failures)).map_or(0, |(_, before)| before);
                    state.is_told = true;
                    drop(state);
                    let failures = failures - before;
                    tracing::error!(work = work.as_str(), failures, %error, "{}", work.failing());
                }
            }
        }
    }

    /// Parks a lane: its jobs could not be claimed, while those of other lanes could.
    pub(crate) fn park(&self, lane: &LaneTier, error: &DbError) {
        let until = self.clock.now() + PARK;
        let before = self.lanes.lock().insert(lane.clone(), Parked { until, why: error.to_string() });
        self.any_lane.store(true, Relaxed);
        if before.is_none() {
            let LaneTier { tenant, vendor, tier } = lane;
            tracing::error!(tenant, vendor, tier, %error, "the jobs of a lane cannot be claimed; retrying every 30 s");
        }
    }

    /// Unparks a lane: its jobs were claimed.
    pub(crate) fn unpark(&self, lane: &LaneTier) {
        if self.any_lane.load(Relaxed) {
            let mut lanes = self.lanes.lock();
            lanes.remove(lane);
            self.any_lane.store(!lanes.is_empty(), Relaxed);
        }
    }

    /// Whether the latest claim of a lane's jobs failed.
    pub(crate) fn is_suspect(&self, lane: &LaneTier) -> bool {
        self.any_lane.load(Relaxed) && self.lanes.lock().contains_key(lane)
    }

    /// Whether a lane is to be skipped now.
    pub(crate) fn is_parked(&self, lane: &LaneTier) -> bool {
        let is_parked = |parked: &Parked| self.clock.now() < parked.until;
        self.any_lane.load(Relaxed) && self.lanes.lock().get(lane).is_some_and(is_parked)
    }

    /// The current problems as a text.
    pub(crate) fn now(&self) -> Option<String> {
        let (mut said, now) = (Vec::new(), self.clock.now());
        for work in Work::ALL {
            if let Some(problem) = self.kinds[work as usize].problem(now) {
                said.push(format!("{}: {problem}", work.failing()));
            }
        }
        let lanes = self.lanes.lock();
        let mut named: Vec<_> = lanes.iter().collect();
        named.sort_unstable_by_key(|(lane, _)| *lane);
        for (LaneTier { tenant, vendor, .. }, parked) in named.iter().take(NAMED) {
            said.push(format!("tenant {tenant}, vendor {vendor}: jobs cannot be claimed: {}", parked.why));
        }
        if lanes.len() > NAMED {
            said.push(format!("{} more lanes have the same problem", lanes.len() - NAMED));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Records how long some work took, from handing it over to its result.
    pub(crate) fn took_since(&self, work: Work, began: Time) {
        let kind = &self.kinds[work as usize];
        kind.calls.fetch_add(1, Relaxed);
        kind.took_ns.fetch_add(crate::clock::nanos(self.clock.now().since(began)), Relaxed);
    }

    /// Calls that succeeded and the nanoseconds that they took together, by kind of work, since the store was opened.
    pub(crate) fn took(&self) -> [(u64, u64); Work::ALL.len()] {
        Work::ALL.map(|work| {
            let kind = &self.kinds[work as usize];
            (kind.calls.load(Relaxed), kind.took_ns.load(Relaxed))
        })
    }

    /// Whether no kind of work that writes has a problem.
    pub(crate) fn is_writable(&self) -> bool {
        let now = self.clock.now();
        let fails = |kind: &Kind| kind.fails.load(Relaxed) && kind.problem(now).is_some();
        !Work::ALL.iter().any(|work| *work != Work::Read && fails(&self.kinds[*work as usize]))
    }

    /// The time, by the clock that the problems are measured with.
    pub(crate) fn time(&self) -> Time {
        self.clock.now()
    }

    /// The number of failures by kind of work, since the store was opened.
    pub(crate) fn failures(&self) -> [(&'static str, u64); Work::ALL.len()] {
        Work::ALL.map(|work| (work.as_str(), self.kinds[work as usize].failures.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests;
