//! Validates a request before it is stored: all checks that `send` makes before it waits for a permit, and that the
//! request can be stored without a secret.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::key;
use super::prepared::Prepared;
use crate::config::{AuthScheme, OnAmbiguous};
use crate::core::Core;
use crate::dead_letter::LetterRequest;
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
pub(crate) fn acceptable(core: &Core, tenant: &str, mut request: Request) -> Result<Acceptable, Error> {
    let tenant = match &request.parts.target {
        Target::Path { vendor, .. } => core.registry.route(tenant, vendor),
        Target::Url(url) => core.registry.route_for_url(tenant, url),
    }?;
    let vendor = &tenant.vendor;
    let base = tenant.base()?;
    if let Some(name) = &request.parts.endpoint {
        vendor.endpoint(name)?;
    }
    let endpoint = request.parts.endpoint.take().map(String::from);
    let costs = request.parts.costs.iter().map(|(kind, units)| (kind.to_string(), *units)).collect();
    let (attempt_timeout, deadline) = (request.parts.attempt_timeout, request.parts.deadline);
    let on_ambiguous = request.parts.on_ambiguous;
    let mut notes = request.parts.notes.take();
    let own_key = notes.as_ref().and_then(|notes| notes.idempotency_key.clone());
    let has_key = key::add_key(&mut request, &mut notes, &tenant, &base)?;
    let prepared = Prepared::new(request, &tenant, &base)?;
    drop(base);
    let refuse = |why: &str| Err(tenant.not_sent(ErrorKind::InvalidRequest, why));
    for name in [http::header::AUTHORIZATION, http::header::COOKIE] {
        if prepared.headers().contains_key(&name) {
            return refuse("a request with a credential of its own is not stored; state the vendor's `auth` instead");
        }
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
    let request = LetterRequest::whole(prepared.method(), &path, prepared.headers(), body.clone());
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
