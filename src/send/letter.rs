//! The dead letter of a job, its idempotency key, and the way back.

use std::time::Duration;

use http::HeaderValue;

use super::{Job, events};
use crate::client::Inner;
use crate::clock::Clock;
use crate::config::{Keep, Vendor};
use crate::dead_letter::{DeadLetter, LetterRequest, Reason};
use crate::error::{Error, ErrorKind};
use crate::request::{Method, Notes, Request};

/// When something began that took so long until now.
pub(super) fn timestamp(clock: Clock, took: Duration) -> jiff::Timestamp {
    let began = clock.wall().checked_sub(took).unwrap_or(std::time::UNIX_EPOCH);
    jiff::Timestamp::try_from(began).unwrap_or_default()
}

/// Gives a request its idempotency key, if the vendor takes one: the caller's, or for a POST and a PATCH one of our
/// own. Returns whether it has one now.
pub(super) fn add_key(request: &mut Request, notes: &mut Option<Box<Notes>>, vendor: &Vendor) -> bool {
    let Some(header) = &vendor.retry.idempotency_header else { return false };
    let Ok(header) = http::HeaderName::from_bytes(header.as_bytes()) else { return false };
    let own = notes.as_ref().and_then(|notes| notes.idempotency_key.clone());
    // A caller may also have set the header itself.
    let own = own.or_else(|| request.parts.headers.get(&header)?.to_str().ok().map(Into::into));
    let key = match own {
        Some(key) => key,
        None if matches!(request.parts.method, Method::POST | Method::PATCH) => {
            let key: Box<str> = format!("{:032x}", fastrand::u128(..)).into();
            notes.get_or_insert_default().idempotency_key = Some(key.clone());
            key
        }
        None => return false,
    };
    match HeaderValue::from_str(&key) {
        Ok(value) => {
            request.parts.headers.insert(header, value);
            notes.get_or_insert_default().idempotency_key = Some(key);
            true
        }
        Err(_) => false,
    }
}

impl Job {
    pub(super) fn letter(&mut self, inner: &Inner, reason: Reason) -> DeadLetter {
        let (prepared, tenant) = (&self.prepared, &self.tenant);
        let path = prepared.path_below_base(tenant);
        let request = match (tenant.vendor.dead_letters, prepared.body()) {
            (Keep::Whole, Some(body)) => {
                LetterRequest::whole(prepared.method(), &path, prepared.headers(), body.clone())
            }
            _ => LetterRequest::outline(prepared.method(), &path, prepared.body_bytes()),
        };
        let at = timestamp(inner.clock, Duration::ZERO);
        let mut letter = DeadLetter::new(at, &*tenant.id, &*tenant.vendor.name, self.priority, reason, request);
        if let Some(kept) = &self.kept {
            letter.id.clone_from(&kept.id);
        }
        letter.endpoint = events::name(tenant, self.endpoint).map(str::to_owned);
        if let Some(notes) = &self.notes {
            letter.metadata = notes.metadata.clone();
            letter.idempotency_key = notes.idempotency_key.as_deref().map(str::to_owned);
        }
        if let Some(past) = &mut self.past {
            letter.attempts = std::mem::take(&mut past.records);
        }
        letter
    }
}

impl Request {
    /// The request that became a letter.
    pub(crate) fn from_letter(letter: &DeadLetter) -> Result<Request, Error> {
        let refuse = |why: &str| {
            let message =
                format!("tenant {}, vendor {}: dead letter {}: {why}", letter.tenant, letter.vendor, letter.id);
            Err(Error::not_sent(ErrorKind::InvalidRequest, message))
        };
        let LetterRequest::Whole { method, path, headers, body } = &letter.request else {
            return refuse(
                "it keeps no more than an outline; set dead_letters = \"whole\" for the vendor, or send the request anew",
            );
        };
        let Ok(method) = Method::from_bytes(method.as_bytes()) else { return refuse("its method is none") };
        let mut request = Request::new(method, &letter.vendor, path.as_str()).body(body.as_bytes().clone());
        for (name, value) in headers {
            request = request.header(name.as_str(), value.as_bytes().as_ref());
        }
        if let Some(endpoint) = &letter.endpoint {
            request = request.endpoint(endpoint);
        }
        if let Some(key) = &letter.idempotency_key {
            request = request.idempotency_key(key);
        }
        for (name, value) in &letter.metadata {
            request = request.metadata(name, value);
        }
        Ok(request)
    }
}
