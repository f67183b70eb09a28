//! The pause of a tenant in its status: whose requests wait, and why.

use std::time::Duration;

use crate::core::status::types::{LimitStatus, PauseStatus, PausedBy};
use crate::engine::Whose;

pub(super) fn by_operator() -> PauseStatus {
    let reason = "an operator paused the tenant".into();
    PauseStatus { by: PausedBy::Operator, scope: "tenant", limit: None, reason, ends_in: None }
}

/// A pause that the vendor's responses began. `limits` are those of the tenant, `refused_for` says whose limit the last
/// refusal named that no known limit explains, and `failures` is the number of failures in a row that paused the tenant.
pub(super) fn by_vendor(
    limits: &[LimitStatus],
    ends_in: Duration,
    refused_for: Option<Whose>,
    failures: u32,
) -> PauseStatus {
    let pause =
        |scope, limit, reason| PauseStatus { by: PausedBy::Vendor, scope, limit, reason, ends_in: Some(ends_in) };
    let of_all = limits.iter().filter(|limit| limit.endpoint.is_none());
    if let Some(limit) = of_all.into_iter().find(|limit| limit.paused_for == Some(ends_in)) {
        let name = &limit.name;
        let reason =
            format!("the vendor refused a request that counts in limit `{name}`, or said that nothing is left");
        return pause(limit.scope, Some(name.clone()), reason);
    }
    if failures > 0 {
        return pause("tenant", None, format!("{failures} requests of the tenant failed in a row"));
    }
    let (scope, whose) = match refused_for {
        Some(Whose::Account) => ("account", "for all who use the account"),
        Some(Whose::Vendor) => ("vendor", "for all who call the vendor"),
        _ => ("tenant", "for the tenant"),
    };
    pause(scope, None, format!("the vendor refused a request {whose}, or asked to wait"))
}
