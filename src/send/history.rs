//! Converts the attempts of a stored job between the store's form (wall clock) and a claim's form (the process's
//! clock).

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AttemptLog, letter};
use crate::core::Core;
use crate::dead_letter::AttemptRecord;
use crate::retry::RetryHistory;

/// The attempts of a job in earlier claims, as the store keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct History {
    pub(crate) retries: u32,
    pub(crate) connects: u32,
    pub(crate) exchanges: u32,
    /// The start of the current run of attempts that the vendor did not process, by the wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failing_since: Option<Timestamp>,
    /// When the next attempt is due, by the wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<Timestamp>,
    pub(crate) attempts: Vec<AttemptRecord>,
}

/// The most attempts that are stored: the first half and the latest half. Attempts to connect can go on for minutes.
const REMEMBERED: usize = 100;

impl History {
    pub(crate) fn note(&mut self, record: AttemptRecord) {
        if self.attempts.len() >= REMEMBERED {
            self.attempts.remove(REMEMBERED / 2);
        }
        self.attempts.push(record);
    }

    pub(super) fn into_past(self, core: &Core) -> Option<Box<AttemptLog>> {
        if self == History::default() {
            return None;
        }
        let now = core.clock.now();
        let wall = letter::timestamp(core.clock, Duration::ZERO);
        let failing_since = self.failing_since.map(|since| {
            let failing = failing_for(since, self.due, wall);
            now.minus_nanos(u64::try_from(failing.as_nanos()).unwrap_or(u64::MAX))
        });
        let tried = RetryHistory { retries: self.retries, refreshed: false, failing_since };
        let (connects, exchanges, records) = (self.connects, self.exchanges, self.attempts);
        // No caller asks a stored job whether the vendor may have acted: its letter shows the attempts.
        Some(Box::new(AttemptLog { tried, connects, exchanges, records, may_have_acted: false, again: false }))
    }

    pub(super) fn of(past: Option<Box<AttemptLog>>, core: &Core) -> History {
        let Some(past) = past else { return History::default() };
        let since = |at| letter::timestamp(core.clock, core.clock.now().since(at));
        let mut history = History {
            retries: past.tried.retries,
            connects: past.connects,
            exchanges: past.exchanges,
            failing_since: past.tried.failing_since.map(since),
            due: None,
            attempts: Vec::new(),
        };
        for record in past.records {
            history.note(record);
        }
        history
    }
}

/// How long the job has failed. Time in which the job was due and no worker tried it does not count: the process may
/// have been stopped over night, and the first failure after that is no reason to give up.
fn failing_for(since: Timestamp, due: Option<Timestamp>, now: Timestamp) -> Duration {
    let idle = due.map_or(Duration::ZERO, |due| Duration::try_from(now.duration_since(due)).unwrap_or_default());
    Duration::try_from(now.duration_since(since)).unwrap_or_default().saturating_sub(idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_worker_is_no_failure() {
        let at = |second| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let failing = |due: Option<i64>, now| failing_for(at(0), due.map(at), at(now)).as_secs();
        assert_eq!(failing(None, 100), 100);
        assert_eq!(failing(Some(90), 95), 90);
        // The process was stopped for eight hours, 90 seconds after the first failure.
        assert_eq!(failing(Some(90), 8 * 3600), 90);
        // The job is tried early, or the clock was set back.
        assert_eq!(failing(Some(90), 80), 80);
        assert_eq!(failing(Some(90), -50), 0);
    }
}
