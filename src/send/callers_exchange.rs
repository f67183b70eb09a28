//! Applies the response to an exchange that the program made itself with a permit.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::feedback::AnswerReader;
use crate::Priority;
use crate::core::{Core, Remembers, Used};
use crate::dispatch::{PermitGuard, plan};
use crate::engine::Correction;
use crate::engine::cost::Cost;
use crate::engine::plan::EndpointId;
use crate::request::Headroom;
use crate::retry;
use crate::route::Route;
use crate::signals;

/// What a response means for the limits. Returned when the response is reported to a
/// [`Permit`](crate::Permit::answered_with).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PermitFeedback {
    is_refusal: bool,
    wait: Option<Duration>,
    headroom: Option<Headroom>,
}

impl PermitFeedback {
    pub(crate) fn new(is_refusal: bool, wait: Option<Duration>, headroom: Option<Headroom>) -> PermitFeedback {
        PermitFeedback { is_refusal, wait, headroom }
    }

    /// Whether the vendor refused the request because of a limit. A refusal pauses the lane or the endpoint.
    pub fn is_refusal(&self) -> bool {
        self.is_refusal
    }

    /// How long the vendor asks to wait; `None` if it states no wait.
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// What is left of the tightest limit, as [`Response::headroom`](crate::Response::headroom) states it.
    pub fn headroom(&self) -> Option<Headroom> {
        self.headroom
    }
}

/// The units of a permit as the client's store remembers them, so that the next process counts them. Made if the client
/// has a store and the vendor has long windows.
pub(crate) struct PermitUsage {
    remembers: Remembers,
    route: Arc<Route>,
    cost: Cost,
}

impl PermitUsage {
    /// Records the units of a permit that has started.
    pub(crate) fn begin(
        core: &Core,
        route: &Arc<Route>,
        endpoint: EndpointId,
        priority: Priority,
        cost: Cost,
    ) -> Option<Box<PermitUsage>> {
        let remembers = core.registry.remembers(route, endpoint, priority == Priority::High)?;
        remembers.used(route, &Used::by_request(cost));
        Some(Box::new(PermitUsage { remembers, route: route.clone(), cost }))
    }

    /// Corrects the units to what the response states.
    pub(crate) fn corrected(&self, correction: Correction) {
        self.remembers.corrected(&self.route, correction);
    }

    /// Returns the units, because no request has left.
    pub(crate) fn not_sent(&self) {
        self.remembers.used(&self.route, &Used::by_request(self.cost).given_back());
    }
}

/// Reports to the limits of a permit what the response to its exchange says about them, as a send does.
///
/// Only the program has the body, so what a dialect would read from it is unknown here. Nothing is retried here, so a
/// refusal that states no wait gets the backoff of a first retry.
pub(crate) fn permit_answered(
    core: &Core,
    route: &Arc<Route>,
    endpoint: EndpointId,
    held: &PermitGuard,
    usage: Option<&PermitUsage>,
    status: StatusCode,
    headers: &HeaderMap,
) -> PermitFeedback {
    let vendor = &route.vendor;
    let series = &core.telemetry.metrics.series(&route.id, &vendor.name);
    let reader = AnswerReader { core, route, endpoint, series, request: None };
    let now = core.clock.now();
    let signals = signals::read(&vendor.dialect, status, headers, b"", core.clock.wall());
    let corrected = held.settled(&plan::settled(vendor, &signals.costs, signals.cost));
    if let (Some(usage), Some(corrected)) = (usage, corrected) {
        usage.corrected(corrected);
    }
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
