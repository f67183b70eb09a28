//! Reads a request: accessors of its parts, a copy, and its text in logs.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use compact_str::CompactString;
use http::Method;
use http::header::{HeaderMap, HeaderName};
use url::Url;

use super::{Parts, Request, Target};
use crate::error::{Error, ErrorKind};
use crate::transport::target;

impl Request {
    /// Returns a copy of the request, which shares the body; `None` if the body is a stream.
    ///
    /// ```
    /// use integration_client::Request;
    ///
    /// let order = Request::post("parcels", "/labels").json(&[17]);
    /// let again = order.try_clone().expect("its body is in memory");
    /// assert_eq!((again.method().as_str(), again.vendor(), again.path()), ("POST", Some("parcels"), "/labels"));
    /// ```
    pub fn try_clone(&self) -> Option<Request> {
        let parts = &*self.parts;
        let parts = Parts {
            method: parts.method.clone(),
            target: parts.target.clone(),
            query: parts.query.clone(),
            headers: parts.headers.clone(),
            body: parts.body.try_clone()?,
            endpoint: parts.endpoint.clone(),
            costs: parts.costs.clone(),
            deadline: parts.deadline,
            max_wait: parts.max_wait,
            attempt_timeout: parts.attempt_timeout,
            trace_parent: parts.trace_parent.clone(),
            on_ambiguous: parts.on_ambiguous,
            notes: parts.notes.clone(),
            begun: parts.begun.clone(),
            problem: parts.problem.clone(),
        };
        Some(Request { parts: Box::new(parts) })
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.parts.method
    }

    /// The vendor that the request names. `None` for a request made from a URL: the client finds its vendor when it
    /// sends the request.
    pub fn vendor(&self) -> Option<&str> {
        match &self.parts.target {
            Target::Path { vendor, .. } => Some(vendor),
            Target::Url(_) => None,
        }
    }

    /// The path without the query. If the request names a vendor, the path is relative to the vendor's base URL.
    pub fn path(&self) -> &str {
        match &self.parts.target {
            Target::Path { path, .. } => path.split_once('?').map_or(path, |(path, _)| path),
            Target::Url(url) => url.path(),
        }
    }

    /// The headers that were set. The credential and the vendor's own headers are added when the request is sent.
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The time for the whole request, if [`deadline`](Request::deadline) has set it.
    pub fn stated_deadline(&self) -> Option<Duration> {
        self.parts.deadline
    }

    /// The body's content, unless it is a stream.
    pub fn body_bytes(&self) -> Option<&Bytes> {
        self.parts.body.bytes()
    }

    /// A copy of the vendor's name, for errors that are made after the request itself is gone.
    pub(crate) fn vendor_name(&self) -> Option<CompactString> {
        match &self.parts.target {
            Target::Path { vendor, .. } => Some(vendor.clone()),
            Target::Url(_) => None,
        }
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        self.parts.problem.as_deref()
    }

    /// Returns the path below `base`, without the query. Endpoints are matched against this path.
    pub(crate) fn path_below(&self, base: &Url) -> Result<&str, Error> {
        let target = match &self.parts.target {
            Target::Path { path, .. } => path,
            Target::Url(url) => target::relative(base, url)
                .map_err(|why: Cow<'_, str>| Error::not_sent(ErrorKind::InvalidRequest, why.into_owned()))?,
        };
        Ok(target.split_once('?').map_or(target, |(path, _)| path))
    }
}

impl fmt::Debug for Request {
    /// Shows header names without values, the path without the query, and the body's size without content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Request");
        out.field("method", &self.parts.method);
        match &self.parts.target {
            Target::Path { vendor, path } => {
                let path = path.split_once(['?', '#']).map_or(path.as_str(), |(path, _)| path);
                out.field("vendor", vendor).field("path", &path);
            }
            Target::Url(url) => {
                out.field("host", &url.host_str().unwrap_or_default()).field("path", &url.path());
            }
        }
        let names: Vec<&str> = self.parts.headers.keys().map(HeaderName::as_str).collect();
        out.field("headers", &names).field("body", &self.parts.body).finish_non_exhaustive()
    }
}
