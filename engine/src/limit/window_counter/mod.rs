//! The guard of a limit that the vendor counts by a sliding window counter: two fixed windows, the older one weighted
//! by the part that still overlaps. A log at the full limit would be wrong here: the vendor may count a request for
//! nearly two windows.
//!
//! The vendor's windows begin at an unknown moment `b`. At `t` the vendor counts at most
//!
//! ```text
//! G(t) = in flight + max over b in (t - W, t] of [ ended since b + (1 - (t - b) / W) x ended in the W before b ]
//! ```
//!
//! A request counts by its end, the latest moment at which it may have arrived. Between two grants `G` never grows:
//! when a request arrives, the vendor counts less than `G` did when the last request before it was granted. So the
//! number of units that were found to fit is remembered, and `G` is worked out only when they are used up.
//!
//! As a function of `b` the term in brackets grows until an entry leaves one of the two windows: at the entry's end, or
//! one window after it. Only those moments, and `t` itself, can be the maximum. If the beginnings of the vendor's
//! windows are known, only those count.

mod beginning;
mod refund;
mod replay;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::VecDeque;

use beginning::{Beginning, INEXACT, Line, Phase, latest};

use super::free::Free;
use super::lost::Lost;
use super::lower::{Lower, Share, held_back};
use super::transit::Transit;
use crate::time::Time;

/// Ends are rounded up to this part of the window.
const SLOTS: u64 = 256;
/// The vendor's clock and ours drift apart by at most one part in this number.
const DRIFT: u64 = 5_000;
/// The number of windows after which a known beginning of windows is too old to use.
const PHASE_LASTS: u64 = 100;

/// What a [`WindowCounter`] copies of the vendor's counter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CounterSpec {
    /// The highest allowed `G`.
    pub(crate) limit: u32,
    /// The vendor's own figure.
    pub(crate) published: u32,
    /// Units of `limit` that only the high tier may use, until it has used as many.
    pub(crate) reserve: u32,
    /// The vendor's window and the error of its clock.
    pub(super) window: u64,
    pub(super) slot: u64,
    pub(super) transit: u64,
}

impl CounterSpec {
    /// Grants up to `limit` units, where the vendor allows `published`.
    pub fn new(limit: u32, published: u32, reserve: u32, window_ns: u64, transit: u64) -> CounterSpec {
        let window = window_ns.saturating_add(window_ns / 10_000).saturating_add(1_000_000);
        CounterSpec { limit, published, reserve: reserve.min(limit), window, slot: (window / SLOTS).max(1), transit }
    }

    fn share(&self) -> Share {
        Share { limit: self.limit, reserve: self.reserve, window: self.window }
    }

    /// The moment at which a request counts as ended that ended at `at`.
    fn rounded_up(&self, at: u64) -> u64 {
        at.div_ceil(self.slot).saturating_mul(self.slot)
    }
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    /// The end, rounded up.
    at: u64,
    units: u32,
    high: u32,
    /// Units of all requests that ended before this entry.
    before: u64,
}

/// The state of one guard.
#[derive(Clone, Debug)]
pub(crate) struct WindowCounter {
    transit: Transit,
    ended: VecDeque<Ended>,
    /// Units of all requests that ever ended.
    total: u64,
    /// One line for each past moment at which the vendor's present window may have begun.
    lines: VecDeque<Line>,
    /// The first of `ended` that is less than a window old.
    young: usize,
    /// Number of units that are known to fit.
    known: u32,
    /// Whether the counter is nearly full, so that the wait is worked out first.
    full: bool,
    /// The last result of `work_out`, while it is valid.
    wait: Option<Wait>,
    phase: Option<Phase>,
    lower: Lower,
    /// Marked with the moment at which each slot was counted as ended.
    lost: Lost,
}

/// From when on a number of units fits.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// The units of the request, and whether it is of the high tier.
    asked: (u32, bool),
    /// The units of the request and those held back at that time.
    units: u32,
    until: Time,
    /// Whether the units may also fit earlier, when a request in flight ends.
    settles: bool,
}

impl Wait {
    fn free(&self) -> Free {
        if self.settles { Free::OnSettle(self.until) } else { Free::At(self.until) }
    }
}

impl WindowCounter {
    pub(crate) fn new(spec: &CounterSpec) -> WindowCounter {
        let transit = Transit::new(spec.transit);
        WindowCounter {
            transit,
            ended: VecDeque::new(),
            total: 0,
            lines: VecDeque::new(),
            young: 0,
            known: spec.limit,
            full: false,
            wait: None,
            phase: None,
            lower: Lower::default(),
            lost: Lost::default(),
        }
    }

    fn push(&mut self, spec: &CounterSpec, at: u64, units: u32, high: u32) {
        let at = spec.rounded_up(at);
        match self.ended.back_mut() {
            Some(last) if last.at >= at => {
                last.units += units;
                last.high += high;
            }
            _ => {
                self.begins_at(spec, at);
                self.ended.push_back(Ended { at, units, high, before: self.total });
            }
        }
        self.total += u64::from(units);
    }

    /// Units of all requests that ended before `at`.
    fn ended_before(&self, at: u64) -> u64 {
        self.ended.get(self.ended.partition_point(|ended| ended.at < at)).map_or(self.total, |ended| ended.before)
    }

    fn beginning(&self, spec: &CounterSpec, at: u64) -> Beginning {
        let earlier = self.ended_before(at);
        let before = earlier - self.ended_before(at.saturating_sub(spec.window));
        Beginning { at, since: self.total - earlier, before }
    }

    /// Adds a line: the vendor's window may begin at `at`, and no request will end before that any more.
    fn begins_at(&mut self, spec: &CounterSpec, at: u64) {
        let Beginning { since, before, .. } = self.beginning(spec, at);
        let earlier = (self.total - since) as f64;
        self.lines.push_back(Line { at: at as f64, earlier, before: before as f64 });
    }

    /// Ends requests whose transit time has passed, and forgets those that no window can contain any more. Must be
    /// called before any other change at `now`.
    pub(crate) fn advance(&mut self, spec: &CounterSpec, now: Time) {
        while let Some(lost) = self.transit.lose(spec.transit, now) {
            self.push(spec, lost.at, lost.units, lost.high);
            self.lost.note(self.transit.before_loss(spec.transit, lost), spec.rounded_up(lost.at));
            self.wait = self.wait.filter(|wait| !wait.settles);
        }
        while let Some(ended) = self.ended.get(self.young)
            && ended.at.saturating_add(spec.window) <= now.as_nanos()
        {
            self.begins_at(spec, ended.at.saturating_add(spec.window));
            self.young += 1;
        }
        let oldest = now.as_nanos().saturating_sub(spec.window) as f64;
        while self.lines.pop_front_if(|line| line.at <= oldest).is_some() {}
        let horizon = spec.window.saturating_mul(2);
        self.lost.forget(|at| at.saturating_add(horizon) <= now.as_nanos());
        while self.ended.front().is_some_and(|ended| ended.at.saturating_add(horizon) <= now.as_nanos()) {
            self.ended.pop_front();
            self.young = self.young.saturating_sub(1);
            self.full &=
                self.total - self.ended.front().map_or(self.total, |first| first.before) > u64::from(spec.limit);
        }
    }

    /// Whether a window may begin at `at`, by what is known at `now`.
    fn may_begin(&self, spec: &CounterSpec, at: u64, now: u64) -> bool {
        let Some(phase) = self.phase(spec, now) else { return true };
        // Moments before and after the known beginning, counted forward.
        let since = match at.checked_sub(phase.from) {
            Some(since) => since % spec.window,
            None => (spec.window - (phase.from - at) % spec.window) % spec.window,
        };
        since <= phase.to - phase.from
    }

    /// When windows begin, widened by the drift of clocks since it was observed; `None` if it is not known.
    fn phase(&self, spec: &CounterSpec, now: u64) -> Option<Phase> {
        let Phase { from, to } = self.phase?;
        let age = now.abs_diff(from);
        if age > spec.window.saturating_mul(PHASE_LASTS) {
            return None;
        }
        // The guard's windows are a little longer than the vendor's.
        let windows = age / spec.window.max(1) + 1;
        let slack = (age / DRIFT).saturating_add(windows.saturating_mul(spec.window / 10_000 + 1_000_000));
        let phase = Phase { from: from.saturating_sub(slack), to: to.saturating_add(slack) };
        (phase.to - phase.from < spec.window / 2).then_some(phase)
    }

    /// Notes that one of the vendor's windows begins between `from` and `to`.
    pub(crate) fn begins(&mut self, spec: &CounterSpec, from: Time, to: Time) {
        let (from, to) = (from.as_nanos(), to.as_nanos());
        if to < from || to - from >= spec.window / 2 {
            return;
        }
        // The known interval may be narrower than the new one; it is kept unless the new one contradicts it.
        let known = self.phase(spec, to);
        let narrower = known.is_some_and(|known| known.to - known.from <= to - from);
        let agrees = self.may_begin(spec, from, to) || self.may_begin(spec, to, to);
        if !narrower || !agrees {
            self.phase = Some(Phase { from, to });
            self.forget_wait();
        }
    }

    /// The most units that the vendor may count at `now`, without those in flight.
    fn held(&self, spec: &CounterSpec, now: u64) -> f64 {
        match self.phase(spec, now) {
            Some(phase) => {
                let last = |at: u64| at <= now && at.saturating_add(spec.window) > now;
                let last = self.known_beginnings(spec, &phase, now).filter(|beginning| last(beginning.at));
                let held = last.map(|beginning| beginning.held(spec.window, now)).fold(0.0, f64::max);
                // A window may be about to begin.
                if self.may_begin(spec, now, now) {
                    held.max(self.beginning(spec, now).held(spec.window, now))
                } else {
                    held
                }
            }
            None => self.highest(spec, now as f64).0.max(self.beginning(spec, now).held(spec.window, now)),
        }
    }

    /// The value of the highest line at `t`, and that line.
    fn highest(&self, spec: &CounterSpec, t: f64) -> (f64, Option<Line>) {
        let (window, total) = (spec.window as f64, self.total as f64);
        let per_ns = 1.0 / window;
        let (first, second) = self.lines.as_slices();
        let mut most = (f64::NEG_INFINITY, None);
        for slice in [first, second] {
            for line in slice {
                // Ends are rounded up, so the newest may be a little after `t`.
                let age = (t - line.at).max(0.0);
                let left = ((1.0 - age * per_ns) * (1.0 + INEXACT)).min(1.0);
                let held = total - line.earlier + line.before * left;
                if held > most.0 && age < window {
                    most = (held, Some(*line));
                }
            }
        }
        most
    }

    /// All moments around `now` at which a window may begin, if that is known to an interval in each window: the ends
    /// of the intervals, and the moments inside them at which the count changes.
    fn known_beginnings<'a>(
        &'a self,
        spec: &'a CounterSpec,
        phase: &Phase,
        now: u64,
    ) -> impl Iterator<Item = Beginning> + use<'a> {
        let width = phase.to - phase.from;
        let latest = latest(phase, spec.window, now);
        (0..5).flat_map(move |number| {
            let to = latest.saturating_sub(spec.window).saturating_add(spec.window.saturating_mul(number));
            let from = to.saturating_sub(width);
            let inside = |shift: u64| {
                let first = self.ended.partition_point(|ended| ended.at.saturating_add(shift) < from);
                let inside = self.ended.range(first.min(self.ended.len())..).map(move |ended| ended.at + shift);
                inside.take_while(move |at| *at < to)
            };
            let all = inside(0).chain(inside(spec.window)).chain([to]);
            all.map(|at| self.beginning(spec, at)).collect::<Vec<_>>()
        })
    }

    /// Units held back for the high tier at `now`.
    fn held_back(&self, spec: &CounterSpec, now: u64, high: bool) -> u32 {
        if high || spec.reserve == 0 {
            return 0;
        }
        let recent = self.ended.iter().rev().take_while(|ended| ended.at.saturating_add(spec.window) > now);
        let used: u32 = self.transit.high + recent.map(|ended| ended.high).sum::<u32>();
        held_back(spec.reserve, used)
    }

    /// Counts a request of `units` granted at `now`.
    #[inline(never)]
    pub(crate) fn take(&mut self, spec: &CounterSpec, now: Time, units: u32, high: bool) {
        self.advance(spec, now);
        self.known = self.known.saturating_sub(units);
        self.forget_wait();
        self.transit.take(now, units, high);
        self.lower.take(spec.share(), now, units, high);
    }

    /// Ends a request granted at `granted`, because it was answered or failed at `now`.
    #[inline(never)]
    pub(crate) fn end(&mut self, spec: &CounterSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        if self.transit.leave(granted, units, high) {
            self.push(spec, now.as_nanos(), units, if high { units } else { 0 });
            self.wait = self.wait.filter(|wait| !wait.settles);
        }
    }

    /// Moves a request granted at `granted` to `now`, when it has started: its transit time begins there. If its
    /// transit time passed before the start, it counts twice.
    pub(crate) fn restart(&mut self, spec: &CounterSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        if self.transit.is_same_slot(granted, now) {
            return;
        }
        if self.transit.leave(granted, units, high) {
            self.lower.leave(granted, units, high);
        } else {
            self.known = self.known.saturating_sub(units);
            self.forget_wait();
        }
        self.transit.take(now, units, high);
        self.lower.take(spec.share(), now, units, high);
    }

    /// Removes a request granted at `granted` that was never sent.
    pub(crate) fn give_back(&mut self, spec: &CounterSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        if self.transit.leave(granted, units, high) {
            // How many more units fit now is unknown, because `owe` may have counted more than fitted.
            self.forget_wait();
            self.lower.leave(granted, units, high);
        }
    }

    /// Counts `units` more, because a request took more than expected.
    pub(crate) fn owe(&mut self, spec: &CounterSpec, now: Time, units: u32) {
        self.advance(spec, now);
        self.known = self.known.saturating_sub(units);
        self.forget_wait();
        self.push(spec, now.as_nanos(), units, 0);
        self.lower.take(spec.share(), now, units, false);
    }

    /// Whether no units count in any window any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.transit.units == 0 && self.ended.is_empty()
    }

    /// Whether no units and no grants to lower tiers count any more.
    pub(crate) fn rests(&self, spec: &CounterSpec, now: Time) -> bool {
        self.is_empty() && self.lower.rests(spec.share(), now)
    }

    /// Units that the vendor may count at `now`, including those in flight.
    pub(crate) fn units(&self, spec: &CounterSpec, now: Time) -> u32 {
        // A floating-point error must not count as a unit. Float to integer casts saturate.
        self.transit.units.saturating_add((self.held(spec, now.as_nanos()) * (1.0 - 2.0 * INEXACT)).ceil() as u32)
    }

    /// Units in flight.
    pub(crate) fn under_way(&self) -> u32 {
        self.transit.units
    }

    /// Units of requests that are in flight or ended after `since`.
    pub(crate) fn units_since(&self, since: Time) -> u32 {
        let late = self.ended.iter().rev().take_while(|ended| ended.at > since.as_nanos());
        self.transit.units + late.map(|ended| ended.units).sum::<u32>()
    }

    /// Adopts a changed limit.
    pub(crate) fn change(&mut self, old: &CounterSpec, new: &CounterSpec) {
        if (old.window, old.transit) != (new.window, new.transit) {
            self.lost.clear();
        }
        self.forget_known();
    }

    /// Forgets how many units fit, because the limit has changed.
    pub(crate) fn forget_known(&mut self) {
        self.forget_wait();
        self.known = 0;
    }
}
