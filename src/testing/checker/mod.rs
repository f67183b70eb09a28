//! Judges a log of arrivals by the definition of a limit, after the fact.
//!
//! The checker is written from the definitions alone: it sums over periods of time, while the simulated vendor keeps
//! counters and the engine keeps guards. It shares no code with either, so a mistake would have to be made twice to
//! stay hidden. Integers only.
//!
//! [`check`] finds where a log of admitted requests violates a limit; [`refused`] counts the requests of a log that the
//! vendor would have refused.
//!
//! ```
//! use integration_client::testing::checker::{Definition, Event, check, refused};
//!
//! let log = [Event::at(0), Event::at(999), Event::at(1_000)];
//! let limit = Definition::SlidingWindow { limit: 1, window_ns: 1_000, both_ends: false };
//! let report = check(&log, &limit);
//! assert_eq!((report.total, report.peak, report.violating), (3, 2, 2));
//! assert_eq!(report.violations[0].at_ns, 999);
//! assert_eq!(refused(&log, &limit), 1, "999 does not fit; without it, 1,000 does");
//! ```

mod definition;
mod gauge;

pub use definition::{Definition, Event};
use gauge::Gauge;

/// The most [`Violation`]s in a [`Report`]; further ones are only counted.
const LISTED: usize = 1_000;

/// A request that made the count exceed the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When the request arrived.
    pub at_ns: u64,
    /// The count with this request, rounded up to whole units.
    pub count: u64,
    /// The largest allowed count.
    pub limit: u64,
}

/// The result of [`check`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The first 1,000 requests that exceeded the limit, in order of arrival.
    pub violations: Vec<Violation>,
    /// The number of requests that exceeded the limit.
    pub violating: u64,
    /// The largest count, rounded up to whole units.
    pub peak: u64,
    /// The units in the log.
    pub total: u64,
}

impl Report {
    /// Whether the log complies with the limit.
    pub fn is_clean(&self) -> bool {
        self.violating == 0
    }
}

/// Finds where the log violates the limit, if all of its requests count. The order of the log does not matter, except
/// between requests of the same nanosecond.
pub fn check(log: &[Event], definition: &Definition) -> Report {
    let limit = definition.limit();
    let mut gauge = Gauge::new(definition);
    let mut report = Report::default();
    for event in in_order(log).iter() {
        let count = gauge.with(event);
        gauge.keep(event);
        report.total += u64::from(event.cost);
        report.peak = report.peak.max(count);
        if count > limit {
            report.violating += 1;
            if report.violations.len() < LISTED {
                report.violations.push(Violation { at_ns: event.at_ns, count, limit });
            }
        }
    }
    report
}

/// The number of requests in the log that a vendor with this limit refuses, if refused requests do not count.
///
/// Takes [`Event`]s or [`Arrival`](super::Arrival)s, whether or not they were admitted at the time. Leave out arrivals
/// that no limit decided on ([`Arrival::judged`](super::Arrival::judged)), but include those of other clients.
pub fn refused<'a, T: 'a>(log: impl IntoIterator<Item = &'a T>, definition: &Definition) -> u64
where
    Event: From<&'a T>,
{
    refused_with_penalty(log, definition, 0)
}

/// As [`refused`], for a vendor that blocks the caller for `penalty_ns` after a refusal. Every request during the block
/// is refused too, and prolongs the block by `penalty_ns`. A block includes its start but not its end. The log must be
/// that of one caller.
///
/// ```
/// use integration_client::testing::checker::{Definition, Event, refused_with_penalty};
///
/// let limit = Definition::SlidingWindow { limit: 1, window_ns: 10, both_ends: false };
/// let log = [0, 5, 104, 204, 305].map(Event::at);
/// // 5 is too early, and blocks until 105; 104 makes that 205, and 204 makes it 305.
/// assert_eq!(refused_with_penalty(&log, &limit, 100), 3);
/// ```
pub fn refused_with_penalty<'a, T: 'a>(
    log: impl IntoIterator<Item = &'a T>,
    definition: &Definition,
    penalty_ns: u64,
) -> u64
where
    Event: From<&'a T>,
{
    let limit = definition.limit();
    let mut gauge = Gauge::new(definition);
    let log: Vec<Event> = log.into_iter().map(Event::from).collect();
    let mut refused = 0;
    let mut blocked_until = 0;
    for event in in_order(&log).iter() {
        if event.at_ns < blocked_until {
            refused += 1;
            blocked_until = blocked_until.saturating_add(penalty_ns);
        } else if gauge.with(event) > limit {
            refused += 1;
            blocked_until = event.at_ns.saturating_add(penalty_ns);
        } else {
            gauge.keep(event);
        }
    }
    refused
}

/// The log by time of arrival: borrowed when it is already in order, as most logs are.
fn in_order(log: &[Event]) -> std::borrow::Cow<'_, [Event]> {
    if log.is_sorted_by_key(|event| event.at_ns) {
        return log.into();
    }
    let mut sorted = log.to_vec();
    sorted.sort_by_key(|event| event.at_ns);
    sorted.into()
}
