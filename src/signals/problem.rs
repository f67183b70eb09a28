//! Problem types of draft-ietf-httpapi-ratelimit-headers, in error bodies of the type `application/problem+json`.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

/// The address at which IANA registers problem types.
const REGISTRY: &str = "iana.org/assignments/http-problem-types#";

/// The problem types that say that a limit refused the request.
const TYPES: [&str; 3] = ["quota-exceeded", "temporary-reduced-capacity", "abnormal-usage-detected"];

/// The most names of policies that are read.
const MAX_POLICIES: usize = 16;

#[derive(Deserialize)]
struct Body {
    #[serde(rename = "type")]
    of: String,
    #[serde(default, rename = "violated-policies")]
    violated: Vec<String>,
}

/// A refusal, by its problem type.
pub(super) struct Problem {
    /// The name of the type in the registry.
    pub(super) name: &'static str,
    /// The names of the windows that the request exceeded.
    pub(super) violated: Vec<String>,
}

/// Whether the body of this response may hold a problem type.
#[inline]
pub(super) fn may_be_in(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_error = status.is_client_error() || status.is_server_error();
    is_error
        && headers.get(CONTENT_TYPE).is_some_and(|of| {
            let of = of.as_bytes().split(|b| *b == b';').next().unwrap_or_default();
            of.trim_ascii().eq_ignore_ascii_case(b"application/problem+json")
        })
}

/// The problem type of a refusal, if the body states one.
pub(super) fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<Problem> {
    if !may_be_in(status, headers) {
        return None;
    }
    let body: Body = serde_json::from_slice(body).ok()?;
    let of = body.of.strip_prefix("https://").or_else(|| body.of.strip_prefix("http://"))?;
    let of = of.strip_prefix("www.").unwrap_or(of).strip_prefix(REGISTRY)?;
    let name = TYPES.into_iter().find(|name| *name == of)?;
    Some(Problem { name, violated: body.violated.into_iter().take(MAX_POLICIES).collect() })
}
