//! The dead letter of a job, its idempotency key, and the way back.

use std::time::Duration;

use http::HeaderValue;

use super::Job;
use crate::clock::Clock;
use crate::config::{Keep, Vendor};
use crate::core::Core;
use crate::dead_letter::{DeadLetter, LetterRequest, Reason};
use crate::error::{Delivery, Error, ErrorKind};
use crate::request::{Method, Notes, Request};

/// When something began that took so long until now.
pub(super) fn timestamp(clock: Clock, took: Duration) -> jiff::Timestamp {
    let began = clock.wall().checked_sub(took).unwrap_or(std::time::UNIX_EPOCH);
    jiff::Timestamp::try_from(began).unwrap_or_default()
}

/// An idempotency key that is unique and cannot be guessed from other keys: 128 bits of a cryptographic generator, which
/// the operating system seeds, in hexadecimal. A party that sees some keys (a vendor, a log) could otherwise work out the
/// keys of other tenants' requests, and take the place of one. None if the generator fails, which it does only
/// where the system has no source of randomness.
fn new_key() -> Option<Box<str>> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(bytes)).into())
}

/// Gives a request its idempotency key, if the vendor takes one: the caller's, or for a POST and a PATCH one of our
/// own. Returns whether it has one now; a request without one is not sent again where the vendor may have acted.
pub(super) fn add_key(request: &mut Request, notes: &mut Option<Box<Notes>>, vendor: &Vendor) -> bool {
    let Some(header) = &vendor.retry.idempotency_header else { return false };
    let Ok(header) = http::HeaderName::from_bytes(header.as_bytes()) else { return false };
    let own = notes.as_ref().and_then(|notes| notes.idempotency_key.clone());
    // A caller may also have set the header itself.
    let own = own.or_else(|| request.parts.headers.get(&header)?.to_str().ok().map(Into::into));
    let key = match own {
        Some(key) => key,
        None if matches!(request.parts.method, Method::POST | Method::PATCH) => {
            let Some(key) = new_key() else { return false };
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
    pub(super) fn letter(&self, core: &Core, reason: Reason) -> DeadLetter {
        let (prepared, tenant) = (&self.prepared, &self.tenant);
        let path = prepared.path_below_base(tenant);
        let request = match (tenant.vendor.dead_letters, prepared.body()) {
            (Keep::Whole, Some(body)) => {
                LetterRequest::whole(prepared.method(), &path, prepared.headers(), body.clone())
            }
            _ => LetterRequest::outline(prepared.method(), &path, prepared.body_bytes()),
        };
        let at = timestamp(core.clock, Duration::ZERO);
        let mut letter = DeadLetter::new(at, &*tenant.id, &*tenant.vendor.name, self.priority, reason, request);
        if let Some(stored) = &self.stored {
            letter.id.clone_from(&stored.id);
        }
        letter.at_rest = tenant.vendor.at_rest;
        letter.endpoint = Some(self.label().into_owned());
        if let Some(notes) = &self.notes {
            letter.metadata = notes.metadata.clone();
            letter.idempotency_key = notes.idempotency_key.as_deref().map(str::to_owned);
        }
        if let Some(past) = &self.past {
            letter.attempts.clone_from(&past.records);
        }
        letter
    }
}

impl Request {
    /// The request that became a letter.
    pub(crate) fn from_letter(letter: &DeadLetter) -> Result<Request, Error> {
        let refuse = |why: &str| {
            let why = format_args!("dead letter {}: {why}", letter.id);
            Err(Error::of_tenant(&letter.tenant, &letter.vendor, ErrorKind::InvalidRequest, Delivery::NotSent, why))
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
        // Of a request to no endpoint the letter has the template of its path.
        if let Some(endpoint) = letter.endpoint.as_ref().filter(|endpoint| !endpoint.starts_with('/')) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_keys_are_32_hexadecimal_digits_and_differ() {
        let keys: std::collections::BTreeSet<Box<str>> = (0..10_000).map(|_| new_key().unwrap()).collect();
        assert_eq!(keys.len(), 10_000);
        assert!(keys.iter().all(|key| key.len() == 32 && key.bytes().all(|b| b.is_ascii_hexdigit())));
        // Each of the 128 bits is set in about half of them: five standard deviations are 250.
        for bit in 0..128 {
            let set = keys.iter().filter(|key| u128::from_str_radix(key, 16).unwrap() >> bit & 1 == 1).count();
            assert!((4_750..=5_250).contains(&set), "bit {bit} is set in {set} of 10,000 keys");
        }
    }
}
