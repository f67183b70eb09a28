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

/// The parts of a request that are set one by one.
pub(crate) struct Parts {
    pub(crate) method: Method,
    pub(crate) target: Target,
    /// Encoded pairs, joined by `&`.
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    pub(crate) endpoint: Option<Box<str>>,
    /// By kind of points; one of each.
    pub(crate) costs: Vec<(CompactString, u32)>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) trace_parent: Option<HeaderValue>,
    pub(crate) on_ambiguous: Option<OnAmbiguous>,
    pub(crate) notes: Option<Box<Notes>>,
    /// Set when an exchange of it may have begun.
    pub(crate) begun: Option<Arc<AtomicBool>>,
    /// The first mistake that the builder methods found.
    pub(super) problem: Option<Box<str>>,
}

/// What goes into a dead letter beside the request.
#[derive(Clone, Default)]
pub(crate) struct Notes {
    pub(crate) idempotency_key: Option<Box<str>>,
    /// The key came with a request that was accepted before: it stands in the request, where the vendor's entry said then.
    pub(crate) key_was_accepted: bool,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Bytes of the request's body and of the answer's.
    pub(crate) bytes: Option<(u32, u32)>,
    /// The answer is to be kept, where the request is accepted by `enqueue`.
    pub(crate) keep_response: bool,
    /// Its outcome is to be written into the store's table of replies.
    pub(crate) reply: bool,
    /// Where its sender wants the reply, as a target of replies knows the place.
    pub(crate) reply_to: Option<Box<str>>,
}

/// Where a request goes.
#[derive(Clone)]
pub(crate) enum Target {
    /// A path (and query) below a vendor's base URL.
    Path { vendor: CompactString, path: String },
    /// A whole URL. The client finds the vendor with the base URL that it begins with.
    Url(Url),
}
