//! The fields of a request, as its builder sets them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use compact_str::CompactString;
use http::Method;
use http::header::{HeaderMap, HeaderValue};
use url::Url;

use crate::config::OnAmbiguous;
use crate::transport::Body;

/// The fields of a [`Request`](super::Request), in one allocation.
pub(crate) struct Parts {
    pub(crate) method: Method,
    pub(crate) target: Target,
    /// Encoded pairs, joined by `&`.
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    pub(crate) endpoint: Option<Box<str>>,
    /// The stated costs by kind of points; each kind at most once.
    pub(crate) costs: Vec<(CompactString, u32)>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) trace_parent: Option<HeaderValue>,
    pub(crate) on_ambiguous: Option<OnAmbiguous>,
    pub(crate) notes: Option<Box<Notes>>,
    /// Whether the vendor may have acted on the request: true from the begin of an exchange, until the vendor refuses it
    /// or it turns out not to have been sent.
    pub(crate) begun: Option<Arc<AtomicBool>>,
    /// The first mistake that the builder methods found.
    pub(super) problem: Option<Box<str>>,
}

/// Rarely used settings of a request.
#[derive(Clone, Default)]
pub(crate) struct Notes {
    pub(crate) idempotency_key: Option<Box<str>>,
    /// Whether the key was set when the request was accepted. The request then carries the key already, at the place
    /// that the vendor's entry named at that time.
    pub(crate) key_was_accepted: bool,
    /// Whether the request was accepted without a key. It gets none later: a key that is in no row of the store would
    /// be another one in each claim of the job.
    pub(crate) accepted_without_key: bool,
    /// The headers that were left out of the request, because the entry's `secret_headers` stated them.
    pub(crate) replaced: Vec<Box<str>>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The stated sizes of the request body and of the response body, in bytes.
    pub(crate) bytes: Option<(u32, u32)>,
    /// Whether the response body is kept in the store, for a request that is accepted by `enqueue`.
    pub(crate) keep_response: bool,
    /// Whether the outcome is written into the store's table of replies.
    pub(crate) reply: bool,
    /// The queue, subject or topic to which the reply is delivered.
    pub(crate) reply_to: Option<Box<str>>,
}

/// Where a request goes.
#[derive(Clone)]
pub(crate) enum Target {
    /// A path (and query) below a vendor's base URL.
    Path { vendor: CompactString, path: String },
    /// A whole URL. The client finds the vendor whose base URL it begins with.
    Url(Url),
}
