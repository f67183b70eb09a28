//! Limits with `cold_start = "spent"` that processes share. The store keeps what the processes have used, so the
//! setting has no effect on such a limit: a limit that is new to the store starts full.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::{Config, LimitKind, Vendor};

/// The shared limits with `cold_start = "spent"`, each as its vendor and its name.
fn spent_limits(config: &Config) -> BTreeSet<(Arc<str>, Arc<str>)> {
    let of_tenants = config.tenants().map(|tenant| &tenant.vendor);
    let vendors = config.vendors().iter().chain(of_tenants);
    vendors.flat_map(|vendor| spent_limits_of(vendor)).collect()
}

fn spent_limits_of(vendor: &Vendor) -> impl Iterator<Item = (Arc<str>, Arc<str>)> {
    let limits = vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits).chain(&vendor.limits);
    let is_spent = |kind: &LimitKind| matches!(kind, LimitKind::Rate(rate) if rate.cold_start_spent);
    let spent = limits.filter(move |limit| limit.shared && is_spent(&limit.kind));
    spent.map(move |limit| (vendor.name.clone(), limit.name.clone()))
}

/// Warns of the limits whose `cold_start` has no effect.
pub(super) fn warn_of_spent_limits(config: &Config) {
    for (vendor, limit) in spent_limits(config) {
        tracing::warn!(
            vendor = &*vendor,
            limit = &*limit,
            "`cold_start = \"spent\"` has no effect on a limit that processes share: a limit that is new to their \
             store starts full"
        );
    }
}

#[cfg(test)]
mod tests;
