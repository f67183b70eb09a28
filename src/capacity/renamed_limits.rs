//! Shared limits to which a reload gives another name, scope or endpoint. The store knows a limit by these, so it
//! counts the limit anew from then on, beside what processes hold and have used under the earlier name.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Limit, LimitKind, Scope, Unit, Vendor};

/// A shared limit: what the store knows it by, apart from the tenant or account, and what it counts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Known {
    vendor: Arc<str>,
    environment: Arc<str>,
    scope: Scope,
    endpoint: Option<Arc<str>>,
    name: Arc<str>,
    /// The unit and the window; `None` for requests at once.
    counts: Option<(Unit, Duration)>,
}

impl Known {
    fn new(vendor: &Vendor, endpoint: Option<&Arc<str>>, limit: &Limit) -> Known {
        Known {
            vendor: vendor.name.clone(),
            environment: vendor.environment.clone(),
            scope: limit.scope,
            endpoint: endpoint.cloned(),
            name: limit.name.clone(),
            counts: match &limit.kind {
                LimitKind::Rate(rate) => Some((rate.unit.clone(), rate.window)),
                LimitKind::Concurrency { .. } => None,
            },
        }
    }

    /// Whether this may be the same limit of the vendor by another name.
    fn counts_like(&self, other: &Known) -> bool {
        (&self.vendor, &self.environment, &self.counts) == (&other.vendor, &other.environment, &other.counts)
    }
}

/// The shared limits of the configuration that was looked at last.
#[derive(Default)]
pub(super) struct KnownLimits(HashSet<Known>);

impl KnownLimits {
    /// Warns of each limit that has gone since the last look while one has come that counts the same.
    pub(super) fn go_over_to(&mut self, config: &Config) {
        let now = limits_of(config);
        for (before, now) in renamed(&self.0, &now) {
            tracing::warn!(
                vendor = &*before.vendor,
                before = &*before.name,
                scope_before = ?before.scope,
                now = &*now.name,
                scope = ?now.scope,
                "a limit that processes share has another name, scope or endpoint than before: their store counts it \
                 anew, beside what is held and was used under the earlier one"
            );
        }
        self.0 = now;
    }
}

fn limits_of(config: &Config) -> HashSet<Known> {
    let mut found = HashSet::new();
    let of_tenants = config.tenants().map(|tenant| &tenant.vendor);
    for vendor in config.vendors().iter().chain(of_tenants) {
        let of_all = vendor.limits.iter().map(|limit| (None, limit));
        let of_endpoints = vendor.endpoints.iter().flat_map(|endpoint| {
            let limits = endpoint.limits.iter();
            limits.map(move |limit| (Some(&endpoint.name), limit))
        });
        let shared = of_all.chain(of_endpoints).filter(|(_, limit)| limit.shared);
        found.extend(shared.map(|(endpoint, limit)| Known::new(vendor, endpoint, limit)));
    }
    found
}

fn renamed<'a>(before: &'a HashSet<Known>, now: &'a HashSet<Known>) -> Vec<(&'a Known, &'a Known)> {
    let new: Vec<&Known> = now.difference(before).collect();
    let replaced = |gone: &'a Known| {
        let by = new.iter().copied().find(|new| new.counts_like(gone))?;
        Some((gone, by))
    };
    before.difference(now).filter_map(replaced).collect()
}

#[cfg(test)]
mod tests;
