//! Takes off what the vendor did not count.

use super::{CounterSpec, WindowCounter};
use crate::time::Time;

impl WindowCounter {
    /// Removes `units` of a request granted at `granted`, because the vendor states that it did not count them. Call
    /// before the request's end. If the transit time has passed, they are removed where they were counted as ended, or
    /// earlier, and never from units that ended later.
    #[cold]
    pub(crate) fn refund(&mut self, spec: &CounterSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        if !self.transit.leave(granted, units, high) && !self.leave_ended(spec, granted, units, high) {
            return;
        }
        self.forget_wait();
        self.lower.leave(granted, units, high);
    }

    fn leave_ended(&mut self, spec: &CounterSpec, granted: Time, units: u32, high: bool) -> bool {
        let Some(lost_at) = self.lost.leave(self.transit.width, granted, units, high) else { return false };
        let of_high = if high { units } else { 0 };
        let place = self.ended.partition_point(|ended| ended.at < lost_at);
        let Some(ended) = self.ended.get_mut(place).filter(|ended| ended.units >= units && ended.high >= of_high)
        else {
            return false;
        };
        ended.units -= units;
        ended.high -= of_high;
        let at = ended.at;
        self.ended.range_mut(place + 1..).for_each(|later| later.before -= u64::from(units));
        self.total -= u64::from(units);
        self.raise_lines(spec, at, -f64::from(units));
        true
    }
}
