//! What happens inside a client, as a stream: dispatches, answers, refusals, pauses, dead letters.
//!
//! [`IntegrationClient::events`](crate::IntegrationClient::events) begins to listen. A listener that is too slow is told how many
//! events it has [missed](EventKind::Missed); it never holds up a request. While nobody listens an event costs one read of
//! memory. Exchanges that are made by other means, with a [`Permit`](crate::Permit), are not spoken of.
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

/// Something that happened, and to whom.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Event {
    /// One number for all events of one send, from 1 up; [`Response::request_id`](crate::Response::request_id) and
    /// [`Error::request_id`](crate::Error::request_id) are the same. None where it concerns no single request.
    pub request_id: Option<u64>,
    /// On whose behalf; none where it concerns no single tenant.
    pub tenant: Option<Arc<str>>,
    /// At which vendor; none where it concerns no single one, or a request names a URL of none.
    pub vendor: Option<Arc<str>>,
    /// What happened.
    pub kind: EventKind,
}

/// Of which limit an event tells.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LimitOf {
    /// Its name; none where it is not known which limit was meant, or where it is none: failures in a row, an operator's
    /// pause.
    pub name: Option<Arc<str>>,
    /// Whose it is: `tenant`, `endpoint`, `account` or `vendor`.
    pub scope: &'static str,
    /// Requests to this endpoint alone are concerned.
    pub endpoint: Option<Arc<str>>,
}

/// What happened.
///
/// A send that is not cancelled ends in exactly one `Completed` or `Failed`. *Attempts* count every try, those included
/// that could not connect.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// An attempt has its permit and leaves now.
    #[non_exhaustive]
    Dispatched {
        /// The vendor's endpoint, or the template of the path where it belongs to none: it begins with a slash, and segments that
        /// do not look like words are `*`.
        endpoint: Option<Arc<str>>,
        /// Its tier.
        priority: Priority,
        /// 1 for the first.
        attempt: u32,
        /// How long this attempt waited for its permit.
        waited: Duration,
    },
    /// An answer was handed to the caller, whatever its status. Its body is still to be read.
    #[non_exhaustive]
    Completed {
        /// The answer's status.
        status: StatusCode,
        /// How many it took.
        attempts: u32,
        /// From `send` to the answer's headers.
        elapsed: Duration,
    },
    /// The caller was told an error.
    #[non_exhaustive]
    Failed {
        /// What failed.
        kind: ErrorKind,
        /// Whether the vendor may have acted.
        delivery: Delivery,
        /// How many were made; 0 when none left.
        attempts: u32,
        /// From `send` to the error.
        elapsed: Duration,
    },
    /// The vendor has little left: the lane's requests are spaced out.
    #[non_exhaustive]
    Throttled {
        /// What the vendor says is left, in percent of its limit.
        remaining_pct: u64,
        /// Between two requests.
        delay: Duration,
        /// Of which limit.
        limit: LimitOf,
    },
    /// The vendor refused an attempt for now: a 429, what a [`Classifier`](crate::Classifier) takes for one, or a refused HTTP/2
    /// stream.
    #[non_exhaustive]
    Refused {
        /// As in [`Dispatched`](EventKind::Dispatched).
        endpoint: Option<Arc<str>>,
        /// The wait that it stated; none where it stated none.
        retry_after: Option<Duration>,
        /// 1 for the first.
        attempt: u32,
    },
    /// Nothing that counts in a limit goes for a while: the vendor refused, said that nothing is left, asked to be left alone,
    /// or failed several times in a row. Said once for each pause, whoever shares the limit and however often it is prolonged.
    #[non_exhaustive]
    Exhausted {
        /// From now.
        wait: Duration,
        /// What stands.
        limit: LimitOf,
    },
    /// [An operator](crate::Tenants::pause) lets nothing of the tenant go.
    Paused,
    /// Such a pause is over: a request passed, an operator ended it, or nobody sent anything for long after it. Said once for
    /// each [`Exhausted`](EventKind::Exhausted) and [`Paused`](EventKind::Paused).
    #[non_exhaustive]
    Recovered {
        /// What stood.
        limit: LimitOf,
    },
    /// The vendor takes less than its limit: another application uses the key, or the limit is another.
    #[non_exhaustive]
    Yielded {
        /// Units per window that the lane now keeps to.
        per_window: u64,
    },
    /// The vendor's answers state another limit than its entry does; said once a minute at most. A lower one is kept to
    /// at once. A higher one changes nothing: put it into the entry.
    #[non_exhaustive]
    LimitStated {
        /// The limit's name in the entry.
        limit: Arc<str>,
        /// As the entry has it.
        configured: u64,
        /// As the vendor says.
        stated: u64,
    },
    /// A request was given up on.
    #[non_exhaustive]
    DeadLettered {
        /// The letter's id.
        id: Arc<str>,
        /// How many were made.
        attempts: u32,
        /// Why.
        reason: Reason,
    },
    /// A host could not be connected to several times in a row and is left alone, or can be connected to again.
    #[non_exhaustive]
    Breaker {
        /// Its name, without a port.
        host: Arc<str>,
        /// Left alone, but for one probe at a time.
        open: bool,
    },
    /// A reload was taken over.
    #[non_exhaustive]
    ConfigAccepted {
        /// Of the configuration now in use.
        version: u64,
        /// Tenants that were not there before.
        added: usize,
        /// Tenants that differ now.
        changed: usize,
        /// Tenants that are gone.
        removed: usize,
    },
    /// A reload was refused; the configuration in use stays.
    #[non_exhaustive]
    ConfigRejected {
        /// What is wrong with it, with file, line and column where it has them.
        reason: Arc<str>,
    },
    /// This listener was too slow: these many events were dropped before the next one.
    #[non_exhaustive]
    Missed {
        /// How many.
        count: u64,
    },
}
