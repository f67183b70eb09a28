//! How long what was sent is remembered in the store.

use std::time::Duration;

use crate::config::{LimitKind, Tenant};
use crate::store::millis_of;

/// How long an exchange of a tenant counts against its limits, in milliseconds: the longest window, and the time that a
/// request may take to reach the vendor.
pub(super) fn remembered(tenant: &Tenant) -> i64 {
    let vendor = &tenant.vendor;
    let limits = vendor.limits.iter().chain(vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits));
    let windows = limits.filter_map(|limit| match &limit.kind {
        LimitKind::Rate(rate) => Some(millis_of(rate.window)),
        _ => None,
    });
    let longest = windows.max().unwrap_or(0);
    if longest == 0 { 0 } else { longest.saturating_add(millis_of(vendor.max_transit)) }
}

/// The width of a slot of usage that counts for `counts_ms`, and how long its row is kept, in milliseconds. `late`: how much
/// later the last exchange in it may have left.
pub(super) fn kept_for(counts_ms: i64, late: Duration) -> (i64, i64) {
    let slot_ms = if counts_ms > 0 { (counts_ms / 64).max(1_000) } else { 0 };
    (slot_ms, counts_ms.saturating_add(slot_ms).saturating_add(millis_of(late)))
}
