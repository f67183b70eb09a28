//! What a vendor's response says about its limits.
//!
//! [`Signals::read`] takes the headers of a response and says how long the vendor asks to wait, and what it has told
//! about each of its windows. It is pure and total: no clock, no runtime, no panic on any bytes, and time linear in
//! their length. A header that cannot be understood is no information, never a guess: the client then goes by the
//! limits that it was configured with.
//!
//! Read are, by their shape alone:
//! - `Retry-After` in seconds or as a date, and the names that vendors use in its place, in seconds or milliseconds
//! - `RateLimit` and `RateLimit-Policy` of the IETF drafts
//! - `RateLimit-Limit`, `-Remaining` and `-Reset`, and the same after `X-RateLimit`, `X-Rate-Limit` and `Rate-Limit`
//!
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use http::{HeaderMap, HeaderValue};
//! use integration_client::signals::Signals;
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("ratelimit", HeaderValue::from_static("\"minute\";r=40;t=5, \"daily\";r=0;t=7200"));
//! let signals = Signals::read(&headers, SystemTime::now());
//! assert_eq!(signals.retry_after(), None);
//! assert_eq!(signals.wait(), Some(Duration::from_secs(7200)));
//! ```

mod date;
mod moment;
mod number;
mod structured;
mod triple;
mod windows;

use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, HeaderName, RETRY_AFTER};

use moment::{MILLISECOND, Now, SECOND};
pub use windows::Window;
use windows::Windows;

/// Waits above are cut to this, and resets above it are not believed: the first are instructions, the second guesses.
/// Real instructions of 25 days exist.
const MAX_WAIT: Duration = Duration::from_secs(31 * 24 * 3600);

/// Headers that ask for a wait in milliseconds. They are the finer ones and go before those in seconds.
static MILLISECONDS: [HeaderName; 2] =
    [HeaderName::from_static("retry-after-ms"), HeaderName::from_static("x-ms-retry-after-ms")];

/// Headers that ask for a wait in seconds, or until a date or a moment since 1970.
static SECONDS: [HeaderName; 6] = [
    RETRY_AFTER,
    HeaderName::from_static("x-ratelimit-retryafter"),
    HeaderName::from_static("x-ratelimit-retry-after"),
    HeaderName::from_static("x-rate-limit-retry-after"),
    HeaderName::from_static("ratelimit-retry-after"),
    HeaderName::from_static("retryafter"),
];

/// What a response says about limits. Made by [`Signals::read`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    retry_after: Option<Duration>,
    windows: Windows,
}

impl Signals {
    /// Reads the headers of a response that came in at `received`, by the client's wall clock.
    ///
    /// Dates and moments since 1970 are measured from the response's own `Date` and `Age`, and from `received` where
    /// it has no `Date` that can be read. Never panics; a header that breaks the rules is as good as absent.
    pub fn read(headers: &HeaderMap, received: SystemTime) -> Signals {
        if !Signals::may_be_in(headers) {
            return Signals::default();
        }
        let now = Now::new(headers, received);
        let mut windows = Windows::default();
        let quotas = structured::read(headers, &now, &mut windows);
        for family in &triple::FAMILIES {
            family.read(headers, &now, &mut windows);
        }
        windows.bind(&quotas);
        Signals { retry_after: retry_after(headers, &now), windows }
    }

    /// Whether these headers are worth reading. Most responses say nothing, and all of them pass here.
    pub(crate) fn may_be_in(headers: &HeaderMap) -> bool {
        headers.keys().any(|name| may_speak_of_limits(name.as_str()))
    }

    /// How long the vendor asks to wait, in so many words: at most 31 days.
    ///
    /// A wait in whole seconds and a wait until a date are at least one second, also where the vendor wrote 0 or the
    /// date has passed; a wait in milliseconds or in fractions of a second is as the vendor wrote it, and may be zero.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The windows that the response describes, at most eight.
    pub fn windows(&self) -> &[Window] {
        self.windows.as_slice()
    }

    /// How long to wait after a response that refused: [`retry_after`](Self::retry_after), or else the latest reset
    /// among the windows with nothing remaining. At most 31 days, and zero if that reset has just passed.
    ///
    /// `None` if nothing of that kind was said. The reset of a window with something remaining does not count: then
    /// another limit has refused, one that the response does not describe.
    pub fn wait(&self) -> Option<Duration> {
        let exhausted = self.windows().iter().filter(|window| window.remaining == Some(0));
        self.retry_after.or_else(|| exhausted.filter_map(|window| window.reset_after).max())
    }

    /// The window with the smallest share left, of those that state their limit and what remains. Of several with the
    /// same share, the one that resets last.
    pub fn tightest(&self) -> Option<&Window> {
        self.windows.tightest()
    }

    /// Whether the response says nothing about limits.
    pub fn is_empty(&self) -> bool {
        self.retry_after.is_none() && self.windows().is_empty()
    }
}

/// Whether a header of this name may be one of those read here. Cheap, and right only in its "no".
fn may_speak_of_limits(name: &str) -> bool {
    ["rate", "retry", "x-rate", "x-ms-retry"].iter().any(|start| name.starts_with(start))
}

/// The largest of each kind; what was sent twice was perhaps added by a gateway. Zero milliseconds beside a wait in
/// seconds is a place that was filled.
fn retry_after(headers: &HeaderMap, now: &Now) -> Option<Duration> {
    let largest = |names: &[HeaderName], unit| {
        let values = names.iter().flat_map(|name| headers.get_all(name));
        values.filter_map(|value| moment::hint(value.as_bytes(), unit, now)).max()
    };
    let milliseconds = largest(&MILLISECONDS, MILLISECOND);
    milliseconds.filter(|wait| !wait.is_zero()).or_else(|| largest(&SECONDS, SECOND)).or(milliseconds)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
