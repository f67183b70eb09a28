//! Estimates what other clients take of a limit: the part of the vendor's count that our own count does not explain.
//!
//! | the vendor's count falls | what is compared |
//! |---|---|
//! | at a reset | units used since the first response of the window, with what we sent meanwhile |
//! | by each unit one window after it was taken | units used, with what we sent in the last window |
//! | evenly | units used since an earlier response and refilled since, with what we sent meanwhile |
//!
//! Responses overtake each other, so each comparison has two results: the likely one, if requests arrive in the order
//! in which they were granted, and the certain one, if many of them do not. Only the certain one proves that others are
//! there.

use super::edge::Edge;
use crate::pace::Mode;
use crate::pace::{Counting, Pace};
use crate::time::Time;

/// Other clients count if they take more than this share of the limit per window.
const SHARE: f64 = 0.05;
/// They must also take more than this many units: responses that overtake each other can look like as many.
const LEAST_UNITS: f64 = 1.5;
/// Units are taken to come back one by one once this share of the limit has been seen to.
const REGROWN: f64 = 0.15;
/// A new window may hold this share of the limit beyond the units known to have been taken since its beginning.
const BEGUN: f64 = 0.125;
/// Of the units whose order of arrival is unknown, at most this share arrives in another order than it was granted in.
const OVERTAKEN: f64 = 0.4;

/// The vendor's count at the moment of a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at: Time,
    /// When the answered request was granted.
    pub(super) granted: Time,
    /// Used units, by the vendor's count.
    pub(super) used: u64,
    /// Units of ours that had arrived in total, if they arrived in the order of their grants.
    pub(super) arrived: i64,
    /// Units among `arrived` that may have arrived after the answered request.
    pub(super) early: i64,
    /// Units granted later than the answered request that may have arrived before it.
    pub(super) late: i64,
    /// Units granted at the same moment as the answered request, its own included; 0 if that is not known. They may arrive
    /// in any order.
    pub(super) together: u64,
    /// Units of ours that the vendor counts at this moment, if it gives each back one window later: the likely number,
    /// and the highest possible one.
    pub(super) ours: (u32, u32),
    /// Units that we sent in the last window.
    pub(super) sent: u32,
    /// Further units that a vendor counts if it refills in lumps and not steadily.
    pub(super) behind: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// The likely rate of other clients, in units per nanosecond.
    rate: f64,
    /// The certain rate of other clients, in units per nanosecond.
    sure: f64,
    /// Both rates at the beginning of the present comparison.
    before: (f64, f64),
    first: Option<Sample>,
    last: Option<Sample>,
    /// The vendor's limit at the last response.
    limit: u64,
    /// The vendor's present window began before this moment.
    began: Option<Time>,
    /// Where the vendor's windows begin.
    pub(super) edge: Edge,
    /// For a log: units in it that are not ours, smoothed.
    level: f64,
    /// Over the last windows: units that came back one by one, less those that others took meanwhile, and units that
    /// came back all at once.
    regrown: f64,
    dropped: f64,
    /// By when a window ends for certain, if the vendor counts in windows; as of the last response.
    due: Option<Time>,
}

impl Others {
    /// Units that other clients take per window, if they take more than a negligible number.
    pub(super) fn per_window(&self, pace: &Pace) -> Option<f64> {
        let window = pace.window_ns as f64;
        let is_proven = self.sure * window > (SHARE * pace.limit as f64).max(LEAST_UNITS);
        is_proven.then_some(self.rate.max(self.sure) * window)
    }

    /// Units per nanosecond that other clients take; 0 if the number is negligible.
    pub(super) fn rate(&self, pace: &Pace) -> f64 {
        self.per_window(pace).map_or(0.0, |_| self.rate.max(self.sure))
    }

    /// Compares a response with the earlier ones.
    pub(super) fn observe(&mut self, seen: Sample, limit: u64, pace: &Pace) {
        let is_other_limit = std::mem::replace(&mut self.limit, limit) != limit;
        // Units that are used of one limit cannot be compared with those of another: when a limit falls, what is used of it
        // is cut to the lower one, which looks like the beginning of a window.
        let Some(last) = self.last.replace(seen).filter(|_| !is_other_limit) else {
            self.begin(seen);
            return;
        };
        // Responses overtake each other, so a small decrease is no new window. Between two requests that were granted at the
        // same moment, the count may fall by as many units as were granted with them.
        let overtaken = if seen.granted == last.granted { seen.together } else { 0 };
        let is_new = seen.used.saturating_add(limit / 8).saturating_add(overtaken) < last.used;
        let has_lapsed = self.has_lapsed(&last, &seen, pace);
        if pace.counting == Counting::Unstated && pace.mode == Mode::Adaptive {
            self.watch(&last, &seen, is_new, has_lapsed, limit, pace);
        }
        match self.counting(limit, pace) {
            Counting::Windows | Counting::Unstated => {
                if is_new {
                    self.began = Some(seen.at);
                    self.edge.narrow(last.granted, seen.at, pace.window_ns);
                }
                // If the vendor's algorithm is not configured, a decrease may be units that came back one by one.
                let ends_at_once = pace.counting == Counting::Windows || self.dropped > self.regrown;
                if is_new || has_lapsed {
                    if pace.mode == Mode::Adaptive && is_new && ends_at_once {
                        self.evaluate_first_response(&last, &seen, pace);
                    } else if pace.mode == Mode::Adaptive && has_lapsed {
                        self.evaluate_after_silence(&last, &seen, pace);
                    }
                    self.begin(seen);
                } else {
                    self.compare(seen, 0.0, pace);
                }
            }
            Counting::Bucket => {
                let refill = limit as f64 / pace.window_ns.max(1) as f64;
                if seen.used == 0 {
                    // The bucket is full, and may have been for any time, so this response says nothing about the rate
                    // of others.
                    self.rate /= 2.0;
                    self.sure /= 2.0;
                    self.begin(seen);
                } else {
                    self.compare(seen, refill, pace);
                }
                let since = self.first.map_or(0, |first| seen.at.since(first.at).as_nanos());
                if since > u128::from(pace.window_ns / 2) {
                    self.begin(seen);
                }
            }
            Counting::Log => {
                let window = pace.window_ns.max(1) as f64;
                let level = seen.used as f64 - f64::from(seen.ours.0);
                let sure = (seen.used as f64 - f64::from(seen.ours.1)).max(0.0) / window;
                let since = seen.at.since(last.at).as_nanos() as f64;
                let part = (since / (since + window / 8.0)).max(0.02);
                self.level += (level - self.level) * part;
                self.rate = self.level.max(0.0) / window;
                self.sure += (sure - self.sure) * part;
            }
        }
    }

    /// How the vendor's count falls: as configured or, if it is not configured, as observed.
    pub(super) fn counting(&self, limit: u64, pace: &Pace) -> Counting {
        let regrows = self.regrown > REGROWN * limit as f64 && self.regrown > 2.0 * self.dropped;
        match pace.counting {
            Counting::Unstated if regrows => Counting::Log,
            Counting::Unstated => Counting::Windows,
            stated => stated,
        }
    }

    /// Observes whether units come back one by one or all at once.
    fn watch(&mut self, last: &Sample, seen: &Sample, is_new: bool, has_lapsed: bool, limit: u64, pace: &Pace) {
        let kept = (-(seen.at.since(last.at).as_nanos() as f64) / (2.0 * pace.window_ns.max(1) as f64)).exp();
        let ours = seen.arrived.wrapping_sub(last.arrived) as f64;
        let back = last.used as f64 + ours - seen.used as f64;
        // A new window holds only what was taken since it began. If the count falls and still holds more, units come
        // back one by one.
        let since = seen.at.since(last.at).as_nanos() as f64;
        let taken = ours + 2.0 * self.rate.max(self.sure) * since + BEGUN * limit as f64;
        (self.regrown, self.dropped) = (self.regrown * kept, self.dropped * kept);
        match () {
            // The units came back unseen, in one way or the other.
            () if has_lapsed => {}
            () if is_new && seen.used as f64 <= taken => self.dropped += back,
            () => self.regrown += back,
        }
        // If the vendor counted in windows, a window would have ended meanwhile, with all the units in it.
        let has_ended = self.due.is_some_and(|due| due <= seen.granted);
        // After a silence, or if few units are used, others may have taken all that is used now.
        let was_as_high = last.used >= limit / 4 && since < pace.window_ns as f64 && seen.used as f64 > taken;
        if has_ended && !is_new && !has_lapsed && seen.used >= limit / 4 && was_as_high {
            (self.regrown, self.dropped) = (self.regrown.max(limit as f64), 0.0);
        }
        if is_new || has_ended || self.due.is_none() {
            let window = pace.window_ns;
            let next = self.edge.next(seen.at.plus_nanos(window / 2), window);
            // The window whose beginning was observed began before this response.
            let at_the_latest = is_new.then(|| seen.at.plus_nanos(window + window / 10_000));
            self.due = next.into_iter().chain(at_the_latest).min();
        }
    }

    fn begin(&mut self, seen: Sample) {
        // A rate that is likely but not certain is not carried over: responses of one burst that overtook each other
        // say nothing about the next window.
        let likely = if self.sure > 0.0 { self.rate } else { 0.0 };
        (self.before, self.first) = ((likely, self.sure), Some(seen));
    }

    /// Evaluates the first response of a window: others took the used units that we have not sent since the last
    /// response.
    fn evaluate_first_response(&mut self, last: &Sample, seen: &Sample, pace: &Pace) {
        if seen.at.since(seen.granted).as_nanos() >= u128::from(pace.window_ns) {
            // Responses take so long that none of the last window could lower the estimate (`compare`).
            self.sure /= 2.0;
        }
        let ours = seen.arrived.wrapping_sub(last.arrived) as f64;
        let sure = seen.used as f64 - ours - (seen.late + last.early) as f64 - f64::from(seen.behind);
        let (elapsed, weight) = (seen.at.since(last.at).as_nanos() as f64, pace.window_ns as f64 / 4.0);
        let sure = (sure + self.sure * weight) / (elapsed + weight).max(1.0);
        self.sure = self.sure.max(sure);
    }

    /// Whether a window of the vendor has ended between two responses, although the count did not fall much: some vendors
    /// report only when few units remain, so that no response shows the beginning of a window.
    fn has_lapsed(&self, last: &Sample, seen: &Sample, pace: &Pace) -> bool {
        let silence = seen.granted.since(last.at).as_nanos();
        let window = u128::from(pace.window_ns);
        let has_ended = || self.edge.next(last.at, pace.window_ns).is_some_and(|next| next <= seen.granted);
        silence >= window || (silence >= window / 2 && self.began != Some(last.at) && has_ended())
    }

    /// Evaluates the first response after a silence in which a window ended: others took the used units that we have not
    /// sent in the last window, because none of ours is counted for longer. An earlier estimate loses half of its weight
    /// with each window of silence.
    fn evaluate_after_silence(&mut self, last: &Sample, seen: &Sample, pace: &Pace) {
        let sure = seen.used as f64 - f64::from(seen.sent) - f64::from(seen.behind);
        let silence = seen.at.since(last.at).as_nanos().max(1) as f64;
        let window = pace.window_ns.max(1) as f64;
        let kept = 0.5_f64.powf(silence / window);
        self.rate *= kept;
        self.sure = (self.sure * kept).max(sure / silence.min(window));
    }

    fn compare(&mut self, seen: Sample, refill: f64, pace: &Pace) {
        let Some(first) = self.first else { return self.begin(seen) };
        let (elapsed, weight) = (seen.at.since(first.at).as_nanos() as f64, pace.window_ns as f64 / 4.0);
        let ours = seen.arrived.wrapping_sub(first.arrived) as f64;
        let taken = seen.used as f64 - first.used as f64 - ours + refill * elapsed;
        let sure = (taken - OVERTAKEN * (seen.late + first.early) as f64 - f64::from(seen.behind)).max(0.0);
        // Less than one unit proves nothing.
        let sure = if sure < 1.0 { 0.0 } else { sure };
        let per_ns = |taken: f64, before: f64| ((taken + before * weight) / (elapsed + weight).max(1.0)).max(0.0);
        self.rate = per_ns(taken, self.before.0);
        // Requests granted before the first response may have arrived before it, in the previous window.
        if seen.granted >= first.at || pace.mode != Mode::Adaptive {
            self.sure = per_ns(sure, self.before.1);
        }
    }

    /// The latest beginning of the vendor's next window, if the beginning of one has been observed.
    pub(super) fn next_edge(&self, now: Time, pace: &Pace) -> Option<Time> {
        let began = self.began?;
        // The edge observed just now is not the next one, although its interval may extend a little beyond `now`.
        let from = if began == now { now.plus_nanos(pace.window_ns / 2) } else { now };
        self.edge.next(from, pace.window_ns)
    }

    /// The latest beginning of the vendor's next window. It is known as soon as the beginning of one window has been
    /// observed, and more precisely than the whole seconds in which vendors state resets.
    pub(super) fn next_window(&self, now: Time, pace: &Pace) -> Option<Time> {
        let began = self.began?;
        let since = now.since(began).as_nanos();
        let window = u128::from(pace.window_ns);
        // For ten windows, the error of a clock that is off by one part in ten thousand stays small.
        (window > 0 && since < 10 * window).then(|| began.plus_nanos((window * (since / window + 1)) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Responses every 20 ms for two seconds. The vendor states that a window of one second ends at each whole second.
    /// The used units grow by one with each response, and start again at 0 after `begins_anew` responses, if that is
    /// set.
    fn counting(begins_anew: Option<u64>) -> Counting {
        let pace = Pace { unit_ns: SECOND / 100, limit: 100, window_ns: SECOND, ..Pace::default() };
        let mut others = Others::default();
        for number in 1..100_u64 {
            let at = Time::from_nanos(3_600 * SECOND + number * 20_000_000);
            let used = begins_anew.map_or(number, |after| number % after);
            let own = used as u32;
            let arrived = number as i64;
            let sample = Sample {
                at,
                granted: at,
                used,
                arrived,
                early: 0,
                late: 0,
                together: 1,
                ours: (own, own),
                sent: own,
                behind: 0,
            };
            others.observe(sample, 100, &pace);
            others.edge.stated(at, at, SECOND - (number * 20_000_000) % SECOND, SECOND);
        }
        others.counting(100, &pace)
    }

    /// Responses that report only while more than 80 of 100 units are used, by a vendor with windows of a second. We send
    /// 40 units a second, and others `others` until the window `leave`.
    fn others_seen_by_late_reports(others: u64, leave: u64) -> Others {
        let pace = Pace { unit_ns: SECOND / 100, limit: 100, window_ns: SECOND, ..Pace::default() };
        let mut seen = Others::default();
        for number in 0..1_000_u64 {
            let at = Time::from_nanos(3_600 * SECOND + number * 10_000_000);
            let (window, in_window) = (number / 100, number % 100);
            let others = if window < leave { others } else { 0 };
            let used = in_window * (40 + others) / 100;
            // When the others have left, the vendor reports once a window.
            if used <= 80 && !(window >= leave && in_window == 99) {
                continue;
            }
            let arrived = number as i64 * 4 / 10;
            let sample = Sample {
                at,
                granted: at,
                used,
                arrived,
                early: 2,
                late: 2,
                together: 1,
                ours: (40, 42),
                sent: 40,
                behind: 0,
            };
            seen.observe(sample, 100, &pace);
            seen.edge.stated(at, at, SECOND - in_window * 10_000_000, SECOND);
        }
        seen
    }

    #[test]
    fn reports_at_window_ends_show_others() {
        let pace = Pace { unit_ns: SECOND / 100, limit: 100, window_ns: SECOND, ..Pace::default() };
        // At 50 a second the count ends at 89, and at 60 at 99, which the next report is clearly below.
        for others in [50, 60] {
            let seen = others_seen_by_late_reports(others, u64::MAX);
            assert_eq!(seen.counting(100, &pace), Counting::Windows, "what came back in the silence says nothing");
            let found = seen.per_window(&pace);
            let expected = others as f64 - 12.0..=others as f64 + 12.0;
            assert!(found.is_some_and(|found| expected.contains(&found)), "{others}: {found:?}");
        }
    }

    #[test]
    fn others_who_leave_are_forgotten() {
        let pace = Pace { unit_ns: SECOND / 100, limit: 100, window_ns: SECOND, ..Pace::default() };
        assert_eq!(others_seen_by_late_reports(50, 4).per_window(&pace), None);
    }

    /// All units of each window are granted at one moment, and their responses come back in any order.
    #[test]
    fn overtaking_responses_show_no_others() {
        let pace = Pace {
            unit_ns: SECOND / 1_000,
            limit: 1_000,
            window_ns: SECOND,
            counting: Counting::Windows,
            ..Pace::default()
        };
        let mut seen = Others::default();
        for window in 0..20_u64 {
            let granted = Time::from_nanos((3_600 + window) * SECOND);
            let arrived = 1_000 * (window as i64 + 1);
            for number in 0..1_000 {
                // A step without a common divisor with the number of requests visits each once.
                let (used, at) = (1 + number * 619 % 1_000, granted.plus_nanos(10_000_000 + number * 1_000));
                let (ours, early) = ((1_000, 1_000), 999);
                seen.observe(
                    Sample {
                        at,
                        granted,
                        used,
                        arrived,
                        early,
                        late: 0,
                        together: 1_000,
                        ours,
                        sent: 1_000,
                        behind: 0,
                    },
                    1_000,
                    &pace,
                );
                assert_eq!(seen.per_window(&pace), None, "window {window}, response {number}");
            }
        }
    }

    #[test]
    fn count_across_window_ends_is_a_log() {
        assert_eq!(counting(None), Counting::Log);
        assert_eq!(counting(Some(50)), Counting::Windows);
    }

    /// Responses take two windows. Others send 60 a second for half a minute, in which two a second are ours; then all of
    /// 40 a second are.
    #[test]
    fn estimate_falls_although_responses_take_windows() {
        let pace = Pace {
            unit_ns: SECOND / 100,
            limit: 100,
            window_ns: SECOND,
            counting: Counting::Windows,
            mode: Mode::Adaptive,
        };
        let ours =
            (0..60).map(|n| n * SECOND / 2 + 9 * SECOND / 20).chain((0..1_200).map(|n| 30 * SECOND + n * SECOND / 40));
        let arrivals: Vec<u64> = ours.collect();
        let within = |from: u64, to: u64| arrivals.iter().filter(|at| (from..to).contains(*at)).count() as i64;
        let mut others = Others::default();
        let mut at_last = [0.0; 60];
        for (number, arrival) in arrivals.iter().copied().enumerate() {
            let second = arrival - arrival % SECOND;
            let of_others = if arrival < 30 * SECOND { 60 * (arrival - second) / SECOND } else { 0 };
            let own = within(second, arrival + 1) as u32;
            let granted = Time::from_nanos(3_600 * SECOND + arrival - SECOND);
            let sample = Sample {
                at: granted.plus_nanos(2 * SECOND),
                granted,
                used: u64::from(own) + of_others,
                arrived: number as i64,
                early: within(arrival.saturating_sub(2 * SECOND), arrival),
                late: within(arrival + 1, arrival + 2 * SECOND),
                together: 1,
                ours: (own, own),
                sent: own,
                behind: 0,
            };
            others.observe(sample, 100, &pace);
            at_last[(arrival / SECOND) as usize] = others.per_window(&pace).unwrap_or(0.0);
        }
        assert!(at_last[29] > 30.0, "{at_last:?}");
        assert!(at_last[40..].iter().all(|estimate| *estimate == 0.0), "{at_last:?}");
    }
}
