//! Applies the response to an exchange that the program made itself with a permit.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::feedback::AnswerReader;
use crate::core::Core;
use crate::dispatch::{PermitGuard, plan};
use crate::engine::plan::EndpointId;
use crate::request::response::PermitFeedback;
use crate::retry;
use crate::route::Route;
use crate::signals;

/// Reports to the limits of a permit what the response to its exchange says about them, as a send does.
///
/// Only the program has the body, so what a dialect would read from it is unknown here. Nothing is retried here, so a
/// refusal that states no wait gets the backoff of a first retry.
pub(crate) fn permit_answered(
    core: &Core,
    route: &Arc<Route>,
    endpoint: EndpointId,
    held: &PermitGuard,
    status: StatusCode,
    headers: &HeaderMap,
) -> PermitFeedback {
    let vendor = &route.vendor;
    let series = &core.telemetry.metrics.series(&route.id, &vendor.name);
    let reader = AnswerReader { core, route, endpoint, series, request: None };
    let now = core.clock.now();
    let signals = signals::read(&vendor.dialect, status, headers, b"", core.clock.wall());
    held.settled(&plan::settled(vendor, &signals.costs, signals.cost));
    let backoff = retry::backoff(&vendor.retry, 1, &mut fastrand::Rng::new());
    let reading = reader.read(status, &signals, reader.class(status, headers, &signals), backoff);
    let wait = signals.wait();
    if reading.is_refusal {
        series.refused();
        let (tenant, vendor) = (&*route.id, &*vendor.name);
        let retry_after_s = wait.map(|wait| wait.as_secs_f64());
        tracing::warn!(tenant, vendor, retry_after_s, status = status.as_u16(), "refused by the vendor");
    }
    let effect = held.on_response(now, reading.feedback, &reading.besides);
    core.telemetry.meters.answered(&vendor.name, now, effect.took);
    let headroom = reader.effect(now, effect);
    if reading.is_refusal {
        reader.spread(&signals, now, reading.told);
    }
    PermitFeedback::new(reading.is_refusal, wait, headroom)
}
