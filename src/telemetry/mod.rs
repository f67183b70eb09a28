//! What a client tells about itself: events, metrics, the limiter of log lines, dead letters, requests per second, the
//! advice about headroom, the list of exchanges under way, and the jobs that cost too much.

mod costly;
pub mod events;
mod failures;
mod flow;
mod gateway_counts;
mod headroom;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics/off.rs"]
pub(crate) mod metrics;
mod under_way;

use costly::CostlyJobs;
use failures::Failures;
use flow::Meters;
use gateway_counts::GatewayCounts;
use under_way::UnderWay;

use self::events::{EventKind, Feed};
use self::metrics::Metrics;
use crate::clock::Time;
use crate::config::Tenant;
use crate::dead_letter::DeadLetter;
use crate::dead_letter::writer::Writer;
use crate::error::Error;

pub use flow::Flow;
#[cfg(feature = "gateway")]
pub(crate) use gateway_counts::Outcome;
pub(crate) use under_way::{Entry, Listed};

pub(crate) struct Telemetry {
    pub(crate) feed: Feed,
    pub(crate) metrics: Metrics,
    pub(crate) failures: Failures,
    pub(crate) meters: Meters,
    pub(crate) under_way: UnderWay,
    pub(crate) dead_letters: Writer,
    pub(crate) gateway: GatewayCounts,
    pub(crate) costly: CostlyJobs,
}

impl Telemetry {
    pub(crate) fn new(feed: Feed, metrics: Metrics, dead_letters: Writer) -> Telemetry {
        Telemetry {
            feed,
            metrics,
            failures: Failures::new(),
            meters: Meters::default(),
            under_way: UnderWay::new(),
            dead_letters,
            gateway: GatewayCounts::default(),
            costly: CostlyJobs::default(),
        }
    }

    /// Logs a request that was refused before it could be sent. The text of the error names the tenant and what it
    /// asked for.
    #[cold]
    pub(crate) fn refused_at_once(&self, now: Time, error: &Error) {
        self.failures.count(error.kind());
        if let Some(left_out) = self.failures.line(now) {
            let left_out = (left_out > 0).then_some(left_out);
            let kind = error.kind().as_str();
            tracing::warn!(target: "integration_client::ends", kind, %error, left_out, "request refused");
        }
    }

    /// Reports that a request states a cost that no limit counts.
    pub(crate) fn cost_ignored(&self, id: u64, of: &Tenant, kind: &str, cost: u32) {
        tracing::warn!(
            tenant = &*of.id,
            vendor = &*of.vendor.name,
            kind,
            cost,
            "the cost of a request is ignored, because no limit that it counts in has this kind of points as its `unit`"
        );
        self.feed.tell(id, of, || EventKind::CostIgnored { kind: kind.into(), cost });
    }

    /// Reports a job that was given up without another attempt.
    pub(crate) fn tell_dead(&self, letter: &DeadLetter) {
        self.metrics.series(&letter.tenant, &letter.vendor).dead_lettered(letter.reason);
        self.feed.tell_of(&letter.tenant, &letter.vendor, || EventKind::DeadLettered {
            id: (*letter.id).into(),
            attempts: u32::try_from(letter.attempts.len()).unwrap_or(u32::MAX),
            reason: letter.reason,
        });
    }
}
