//! Processes that share limits, in virtual time. The engines, the calls and the ledgers are the library's own.

mod departed;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod differential;
#[cfg(feature = "redis")]
mod eras;
mod fast_clock;
mod floor;
mod hours;
mod keep;
mod lapsed;
mod ledger;
mod loss;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod one_ledger;
mod process;
#[cfg(feature = "redis")]
mod redis_connection;
mod saturated;
mod sights;
mod simulation;
mod steady;
mod without_clock;
mod world;
