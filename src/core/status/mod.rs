//! Makes the [`TenantStatus`] of one tenant at one vendor from the engine's view of its lane.

pub(crate) mod lanes;
mod limits;
mod pauses;
pub(crate) mod select;
pub(crate) mod survey;
pub mod types;

use super::Core;
use crate::clock::Time;
use crate::config::Tenant;
use crate::core::status::types::{ByPriority, Flow, TenantStatus, ThrottleStatus, TokenState, TokenStatus, WaitStatus};
use crate::engine::{Until, View};
use crate::error::Error;
use crate::request::WaitReason;
use crate::transport::tokens::{self, TokenView};

pub(crate) fn status_of(core: &Core, tenant: &str, vendor: &str) -> Result<TenantStatus, Error> {
    let tenant = core.registry.route(tenant, vendor)?;
    let dispatch = &core.registry.dispatch;
    let place = dispatch.find(&tenant);
    let view = place.and_then(|place| place.shard.look(|engine, now| Some((engine.view(now, place.lane)?, now))));
    let flow = core.telemetry.meters.flow(&tenant.vendor.name, core.clock.now());
    let token = core.egress.credentials.token_view(&tenant).map(|view| of_the_token(view, core.clock.now()));
    // Usually no host has failed lately, and then the tenant's host need not be determined.
    let host = (!core.egress.hosts.are_well()).then(|| tenant.peer());
    let unreachable = host.filter(|host| core.egress.hosts.is_open(host)).map(Into::into);
    Ok(TenantStatus { flow, token, unreachable, ..of_the_tenant(&tenant, view, dispatch.policy.tier_weights) })
}

fn of_the_token(view: TokenView, now: Time) -> TokenStatus {
    TokenStatus {
        state: match view.state {
            tokens::TokenState::Unasked => TokenState::None,
            tokens::TokenState::Fresh => TokenState::Fresh,
            tokens::TokenState::Failing => TokenState::Failing,
            tokens::TokenState::NeedsReconnect => TokenState::NeedsReconnect,
        },
        fresh_for: view.fresh_until.map(|until| until.since(now)),
        problem: view.problem.map(|why| why.to_string()),
        next_try: view.next_try.map(|at| at.since(now)),
    }
}

fn of_the_tenant(tenant: &Tenant, view: Option<(View, Time)>, weights: [u32; 3]) -> TenantStatus {
    let all = f64::from(weights.iter().sum::<u32>().max(1));
    let shares = weights.map(|weight| f64::from(weight) / all).into();
    let (id, vendor) = ((&*tenant.id).into(), (&*tenant.vendor.name).into());
    let Some((view, now)) = view else {
        let limits = limits::resting(&tenant.vendor);
        return TenantStatus {
            tenant: id,
            vendor,
            resting: true,
            waiting: ByPriority::default(),
            in_flight: 0,
            shares,
            headroom: limits::headroom(&limits),
            limits,
            pause: None,
            unreachable: None,
            throttle: None,
            flow: Flow::default(),
            waits: ByPriority::default(),
            token: None,
        };
    };
    let limits: Vec<_> = view.limits.into_iter().map(|limit| limits::in_use(&tenant.vendor, limit, now)).collect();
    let headroom = limits::headroom(&limits);
    let pause = match () {
        () if view.held => Some(pauses::by_operator()),
        () if view.paused_until > now => {
            Some(pauses::by_vendor(&limits, view.paused_until.since(now), view.refused_for, view.failures))
        }
        () => None,
    };
    let throttle = view.slowest.map(|(spacing, unit)| ThrottleStatus {
        factor: unit as f64 / spacing.max(1) as f64,
        per_second: 1e9 / spacing.max(1) as f64,
    });
    let waits = view.heads.map(|head| {
        head.map(|head| WaitStatus {
            limit: head.reason.limit.clone(),
            reason: WaitReason::new(head.reason).to_string(),
            waited: now.since(head.since),
            not_before: match head.until {
                Until::At(at) | Until::Turn(at) => Some(at.since(now)),
                Until::OnSettle(_) => None,
            },
        })
    });
    TenantStatus {
        tenant: id,
        vendor,
        resting: false,
        waiting: view.waiting.into(),
        in_flight: view.in_flight,
        shares,
        limits,
        headroom,
        pause,
        unreachable: None,
        throttle,
        flow: Flow::default(),
        waits: waits.into(),
        token: None,
    }
}
