//! Lets waiting requests return in batches to a host that has recovered.

use std::time::Duration;

use crate::clock::Time;

/// Passes of the first batch, after the probe.
const FIRST: u32 = 2;
/// The largest batch; after it the circuit is closed. All batches together are 131,070 passes in 4 s.
const MOST: u32 = 65_536;
/// The shortest time from one batch to the next.
const STEP: Duration = Duration::from_millis(250);
/// The time after which a batch without any outcome is followed by one of the same size. A pass ends with its response,
/// which a slow vendor may delay.
const PATIENCE: Duration = Duration::from_secs(1);

/// Hands out passes in batches. A batch is twice as large as the one before if a connection was made meanwhile, and
/// begins [`STEP`] after it at the earliest. A bound on requests in flight instead would not slow them down at a vendor
/// that answers within a millisecond.
#[derive(Debug)]
pub(super) struct Ramp {
    /// The number of the first pass. Passes below it began before the circuit was opened.
    first: u64,
    /// Passes of this batch, and how many of them are unused.
    size: u32,
    left: u32,
    began: Time,
    /// The number of passes that have not ended.
    out: u32,
    /// A connection was made since the batch began.
    heard: bool,
}

/// The answer to a request for a pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Pass,
    /// Not before this moment, unless a pass ends earlier.
    Wait(Time),
    /// All requests may connect from now on.
    Closed,
}

impl Ramp {
    pub(super) fn new(first: u64, now: Time) -> Ramp {
        Ramp { first, size: FIRST, left: FIRST, began: now, out: 0, heard: false }
    }

    /// When the next batch begins.
    fn ends(&self) -> Time {
        self.began + if self.heard || self.out == 0 { STEP } else { PATIENCE }
    }

    pub(super) fn ready_at(&self, now: Time) -> Time {
        if self.left > 0 { now } else { self.ends() }
    }

    pub(super) fn take(&mut self, now: Time) -> Next {
        if now >= self.ends() {
            let size = if self.heard { self.size.saturating_mul(2) } else { self.size };
            // Fewer requests came than the batch allowed.
            if (self.left > 0 && (self.heard || self.out == 0)) || size > MOST {
                return Next::Closed;
            }
            *self = Ramp { size, left: size, began: now, heard: false, ..*self };
        }
        if self.left == 0 {
            return Next::Wait(self.ends());
        }
        self.left -= 1;
        self.out += 1;
        Next::Pass
    }

    /// Ends a pass. Returns whether this ramp granted it.
    pub(super) fn ended(&mut self, number: u64) -> bool {
        let is_one = number >= self.first;
        if is_one {
            self.out = self.out.saturating_sub(1);
        }
        is_one
    }

    /// Reports that a connection was made, by a pass of this ramp or by an earlier one.
    pub(super) fn succeeded(&mut self, number: u64) {
        self.ended(number);
        self.heard = true;
    }

    /// Reports that a pass was not used.
    pub(super) fn dropped(&mut self, number: u64) {
        if self.ended(number) {
            self.left = (self.left + 1).min(self.size);
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.out > 0
    }
}
