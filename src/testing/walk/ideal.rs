//! Computes what an omniscient client could have sent under the same limits and the same shares of them. Requests are
//! modelled as a fluid that flows through buckets of the same size and rate.

use std::collections::VecDeque;

use super::case::{Case, rate, shares};
use super::plan::{Class, SPANS, Timeline, used_rate};
use super::vendor::{Accident, Departure};
use crate::clock::nanos;
use crate::config::{Algorithm, LimitKind, Scope, Throttle};

/// The number of time steps of a case.
const STEPS: u64 = 3_000;

/// The state of a limit for the classes that share it.
struct Bucket {
    /// The index of the limit in [`Case::limits`].
    number: usize,
    level: f64,
    capacity: f64,
    /// The capacity while the other user is active: less the units that this user takes in a whole window.
    capacity_beside: f64,
    /// Units per nanosecond.
    rate: f64,
    /// Units per nanosecond while the other user is active.
    rate_beside: f64,
    /// If the vendor counts in windows: their length in nanoseconds, and the most units in any period of that length.
    window: Option<(u64, f64)>,
    /// The units taken in the last window: their times and numbers.
    past: VecDeque<(u64, f64)>,
    in_window: f64,
    spread: Option<Spread>,
    /// The classes that use the limit, and the units of one request of each.
    takers: Vec<(usize, f64)>,
}

/// Spreads the units of a limit that the other user shares and whose fixed windows are longer than the rest of the run.
/// With `adaptive` the client spreads the remaining units until the window's end, so the ideal client does too. A
/// client that sent them at once would have sent more by the end of the run, but no more by the end of the window.
struct Spread {
    limit: f64,
    window: u64,
    /// The time at which a window begins.
    phase: u64,
    others: f64,
    from: u64,
    until: u64,
    /// Units taken since the window began.
    taken: f64,
    level: f64,
}

impl Spread {
    fn begins(&self, now: u64) -> u64 {
        now.saturating_sub((now + self.window - self.phase) % self.window)
    }

    fn advance(&mut self, now: u64, step: u64) {
        let began = self.begins(now);
        if now < began + step {
            self.taken = 0.0;
        }
        if now < self.from {
            return;
        }
        let of_others = self.others * now.min(self.until).saturating_sub(self.from.max(began)) as f64;
        let rest = (began + self.window).saturating_sub(now).max(step) as f64;
        let even = (self.limit - self.taken - of_others).max(0.0) / rest;
        let others = if now < self.until { self.others } else { 0.0 };
        self.level += (even - others).max(even / 2.0) * step as f64;
    }
}

impl Bucket {
    /// Advances to `now`, by `step`.
    fn refill(&mut self, now: u64, step: u64, beside: bool) {
        let more = if beside { self.rate_beside } else { self.rate } * step as f64;
        let capacity = if beside { self.capacity_beside } else { self.capacity };
        self.level = (self.level + more).min(capacity.max(more));
        if let Some(spread) = &mut self.spread {
            spread.advance(now, step);
        }
        let Some((window, _)) = self.window else { return };
        while let Some((at, units)) = self.past.front().copied() {
            if at + window > now {
                break;
            }
            self.past.pop_front();
            self.in_window -= units;
        }
    }

    fn room(&self, now: u64) -> f64 {
        let spread = self.spread.as_ref().filter(|spread| now >= spread.from).map_or(f64::INFINITY, |it| it.level);
        let in_window = self.window.map_or(f64::INFINITY, |(_, limit)| limit - self.in_window);
        self.level.min(in_window).min(spread).max(0.0)
    }

    fn take(&mut self, now: u64, units: f64) {
        // Single requests take units even if none are left. The level becomes negative, so others get less later.
        self.level -= units;
        if let Some(spread) = &mut self.spread {
            spread.taken += units;
            spread.level -= if now >= spread.from { units } else { 0.0 };
        }
        if self.window.is_some() {
            self.past.push_back((now, units));
            self.in_window += units;
        }
    }
}

/// The units that could go through the walked limit in each span, in sum for all classes that always have more to send.
/// Units that single requests in `departures` took are not available to these classes.
pub(super) fn possible(
    case: &Case,
    classes: &[Class],
    timeline: &Timeline,
    pauses: &[Accident],
    departures: &[Departure],
) -> [f64; SPANS] {
    let mut possible = [0.0; SPANS];
    flow(case, classes, timeline, pauses, departures, |now, units| possible[timeline.span_of(now)] += units);
    possible
}

/// Calls `goes` with each time at which units go through the walked limit, and with their number.
fn flow(
    case: &Case,
    classes: &[Class],
    timeline: &Timeline,
    pauses: &[Accident],
    departures: &[Departure],
    mut goes: impl FnMut(u64, f64),
) {
    let single: Vec<Option<usize>> = departures
        .iter()
        .map(|one| classes.iter().position(|class| !class.saturates && class.call == one.call).filter(|_| one.admitted))
        .collect();
    let mut singles = departures.iter().zip(single).filter_map(|(one, class)| Some((one.at, class?))).peekable();
    let mut buckets = buckets(case, classes, timeline);
    let step = (timeline.ends / STEPS).max(1);
    let walked = case.number();
    for number in 0..STEPS {
        let now = number * step;
        let beside = (timeline.other_from..timeline.other_until).contains(&now) && timeline.other_every > 0;
        for bucket in &mut buckets {
            bucket.refill(now, step, beside);
        }
        while let Some((_, class)) = singles.next_if(|(at, _)| *at <= now) {
            for bucket in &mut buckets {
                let taker = bucket.takers.iter().find(|(taker, _)| *taker == class);
                if let Some(units) = taker.map(|(_, cost)| *cost) {
                    bucket.take(now, units);
                }
            }
        }
        let is_paused = |class: &Class| {
            pauses.iter().any(|pause| {
                let until = pause.heard_at.saturating_add(pause.asks.unwrap_or(0));
                (pause.heard_at..until).contains(&now) && is_paused_with(case, &class.call, &pause.call)
            })
        };
        let mut open: Vec<usize> =
            (0..classes.len()).filter(|at| classes[*at].saturates && !is_paused(&classes[*at])).collect();
        // All classes get equal parts of each bucket; what a class cannot use goes to the others in the next round.
        for round in 0..4 {
            let shares: Vec<f64> = buckets
                .iter()
                .map(|b| b.takers.iter().filter(|(taker, _)| open.contains(taker)).count() as f64)
                .collect();
            open.retain(|at| {
                let of = |(bucket, share): (&Bucket, &f64)| {
                    let cost = bucket.takers.iter().find(|(taker, _)| taker == at)?.1;
                    let part = if round == 3 { 1.0 } else { share.max(1.0) };
                    Some(bucket.room(now) / part / cost)
                };
                let amount = buckets.iter().zip(&shares).filter_map(of).fold(f64::INFINITY, f64::min);
                if !amount.is_finite() || amount <= 0.0 {
                    return false;
                }
                for bucket in &mut buckets {
                    let taker = bucket.takers.iter().find(|(taker, _)| taker == at);
                    let Some(units) = taker.map(|(_, cost)| amount * cost) else { continue };
                    bucket.take(now, units);
                    if Some(bucket.number) == walked {
                        goes(now, units);
                    }
                }
                true
            });
        }
    }
}

/// Moves the accident to an earlier time if another limit is used up before it, because no request would meet it. The
/// new time is when half of the units that can go before the accident have gone.
pub(super) fn with_a_busy_accident(case: &Case, classes: &[Class], timeline: Timeline) -> Timeline {
    let (mut earlier, mut later) = (Vec::new(), 0.0);
    let soon = timeline.accident_at..timeline.accident_at + timeline.ends / SPANS as u64;
    flow(case, classes, &timeline, &[], &[], |now, units| match now {
        _ if now < soon.start => earlier.push((now, units)),
        _ if now < soon.end => later += units,
        _ => {}
    });
    if case.number().is_none() || later >= 1.0 {
        return timeline;
    }
    let mut left = earlier.iter().map(|(_, units)| units).sum::<f64>() / 2.0;
    let half = earlier.into_iter().find(|(_, units)| {
        left -= units;
        left <= 0.0
    });
    Timeline { accident_at: half.map_or(0, |(now, _)| now), ..timeline }
}

/// Whether a refusal of one call by the walked limit pauses the other call.
pub(super) fn is_paused_with(case: &Case, call: &crate::testing::Call, refused: &crate::testing::Call) -> bool {
    let Some(limit) = case.limit() else { return call.tenant == refused.tenant };
    let endpoint = case.of.and_then(|(endpoint, _)| endpoint).map(|at| at as u32 + 1);
    let counts = endpoint.is_none_or(|endpoint| call.endpoint == endpoint);
    let same = limit.scope != Scope::Endpoint || call.endpoint == refused.endpoint;
    counts && same && shares(limit.scope, (call.tenant, call.account), (refused.tenant, refused.account))
}

fn buckets(case: &Case, classes: &[Class], timeline: &Timeline) -> Vec<Bucket> {
    let mut buckets: Vec<(Bucket, crate::testing::Call)> = Vec::new();
    for (number, (endpoint, limit)) in case.limits().enumerate() {
        for (at, class) in classes.iter().enumerate() {
            if endpoint.is_some() && class.endpoint != endpoint {
                continue;
            }
            let call = class.call;
            let same = |other: &crate::testing::Call| {
                let endpoint = limit.scope != Scope::Endpoint || other.endpoint == call.endpoint;
                endpoint && shares(limit.scope, (other.tenant, other.account), (call.tenant, call.account))
            };
            let cost = f64::from(case.units(limit, &call));
            if let Some((bucket, _)) = buckets.iter_mut().find(|(b, other)| b.number == number && same(other)) {
                bucket.takers.push((at, cost));
                continue;
            }
            let mut full = used_rate(&limit.kind, timeline.service_ns);
            if let Some(rate) = rate(limit).filter(|rate| rate.algorithm == Algorithm::Unknown) {
                full = full.min(safe_for_strangers(rate.limit) / nanos(rate.window).max(1) as f64);
            }
            let window = rate(limit).filter(|rate| !rate.shape().guard_is_bucket);
            // A shorter window than this is already bounded by the rate of a step.
            let window = window.map(|rate| (nanos(rate.window), f64::from(rate.limit)));
            let window = window.filter(|(window, _)| *window > 4 * timeline.ends / STEPS);
            let (capacity, published) = match &limit.kind {
                LimitKind::Rate(rate) => {
                    (f64::from(rate.shape().capacity), f64::from(rate.limit) / nanos(rate.window).max(1) as f64)
                }
                LimitKind::Concurrency { limit } => (f64::from(*limit), f64::INFINITY),
            };
            // The other user belongs to the first class's account.
            let first = classes.first().map(|class| class.call);
            let is_his = first.is_some_and(|first| same(&first)) && timeline.other_every > 0;
            let units = f64::from(case.units_of_the_other(limit));
            let others = if is_his { units / timeline.other_every as f64 } else { 0.0 };
            let rate_beside = full.min((published - others).max(0.0));
            let taken = rate(limit).map_or(0.0, |rate| others * nanos(rate.window) as f64);
            let spread = rate(limit).zip(case.fixed_phase(limit)).filter(|(rate, _)| {
                let is_long = nanos(rate.window) > timeline.ends.saturating_sub(timeline.other_from);
                is_long && is_his && case.vendor.throttle == Throttle::Adaptive
            });
            let spread = spread.map(|(rate, phase)| Spread {
                limit: rate.limit.into(),
                window: nanos(rate.window),
                phase,
                others,
                from: timeline.other_from,
                until: timeline.other_until,
                taken: 0.0,
                level: 0.0,
            });
            let bucket = Bucket {
                spread,
                number,
                level: capacity,
                capacity,
                capacity_beside: (capacity - taken).max(0.0),
                rate: full,
                rate_beside,
                window,
                past: VecDeque::new(),
                in_window: 0.0,
                takers: vec![(at, cost)],
            };
            buckets.push((bucket, call));
        }
    }
    buckets.into_iter().map(|(bucket, _)| bucket).collect()
}

/// The units per window that no vendor with an unknown algorithm refuses: a sliding counter of any phase admits them if
/// they are evenly spaced. With a limit of one, it admits only one request in each two adjacent windows.
fn safe_for_strangers(limit: u32) -> f64 {
    if limit >= 10 {
        return f64::from(limit - 1);
    }
    let spacings = (1..=400_u32).map(|step| f64::from(step) / 200.0).filter(|s| *s * f64::from(limit) >= 1.0);
    let safe = |spacing: &f64| (0..100).all(|phase| is_taken(limit, *spacing, f64::from(phase) / 100.0));
    spacings.into_iter().find(safe).map_or(0.5, |spacing| 1.0 / spacing)
}

/// Whether a sliding counter admits requests that are `spacing` windows apart, the first at `phase` of a window.
fn is_taken(limit: u32, spacing: f64, phase: f64) -> bool {
    let at = |number: u32| phase + f64::from(number) * spacing;
    let window = |number: u32| at(number).floor();
    (0..40).all(|number| {
        let of = |window_: f64| (0..=number).filter(|other| window(*other) == window_).count() as f64;
        let left = window(number) + 1.0 - at(number);
        of(window(number)) + of(window(number) - 1.0) * left <= f64::from(limit) + 1e-9
    })
}
