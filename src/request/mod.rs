//! A request to a configured vendor: method, path and content, without host and without credentials.

mod convert;
mod headroom;
mod parts;
mod read;
pub(crate) mod template;
mod wait_reason;

use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use compact_str::CompactString;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;

use crate::config::OnAmbiguous;
use crate::transport::target;

pub use self::headroom::Headroom;
pub(crate) use self::parts::{Notes, Parts, Target};
pub use self::wait_reason::WaitReason;
pub use crate::transport::Body;
pub use http::Method;

/// One request to a vendor.
///
/// It names a vendor and a path below the vendor's base URL. Scheme, host and credential come from the configuration
/// and cannot be set here, so a path made from a tenant's data cannot send a credential elsewhere. The client
/// checks a request when it is sent. A request with a mistake is not sent, and fails with
/// [`ErrorKind::InvalidRequest`](crate::ErrorKind::InvalidRequest).
///
/// **Paths** are sent byte for byte, so they must be encoded already: only the characters of RFC 3986, no space, no
/// control or non-ASCII byte, no backslash, no fragment, no `.` or `..` segment in any encoding.
/// [`segment`](Request::segment) and [`query`](Request::query) encode for you.
///
/// **Headers** that belong to the connection (`Host`, `Content-Length`, `Transfer-Encoding`, `Connection`, `Upgrade`,
/// `TE`, `Trailer`, `Keep-Alive`, `Expect`, `Proxy-*`) are refused. So are `Authorization`, `Cookie` and the vendor's
/// credential header, unless the vendor's `auth` is `none`. A header that the `secret_headers` of the vendor or the tenant
/// name is replaced by theirs.
///
/// ```
/// use integration_client::Request;
/// use std::time::Duration;
///
/// let request = Request::post("github", "/repos")
///     .segment("octo org") // → /repos/octo%20org
///     .query("per_page", 100)
///     .header("accept", "application/vnd.github+json")
///     .json(&["any", "value"])
///     .deadline(Duration::from_secs(30));
/// ```
///
/// `From` converts an [`http::Request`], and with the feature `reqwest-api` a [`reqwest::Request`]. Their URL must lie
/// below the base URL of a vendor, and the same rules apply.
pub struct Request {
    /// Boxed, because a request is moved several times before it is sent.
    pub(crate) parts: Box<Parts>,
}

impl Request {
    /// A request with `method` for `path` (which starts with `/` and may hold a query) below `vendor`'s base URL.
    pub fn new(method: Method, vendor: impl AsRef<str>, path: impl Into<String>) -> Request {
        Request::with_target(method, Target::Path { vendor: vendor.as_ref().into(), path: path.into() })
    }

    #[inline]
    fn with_target(method: Method, target: Target) -> Request {
        let parts = Parts {
            method,
            target,
            query: String::new(),
            headers: HeaderMap::new(),
            body: Body::default(),
            endpoint: None,
            costs: Vec::new(),
            deadline: None,
            max_wait: None,
            attempt_timeout: None,
            trace_parent: None,
            on_ambiguous: None,
            notes: None,
            begun: None,
            problem: None,
        };
        Request { parts: Box::new(parts) }
    }

    /// A GET.
    pub fn get(vendor: impl AsRef<str>, path: impl Into<String>) -> Request {
        Request::new(Method::GET, vendor, path)
    }

    /// A POST.
    pub fn post(vendor: impl AsRef<str>, path: impl Into<String>) -> Request {
        Request::new(Method::POST, vendor, path)
    }

    /// A PUT.
    pub fn put(vendor: impl AsRef<str>, path: impl Into<String>) -> Request {
        Request::new(Method::PUT, vendor, path)
    }

    /// A PATCH.
    pub fn patch(vendor: impl AsRef<str>, path: impl Into<String>) -> Request {
        Request::new(Method::PATCH, vendor, path)
    }

    /// A DELETE.
    pub fn delete(vendor: impl AsRef<str>, path: impl Into<String>) -> Request {
        Request::new(Method::DELETE, vendor, path)
    }

    /// A HEAD.
    pub fn head(vendor: impl AsRef<str>, path: impl Into<String>) -> Request {
        Request::new(Method::HEAD, vendor, path)
    }

    /// Appends `/` and `value` to the path. The value is encoded, so that a slash or a question mark in it is data.
    ///
    /// A value of `.`, `..` or the empty string is refused: no encoding makes it data.
    #[must_use]
    pub fn segment(mut self, value: impl fmt::Display) -> Request {
        let value = value.to_string();
        match &mut self.parts.target {
            Target::Path { path, .. } if !path.contains('?') => {
                if !path.ends_with('/') {
                    path.push('/');
                }
                // Writing to a String cannot fail.
                let _ = write!(path, "{}", target::encode(&value));
            }
            _ => return self.with_problem("a path segment can be added to a path without a query only"),
        }
        if matches!(value.as_str(), "" | "." | "..") {
            return self.with_problem("an empty, \".\" or \"..\" path segment");
        }
        self
    }

    /// Adds `name=value` to the query, encoded.
    #[must_use]
    pub fn query(mut self, name: impl AsRef<str>, value: impl fmt::Display) -> Request {
        push_pair(&mut self.parts.query, name.as_ref(), &value.to_string());
        self
    }

    /// Adds a header; another header of the same name stays. The value is ASCII without control bytes, or any bytes
    /// above 127 (a [`HeaderValue`]). An `Accept-Encoding` that allows a coding other than gzip is not sent, because the
    /// client reads what a vendor states in a body; with a `Range` no coding is allowed.
    #[must_use]
    pub fn header<N, V>(mut self, name: N, value: V) -> Request
    where
        N: TryInto<HeaderName>,
        V: TryInto<HeaderValue>,
    {
        let (Ok(name), value) = (name.try_into(), value.try_into()) else {
            return self.with_problem("invalid header name");
        };
        match value {
            Ok(value) => {
                self.parts.headers.append(name, value);
                self
            }
            Err(_) => {
                let problem = format!("the value of the header {name} holds a byte that no header can carry");
                self.with_problem(&problem)
            }
        }
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Body>) -> Request {
        self.parts.body = body.into();
        self
    }

    /// Sets the body to `value` as JSON, and the content type unless it is set.
    #[must_use]
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Request {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.body(bytes).content_type("application/json"),
            // Not the error itself: a Serialize implementation may put the value into it.
            Err(_) => self.with_problem("the value given to `json` cannot be written as JSON"),
        }
    }

    /// Sets the body to the pairs as an HTML form, and the content type unless it is set.
    #[must_use]
    pub fn form<N: AsRef<str>, V: AsRef<str>>(self, pairs: impl IntoIterator<Item = (N, V)>) -> Request {
        let mut form = String::new();
        for (name, value) in pairs {
            push_pair(&mut form, name.as_ref(), value.as_ref());
        }
        self.body(form).content_type("application/x-www-form-urlencoded")
    }

    fn content_type(mut self, value: &'static str) -> Request {
        self.parts.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(value));
        self
    }

    /// Counts the request against the limits of this endpoint. By default the client finds the endpoint by the path.
    #[must_use]
    pub fn endpoint(mut self, name: impl AsRef<str>) -> Request {
        self.parts.endpoint = Some(name.as_ref().into());
        self
    }

    /// States how many units the request takes of limits that count this kind of points: limits whose `unit` in the
    /// vendor's entry is `kind`. That is `points`, or a kind that the entry declares in `costs`, such as
    /// `input_tokens`. 0 counts as 1.
    ///
    /// The cost of a kind that is not stated comes from the endpoint's `costs`, or from the vendor's. The cost is taken
    /// when the request gets its permit, and corrected when the response states the actual cost, if the entry says
    /// where (`dialect.costs`). If none of the request's limits counts this kind, the cost is ignored, and the client
    /// says so once for each vendor: by a warning in the log and the event
    /// [`CostIgnored`](crate::events::EventKind::CostIgnored).
    ///
    /// ```
    /// use integration_client::Request;
    ///
    /// let request = Request::post("anthropic", "/v1/messages")
    ///     .cost("input_tokens", 1_800) // the client's own estimate
    ///     .cost("output_tokens", 1_024) // max_tokens
    ///     .json(&["…"]);
    /// # drop(request);
    /// ```
    #[must_use]
    pub fn cost(mut self, kind: impl AsRef<str>, units: u32) -> Request {
        let kind = CompactString::from(kind.as_ref());
        if !kind.is_empty() && kind.len() <= 128 {
            self.parts.costs.retain(|(own, _)| *own != kind);
            self.parts.costs.push((kind, units));
            return self;
        }
        self.with_problem("a kind of points is the `unit` of a limit, 1 to 128 bytes")
    }

    /// States how many bytes the bodies of the request and of its response have, for vendors with limits in bytes.
    /// Needed for a streamed body; a body in memory is counted by its actual size. If nothing states the response's
    /// size, the client expects the size of that vendor's recent responses.
    #[must_use]
    pub fn expect_bytes(mut self, request: u32, response: u32) -> Request {
        self.parts.notes.get_or_insert_default().bytes = Some((request, response));
        self
    }

    /// Sets the longest time from `send` to the end of the response body, waits and retries included. A request that
    /// cannot be tried again before then fails with [`ErrorKind::RetryLater`](crate::ErrorKind::RetryLater). The
    /// default is the client's [`default_deadline`](crate::IntegrationClientBuilder::default_deadline).
    #[doc(alias = "timeout")]
    #[must_use]
    pub fn deadline(mut self, total: Duration) -> Request {
        self.parts.deadline = Some(total);
        self
    }

    /// Sets the longest wait for the limits before the first attempt, counted from the moment at which the request asks
    /// for its permit: the time to read a credential does not count. Further attempts wait until the deadline. With
    /// zero the request is sent at once or not at all, and once, as with
    /// [`try_send`](crate::IntegrationClient::try_send).
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Request {
        self.parts.max_wait = Some(wait);
        self
    }

    /// Sets the longest time for one attempt, response body included. The default is the vendor's `attempt_timeout`.
    #[doc(alias = "timeout")]
    #[must_use]
    pub fn attempt_timeout(mut self, timeout: Duration) -> Request {
        self.parts.attempt_timeout = Some(timeout);
        self
    }

    /// Sets the [`traceparent`](https://www.w3.org/TR/trace-context/#traceparent-header) of the caller's span. The
    /// header is sent only to vendors whose entry says `propagate_trace`, because trace ids would tell other vendors
    /// about the caller's system.
    #[must_use]
    pub fn trace_parent(mut self, value: impl AsRef<str>) -> Request {
        match HeaderValue::from_str(value.as_ref()) {
            Ok(header) if is_trace_parent(value.as_ref()) => {
                self.parts.trace_parent = Some(header);
                self
            }
            _ => self.with_problem("the trace parent is not of the form 00-TRACE-PARENT-FLAGS"),
        }
    }

    /// Sets the idempotency key, by which the vendor recognizes a request that it has already seen. Retries and
    /// redrives of the request carry the same key. The vendor's entry (`[vendors.NAME.idempotency]`) states where the
    /// key goes and which requests carry one; such a request without a key gets one of 128 random bits. A request that
    /// is [accepted](crate::outbox::Outbox::enqueue) gets its key then, or never.
    ///
    /// If the vendor may have acted, the request is sent again with its key only while the vendor knows the key:
    /// [`keeps`](crate::config::Idempotency::keeps).
    ///
    /// A key that cannot be sent with this request is an error before the request is sent, unless the entry says
    /// `on_unsendable = "warn"`.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl AsRef<str>) -> Request {
        let key = key.as_ref();
        if key.is_empty() || key.len() > 255 || !key.bytes().all(|b| b.is_ascii_graphic()) {
            return self.with_problem("an idempotency key is 1 to 255 visible ASCII characters");
        }
        self.parts.notes.get_or_insert_default().idempotency_key = Some(key.into());
        self
    }

    /// Adds a note that is stored in the request's dead letter, if it becomes one. Notes are not sent, and are not
    /// redacted in the letter.
    #[must_use]
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Request {
        self.parts.notes.get_or_insert_default().metadata.insert(name.into(), value.into());
        self
    }

    /// Keeps the response, with these [headers](crate::dead_letter::KeptHeaders), in the store for as long as its
    /// receipt. For requests that are [enqueued](crate::outbox::Outbox::enqueue); `send` returns the response itself. A
    /// response that takes more than 16 MiB in the store is not kept, and a warning is logged: a body that is not text
    /// takes 4/3 of its size there.
    #[must_use]
    pub fn keep_response(mut self) -> Request {
        self.parts.notes.get_or_insert_default().keep_response = true;
        self
    }

    /// Has the outcome of the request written into the store's table of replies when its job ends, for senders in other
    /// processes. For requests that are accepted by [`enqueue`](crate::outbox::Outbox::enqueue), a batch or a message
    /// source; see [`Outbox::replies`](crate::outbox::Outbox::replies). The reply contains the request's
    /// [`metadata`](Self::metadata).
    #[must_use]
    pub fn reply(mut self) -> Request {
        self.parts.notes.get_or_insert_default().reply = true;
        self
    }

    /// As [`reply`](Self::reply), and names the queue, subject or topic for the reply. The name applies if replies are
    /// [delivered](crate::outbox::Outbox::deliver_replies) to a target that lets senders name one. It has 1 to 255
    /// characters and no control characters.
    #[must_use]
    pub fn reply_to(mut self, name: impl AsRef<str>) -> Request {
        let name = name.as_ref();
        if name.is_empty() || name.len() > 255 || name.contains(char::is_control) {
            return self
                .with_problem("the name of a place for replies is 1 to 255 characters without control characters");
        }
        let notes = self.parts.notes.get_or_insert_default();
        (notes.reply, notes.reply_to) = (true, Some(name.into()));
        self
    }

    /// Sets what to do after an exchange with an unknown outcome: the vendor may have acted, or not. Without this
    /// setting the vendor's policy decides.
    #[must_use]
    pub fn on_ambiguous(mut self, what: OnAmbiguous) -> Request {
        self.parts.on_ambiguous = Some(what);
        self
    }

    fn with_problem(mut self, problem: &str) -> Request {
        self.parts.problem.get_or_insert_with(|| problem.into());
        self
    }

    /// Sets the idempotency key that the request was accepted with.
    pub(crate) fn accepted_key(mut self, key: &str) -> Request {
        self.parts.notes.get_or_insert_default().key_was_accepted = true;
        self.idempotency_key(key)
    }

    /// States that the request was accepted without an idempotency key. None is made when it is sent.
    pub(crate) fn without_new_key(mut self) -> Request {
        self.parts.notes.get_or_insert_default().accepted_without_key = true;
        self
    }

    /// Names the headers in whose place each attempt carries a secret of the entry.
    pub(crate) fn replaced_headers(mut self, names: &[Box<str>]) -> Request {
        self.parts.notes.get_or_insert_default().replaced = names.to_vec();
        self
    }

    /// Adds an encoded pair to the query.
    pub(crate) fn push_query(&mut self, name: &str, value: &str) {
        push_pair(&mut self.parts.query, name, value);
    }
}

fn push_pair(query: &mut String, name: &str, value: &str) {
    if !query.is_empty() {
        query.push('&');
    }
    // Writing to a String cannot fail.
    let _ = write!(query, "{}={}", target::encode(name), target::encode(value));
}

/// Whether `text` has the form `00-TRACE-PARENT-FLAGS` with 32, 16 and 2 lower-case hex digits, and no id is all zeros.
fn is_trace_parent(text: &str) -> bool {
    let hex = |text: &str, len| text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut parts = text.split('-');
    let (Some(version), Some(trace), Some(parent), Some(flags), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let zero = |text: &str| text.bytes().all(|b| b == b'0');
    version == "00" && hex(trace, 32) && !zero(trace) && hex(parent, 16) && !zero(parent) && hex(flags, 2)
}

#[cfg(test)]
mod tests;
