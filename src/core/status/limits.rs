//! The limits of a tenant in its status: the vendor's figure beside the client's own.

use crate::clock::Time;
use crate::config::{Endpoint, Limit, LimitKind, Scope, Vendor};
use crate::core::status::types::LimitStatus;
use crate::engine::{Holder, LimitView};

/// All limits of the vendor's entry, each with the number of its endpoint if it belongs to one.
fn stated(vendor: &Vendor) -> impl Iterator<Item = (Option<(usize, &Endpoint)>, &Limit)> {
    let own = vendor.limits.iter().map(|limit| (None, limit));
    let of_endpoints = vendor.endpoints.iter().enumerate();
    own.chain(
        of_endpoints
            .flat_map(|(number, endpoint)| endpoint.limits.iter().map(move |limit| (Some((number, endpoint)), limit))),
    )
}

/// The vendor's figure, and the figure that the client does not exceed.
fn figures(limit: &Limit) -> (u32, u32) {
    match &limit.kind {
        LimitKind::Rate(rate) => (rate.limit, rate.shape().guard_limit),
        LimitKind::Concurrency { limit } => (*limit, *limit),
    }
}

/// The limits of a tenant whose lane is not in memory: all their units are available.
pub(super) fn resting(vendor: &Vendor) -> Vec<LimitStatus> {
    let shown = |(endpoint, limit): (Option<(usize, &Endpoint)>, &Limit)| {
        let (figure, guard) = figures(limit);
        LimitStatus {
            name: limit.name.clone(),
            scope: limit.scope.name(),
            endpoint: endpoint.map(|(_, endpoint)| endpoint.name.clone()),
            limit: figure,
            guard,
            remaining: guard,
            ends_in: None,
            resets_in: None,
            full_in: Some(std::time::Duration::ZERO),
            paused_for: None,
            discovered: false,
        }
    };
    stated(vendor).map(shown).collect()
}

/// The status of a limit from the engine's view of it.
pub(super) fn in_use(vendor: &Vendor, seen: LimitView, now: Time) -> LimitStatus {
    let (scope, number) = match seen.holder {
        Holder::Lane => (Scope::Tenant, None),
        Holder::Endpoint(number) => (Scope::Endpoint, Some(number.place())),
        Holder::Account => (Scope::Account, None),
        Holder::Vendor => (Scope::Vendor, None),
    };
    // The engine knows shared limits only by name. If two endpoints have a limit with this name, it is unknown which
    // one is meant.
    let is_it = |(endpoint, limit): &(Option<(usize, &Endpoint)>, &Limit)| {
        let is_there = number.is_none() || endpoint.map(|(number, _)| number) == number;
        limit.name == seen.name && limit.scope == scope && is_there
    };
    let mut found = stated(vendor).filter(is_it);
    let found = found.next().filter(|_| found.next().is_none());
    let endpoint = found.and_then(|(endpoint, _)| endpoint).map(|(_, endpoint)| endpoint.name.clone());
    let of_number = number.and_then(|number| vendor.endpoints.get(number)).map(|endpoint| endpoint.name.clone());
    LimitStatus {
        name: seen.name,
        scope: scope.name(),
        endpoint: endpoint.or(of_number),
        limit: found.map_or(seen.limit, |(_, limit)| figures(limit).0),
        guard: seen.limit,
        remaining: seen.left,
        ends_in: seen.ends_at.map(|at| at.since(now)),
        resets_in: seen.resets_at.map(|at| at.since(now)),
        full_in: seen.full_at.map(|at| at.since(now)),
        paused_for: (seen.paused_until > now).then(|| seen.paused_until.since(now)),
        discovered: seen.is_discovered,
    }
}

/// The smallest remaining share among the limits that apply to all requests.
pub(super) fn headroom(limits: &[LimitStatus]) -> Option<f64> {
    let of_all = limits.iter().filter(|limit| limit.scope != Scope::Endpoint.name() && limit.guard > 0);
    of_all.map(|limit| f64::from(limit.remaining) / f64::from(limit.guard)).min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests;
