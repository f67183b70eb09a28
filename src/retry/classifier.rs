//! A user's word on what an answer means, where the status alone does not say it.

use http::{HeaderMap, StatusCode};

/// Says what an answer means, for vendors whose statuses do not.
///
/// It is asked about every answer before the body is read, and must be quick: it runs on the way of the request.
///
/// Closures are classifiers:
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use integration_client::{Class, IntegrationClient};
///
/// // This vendor answers 403 when too much was called, and says so in a header.
/// let builder = IntegrationClient::builder().classifier("acme-api", |status: StatusCode, headers: &HeaderMap| {
///     let spent = headers.get("x-ratelimit-remaining").is_some_and(|left| left == "0");
///     (status == StatusCode::FORBIDDEN && spent).then_some(Class::RateLimited)
/// });
/// # drop(builder);
/// ```
pub trait Classifier: Send + Sync + 'static {
    /// What the answer means; `None` where its status says it well enough.
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
