//! Converts a job into a dead letter, and a dead letter back into a request.

use std::time::Duration;

use super::Outgoing;
use crate::clock::Clock;
use crate::config::Keep;
use crate::core::Core;
use crate::dead_letter::{DeadLetter, LetterRequest, Reason};
use crate::error::{Delivery, Error, ErrorKind};
use crate::request::Request;

/// The wall-clock time of an event that began `took` ago.
pub(super) fn timestamp(clock: Clock, took: Duration) -> jiff::Timestamp {
    let began = clock.wall().checked_sub(took).unwrap_or(std::time::UNIX_EPOCH);
    jiff::Timestamp::try_from(began).unwrap_or_default()
}

impl Outgoing {
    pub(super) fn letter(&self, core: &Core, reason: Reason) -> DeadLetter {
        let (prepared, tenant) = (&self.prepared, &self.route);
        let path = prepared.path_below_base(tenant);
        let request = match (tenant.vendor.dead_letters, prepared.body()) {
            // An outline has no headers, and so no credential.
            (Keep::Whole, Some(body)) if prepared.own_credential(&tenant.vendor).is_none() => {
                LetterRequest::whole(prepared.method(), &path, &prepared.kept_headers(&tenant.vendor), body.clone())
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
        letter.costs = prepared.stated_costs().map(|(kind, units)| (kind.to_owned(), units)).collect();
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
    /// Rebuilds the request of a letter.
    pub(crate) fn from_letter(letter: &DeadLetter) -> Result<Request, Error> {
        let refuse = |why: &str| {
            let why = format_args!("dead letter {}: {why}", letter.id);
            Err(Error::of_tenant(&letter.tenant, &letter.vendor, ErrorKind::InvalidRequest, Delivery::NotSent, why))
        };
        if !matches!(letter.request, LetterRequest::Whole { .. }) {
            return refuse(
                "it holds only an outline of the request; set dead_letters = \"whole\" for the vendor, or make the request \
                 anew, as for every request that brings a credential of its own, such as an Authorization header",
            );
        }
        let Some(mut request) = letter.request.request(&letter.vendor) else { return refuse("its method is invalid") };
        // For a request without an endpoint, the letter holds the template of its path.
        if let Some(endpoint) = letter.endpoint.as_ref().filter(|endpoint| !endpoint.starts_with('/')) {
            request = request.endpoint(endpoint);
        }
        if let Some(key) = &letter.idempotency_key {
            request = request.accepted_key(key);
        }
        for (kind, units) in &letter.costs {
            request = request.cost(kind, *units);
        }
        for (name, value) in &letter.metadata {
            request = request.metadata(name, value);
        }
        Ok(request)
    }
}
