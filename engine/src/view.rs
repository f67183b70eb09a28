//! The state of a lane as seen from outside, for a caller who asks why a request waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::endpoint::{EndpointHash, EndpointId, NO_ENDPOINT};
use super::keys::LaneKey;
use super::limit::{Cell, LimitSpec};
use super::need::Need;
use super::notices::Holder;
use super::origin::Whose;
use super::slab::Key;
use super::throttle::Discovered;
use super::{Engine, Until, WaitReason};
use crate::time::Time;

/// The state of one lane.
pub struct View {
    pub waiting: [u32; 3],
    pub in_flight: u32,
    pub limits: Vec<LimitView>,
    /// Whether an operator has paused the lane.
    pub held: bool,
    /// Until when the vendor's responses pause the lane; in the past if they do not.
    pub paused_until: Time,
    /// Whose limit the last refusal named that is about no known limit.
    pub refused_for: Option<Whose>,
    /// Failures in a row; 0 if fewer than pause the lane.
    pub failures: u32,
    /// The spacing between grants of one unit and that at the full rate, in nanoseconds, if the first is longer.
    pub slowest: Option<(u64, u64)>,
    pub heads: [Option<HeadView>; 3],
}

/// The first waiting request of a tier.
pub struct HeadView {
    pub reason: WaitReason,
    pub until: Until,
    pub since: Time,
}

pub struct LimitView {
    pub name: Arc<str>,
    pub holder: Holder,
    pub left: u32,
    pub limit: u32,
    /// When a long window's units will be used up at the recent rate; `None` if they last.
    pub ends_at: Option<Time>,
    /// When the present window ends, if a response or a calendar says so.
    pub resets_at: Option<Time>,
    /// When all units are free again if nothing else is granted; `None` if that depends on a request in flight.
    pub full_at: Option<Time>,
    /// Until when the vendor's responses pause the limit; in the past if they do not.
    pub paused_until: Time,
    /// Whether only the vendor's responses mention the limit, and no configuration does.
    pub is_discovered: bool,
}

impl LimitView {
    fn of(cell: &mut Cell, spec: &LimitSpec, holder: Holder, now: Time) -> LimitView {
        let (left, limit) = cell.headroom(spec, now);
        let paused_until = cell.paused_until(EndpointHash::NONE);
        let resets_at = cell.resets_at(spec, now);
        let ends_at = ends_at(cell, spec, left, now).filter(|end| resets_at.is_none_or(|reset| *end < reset));
        let own = cell.remaining(spec, now);
        let (_, said_until) = cell.as_said(spec, now, own);
        let full_at = cell.full_at(spec, now).map(|full| full.max(said_until.unwrap_or(full)));
        let name = spec.name.clone();
        LimitView { name, holder, left, limit, ends_at, resets_at, full_at, paused_until, is_discovered: false }
    }
}

/// When a long window's units will be used up, if that is before a window's length is over. The rate is that of the
/// last 24th of the window, or of the time since the use began if that is shorter.
fn ends_at(cell: &mut Cell, spec: &LimitSpec, left: u32, now: Time) -> Option<Time> {
    let window_ns = spec.pace.window_ns;
    let span_ns = window_ns / 24;
    if window_ns < LONG_NS || !spec.is_rate() {
        return None;
    }
    let mut since = |span_ns: u64| Some(cell.used(spec, now, now.minus_nanos(span_ns))?.1);
    let lately = since(span_ns)?;
    // If the use began recently, its rate is measured over the time since then, to a factor of two.
    let mut span_ns = span_ns;
    while span_ns > SHORT_NS && since(span_ns / 2)? == lately {
        span_ns /= 2;
    }
    // The product of a u64 and a u32 fits into a u128.
    let in_ns = (u128::from(span_ns) * u128::from(left)).checked_div(lately.into())?;
    u64::try_from(in_ns).ok().filter(|in_ns| *in_ns < window_ns).map(|in_ns| now.plus_nanos(in_ns))
}

impl Discovered {
    fn view(&self, now: Time) -> LimitView {
        let (left, limit) = self.left(now);
        LimitView {
            name: self.name().into(),
            holder: Holder::Lane,
            left,
            limit,
            ends_at: None,
            resets_at: None,
            full_at: Some(self.full_at(now)),
            paused_until: Time::ZERO,
            is_discovered: true,
        }
    }
}

/// The shortest window for which the end of its units is predicted: an hour.
const LONG_NS: u64 = 3_600_000_000_000;
/// The shortest time over which a rate is measured.
const SHORT_NS: u64 = 1_000_000_000;

/// The one that is slower relative to its full rate; both are (spacing, spacing at the full rate).
fn slower(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    let factor = |(spacing, unit): (u64, u64)| spacing as f64 / unit.max(1) as f64;
    match (one, other) {
        (Some(one), Some(other)) if factor(other) <= factor(one) => Some(one),
        (one, other) => other.or(one),
    }
}

/// The state of one lane, as a list of many lanes shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brief {
    pub waiting: [u32; 3],
    pub in_flight: u32,
    /// Whether an operator has paused the lane.
    pub held: bool,
    /// Until when the vendor's responses pause the lane; in the past if they do not.
    pub paused_until: Time,
    /// Whether grants are spaced out by more than the limits ask for.
    pub slowed: bool,
    /// The tightest limit for all requests, as (remaining, limit).
    pub left: Option<(u32, u32)>,
}

/// The totals of all lanes of a vendor.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum {
    pub lanes: u64,
    pub waiting: [u64; 3],
    pub in_flight: u64,
    pub paused: u64,
    pub slowed: u64,
    /// The smallest remaining share of a limit in any lane, as (remaining, limit).
    pub tightest: Option<(u32, u32)>,
}

impl Engine {
    pub fn view(&mut self, now: Time, key: LaneKey) -> Option<View> {
        let now = self.tick(now);
        let lane = self.lanes.get_mut(key)?;
        let (plan, shared, in_flight) = (lane.plan.clone(), lane.shared, lane.in_flight);
        let waiting = lane.waiting.as_ref().map_or([0; 3], |waiting| waiting.waiting);
        let queues = lane.waiting.as_ref().map(|waiting| waiting.queues.clone()).unwrap_or_default();
        let held = lane.throttle.as_ref().is_some_and(|throttle| throttle.is_held());
        let refused_for = lane.throttle.as_ref().and_then(|throttle| throttle.whose());
        let failures = lane.throttle.as_ref().map_or(0, |throttle| throttle.failures());
        let mut slowest = lane.throttle.clone().and_then(|mut throttle| throttle.spacing(now, &plan.pace));
        let discovered: Vec<LimitView> =
            lane.throttle.iter().flat_map(|it| it.discovered(now)).map(|it| it.view(now)).collect();
        let mut limits = Vec::new();
        for (number, (cell, spec)) in lane.own.as_mut().iter_mut().zip(&plan.own).enumerate() {
            let endpoint = plan.endpoints.iter().position(|endpoint| endpoint.own.contains(&number));
            let holder = endpoint.map_or(Holder::Lane, |number| Holder::Endpoint(EndpointId::at(number)));
            slowest = slower(slowest, cell.spacing(spec, now));
            limits.push(LimitView::of(cell, spec, holder, now));
        }
        for (key, holder) in shared.into_iter().zip([Holder::Account, Holder::Vendor]) {
            let Some(inside) = self.lanes.holder_mut(key) else { continue };
            for (cell, spec) in inside.cells.iter_mut().zip(inside.specs.iter()) {
                if spec.endpoint.is_none() {
                    slowest = slower(slowest, cell.spacing(&spec.spec, now));
                }
                limits.push(LimitView::of(cell, &spec.spec, holder, now));
            }
        }
        limits.extend(discovered);
        let mut heads = [None, None, None];
        for queue in queues {
            let Some(queue) = self.waiters.queue(queue) else { continue };
            let Some(waiter) = queue.head().and_then(|head| self.waiters.get(head)) else { continue };
            let (need, since) =
                (Need { lane: key, endpoint: queue.endpoint, tier: queue.tier, cost: waiter.cost }, waiter.submitted);
            let reason = waiter.reason.clone();
            let head: &mut Option<HeadView> = &mut heads[need.tier.index()];
            if head.as_ref().is_none_or(|head| head.since > since) {
                *head = Some(HeadView { reason, until: self.until(&need), since });
            }
        }
        let slowest = slowest.filter(|(spacing, unit)| spacing > unit);
        Some(View {
            waiting,
            in_flight,
            limits,
            held,
            paused_until: self.stands_until(key, NO_ENDPOINT).max(self.groups_would_pause_until(key)),
            refused_for,
            failures,
            slowest,
            heads,
        })
    }

    /// Whether grants of a lane are spaced out by more than its limits ask for.
    fn is_slowed(&mut self, key: LaneKey) -> bool {
        let now = self.now;
        let Some(lane) = self.lanes.get_mut(key) else { return false };
        if lane.shared == [Key::NONE; 2] && lane.is_at_full_speed() {
            return false;
        }
        let (plan, shared) = (lane.plan.clone(), lane.shared);
        let mut slowest = lane.throttle.clone().and_then(|mut throttle| throttle.spacing(now, &plan.pace));
        for (cell, spec) in lane.whole() {
            slowest = slower(slowest, cell.spacing(spec, now));
        }
        for holder in shared {
            let Some(holder) = self.lanes.holder_mut(holder) else { continue };
            for (cell, spec) in holder.cells.iter_mut().zip(holder.specs.iter()) {
                if spec.endpoint.is_none() {
                    slowest = slower(slowest, cell.spacing(&spec.spec, now));
                }
            }
        }
        slowest.is_some_and(|(spacing, unit)| spacing > unit)
    }

    /// The state of a lane for a list of many lanes. Allocates nothing.
    pub fn brief(&mut self, now: Time, key: LaneKey) -> Option<Brief> {
        let now = self.tick(now);
        let lane = self.lanes.get(key)?;
        let waiting = lane.waiting.as_ref().map_or([0; 3], |waiting| waiting.waiting);
        let in_flight = lane.in_flight;
        let held = lane.throttle.as_ref().is_some_and(|throttle| throttle.is_held());
        let paused_until = self.stands_until(key, NO_ENDPOINT).max(self.groups_would_pause_until(key));
        let slowed = !held && paused_until <= now && self.is_slowed(key);
        let left = self.headroom(now, key, NO_ENDPOINT);
        Some(Brief { waiting, in_flight, held, paused_until, slowed, left })
    }

    /// Adds `count` lanes, from the slot `from` on, to the totals of their vendors. Returns the slot at which to
    /// continue; `None` at the end.
    pub fn survey(&mut self, now: Time, from: u32, count: u32, sums: &mut BTreeMap<Arc<str>, Sum>) -> Option<u32> {
        let now = self.tick(now);
        let end = self.lanes.end().min(from.saturating_add(count));
        for index in from..end {
            let Some(key) = self.lanes.key_at(index) else { continue };
            let Some(lane) = self.lanes.get(key) else { continue };
            let vendor = lane.plan.vendor.clone();
            let Some(brief) = self.brief(now, key) else { continue };
            let sum = sums.entry(vendor).or_default();
            sum.lanes += 1;
            sum.in_flight += u64::from(brief.in_flight);
            for (all, tier) in sum.waiting.iter_mut().zip(brief.waiting) {
                *all += u64::from(tier);
            }
            sum.paused += u64::from(brief.held || brief.paused_until > now);
            sum.slowed += u64::from(brief.slowed);
            let share = |(left, limit): (u32, u32)| f64::from(left) / f64::from(limit.max(1));
            if brief.left.is_some_and(|left| sum.tightest.is_none_or(|other| share(left) < share(other))) {
                sum.tightest = brief.left;
            }
        }
        (end < self.lanes.end()).then_some(end)
    }
}
