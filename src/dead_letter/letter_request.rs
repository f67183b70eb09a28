//! The request of a dead letter: an outline that is safe to show, or everything that is needed to send it again.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::request::Request;

/// As much of a request as its dead letter keeps.
///
/// Neither form holds the tenant's credential, which is added to each attempt later. Of a request that brings a
/// credential of its own, in a header that is known for credentials (`Authorization`, `Cookie`, `x-api-key` and the
/// like), the client keeps an outline. The path is relative to the vendor's base URL.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LetterRequest {
    /// An outline: no header, no query, no body.
    Redacted {
        /// The method.
        method: String,
        /// The path, without the query.
        path: String,
        /// The size of the body, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body_bytes: Option<u64>,
    },
    /// The whole request, as the caller gave it. Headers that the vendor's entry adds to every request are left out.
    Whole {
        /// The method.
        method: String,
        /// The path, query included.
        path: String,
        /// Names and values, in the order in which they are sent.
        #[serde(default)]
        headers: Vec<(String, Content)>,
        /// The body.
        #[serde(default)]
        body: Content,
    },
}

impl LetterRequest {
    /// An outline of a request for `path`, whose query is left out.
    pub fn outline(method: &Method, path: &str, body_bytes: Option<u64>) -> LetterRequest {
        LetterRequest::Redacted { method: method.to_string(), path: without_query(path).to_owned(), body_bytes }
    }

    /// A whole request for `path`, which may have a query.
    pub fn whole(
        method: &Method,
        path: impl Into<String>,
        headers: &HeaderMap,
        body: impl Into<Content>,
    ) -> LetterRequest {
        let content = |value: &http::HeaderValue| Content::from(Bytes::copy_from_slice(value.as_bytes()));
        LetterRequest::Whole {
            method: method.to_string(),
            path: path.into(),
            headers: headers.iter().map(|(name, value)| (name.to_string(), content(value))).collect(),
            body: body.into(),
        }
    }

    /// Builds the request to `vendor` from a letter or a row that keeps it whole. `None` for an outline, and for an
    /// invalid method.
    pub(crate) fn request(&self, vendor: &str) -> Option<Request> {
        let LetterRequest::Whole { method, path, headers, body } = self else { return None };
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        let request = Request::new(method, vendor, path.as_str()).body(body.as_bytes().clone());
        let add = |request: Request, (name, value): &(String, Content)| {
            request.header(name.as_str(), value.as_bytes().as_ref())
        };
        Some(headers.iter().fold(request, add))
    }

    /// The outline of the request: method, path and size.
    #[must_use]
    pub fn redacted(&self) -> LetterRequest {
        let (method, path, body_bytes) = match self {
            LetterRequest::Redacted { method, path, body_bytes } => (method, path, *body_bytes),
            LetterRequest::Whole { method, path, body, .. } => (method, path, Some(body.len() as u64)),
        };
        // An outline that a caller built may have a query.
        LetterRequest::Redacted { method: method.clone(), path: without_query(path).to_owned(), body_bytes }
    }

    /// The path, which may have a query.
    pub(crate) fn path(&self) -> &str {
        match self {
            LetterRequest::Redacted { path, .. } | LetterRequest::Whole { path, .. } => path,
        }
    }

    /// The approximate number of bytes on the heap.
    pub(super) fn weight(&self) -> usize {
        match self {
            LetterRequest::Redacted { method, path, .. } => method.len() + path.len(),
            LetterRequest::Whole { method, path, headers, body } => {
                let pair =
                    |(name, value): &(String, Content)| name.len() + value.len() + size_of::<(String, Content)>();
                method.len() + path.len() + body.len() + headers.iter().map(pair).sum::<usize>()
            }
        }
    }
}

fn without_query(path: &str) -> &str {
    path.split_once(['?', '#']).map_or(path, |(path, _)| path)
}

impl fmt::Debug for LetterRequest {
    /// Shows header names without values, the path without its query, and the body's size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LetterRequest::Redacted { method, path, body_bytes } => f
                .debug_struct("Redacted")
                .field("method", method)
                .field("path", &without_query(path))
                .field("body_bytes", body_bytes)
                .finish(),
            LetterRequest::Whole { method, path, headers, body } => f
                .debug_struct("Whole")
                .field("method", method)
                .field("path", &without_query(path))
                .field("headers", &headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
                .field("body", body)
                .finish(),
        }
    }
}

/// The bytes of a body or of a header value.
///
/// Their JSON is a string where they are UTF-8, so that people and tools can read it; otherwise an object `{"base64":
/// "…"}`. Their `Debug` shows only their number.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Content(Bytes);

impl Content {
    /// The bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Into<Bytes>> From<T> for Content {
    fn from(bytes: T) -> Content {
        Content(bytes.into())
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The JSON form of bytes that are not UTF-8.
#[derive(Serialize, Deserialize)]
struct Encoded {
    base64: String,
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Encoded { base64: BASE64.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Encoded(Encoded),
        }
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(Content(text.into())),
            // The decoder's own message would quote the input.
            Form::Encoded(Encoded { base64 }) => match BASE64.decode(base64) {
                Ok(bytes) => Ok(Content(bytes.into())),
                Err(_) => Err(D::Error::custom("not base64")),
            },
        }
    }
}
