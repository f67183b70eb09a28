//! How the sharing of limits goes, for people.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::ledger::All;
use crate::clock::Time;
use crate::metrics::SharingFigures;

/// Limits whose sharing is kept to be shown.
const SHOWN: usize = 10_000;
/// A limit of which the store has said nothing for this long is not shown.
const RECENT: Duration = Duration::from_secs(60);

/// What is known of the sharing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Limits with units or requests that wait for some.
    pub(crate) limits: usize,
    /// Calls that were answered, and those that were not.
    pub(crate) calls: [u64; 2],
    /// Leases that had ended at the store.
    pub(crate) lost: u64,
    /// Since when no call was answered; none while they are.
    pub(crate) away_since: Option<Time>,
    /// The end of the lease that was renewed last.
    pub(crate) lease_until: Option<Time>,
    /// The same of floors; none where this process has none.
    pub(crate) floor_until: Option<Time>,
    /// What the log said last of the store's being away.
    pub(super) said: Option<SharingMode>,
    /// The store learns who holds what.
    pub(crate) is_learning: bool,
    /// What was said last of each limit, and when.
    limits_seen: BTreeMap<Arc<str>, (SharedLimit, Time)>,
}

/// One limit that processes share, as the store last said:
/// [`IntegrationClient::shared_limits`](crate::IntegrationClient::shared_limits).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct SharedLimit {
    /// Its name in the store: environment, vendor, whose it is (`account` or `tenant` and its id, or `vendor`), endpoint and the
    /// limit's own name, with bars between them.
    pub limit: Arc<str>,
    /// The units that all processes together do not exceed, as the strictest configuration has it.
    pub units: u32,
    /// Processes with a lease, this one included.
    pub processes: u32,
    /// Units that they hold together.
    pub held: u32,
    /// Units that they want together, for what they send and what waits.
    pub wanted: u32,
    /// Units that this process holds.
    pub held_here: u32,
    /// Not all processes have the same figures of the limit in their configurations: the strictest are in force.
    pub figures_differ: bool,
}

/// How a process goes on that shares limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SharingMode {
    /// The store answers.
    Sharing,
    /// The store answers, has lost what it knew, and gives nothing for about a lease.
    Learning,
    /// The store does not answer, and the process goes on with what it holds.
    Away,
    /// The store does not answer, the lease has ended, and the process goes on with its floor
    /// ([`sharing_floor`](crate::IntegrationClientBuilder::sharing_floor)).
    Floor,
    /// The store does not answer, and nothing of a shared limit is sent.
    Stopped,
}

/// How this process shares its limits with others
/// ([`share_through`](crate::IntegrationClientBuilder::share_through)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SharingStatus {
    /// Limits of which this process holds units, or wants some.
    pub limits: usize,
    /// Calls to the store that were answered.
    pub answered: u64,
    /// Calls to the store that failed, or were not answered within a second.
    pub failed: u64,
    /// How often the store had taken back what this process held, since its lease had ended.
    pub leases_lost: u64,
    /// For how long the store has not answered; none while it does.
    pub away_for: Option<Duration>,
    /// What it goes on with.
    pub mode: SharingMode,
    /// For how long the process may send without another answer of the store.
    pub lease_left: Duration,
    /// The same by its floor; nothing where it has none.
    pub floor_left: Duration,
    /// The store has lost what it knew, and learns who holds what: it gives nothing for about a lease.
    pub is_learning: bool,
}

impl SharingStatus {
    /// What metrics state of it.
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
    /// This process holds and wants nothing: no call is made that could say whether the store answers.
    pub(super) fn rests(&mut self) {
        (self.limits, self.away_since, self.said, self.is_learning) = (0, None, None, false);
    }

    /// Notes what the store says of a limit. Returns whether it is news that the figures of the processes differ.
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
            figures_differ: all.differs,
        };
        let before = self.limits_seen.insert(name, (seen, now));
        all.differs && before.is_none_or(|(before, _)| !before.figures_differ)
    }

    /// Forgets limits of which the store has said nothing for a minute.
    pub(super) fn forget(&mut self, now: Time) {
        self.limits_seen.retain(|_, (_, at)| now.since(*at) < RECENT);
    }

    /// The limits that were spoken of in the last minute, by name.
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

    /// What the process goes on with since the store is away, where that has changed.
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
        }
    }
}
