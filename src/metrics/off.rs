//! Replaces `mod.rs` without the feature `metrics`: the same interface, and no effect.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};

use crate::Priority;
use crate::clock::Time;
use crate::dead_letter::Reason;
use crate::error::ErrorKind;

/// The number of kinds of work of a store.
pub(crate) const KINDS_OF_WORK: usize = 6;

#[derive(Clone, Copy)]
pub(crate) enum End {
    Finished,
    NotSent,
    Abandoned,
}

/// Nothing need be measured that costs something.
pub(crate) const IS_ON: bool = false;

/// What is measured of an outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutboxFigures {
    /// Jobs that wait in the store, by tier, as of a while ago.
    pub(crate) waiting: [u64; 3],
    /// How long the one that waits longest has been due.
    pub(crate) oldest: Duration,
    /// Jobs that this process has claimed.
    pub(crate) in_hand: u64,
    /// Jobs that this process delivered, gave up, and put back for later.
    pub(crate) ended: [u64; 3],
    /// Messages that were accepted, and messages that were refused.
    pub(crate) intake: [u64; 2],
    /// The age of the oldest message since this was read last.
    pub(crate) intake_lag: Duration,
    pub(crate) is_writable: bool,
    /// Failures of the store, by kind of work.
    pub(crate) failures: [(&'static str, u64); KINDS_OF_WORK],
    /// Calls of the store that succeeded and the nanoseconds that they took together, by kind of work.
    pub(crate) took: [(u64, u64); KINDS_OF_WORK],
}

/// What is measured of shared limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SharingFigures {
    pub(crate) limits: u64,
    /// The store does not answer, or has lost what it knew.
    pub(crate) is_down: bool,
    pub(crate) mode: u8,
    pub(crate) left: Duration,
    pub(crate) failed: u64,
    pub(crate) leases_lost: u64,
}

/// What is measured of gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GatewayFigures {
    pub(crate) connections: u64,
    pub(crate) turned_away: u64,
    /// Requests that were answered, not sent, ambiguous, and without a right token.
    pub(crate) ended: [u64; 4],
}

#[expect(dead_code, reason = "nothing is reported without the feature")]
pub(crate) struct Totals {
    pub(crate) config_version: u64,
    /// Since the source of the configuration last answered; none where nobody looks at it.
    pub(crate) config_age: Option<Duration>,
    pub(crate) hosts_open: usize,
    pub(crate) events_missed: u64,
    /// Scheduled cleanups that succeeded, that failed, and the tenants that they retired; `None` before the first.
    pub(crate) cleanups: Option<[u64; 3]>,
    /// None without a store.
    pub(crate) outbox: Option<OutboxFigures>,
    /// None where no limits are shared.
    pub(crate) sharing: Option<SharingFigures>,
    /// None without a gateway.
    pub(crate) gateway: Option<GatewayFigures>,
}

pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new(_tenants: usize) -> Metrics {
        Metrics
    }

    pub(crate) fn series(&self, _tenant: &str, _vendor: &str) -> Series {
        Series
    }

    pub(crate) fn unknown(&self) -> Series {
        Series
    }

    pub(crate) fn host_opened(&self) {}

    pub(crate) fn config_rejected(&self) {}

    pub(crate) fn tell(&self, _: Time, _: impl FnOnce() -> Totals, _last: bool) {}
}

pub(crate) struct Running(Series);

impl Running {
    pub(crate) fn new(series: Series, _: Priority) -> Running {
        Running(series)
    }

    pub(crate) fn series(&self) -> &Series {
        &self.0
    }

    pub(crate) fn ended(&mut self, _: Option<ErrorKind>) {}
}

pub(crate) struct Queued;

#[derive(Clone)]
pub(crate) struct Series;

impl Series {
    pub(crate) const fn none() -> Series {
        Series
    }

    pub(crate) fn queued(&self, _rank: u8) -> Queued {
        Queued
    }

    pub(crate) fn permit_started(&self, _: impl FnOnce() -> Time) {}

    pub(crate) fn permit_ended(&self, _: Time, _: End) {}

    pub(crate) fn waited(&self, _rank: u8, _: Duration) {}

    pub(crate) fn attempt(&self, _: &Method, _: Result<StatusCode, ErrorKind>, _took: Duration) {}

    pub(crate) fn refused(&self) {}

    pub(crate) fn dead_lettered(&self, _: Reason) {}

    pub(crate) fn headroom(&self, _tenant: &Arc<str>, _: (u32, u32)) {}

    pub(crate) fn paused(&self, _tenant: &Arc<str>, _until: Time) {}

    pub(crate) fn paused_longer(&self, _tenant: &Arc<str>, _until: Time) {}

    pub(crate) fn slowed(&self, _tenant: &Arc<str>, _share: f64, _until: Time) {}

    pub(crate) fn resumed(&self, _tenant: &Arc<str>) {}
}
