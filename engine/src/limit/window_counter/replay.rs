//! Counts requests that another process sent, which may have ended before entries that are already there.

use super::{CounterSpec, Ended, Line, WindowCounter};
use crate::time::Time;

impl WindowCounter {
    /// Counts `units` that another process was granted and that ended at `at`.
    #[cold]
    pub(crate) fn replay(&mut self, spec: &CounterSpec, now: Time, at: Time, units: u32, high: bool) {
        self.advance(spec, now);
        let granted = at.min(now);
        let (at, now) = (granted.as_nanos(), now.as_nanos());
        let at = spec.rounded_up(at);
        let oldest = self.ended.front().map_or(self.total, |first| first.before);
        let inside = u64::from(self.transit.units).saturating_add(self.total - oldest);
        let units = units.min(u32::MAX.saturating_sub(u32::try_from(inside).unwrap_or(u32::MAX)));
        if units == 0 || at.saturating_add(spec.window.saturating_mul(2)) <= now {
            return;
        }
        self.lower.take(spec.share(), granted, units, high);
        self.forget_known();
        self.full = false;
        let of_high = if high { units } else { 0 };
        let place = self.ended.partition_point(|ended| ended.at < at);
        let is_known = match self.ended.get_mut(place).filter(|ended| ended.at == at) {
            Some(ended) => {
                ended.units += units;
                ended.high += of_high;
                true
            }
            None => {
                let before = self.ended.get(place).map_or(self.total, |next| next.before);
                self.ended.insert(place, Ended { at, units, high: of_high, before });
                false
            }
        };
        self.ended.range_mut(place + 1..).for_each(|later| later.before += u64::from(units));
        self.total += u64::from(units);
        if is_known {
            self.raise_lines(spec, at, f64::from(units));
        } else {
            self.draw_lines(spec, now);
        }
    }

    /// Adds `units`, which may be fewer than none, to the lines, for an end `at` that was there before.
    pub(super) fn raise_lines(&mut self, spec: &CounterSpec, at: u64, units: f64) {
        let (at, window) = (at as f64, spec.window as f64);
        for line in self.lines.iter_mut().filter(|line| at < line.at) {
            line.earlier += units;
            if at >= line.at - window {
                line.before += units;
            }
        }
    }

    /// Works out all lines anew: a window may have begun at each end, and one window after it.
    fn draw_lines(&mut self, spec: &CounterSpec, now: u64) {
        self.young = self.ended.partition_point(|ended| ended.at.saturating_add(spec.window) <= now);
        let passed = self.ended.range(..self.young).map(|ended| ended.at.saturating_add(spec.window));
        let mut begun: Vec<u64> = self.ended.iter().map(|ended| ended.at).chain(passed).collect();
        begun.retain(|at| at.saturating_add(spec.window) > now);
        begun.sort_unstable();
        self.lines = begun
            .into_iter()
            .map(|at| {
                let earlier = self.ended_before(at);
                let before = earlier - self.ended_before(at.saturating_sub(spec.window));
                Line { at: at as f64, earlier: earlier as f64, before: before as f64 }
            })
            .collect();
    }
}
