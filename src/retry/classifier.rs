//! Lets the program decide what a response means, if its status alone does not.

use http::{HeaderMap, StatusCode};

/// Decides what a response means, for vendors whose statuses do not say it.
///
/// It is called for every response, before the body is read, and must be quick: the request waits for it.
///
/// Closures are classifiers:
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use integration_client::{Class, IntegrationClient};
///
/// // This vendor refuses with 403 when a limit is exceeded, and marks it in a header.
/// let builder = IntegrationClient::builder().classifier("acme-api", |status: StatusCode, headers: &HeaderMap| {
///     let spent = headers.get("x-ratelimit-remaining").is_some_and(|left| left == "0");
///     (status == StatusCode::FORBIDDEN && spent).then_some(Class::RateLimited)
/// });
/// # drop(builder);
/// ```
pub trait Classifier: Send + Sync + 'static {
    /// The meaning of the response; `None` to go by its status, as after a panic.
    fn classify(&self, status: StatusCode, headers: &HeaderMap) -> Option<Class>;
}

impl<F> Classifier for F
where
    F: Fn(StatusCode, &HeaderMap) -> Option<Class> + Send + Sync + 'static,
{
    fn classify(&self, status: StatusCode, headers: &HeaderMap) -> Option<Class> {
        self(status, headers)
    }
}

/// The meaning of a response, which takes precedence over its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The vendor acted. The caller gets the response.
    Success,
    /// The vendor refused because of a limit and did not act, like a 429.
    RateLimited,
    /// The vendor failed for now, like a 503. It may have acted.
    Transient,
    /// The vendor refused for good. The caller gets the response.
    Rejected,
}
