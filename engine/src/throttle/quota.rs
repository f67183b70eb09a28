//! Slows a limit down by the remaining units that its vendor reports.

use super::foreign::Foreign;
use super::others::{Others, Sample};
use super::recent::Recent;
use super::report::{Books, Report};
use crate::pace::{Counting, Pace};
use crate::pace::{FIRST_GUESS, LEAST_PAUSE, Mode, TIER_TURN};
use crate::time::Time;
use std::collections::VecDeque;

/// Bands of headroom: below this percentage, this many hundredths of the rate.
const BANDS: [(u64, u64); 3] = [(10, 25), (20, 50), (30, 75)];
/// The rate rises to a higher band only this many percent above the band's threshold.
const HYSTERESIS: u64 = 3;
/// Extra wait after a stated reset, in nanoseconds, because the vendor's clock may be late; at most a twentieth of the
/// window.
const AFTER_RESET: u64 = 500_000_000;
/// Others may take units this much earlier than at an even rate, as a share of what they take per window.
const UNEVEN: f64 = 0.04;
/// Grants remembered one by one, to know which of them had arrived when the vendor responded.
const MAX_GRANTS: usize = 512;
/// If units come back one by one, our own count decides, and the spacing may be too short by this factor.
const SHORTER: f64 = 1.05;
/// For a log that others use: the share of their leftover rate at which grants go when nothing remains. The speed rises
/// with the remaining units, up to [`SHORTER`].
const SLOWEST: f64 = 0.4;
/// For such a log: the share of the limit, beyond the units kept free, that must remain for full speed.
const NEARLY_ALL: f64 = 0.01;
/// For such a log: at most the limit divided by this is kept free, beyond one unit, until a unit of ours expires.
const MAX_SPARE: u64 = 16;
/// A client that shares a bucket sends at its full rate while at least this share of the bucket remains, and
/// proportionally slower below. All clients see the same level, so all send alike; units left in a bucket are not lost.
const PLENTY: f64 = 0.5;
/// Of the units that a client has beyond half of a shared log, one part in this number is left to others.
const SURPLUS: u64 = 5;
/// Our own count explains that nothing remains of a window if it lacks less than one part in this number of the limit.
const EXPLAINED: u64 = 20;
/// The lowest share of the full rate: only responses can show that more units remain.
const LEAST_RATE: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedQuota {
    limit: u64,
    /// Units that may still be granted; negative if units were granted as they came back.
    pub(super) credit: i64,
    at: Time,
    /// The report holds until this moment.
    pub(super) until: Time,
    /// The rate, in hundredths of the full rate.
    pub(super) share: u64,
    pub(super) percent: u64,
    /// The time between grants, in nanoseconds, if the rate is not a share of the limit's own.
    pub(super) spacing: Option<u64>,
    /// Units per nanosecond that other clients take.
    others: f64,
    /// For a log: units in it that are not ours.
    foreign: u32,
    /// Units that others may take while a request travels to the vendor.
    margin: u32,
    /// Whether units come back one by one.
    regrows: bool,
}

impl ReportedQuota {
    /// When `cost` units may be granted.
    pub(super) fn free(&self, now: Time, cost: u32, pace: &Pace) -> Time {
        let cost = i64::from(cost);
        let since = now.since(self.at).as_nanos() as f64;
        // Others take units in between, and not evenly.
        let uneven = UNEVEN * self.others * pace.window_ns as f64;
        let taken = if self.others > 0.0 { (self.others * since + uneven) as i64 + 1 } else { 0 };
        if self.credit.saturating_sub(taken) >= cost {
            return now;
        }
        if self.regrows && pace.window_ns > 0 {
            // Others take a part of the units that come back.
            let unit = (pace.window_ns / self.limit.max(1)).max(self.spacing.unwrap_or(0));
            let lacking = cost.saturating_sub(self.credit).unsigned_abs();
            return self.at.plus_nanos(unit.saturating_mul(lacking)).min(self.until);
        }
        self.until
    }
}

/// What a limit's reports have established.
#[derive(Clone, Debug, Default)]
pub(super) struct QuotaTracker {
    pub(super) told: Option<ReportedQuota>,
    /// When the request was granted whose response was applied last: responses to earlier requests are out of date.
    told_of: Time,
    /// Units granted in total.
    granted: u64,
    /// Units granted in total up to `told_of`.
    granted_through: u64,
    /// Grants after `told_of`: the time, and the units granted in total up to it.
    grants: VecDeque<(Time, u64)>,
    /// The last moment up to `told_of` at which units were granted, and how many at that moment.
    together: (Time, u64),
    pub(super) others: Others,
    /// Units of the vendor's count that our own count does not explain, as of the last response.
    unexplained: u32,
    /// The time between grant and response, smoothed, in nanoseconds.
    round_trip: u64,
    /// Responses after `told_of`: the time, and the units answered in total up to it. `ended` is the total up to
    /// `told_of`.
    ends: VecDeque<(Time, i64)>,
    ended: i64,
    /// Units granted in the last window.
    pub(super) recent: Recent,
    /// Units in a log that other clients took.
    pub(super) foreign: Foreign,
}

/// What a report changes.
pub(super) enum QuotaEvent {
    Slower { percent: u64 },
    Exhausted,
}

impl QuotaTracker {
    pub(super) fn granted(&mut self, now: Time, units: u32, pace: &Pace) {
        if pace.mode == Mode::Adaptive && pace.window_ns > 0 {
            self.recent.granted(now, units, pace.window_ns);
        }
        self.granted = self.granted.wrapping_add(u64::from(units));
        match self.grants.back_mut().filter(|(at, _)| *at == now) {
            Some((_, total)) => *total = self.granted,
            None => remember(&mut self.grants, (now, self.granted)),
        }
        if let Some(told) = &mut self.told {
            told.credit = told.credit.saturating_sub(i64::from(units));
        }
    }

    /// Units granted after `time`.
    pub(super) fn granted_after(&mut self, time: Time) -> u64 {
        while let Some((at, through)) = self.grants.pop_front_if(|(at, _)| *at <= time) {
            self.together = (at, through.wrapping_sub(self.granted_through));
            self.granted_through = through;
        }
        self.granted.wrapping_sub(self.granted_through)
    }

    /// When the request was granted whose response was applied last.
    pub(super) fn told_of(&self) -> Time {
        self.told_of
    }

    /// Notes that a request was refused for this limit.
    pub(super) fn refused(&mut self) {
        self.foreign.refused();
    }

    /// Believes the report that was applied at `now` until `until` at the latest. Returns whether one was applied.
    pub(super) fn believe_until(&mut self, now: Time, until: Time) -> bool {
        let Some(told) = self.told.as_mut().filter(|told| told.at == now) else { return false };
        told.until = told.until.min(until);
        true
    }

    pub(super) fn forget_past(&mut self, now: Time) {
        if self.told.is_some_and(|told| told.until <= now) {
            self.told = None;
        }
    }

    /// Units per window that other clients take; `None` if there are none.
    pub(super) fn others(&self, pace: &Pace) -> Option<u64> {
        self.others.per_window(pace).map(|taken| taken as u64)
    }

    pub(super) fn unexplained(&self) -> u32 {
        self.unexplained
    }

    /// Units to keep free for others, beyond what our own count holds.
    pub(super) fn held(&self, now: Time, pace: &Pace) -> u32 {
        let Some(told) = self.told.filter(|told| told.until > now && pace.mode == Mode::Adaptive) else { return 0 };
        // A figure loses weight after half a window without a report, and is worthless after a whole window.
        let since = now.since(told.at).as_nanos() as f64 / pace.window_ns.max(1) as f64;
        let known = (2.0 - 2.0 * since).clamp(0.0, 1.0);
        told.margin.saturating_add((f64::from(told.foreign) * known).ceil() as u32)
    }

    /// Applies a report in the response to a request granted at `granted`. `books` is our own count at that time,
    /// without that request among those in flight.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        granted: Time,
        books: Books,
        report: &Report,
        pace: &Pace,
    ) -> Option<QuotaEvent> {
        let remaining = report.remaining.min(report.limit);
        self.unexplained = 0;
        let ended = (self.granted as i64).wrapping_sub(i64::from(books.under_way));
        if pace.mode == Mode::Adaptive {
            if self.ends.is_empty() && self.ended == 0 {
                // Units granted before the first report may all be in flight.
                self.ended = ended.wrapping_sub(i64::from(books.units) + 1);
            }
            remember(&mut self.ends, (now, ended));
        }
        if granted < self.told_of || report.limit == 0 || (pace.mode == Mode::Off && remaining > 0) {
            return None;
        }
        self.told_of = granted;
        let took = u64::try_from(now.since(granted).as_nanos()).unwrap_or(u64::MAX);
        self.round_trip = if self.round_trip == 0 { took } else { self.round_trip - self.round_trip / 8 + took / 8 };
        let unarrived = self.granted_after(granted);
        let used = report.limit - remaining;
        let late = i64::try_from(unarrived).unwrap_or(i64::MAX);
        let ours = books.units.saturating_sub(u32::try_from(unarrived).unwrap_or(u32::MAX));
        // `bands` ignores the order of arrival: all requests in flight may still be on their way.
        let (arrived, early, late) = match pace.mode {
            Mode::Adaptive => {
                while let Some((_, ended)) = self.ends.pop_front_if(|(at, _)| *at <= granted) {
                    self.ended = ended;
                }
                let arrived = (self.granted as i64).wrapping_sub(late);
                (arrived, arrived.wrapping_sub(self.ended).max(0), late)
            }
            _ => (ended, 0, 0),
        };
        if pace.window_ns > 0 && (pace.mode == Mode::Adaptive || !pace.counting.regrows()) {
            let (ours, behind) = (self.ours(now, ours, unarrived, books, report.limit, pace), books.behind);
            let sent = self.recent.units(now, pace.window_ns).unwrap_or(books.units);
            let together = if self.together.0 == granted { self.together.1 } else { 0 };
            let seen = Sample { at: now, granted, used, arrived, early, late, together, ours, sent, behind };
            self.others.observe(seen, report.limit, pace);
            if let Some(reset) = report.reset_ns.filter(|_| pace.mode == Mode::Adaptive) {
                self.others.edge.stated(granted, now, reset, pace.window_ns);
            }
        }
        match pace.mode {
            Mode::Adaptive => self.adapt(now, books, unarrived, report, pace),
            _ => self.slow_down(now, books, report, pace),
        }
    }

    /// Units of ours that the vendor counts in its response: the likely number, and the highest possible one. The guard
    /// of a limit whose algorithm is unknown counts more than any one vendor does.
    fn ours(&mut self, now: Time, ours: u32, unarrived: u64, books: Books, limit: u64, pace: &Pace) -> (u32, u32) {
        let is_as_mirrored =
            pace.counting != Counting::Unstated || self.others.counting(limit, pace) == Counting::Windows;
        if pace.mode != Mode::Adaptive || is_as_mirrored {
            return (ours, books.units);
        }
        let Some(sent) = self.recent.units(now, pace.window_ns) else { return (ours, books.units) };
        (sent.saturating_sub(u32::try_from(unarrived).unwrap_or(u32::MAX)), sent)
    }

    /// Slows down by the remaining units alone, whichever client took the others.
    fn slow_down(&mut self, now: Time, books: Books, report: &Report, pace: &Pace) -> Option<QuotaEvent> {
        let remaining = report.remaining.min(report.limit);
        let percent = report.percent();
        let known = self.told.filter(|told| told.until > now);
        let (before, was_empty) = known.map_or((100, false), |told| (told.share, told.percent == 0));
        let band = band(percent, before);
        let share = if pace.mode == Mode::Bands { band } else { 100 };
        let (until, next) = self.until(now, report, pace);
        let paced = pace.mode == Mode::Pace && remaining > 0 && report.reset_ns.is_some();
        let spacing = paced.then(|| {
            let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
            // A reset in whole seconds is up to a second late. The beginning of a window that was observed is more
            // precise.
            let reset = report.reset_ns.unwrap_or(window);
            let reset = next.map_or(reset, |next| reset.min(next.since(now).as_nanos() as u64)).max(1) as f64;
            // Units that come back one by one come back until the reset too.
            let regrown = if pace.counting.regrows() { report.limit as f64 / window as f64 } else { 0.0 };
            (1.0 / (remaining as f64 / reset + regrown)) as u64
        });
        let credit = i64::try_from(remaining.saturating_sub(u64::from(books.under_way))).unwrap_or(i64::MAX);
        let others = if pace.counting.regrows() { 0.0 } else { self.others.rate(pace) };
        let (limit, at) = (report.limit, now);
        self.told = Some(ReportedQuota {
            limit,
            credit,
            at,
            until,
            share,
            percent,
            spacing,
            others,
            foreign: 0,
            margin: 0,
            regrows: pace.counting.regrows(),
        });
        match remaining {
            0 => (!was_empty).then_some(QuotaEvent::Exhausted),
            _ => (share < before).then_some(QuotaEvent::Slower { percent }),
        }
    }

    /// Slows down by the remaining units and by which client took the others: usage that our own count explains slows
    /// nothing down. `unarrived`: units granted after the answered request.
    fn adapt(&mut self, now: Time, books: Books, unarrived: u64, report: &Report, pace: &Pace) -> Option<QuotaEvent> {
        let (limit, remaining) = (report.limit, report.remaining.min(report.limit));
        let used = limit - remaining;
        let counting = self.others.counting(limit, pace);
        let own = books.units.saturating_sub(u32::try_from(unarrived).unwrap_or(u32::MAX));
        let (arrived, own) = self.ours(now, own, unarrived, books, limit, pace);
        // Vendors round the remaining units down.
        let unexplained = used.saturating_sub(u64::from(own) + u64::from(books.behind)).saturating_sub(1);
        self.unexplained = u32::try_from(unexplained).unwrap_or(u32::MAX);
        let known = self.told.take().filter(|told| told.until > now);
        let is_shared = self.others.per_window(pace).is_some() || unexplained > (limit / 20).max(2);
        // Others may have taken a little less than at the last report and still be there.
        let is_known = (known.is_some() || counting == Counting::Log) && unexplained > 0;
        // Nothing remains, and our own count does not explain it, so only the vendor's report counts. If a window's
        // units come back together, even a few units that are not ours prove that. If units come back one by one, most
        // must be others'.
        let explained = match counting {
            _ if counting.regrows() => limit / 4,
            // In a window that is configured as one, no unit comes back before its end.
            Counting::Windows if pace.counting == Counting::Windows => limit,
            _ => limit - limit / EXPLAINED,
        };
        let waits = remaining == 0 && u64::from(books.units) < explained;
        let ends_at_once = waits && !counting.regrows();
        if pace.window_ns == 0 || !(is_shared || is_known || ends_at_once) {
            return None;
        }
        let others = self.others.rate(pace);
        let percent = report.percent();
        let (before, was_empty) = known.map_or((100, false), |told| (told.share, told.percent == 0));
        let share = band(percent, before);
        let (reset, _) = self.until(now, report, pace);
        let (at, window) = (now, pace.window_ns as f64);
        let full = limit as f64 / window;
        let told = ReportedQuota {
            limit,
            credit: i64::MAX / 2,
            at,
            until: now.plus_nanos(pace.window_ns),
            share,
            percent,
            spacing: None,
            others: 0.0,
            foreign: 0,
            margin: 0,
            regrows: counting.regrows(),
        };
        let told = if waits && counting.regrows() { ReportedQuota { credit: 0, until: reset, ..told } } else { told };
        let margin = ((others * self.round_trip as f64 * 1.5).ceil() as u32).saturating_add(1);
        // At least the fair share of two clients, as below.
        let spacing = Some((1.0 / ((full - others).max(full / 2.0) * SHORTER)) as u64);
        self.told = Some(match counting {
            Counting::Windows | Counting::Unstated => {
                let left = remaining.saturating_sub(u64::from(books.under_way)) as f64;
                let until = self.others.next_edge(now, pace).unwrap_or(reset).max(now.plus_nanos(1));
                let rest = until.since(now).as_nanos() as f64;
                // At least the fair share of two clients: otherwise, if two clients both yield, one of them would yield
                // everything.
                let rate = (left / rest - others).max(left / rest / 2.0).max(1.0 / window);
                let spacing = (remaining > 0).then_some((1.0 / rate) as u64);
                ReportedQuota { credit: left as i64, until, spacing, others, ..told }
            }
            Counting::Log => {
                // A client with more than half of the log leaves a part of the excess free, which the other client
                // takes.
                let surplus = if is_shared { u64::from(own).saturating_sub(limit / 2) } else { 0 };
                let left = remaining.saturating_sub(unarrived);
                // While many units remain, no request has to wait for units to come back.
                let is_scarce = (left as f64) < PLENTY * limit as f64;
                let foreign = u32::try_from(used.saturating_sub(u64::from(arrived))).unwrap_or(u32::MAX);
                self.foreign.seen(now, foreign, remaining, limit, self.round_trip, pace.window_ns);
                let on_the_way = (others * self.round_trip as f64 / 2.0).round();
                let kept_free = f64::from(self.foreign.margin()).max(1.0 + on_the_way) + (surplus / SURPLUS) as f64;
                // This is in addition to one unit, which the spacing keeps free.
                let most = u32::try_from(limit / MAX_SPARE).unwrap_or(u32::MAX);
                let spare = (self.foreign.margin() - 1).min(most);
                let told = match pace.counting {
                    // If fewer units remain, only a returning unit of ours makes room: units of others come back to
                    // them.
                    Counting::Log => ReportedQuota { foreign: self.foreign.held(), margin: spare, ..told },
                    // Our guard counts too much, so the vendor's report alone decides.
                    _ => told,
                };
                if is_scarce {
                    // A few units stay free: the fewer remain beyond those, the slower the grants.
                    let enough = kept_free + NEARLY_ALL * limit as f64;
                    let speed = SLOWEST + (SHORTER - SLOWEST) * (left as f64 / enough).min(1.0);
                    let rate = (full - others).max(full / 2.0) * speed;
                    let usable = if pace.counting == Counting::Log { left } else { left.saturating_sub(spare.into()) };
                    let credit = i64::try_from(usable).unwrap_or(i64::MAX).min(told.credit);
                    ReportedQuota { credit, spacing: Some((1.0 / rate) as u64), ..told }
                } else {
                    told
                }
            }
            Counting::Bucket => {
                let left = remaining.saturating_sub(u64::from(books.under_way)) as f64;
                let part = (left / (PLENTY * limit as f64).max(2.0)).clamp(LEAST_RATE, 1.0);
                let by_level = Some((1.0 / (full * part)) as u64);
                ReportedQuota { spacing: if is_shared { by_level } else { spacing }, margin, ..told }
            }
        });
        match remaining {
            0 => (!was_empty).then_some(QuotaEvent::Exhausted),
            _ => (share < before).then_some(QuotaEvent::Slower { percent }),
        }
    }

    /// Until when a report holds, and when the vendor's next window begins, if that is known more precisely than the
    /// report states it.
    fn until(&self, now: Time, report: &Report, pace: &Pace) -> (Time, Option<Time>) {
        let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        let is_empty = report.remaining == 0;
        // If the vendor does not state when its window ends, one request now and then finds out.
        let ends_at_once = self.others.counting(report.limit, pace) == Counting::Windows;
        let guess = if ends_at_once { (window / FIRST_GUESS).clamp(LEAST_PAUSE, TIER_TURN) } else { LEAST_PAUSE };
        let reset = report.reset_ns.unwrap_or(if is_empty { guess } else { window });
        let next = self.others.next_window(now, pace);
        let mut until = now.plus_nanos(reset);
        if is_empty {
            until = until.plus_nanos(AFTER_RESET.min(window / 20)).max(now.plus_nanos(LEAST_PAUSE.min(window / 10)));
        }
        let is_guessed = is_empty && report.reset_ns.is_none() && ends_at_once;
        (next.map_or(until, |next| if is_guessed { next } else { until.min(next) }), next)
    }
}

/// Appends to a list in which each entry is a running total. A full list loses every second entry: a lookup then
/// returns a slightly older total.
fn remember<T>(list: &mut VecDeque<T>, entry: T) {
    if list.len() >= MAX_GRANTS {
        let mut number = 0;
        list.retain(|_| {
            number += 1;
            number % 2 == 0
        });
    }
    list.push_back(entry);
}

/// The rate in hundredths for this percentage of headroom, if it was `before` until now.
fn band(percent: u64, before: u64) -> u64 {
    let share = |percent: u64| BANDS.iter().find(|(below, _)| percent < *below).map_or(100, |(_, share)| *share);
    let now = share(percent);
    match now > before {
        // The rate rises only when the headroom is clearly above the threshold.
        true => share(percent.saturating_sub(HYSTERESIS)).max(before),
        false => now,
    }
}
