//! What happens at a moment of its own: a parked place is looked at again, or a caller stops waiting.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::keys::{NodeKey, QueueKey, WaiterKey};
use super::slab::excess;
use crate::time::Time;

/// What happens when a timer is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timer {
    /// A parked node may go on.
    Unpark { node: NodeKey, parking: u32 },
    /// A reservation of a lower tier is looked at again.
    Review { queue: QueueKey, at: Time },
    /// A caller stops waiting.
    GiveUp { waiter: WaiterKey },
}

/// Timers of an engine, the earliest first. A timer is not cancelled: one whose purpose has ended is known by that, and
/// is dropped when it comes to the front or when such timers outnumber the others.
#[derive(Default)]
pub(super) struct Timers {
    due: BinaryHeap<Reverse<(Time, Timer)>>,
}

impl Timers {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Sets a timer; none at [`Time::MAX`].
    pub(super) fn set(&mut self, at: Time, timer: Timer) {
        if at < Time::MAX {
            self.due.push(Reverse((at, timer)));
        }
    }

    /// Drops timers whose purpose has ended, where there are far more timers than the `most` that can have one.
    pub(super) fn trim(&mut self, most: usize, has_purpose: impl Fn(&Timer) -> bool) {
        if self.due.len() > 64 + 4 * most {
            self.due.retain(|Reverse((_, timer))| has_purpose(timer));
        }
    }

    /// Takes out the earliest timer, if it is due by `now`.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<(Time, Timer)> {
        self.due.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.due.pop().map(|Reverse(timer)| timer)
    }

    /// When the earliest timer that still has a purpose is due; [`Time::MAX`] without one.
    pub(super) fn next(&mut self, has_purpose: impl Fn(&Timer) -> bool) -> Time {
        while let Some(Reverse((at, timer))) = self.due.peek() {
            if has_purpose(timer) {
                return *at;
            }
            self.due.pop();
        }
        Time::MAX
    }

    /// Gives back room that is far more than what is in use.
    pub(super) fn shrink(&mut self) {
        if let Some(room) = excess(self.due.capacity(), self.due.len()) {
            self.due.shrink_to(room);
        }
    }
}
