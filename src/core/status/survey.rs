//! Collects the facts of all lanes for lists. Facts of lanes in memory come from their engines, in chunks under each
//! hold of a lock; all other lanes are idle, so the configuration suffices.

use std::sync::Arc;

use compact_str::CompactString;

use crate::clock::Time;
use crate::core::Core;
use crate::core::status::lanes::{LanePage, LaneQuery, LaneState, LaneSummary};
use crate::core::status::select::{Facts, Selected, WHOLE, select};
use crate::core::status::status_of;
use crate::core::status::types::{LimitStatus, PausedBy, TenantStatus};
use crate::dispatch::LaneLookup;
use crate::engine::Brief;
use crate::route::Route;
use crate::transport::tokens::TokenState;

/// One lane of a survey. It owns its names, most of which are short enough to be stored inline: lists are sorted and
/// searched by them.
#[derive(Clone, Debug)]
pub(crate) struct Surveyed {
    pub(crate) tenant: CompactString,
    pub(crate) vendor: CompactString,
    pub(crate) facts: Facts,
}

/// The number of parts of a survey; [`survey_part`] reads one of them.
pub(crate) fn parts(core: &Core) -> usize {
    core.registry.routes.parts()
}

/// Adds the lanes of one part to `all`.
pub(crate) fn survey_part(core: &Core, part: usize, all: &mut Vec<Surveyed>) {
    let Core { registry, egress, .. } = core;
    let are_well = egress.hosts.are_well();
    let (mut sought, mut doubtful): (Vec<LaneLookup>, Vec<(usize, Arc<Route>)>) = (Vec::new(), Vec::new());
    registry.routes.each_of_part(part, |route| {
        if route.oauth.is_some() || !are_well {
            doubtful.push((sought.len(), route.clone()));
        }
        sought.push(registry.dispatch.lane_lookup(route));
    });
    let briefs = registry.dispatch.briefs(&sought);
    let now = core.clock.now();
    let mut doubtful = doubtful.into_iter().peekable();
    all.extend(sought.into_iter().zip(briefs).enumerate().map(|(number, (lane, brief))| {
        let troubles = doubtful.next_if(|(doubted, _)| *doubted == number).map(|(_, route)| Troubles {
            needs_reconnect: needs_reconnect(core, &route),
            is_unreachable: is_unreachable(core, &route),
        });
        let facts = facts(brief, troubles.unwrap_or_default(), now);
        Surveyed { tenant: lane.tenant, vendor: lane.vendor, facts }
    }));
}

/// The lanes of all parts.
pub(crate) fn survey(core: &Core) -> Vec<Surveyed> {
    let mut all = Vec::with_capacity(core.registry.routes.len());
    (0..parts(core)).for_each(|part| survey_part(core, part, &mut all));
    all
}

fn needs_reconnect(core: &Core, route: &Route) -> bool {
    let view = core.egress.credentials.token_view(route);
    view.is_some_and(|view| matches!(view.state, TokenState::NeedsReconnect))
}

/// Whether no connection can be made to the vendor's host. Usually no host has failed lately, and then the host need
/// not be determined.
fn is_unreachable(core: &Core, route: &Route) -> bool {
    !core.egress.hosts.are_well() && core.egress.hosts.is_open(&route.peer())
}

/// Problems of a lane that the engine does not know.
#[derive(Clone, Copy, Debug, Default)]
struct Troubles {
    needs_reconnect: bool,
    is_unreachable: bool,
}

fn facts(brief: Option<Brief>, troubles: Troubles, now: Time) -> Facts {
    let Troubles { needs_reconnect, is_unreachable } = troubles;
    let Some(brief) = brief else {
        let state = match () {
            () if needs_reconnect => LaneState::Reconnect,
            () if is_unreachable => LaneState::Unreachable,
            () => LaneState::Idle,
        };
        return Facts { state, room: WHOLE, waiting: 0 };
    };
    let waiting = brief.waiting.iter().map(|tier| u64::from(*tier)).sum();
    let state = match () {
        () if needs_reconnect => LaneState::Reconnect,
        () if brief.held => LaneState::Held,
        () if brief.paused_until > now => LaneState::Paused,
        () if is_unreachable => LaneState::Unreachable,
        () if brief.slowed => LaneState::Throttled,
        () if waiting > 0 => LaneState::Waiting,
        () if brief.in_flight > 0 => LaneState::Sending,
        () => LaneState::Idle,
    };
    let share = |(left, limit): (u32, u32)| u64::from(left) * u64::from(WHOLE) / u64::from(limit.max(1));
    let room = brief.left.map_or(WHOLE, |left| u16::try_from(share(left)).unwrap_or(WHOLE).min(WHOLE));
    Facts { state, room, waiting }
}

/// The page that `query` asks for, with the current status of its lanes.
pub(crate) fn page(core: &Core, all: &[Surveyed], query: &LaneQuery) -> LanePage {
    fn of(lane: &Surveyed) -> (&str, &str, Facts) {
        (&lane.tenant, &lane.vendor, lane.facts)
    }
    let Selected { total, numbers, next } = select(all, of, query);
    let found = numbers.into_iter().filter_map(|number| all.get(number));
    let lanes = found.filter_map(|lane| Some(summary(&status_of(core, &lane.tenant, &lane.vendor).ok()?)));
    LanePage { total, lanes: lanes.collect(), next }
}

/// The row of a lane with its current figures.
fn summary(status: &TenantStatus) -> LaneSummary {
    let of_all = status.limits.iter().filter(|limit| limit.endpoint.is_none() && limit.guard > 0);
    let share = |limit: &&LimitStatus| f64::from(limit.remaining) / f64::from(limit.guard);
    let limit = of_all.min_by(|a, b| share(a).total_cmp(&share(b))).cloned();
    let waits = &status.waits;
    let first = waits.high.as_ref().or(waits.normal.as_ref()).or(waits.low.as_ref());
    LaneSummary {
        tenant: status.tenant.clone(),
        vendor: status.vendor.clone(),
        state: state(status),
        ends_in: status.pause.as_ref().and_then(|pause| pause.ends_in),
        room: status.headroom.or(limit.as_ref().map(|limit| share(&limit))),
        limit,
        waiting: status.waiting,
        in_flight: status.in_flight,
        unreachable: status.unreachable.clone(),
        reason: first.map(|wait| wait.reason.clone()),
    }
}

/// The state that a status shows.
fn state(status: &TenantStatus) -> LaneState {
    use crate::core::status::types::TokenState as Shown;
    let waiting = status.waiting.high + status.waiting.normal + status.waiting.low;
    match status.pause.as_ref().map(|pause| pause.by) {
        _ if status.token.as_ref().is_some_and(|token| token.state == Shown::NeedsReconnect) => LaneState::Reconnect,
        Some(PausedBy::Operator) => LaneState::Held,
        Some(PausedBy::Vendor) => LaneState::Paused,
        None if status.unreachable.is_some() => LaneState::Unreachable,
        None if status.throttle.is_some() => LaneState::Throttled,
        None if waiting > 0 => LaneState::Waiting,
        None if status.in_flight > 0 => LaneState::Sending,
        None => LaneState::Idle,
    }
}

#[cfg(test)]
mod tests;
