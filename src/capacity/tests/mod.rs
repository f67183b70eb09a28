//! Processes that share limits, in virtual time: the engines, their calls and the ledgers are those of the library.

mod ledger;
mod simulation;
mod world;
