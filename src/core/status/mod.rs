//! What one tenant at one vendor is doing, in the words of [`TenantStatus`]: from what the engine shows of its lane.

pub mod types;

use super::Core;
use crate::clock::Time;
use crate::config::Tenant;
use crate::core::status::types::{
    ByPriority, Flow, LimitStatus, PauseStatus, PausedBy, TenantStatus, ThrottleStatus, WaitStatus,
};
use crate::engine::{Holder, Until, View};
use crate::error::Error;
use crate::request::response::WaitReason;

pub(crate) fn status_of(core: &Core, tenant: &str, vendor: &str) -> Result<TenantStatus, Error> {
    let tenant = core.registry.route(tenant, vendor)?;
    let dispatch = &core.registry.dispatch;
    let place = dispatch.find(&tenant);
    let view = place.and_then(|place| place.shard.look(|engine, now| Some((engine.view(now, place.lane)?, now))));
    let flow = core.telemetry.meters.flow(&tenant.vendor.name, core.clock.now());
    Ok(TenantStatus { flow, ..of_the_tenant(&tenant, view, dispatch.policy.tier_weights) })
}

fn of_the_tenant(tenant: &Tenant, view: Option<(View, Time)>, weights: [u32; 3]) -> TenantStatus {
    let all = f64::from(weights.iter().sum::<u32>().max(1));
    let shares = weights.map(|weight| f64::from(weight) / all).into();
    let (id, vendor) = ((&*tenant.id).into(), (&*tenant.vendor.name).into());
    let Some((view, now)) = view else {
        return TenantStatus {
            tenant: id,
            vendor,
            resting: true,
            waiting: ByPriority::default(),
            in_flight: 0,
            shares,
            limits: Vec::new(),
            headroom: None,
            pause: None,
            throttle: None,
            flow: Flow::default(),
            waits: ByPriority::default(),
        };
    };
    let of_all = view.limits.iter().filter(|limit| !matches!(limit.holder, Holder::Endpoint(_)) && limit.limit > 0);
    let headroom = of_all.map(|limit| f64::from(limit.left) / f64::from(limit.limit)).min_by(f64::total_cmp);
    let pause = match () {
        () if view.held => Some(PauseStatus { by: PausedBy::Operator, ends_in: None }),
        () if view.paused_until > now => {
            Some(PauseStatus { by: PausedBy::Vendor, ends_in: Some(view.paused_until.since(now)) })
        }
        () => None,
    };
    let throttle = view.slowest.map(|(spacing, unit)| ThrottleStatus {
        factor: unit as f64 / spacing.max(1) as f64,
        per_second: 1e9 / spacing.max(1) as f64,
    });
    let limits = view.limits.into_iter().map(|limit| {
        let (scope, endpoint) = match limit.holder {
            Holder::Lane => ("tenant", None),
            Holder::Endpoint(number) => ("endpoint", tenant.vendor.endpoints.get(number.place())),
            Holder::Account => ("account", None),
            Holder::Vendor => ("vendor", None),
        };
        let endpoint = endpoint.map(|endpoint| (&*endpoint.name).into());
        LimitStatus {
            name: limit.name,
            scope,
            endpoint,
            limit: limit.limit,
            remaining: limit.left,
            paused_for: (limit.paused_until > now).then(|| limit.paused_until.since(now)),
            discovered: limit.is_discovered,
        }
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
        limits: limits.collect(),
        headroom,
        pause,
        throttle,
        flow: Flow::default(),
        waits: waits.into(),
    }
}
