//! How the sharing of limits goes, for people.

use std::time::Duration;

use crate::clock::Time;
use crate::metrics::SharingFigures;

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
    /// The store learns who holds what.
    pub(crate) is_learning: bool,
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
    /// For how long the process may send without another answer of the store.
    pub lease_left: Duration,
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
            failed: self.failed,
            leases_lost: self.leases_lost,
        }
    }
}

impl Known {
    pub(super) fn status(&self, now: Time) -> SharingStatus {
        SharingStatus {
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
