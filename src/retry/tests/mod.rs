//! The decision table row by row, waits, and the budget.

mod budget;
mod keys;
mod table;
mod waits;

use std::time::Duration;

use super::*;

/// The moment `n` milliseconds after an arbitrary start.
fn ms(n: u64) -> Time {
    Time::from_nanos(3_600_000_000_000) + Duration::from_millis(n)
}
