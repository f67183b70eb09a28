//! The guard of a limit that the vendor counts by a sliding counter: two fixed windows, the older one weighted by what
//! still overlaps. A log at the full limit is the wrong mirror of it: the vendor may weigh a request for nearly two
//! windows.
//!
//! The vendor's windows begin at a moment `b` that is not known. At `t` it holds at most
//!
//! ```text
//! G(t) = under way + max over b in (t - W, t] of [ ended since b + (1 - (t - b) / W) x ended in the W before b ]
//! ```
//!
//! A request counts by its end, the latest moment at which it may have arrived. Between two grants `G` never grows: every
//! request arrives at a vendor that holds less than what `G` was when the last of those before it was granted. So what
//! was found to fit is remembered, and `G` is worked out only when that is used up.
//!
//! As a function of `b` the term in brackets grows until an entry leaves one of the two windows: at the entry's end, or a
//! window after it. Only those moments, and `t` itself, can be the maximum. Where the vendor's windows are known to begin, only
//! those beginnings count.

use std::collections::VecDeque;

use super::transit::Transit;
use super::window_log::Free;
use crate::clock::Time;

/// Ends are rounded up to this part of the window.
const SLOTS: u64 = 128;
/// From this limit on one unit is left alone, for vendors that round.
const LEAVES_ONE: u32 = 10;
/// Of a figure of floating point, what it may be off.
const INEXACT: f64 = 1e-9;
/// A vendor's clock drifts so much against ours.
const DRIFT: u64 = 5_000;
/// So many windows after they were seen, the beginnings of windows are not known any more.
const PHASE_LASTS: u64 = 100;

/// What a [`WindowCounter`] mirrors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CounterSpec {
    /// Most that `G` may be.
    pub(crate) limit: u32,
    /// What the vendor allows.
    pub(crate) published: u32,
    /// Of these, units that only the high tier may use while it has not used as many.
    pub(crate) reserve: u32,
    /// The vendor's window and what its clock may be off.
    window: u64,
    slot: u64,
    transit: u64,
}

impl CounterSpec {
    pub(crate) fn new(limit: u32, reserve: u32, window_ns: u64, transit: u64) -> CounterSpec {
        let window = window_ns.saturating_add(window_ns / 10_000).saturating_add(1_000_000);
        let published = limit;
        let limit = if limit >= LEAVES_ONE { limit - 1 } else { limit };
        CounterSpec { limit, published, reserve: reserve.min(limit), window, slot: (window / SLOTS).max(1), transit }
    }
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    /// The end, rounded up.
    at: u64,
    units: u32,
    high: u32,
    /// Units of all that ended before.
    before: u64,
}

/// When the vendor's windows begin: between `from` and `to`, and whole windows after that.
#[derive(Clone, Copy, Debug)]
struct Phase {
    from: u64,
    to: u64,
}

/// One guard's state.
#[derive(Clone, Debug)]
pub(crate) struct WindowCounter {
    transit: Transit,
    ended: VecDeque<Ended>,
    /// Units of all that ever ended.
    total: u64,
    /// Units of which it is known that they fit.
    known: u32,
    phase: Option<Phase>,
}

/// A moment at which the vendor's window may have begun, what ended since, and what ended in the window before.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    at: u64,
    since: u64,
    before: u64,
}

impl Beginning {
    /// What the vendor holds at `t`, if its window began here.
    fn held(&self, spec: &CounterSpec, t: u64) -> f64 {
        let left = spec.window.saturating_sub(t.saturating_sub(self.at)) as f64 / spec.window as f64;
        self.since as f64 + self.before as f64 * left * (1.0 + INEXACT)
    }

    /// From when on that is at most `most`.
    fn falls_to(&self, spec: &CounterSpec, most: f64) -> u64 {
        let (since, before) = (self.since as f64, self.before as f64 * (1.0 + INEXACT));
        if since + before <= most {
            return 0;
        }
        let gone = self.at.saturating_add(spec.window);
        if since > most || before <= 0.0 {
            return gone;
        }
        let share = 1.0 - (most - since) / before;
        let after = (spec.window as f64 * share).ceil() as u64;
        self.at.saturating_add(after).saturating_add(1 + (spec.window >> 44)).min(gone)
    }
}

/// Walks through all moments at which the vendor's window may have begun, from a time on, in order.
struct Beginnings<'a> {
    ended: &'a VecDeque<Ended>,
    total: u64,
    window: u64,
    /// The next entry at whose end a window may begin, and the next one window after whose end one may.
    next: usize,
    next_late: usize,
    /// The first entry that is not before the last moment, and the first that is not before the window before it.
    first: usize,
    first_late: usize,
}

impl<'a> Beginnings<'a> {
    fn new(guard: &'a WindowCounter, window: u64) -> Beginnings<'a> {
        Beginnings {
            ended: &guard.ended,
            total: guard.total,
            window,
            next: 0,
            next_late: 0,
            first: 0,
            first_late: 0,
        }
    }

    fn before(&self, index: usize) -> u64 {
        self.ended.get(index).map_or(self.total, |ended| ended.before)
    }

    /// As things are when a window begins at `at`; `at` never falls.
    fn at(&mut self, at: u64) -> Beginning {
        let from = at.saturating_sub(self.window);
        while self.ended.get(self.first).is_some_and(|ended| ended.at < at) {
            self.first += 1;
        }
        while self.ended.get(self.first_late).is_some_and(|ended| ended.at < from) {
            self.first_late += 1;
        }
        let since = self.before(self.first);
        Beginning { at, since: self.total - since, before: since - self.before(self.first_late) }
    }

    fn peek(&self) -> Option<u64> {
        let early = self.ended.get(self.next).map(|ended| ended.at);
        let late = self.ended.get(self.next_late).map(|ended| ended.at.saturating_add(self.window));
        match (early, late) {
            (Some(early), Some(late)) => Some(early.min(late)),
            (early, late) => early.or(late),
        }
    }

    fn advance(&mut self) -> Option<u64> {
        let at = self.peek()?;
        if self.ended.get(self.next).is_some_and(|ended| ended.at <= at) {
            self.next += 1;
        }
        if self.ended.get(self.next_late).is_some_and(|ended| ended.at.saturating_add(self.window) <= at) {
            self.next_late += 1;
        }
        Some(at)
    }
}

impl WindowCounter {
    pub(crate) fn new(spec: &CounterSpec) -> WindowCounter {
        let transit = Transit::new(spec.transit);
        WindowCounter { transit, ended: VecDeque::new(), total: 0, known: spec.limit, phase: None }
    }

    fn push(&mut self, spec: &CounterSpec, at: u64, units: u32, high: u32) {
        let at = at.div_ceil(spec.slot).saturating_mul(spec.slot);
        match self.ended.back_mut() {
            Some(last) if last.at >= at => {
                last.units += units;
                last.high += high;
            }
            _ => self.ended.push_back(Ended { at, units, high, before: self.total }),
        }
        self.total += u64::from(units);
    }

    /// Ends what has run into its transit time, and forgets what no window can hold any more. Comes before everything
    /// else that happens at `now`.
    pub(crate) fn advance(&mut self, spec: &CounterSpec, now: Time) {
        while let Some(lost) = self.transit.lose(spec.transit, now) {
            self.push(spec, lost.at, lost.units, lost.high);
        }
        let horizon = spec.window.saturating_mul(2);
        while self.ended.front().is_some_and(|ended| ended.at.saturating_add(horizon) < now.as_nanos()) {
            self.ended.pop_front();
        }
    }

    /// Whether a window may begin at `at`, as far as is known at `now`.
    fn may_begin(&self, spec: &CounterSpec, at: u64, now: u64) -> bool {
        let Some(phase) = self.phase(spec, now) else { return true };
        // Moments before and after it, counted forward.
        let since = match at.checked_sub(phase.from) {
            Some(since) => since % spec.window,
            None => (spec.window - (phase.from - at) % spec.window) % spec.window,
        };
        since <= phase.to - phase.from
    }

    /// When windows begin, with what clocks may have drifted since that was seen; none where it is not known.
    fn phase(&self, spec: &CounterSpec, now: u64) -> Option<Phase> {
        let Phase { from, to } = self.phase?;
        let age = now.abs_diff(from);
        if age > spec.window.saturating_mul(PHASE_LASTS) {
            return None;
        }
        // The mirror's windows are a little longer than the vendor's.
        let windows = age / spec.window.max(1) + 1;
        let slack = (age / DRIFT).saturating_add(windows.saturating_mul(spec.window / 10_000 + 1_000_000));
        let phase = Phase { from: from.saturating_sub(slack), to: to.saturating_add(slack) };
        (phase.to - phase.from < spec.window / 2).then_some(phase)
    }

    /// A window of the vendor begins between `from` and `to`.
    pub(crate) fn begins(&mut self, spec: &CounterSpec, from: Time, to: Time) {
        let (from, to) = (from.as_nanos(), to.as_nanos());
        if to < from || to - from >= spec.window / 2 {
            return;
        }
        // What was known may be better than what is heard, unless it contradicts it.
        let known = self.phase(spec, to);
        let narrower = known.is_some_and(|known| known.to - known.from <= to - from);
        let agrees = self.may_begin(spec, from, to) || self.may_begin(spec, to, to);
        if !narrower || !agrees {
            self.phase = Some(Phase { from, to });
            self.known = 0;
        }
    }

    /// The most that the vendor may hold at `now`, beside what is under way.
    fn held(&self, spec: &CounterSpec, now: u64) -> f64 {
        let mut beginnings = Beginnings::new(self, spec.window);
        let oldest = now.saturating_sub(spec.window);
        let mut most: f64 = 0.0;
        let phase = self.phase(spec, now);
        // The latest end of an interval in which a window may begin, which may be later than any entry.
        let mut edges = phase.map(|phase| latest(&phase, spec.window, now)).into_iter().flatten().peekable();
        while let Some(at) = beginnings.peek().filter(|at| *at <= now) {
            if let Some(edge) = edges.next_if(|edge| *edge <= at) {
                if edge > oldest {
                    most = most.max(beginnings.at(edge).held(spec, now));
                }
                continue;
            }
            beginnings.advance();
            if at > oldest && self.may_begin(spec, at, now) {
                most = most.max(beginnings.at(at).held(spec, now));
            }
        }
        for edge in edges.filter(|edge| *edge > oldest) {
            most = most.max(beginnings.at(edge).held(spec, now));
        }
        if self.may_begin(spec, now, now) {
            most = most.max(beginnings.at(now).held(spec, now));
        }
        most
    }

    /// Units that are held back for the high tier at `now`.
    fn held_back(&self, spec: &CounterSpec, now: u64, high: bool) -> u32 {
        if high || spec.reserve == 0 {
            return 0;
        }
        let recent = self.ended.iter().rev().take_while(|ended| ended.at.saturating_add(spec.window) > now);
        let used: u32 = self.transit.high + recent.map(|ended| ended.high).sum::<u32>();
        spec.reserve.saturating_sub(used)
    }

    pub(crate) fn has_room(&mut self, spec: &CounterSpec, now: Time, units: u32, high: bool) -> bool {
        self.advance(spec, now);
        let wanted = u64::from(units) + u64::from(self.held_back(spec, now.as_nanos(), high));
        if wanted <= u64::from(self.known) {
            return true;
        }
        let left = f64::from(spec.limit) - f64::from(self.transit.units) - self.held(spec, now.as_nanos());
        // Float to integer casts saturate.
        self.known = left.floor() as u32;
        wanted <= u64::from(self.known)
    }

    pub(crate) fn only_reserve_lacks(&mut self, spec: &CounterSpec, now: Time, units: u32) -> bool {
        self.has_room(spec, now, units, true)
    }

    /// When `units` fit.
    pub(crate) fn free(&mut self, spec: &CounterSpec, now: Time, units: u32, high: bool) -> Free {
        if self.has_room(spec, now, units, high) {
            return Free::Now;
        }
        let mut at = now.as_nanos();
        loop {
            let wanted = u64::from(units) + u64::from(self.held_back(spec, at, high)) + u64::from(self.transit.units);
            let most = i64::from(spec.limit) - i64::try_from(wanted).unwrap_or(i64::MAX);
            if most < 0 {
                // Not before something that is under way ends.
                let lost = self.transit.all_lost_at(spec.transit).max(at);
                return Free::OnSettle(Time::from_nanos(lost.saturating_add(spec.window.saturating_mul(2)) + spec.slot));
            }
            let free = self.falls_to(spec, at, most as f64);
            if free <= at {
                // What is under way counts in full; what has ended does so for one window at most.
                let helps = self.transit.units > 0
                    && (self.phase.is_some() || at > now.as_nanos().saturating_add(spec.window));
                let at = Time::from_nanos(at);
                return if helps { Free::OnSettle(at) } else { Free::At(at) };
            }
            // What is held back may have grown until then.
            at = free;
        }
    }

    /// From when on the vendor holds at most `most`, at `now` or later.
    fn falls_to(&self, spec: &CounterSpec, now: u64, most: f64) -> u64 {
        let mut beginnings = Beginnings::new(self, spec.window);
        let oldest = now.saturating_sub(spec.window);
        let mut at = now;
        let Some(phase) = self.phase(spec, now) else {
            while let Some(edge) = beginnings.advance() {
                if edge > oldest {
                    at = at.max(beginnings.at(edge).falls_to(spec, most));
                }
            }
            return at;
        };
        // Windows that have not begun by then mean nothing yet.
        let mut edges = latest(&phase, spec.window, now).into_iter().chain(later(&phase, spec.window, now)).peekable();
        while let Some(edge) = [beginnings.peek(), edges.peek().copied()].into_iter().flatten().min() {
            if edge > at && !self.may_begin(spec, at, now) {
                break;
            }
            if edges.next_if(|next| *next <= edge).is_none() {
                beginnings.advance();
                if !self.may_begin(spec, edge, now) {
                    continue;
                }
            }
            if edge > oldest {
                at = at.max(beginnings.at(edge).falls_to(spec, most));
            }
        }
        at
    }

    /// A request of `units` was granted at `now`.
    pub(crate) fn take(&mut self, spec: &CounterSpec, now: Time, units: u32, high: bool) {
        self.advance(spec, now);
        self.known = self.known.saturating_sub(units);
        self.transit.take(now, units, high);
    }

    /// What was granted at `granted` has been answered, or has failed, at `now`.
    pub(crate) fn end(&mut self, spec: &CounterSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        if self.transit.leave(granted, units, high) {
            self.push(spec, now.as_nanos(), units, if high { units } else { 0 });
        }
    }

    /// What was granted at `granted` has started at `now` only: its transit time runs from here. Should the time have
    /// run out before the start, it is counted a second time.
    pub(crate) fn restart(&mut self, spec: &CounterSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        if self.transit.is_same_slot(granted, now) {
            return;
        }
        if !self.transit.leave(granted, units, high) {
            self.known = self.known.saturating_sub(units);
        }
        self.transit.take(now, units, high);
    }

    /// What was granted at `granted` never left.
    pub(crate) fn give_back(&mut self, spec: &CounterSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        if self.transit.leave(granted, units, high) {
            self.known = self.known.saturating_add(units).min(spec.limit);
        }
    }

    /// It took `units` more than was believed.
    pub(crate) fn owe(&mut self, spec: &CounterSpec, now: Time, units: u32) {
        self.advance(spec, now);
        self.known = self.known.saturating_sub(units);
        self.push(spec, now.as_nanos(), units, 0);
    }

    /// Nothing is inside any window any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.transit.units == 0 && self.ended.is_empty()
    }

    /// Units that the vendor may hold at `now`.
    pub(crate) fn units(&self, spec: &CounterSpec, now: Time) -> u32 {
        // Float to integer casts saturate.
        self.transit.units.saturating_add(self.held(spec, now.as_nanos()).ceil() as u32)
    }

    /// Units that ended later than `since` or are under way.
    pub(crate) fn units_since(&self, since: Time) -> u32 {
        let late = self.ended.iter().rev().take_while(|ended| ended.at > since.as_nanos());
        self.transit.units + late.map(|ended| ended.units).sum::<u32>()
    }

    /// The limit has changed: what was known to fit is not any more.
    pub(crate) fn forget_known(&mut self) {
        self.known = 0;
    }
}

/// The last moment not after `now` at which a window may begin, and the one before it.
fn latest(phase: &Phase, window: u64, now: u64) -> [u64; 2] {
    let to = phase.to;
    let last = match now.checked_sub(to) {
        Some(since) => to + since / window * window,
        None => match (to - now).div_ceil(window).checked_mul(window) {
            Some(back) => to.saturating_sub(back),
            None => 0,
        },
    };
    [last.saturating_sub(window), last]
}

/// The next moments after `now` at which a window may have begun at the latest.
fn later(phase: &Phase, window: u64, now: u64) -> [u64; 3] {
    let [_, last] = latest(phase, window, now);
    [1, 2, 3].map(|number| last.saturating_add(window.saturating_mul(number)))
}
