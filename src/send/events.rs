//! What is logged about a vendor's refusals: `docs/DESIGN.md` states the fields.

use std::time::Duration;

use crate::clock::Clock;
use crate::config::Tenant;
use crate::engine::plan::EndpointId;
use crate::engine::throttle::Notice;

/// The vendor refused a request.
pub(super) fn refused(tenant: &Tenant, endpoint: EndpointId, wait: Option<Duration>, attempt: u32) {
    tracing::warn!(
        tenant = &*tenant.id,
        vendor = &*tenant.vendor.name,
        endpoint = name(tenant, endpoint),
        retry_after_s = wait.map(|wait| wait.as_secs_f64()),
        attempt,
        "429 received"
    );
}

/// What changed for the lane.
pub(crate) fn notice(tenant: &Tenant, notice: Notice, clock: Clock) {
    let (id, vendor) = (&*tenant.id, &*tenant.vendor.name);
    match notice {
        Notice::Slower { remaining_pct, delay_ns } => {
            let delay_ms = delay_ns / 1_000_000;
            tracing::info!(tenant = id, vendor, remaining_pct, delay_ms, "pre-emptive throttle triggered");
        }
        Notice::Exhausted { until } => {
            let wait = until.since(clock.now());
            let reset_at = clock.wall().checked_add(wait).and_then(|at| jiff::Timestamp::try_from(at).ok());
            tracing::warn!(
                tenant = id,
                vendor,
                reset_at = reset_at.map(tracing::field::display),
                wait_ms = super::follow::millis(wait),
                "limit exhausted, waiting for reset"
            );
        }
        Notice::Recovered => tracing::info!(tenant = id, vendor, "recovered after wait"),
        Notice::Yielded { per_window } => tracing::warn!(
            tenant = id,
            vendor,
            per_window,
            "the vendor takes less than its limit: another application uses the key, or the limit is another"
        ),
    }
}

pub(super) fn name(tenant: &Tenant, endpoint: EndpointId) -> Option<&str> {
    tenant.vendor.endpoints.get(endpoint as usize).map(|endpoint| &*endpoint.name)
}
