//! A user's word on what an answer means, where the status alone does not say it.

use http::{HeaderMap, StatusCode};

/// Says what an answer means, for vendors whose statuses do not.
///
/// It is asked about every answer before the body is read, and must be quick: it runs on the way of the request.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use integration_client::{Class, Classifier};
///
/// /// This vendor answers 403 when too much was called, and tells so in a header.
/// struct Forbidden;
///
/// impl Classifier for Forbidden {
///     fn classify(&self, status: StatusCode, headers: &HeaderMap) -> Option<Class> {
///         let spent = headers.get("x-ratelimit-remaining").is_some_and(|left| left == "0");
///         (status == StatusCode::FORBIDDEN && spent).then_some(Class::RateLimited)
///     }
/// }
///
/// let mut headers = HeaderMap::new();
/// assert_eq!(Forbidden.classify(StatusCode::FORBIDDEN, &headers), None, "a plain 403 is what its status says");
/// headers.insert("x-ratelimit-remaining", "0".parse().unwrap());
/// assert_eq!(Forbidden.classify(StatusCode::FORBIDDEN, &headers), Some(Class::RateLimited));
/// ```
pub trait Classifier: Send + Sync + 'static {
    /// What the answer means; `None` where its status says it well enough.
    fn classify(&self, status: StatusCode, headers: &HeaderMap) -> Option<Class>;
}

/// What an answer means, whatever its status is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The vendor acted: the answer goes to the caller.
    Success,
    /// The vendor refused because too much was called, and did not act: what a 429 says.
    RateLimited,
    /// The vendor failed, and may not fail the next time: what a 503 says. Whether it acted is not known.
    Transient,
    /// The vendor refused for good: the answer goes to the caller.
    Rejected,
}
