//! Calls the library's reader of responses; the only file of the program that does.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use integration_client::config::Vendor;
use integration_client::signals::{self, Dialect, Rule, WaitFrom};

pub(super) use integration_client::signals::MAX_BODY as BODY_PREFIX;

/// What a response states about limits. Figures that it does not state are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// Whether the vendor refused the request because of its limits.
    pub(super) throttled: bool,
    /// Parts of a batch were refused; the vendor may have acted on the others.
    pub(super) refused_in_part: bool,
    pub(super) retry_after: Option<Duration>,
    /// The part of the response that states the wait, in words.
    pub(super) wait_from: Option<&'static str>,
    /// The wait that the vendor documents for a refusal that states none.
    pub(super) default_wait: Option<Duration>,
    pub(super) windows: Vec<Window>,
    /// The cost of the request in points.
    pub(super) cost: Option<f64>,
    /// The cost by kind of points, if the vendor's dialect says where responses state it.
    pub(super) costs: Vec<(String, f64)>,
    /// Whose limit refused the request (`endpoint`, `tenant`, `account` or `vendor`), if the response says so.
    pub(super) scope: Option<&'static str>,
    /// The rule that decided whether the response is a refusal, in words; `None` if no rule applied.
    pub(super) rule: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Window {
    pub(super) name: Option<String>,
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) used: Option<u64>,
    pub(super) reset_in: Option<Duration>,
    pub(super) window: Option<Duration>,
}

/// Reads a response of `vendor` that arrived at `now`. Without a vendor, headers are read by their shape alone.
pub(super) fn read(
    vendor: Option<&Vendor>,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: SystemTime,
) -> Reading {
    let by_shape = Dialect::default();
    let dialect = vendor.map_or(&by_shape, |vendor| &vendor.dialect);
    let signals = signals::read(dialect, status, headers, body, now);
    let windows = signals.windows.iter().map(|window| Window {
        name: window.name.as_ref().map(ToString::to_string),
        limit: window.limit,
        remaining: window.remaining,
        used: window.used,
        reset_in: window.reset_in,
        window: window.window,
    });
    let wait_from = signals.wait_from.map(|from| match from {
        WaitFrom::Header => "a header that states it",
        WaitFrom::Body => "the body",
        WaitFrom::Reset => "the reset of a window",
        WaitFrom::Default => "the vendor's documentation; the response states none",
        _ => "-",
    });
    Reading {
        throttled: signals.throttled,
        refused_in_part: signals.refused_in_part,
        retry_after: signals.retry_after,
        wait_from,
        default_wait: signals.default_wait,
        windows: windows.collect(),
        cost: signals.cost,
        costs: signals.costs.iter().map(|stated| (stated.kind.to_string(), stated.units)).collect(),
        scope: signals.scope.map(signals::Scope::as_str),
        rule: (signals.rule != Rule::Nothing).then(|| dialect.explain(signals.rule)),
    }
}
