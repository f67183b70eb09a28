//! What goes wrong in the store, by what it is used for, for as long as it does.
//!
//! A disk that is full still reads, and one damaged page stops the claims of one lane while jobs are accepted. So a success of one
//! kind of work says nothing about the others: each keeps its problem until the same kind succeeds, or was not tried for long. The log gets one line a minute
//! for each kind, however often it fails; whoever works on the store logs none of its errors.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::LaneTier;
use super::driver::DbError;
use crate::clock::{Clock, Time};

/// What the store is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Jobs are accepted.
    Accept,
    /// Jobs are claimed.
    Claim,
    /// Exchanges are recorded before they leave.
    Start,
    /// Ends of jobs are written.
    End,
    /// Leases, retention, and whatever else is written.
    Keep,
    /// Anything that is only read.
    Read,
}

impl Work {
    pub(crate) const ALL: [Work; 6] = [Work::Accept, Work::Claim, Work::Start, Work::End, Work::Keep, Work::Read];

    /// Its name as the metric `integration_client_store_failures_total` states it.
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
            Work::End => "the ends of jobs cannot be written",
            Work::Keep => "the store cannot be kept in order",
            Work::Read => "the store cannot be read",
        }
    }
}

/// How often the log is told about one kind of work.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// How long a problem is told after the last failure. Whatever is done from time to time is done more often; of what is not, such
/// as accepting jobs, nobody knows by then.
const STALE: Duration = Duration::from_secs(150);
/// How long a lane is left alone whose jobs could not be claimed.
const PARK: Duration = Duration::from_secs(30);
/// Lanes that are named as parked. Others are parked as well, and counted.
const NAMED: usize = 3;

pub(crate) struct Problems {
    /// One for all: the times of two clocks cannot be compared.
    clock: Clock,
    kinds: [Kind; Work::ALL.len()],
    lanes: Mutex<HashMap<LaneTier, Parked>>,
    any_lane: AtomicBool,
}

#[derive(Default)]
struct Kind {
    fails: AtomicBool,
    failures: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the last failure said, and when it was.
    problem: Option<(String, Time)>,
    /// When the log was told last, and the failures until then.
    told: Option<(Time, u64)>,
    /// The log knows of this problem, and is to be told of its end.
    is_told: bool,
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

    /// Keeps what became of some work.
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

    /// The jobs of a lane could not be claimed, and those of others can.
    pub(crate) fn park(&self, lane: &LaneTier, error: &DbError) {
        let until = self.clock.now() + PARK;
        let before = self.lanes.lock().insert(lane.clone(), Parked { until, why: error.to_string() });
        self.any_lane.store(true, Relaxed);
        if before.is_none() {
            let LaneTier { tenant, vendor, tier } = lane;
            tracing::error!(tenant, vendor, tier, %error, "the jobs of a lane cannot be claimed; it is tried again every 30 s");
        }
    }

    /// The jobs of a lane were claimed.
    pub(crate) fn unpark(&self, lane: &LaneTier) {
        if self.any_lane.load(Relaxed) {
            let mut lanes = self.lanes.lock();
            lanes.remove(lane);
            self.any_lane.store(!lanes.is_empty(), Relaxed);
        }
    }

    /// Whether the jobs of a lane could not be claimed when they were asked for last.
    pub(crate) fn is_suspect(&self, lane: &LaneTier) -> bool {
        self.any_lane.load(Relaxed) && self.lanes.lock().contains_key(lane)
    }

    /// Whether a lane is to be left alone now.
    pub(crate) fn is_parked(&self, lane: &LaneTier) -> bool {
        let is_parked = |parked: &Parked| self.clock.now() < parked.until;
        self.any_lane.load(Relaxed) && self.lanes.lock().get(lane).is_some_and(is_parked)
    }

    /// What fails now, in words.
    pub(crate) fn now(&self) -> Option<String> {
        let (mut said, now) = (Vec::new(), self.clock.now());
        for work in Work::ALL {
            if let Some((problem, at)) = &self.kinds[work as usize].state.lock().problem
                && now.since(*at) < STALE
            {
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
            said.push(format!("the same of {} more", lanes.len() - NAMED));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Failures by kind of work, since the store was opened.
    pub(crate) fn failures(&self) -> [(&'static str, u64); Work::ALL.len()] {
        Work::ALL.map(|work| (work.as_str(), self.kinds[work as usize].failures.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::DbKind;
    use super::*;

    fn lane(tenant: &str) -> LaneTier {
        LaneTier { tenant: tenant.to_owned(), vendor: "v".to_owned(), tier: 1 }
    }

    #[tokio::test(start_paused = true)]
    async fn problem_stays_until_the_same_kind_of_work_succeeds() {
        let problems = Problems::new(Clock::system());
        let full = || Err::<(), _>(DbError::new(DbKind::Storage, "the disk is full"));
        problems.note(Work::Accept, &full());
        problems.note(Work::Read, &Ok(()));
        problems.note(Work::Claim, &Ok(()));
        assert_eq!(problems.now().as_deref(), Some("no job can be accepted: the disk is full"));
        problems.note(Work::Keep, &full());
        problems.note(Work::Accept, &Ok(()));
        assert_eq!(problems.now().as_deref(), Some("the store cannot be kept in order: the disk is full"));
        problems.note(Work::Keep, &Ok(()));
        assert_eq!(problems.now(), None);
        problems.note(Work::Accept, &full());
        tokio::time::advance(STALE).await;
        assert_eq!(problems.now(), None, "nobody has tried for long");
        assert_eq!(problems.failures()[0], ("accept", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn parked_lane_is_left_alone_for_a_while_and_named_until_it_is_claimed() {
        let (problems, damaged) =
            (Problems::new(Clock::system()), DbError::new(DbKind::Damaged, "the file is damaged"));
        problems.park(&lane("a"), &damaged);
        assert!(problems.is_parked(&lane("a")) && !problems.is_parked(&lane("b")));
        tokio::time::advance(PARK).await;
        assert!(!problems.is_parked(&lane("a")) && problems.is_suspect(&lane("a")));
        assert!(problems.now().unwrap().contains("tenant a, vendor v"));
        problems.unpark(&lane("a"));
        assert_eq!(problems.now(), None);
    }
}
