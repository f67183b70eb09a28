//! Corrects the state of limits by what responses state: the actual cost of a request, and the ends of the vendor's
//! windows.

use super::Engine;
use super::cost::{Cost, Settled};
use super::keys::PermitKey;
use super::origin::Origin;
use super::slab::Key;
use super::throttle::Report;
use crate::time::Time;

/// The cost that a request was assumed to have, and its actual cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Correction {
    pub believed: Cost,
    pub actual: Cost,
}

impl Engine {
    /// Corrects a permit's cost to what the response states. Call before [`answered`](Self::answered) if the headers
    /// state the cost, or before [`finished`](Self::finished) if the body does. Returns both costs if the assumed one
    /// was wrong.
    pub fn corrected(&mut self, now: Time, key: PermitKey, stated: &Settled) -> Option<Correction> {
        let now = self.tick(now);
        let permit = self.permits.get(key).filter(|permit| !permit.is_granted())?;
        // Each kind of points is settled once: what the headers state holds, whatever the body repeats.
        let (stated, settled) = stated.beside(permit.settled());
        let actual = permit.need().cost.settled(&stated);
        self.permits.set_settled(key, settled);
        self.correct(now, key, actual)
    }

    /// Corrects a permit's cost by the length of the response body that was read. Call before
    /// [`finished`](Self::finished).
    pub fn received(&mut self, now: Time, key: PermitKey, bytes: u32) -> Option<Correction> {
        let now = self.tick(now);
        let believed = self.permits.get(key)?.need().cost;
        let actual = believed.with_bytes(believed.sent, bytes);
        self.correct(now, key, actual)
    }

    /// As [`received`](Self::received), for a body of which only these `bytes` are known: the vendor may have counted
    /// more, so the cost is only raised.
    pub fn received_at_least(&mut self, now: Time, key: PermitKey, bytes: u32) -> Option<Correction> {
        let believed = self.permits.get(key)?.need().cost;
        self.received(now, key, bytes.max(believed.received))
    }

    fn correct(&mut self, now: Time, key: PermitKey, actual: Cost) -> Option<Correction> {
        let permit = self.permits.get(key)?;
        let (take, need, origin) = (permit.take(), permit.need(), permit.origin);
        if need.cost == actual {
            return None;
        }
        // Units beyond the assumed cost are charged from now on, apart from the permit, and expire by themselves.
        self.permits.set_cost(key, need.cost.min(actual));
        let own = Origin { holders: [Key::NONE; 2], ..origin };
        self.each_cell(&own, |cell, spec| {
            cell.correct(spec, take, actual, now);
        });
        // If a shared limit was overdrawn, all its lanes wait until the units are back. The lane that caused it then
        // waits as long again, so that the others have the limit to themselves first. If processes share the limit, the
        // lane waits only if more was used than the whole of it: otherwise the pool may have the units.
        let shared = Origin { lane: Key::NONE, ..origin };
        let mut later = 0;
        self.each_cell(&shared, |cell, spec| later = later.max(cell.correct(spec, take, actual, now)));
        if later > 0
            && let Some(lane) = self.lanes.get_mut(origin.lane)
        {
            lane.throttle.get_or_insert_default().pay_back(now.plus_nanos(later.saturating_mul(2)));
        }
        self.tell_store_of_debts(&origin);
        self.wake_if_waiting(&origin, true);
        Some(Correction { believed: need.cost, actual })
    }

    /// Applies a response's statement of when a window ends, give or take `error_ns`, so that the guard of a limit with
    /// fixed windows need not allow for every phase. Call before [`answered`](Self::answered).
    pub fn window_ends(&mut self, now: Time, key: PermitKey, report: &Report, error_ns: u64) {
        let now = self.tick(now);
        let Some(permit) = self.permits.get(key).filter(|permit| permit.is_started()) else { return };
        let Some(reset_ns) = report.reset_ns else { return };
        let (origin, granted) = (permit.origin, permit.granted());
        // Most responses state a reset, but few limits count in fixed windows: look for the limit only if there is such
        // a one.
        let mut may_be_meant = false;
        self.each_cell(&origin, |_, spec| may_be_meant |= spec.counts_windows_of(report.limit));
        if !may_be_meant {
            return;
        }
        // The vendor stated the reset at some moment between the grant and now, by a clock that may drift.
        let error_ns = error_ns.saturating_add(reset_ns / 10_000);
        let from = granted.plus_nanos(reset_ns).minus_nanos(error_ns);
        let to = now.plus_nanos(reset_ns).plus_nanos(error_ns);
        let about = self.limit_of(&origin, report).filter(|target| self.is_believed(&origin, *target));
        let Some((cell, spec)) = about.and_then(|target| self.limit_at(&origin, target)) else { return };
        if spec.counts_windows_of(report.limit) {
            cell.window_ends(spec, now, from, to);
        }
        self.wake_if_waiting(&origin, true);
    }
}
