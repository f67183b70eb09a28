//! The errors for a tenant that is not configured, with a suggestion, and for a URL of no vendor.

use std::sync::Arc;

use url::Url;

use super::suggest;
use super::vendor::Tenant;
use crate::{Error, ErrorKind};

/// The largest number of tenants that is searched for a similar id; with more, each unknown id would cost milliseconds.
pub(crate) const SEARCHED: usize = 1000;

/// The error for a tenant that is not configured, with a suggestion from `tenants`; without them it names no other
/// tenant or vendor. Cuts long ids of callers.
pub(crate) fn unknown_tenant(id: &str, vendor: &str, tenants: &[Arc<Tenant>]) -> Error {
    let near = if tenants.len() <= SEARCHED { tenants } else { &[] };
    let elsewhere: Vec<&str> =
        near.iter().filter(|tenant| &*tenant.id == id).map(|tenant| &*tenant.vendor.name).take(20).collect();
    let here = near.iter().filter(|tenant| &*tenant.vendor.name == vendor).map(|tenant| &*tenant.id);
    let hint = match (suggest::nearest(id, here), elsewhere.is_empty()) {
        (_, false) => format!("it is configured for {}", elsewhere.join(", ")),
        (Some(near), true) => format!("did you mean `{near}`?"),
        (None, true) => "add a [[tenants]] entry, or add it to the client".to_owned(),
    };
    let (id, vendor): (String, String) = (id.chars().take(128).collect(), vendor.chars().take(128).collect());
    let message = format!("tenant {id:?} is not configured for vendor {vendor:?}; {hint}");
    Error::not_sent(ErrorKind::UnknownTenant, message)
}

/// The error for a URL that belongs to no vendor of the tenant. It states only the host, because a path or a query may
/// hold a secret.
pub(crate) fn unknown_url(tenant: &str, url: &Url) -> Error {
    let tenant: String = tenant.chars().take(128).collect();
    let host = url.host_str().unwrap_or("(none)");
    Error::not_sent(
        ErrorKind::UnknownVendor,
        format!("tenant {tenant:?} has no vendor at host {host:?}; use the base URL of one of its vendors"),
    )
}
