//! Waiting requests: in which queue, at which limit, and how many.
//!
//! | file | content |
//! |---|---|
//! | `waiters.rs` | all waiters and queues of an engine, and the woken waiters; changes them together |
//! | `waiter.rs`, `queue.rs` | one waiting request; the queue of a lane, tier and endpoint |
//! | `point.rs` | the point at which a limit stops requests |
//! | `place.rs` | a lane's, an account's or a vendor's part of the scheduler's tree |
//! | `backlog.rs` | the lanes by number of waiting requests |
//! | `bound.rs` | the bound on waiting requests, which all engines of a client share |

mod backlog;
mod bound;
mod place;
mod point;
mod queue;
mod waiter;
mod waiters;

pub use bound::Bound;
pub(super) use place::{Branch, LaneWait};
pub(super) use point::{LimitLevel, Turns, WaitPoint};
pub(super) use queue::Queue;
pub(super) use waiter::{Waiter, WaiterState};
pub(super) use waiters::Waiters;
