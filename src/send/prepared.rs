//! Turns a [`Request`] of a [`Tenant`] into [`Exchange`]s.
//!
//! [`Prepared`] is made once per send and holds what all attempts have in common; [`Prepared::exchange`] adds what
//! differs: the credential, the signature and the deadline.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, COOKIE, HeaderName, HeaderValue, RANGE};
use http::{HeaderMap, Method};
use tokio::time::Instant;
use url::Url;

use super::credential_headers::is_credential;
use crate::config::{AuthScheme, CONNECTION_HEADERS, Tenant, Vendor};
use crate::error::panic::catch_panic;
use crate::error::{Error, ErrorKind};
use crate::request::{Notes, Parts, Request, Target};
use crate::route::{Authorization, Route};
use crate::transport::auth::{self, Signer, SigningParts};
use crate::transport::{Exchange, target};

/// The headers of a trace, which differ in each attempt.
pub(crate) const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// A request that is valid for one tenant and can be sent any number of times.
pub(crate) struct Prepared {
    /// The request, with the headers of all attempts. The body is empty once a stream has been taken.
    parts: Box<Parts>,
    /// The URL of the first attempt, without a credential. It is a product of the validation, and few requests have a
    /// second attempt.
    first: Option<Url>,
    /// The streaming body has left with an exchange.
    spent: bool,
}

/// The inputs that differ between attempts.
pub(crate) struct Attempt<'a> {
    pub(crate) authorization: Option<&'a Authorization>,
    pub(crate) signer: Option<&'a dyn Signer>,
    /// Wall clock, for signatures.
    pub(crate) wall: SystemTime,
    pub(crate) deadline: Instant,
}

impl Prepared {
    /// Checks `request` and joins it with the vendor's base URL (see [`target::base`]), variables filled in.
    #[inline]
    pub(crate) fn new(request: Request, tenant: &Tenant, base: &Url) -> Result<Prepared, Error> {
        let refuse = |why: &str| Err(refused(tenant, ErrorKind::InvalidRequest, why));
        if let Some(problem) = request.problem() {
            return refuse(problem);
        }
        let mut parts = request.parts;
        if matches!(parts.method, Method::CONNECT | Method::TRACE) {
            return refuse("the methods CONNECT and TRACE are not sent");
        }
        let url = match url_under(&parts, base) {
            Ok(url) => url,
            Err(why) => return refuse(&why),
        };
        let vendor = &tenant.vendor;
        let has_headers = !parts.headers.is_empty() || !vendor.headers.is_empty() || vendor.propagate_trace;
        if has_headers && let Err(why) = complete_headers(&mut parts, tenant) {
            return refuse(&why);
        }
        Ok(Prepared { parts, first: Some(url), spent: false })
    }

    /// Converts the request to another version of the tenant's configuration, and validates it again.
    pub(crate) fn retarget(
        &mut self,
        before: &Route,
        route: &Route,
        notes: &mut Option<Box<Notes>>,
    ) -> Result<(), Cow<'static, str>> {
        if let Some(why) = without_replaced(notes.as_deref(), route) {
            return Err(why.into());
        }
        let base = route.base().map_err(|error| error.to_string())?;
        let url = url_under(&self.parts, &base)?;
        remove_added(&mut self.parts.headers, &before.vendor);
        note_replaced(&self.parts.headers, route, notes);
        complete_headers(&mut self.parts, route)?;
        self.first = Some(url);
        Ok(())
    }

    pub(crate) fn method(&self) -> &Method {
        &self.parts.method
    }

    /// The headers of all attempts.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The headers with which the request is kept in a row or a letter: without those that the vendor's entry adds to
    /// every request. They may hold a key, and each attempt gets them as the entry states them by then.
    pub(super) fn kept_headers(&self, vendor: &Vendor) -> HeaderMap {
        let mut headers = self.parts.headers.clone();
        remove_added(&mut headers, vendor);
        headers
    }

    /// The first header in which the request brings a credential of its own, beside what the vendor's entry gives to
    /// every request. Such a request is never stored.
    pub(super) fn own_credential(&self, vendor: &Vendor) -> Option<&HeaderName> {
        let is_of_entry = |name: &HeaderName, value: &HeaderValue| {
            vendor.headers.iter().any(|(known, given)| name == known.as_str() && value == given.as_str())
        };
        let own = self.headers().iter().find(|&(name, value)| is_credential(name) && !is_of_entry(name, value));
        own.map(|(name, _)| name)
    }

    /// The stated costs by kind of points.
    pub(super) fn stated_costs(&self) -> impl Iterator<Item = (&str, u32)> {
        self.parts.costs.iter().map(|(kind, units)| (&**kind, *units))
    }

    /// The URL without a credential.
    pub(super) fn url(&self, route: &Route) -> Result<Url, Error> {
        if let Some(url) = &self.first {
            return Ok(url.clone());
        }
        // Base URL and path were validated with the first URL.
        let base = route.base()?;
        let joined = path_of(&self.parts, &base).and_then(|path| target::join(&base, path, &self.parts.query));
        joined.map_err(|why| Error::not_sent(ErrorKind::InvalidRequest, why))
    }

    /// Path and query below the vendor's base URL.
    pub(crate) fn path_below_base(&self, route: &Route) -> String {
        let below = |base: &Url| {
            let url = self.url(route).ok()?;
            let path = url.as_str().get(base.as_str().trim_end_matches('/').len()..)?;
            (!path.is_empty()).then(|| path.to_owned())
        };
        route.base().ok().and_then(|base| below(&base)).unwrap_or_else(|| "/".to_owned())
    }

    /// Whether the vendor takes an idempotency key with a request of this method and path.
    pub(super) fn takes_key(&self, route: &Route) -> bool {
        let path = self.path_below_base(route);
        let path = path.split_once('?').map_or(&*path, |(path, _)| path);
        route.vendor.idempotency.covers(self.method(), path)
    }

    /// The body, unless it is a stream.
    pub(crate) fn body(&self) -> Option<&bytes::Bytes> {
        self.parts.body.bytes().filter(|_| !self.spent)
    }

    /// The size of the body; `None` for a stream.
    pub(crate) fn body_bytes(&self) -> Option<u64> {
        self.body().map(|body| body.len() as u64)
    }

    /// The request of one attempt for the same route, authenticated and signed.
    pub(crate) fn exchange(&mut self, route: &Route, attempt: Attempt<'_>) -> Result<Exchange, Error> {
        let vendor = &route.vendor;
        let refuse = |kind, why: &str| refused(route, kind, why);
        let body = match self.parts.body.try_clone() {
            _ if self.spent => {
                let why = "a streaming body can be sent once and was sent already";
                return Err(refuse(ErrorKind::InvalidRequest, why));
            }
            Some(body) => body,
            None => {
                self.spent = true;
                std::mem::take(&mut self.parts.body)
            }
        };
        let url = match self.first.take() {
            Some(url) => url,
            None => self.url(route)?,
        };
        // Built in place: its parts are large, and every move copies them.
        let mut exchange = Exchange {
            method: self.parts.method.clone(),
            url,
            headers: match self.parts.headers.is_empty() {
                true => HeaderMap::new(),
                false => self.parts.headers.clone(),
            },
            body,
            vendor: vendor.clone(),
            client_certificate: route.client_certificate.clone(),
            deadline: attempt.deadline,
            connections: route.connections().clone(),
        };
        let Exchange { method, url, headers, body, .. } = &mut exchange;
        if let Some(authorization) = attempt.authorization {
            authorization.apply(&vendor.auth, url, headers).map_err(|why| refuse(ErrorKind::Credential, why))?;
        }
        if let Some(signer) = attempt.signer {
            let origin = url.origin();
            let mut parts = SigningParts::new(method, url, headers, body.bytes());
            let secret = attempt.authorization.and_then(|known| known.secrets.credential.as_deref());
            let signed = catch_panic(|| signer.sign(&mut parts, secret, attempt.wall));
            signed
                .unwrap_or_else(|| Err("the signer panicked".into()))
                .map_err(|why| refuse(ErrorKind::Credential, "the request could not be signed").with_source(why))?;
            if url.origin() != origin {
                return Err(refuse(ErrorKind::Credential, "the signer changed the scheme, host or port"));
            }
        }
        if let Some(begun) = &self.parts.begun {
            begun.store(true, Ordering::Relaxed);
        }
        Ok(exchange)
    }

    /// Takes back a streaming body, whose exchange has not begun.
    pub(super) fn take_back(&mut self, exchange: Exchange) {
        if self.spent {
            self.parts.body = exchange.body;
            self.spent = false;
        }
    }

    /// The longest wait for the first permit; `None` once it has been taken.
    #[inline]
    pub(super) fn take_max_wait(&mut self) -> Option<Duration> {
        self.parts.max_wait.take()
    }

    /// Records that no exchange of the request can have taken effect so far.
    pub(super) fn clear_begun(&self) {
        if let Some(begun) = &self.parts.begun {
            begun.store(false, Ordering::Relaxed);
        }
    }
}

/// The URL of a request under `base`, checked.
#[inline]
fn url_under(parts: &Parts, base: &Url) -> Result<Url, Cow<'static, str>> {
    let path = path_of(parts, base)?;
    // A full URL may be the base URL itself, without a slash after it.
    let below = matches!(parts.target, Target::Url(_)) && !path.starts_with('/');
    if below { target::check(&format!("/{path}")) } else { target::check(path) }?;
    target::join(base, path, &parts.query)
}

/// Path and query of a request below the vendor's base URL, as its caller gave them.
fn path_of<'p>(parts: &'p Parts, base: &Url) -> Result<&'p str, Cow<'static, str>> {
    match &parts.target {
        Target::Path { path, .. } => Ok(path),
        Target::Url(url) => target::relative(base, url),
    }
}

/// Completes the headers of all attempts: the caller's, validated; trace context, if configured; those of the vendor's
/// entry; and no coding that hides a response's body. Headers with secrets are not among them: each attempt gets those of
/// its time, and what a caller states in their place is in no row or letter.
fn complete_headers(parts: &mut Parts, tenant: &Tenant) -> Result<(), Cow<'static, str>> {
    let (headers, vendor) = (&mut parts.headers, &tenant.vendor);
    check_headers(headers, &vendor.auth)?;
    if vendor.propagate_trace {
        if let Some(parent) = parts.trace_parent.take() {
            headers.insert(TRACE_HEADERS[0], parent);
        }
    } else {
        for name in TRACE_HEADERS {
            headers.remove(name);
        }
    }
    for (name, value) in &vendor.headers {
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) else {
            return Err("the vendor's entry has a header that cannot be sent".into());
        };
        headers.entry(name).or_insert(value);
    }
    for header in tenant.all_secret_headers() {
        headers.remove(&header.name);
    }
    accept_only_readable(headers);
    Ok(())
}

/// Removes the headers that the vendor's entry has added.
fn remove_added(headers: &mut HeaderMap, vendor: &Vendor) {
    for (name, added) in &vendor.headers {
        let mut values = headers.get_all(name).iter();
        let is_alone = values.next().is_some_and(|value| value == added) && values.next().is_none();
        if is_alone {
            headers.remove(name);
        }
    }
}

/// Replaces an `Accept-Encoding` that allows a coding other than gzip, which alone is decoded. A vendor may state a
/// refusal, a wait or a cost in the body only, and in another coding the client would not see it. Without the header the
/// transport asks for gzip and decodes it, so the caller gets plain content.
///
/// A part of gzip's bytes cannot be decoded, so a request for a range allows no coding at all, and says so.
fn accept_only_readable(headers: &mut HeaderMap) {
    let is_range = headers.contains_key(RANGE);
    let readable = if is_range { READABLE_IN_PART } else { READABLE };
    let mut values = headers.get_all(ACCEPT_ENCODING).iter();
    let is_readable = |value: &HeaderValue| {
        value.as_bytes().split(|byte| *byte == b',').all(|element| allows_only(readable, element))
    };
    if values.all(is_readable) && (!is_range || headers.contains_key(ACCEPT_ENCODING)) {
        return;
    }
    if is_range {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    } else {
        headers.remove(ACCEPT_ENCODING);
    }
}

/// The codings of a whole body, and of a part of one, that are decoded. The empty one stands in an empty header.
const READABLE: &[&[u8]] = &[b"", b"identity", b"gzip"];
const READABLE_IN_PART: &[&[u8]] = &[b"", b"identity"];

/// Whether an element of `Accept-Encoding` allows none but these codings.
fn allows_only(codings: &[&[u8]], element: &[u8]) -> bool {
    let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let coding = parts.next().unwrap_or_default();
    // A weight of zero refuses the coding (RFC 9110, section 12.4.2).
    let is_zero = |weight: &[u8]| weight.starts_with(b"0") && weight.iter().all(|byte| matches!(byte, b'0' | b'.'));
    let mut weights = parts.filter_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
    codings.iter().any(|known| coding.eq_ignore_ascii_case(known)) || weights.any(is_zero)
}

/// Notes which headers of the request are left out, because each attempt carries a secret of the entry in their place.
pub(super) fn note_replaced(headers: &HeaderMap, tenant: &Tenant, notes: &mut Option<Box<Notes>>) {
    for header in tenant.all_secret_headers().filter(|header| headers.contains_key(&header.name)) {
        let replaced = &mut notes.get_or_insert_default().replaced;
        if replaced.iter().all(|name| **name != *header.name.as_str()) {
            replaced.push(header.name.as_str().into());
        }
    }
}

/// Refuses a request of which a header was left out for a secret of the entry, if this process's configuration gives
/// the header no value. Without it the vendor would refuse the request for good.
pub(super) fn check_replaced(notes: Option<&Notes>, tenant: &Tenant) -> Result<(), Error> {
    match without_replaced(notes, tenant) {
        None => Ok(()),
        Some(why) => Err(refused(tenant, ErrorKind::InvalidRequest, &why)),
    }
}

/// Why a request would be sent without a header that was left out of it; `None` if no header would be missing.
fn without_replaced(notes: Option<&Notes>, tenant: &Tenant) -> Option<String> {
    let vendor = &tenant.vendor;
    let is_given = |name: &str| {
        tenant.all_secret_headers().any(|header| header.name.as_str() == name)
            || auth::header_of(&vendor.auth).is_ok_and(|header| header.is_some_and(|header| header.as_str() == name))
            || vendor.headers.iter().any(|(header, _)| header.as_str().eq_ignore_ascii_case(name))
    };
    let name = notes?.replaced.iter().find(|name| !is_given(name))?;
    Some(format!(
        "the header {name} was left out of the request, because `secret_headers` stated it, and this configuration does \
         not state it, nor do `auth` and `headers`; state it, or let this process load the present configuration"
    ))
}

/// The error of a request that is not sent.
fn refused(tenant: &Tenant, kind: ErrorKind, why: &str) -> Error {
    tenant.not_sent(kind, why)
}

fn check_headers(headers: &HeaderMap, scheme: &AuthScheme) -> Result<(), String> {
    if headers.is_empty() {
        return Ok(());
    }
    let credential = auth::header_of(scheme)?;
    for name in headers.keys() {
        let text = name.as_str();
        if CONNECTION_HEADERS.contains(&text) || text.starts_with("proxy-") {
            return Err(format!("the header {text} is set by the connection and cannot be set by a request"));
        }
        if credential.as_ref() == Some(name) {
            return Err(format!("the header {text} carries the tenant's credential and cannot be set by a request"));
        }
        if *scheme != AuthScheme::None && (*name == AUTHORIZATION || *name == COOKIE) {
            return Err(format!(
                "the header {text} cannot be set, because the vendor's entry states how to authenticate"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
