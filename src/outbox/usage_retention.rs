//! How long the usage of limits is kept in the store.

use std::time::Duration;

use crate::config::{LimitKind, Rate, Tenant};
use crate::store::millis_of;

/// How long an exchange of a tenant counts against its limits, in milliseconds: the longest window, and the time that a
/// request may take to reach the vendor.
pub(super) fn remembered(tenant: &Tenant) -> i64 {
    let longest = |rate: &Rate| rate.resets.as_ref().map_or(rate.window, |resets| resets.longest());
    let longest = rates(tenant).map(|rate| millis_of(longest(rate))).max().unwrap_or(0);
    if longest == 0 { 0 } else { longest.saturating_add(millis_of(tenant.vendor.max_transit)) }
}

fn rates(tenant: &Tenant) -> impl Iterator<Item = &Rate> {
    let vendor = &tenant.vendor;
    let limits = vendor.limits.iter().chain(vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits));
    limits.filter_map(|limit| match &limit.kind {
        LimitKind::Rate(rate) => Some(rate),
        _ => None,
    })
}

/// The width of a time slot of a tenant's usage, and how long the slot's row is kept, in milliseconds. `late` is how
/// much later than its record the last exchange in a slot may have been sent. No slot spans two calendar windows.
pub(super) fn kept_for(tenant: &Tenant, late: Duration) -> (i64, i64) {
    let counts_ms = remembered(tenant);
    if counts_ms == 0 {
        return (0, millis_of(late));
    }
    let grids = rates(tenant).filter_map(|rate| rate.resets.as_ref()).map(|resets| millis_of(resets.grid()));
    let slot_ms = part_of(grids.reduce(common), (counts_ms / 64).max(1_000));
    (slot_ms, counts_ms.saturating_add(slot_ms).saturating_add(millis_of(late)))
}

/// The largest divisor of `grid_ms` that is at most `most_ms`.
fn part_of(grid_ms: Option<i64>, most_ms: i64) -> i64 {
    let Some(grid_ms) = grid_ms.filter(|grid_ms| *grid_ms > 0) else { return most_ms };
    let fewest = grid_ms.saturating_add(most_ms - 1) / most_ms;
    let parts = (fewest.max(1)..=grid_ms).find(|parts| grid_ms % parts == 0).unwrap_or(1);
    grid_ms / parts
}

/// The greatest common divisor.
fn common(one: i64, other: i64) -> i64 {
    if other == 0 { one } else { common(other, one % other) }
}

#[cfg(test)]
mod tests;
