//! The stored form of a request.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config::{AtRest, OnAmbiguous};
use crate::dead_letter::LetterRequest;
use crate::request::{Method, Request};
use crate::send::acceptable::Acceptable;
use crate::send::prepared::TRACE_HEADERS;
use crate::signals::POINTS;

/// Stored as JSON. Readers ignore fields that they do not know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) request: LetterRequest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
    /// Points, as earlier versions of the library stored them.
    #[serde(default, skip_serializing)]
    pub(crate) cost: Option<u32>,
    /// The stated cost by kind of points.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) costs: BTreeMap<String, u32>,
    /// The stated sizes of the request body and of the response body, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<(u32, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempt_timeout_ms: Option<u64>,
    /// The request's own `on_ambiguous`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resend: Option<bool>,
    /// The idempotency key that the request carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
    /// Whether the sender of the request wants a reply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reply: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply_to: Option<String>,
    /// The vendor's entry said `at_rest = "redacted"` when the request was accepted. It is kept here because the
    /// process that ends the job may not know the job's tenant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) redacted: bool,
    /// The headers of the request that were left out, because the entry's `secret_headers` stated them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) replaced: Vec<Box<str>>,
}

impl Stored {
    pub(crate) fn of(request: Acceptable) -> Stored {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Stored {
            request: request.request,
            endpoint: request.endpoint,
            cost: None,
            costs: request.costs,
            bytes: request.notes.bytes,
            attempt_timeout_ms: request.attempt_timeout.map(millis),
            resend: request.on_ambiguous.map(|what| what == OnAmbiguous::Resend),
            key: request.notes.idempotency_key.filter(|_| request.has_key).map(String::from),
            metadata: request.notes.metadata,
            reply: request.notes.reply,
            reply_to: request.notes.reply_to.map(String::from),
            redacted: request.tenant.vendor.at_rest == AtRest::Redacted,
            replaced: request.notes.replaced,
        }
    }

    /// Identifies a repeated request: a hash of 122 bits over the request and its sending options.
    pub(crate) fn fingerprint(&self) -> String {
        let mut text = Vec::new();
        if let LetterRequest::Whole { method, path, headers, body } = &self.request {
            for part in [method.as_bytes(), path.as_bytes()] {
                text.extend_from_slice(&(part.len() as u64).to_le_bytes());
                text.extend_from_slice(part);
            }
            // They differ in each attempt, and are not part of the fingerprint.
            for (name, value) in headers.iter().filter(|(name, _)| !TRACE_HEADERS.contains(&name.as_str())) {
                for part in [name.as_bytes(), value.as_bytes()] {
                    text.extend_from_slice(&(part.len() as u64).to_le_bytes());
                    text.extend_from_slice(part);
                }
            }
            text.push(b'\n');
            text.extend_from_slice(body.as_bytes());
        }
        // The form that earlier versions wrote if only points are stated.
        let points = self.costs.get(POINTS).copied().or(self.cost);
        text.extend_from_slice(format!("{:?} {points:?}", self.endpoint).as_bytes());
        for (kind, units) in self.costs.iter().filter(|(kind, _)| *kind != POINTS) {
            text.extend_from_slice(format!(" {kind:?} {units}").as_bytes());
        }
        Uuid::new_v5(&Uuid::NAMESPACE_OID, &text).simple().to_string()
    }

    pub(crate) fn method(&self) -> Option<Method> {
        match &self.request {
            LetterRequest::Whole { method, .. } => Method::from_bytes(method.as_bytes()).ok(),
            _ => None,
        }
    }

    /// Restores the request; `None` if the row does not hold one.
    pub(crate) fn request(&self, vendor: &str) -> Option<Request> {
        let mut request = self.request.request(vendor)?;
        if let Some(endpoint) = &self.endpoint {
            request = request.endpoint(endpoint);
        }
        if let Some(cost) = self.cost {
            request = request.cost(POINTS, cost);
        }
        for (kind, units) in &self.costs {
            request = request.cost(kind, *units);
        }
        if let Some((sent, received)) = self.bytes {
            request = request.expect_bytes(sent, received);
        }
        if let Some(millis) = self.attempt_timeout_ms {
            request = request.attempt_timeout(Duration::from_millis(millis));
        }
        if let Some(resend) = self.resend {
            request = request.on_ambiguous(if resend { OnAmbiguous::Resend } else { OnAmbiguous::Park });
        }
        request = match &self.key {
            Some(key) => request.accepted_key(key),
            None => request.without_new_key(),
        };
        for (name, value) in &self.metadata {
            request = request.metadata(name, value);
        }
        if !self.replaced.is_empty() {
            request = request.replaced_headers(&self.replaced);
        }
        if self.reply {
            request = request.reply();
        }
        if let Some(name) = &self.reply_to {
            request = request.reply_to(name);
        }
        Some(request)
    }
}
