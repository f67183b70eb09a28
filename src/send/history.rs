//! Converts the attempts of a stored job between the store's form (wall clock) and a claim's form (the process's
//! clock).

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::exchange_record::StoreTime;
use super::unfit::Unfit;
use super::{AttemptLog, Outage, letter};
use crate::clock::nanos;
use crate::core::Core;
use crate::dead_letter::AttemptRecord;
use crate::retry::{RetryHistory, Since};

/// The attempts of a job in earlier claims, as the store keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct History {
    pub(crate) retries: u32,
    pub(crate) connects: u32,
    pub(crate) exchanges: u32,
    /// The start of the current run of attempts that the vendor did not process, or whose credential could not be read,
    /// by the wall clock. Times in which the job waited for anything else are left out: they move it forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failing_since: Option<Timestamp>,
    /// Since when the vendor was not reached for a job that outlasts an outage, by the wall clock. It begins with a
    /// connection that fails, or a token URL that gives no token for now. Times in which the job waited for something
    /// else are left out: they move it forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unreachable_since: Option<Timestamp>,
    /// As `unreachable_since`, and times in which the job was due and no worker tried it are left out too. Without it,
    /// the two are equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tried_since: Option<Timestamp>,
    /// When the first exchange began that left open whether the vendor acted, in milliseconds by the store's clock: no
    /// step of a wall clock makes an idempotency key look younger than it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) may_have_acted_at: Option<i64>,
    /// The same of the attempts before a person sent the job's ambiguous letter again. The job is sent nevertheless, and
    /// the next letter counts from here, because a later refusal says no more of those attempts than the first one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overruled_at: Option<i64>,
    /// The latest exchange was refused with a 401, and its credential was replaced since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) refreshed: bool,
    /// For how long the job has not fitted the configuration. A claim in which it fits drops this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unfit: Option<Unfit>,
    /// When the next attempt is due, by the wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<Timestamp>,
    pub(crate) attempts: Vec<AttemptRecord>,
}

/// The most attempts that are stored: the first half and the latest half. Attempts to connect can go on for minutes.
const REMEMBERED: usize = 100;

impl History {
    /// Since when the vendor may have acted, for the letter of the job.
    pub(crate) fn in_doubt_at(&self) -> Option<i64> {
        self.overruled_at.or(self.may_have_acted_at)
    }

    pub(crate) fn note(&mut self, record: AttemptRecord) {
        if self.attempts.len() >= REMEMBERED {
            self.attempts.remove(REMEMBERED / 2);
        }
        self.attempts.push(record);
    }

    /// Records why the job was not sent, unless its latest record says the same.
    pub(super) fn note_once(&mut self, record: AttemptRecord) {
        if self.attempts.last().and_then(|last| last.error.as_ref()) != record.error.as_ref() {
            self.note(record);
        }
    }

    /// Leaves `time` out of the outage, because the job waited for something else: for its limits, or for a credential.
    /// Unless `is_failure`, as for a credential that cannot be read, it leaves `time` out of the run of failures too.
    pub(super) fn leave_out(&mut self, time: Duration, is_failure: bool) {
        let outage = [&mut self.unreachable_since, &mut self.tried_since].into_iter().flatten();
        for since in outage.chain(self.failing_since.as_mut().filter(|_| !is_failure)) {
            *since = since.checked_add(time).unwrap_or(*since);
        }
    }

    pub(super) fn into_past(self, core: &Core, clock: StoreTime) -> Option<Box<AttemptLog>> {
        if self == History::default() {
            return None;
        }
        let now = core.clock.now();
        let wall = letter::timestamp(core.clock, Duration::ZERO);
        let acted = |at: Option<i64>| at.map(|ms| Since::new(clock.age(ms), clock.at));
        let start = |since, due| now.minus_nanos(nanos(failing_for(since, due, wall)));
        let failing_since = self.failing_since.map(|since| start(since, self.due));
        let unreachable = self.unreachable_since.map(|since| Outage {
            since: start(since, None),
            tried_since: start(self.tried_since.unwrap_or(since), self.due),
        });
        Some(Box::new(AttemptLog {
            tried: RetryHistory { retries: self.retries, refreshed: self.refreshed, failing_since },
            connects: self.connects,
            exchanges: self.exchanges,
            records: self.attempts,
            may_have_acted: acted(self.may_have_acted_at),
            overruled: acted(self.overruled_at),
            unreachable,
            again: false,
        }))
    }

    pub(super) fn of(past: Option<Box<AttemptLog>>, core: &Core, clock: Option<StoreTime>) -> History {
        let Some(past) = past else { return History::default() };
        let now = core.clock.now();
        let since = |at| letter::timestamp(core.clock, now.since(at));
        let mut history = History {
            retries: past.tried.retries,
            connects: past.connects,
            exchanges: past.exchanges,
            failing_since: past.tried.failing_since.map(since),
            unreachable_since: past.unreachable.map(|outage| since(outage.since)),
            tried_since: past.unreachable.map(|outage| since(outage.tried_since)),
            may_have_acted_at: past.may_have_acted.zip(clock).map(|(since, clock)| clock.of(since)),
            overruled_at: past.overruled.zip(clock).map(|(since, clock)| clock.of(since)),
            // A job may be tried for days, and its credential may have to be replaced more than once in that time.
            refreshed: past.tried.refreshed && past.records.last().is_some_and(|last| last.status == Some(401)),
            unfit: None,
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
mod tests;
