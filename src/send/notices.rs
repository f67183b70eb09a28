//! Writes the log line, the event and the metric for each notice that the engine returns.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Tenant;
use crate::core::Core;
use crate::dispatch::plan::pace;
use crate::engine::throttle::Notice;
use crate::engine::{Forgotten, Holder, Noticed, OfLimit};
use crate::telemetry::events::{Event, EventKind, LimitOf};
use crate::telemetry::metrics::Series;

/// Below this percentage left of a limit, the log line is a warning.
const SCARCE_PCT: u64 = 10;
/// The log's values for a limit without a known name, and for all endpoints.
const UNKNOWN: &str = "unknown";
const ALL: &str = "*";

impl LimitOf {
    fn new(of: OfLimit) -> LimitOf {
        let scope = match of.holder {
            Holder::Lane => "tenant",
            Holder::Endpoint(_) => "endpoint",
            Holder::Account => "account",
            Holder::Vendor => "vendor",
        };
        LimitOf { name: of.limit, scope, endpoint: of.endpoint }
    }

    fn in_the_log(&self) -> (&str, &str, &str) {
        (self.name.as_deref().unwrap_or(UNKNOWN), self.scope, self.endpoint.as_deref().unwrap_or(ALL))
    }
}

/// Reports a change of a limit that a tenant's requests count in. `request`: the id of the request that caused it.
pub(crate) fn tell(core: &Core, of: &Tenant, series: &Series, request: Option<u64>, noticed: Noticed) {
    let (tenant, vendor) = (&*of.id, &*of.vendor.name);
    let now = core.clock.now();
    let limit_of = LimitOf::new(noticed.of);
    let (limit, scope, endpoint) = limit_of.in_the_log();
    if matches!(noticed.notice, Notice::Exhausted { .. } | Notice::Longer { .. } | Notice::Recovered) {
        core.registry.pause_changed(of);
    }
    let kind = match noticed.notice {
        Notice::Slower { remaining_pct, delay_ns } => {
            let delay_ms = delay_ns / 1_000_000;
            let pace = pace(&of.vendor);
            let share = pace.unit_ns as f64 / delay_ns.max(1) as f64;
            series.slowed(&of.id, share, now.plus_nanos(pace.window_ns));
            let message = "pre-emptive throttle triggered";
            // At this level the low tier sends once per window.
            match remaining_pct < SCARCE_PCT {
                true => {
                    tracing::warn!(tenant, vendor, limit, scope, endpoint, remaining_pct, delay_ms, "{message}");
                }
                false => {
                    tracing::info!(tenant, vendor, limit, scope, endpoint, remaining_pct, delay_ms, "{message}");
                }
            }
            EventKind::Throttled { remaining_pct, delay: Duration::from_nanos(delay_ns), limit: limit_of }
        }
        Notice::Exhausted { until } => {
            let wait = until.since(now);
            series.paused(&of.id, until);
            let reset_at = core.clock.wall().checked_add(wait);
            let reset_at = reset_at.and_then(|at| jiff::Timestamp::try_from(at).ok());
            tracing::warn!(
                tenant,
                vendor,
                limit,
                scope,
                endpoint,
                reset_at = reset_at.map(tracing::field::display),
                wait_ms = crate::clock::millis(wait),
                "limit exhausted, waiting for reset"
            );
            EventKind::Exhausted { wait, limit: limit_of }
        }
        Notice::Longer { until } => return series.paused_longer(&of.id, until),
        Notice::Held => {
            tracing::warn!(tenant, vendor, "paused until it is resumed");
            EventKind::Paused
        }
        Notice::Recovered => {
            series.resumed(&of.id);
            tracing::info!(tenant, vendor, limit, scope, endpoint, "recovered after wait");
            EventKind::Recovered { limit: limit_of }
        }
        Notice::Yielded { per_window } => {
            let pace = pace(&of.vendor);
            let share = per_window as f64 * pace.unit_ns as f64 / pace.window_ns.max(1) as f64;
            series.slowed(&of.id, share, now.plus_nanos(pace.window_ns));
            tracing::warn!(
                tenant,
                vendor,
                limit,
                scope,
                per_window,
                "the vendor takes less than its limit: another application uses the key, or the limit is another"
            );
            EventKind::Yielded { per_window }
        }
    };
    core.telemetry.feed.tell_for(request, of, || kind);
}

/// Reports the end of a pause after which no request was sent.
pub(crate) fn tell_forgotten(core: &Core, forgotten: Forgotten) {
    let tenant: Option<Arc<str>> = forgotten.tenant.as_deref().map(Arc::from);
    let vendor = forgotten.vendor;
    let limit_of = LimitOf::new(forgotten.of);
    let (limit, scope, endpoint) = limit_of.in_the_log();
    let of = tenant.as_deref().unwrap_or(ALL);
    tracing::info!(tenant = of, vendor = &*vendor, limit, scope, endpoint, "recovered after wait");
    if core.telemetry.feed.is_heard() {
        let kind = EventKind::Recovered { limit: limit_of };
        core.telemetry.feed.say(Event { request_id: None, tenant, vendor: Some(vendor), kind });
    }
}
