//! The state of the sharing, for consoles, logs and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::ledger::All;
use crate::clock::Time;
use crate::telemetry::metrics::SharingFigures;

/// The most limits whose sharing is remembered for display.
const SHOWN: usize = 10_000;
/// A limit is no longer shown once this process has not called about it for this long. A limit about which the store
/// does not answer is logged once in this time.
const RECENT: Duration = Duration::from_secs(60);

/// What this process knows about the sharing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The number of limits of which this process holds units, or under which its requests wait for some.
    pub(crate) limits: usize,
    /// Answered calls, then calls without an answer.
    pub(crate) calls: [u64; 2],
    /// How often the store had ended this process's lease on a limit.
    pub(crate) lost: u64,
    /// Since when no call has been answered; `None` while calls are answered.
    pub(crate) away_since: Option<Time>,
    /// The end of the lease that was renewed last.
    pub(crate) lease_until: Option<Time>,
    /// The end of the floor's lease; `None` if this process has no floor.
    pub(crate) floor_until: Option<Time>,
    /// The mode that was logged last while the store did not answer.
    pub(super) said: Option<SharingMode>,
    /// Whether the store has lost its ledgers, and this process lacks units for that reason.
    pub(crate) is_learning: bool,
    /// The number of limits about which the store said nothing in the last answered call.
    pub(super) failing: usize,
    /// The store's last statement about each limit, and when this process last called about it.
    limits_seen: BTreeMap<Arc<str>, (SharedLimit, Time)>,
    /// When it was last logged that the store does not answer about a limit.
    logged: BTreeMap<String, Time>,
}

/// One limit that processes share, in its last state at the store. See
/// [`IntegrationClient::shared_limits`](crate::IntegrationClient::shared_limits).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct SharedLimit {
    /// The name in the store: environment, vendor, owner (`account` or `tenant` and its id, or `vendor`), endpoint and
    /// the limit's own name, separated by bars.
    pub limit: Arc<str>,
    /// The units that all processes together hold at most: the lowest number of their configurations. Each process counts
    /// by its own window, so where the windows differ, more may be used within the longest one.
    pub units: u32,
    /// Processes with a lease, this one included.
    pub processes: u32,
    /// Units that all processes hold together.
    pub held: u32,
    /// Units that all processes want together, for requests under way and for those that wait.
    pub wanted: u32,
    /// Units that this process holds.
    pub held_here: u32,
    /// Units that the store grants to no process yet: it has lost its data, and a process that has not called since may
    /// have used them before. The store grants them again a lease, `max_transit` and a window after the loss.
    pub withheld: u32,
    /// Whether the processes' configurations differ about this limit. The lowest number of units applies to all, but each
    /// process counts by its own window until it has the longer one: give a longer window to all processes at once, or
    /// stop those with the shorter one.
    pub figures_differ: bool,
    /// Why the store did not answer this process's last call about this limit, though it answered about others; `None`
    /// if it did. The other fields are then older, and the process goes on with the limit as while the store is away.
    pub problem: Option<Arc<str>>,
}

/// How a process that shares limits goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SharingMode {
    /// The store answers.
    Sharing,
    /// The store answers, and has lost its ledgers. It grants nothing for about a lease, and units that no process has
    /// declared for `max_transit` and a window more. This mode lasts as long as this process lacks some of them.
    Learning,
    /// The store does not answer, and the process goes on with the units that it holds.
    Away,
    /// The store does not answer, the lease has ended, and the process goes on with its floor
    /// ([`sharing_floor`](crate::IntegrationClientBuilder::sharing_floor)).
    Floor,
    /// The store does not answer, and no request under a shared limit is sent.
    Stopped,
}

/// How this process shares its limits with others. See
/// [`share_through`](crate::IntegrationClientBuilder::share_through).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SharingStatus {
    /// Limits of which this process holds or wants units.
    pub limits: usize,
    /// Calls to the store that were answered.
    pub answered: u64,
    /// Calls to the store that failed or were not answered in time: within a second for a database or Redis, longer for
    /// other stores.
    pub failed: u64,
    /// How often the store had taken back this process's units because the lease had ended.
    pub leases_lost: u64,
    /// How long the store has not answered; `None` while it answers.
    pub away_for: Option<Duration>,
    /// How the process goes on.
    pub mode: SharingMode,
    /// How long the process may send without another answer from the store.
    pub lease_left: Duration,
    /// How long the process may send by its floor; zero without a floor.
    pub floor_left: Duration,
    /// Whether the store has lost its ledgers, and this process lacks units for that reason
    /// ([`SharingMode::Learning`]).
    pub is_learning: bool,
    /// Limits about which the store said nothing in the last answered call. Of each the process may use what it holds
    /// until that lease ends. [`SharedLimit::problem`] says why.
    pub limits_failing: usize,
}

impl SharingStatus {
    /// The part of the status that is exported as metrics.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nothing is measured"))]
    pub(crate) fn figures(&self) -> SharingFigures {
        SharingFigures {
            limits: self.limits as u64,
            is_down: self.away_for.is_some() || self.is_learning,
            mode: self.mode as u8,
            left: self.lease_left.max(self.floor_left),
            failed: self.failed,
            leases_lost: self.leases_lost,
        }
    }
}

impl Known {
    /// Resets the state of the store: this process holds and wants nothing, so it makes no call that could tell whether
    /// the store answers.
    pub(super) fn rests(&mut self) {
        (self.limits, self.away_since, self.said, self.is_learning, self.failing) = (0, None, None, false, 0);
    }

    /// Records the store's statement about a limit. Returns `true` when the processes' figures differ and did not
    /// before.
    pub(super) fn saw(&mut self, limit: &str, all: All, held_here: u32, now: Time) -> bool {
        let name = match self.limits_seen.get_key_value(limit) {
            Some((name, _)) => name.clone(),
            None if self.limits_seen.len() < SHOWN => limit.into(),
            None => return false,
        };
        let seen = SharedLimit {
            limit: name.clone(),
            units: all.units,
            processes: all.processes,
            held: all.held,
            wanted: all.wanted,
            held_here,
            withheld: all.withheld,
            figures_differ: all.differs,
            problem: None,
        };
        let before = self.limits_seen.insert(name, (seen, now));
        all.differs && before.is_none_or(|(before, _)| !before.figures_differ)
    }

    /// Records that the store said nothing about a limit, though about others. Returns `true` if this is to be logged:
    /// once a minute for each limit.
    pub(super) fn missed(&mut self, limit: &str, why: &str, now: Time) -> bool {
        if let Some((seen, at)) = self.limits_seen.get_mut(limit) {
            (seen.problem, *at) = (Some(why.into()), now);
        }
        let is_news = self.logged.get(limit).is_none_or(|at| now.since(*at) >= RECENT);
        if is_news {
            self.logged.insert(limit.to_owned(), now);
        }
        is_news
    }

    /// Forgets limits about which this process has not called for a minute.
    pub(super) fn forget(&mut self, now: Time) {
        self.limits_seen.retain(|_, (_, at)| now.since(*at) < RECENT);
        self.logged.retain(|_, at| now.since(*at) < RECENT);
    }

    /// The limits about which this process has called in the last minute and the store has said something, by name.
    pub(super) fn limits(&self, now: Time) -> Vec<SharedLimit> {
        let recent = self.limits_seen.values().filter(|(_, at)| now.since(*at) < RECENT);
        recent.map(|(limit, _)| limit.clone()).collect()
    }

    fn mode(&self, now: Time) -> SharingMode {
        let lasts = |until: Option<Time>| until.is_some_and(|until| until > now);
        match self.away_since {
            None if self.is_learning => SharingMode::Learning,
            None => SharingMode::Sharing,
            Some(_) if lasts(self.lease_until) => SharingMode::Away,
            Some(_) if lasts(self.floor_until) => SharingMode::Floor,
            Some(_) => SharingMode::Stopped,
        }
    }

    /// The current mode, if it has changed since it was last logged.
    pub(super) fn news(&mut self, now: Time) -> Option<SharingMode> {
        let mode = Some(self.mode(now));
        (std::mem::replace(&mut self.said, mode) != mode).then_some(mode).flatten()
    }

    pub(super) fn status(&self, now: Time) -> SharingStatus {
        SharingStatus {
            mode: self.mode(now),
            floor_left: self.floor_until.map(|until| until.since(now)).unwrap_or_default(),
            limits: self.limits,
            answered: self.calls[0],
            failed: self.calls[1],
            leases_lost: self.lost,
            away_for: self.away_since.map(|since| now.since(since)),
            lease_left: self.lease_until.map(|until| until.since(now)).unwrap_or_default(),
            is_learning: self.is_learning,
            limits_failing: self.failing,
        }
    }
}

#[cfg(test)]
mod tests;
