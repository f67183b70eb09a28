//! The events inside a client, as a stream: dispatches, answers, refusals, pauses, dead letters.
//!
//! [`IntegrationClient::events`](crate::IntegrationClient::events) starts to listen. A listener that is too slow learns
//! how many events it has [missed](EventKind::Missed); it never delays a request. Without a listener an event costs one
//! read of memory. Exchanges that the application makes itself, with a [`Permit`](crate::Permit), cause no events.
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

use crate::dead_letter::Reason;
use crate::{Delivery, ErrorKind, Priority};

pub use self::feed::Events;
pub(crate) use self::feed::{CAPACITY, Feed};

/// An event: what happened, and to which request, tenant and vendor.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The same number for all events of one send, counted from 1; also in
    /// [`Response::request_id`](crate::Response::request_id) and [`Error::request_id`](crate::Error::request_id).
    /// `None` where the event concerns no single request.
    pub request_id: Option<u64>,
    /// The tenant; `None` where the event concerns no single one.
    pub tenant: Option<Arc<str>>,
    /// The vendor; `None` for client-wide events, and for requests whose URL matches no vendor.
    pub vendor: Option<Arc<str>>,
    /// What happened.
    pub kind: EventKind,
}

/// The limit that an event is about.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LimitOf {
    /// The name of the limit; `None` where it is unknown which limit the vendor meant, or where no limit is the cause:
    /// failures in a row, a pause by an operator.
    pub name: Option<Arc<str>>,
    /// The scope of the limit: `tenant`, `endpoint`, `account` or `vendor`.
    pub scope: &'static str,
    /// The endpoint, where only requests to one endpoint are affected.
    pub endpoint: Option<Arc<str>>,
}

/// What happened.
///
/// A send that is not cancelled ends in exactly one `Completed` or `Failed`. *Attempts* count every try, also those
/// that could not connect.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// An attempt has its permit, and its exchange starts now.
    #[non_exhaustive]
    Dispatched {
        /// The vendor's endpoint. For a request to no endpoint the template of its path, which begins with a slash and
        /// has `*` for segments that do not look like words.
        endpoint: Option<Arc<str>>,
        /// The priority of the request.
        priority: Priority,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// How long this attempt waited for its permit.
        waited: Duration,
    },
    /// The caller has got the answer, whatever its status. The body is still to be read.
    #[non_exhaustive]
    Completed {
        /// The answer's status.
        status: StatusCode,
        /// The number of attempts.
        attempts: u32,
        /// The time from `send` to the answer's headers.
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
        elapsed: Duration,
    },
    /// The vendor has little quota left: the lane's requests are spaced out.
    #[non_exhaustive]
    Throttled {
        /// The vendor's remaining quota, in percent of its limit.
        remaining_pct: u64,
        /// The time between two requests.
        delay: Duration,
        /// The limit.
        limit: LimitOf,
    },
    /// The vendor refused an attempt temporarily: with a 429, with an answer that a [`Classifier`](crate::Classifier)
    /// counts as one, or by refusing the HTTP/2 stream.
    #[non_exhaustive]
    Refused {
        /// As in [`Dispatched`](EventKind::Dispatched).
        endpoint: Option<Arc<str>>,
        /// The wait that the vendor announced; `None` where it announced none.
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
    /// The vendor's answers announce another limit than its entry configures. At most one event a minute. A lower limit
    /// is applied at once. A higher one changes nothing until it is configured in the entry.
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
    /// A request was given up, and is a dead letter.
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
        /// The name of the host, without its port.
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
