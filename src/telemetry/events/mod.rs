//! The events inside a client, as a stream: dispatches, responses, refusals, pauses, dead letters.
//!
//! [`IntegrationClient::events`](crate::IntegrationClient::events) starts to listen. A listener that is too slow never
//! delays a request, but misses events, and learns [how many](EventKind::Missed). Without a listener an event costs one
//! read of memory. An exchange that the application makes itself, with a [`Permit`](crate::Permit), causes no events of
//! a request; if its response changes a limit, the event of that change has no `request_id`.
//!
//! ```
//! use integration_client::IntegrationClient;
//! use integration_client::events::EventKind;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let client = IntegrationClient::builder().build().await?;
//! let mut events = client.events();
//! client.config().reload().await?;
//! let event = events.next().await.expect("the client lives");
//! assert!(matches!(event.kind, EventKind::ConfigAccepted { version: 2, .. }));
//! # Ok::<(), integration_client::Error>(()) }).unwrap();
//! ```

mod feed;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::{Serialize, Serializer};

use crate::clock::millis;
use crate::dead_letter::Reason;
use crate::{Delivery, ErrorKind, Priority};

pub use self::feed::Events;
pub(crate) use self::feed::{CAPACITY, Feed};

/// An event: what happened, and to which request, tenant and vendor.
///
/// The JSON of an event is one flat object: these fields, `event` with the [name](EventKind::as_str) of what happened,
/// and the fields of that kind. Fields without a value are left out. Times are in whole milliseconds, in fields that
/// end in `_ms`.
///
/// ```
/// # use integration_client::IntegrationClient;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let client = IntegrationClient::builder().build().await?;
/// # let mut events = client.events();
/// # client.config().reload().await?;
/// # let event = events.next().await.expect("the client lives");
/// let line = serde_json::to_string(&event).unwrap();
/// assert_eq!(line, r#"{"event":"config_accepted","version":2,"added":0,"changed":0,"removed":0}"#);
/// # Ok::<(), integration_client::Error>(()) }).unwrap();
/// ```
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// The same number for all events of one send, counted from 1; also in
    /// [`Response::request_id`](crate::Response::request_id) and [`Error::request_id`](crate::Error::request_id).
    /// `None` where the event concerns no single request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
    /// The tenant; `None` where the event concerns no single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Arc<str>>,
    /// The vendor; `None` for client-wide events, and for requests whose URL matches no vendor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<Arc<str>>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The limit that an event is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct LimitOf {
    /// The name of the limit; `None` where it is unknown which limit the vendor meant, or where no limit is the cause:
    /// failures in a row, a pause by an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The scope of the limit: `tenant`, `endpoint`, `account` or `vendor`.
    pub scope: &'static str,
    /// The endpoint, where only requests to one endpoint are affected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Arc<str>>,
}

/// What happened.
///
/// A send that is not cancelled ends in exactly one `Completed` or `Failed`. *Attempts* count every try, also those
/// that could not connect.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// An attempt has got its permit, and its exchange starts now.
    #[non_exhaustive]
    Dispatched {
        /// The vendor's endpoint. For a request to no endpoint the template of its path, which begins with a slash and
        /// has `*` for segments that do not look like words.
        #[serde(skip_serializing_if = "Option::is_none")]
        endpoint: Option<Arc<str>>,
        /// The priority of the request.
        priority: Priority,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// How long this attempt waited for its permit.
        #[serde(rename = "waited_ms", serialize_with = "as_millis")]
        waited: Duration,
    },
    /// The caller has got the response, whatever its status. The body is still to be read.
    #[non_exhaustive]
    Completed {
        /// The status of the response.
        #[serde(serialize_with = "as_number")]
        status: StatusCode,
        /// The number of attempts.
        attempts: u32,
        /// The time from `send` to the response headers.
        #[serde(rename = "elapsed_ms", serialize_with = "as_millis")]
        elapsed: Duration,
    },
    /// The caller has got an error.
    #[non_exhaustive]
    Failed {
        /// The kind of the error.
        kind: ErrorKind,
        /// Whether the vendor may have acted on the request.
        delivery: Delivery,
        /// The number of attempts; 0 when none was made.
        attempts: u32,
        /// The time from `send` to the error.
        #[serde(rename = "elapsed_ms", serialize_with = "as_millis")]
        elapsed: Duration,
    },
    /// The vendor has little quota left: the lane's requests are spaced out.
    #[non_exhaustive]
    Throttled {
        /// The vendor's remaining quota, in percent of its limit.
        remaining_pct: u64,
        /// The time between two requests.
        #[serde(rename = "delay_ms", serialize_with = "as_millis")]
        delay: Duration,
        /// The limit.
        limit: LimitOf,
    },
    /// The vendor refused an attempt temporarily: with a 429, with a response that a [`Classifier`](crate::Classifier)
    /// counts as one, or by refusing the HTTP/2 stream.
    #[non_exhaustive]
    Refused {
        /// As in [`Dispatched`](EventKind::Dispatched).
        #[serde(skip_serializing_if = "Option::is_none")]
        endpoint: Option<Arc<str>>,
        /// The wait that the vendor announced; `None` where it announced none.
        #[serde(rename = "retry_after_ms", serialize_with = "as_some_millis", skip_serializing_if = "Option::is_none")]
        retry_after: Option<Duration>,
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// Requests that count against a limit are paused: the vendor refused one, announced that no quota is left, asked
    /// for a pause, or failed several times in a row. One event for each pause, even if several tenants share the limit
    /// or the pause is prolonged.
    #[non_exhaustive]
    Exhausted {
        /// The length of the pause, from now.
        #[serde(rename = "wait_ms", serialize_with = "as_millis")]
        wait: Duration,
        /// The paused limit.
        limit: LimitOf,
    },
    /// [An operator](crate::Tenants::pause) has paused the tenant.
    Paused,
    /// A pause is over: a request was accepted, an operator ended the pause, or no request was made for long after its
    /// end. One event for each [`Exhausted`](EventKind::Exhausted) and [`Paused`](EventKind::Paused).
    #[non_exhaustive]
    Recovered {
        /// The limit that was paused.
        limit: LimitOf,
    },
    /// The vendor accepts less than its configured limit: another client of the same key uses the rest, or the real
    /// limit is lower.
    #[non_exhaustive]
    Yielded {
        /// The units per window that the lane uses from now on.
        per_window: u64,
    },
    /// The vendor's responses announce another limit than its entry configures. At most one event a minute. A lower
    /// limit is applied at once. A higher one changes nothing until it is configured in the entry.
    #[non_exhaustive]
    LimitStated {
        /// The limit's name in the entry.
        limit: Arc<str>,
        /// The configured limit.
        configured: u64,
        /// The announced limit.
        stated: u64,
    },
    /// A request states a [cost](crate::Request::cost), but no limit that it counts in has its kind as the unit, so the
    /// cost is ignored. One event for each vendor.
    #[non_exhaustive]
    CostIgnored {
        /// The kind of points.
        kind: Arc<str>,
        /// The stated cost.
        cost: u32,
    },
    /// A request was given up and has become a dead letter.
    #[non_exhaustive]
    DeadLettered {
        /// The letter's id.
        id: Arc<str>,
        /// The number of attempts.
        attempts: u32,
        /// The reason.
        reason: Reason,
    },
    /// The circuit breaker of a host has opened, after several connections in a row failed, or has closed again.
    #[non_exhaustive]
    Breaker {
        /// The name of the host, with its port unless that is 443.
        host: Arc<str>,
        /// Whether the breaker is open. An open breaker lets one probe at a time through.
        open: bool,
    },
    /// A new configuration is in use.
    #[non_exhaustive]
    ConfigAccepted {
        /// The version of the new configuration.
        version: u64,
        /// The number of new tenants.
        added: usize,
        /// The number of changed tenants.
        changed: usize,
        /// The number of removed tenants.
        removed: usize,
    },
    /// A reload was refused; the configuration in use stays.
    #[non_exhaustive]
    ConfigRejected {
        /// What is wrong with the new configuration, with file, line and column where the error has them.
        reason: Arc<str>,
    },
    /// This listener was too slow: events were dropped before the next one.
    #[non_exhaustive]
    Missed {
        /// The number of dropped events.
        count: u64,
    },
}

impl EventKind {
    /// The name in snake case, as it stands in the JSON.
    pub const fn as_str(&self) -> &'static str {
        match self {
            EventKind::Dispatched { .. } => "dispatched",
            EventKind::Completed { .. } => "completed",
            EventKind::Failed { .. } => "failed",
            EventKind::Throttled { .. } => "throttled",
            EventKind::Refused { .. } => "refused",
            EventKind::Exhausted { .. } => "exhausted",
            EventKind::Paused => "paused",
            EventKind::Recovered { .. } => "recovered",
            EventKind::Yielded { .. } => "yielded",
            EventKind::LimitStated { .. } => "limit_stated",
            EventKind::CostIgnored { .. } => "cost_ignored",
            EventKind::DeadLettered { .. } => "dead_lettered",
            EventKind::Breaker { .. } => "breaker",
            EventKind::ConfigAccepted { .. } => "config_accepted",
            EventKind::ConfigRejected { .. } => "config_rejected",
            EventKind::Missed { .. } => "missed",
        }
    }
}

fn as_millis<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(millis(*time))
}

fn as_some_millis<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(millis).serialize(to)
}

fn as_number<S: Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

#[cfg(test)]
mod tests;
