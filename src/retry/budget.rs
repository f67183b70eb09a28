//! How much of the load may be retries.
//!
//! Where a vendor fails, each request tries again several times, and retries multiply the load on what is broken. So
//! once ten retries have gone in a minute, each further one needs ten requests of that minute. Judged at each retry over
//! the minute before it: it looks at the past alone, and so cannot promise anything of a minute whose requests are yet
//! to come.
//!
//! Twelve slots of five seconds and one in progress, instead of a list of moments: there is one budget for each lane. The
//! slot that the minute begins in counts for retries and not for requests. Rounding so only ever allows less: about 9 % at
//! a steady load.

use crate::clock::Time;

const SLOT_NS: u64 = 5_000_000_000;
/// The minute, in slots, and the one that overlaps its start.
const SLOTS: usize = 13;
/// Retries in a minute that need no request.
const FREE: u64 = 10;
/// Requests for each retry beyond.
const REQUESTS_PER_RETRY: u64 = 10;

/// Counts requests and retries of the last minute, and refuses retries above the share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    slots: [Slot; SLOTS],
    /// The number of the slot in progress since the clock's origin. It never goes back, whatever time does.
    newest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    requests: u32,
    retries: u32,
}

impl Budget {
    /// A request was sent for the first time.
    pub(crate) fn request(&mut self, now: Time) {
        let slot = self.slot(now);
        slot.requests = slot.requests.saturating_add(1);
    }

    /// Whether a retry may go now; it is counted if so.
    pub(crate) fn try_retry(&mut self, now: Time) -> bool {
        self.slot(now);
        let oldest = index(self.newest + 1);
        let retries: u64 = self.slots.iter().map(|slot| u64::from(slot.retries)).sum();
        let whole = self.slots.iter().enumerate().filter(|(index, _)| *index != oldest);
        let requests: u64 = whole.map(|(_, slot)| u64::from(slot.requests)).sum();
        let allowed = retries < FREE || (retries + 1).saturating_mul(REQUESTS_PER_RETRY) <= requests;
        if allowed {
            let slot = self.slot(now);
            slot.retries = slot.retries.saturating_add(1);
        }
        allowed
    }

    /// Retries to a request, in the last minute.
    pub(crate) fn share_of_retries(&mut self, now: Time) -> f64 {
        self.slot(now);
        let sum = |count: fn(&Slot) -> u32| self.slots.iter().map(count).map(f64::from).sum::<f64>();
        sum(|slot| slot.retries) / sum(|slot| slot.requests).max(1.0)
    }

    /// The slot in progress, with what is too old forgotten.
    fn slot(&mut self, now: Time) -> &mut Slot {
        let number = now.as_nanos() / SLOT_NS;
        let passed = number.saturating_sub(self.newest);
        for step in 1..=passed.min(SLOTS as u64) {
            self.slots[index(self.newest + step)] = Slot::default();
        }
        self.newest = self.newest.max(number);
        &mut self.slots[index(self.newest)]
    }
}

/// Where slot `number` is kept.
fn index(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}
