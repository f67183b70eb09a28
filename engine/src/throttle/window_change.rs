//! What stays of a throttle when the configuration gives its limit a window of another length.

use super::Throttle;
use super::foreign::Foreign;
use super::others::Others;
use super::recent::Recent;
use crate::pace::Pace;
use crate::time::Time;

impl Throttle {
    /// Forgets what was learned in units of a window: 56 a minute are not 56 an hour. Pauses stay, and so does a report
    /// that nothing is left, because they end at moments.
    pub(crate) fn window_changed(&mut self, now: Time, pace: &Pace) {
        (self.learned, self.cut_for, self.refused_at, self.stated) = (None, None, None, None);
        (self.guess, self.too_short) = (0, 0);
        let quota = &mut self.quota;
        (quota.recent, quota.others, quota.foreign) = (Recent::default(), Others::default(), Foreign::default());
        quota.told = quota.told.filter(|told| told.percent == 0);
        self.space_anew(now, pace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{Counting, Mode};

    const HOUR: u64 = 3_600_000_000_000;

    fn pace(window_ns: u64) -> Pace {
        Pace { unit_ns: window_ns / 100, limit: 100, window_ns, counting: Counting::Windows, mode: Mode::Adaptive }
    }

    #[test]
    fn recent_units_are_counted_anew() {
        let (minute, hour) = (pace(HOUR / 60), pace(HOUR));
        let at = |hours: u64| Time::from_nanos(hours * HOUR);
        let mut throttle = Throttle::default();
        throttle.quota.granted(at(24), 10, &minute);
        throttle.window_changed(at(24), &hour);
        throttle.quota.granted(at(24), 5, &hour);
        assert_eq!(throttle.quota.recent.units(at(27), HOUR), Some(0));
    }
}
