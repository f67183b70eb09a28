//! Processes that share limits, in virtual time: the engines, their calls and the ledgers are those of the library.

mod ledger;
mod simulation;
#[cfg(feature = "redis")]
mod swap;
mod world;
