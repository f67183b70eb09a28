//! The error for a tenant that is not configured, with a suggestion.

use std::sync::Arc;

use super::suggest;
use super::vendor::Tenant;
use crate::{Error, ErrorKind};

/// The largest number of tenants that is searched for a similar id; with more, each unknown id would cost milliseconds.
pub(crate) const SEARCHED: usize = 1000;

/// The error for a tenant that is not configured, with a suggestion from `tenants`. Cuts long ids of callers.
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
