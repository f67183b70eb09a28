//! What a process before this one sent, and the vendor may still count.

use super::Engine;
use super::limit::Take;
use super::plan::EndpointId;
use super::slab::Key;
use crate::clock::Time;

impl Engine {
    /// Takes a request of `cost` units that was made `age_ns` before now, by a process before this one, and has ended.
    /// Whether there is room does not matter: it happened. To be called in the order in which requests were made.
    ///
    /// More may have been made in that time than the bucket holds, for it refilled meanwhile: it is left empty by that, and
    /// owes nothing. The guard alone knows what the vendor still counts.
    pub(crate) fn recall(&mut self, now: Time, lane: Key, endpoint: EndpointId, take: (u32, bool), age_ns: u64) {
        let now = self.tick(now);
        let at = now.minus_nanos(age_ns);
        let take = Take { cost: take.0.into(), high: take.1, granted: at };
        self.each_cell(lane, endpoint, [u32::MAX; 3], |cell, spec| {
            cell.take(spec, take, at);
            cell.answer(spec, take, at);
            cell.finish();
            cell.forgive(spec, now);
        });
    }
}
