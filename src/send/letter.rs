//! Converts a job into a dead letter, and a dead letter back into a request.

use std::time::Duration;

use http::HeaderMap;

use super::Outgoing;
use super::attempt_end::EXCERPT;
use crate::clock::Clock;
use crate::config::{AtRest, Keep};
use crate::core::Core;
use crate::dead_letter::{DeadLetter, LetterRequest, Reason};
use crate::error::{Delivery, Error, ErrorKind};
use crate::request::Request;

/// Characters of a response body that a redacted letter keeps.
const WORDS: usize = 200;

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
        let in_doubt = self.in_doubt();
        match &self.stored {
            Some(stored) => {
                letter.id.clone_from(&stored.id);
                letter.may_have_acted_at = in_doubt.map(|since| stored.clock.of(since));
            }
            None => letter.in_doubt_since = in_doubt.map(|since| since.at),
        }
        letter.at_rest = tenant.vendor.at_rest;
        letter.endpoint = Some(self.label().into_owned());
        letter.costs = prepared.stated_costs().map(|(kind, units)| (kind.to_owned(), units)).collect();
        if let Some(notes) = &self.notes {
            letter.metadata = notes.metadata.clone();
            letter.idempotency_key = notes.idempotency_key.as_deref().map(str::to_owned);
            letter.replaced.clone_from(&notes.replaced);
        }
        if let Some(past) = &self.past {
            letter.attempts.clone_from(&past.records);
        }
        letter
    }

    /// Adds to the last record what the letter keeps of the response: the headers, and the beginning of the body, which
    /// usually says why the vendor refused. The tenant's secret is replaced before the text is cut, so that no part of
    /// it is left at the cut.
    pub(super) fn note_response(&mut self, status: u16, headers: &HeaderMap, body: &[u8]) {
        let authorization = self.take_authorization();
        let vendor = &self.route.vendor;
        let most = match vendor.dead_letters {
            Keep::Whole => EXCERPT,
            // A response about a credential may repeat a part of it, which cannot be found.
            Keep::Redacted if matches!(status, 401 | 403 | 407) => return,
            Keep::Redacted => WORDS,
            Keep::NoAnswer => return,
        };
        if vendor.at_rest == AtRest::Redacted {
            return;
        }
        // The body may have been cut within a character of up to four bytes.
        let text = body.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        // A text with zeros is not UTF-8 but UTF-16, in which no secret would be found.
        let is_text = body.len() - text.len() < 4 && !text.contains('\0');
        let known = authorization.as_deref();
        let text = known.map_or_else(|| text.to_owned(), |known| known.conceal(&vendor.auth, text, true, ""));
        let plain = |c: char| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
        let text: String = text.trim().chars().take(most).map(plain).collect();
        let answer = (is_text && !text.is_empty()).then_some(text);
        let headers = self.kept_of_response(headers, known, vendor.dead_letters == Keep::Whole);
        if let Some(last) = self.past.as_mut().and_then(|past| past.records.last_mut()) {
            (last.answer, last.headers) = (answer, headers);
        }
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
        if !letter.replaced.is_empty() {
            request = request.replaced_headers(&letter.replaced);
        }
        Ok(request)
    }
}
