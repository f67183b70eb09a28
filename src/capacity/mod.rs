//! The units of a limit, shared between processes.
//!
//! A service runs in several copies, and a vendor counts them as one. So each limit has a pool of its units in a store that all
//! copies reach, and each process holds some of the units under a lease. It counts by those as by a limit of its own, and asks
//! the store nothing when it sends. A few times a second it renews its lease, says what it wants, gives back what it need not
//! keep, and takes what it gets: one call for all of its limits.
//!
//! | file | what it does |
//! |---|---|
//! | `ledger/` | decides who holds what: pure, the same for all stores |
//! | `process.rs` | decides what one process says, and what the answers mean: pure |
//! | `store_task.rs` | the task that calls the store and passes on its answers |
//! | `call.rs` | what a call and its answer are, and how a ledger is kept as text |
//! | `swap.rs` | what is written to Redis, which compares and swaps and has a clock: pure |
//! | `redis.rs` | reads and writes it in Redis or Valkey |
//! | `sights.rs` | what is written to a store that compares and swaps and has no clock: pure |
//! | `swapping.rs` | reads and writes it in such a store, again where another process was first |
//! | `etcd.rs`, `objects.rs`, `zookeeper/` | such stores: etcd, S3 and Azure Blob Storage, ZooKeeper |
//!
//! The statements for SQL stores are in `store/capacity.rs`.

pub(crate) mod call;
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
#[cfg(any(feature = "etcd", feature = "object-store", feature = "zookeeper", test))]
mod sights;
pub(crate) mod status;
pub(crate) mod store_task;
#[cfg(feature = "redis")]
mod swap;
#[cfg(any(feature = "etcd", feature = "object-store", feature = "zookeeper"))]
mod swapping;
#[cfg(test)]
mod tests;
#[cfg(feature = "zookeeper")]
mod zookeeper;
#[cfg(not(feature = "zookeeper"))]
#[path = "zookeeper_off.rs"]
mod zookeeper;

pub(crate) use pool_store::{Pace, Pool, open};
