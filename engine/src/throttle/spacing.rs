//! The time between grants while a limit is slowed down.

use super::{LEAST_PAUSE, LONGEST_BELIEF, Mode, TIER_TURN, Throttle};
use crate::pace::Pace;
use crate::time::Time;

impl Throttle {
    /// Delays the next grant by a grant of `units`, which was due at `due`.
    pub(super) fn space(&mut self, due: Time, now: Time, units: u32, pace: &Pace) {
        let from = self.next.max(due);
        self.spaced = Some((from, units));
        if let Some(next) = self.spaced_until(from, now, units, pace) {
            self.next = self.next.max(next);
        }
    }

    /// Delays the next grant no longer than the present figures say: the report by which the last grant delayed it may have
    /// been wrong. Delays up to a second stay, so that the rate does not follow the smallest of many figures.
    pub(super) fn space_anew(&mut self, now: Time, pace: &Pace) {
        if self.next <= now.plus_nanos(LEAST_PAUSE) {
            return;
        }
        if let Some((from, units)) = self.spaced {
            self.next = self.next.min(self.spaced_until(from, now, units, pace).unwrap_or(from));
        }
    }

    /// Allows no grant before `until`, because the lane has used more of a shared limit than was there.
    pub(crate) fn pay_back(&mut self, until: Time) {
        if self.next < until {
            (self.next, self.spaced) = (until, None);
        }
    }

    /// Until when a grant of `units`, whose spacing counts from `from`, delays the next one; `None` if the limits alone
    /// decide.
    fn spaced_until(&mut self, from: Time, now: Time, units: u32, pace: &Pace) -> Option<Time> {
        // What slows a limit down delays nothing for longer than it is believed: the units of one large request would
        // delay all others for hours. In the window in which that ends, the spacing still holds: a vendor that counts
        // the last window at each moment counts what was sent before.
        let after = |(spacing, until): (u64, Time), least: u64| {
            from.plus_nanos(spacing.saturating_mul(u64::from(units))).min(until.max(now.plus_nanos(least)))
        };
        let window = pace.window_ns;
        let longest = self.doubted.map_or(Time::MAX, |(_, longest)| now.plus_nanos(longest));
        let of_told = self.told_spacing(pace).map(|told| after(told, window.min(LONGEST_BELIEF)).min(longest));
        let of_stated = self.stated_spacing(now, pace).map(|stated| after(stated, window.min(LONGEST_BELIEF)));
        let of_calm = self.calm_spacing(now, pace).map(|calm| after(calm, window.min(TIER_TURN)));
        let of_learned = self.learned_spacing(now, pace).map(|learned| after(learned, LONGEST_BELIEF));
        of_told.max(of_stated).max(of_calm).max(of_learned)
    }

    /// Nanoseconds between grants of one unit; `None` if the limits alone decide.
    pub(crate) fn spacing(&mut self, now: Time, pace: &Pace) -> Option<u64> {
        let figures = [self.told_spacing(pace), self.stated_spacing(now, pace)];
        let after_refusal = [self.calm_spacing(now, pace), self.learned_spacing(now, pace)];
        figures.into_iter().chain(after_refusal).flatten().map(|(spacing, _)| spacing).max()
    }

    /// Nanoseconds between grants of one unit by the remaining units that the vendor reports, and until when the report
    /// holds.
    fn told_spacing(&self, pace: &Pace) -> Option<(u64, Time)> {
        let told = self.quota.told?;
        let of_band = || pace.unit_ns.saturating_mul(100) / told.share.max(1);
        let spacing = told.spacing.or_else(|| (pace.mode == Mode::Bands && told.share < 100).then(of_band))?;
        Some((spacing, told.until))
    }

    /// Nanoseconds between grants of one unit at a limit that the vendor states and that is less than the configured
    /// one, and until when that is believed.
    fn stated_spacing(&self, now: Time, pace: &Pace) -> Option<(u64, Time)> {
        let (stated, until) = self.stated.filter(|(_, until)| *until > now)?;
        Some((pace.unit_ns.saturating_mul(pace.limit) / stated.max(1), until))
    }

    /// Nanoseconds between grants of one unit while the limit allows no bursts, because it was refused or others use
    /// it, and until when. While others use it, each response prolongs that.
    fn calm_spacing(&self, now: Time, pace: &Pace) -> Option<(u64, Time)> {
        let unit = pace.unit_ns;
        let mut spacing = if now < self.calm_until { unit } else { 0 };
        if let Some((since, over)) = self.ramp {
            let passed = u64::try_from(now.since(since).as_nanos()).unwrap_or(u64::MAX);
            let share = (10 + passed.saturating_mul(90) / over.max(1)).min(100);
            // For a long window, the first grant would otherwise delay all later ones beyond the end of the growth.
            spacing = spacing.max((unit.saturating_mul(100) / share).min(over.max(unit)));
        }
        let until = if self.yields { Time::MAX } else { self.calm_until };
        (spacing > 0).then_some((spacing, until))
    }

    /// Nanoseconds between grants of one unit at the rate learned from refusals, and until when it stays as it is.
    fn learned_spacing(&mut self, now: Time, pace: &Pace) -> Option<(u64, Time)> {
        let learned = self.learned.as_mut()?;
        learned.advance(now, pace);
        let (spacing, until) = (learned.spacing(pace), learned.until(pace));
        if learned.is_full(pace) {
            self.learned = None;
        }
        (spacing > 0).then_some((spacing, until))
    }
}
