//! Replaces `mod.rs` without the feature `metrics`, with the same interface and no effect.

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

/// Whether metrics are compiled in. Measurements that cost something are made only then.
pub(crate) const IS_ON: bool = false;

/// The figures of an outbox that the metrics report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutboxFigures {
    /// The number of jobs that wait in the store, by tier, at the latest count.
    pub(crate) waiting: [u64; 3],
    /// How long the job that waits longest has been due.
    pub(crate) oldest: Duration,
    /// How long ago the oldest job was accepted that has not ended.
    pub(crate) age: Duration,
    /// The number of replies that wait in the store, and the age of the oldest, at the latest count.
    pub(crate) replies: u64,
    pub(crate) oldest_reply: Duration,
    /// The number of jobs that this process has claimed and not ended.
    pub(crate) in_hand: u64,
    /// The numbers of jobs that this process delivered, gave up, and put back for later.
    pub(crate) ended: [u64; 3],
    /// The number of dead letters that this process deleted because there were too many.
    pub(crate) letters_dropped: u64,
    /// The numbers of messages that were accepted and that were refused.
    pub(crate) intake: [u64; 2],
    /// The age of the oldest message that was fetched since this figure was last read.
    pub(crate) intake_lag: Duration,
    pub(crate) is_writable: bool,
    /// The number of failures of the store, by kind of work.
    pub(crate) failures: [(&'static str, u64); KINDS_OF_WORK],
    /// The number of calls of the store that succeeded and the nanoseconds that they took together, by kind of work.
    pub(crate) took: [(u64, u64); KINDS_OF_WORK],
}

/// The figures of shared limits that the metrics report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SharingFigures {
    pub(crate) limits: u64,
    /// Whether the store of shared units does not answer, or has lost what it knew.
    pub(crate) is_down: bool,
    pub(crate) mode: u8,
    pub(crate) left: Duration,
    pub(crate) failed: u64,
    pub(crate) leases_lost: u64,
}

/// The figures of gateways that the metrics report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GatewayFigures {
    pub(crate) connections: u64,
    pub(crate) turned_away: u64,
    /// The numbers of requests that were answered, not sent, ambiguous, and without a valid token.
    pub(crate) ended: [u64; 4],
}

#[expect(dead_code, reason = "nothing is reported without the feature")]
pub(crate) struct Totals {
    pub(crate) config_version: u64,
    /// The time since the source of the configuration last answered; `None` if the client does not poll it.
    pub(crate) config_age: Option<Duration>,
    /// Whether a source of the configuration cannot be read now, and whether what a source holds is not valid.
    pub(crate) config_unreadable: bool,
    pub(crate) config_invalid: bool,
    pub(crate) hosts_open: usize,
    pub(crate) events_missed: u64,
    /// Scheduled cleanups that succeeded, that failed, and the tenants that they retired; `None` before the first.
    pub(crate) cleanups: Option<[u64; 3]>,
    /// `None` without a store.
    pub(crate) outbox: Option<OutboxFigures>,
    /// `None` if no limits are shared.
    pub(crate) sharing: Option<SharingFigures>,
    /// `None` without a gateway.
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

    pub(crate) fn headroom(&self, _: (u32, u32)) {}

    pub(crate) fn paused(&self, _tenant: &Arc<str>, _until: Time) {}

    pub(crate) fn paused_longer(&self, _tenant: &Arc<str>, _until: Time) {}

    pub(crate) fn slowed(&self, _tenant: &Arc<str>, _share: f64, _until: Time) {}

    pub(crate) fn resumed(&self, _tenant: &Arc<str>) {}
}
