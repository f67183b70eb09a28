//! What answers correct in the limits' own state: what a request cost, and when the vendor's windows end.

use super::Engine;
use super::cost::{Cost, Settled};
use super::keys::PermitKey;
use super::origin::Origin;
use super::slab::Key;
use super::throttle::Report;
use crate::time::Time;

/// What a request was believed to cost, and what it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Correction {
    pub believed: Cost,
    pub actual: Cost,
}

impl Engine {
    /// The answer tells what the request really cost. Comes before [`answered`](Self::answered), where the head of the answer
    /// tells it; where its body does, before [`finished`](Self::finished). Returns what was wrong before.
    pub fn corrected(&mut self, now: Time, key: PermitKey, stated: &Settled) -> Option<Correction> {
        let now = self.tick(now);
        let permit = self.permits.get(key).filter(|permit| !permit.is_granted())?;
        // A kind is settled once: what a head says stands, whatever its body repeats.
        let (stated, settled) = stated.beside(permit.settled());
        let actual = permit.need().cost.settled(&stated);
        self.permits.set_settled(key, settled);
        self.correct(now, key, actual)
    }

    /// The answer was read, and so long it was. Comes before [`finished`](Self::finished).
    pub fn received(&mut self, now: Time, key: PermitKey, bytes: u32) -> Option<Correction> {
        let now = self.tick(now);
        let believed = self.permits.get(key)?.need().cost;
        let actual = believed.with_bytes(believed.sent, bytes);
        self.correct(now, key, actual)
    }

    fn correct(&mut self, now: Time, key: PermitKey, actual: Cost) -> Option<Correction> {
        let permit = self.permits.get(key)?;
        let (take, need, origin) = (permit.take(), permit.need(), permit.origin);
        if need.cost == actual {
            return None;
        }
        // What it took more is counted from now on, and ends by itself.
        self.permits.set_cost(key, need.cost.min(actual));
        let own = Origin { holders: [Key::NONE; 2], ..origin };
        self.each_cell(&own, |cell, spec| {
            cell.correct(spec, take, actual, now);
        });
        // Of limits that lanes share all have to wait until the units are there again, and this lane then waits as long
        // once more: the others have the limit for themselves first.
        let shared = Origin { lane: Key::NONE, ..origin };
        let mut later = 0;
        self.each_cell(&shared, |cell, spec| later = later.max(cell.correct(spec, take, actual, now)));
        if later > 0
            && let Some(lane) = self.lanes.get_mut(origin.lane)
        {
            lane.credential.get_or_insert_default().pay_back(now.plus_nanos(later.saturating_mul(2)));
        }
        self.wake_if_waiting(&origin, true);
        Some(Correction { believed: need.cost, actual })
    }

    /// An answer says when a window ends, give or take `error_ns`: the guard of a limit that counts in such windows need not reckon
    /// with every phase. Comes before [`answered`](Self::answered).
    pub fn window_ends(&mut self, now: Time, key: PermitKey, report: &Report, error_ns: u64) {
        let now = self.tick(now);
        let Some(permit) = self.permits.get(key).filter(|permit| permit.is_started()) else { return };
        let Some(reset_ns) = report.reset_ns else { return };
        let (origin, granted) = (permit.origin, permit.granted());
        // Most answers state a reset, and few limits count in fixed windows: only then it is asked which of them is meant.
        let mut may_be_meant = false;
        self.each_cell(&origin, |_, spec| may_be_meant |= spec.counts_windows_of(report.limit));
        if !may_be_meant {
            return;
        }
        // The vendor said so at some moment between the grant and now, and by a clock that drifts.
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
