//! What a vendor said is left of a limit.

use super::foreign::Foreign;
use super::others::{Others, Sample};
use super::recent::Recent;
use super::report::{Books, Report};
use crate::pace::{Counting, Pace};
use crate::pace::{FIRST_GUESS, LEAST_PAUSE, Mode, TIER_TURN};
use crate::time::Time;
use std::collections::VecDeque;

/// Bands of headroom: below so many percent, so many hundredths of the rate.
const BANDS: [(u64, u64); 3] = [(10, 25), (20, 50), (30, 75)];
/// A band is left upwards this many percent above its threshold.
const HYSTERESIS: u64 = 3;
/// After the reset that a vendor states, in nanoseconds: its clock may be late. A twentieth of shorter windows.
const AFTER_RESET: u64 = 500_000_000;
/// What others take may come so much earlier: a share of what they take in a window.
const UNEVEN: f64 = 0.04;
/// Grants that are remembered one by one, to know which had arrived when the vendor answered.
const MAX_GRANTS: usize = 512;
/// Where units come back one by one the count itself decides, and the spacing may be a little too short.
const SHORTER: f64 = 1.05;
/// Of a log that others use: at nothing left grants go at this share of what they leave, and the more is left, the faster, up to
/// [`SHORTER`] times it.
const SLOWEST: f64 = 0.4;
/// So much of the limit stays free then, beside what [`Foreign`] keeps free.
const NEARLY_ALL: f64 = 0.01;
/// Of a log that others use, at most the limit divided by this stays free, beside one unit, until a unit of ours expires.
const MOST_SPARE: u64 = 16;
/// A client that shares a bucket sends at its full rate above this share of it that is left, and at a part of that below, as the
/// share that is left is a part of this. All see the same, so all send alike; what is left in a bucket is not lost.
const PLENTY: f64 = 0.5;
/// Of what a client has beyond half of a shared log, one part in so many is left to others.
const SURPLUS: u64 = 5;
/// Our own count explains that nothing is left of a window where it lacks less than this part of the limit.
const EXPLAINED: u64 = 20;
/// Of the full rate, as much goes at least: only answers show that there is more.
const LEAST_RATE: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedQuota {
    limit: u64,
    /// Units that may still be granted; below zero those that went as they came back.
    pub(super) credit: i64,
    at: Time,
    /// The report means nothing from here on.
    pub(super) until: Time,
    /// Hundredths of the rate.
    pub(super) share: u64,
    pub(super) percent: u64,
    /// Between grants, in nanoseconds, where the rate is not a share of the limit's own.
    pub(super) spacing: Option<u64>,
    /// Units a nanosecond that others take.
    others: f64,
    /// Of a log: units in it that are not ours.
    foreign: u32,
    /// What others may take on the way of a request, in units.
    margin: u32,
    /// Units come back one by one.
    regrows: bool,
}

impl ReportedQuota {
    /// When `cost` units may go.
    pub(super) fn free(&self, now: Time, cost: u32, pace: &Pace) -> Time {
        let cost = i64::from(cost);
        let since = now.since(self.at).as_nanos() as f64;
        // Others come between as well, and not evenly.
        let uneven = UNEVEN * self.others * pace.window_ns as f64;
        let taken = if self.others > 0.0 { (self.others * since + uneven) as i64 + 1 } else { 0 };
        if self.credit.saturating_sub(taken) >= cost {
            return now;
        }
        if self.regrows && pace.window_ns > 0 {
            // Others take of what comes back.
            let unit = (pace.window_ns / self.limit.max(1)).max(self.spacing.unwrap_or(0));
            let lacking = cost.saturating_sub(self.credit).unsigned_abs();
            return self.at.plus_nanos(unit.saturating_mul(lacking)).min(self.until);
        }
        self.until
    }
}

/// What was heard.
#[derive(Clone, Debug, Default)]
pub(super) struct QuotaTracker {
    pub(super) told: Option<ReportedQuota>,
    /// The grant whose answer was applied last: what is older has been overtaken.
    told_of: Time,
    /// Units granted in all.
    granted: u64,
    /// Units granted in all up to that grant.
    granted_through: u64,
    /// Grants since then: when, and how many units in all with them.
    grants: VecDeque<(Time, u64)>,
    others: Others,
    /// Units of the vendor's count that ours does not explain, as of the last answer.
    unexplained: u32,
    /// How long answers take, smoothed, in nanoseconds.
    round_trip: u64,
    /// When how many units had been answered in all, since the grant whose answer was applied last; and until then.
    ends: VecDeque<(Time, i64)>,
    ended: i64,
    /// What was granted in the last window.
    recent: Recent,
    /// Units in a log that are not ours.
    foreign: Foreign,
}

/// What is new.
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
        remember(&mut self.grants, (now, self.granted));
        if let Some(told) = &mut self.told {
            told.credit = told.credit.saturating_sub(i64::from(units));
        }
    }

    /// Units granted after `time`.
    pub(super) fn granted_after(&mut self, time: Time) -> u64 {
        while let Some((_, through)) = self.grants.pop_front_if(|(at, _)| *at <= time) {
            self.granted_through = through;
        }
        self.granted.wrapping_sub(self.granted_through)
    }

    /// The grant whose answer was applied last.
    pub(super) fn told_of(&self) -> Time {
        self.told_of
    }

    /// A request was refused for this limit.
    pub(super) fn refused(&mut self) {
        self.foreign.refused();
    }

    pub(super) fn forget_past(&mut self, now: Time) {
        if self.told.is_some_and(|told| told.until <= now) {
            self.told = None;
        }
    }

    /// Another client uses the key, and takes so many units a window.
    pub(super) fn others(&self, pace: &Pace) -> Option<u64> {
        self.others.per_window(pace).map(|taken| taken as u64)
    }

    pub(super) fn unexplained(&self) -> u32 {
        self.unexplained
    }

    /// Units that are to be left free for others, beside what our own count holds.
    pub(super) fn held(&self, now: Time, pace: &Pace) -> u32 {
        let Some(told) = self.told.filter(|told| told.until > now && pace.mode == Mode::Adaptive) else { return 0 };
        // A figure without a report for half a window becomes older, and after a whole one it is not known any more.
        let since = now.since(told.at).as_nanos() as f64 / pace.window_ns.max(1) as f64;
        let known = (2.0 - 2.0 * since).clamp(0.0, 1.0);
        told.margin.saturating_add((f64::from(told.foreign) * known).ceil() as u32)
    }

    /// A response to what was granted at `granted` told what is left; our own count was `books` then, without that request
    /// among what is in flight.
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
                // What went before the first report may all be in flight.
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
        // Bands know no order of arrival: what is in flight may all be still to come.
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
            let seen = Sample { at: now, granted, used, arrived, early, late, ours, behind };
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

    /// Units of ours that the vendor counts when it answers: as is likely, and at most. Our mirror of a limit whose algorithm
    /// is unknown counts more than any one vendor does.
    fn ours(&mut self, now: Time, ours: u32, unarrived: u64, books: Books, limit: u64, pace: &Pace) -> (u32, u32) {
        let is_as_mirrored =
            pace.counting != Counting::Unstated || self.others.counting(limit, pace) == Counting::Windows;
        if pace.mode != Mode::Adaptive || is_as_mirrored {
            return (ours, books.units);
        }
        let sent = self.recent.units(now, pace.window_ns);
        (sent.saturating_sub(u32::try_from(unarrived).unwrap_or(u32::MAX)), sent)
    }

    /// By what is left alone, whatever client took the rest.
    fn slow_down(&mut self, now: Time, books: Books, report: &Report, pace: &Pace) -> Option<QuotaEvent> {
        let remaining = report.remaining.min(report.limit);
        let percent = remaining.saturating_mul(100) / report.limit;
        let known = self.told.filter(|told| told.until > now);
        let (before, was_empty) = known.map_or((100, false), |told| (told.share, told.percent == 0));
        let band = band(percent, before);
        let share = if pace.mode == Mode::Bands { band } else { 100 };
        let (until, next) = self.until(now, report, pace);
        let paced = pace.mode == Mode::Pace && remaining > 0 && report.reset_ns.is_some();
        let spacing = paced.then(|| {
            let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
            // A reset in whole seconds is up to a second late: a window that was seen to begin is known better.
            let reset = report.reset_ns.unwrap_or(window);
            let reset = next.map_or(reset, |next| reset.min(next.since(now).as_nanos() as u64)).max(1) as f64;
            // Units that come back one by one come back meanwhile.
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

    /// By what is left and by whom the rest was taken: what our own count explains slows nothing down. `unarrived`: units that
    /// went after the request that was answered.
    fn adapt(&mut self, now: Time, books: Books, unarrived: u64, report: &Report, pace: &Pace) -> Option<QuotaEvent> {
        let (limit, remaining) = (report.limit, report.remaining.min(report.limit));
        let used = limit - remaining;
        let counting = self.others.counting(limit, pace);
        let own = books.units.saturating_sub(u32::try_from(unarrived).unwrap_or(u32::MAX));
        let (arrived, own) = self.ours(now, own, unarrived, books, limit, pace);
        // Vendors round what is left down.
        let unexplained = used.saturating_sub(u64::from(own) + u64::from(books.behind)).saturating_sub(1);
        self.unexplained = u32::try_from(unexplained).unwrap_or(u32::MAX);
        let known = self.told.take().filter(|told| told.until > now);
        let is_shared = self.others.per_window(pace).is_some() || unexplained > (limit / 20).max(2);
        // What others took may be a little less than what was counted the last time, and they are there all the same.
        let is_known = (known.is_some() || counting == Counting::Log) && unexplained > 0;
        // Nothing is left, and our own count does not explain it: the vendor's word is all there is. Where a window's units come back
        // together, even a few that are not ours say so; of units that come back one by one most have to be others'.
        let explained = match counting {
            _ if counting.regrows() => limit / 4,
            // A window that is stated to be one holds nothing that comes back before its end.
            Counting::Windows if pace.counting == Counting::Windows => limit,
            _ => limit - limit / EXPLAINED,
        };
        let waits = remaining == 0 && u64::from(books.units) < explained;
        let ends_at_once = waits && !counting.regrows();
        if pace.window_ns == 0 || !(is_shared || is_known || ends_at_once) {
            return None;
        }
        let others = self.others.rate(pace);
        let percent = remaining.saturating_mul(100) / limit;
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
        let margin = (others * self.round_trip as f64 * 1.5).ceil() as u32 + 1;
        // The fair share of two at least, as below.
        let spacing = Some((1.0 / ((full - others).max(full / 2.0) * SHORTER)) as u64);
        self.told = Some(match counting {
            Counting::Windows | Counting::Unstated => {
                let left = remaining.saturating_sub(u64::from(books.under_way)) as f64;
                let until = self.others.next_edge(now, pace).unwrap_or(reset).max(now.plus_nanos(1));
                let rest = until.since(now).as_nanos() as f64;
                // The fair share of two at least, or of two who yield one would yield all.
                let rate = (left / rest - others).max(left / rest / 2.0).max(1.0 / window);
                let spacing = (remaining > 0).then_some((1.0 / rate) as u64);
                ReportedQuota { credit: left as i64, until, spacing, others, ..told }
            }
            Counting::Log => {
                // Who has more than half leaves a part of that free, and the other takes it.
                let surplus = if is_shared { u64::from(own).saturating_sub(limit / 2) } else { 0 };
                let left = remaining.saturating_sub(unarrived);
                // While much is left, nobody has to wait for units to come back.
                let is_scarce = (left as f64) < PLENTY * limit as f64;
                let foreign = u32::try_from(used.saturating_sub(u64::from(arrived))).unwrap_or(u32::MAX);
                self.foreign.seen(now, foreign, remaining, limit, self.round_trip, pace.window_ns);
                let on_the_way = (others * self.round_trip as f64 / 2.0).round();
                let kept_free = f64::from(self.foreign.margin()).max(1.0 + on_the_way) + (surplus / SURPLUS) as f64;
                // Beside one unit, which the spacing keeps free.
                let most = u32::try_from(limit / MOST_SPARE).unwrap_or(u32::MAX);
                let spare = (self.foreign.margin() - 1).min(most);
                let told = match pace.counting {
                    // Where less is left, only a unit of ours that comes back makes room: what others hold comes back to them.
                    Counting::Log => ReportedQuota { foreign: self.foreign.held(), margin: spare, ..told },
                    // Our mirror says too much: the vendor's word alone decides.
                    _ => told,
                };
                if is_scarce {
                    // A little stays free: the nearer to that, the slower.
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

    /// Until when a report holds, and when the vendor's next window begins, where that is known better than it says.
    fn until(&self, now: Time, report: &Report, pace: &Pace) -> (Time, Option<Time>) {
        let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        let is_empty = report.remaining == 0;
        // When a window ends that the vendor does not state is found out by one request now and then.
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

/// Adds to a list in which each entry stands for all up to it. A long one loses every second entry: what is found in it
/// is then a little older.
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

/// Hundredths of the rate at so many percent of headroom, coming from `before`.
fn band(percent: u64, before: u64) -> u64 {
    let share = |percent: u64| BANDS.iter().find(|(below, _)| percent < *below).map_or(100, |(_, share)| *share);
    let now = share(percent);
    match now > before {
        // Upwards only when clear of the threshold.
        true => share(percent.saturating_sub(HYSTERESIS)).max(before),
        false => now,
    }
}
