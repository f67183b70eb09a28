//! The ledger of one limit that several processes share.
//!
//! A limit of N units is N units that each are in one place at every moment: held by one process
//! under a lease, or in the pool, free now or from a known time on. Units whose lease has ended are in
//! the record of their process until it says when they are free. A process counts its requests
//! against the units it holds, so no request needs the store. A store keeps one [`Ledger`] per
//! limit. A process reads it together with the store's clock, calls [`Ledger::exchange`], and
//! writes the result back if no other process has written meanwhile.
//!
//! The ledger does no I/O and reads no clock: the answer follows from the arguments alone.

mod binding;
mod call;
mod clock;
mod ended;
mod keep;
#[expect(clippy::module_inception, reason = "it holds the type of this name")]
mod ledger;
mod loss;
mod pause;
mod pool;
mod process_record;
mod shares;
#[cfg(any(feature = "etcd", feature = "object-store", feature = "zookeeper", test))]
pub(crate) mod times;

pub(crate) use call::{All, Caller, FLOOR_LEASE_US, Figures, Floor, Got, Line, Loss, State};
pub(crate) use ledger::Ledger;
