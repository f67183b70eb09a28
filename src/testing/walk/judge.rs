//! Judges the record of a case.

use super::case::{Case, rate};
use super::ideal;
use super::plan::{Class, LEAST_SHARED, SPANS, Timeline};
use super::vendor::{Departure, ReportedState, State};
use crate::clock::nanos;
use crate::config::Throttle;

/// The tolerance after an answer in which requests may still leave, in nanoseconds: the resolution of timers.
const GRAIN: u64 = 2_000_000;
/// One of this many departures at an empty quota may be caused by answers that overtake each other.
const OVERTAKING: usize = 50;
/// Below this share of a limit, in percent, grants must be spread out.
const SCARCE: u64 = 10;
/// Grants count as spread out below this share of the full rate.
const SPREAD: f64 = 0.7;

/// The fewest possible units for which a share is computed. With fewer, another limit of the requests is far slower.
const LEAST_POSSIBLE: f64 = 40.0;

/// The outcome of a [`Case`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// Requests that left.
    pub requests: usize,
    /// Refusals beyond the allowed ones: one for each change of the other user, and the accident.
    pub refused: usize,
    /// All refusals except the accident.
    pub refusals: usize,
    /// Whether the vendor announced what is left of the limit.
    pub announced: bool,
    /// The failures to slow down or to pause; empty if there are none.
    pub unthrottled: Vec<String>,
    /// The units that went through the limit, in percent of what was possible; `None` for a vendor without figures, or
    /// if another limit lets almost nothing through.
    pub share: Option<f64>,
    /// The share for each of the eight spans.
    pub by_span: Vec<f64>,
}

/// Judges the record of a case.
pub(super) fn judge(case: &Case, classes: &[Class], timeline: &Timeline, state: &State) -> Outcome {
    let record = &state.record;
    let mut outcome =
        Outcome { requests: record.departures.len(), announced: !record.reports.is_empty(), ..Outcome::default() };
    outcome.refusals = record.refusals.len();
    let beside = timeline.other_every > 0;
    let is_his = |at: u64| beside && at >= timeline.other_from && at < timeline.ends;
    // The other user's calls count in every limit of the account. If another limit has only a few units, one call may
    // take the last of them; no client can know that before its own request is refused.
    let tiny = |at: &usize| case.limits().nth(*at).and_then(|(_, limit)| rate(limit)).is_some_and(is_tiny);
    let is_coincidence = |at: u64, by: &usize| is_his(at) && case.number() != Some(*by) && tiny(by);
    let coincidences = record.refusals.iter().filter(|(at, by)| is_coincidence(*at, by)).count();
    let in_his_time = record.refusals.iter().filter(|(at, _)| is_his(*at)).count();
    outcome.refused = outcome.refusals - in_his_time + in_his_time.saturating_sub(2 + coincidences);
    outcome.unthrottled.extend(exhausted(state));
    outcome.unthrottled.extend(scarce(case, timeline, state));
    outcome.unthrottled.extend(pause(case, classes, state));
    outcome.unthrottled.extend(others(case, classes, timeline, state));
    if case.of.is_some() {
        let units =
            |departure: &Departure| u64::from(case.limit().map_or(1, |limit| case.units(limit, &departure.call)));
        let saturates =
            |call: &crate::testing::Call| classes.iter().any(|class| class.saturates && class.call == *call);
        let admitted = record.departures.iter().filter(|departure| departure.admitted);
        let counted = admitted.filter(|departure| state.counts(&departure.call) && saturates(&departure.call));
        let mut went = [0; SPANS];
        counted.for_each(|departure| went[timeline.span_of(departure.at)] += units(departure));
        // One refusal is allowed for each change of the other user's rate. The client must wait as it says.
        let changes = [timeline.other_from..timeline.other_until, timeline.other_until..timeline.ends];
        let first =
            |change: &std::ops::Range<u64>| record.stops.iter().find(|stop| change.contains(&stop.heard_at)).copied();
        let allowed = changes.iter().filter(|_| beside).filter_map(first);
        let pauses: Vec<_> = record.accident.into_iter().chain(allowed).collect();
        let possible = ideal::possible(case, classes, timeline, &pauses, &record.departures);
        // To a tenth of a percent, as it is printed.
        let share = |went: u64, possible: f64| (1_000.0 * went as f64 / possible).round() / 10.0;
        let all = possible.iter().sum();
        outcome.share = (all >= LEAST_POSSIBLE).then(|| share(went.iter().sum(), all));
        outcome.by_span =
            went.into_iter().zip(possible).map(|(went, possible)| share(went, possible.max(1.0))).collect();
    }
    outcome
}

/// The departures after `from` and before `until` that share the walked limit with `call`.
fn leaving<'s>(
    state: &'s State,
    call: &'s crate::testing::Call,
    from: u64,
    until: u64,
) -> impl Iterator<Item = &'s Departure> {
    let departures = &state.record.departures;
    let first = departures.partition_point(|departure| departure.at <= from);
    let within = departures[first..].iter().take_while(move |departure| departure.at < until);
    within.filter(|departure| state.counts_with(&departure.call, call))
}

/// Checks that nothing leaves after an answer that announced an empty quota, until a unit is free again.
fn exhausted(state: &State) -> Option<String> {
    let (mut told, mut left) = (0, 0);
    for heard in state.record.reports.iter().filter(|heard| heard.remaining == 0) {
        told += 1;
        left += usize::from(leaving(state, &heard.call, heard.at + GRAIN, heard.regains_at).next().is_some());
    }
    (left > 1 + told / OVERTAKING)
        .then(|| format!("unstopped: {left} of {told} times something left when nothing was left"))
}

/// Whether a limit is so small that no client can foresee the other user's calls in it.
fn is_tiny(rate: &crate::config::Rate) -> bool {
    rate.limit < LEAST_SHARED
}

/// Checks that grants are spread out while less than [`SCARCE`] percent of the limit is left. With `adaptive`, checks
/// this only while the other user takes a part of the limit: usage that the client's own count explains must not slow
/// the client down, and without another user only refusals count as failures. The client may always use the rate that
/// the other user leaves, which [`ideal`] counts as possible.
fn scarce(case: &Case, timeline: &Timeline, state: &State) -> Option<String> {
    let rate = case.limit().and_then(rate).filter(|rate| u64::from(rate.limit) * SCARCE >= 200)?;
    let window = nanos(rate.window);
    let full = rate.safety * f64::from(rate.limit) / window as f64;
    let units = f64::from(case.limit().map_or(1, |limit| case.units_of_the_other(limit)));
    let others = if timeline.other_every > 0 { units / timeline.other_every as f64 } else { 0.0 };
    let left = (f64::from(rate.limit) / window as f64 - others).min(full);
    // If the other user takes half of another limit with a far longer window, this can be less than one unit in a
    // window of this limit.
    let is_beside = others * window as f64 >= 1.0;
    let beside = |heard: &ReportedState| {
        is_beside
            && state.counts_with(&heard.call, &state.other())
            && (timeline.other_from..timeline.other_until).contains(&heard.at)
    };
    let is_adaptive = case.vendor.throttle == Throttle::Adaptive;
    let (mut scarce, mut granted, mut times) = (0, 0, 0);
    let heard = &state.record.reports;
    let mut at = 0;
    while at < heard.len() {
        let first = &heard[at];
        at += 1;
        if first.remaining * 100 >= first.limit * SCARCE || (is_adaptive && !beside(first)) {
            continue;
        }
        // Units are scarce until an answer announces more, or the window ends.
        let mut until = first.resets_at;
        let rest = heard[at..].iter().take_while(|later| later.at < first.resets_at);
        let of_it = rest.filter(|later| state.counts_with(&later.call, &first.call));
        for later in of_it {
            if later.remaining * 100 >= later.limit * SCARCE {
                until = later.at;
                break;
            }
        }
        while heard.get(at).is_some_and(|later| later.at < until) {
            at += 1;
        }
        scarce += until.saturating_sub(first.at);
        granted += leaving(state, &first.call, first.at + GRAIN, until).count();
        times += 1;
    }
    let most = (SPREAD * full).max(left) * scarce as f64 + f64::from(2 * times);
    (scarce > window / 20 && granted as f64 > most).then(|| {
        let unspread = 100.0 * granted as f64 / (full * scarce as f64).max(1.0);
        format!("unspread: {unspread:.0} % of the full rate while less than {SCARCE} % was left, {times} times")
    })
}

/// Checks that nothing that counts in the same limit leaves after the accident, until the announced wait is over.
fn pause(case: &Case, classes: &[Class], state: &State) -> Option<String> {
    let Some(accident) = state.record.accident else { return Some("unwalked: no request met the accident".into()) };
    let until = accident.heard_at.saturating_add(accident.asks?);
    let departures = &state.record.departures;
    let first = departures.partition_point(|departure| departure.at <= accident.heard_at.saturating_add(GRAIN));
    let within = departures[first..].iter().take_while(|departure| departure.at < until);
    let left: Vec<_> = within.filter(|one| ideal::is_paused_with(case, &one.call, &accident.call)).collect();
    let of_others = left.iter().filter(|one| one.call.tenant != accident.call.tenant).count();
    let tenants = classes.iter().map(|class| class.call.tenant).max().unwrap_or(0) + 1;
    (!left.is_empty()).then(|| {
        let (left, wait) = (left.len(), accident.asks.unwrap_or(0) / 1_000_000);
        format!("unpaused: {left} left in the {wait} ms after a refusal, {of_others} of them of other lanes ({tenants} tenants)")
    })
}

/// Checks that requests that share no limit with the refused one are sent during the pause.
fn others(case: &Case, classes: &[Class], timeline: &Timeline, state: &State) -> Option<String> {
    let accident = state.record.accident?;
    let wait = accident.asks?;
    let until = accident.heard_at.saturating_add(wait);
    let apart = |class: &&Class| {
        case.limits().all(|(endpoint, limit)| {
            let holds = |call: &crate::testing::Call| endpoint.is_none_or(|at| call.endpoint == at as u32 + 1);
            let pair = [&class.call, &accident.call].map(|call| (call.tenant, call.account));
            !(holds(&class.call) && holds(&accident.call) && super::case::shares(limit.scope, pair[0], pair[1]))
        }) && class.call.tenant != accident.call.tenant
            && class.call.account != accident.call.account
    };
    // Classes of single requests always have room in their limits; other classes may have used their limits up.
    let others: Vec<&Class> = classes.iter().filter(|class| !class.saturates).filter(apart).collect();
    let of_one = |class: &&Class| wait as f64 / timeline.look_every(class).max(1) as f64;
    let expected = others.iter().map(of_one).fold(0.0, f64::max);
    let first = state.record.departures.partition_point(|departure| departure.at <= accident.heard_at);
    let within = state.record.departures[first..].iter().take_while(|departure| departure.at < until);
    let went = within.filter(|one| others.iter().any(|class| class.call == one.call)).count();
    (expected >= 3.0 && went == 0).then(|| "stopped: others of the vendor did not go on during the pause".to_owned())
}
