//! How many items go into the next transaction, if transactions did not end in time. Pure.
//!
//! A transaction has a limit of time, and the round trip to the database is not known in advance. A transaction that is
//! too large for it fails however often it is tried, and delays all other writes each time. So after each failure of the
//! store half as many items are tried, and after each success twice as many.
//!
//! A store that is away fails whatever the size. So a number of items counts as too large only if a smaller transaction
//! was written just before; that number is not tried again for some minutes. How long a transaction took says nothing
//! about its size: most of that time may be a wait for other writes.

use std::time::Duration;

use crate::clock::Time;

/// If so few items fail once, the store was away, or it is too slow for any.
const FEW: usize = 8;
/// How long a number of items that is too large is not tried again. The network may be faster by then.
const AGAIN: Duration = Duration::from_secs(600);

/// The most items of the next transaction. There is no bound before the first failure.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound {
    most: Option<usize>,
    /// A number of items that did not end in time although fewer had ended just before, and when that was found.
    too_many: Option<(usize, Time)>,
    /// Whether the latest transaction was written; `None` before the first one.
    is_written: Option<bool>,
}

impl Bound {
    /// The most items of the next transaction; one at least.
    pub(super) fn most(self) -> usize {
        self.most.unwrap_or(usize::MAX)
    }

    /// The store failed at a transaction with this many items.
    pub(super) fn failed(&mut self, items: usize, now: Time) {
        let has_grown = self.is_written == Some(true) && self.most.is_some_and(|most| items >= most);
        let is_repeated = self.is_written.replace(false) == Some(false);
        // If a smaller transaction fails too, the store is away, and what was too large before says nothing.
        self.too_many = (has_grown && items > 1).then_some((items, now));
        if items > FEW || has_grown || is_repeated {
            self.most = Some((items / 2).max(1));
        }
    }

    /// A transaction with this many items was written. One with fewer items than the bound says nothing about a larger one.
    pub(super) fn written(&mut self, items: usize, now: Time) {
        self.is_written = Some(true);
        let Some(most) = self.most.filter(|most| items >= *most) else { return };
        let twice = most.saturating_mul(2);
        let is_too_many = self.too_many.is_some_and(|(many, at)| twice >= many && now.since(at) < AGAIN);
        self.most = Some(if is_too_many { most } else { twice });
    }
}

#[cfg(test)]
mod tests;
