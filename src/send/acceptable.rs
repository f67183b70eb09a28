//! Validates a request before it is stored: all checks that `send` makes before it waits for a permit, and that the
//! request can be stored without a secret.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::key;
use super::prepared::{Prepared, note_replaced};
use crate::Priority;
use crate::config::{AuthScheme, Endpoint, LimitKind, OnAmbiguous, Unit};
use crate::core::{Core, refusal};
use crate::dead_letter::LetterRequest;
use crate::engine::Refusal;
use crate::error::{Error, ErrorKind};
use crate::request::{Notes, Request, Target};
use crate::route::Route;

/// A validated request in its stored form.
pub(crate) struct Acceptable {
    pub(crate) tenant: Arc<Route>,
    pub(crate) request: LetterRequest,
    pub(crate) endpoint: Option<String>,
    pub(crate) costs: BTreeMap<String, u32>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) on_ambiguous: Option<OnAmbiguous>,
    pub(crate) notes: Notes,
    /// The request carries the idempotency key of the notes.
    pub(crate) has_key: bool,
    /// The key that the caller set, even if the request cannot carry it.
    pub(crate) own_key: Option<Box<str>>,
}

/// Validates a request and makes its idempotency key.
pub(crate) fn acceptable(
    core: &Core,
    tenant: &str,
    priority: Priority,
    mut request: Request,
) -> Result<Acceptable, Error> {
    let tenant = match &request.parts.target {
        Target::Path { vendor, .. } => core.registry.route(tenant, vendor),
        Target::Url(url) => core.registry.route_for_url(tenant, url),
    }?;
    let vendor = &tenant.vendor;
    let base = tenant.base()?;
    let found = match &request.parts.endpoint {
        Some(name) => Some(vendor.endpoint(name)?),
        None if vendor.endpoints.is_empty() => None,
        None => vendor.match_endpoint(request.parts.method.as_str(), request.path_below(&base)?),
    };
    let endpoint = request.parts.endpoint.take().map(String::from);
    let costs: BTreeMap<String, u32> =
        request.parts.costs.iter().map(|(kind, units)| (kind.to_string(), *units)).collect();
    let (attempt_timeout, deadline) = (request.parts.attempt_timeout, request.parts.deadline);
    let on_ambiguous = request.parts.on_ambiguous;
    let mut notes = request.parts.notes.take();
    let own_key = notes.as_ref().and_then(|notes| notes.idempotency_key.clone());
    let has_key = key::add_key(&mut request, &mut notes, &tenant, &base)?;
    note_replaced(&request.parts.headers, &tenant, &mut notes);
    let prepared = Prepared::new(request, &tenant, &base)?;
    drop(base);
    let refuse = |why: &str| Err(tenant.not_sent(ErrorKind::InvalidRequest, why));
    if let Some(name) = prepared.own_credential(vendor) {
        return refuse(&format!(
            "a request with a credential of its own, here in the header {name}, is not stored; state the vendor's `auth` \
             instead, or for a second credential `secret_headers` in the entry of the vendor or the tenant, which each \
             attempt gets"
        ));
    }
    let path = prepared.path_below_base(&tenant);
    if let AuthScheme::Query { name } = &vendor.auth {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        if query.split('&').any(|pair| pair.split('=').next() == Some(name)) {
            return refuse("a request with a credential in its query is not stored; it is added to each attempt");
        }
    }
    let Some(body) = prepared.body() else {
        return refuse("a streaming body cannot be stored; give it as bytes");
    };
    let sent = u32::try_from(body.len()).unwrap_or(u32::MAX);
    if let Some(refusal) = too_expensive(&tenant, found.map(|(_, endpoint)| endpoint), &costs, sent, priority) {
        return Err(refusal::error(&tenant, priority, core.clock.now(), refusal));
    }
    let request = LetterRequest::whole(prepared.method(), &path, &prepared.kept_headers(vendor), body.clone());
    let notes = notes.map(|notes| *notes).unwrap_or_default();
    Ok(Acceptable {
        request,
        endpoint,
        costs,
        attempt_timeout,
        deadline,
        on_ambiguous,
        notes,
        has_key,
        own_key,
        tenant,
    })
}

/// Refuses a cost that a limit of the request can never hold. The limits may change until the request is sent, so its
/// send checks the cost again.
fn too_expensive(
    tenant: &Route,
    endpoint: Option<&Endpoint>,
    stated: &BTreeMap<String, u32>,
    sent: u32,
    priority: Priority,
) -> Option<Refusal> {
    let vendor = &tenant.vendor;
    let stated = stated.iter().map(|(kind, units)| (&**kind, *units));
    let points = endpoint.map_or(&vendor.costs, |endpoint| &endpoint.costs).of(stated);
    let mut limits = vendor.limits.iter().chain(endpoint.into_iter().flat_map(|endpoint| &endpoint.limits));
    limits.find_map(|limit| {
        let LimitKind::Rate(rate) = &limit.kind else { return None };
        let cost = match &rate.unit {
            Unit::Cost(kind) => *points.get(vendor.costs.place(kind)?)?,
            // The expected size of the response is never more than there is room for.
            Unit::RequestBytes | Unit::Bytes => sent,
            Unit::Requests | Unit::ResponseBytes => return None,
        };
        // Every limit holds one unit.
        let largest = if cost > 1 { rate.shape().largest_cost(priority == Priority::High) } else { cost };
        (cost > largest).then(|| Refusal::TooExpensive { limit: limit.name.clone(), cost, largest })
    })
}
