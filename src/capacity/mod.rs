//! Shares the units of a limit between processes.
//!
//! A service runs as several processes, and a vendor counts them as one. So each limit has a pool of its units in a
//! store that all processes reach, and each process holds some of the units under a lease. The process counts its
//! requests against these units as against a limit of its own, so a send never calls the store. A few times a second
//! the process renews its lease, states what it wants, returns units that it does not need, and takes the units that it
//! is granted: one call covers all of its limits.
//!
//! | file | what it does |
//! |---|---|
//! | `ledger/` | decides which process holds which units: pure, the same for all stores |
//! | `process.rs` | decides what one process tells the store and what the answers mean: pure |
//! | `pool_store.rs` | the kinds of stores: which URL opens which, how often each is called; a new kind of store begins here |
//! | `store_task.rs` | the task that calls the store and passes on its answers |
//! | `cold_start.rs` | finds limits whose `cold_start` has no effect because processes share them |
//! | `renamed_limits.rs` | finds limits that a reload makes the store count anew |
//! | `call.rs` | the types of a call and its answer, and the ledger's text form |
//! | `eras.rs` | decides what to write to Redis, which can compare and swap and has a clock: pure |
//! | `redis.rs` | reads and writes ledgers in Redis or Valkey |
//! | `sights.rs` | decides what to write to a store that can compare and swap but has no clock: pure |
//! | `clockless.rs` | reads and writes ledgers in such a store, and retries when another process wrote first |
//! | `etcd.rs`, `objects.rs`, `zookeeper/` | such stores: etcd, S3 and Azure Blob Storage, ZooKeeper |
//!
//! The statements for SQL stores are in `store/capacity.rs`. What a process does with its units, also when the store does
//! not answer, is in the engine (`engine/src/limit/pooled_cell.rs`).

pub(crate) mod call;
#[cfg(any(feature = "etcd", feature = "object-store", feature = "zookeeper"))]
mod clockless;
mod cold_start;
#[cfg(feature = "redis")]
mod eras;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(not(feature = "etcd"))]
#[path = "etcd_off.rs"]
mod etcd;
pub(crate) mod ledger;
#[cfg(feature = "object-store")]
mod objects;
#[cfg(not(feature = "object-store"))]
#[path = "objects_off.rs"]
mod objects;
mod pool_store;
pub(crate) mod process;
#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "redis"))]
#[path = "redis_off.rs"]
mod redis;
mod renamed_limits;
#[cfg(any(feature = "etcd", feature = "object-store", feature = "zookeeper", test))]
mod sights;
pub(crate) mod status;
pub(crate) mod store_task;
#[cfg(test)]
mod tests;
#[cfg(feature = "zookeeper")]
mod zookeeper;
#[cfg(not(feature = "zookeeper"))]
#[path = "zookeeper_off.rs"]
mod zookeeper;

pub(crate) use pool_store::{CallTiming, Pool, open};

/// A number that names one process, or one thing that a process writes: no other process draws it, and it is not 0. It
/// comes from the operating system, because `fastrand` begins with the clock and the thread: processes that were
/// restored from one snapshot, or started in equal machines, may draw equal numbers. With one name, two processes
/// would use the same units.
fn unique_number() -> u64 {
    let (_, number) = uuid::Uuid::new_v4().as_u64_pair();
    number
}
