//! What the vendor's answers change: reports of what is left, refusals, pauses.

use std::time::Duration;

use super::plan::{EndpointId, NO_ENDPOINT};
use super::slab::Key;
use super::throttle::{Gate, Mode, Notice, Report, Throttle, Wait};
use super::turns::Need;
use super::{Engine, Refusal};
use crate::clock::Time;

/// What an answer said about limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// The vendor took the request.
    Passed(Option<Report>),
    /// The vendor took the request, and asks to wait so long before the next, in nanoseconds.
    PassedFor(u64, Option<Report>),
    /// It failed.
    Failed,
    /// The vendor closed the connection before it processed the request.
    Disowned,
    /// It refused, for now.
    Refused(Wait, Option<Report>),
    /// It refused for a limit of the request's endpoint, and asks to wait so long, in nanoseconds.
    RefusedHere(u64, Option<Report>),
}

/// What there is to know after an answer.
#[derive(Default)]
pub(crate) struct Heard {
    /// What is left of the tightest limit of the endpoint, as (remaining, limit).
    pub(crate) headroom: Option<(u32, u32)>,
    pub(crate) notice: Option<Notice>,
    /// How long the answer took.
    pub(crate) took: Duration,
}

/// What a stated reset may be off: it is rounded to a second, and so is the `Date` that it is counted from.
const RESET_ERROR_NS: u64 = 2_000_000_000;

impl Engine {
    /// Response headers are here, and with `whole` all of the answer, so that the exchange has ended.
    #[inline]
    pub(crate) fn answered_with(&mut self, now: Time, key: Key, word: Word, whole: bool) -> Heard {
        let now = self.tick(now);
        let Some(permit) = self.permits.get(key) else { return Heard::default() };
        let (lane, endpoint, took) = (permit.lane(), permit.origin.endpoint, now.since(permit.granted));
        // The permit may hold slots of an account that its lane has left.
        let took_others = permit.origin.holders != [Key::NONE; 2];
        let of = self.lanes.slab.get(lane);
        let alone = of.is_some_and(|lane| lane.throttle.is_none() && !took_others && !lane.has_others(endpoint));
        if whole && alone && word == Word::Passed(None) && self.waiting == 0 {
            return Heard { headroom: self.finished_alone(now, key), notice: None, took };
        }
        let notice = self.hear(now, key, word);
        if let Word::Passed(Some(Report { limit, reset_ns: Some(reset), .. })) = word {
            self.window_ends(now, key, limit, reset, RESET_ERROR_NS);
        }
        match whole {
            true => self.finished(now, key),
            false => self.answered(now, key),
        }
        Heard { headroom: self.headroom(now, lane, endpoint), notice, took }
    }

    /// Response headers are here: what they say counts from now on. Comes before [`answered`](Self::answered).
    #[inline]
    pub(crate) fn hear(&mut self, now: Time, key: Key, word: Word) -> Option<Notice> {
        let now = self.tick(now);
        let permit = self.permits.get(key).filter(|permit| permit.is_started())?;
        let lane = self.lanes.slab.get(permit.lane())?;
        if lane.throttle.is_none() {
            let says_nothing = match word {
                Word::Passed(None) => true,
                Word::Passed(Some(report)) if report.stated.is_some() => false,
                Word::Passed(Some(report)) => match lane.plan.pace.mode {
                    Mode::Bands => report.is_comfortable(lane.in_flight),
                    Mode::Pace => false,
                    Mode::Off => report.remaining > 0,
                },
                Word::PassedFor(..) | Word::Refused(..) | Word::RefusedHere(..) | Word::Failed | Word::Disowned => {
                    false
                }
            };
            if says_nothing {
                return None;
            }
        }
        self.take_to_heart(now, key, word)
    }

    /// A report about another limit than the lane's: one of the endpoint's own. The lane is not slowed down by it.
    fn of_the_lane(&self, need: &Need, report: Option<Report>) -> Option<Report> {
        let lane = self.lanes.slab.get(need.lane)?;
        let shared = lane.shared.iter().filter_map(|holder| self.lanes.shared.get(*holder));
        let mut shared = shared.flat_map(|holder| holder.specs.iter());
        let endpoint_has_limits = !lane.plan.endpoint_own(need.endpoint).is_empty()
            || shared.any(|spec| spec.endpoint == Some(lane.plan.endpoint_hash(need.endpoint)));
        report.filter(|report| !endpoint_has_limits || report.limit == lane.plan.pace.limit)
    }

    #[cold]
    fn take_to_heart(&mut self, now: Time, key: Key, word: Word) -> Option<Notice> {
        let permit = self.permits.get(key)?;
        let (need, granted) = (permit.need(), permit.granted);
        let used = self.used(&need);
        let report = match word {
            Word::Passed(report)
            | Word::PassedFor(_, report)
            | Word::Refused(_, report)
            | Word::RefusedHere(_, report) => report,
            Word::Failed | Word::Disowned => None,
        };
        let of_the_lane = self.of_the_lane(&need, report);
        let lane = self.lanes.slab.get_mut(need.lane)?;
        let (pace, others) = (lane.plan.pace, lane.in_flight.saturating_sub(1));
        let throttle = lane.throttle.get_or_insert_default();
        let tell = |throttle: &mut Throttle| {
            of_the_lane.and_then(|report| throttle.report(now, granted, others, report, &pace))
        };
        let word = match word {
            Word::RefusedHere(wait, report) if need.endpoint == NO_ENDPOINT => Word::Refused(Wait::Told(wait), report),
            Word::RefusedHere(wait, report) => match throttle.endpoint_refused(now, key, need.endpoint, wait) {
                Some(_) => word,
                None => Word::Refused(Wait::Told(wait), report),
            },
            word => word,
        };
        let (paused, notice) = match word {
            // What was granted to the endpoint and has not left yet is taken back.
            Word::RefusedHere(..) => (true, None),
            Word::Passed(_) => {
                let recovered = throttle.passed(now, key, need.endpoint, &pace);
                let told = tell(throttle);
                (false, recovered.or(told))
            }
            Word::PassedFor(wait, _) => {
                throttle.passed(now, key, need.endpoint, &pace);
                tell(throttle);
                let until = now.plus_nanos(wait);
                (throttle.wait_until(now, until, until), Some(Notice::Exhausted { until }))
            }
            Word::Failed | Word::Disowned => {
                let is_new = word == Word::Failed || throttle.is_disowned_anew(now, granted);
                let until = if is_new { throttle.failed(now, key, need.endpoint) } else { None };
                (until.is_some(), until.map(|until| Notice::Exhausted { until }))
            }
            Word::Refused(wait, _) => {
                let (until, of_the_rate) = throttle.refused(now, key, granted, need.endpoint, wait, &pace);
                let cut = match report {
                    Some(report) if report.remaining == 0 => {
                        tell(throttle);
                        None
                    }
                    // Nothing was said, or it is not true.
                    _ if of_the_rate => {
                        let unsure = others.saturating_add(need.cost.points);
                        let passed = used.map(|(all, late)| (all.saturating_sub(unsure), late.saturating_sub(unsure)));
                        throttle.cut(now, passed, wait, &pace)
                    }
                    _ => None,
                };
                (true, Some(cut.unwrap_or(Notice::Exhausted { until })))
            }
        };
        if paused {
            self.paused(need.lane);
        } else {
            self.wake_lane(need.lane);
        }
        notice
    }

    /// A lane has come to stand: what has not left yet is taken back, and who cannot wait that long is told.
    pub(super) fn paused(&mut self, lane: Key) {
        self.revoke_in(lane);
        self.send_away(lane);
        self.wake_lane(lane);
    }

    /// Units that the lane's slowest limit has counted in its last window, those under way included, and how many of them
    /// in its last quarter.
    fn used(&mut self, need: &Need) -> Option<(u32, u32)> {
        let now = self.now;
        let lane = self.lanes.slab.get_mut(need.lane)?;
        let number = lane.plan.pace.own?;
        let since = now.minus_nanos(lane.plan.pace.window_ns / 4);
        lane.own.as_mut().get_mut(number)?.used(lane.plan.own.get(number)?, now, since)
    }

    /// Who waits in a lane and could not go before its time is up, or not for very long, is told at once.
    fn send_away(&mut self, lane: Key) {
        let queues =
            self.lanes.slab.get(lane).and_then(|lane| lane.waiting.as_ref()).map(|waiting| waiting.queues.clone());
        let waiters: Vec<Key> = queues
            .into_iter()
            .flatten()
            .filter_map(|queue| self.queues.get(queue))
            .flat_map(|queue| queue.in_order(&self.waiters))
            .collect();
        for waiter in waiters {
            if let Some(inside) = self.waiters.get(waiter)
                && let Some(refusal) = self.held_back(lane, inside.endpoint, inside.give_up)
            {
                self.refuse_waiter(waiter, refusal);
            }
        }
    }

    /// The refusal of a request that the vendor's own word holds back beyond `give_up`, or for longer than anybody is
    /// kept waiting.
    pub(super) fn held_back(&self, lane: Key, endpoint: EndpointId, give_up: Time) -> Option<Refusal> {
        let lane = self.lanes.slab.get(lane)?;
        let at = lane.throttle.as_ref()?.paused_until(endpoint);
        let too_long = at > self.now.plus_nanos(lane.plan.pace.max_hold_ns);
        (at > give_up || too_long).then_some(Refusal::RetryLater { at })
    }

    /// Everybody who waits in a lane asks again.
    pub(super) fn wake_lane(&mut self, lane: Key) {
        let Some(waiting) = self.lanes.slab.get(lane).and_then(|lane| lane.waiting.as_ref()) else { return };
        for queue in waiting.queues.clone() {
            if let Some(queue) = self.queues.get(queue) {
                let need = Need { lane, endpoint: queue.endpoint, tier: queue.tier, cost: 1.into() };
                self.wake_limits_of(&need);
            }
        }
    }

    /// A permit has ended without a word of the vendor; if it was to find out whether a pause is over, another will.
    pub(super) fn ended_unheard(&mut self, lane: Key, permit: Key) {
        let now = self.now;
        let Some(throttle) = self.lanes.slab.get_mut(lane).and_then(|lane| lane.throttle.as_mut()) else { return };
        if throttle.ended(now, permit) {
            self.wake_lane(lane);
        }
    }

    /// Whether the vendor's word lets a request go.
    #[inline]
    pub(super) fn gate(&self, need: &Need) -> Gate {
        let lane = &self.lanes.slab[need.lane];
        match &lane.throttle {
            None => Gate::Open,
            Some(throttle) => throttle.gate(self.now, need.tier, need.cost.points, &lane.plan.pace),
        }
    }

    pub(super) fn endpoint_gate(&self, need: &Need) -> Gate {
        let lane = &self.lanes.slab[need.lane];
        let Some(throttle) = &lane.throttle else { return Gate::Open };
        let others = lane.waiting.as_ref().is_some_and(|waiting| {
            let queues = waiting.queues.iter().filter_map(|queue| self.queues.get(*queue));
            queues.filter(|queue| queue.endpoint != need.endpoint).any(|queue| queue.head().is_some())
        });
        throttle.endpoint_gate(self.now, need.endpoint, others)
    }

    /// Lets nothing go until [`resume`](Self::resume).
    pub(crate) fn pause(&mut self, now: Time, lane: Key) {
        self.tick(now);
        let Some(inside) = self.lanes.slab.get_mut(lane) else { return };
        inside.throttle.get_or_insert_default().hold();
        self.revoke_in(lane);
        self.wake_lane(lane);
        self.run_turns();
    }

    /// Ends every pause of a lane.
    pub(crate) fn resume(&mut self, now: Time, lane: Key) {
        self.tick(now);
        self.forget_groups(lane);
        let Some(throttle) = self.lanes.slab.get_mut(lane).and_then(|lane| lane.throttle.as_mut()) else { return };
        throttle.resume();
        self.wake_lane(lane);
        self.run_turns();
    }

    /// Until when a lane is paused; none where it is not.
    pub(crate) fn paused_until(&self, now: Time, lane: Key) -> Option<Time> {
        let inside = self.lanes.slab.get(lane)?;
        let own = inside.throttle.as_ref().map_or(Time::ZERO, |throttle| match throttle.is_held() {
            true => Time::MAX,
            false => throttle.paused_until(NO_ENDPOINT),
        });
        let until = own.max(self.groups_wait_until(lane, inside));
        (until > now).then_some(until)
    }
}
