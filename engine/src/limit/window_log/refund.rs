//! Removes what the vendor did not count: requests that were never sent, and costs that were lower than expected.

use super::{LogSpec, WindowLog};
use crate::time::Time;

impl WindowLog {
    /// Removes a request granted at `granted` that was never sent.
    pub(crate) fn give_back(&mut self, granted: Time, units: u32, high: bool) {
        if self.leave_pending(granted, units, high) {
            self.uncount(granted, units, high);
        }
    }

    /// `units` of a request granted at `granted` have left their entry.
    fn uncount(&mut self, granted: Time, units: u32, high: bool) {
        self.units -= units;
        self.high -= if high { units } else { 0 };
        if let Some(before) = &mut self.before {
            before.lower.leave(granted, units, high);
        }
    }

    /// Removes `units` of a request granted at `granted`, because the vendor states that it did not count them. Call
    /// before the request's end. If the transit time has passed, they are removed where they were counted as ended, or
    /// earlier, and never from units that ended later.
    #[cold]
    pub(crate) fn refund(&mut self, spec: &LogSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        if self.leave_pending(granted, units, high) {
            return self.uncount(granted, units, high);
        }
        let Some(before) = &mut self.before else { return };
        let Some(lost_at) = before.lost.leave(self.width, granted, units, high) else { return };
        // Ends are merged into the latest of them, so the entry ends at `lost_at` or later.
        let place = before.ended.partition_point(|entry| entry.at < lost_at);
        let entry = before.ended.get_mut(place).unwrap_or(&mut self.ended);
        if entry.at < lost_at || !entry.leave(units, high) {
            return;
        }
        // Entries are placed by comparing them with the newest one, so the next newest takes its place.
        while self.ended.units == 0
            && let Some(last) = before.ended.pop_back()
        {
            self.ended = last;
        }
        self.uncount(granted, units, high);
    }
}
