//! Settings for what follows a refusal or a failure: the waits, which requests may be sent again, and what is kept of
//! requests that were given up.

use std::time::Duration;

use super::names::names;

/// When and how often a request is retried: `[vendors.NAME.retry]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Exchanges on top of the first: 0 to 20; 5 by default. 0 turns retries off: every response and every failure
    /// is returned to the caller, and none becomes a dead letter, except with [`OnAmbiguous::Park`].
    pub max_retries: u32,
    /// The shortest wait before the first retry; 5 s by default. Each further wait is twice as long.
    pub first_wait: Duration,
    /// The longest wait that the library chooses itself; 120 s by default. It shortens no wait that the vendor states.
    pub longest_wait: Duration,
    /// The wait after a refusal that states none: it counts as if the vendor had stated this wait. A `wait` of the
    /// vendor's dialect precedes it. Without it, which is the default, the limit pauses for a quarter of its window,
    /// twice as long each time, and never longer than the request's own backoff, from
    /// [`first_wait`](RetryPolicy::first_wait) to [`longest_wait`](RetryPolicy::longest_wait).
    pub default_wait: Option<Duration>,
    /// How long the library retries a connection that fails, or a request that the vendor says it did not process; 5
    /// minutes where it is `None`, which is the default. These attempts do not count as retries, because the vendor did
    /// not act. A request that was [accepted](crate::outbox::Outbox::enqueue) waits for a connection for four days where
    /// it is `None`, unless the vendor may have acted on an earlier attempt and the request's method is not safe.
    pub max_age: Option<Duration>,
    /// The longest pause that a request waits for; 15 minutes by default. A longer pause ends the request with
    /// [`ErrorKind::RetryLater`](crate::ErrorKind::RetryLater).
    pub max_hold: Duration,
    /// The longest pause after a response that was no refusal (a `Retry-After` on a 200); an hour by default. After it
    /// a single request probes the limit. The vendor accepted the request, so a probe that is too early risks only a
    /// refusal, which says how long to wait. `max_pause` does not shorten a wait that a refusal states.
    pub max_pause: Duration,
    /// The longest time for which a refusal of one tenant's request pauses other tenants that share the limit; 15
    /// minutes by default. After it a single request probes the limit, and only the refusal of another tenant extends
    /// the pause. The tenant that was refused waits for as long as the vendor said.
    pub max_shared_pause: Duration,
    /// What becomes of a request when it is unknown whether the vendor acted on it.
    pub on_ambiguous: OnAmbiguous,
    /// Whether a 408, 425 or 503 with `Retry-After` means that this vendor did not act; false by default.
    pub unavailable_is_safe: bool,
    /// Whether HTTP/2's REFUSED_STREAM, and GOAWAY for the streams above the last one that it names, mean that this
    /// vendor did not act; true by default. Set it to false for a vendor that was seen to act on such a stream: the
    /// request is then treated as after a broken connection.
    pub unprocessed_is_safe: bool,
    /// The largest body, in bytes, that is kept for retries; 1 MiB by default.
    pub max_replay_bytes: u64,
}

impl RetryPolicy {
    /// [`max_age`](RetryPolicy::max_age), or its default of 5 minutes.
    pub(crate) fn age(&self) -> Duration {
        self.max_age.unwrap_or(Duration::from_secs(5 * 60))
    }
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            max_retries: 5,
            first_wait: Duration::from_secs(5),
            longest_wait: Duration::from_secs(120),
            default_wait: None,
            max_age: None,
            max_hold: Duration::from_secs(15 * 60),
            max_pause: Duration::from_secs(3600),
            max_shared_pause: Duration::from_secs(15 * 60),
            on_ambiguous: OnAmbiguous::default(),
            unavailable_is_safe: false,
            unprocessed_is_safe: true,
            max_replay_bytes: 1024 * 1024,
        }
    }
}

/// What becomes of a request that is not idempotent when it is unknown whether the vendor acted on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnAmbiguous {
    /// The request fails and is not sent again: the caller decides.
    #[default]
    Fail,
    /// The request fails in the same way and becomes a dead letter, so that an operator can decide later. This applies
    /// also if retries are off, because it is no retry.
    Park,
    /// The request is sent again. The vendor may act twice.
    Resend,
}

/// How requests slow down when few units of a vendor's limit remain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Throttle {
    /// By the usage of others. As long as the client's own count explains the usage that the vendor reports, requests
    /// are not slowed down, because that count already keeps below the limit. Usage beyond it is that of other clients:
    /// the client leaves them these units and spaces its requests out. The default, because of the four it uses most of
    /// a limit and is refused least.
    #[default]
    Adaptive,
    /// In steps: three quarters of the rate below 30 % of the limit, a half below 20 %, a quarter below 10 %.
    Bands,
    /// The remaining units are spread over the time until the vendor's reset.
    Pace,
    /// Requests do not slow down until no units remain.
    Off,
}

/// How much of a request and of the vendor's responses is kept when the request is given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keep {
    /// The request without what may be secret or personal, and the first 200 characters of each unsuccessful response,
    /// which usually give the reason, with its headers; but none of a 401, 403 or 407, which may repeat a part of a
    /// credential.
    #[default]
    Redacted,
    /// Like `Redacted`, but with only the status of a response.
    NoAnswer,
    /// The whole request, unless it brings a credential of its own in a header that is known for credentials
    /// (`Authorization`, `Cookie`, `x-api-key` and the like), up to 16 KiB of the response's body, and its headers. There,
    /// too, `***` replaces the tenant's secret.
    Whole,
}

/// The form in which the store keeps a vendor's accepted requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AtRest {
    /// Unencrypted.
    #[default]
    Plain,
    /// Encrypted with the [store's key](crate::store::Store::seal_key), as are the responses that are kept.
    Sealed,
    /// Unencrypted until the request ends; then neither the request nor a response is kept, and a dead letter cannot be
    /// sent again. This holds for a request that was accepted with this setting, whatever the entry says when it ends.
    /// An earlier version did not record the setting: requests that it accepted end as the entry says then.
    /// A database overwrites deleted data only when it needs the space: use `Sealed` for data that must not be found on
    /// a disk.
    Redacted,
}

names!(OnAmbiguous { Fail = "fail", Park = "park", Resend = "resend" });
names!(Throttle { Adaptive = "adaptive", Bands = "bands", Pace = "pace", Off = "off" });
names!(AtRest { Plain = "plain", Sealed = "sealed", Redacted = "redacted" });
names!(Keep { Redacted = "redacted", NoAnswer = "no_answer", Whole = "whole" });
