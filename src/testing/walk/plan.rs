//! The requests of a case, and the times of its events.

use std::time::Duration;

use super::announce::{self, Shown, Truth};
use super::case::{Case, rate};
use crate::clock::nanos;
use crate::config::{LimitKind, Scope};
use crate::signals;
use crate::testing::Call;

/// The mean latency of a request, and of its answer.
pub(super) const WAY: u64 = 7_500_000;

const SECOND: u64 = 1_000_000_000;
/// The vendor's service time if the walked limit is a rate, in nanoseconds.
const QUICK: u64 = 10_000_000;
/// The vendor's service time if the walked limit is one of concurrency; long, so that full load takes fewer than a
/// million requests.
const SLOW: u64 = 900_000_000;
/// The most accounts that are simulated.
const MAX_ACCOUNTS: u64 = 12;
/// The smallest limit of which another user takes half: half of one request a second cannot be taken.
pub(super) const LEAST_SHARED: u32 = 10;
/// The most classes of one tenant.
const MAX_ENDPOINTS: usize = 4;

/// The number of spans of a case: three without another user, with the accident in the second; three with another user;
/// and two without.
pub(super) const SPANS: usize = 8;

/// The requests of one tenant to one endpoint.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) call: Call,
    /// The index of the endpoint in the entry.
    pub(super) endpoint: Option<usize>,
    /// Whether the class always has more to send. Otherwise it sends single requests, which check that nothing holds
    /// the tenant up.
    pub(super) saturates: bool,
    /// The time between two single requests, in nanoseconds, long enough that the class's own limits always admit them.
    pub(super) gap_ns: u64,
}

/// The times of a case, in nanoseconds since its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    pub(super) accident_at: u64,
    /// How long the accident asks to wait, if its form can announce a wait.
    pub(super) asks_ns: u64,
    /// The longest pause that the accident may cause.
    pub(super) pause_ns: u64,
    pub(super) other_from: u64,
    pub(super) other_until: u64,
    /// The time between two calls of the other user; 0 for no other user.
    pub(super) other_every: u64,
    pub(super) ends: u64,
    pub(super) service_ns: u64,
    /// The time of one unit of the walked limit.
    pub(super) unit_ns: u64,
    /// Requests of each class and tier that wait or are in flight.
    pub(super) copies: usize,
}

/// The rate of a limit at the share that is used, in units per nanosecond.
pub(super) fn used_rate(kind: &LimitKind, service_ns: u64) -> f64 {
    match kind {
        LimitKind::Rate(rate) => rate.safety * f64::from(rate.limit) / nanos(rate.window).max(1) as f64,
        LimitKind::Concurrency { limit } => f64::from(*limit) / (service_ns + 2 * WAY) as f64,
    }
}

/// The tenants and their requests. Two tenants share the first account; each other account has one.
pub(super) fn classes(case: &Case) -> Vec<Class> {
    let vendor = &case.vendor;
    let cost =
        |endpoint: Option<usize>| endpoint.map_or(1, |at| vendor.endpoints[at].costs.get(signals::POINTS).unwrap_or(1));
    let plain = vendor.match_endpoint("GET", "/walk").map(|(at, _)| at);
    let mut endpoints = vec![plain];
    endpoints.extend((0..vendor.endpoints.len()).map(Some).filter(|endpoint| *endpoint != plain));
    let walked = case.of.and_then(|(endpoint, _)| endpoint);
    if walked.is_some() {
        // Keeps the walked endpoint, as the first, and one other.
        endpoints.retain(|endpoint| *endpoint != walked);
        endpoints.insert(0, walked);
        endpoints.truncate(2);
    }
    endpoints.truncate(MAX_ENDPOINTS);
    let accounts = accounts(case);
    let tenants = std::iter::once((0, 0)).chain((0..accounts).map(|account| (account + 1, account)));
    let gap_ns = |endpoint: Option<usize>| {
        let holds = case.limits().filter(|(of, _)| of.is_none() || *of == endpoint);
        let slowest = holds.map(|(_, limit)| used_rate(&limit.kind, QUICK)).fold(f64::INFINITY, f64::min);
        (2.0 * f64::from(cost(endpoint)) / slowest) as u64
    };
    let class = |(tenant, account): (u32, u32), endpoint: Option<usize>, saturates: bool| {
        let number = endpoint.map_or(0, |at| at as u32 + 1);
        let call = Call { tenant, account, endpoint: number, cost: cost(endpoint) };
        // Without a limit nothing would bound the number of requests.
        let saturates = saturates && case.of.is_some();
        Class { call, endpoint, saturates, gap_ns: gap_ns(endpoint) }
    };
    let is_walked = |endpoint: Option<usize>| walked.is_none() || endpoint == walked;
    let of_one = |tenant| endpoints.iter().map(move |endpoint| class(tenant, *endpoint, is_walked(*endpoint)));
    let mut classes: Vec<Class> = tenants.flat_map(of_one).collect();
    // Adds an account that always has room in its limits.
    if case.limit().is_some_and(|limit| limit.scope != Scope::Vendor) {
        classes.push(class((accounts + 1, accounts), endpoints[0], false));
    }
    classes
}

/// Whether the vendor announces what is left of the walked limit when little is left.
fn is_told(case: &Case) -> bool {
    let Some(walked) = case.number() else { return false };
    let endpoint = case.of.and_then(|(endpoint, _)| endpoint);
    let holds = |of: Option<usize>| of.is_none() || of == endpoint;
    let numbered = case.enforced().into_iter().zip(case.limits()).enumerate();
    let limits: Vec<(bool, Shown)> = numbered
        .filter(|(_, (_, (of, limit)))| holds(*of) && rate(limit).is_some())
        .map(|(number, (enforced, (_, limit)))| {
            let figure = rate(limit).map_or(1, |rate| u64::from(rate.limit));
            let window_ns = rate(limit).map_or(0, |rate| nanos(rate.window));
            let remaining = if number == walked { figure / 20 } else { figure };
            let name = enforced.name.unwrap_or_else(|| "".into());
            (number == walked, Shown { name, window_ns, limit: figure, remaining, reset_at: window_ns, oldest_at: 0 })
        })
        .collect();
    let place = limits.iter().position(|(is_walked, _)| *is_walked);
    let limits: Vec<Shown> = limits.into_iter().map(|(_, shown)| shown).collect();
    let endpoint = endpoint.or_else(|| case.vendor.match_endpoint("GET", "/walk").map(|(at, _)| at));
    let endpoint = endpoint.map(|at| &*case.vendor.endpoints[at].name);
    let truth = Truth { at: 0, cost: 1, endpoint, limits: &limits, refusal: None };
    let said = announce::of(&case.vendor.name).compose(&truth);
    place.is_some_and(|place| said.reported.contains(&place))
}

/// The number of accounts that together reach a limit of the whole vendor although each account has a limit of its own.
fn accounts(case: &Case) -> u32 {
    let Some(limit) = case.limit().filter(|limit| limit.scope == Scope::Vendor) else { return 2 };
    let endpoint = case.of.and_then(|(endpoint, _)| endpoint);
    let of_one = case.limits().filter(|(of, other)| other.scope != Scope::Vendor && (of.is_none() || *of == endpoint));
    let slowest = of_one.map(|(_, other)| used_rate(&other.kind, QUICK)).fold(f64::INFINITY, f64::min);
    let wanted = (1.3 * used_rate(&limit.kind, QUICK) / slowest).ceil() as u64;
    wanted.clamp(2, MAX_ACCOUNTS) as u32
}

/// The times of a case.
pub(super) fn timeline(case: &Case, classes: &[Class]) -> Timeline {
    let has_slots = case.limit().is_some_and(|limit| rate(limit).is_none());
    let service_ns = if has_slots { SLOW } else { QUICK };
    let (window, per_second) = match case.limit() {
        Some(limit) => {
            let window = rate(limit).map_or(SECOND, |rate| nanos(rate.window));
            (window, used_rate(&limit.kind, service_ns) * SECOND as f64)
        }
        None => (10 * SECOND, 10.0),
    };
    let asks_ns = (window / 4).clamp(2 * SECOND, 120 * SECOND);
    let longest_pause = asks_ns.max(announce::of(&case.vendor.name).longest_silence());
    let for_requests = (f64::from(case.depth.span_requests) / per_second * SECOND as f64) as u64;
    let windows = for_requests.div_ceil(window).max(1);
    // A span is a whole number of windows, long enough that a pause takes a small part of it.
    let span = window * windows.max((case.depth.span_pauses * longest_pause).div_ceil(window));
    // The other user takes half of the first class's slowest limit, if the vendor announces what is left of the walked
    // limit.
    let first = classes.first();
    let holds = |of: Option<usize>| of.is_none() || first.is_some_and(|class| class.endpoint == of);
    let slowest = case.limits().filter(|(of, limit)| holds(*of) && rate(limit).is_some());
    let published = slowest.filter_map(|(_, limit)| Some((rate(limit)?, case.units_of_the_other(limit))));
    let published =
        published.map(|(rate, units)| nanos(rate.window).saturating_mul(units.into()) / u64::from(rate.limit.max(1)));
    let may_share = is_told(case) && case.limit().and_then(rate).is_some_and(|rate| rate.limit >= LEAST_SHARED);
    let other_every = published.max().filter(|_| may_share).map_or(0, |unit| 2 * unit);
    // Enough copies that one tenant can use its account's whole limit, and a window's units in a part of the window.
    let of_one = classes.iter().filter(|class| class.saturates && class.call.tenant == 0).count().max(1) as f64;
    let under_way = per_second * (2 * WAY + service_ns) as f64 / SECOND as f64;
    let ahead = if has_slots { 1.5 } else { 3.0 };
    let copies = (ahead * under_way / (3.0 * of_one)).ceil() as usize;
    Timeline {
        accident_at: span + span / 2,
        asks_ns,
        pause_ns: longest_pause,
        other_from: 3 * span + span / 3,
        other_until: 6 * span + span / 3,
        other_every,
        ends: SPANS as u64 * span,
        service_ns,
        copies: copies.clamp(1, 64),
        unit_ns: (SECOND as f64 / per_second) as u64,
    }
}

impl Timeline {
    /// The number of the span that contains a time.
    pub(super) fn span_of(&self, at: u64) -> usize {
        let span = (self.ends / SPANS as u64).max(1);
        usize::try_from(at / span).map_or(SPANS - 1, |span| span.min(SPANS - 1))
    }

    /// How long a class of single requests waits between two of them around the accident.
    pub(super) fn look_every(&self, class: &Class) -> u64 {
        (self.pause_ns / 10).max(50_000_000).max(class.gap_ns)
    }

    /// How long a class of single requests waits after a request at `now`.
    pub(super) fn next_look(&self, class: &Class, now: u64) -> Duration {
        let often = self.look_every(class);
        let seldom = (self.ends / 400).max(often);
        let begins = self.accident_at.saturating_sub(often);
        let wait = match now {
            _ if now < begins => seldom.min(begins - now).max(1_000_000),
            _ if now < self.accident_at + 3 * self.pause_ns + 4 * self.unit_ns => often,
            _ => seldom,
        };
        Duration::from_nanos(wait)
    }
}
