//! What follows a refusal or a failure: the waits, what may be sent again, and what is kept of requests given up on.

use std::time::Duration;

use super::names::names;

/// When and how often a request is tried again: `[vendors.NAME.retry]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Exchanges on top of the first: 0 to 20; 5 by default. 0 turns retries off: every answer and every failure
    /// is the caller's, and none becomes a dead letter, but for [`OnAmbiguous::Park`].
    pub max_retries: u32,
    /// The shortest wait before the first retry; 5 s by default. Each further wait is twice as long.
    pub first_wait: Duration,
    /// The longest wait of the library's own making; 120 s by default. It shortens no wait that the vendor states.
    pub longest_wait: Duration,
    /// The wait after a refusal that states none: it counts as if the vendor had stated this one. Without it, which is the
    /// default, the lane tries a part of the limit's window first and learns from what follows, and no wait is longer than
    /// the one drawn from [`first_wait`](RetryPolicy::first_wait) and [`longest_wait`](RetryPolicy::longest_wait).
    pub default_wait: Option<Duration>,
    /// How long a connection is tried again that cannot be made, and a request that the vendor says it did not process; 5
    /// minutes by default. These tries do not count as retries: the vendor did not act.
    pub max_age: Duration,
    /// A pause longer than this is handed back to the caller instead of being waited for; 15 minutes by default.
    pub max_hold: Duration,
    /// The longest pause that follows an answer which was no refusal (a `Retry-After` on a 200); an hour by default. After it
    /// one request goes alone and finds out. The vendor took the request, so what an early one risks is a refusal,
    /// which says how long to wait. The wait that a refusal states is not shortened by it.
    pub max_pause: Duration,
    /// The longest that a refusal of one tenant's request stops other tenants who share the limit; 15 minutes by default.
    /// After it one request finds out, and a longer pause needs the refusal of another tenant. The tenant that was refused
    /// waits as long as it was told.
    pub max_shared_pause: Duration,
    /// What becomes of a request when it is unknown whether the vendor acted on it.
    pub on_ambiguous: OnAmbiguous,
    /// A 408, 425 or 503 with `Retry-After` from this vendor means that it did not act; false by default.
    pub unavailable_is_safe: bool,
    /// HTTP/2's REFUSED_STREAM, and GOAWAY for the streams above the last one that it names, mean that this vendor did not
    /// act; true by default. Set it to false for a vendor that was seen to act on such a stream: what becomes of the request
    /// is then decided as after a connection that broke.
    pub unprocessed_is_safe: bool,
    /// A body of more bytes is not kept for retries; 1 MiB by default.
    pub max_replay_bytes: u64,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            max_retries: 5,
            first_wait: Duration::from_secs(5),
            longest_wait: Duration::from_secs(120),
            default_wait: None,
            max_age: Duration::from_secs(5 * 60),
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
    /// It fails, and is not sent again: the caller decides.
    #[default]
    Fail,
    /// It fails in the same way, and becomes a dead letter, so that an operator can look and decide later. Also where
    /// retries are off: this is none.
    Park,
    /// It is sent again. The vendor may act twice.
    Resend,
}

/// How requests slow down when little of a vendor's limit is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Throttle {
    /// By what others take: as long as the client's own count explains what the vendor says is used, nothing is slowed
    /// down, for the client's own count keeps below the limit. What it does not explain, others take: it is left to them,
    /// and requests are spaced out. The default: of the four it uses most of a limit and is refused least.
    #[default]
    Adaptive,
    /// In steps: three quarters of the rate below 30 % of the limit, a half below 20 %, a quarter below 10 %.
    Bands,
    /// What is left is spread over the time until the vendor's reset.
    Pace,
    /// They do not, until nothing is left.
    Off,
}

/// How much of a request, and of what the vendor answered, is kept once it is given up on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keep {
    /// Without what may be secret or personal; of each answer that gave no success the first 200 characters, which usually say
    /// why. Not of a 401, 403 or 407, which may repeat a credential.
    #[default]
    Redacted,
    /// Like `Redacted`, but keeps only the status of a response.
    NoAnswer,
    /// As it was, and up to 16 KiB of the answer.
    Whole,
}

/// In which form the accepted requests of a vendor stand in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AtRest {
    /// As they were given.
    #[default]
    Plain,
    /// Encrypted with the [store's key](crate::store::Store::seal_key), and so are the answers that are kept.
    Sealed,
    /// As they were given until they have ended; then no request and no answer is kept, and a dead letter cannot be sent again.
    /// A database overwrites what it has deleted when it needs the room: seal what must not be found on a disk.
    Redacted,
}

names!(OnAmbiguous { Fail = "fail", Park = "park", Resend = "resend" });
names!(Throttle { Adaptive = "adaptive", Bands = "bands", Pace = "pace", Off = "off" });
names!(AtRest { Plain = "plain", Sealed = "sealed", Redacted = "redacted" });
names!(Keep { Redacted = "redacted", NoAnswer = "no_answer", Whole = "whole" });
