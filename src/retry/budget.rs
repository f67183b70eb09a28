//! Bounds the share of retries in the load.
//!
//! When a vendor fails, every request retries several times, which multiplies the load on a broken system. So ten
//! retries in a minute are free, and each further one needs ten requests in that minute. Each retry is judged by the
//! minute before it; a minute that begins with retries and has its requests later may exceed the share.
//!
//! There is one budget for each lane, so it keeps counts in thirteen slots of five seconds instead of a list of
//! moments. The oldest slot, in which the minute begins, counts for retries and not for requests: rounding only ever
//! allows less, about 9 % at a steady load.

use crate::clock::Time;

const SLOT_NS: u64 = 5_000_000_000;
/// The slots of a minute, and the one that overlaps its start.
const SLOTS: usize = 13;
/// Free retries in a minute.
const FREE: u64 = 10;
/// Requests that each further retry needs.
const REQUESTS_PER_RETRY: u64 = 10;

/// Counts requests and retries of the last minute, and refuses retries above the share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    slots: [Slot; SLOTS],
    /// The number of the current slot since the clock's origin. It never decreases, even if the clock does.
    newest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    requests: u32,
    retries: u32,
}

impl Budget {
    /// Counts a request that is sent for the first time.
    pub(crate) fn request(&mut self, now: Time) {
        let slot = self.slot(now);
        slot.requests = slot.requests.saturating_add(1);
    }

    /// Whether a retry is allowed now. Counts it if so.
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

    /// Retries per request in the last minute.
    pub(crate) fn share_of_retries(&mut self, now: Time) -> f64 {
        self.slot(now);
        let sum = |count: fn(&Slot) -> u32| self.slots.iter().map(count).map(f64::from).sum::<f64>();
        sum(|slot| slot.retries) / sum(|slot| slot.requests).max(1.0)
    }

    /// The current slot, after slots that are too old were cleared.
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

/// The index of slot `number`.
fn index(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}
