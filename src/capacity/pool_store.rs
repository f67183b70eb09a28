//! The stores that can keep a pool.

use std::time::Duration;

use super::etcd::{self, Etcd};
use super::objects::{self, Objects};
use super::redis::{self, Redis};
use super::zookeeper::{self, Zookeeper};
use crate::BoxFuture;
use crate::capacity::call::{Answer, Call};
use crate::config::Holds;
use crate::error::Error;
use crate::store::{Actor, Store, capacity};

/// An open pool.
#[allow(clippy::large_enum_variant, reason = "a client has one, and which variant is large depends on the features")]
pub(crate) enum Pool {
    /// PostgreSQL or SQLite.
    Sql(Actor),
    /// Redis or Valkey.
    Redis(Redis),
    Etcd(Etcd),
    /// S3 or Azure Blob Storage.
    Objects(Objects),
    Zookeeper(Zookeeper),
}

/// How often and how long a store is called, and which limits it can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTiming {
    /// The shortest and the longest time between two calls. While requests lack units that the store may have, a half or a
    /// quarter of it passes.
    pub(crate) every: (Duration, Duration),
    /// The longest time that a call may take.
    pub(crate) call: Duration,
    /// The shortest lease, during which some calls may fail, and the default lease.
    pub(crate) leases: (Duration, Duration),
    pub(crate) holds: Holds,
}

impl CallTiming {
    /// Databases and Redis: up to four calls per shortest window.
    const OFTEN: CallTiming = CallTiming {
        every: (Duration::from_millis(250), Duration::from_secs(1)),
        call: Duration::from_secs(1),
        leases: (Duration::from_secs(2), Duration::from_secs(10)),
        holds: Holds { windows_from: Duration::ZERO, name: "a database" },
    };
    /// For each limit, a call is written to the disks of a majority of etcd's servers.
    const ETCD: CallTiming = CallTiming {
        every: (Duration::from_secs(2), Duration::from_secs(2)),
        call: Duration::from_secs(2),
        leases: (Duration::from_secs(6), Duration::from_secs(10)),
        holds: Holds { windows_from: Duration::from_secs(60), name: "etcd" },
    };
    /// The same as etcd, which writes in the same way.
    const ZOOKEEPER: CallTiming =
        CallTiming { holds: Holds { windows_from: Duration::from_secs(60), name: "ZooKeeper" }, ..CallTiming::ETCD };
    /// The provider charges for each request.
    const OBJECTS: CallTiming = CallTiming {
        every: (Duration::from_secs(5), Duration::from_secs(5)),
        call: Duration::from_secs(5),
        leases: (Duration::from_secs(15), Duration::from_secs(30)),
        holds: Holds { windows_from: Duration::from_secs(60), name: "an object store" },
    };
}

impl Pool {
    /// Renews leases, returns units and takes granted ones, for all limits of a call. Repeating a call is safe: the
    /// ledgers recognize it. The answer has an error for each limit about which the store said nothing; a call fails if
    /// the store said nothing about any.
    pub(crate) async fn exchange(&self, call: Call) -> Result<Answer, String> {
        match self {
            Pool::Sql(actor) => actor.call(call, capacity::exchange, false).await.map_err(|error| error.to_string()),
            Pool::Redis(redis) => redis.exchange(&call).await,
            Pool::Etcd(etcd) => etcd.exchange(&call, CallTiming::ETCD.call).await,
            Pool::Objects(objects) => objects.exchange(&call, CallTiming::OBJECTS.call).await,
            Pool::Zookeeper(zookeeper) => zookeeper.exchange(&call, CallTiming::ZOOKEEPER.call).await,
        }
    }

    pub(crate) fn pace(&self) -> CallTiming {
        match self {
            Pool::Sql(_) | Pool::Redis(_) => CallTiming::OFTEN,
            Pool::Etcd(_) => CallTiming::ETCD,
            Pool::Objects(_) => CallTiming::OBJECTS,
            Pool::Zookeeper(_) => CallTiming::ZOOKEEPER,
        }
    }
}

/// Opens the pool at `through`. `store` is the outbox's own store. Returns the pool, and a task to spawn if the pool
/// has one.
pub(crate) async fn open(
    through: &str,
    store: Option<&Store>,
) -> Result<(Pool, Option<BoxFuture<'static, ()>>), Error> {
    let scheme = through.split_once("://").map_or("", |(scheme, _)| scheme);
    match scheme {
        "redis" | "rediss" | "valkey" | "valkeys" => return Ok((Pool::Redis(redis::open(through).await?), None)),
        "etcd" | "etcds" => return Ok((Pool::Etcd(etcd::open(through).await?), None)),
        "s3" | "az" => return Ok((Pool::Objects(objects::open(through).await?), None)),
        "zk" => {
            let (zookeeper, task) = zookeeper::open(through).await?;
            return Ok((Pool::Zookeeper(zookeeper), Some(task)));
        }
        _ => {}
    }
    let (actor, task) = match (through, store) {
        ("store", Some(store)) => store.open_capacity().await?,
        ("store", None) => {
            return Err(Error::config(
                "`share_through(\"store\")` needs a store: call `IntegrationClientBuilder::store`, or name a URL",
            ));
        }
        (url, _) => Store::url(url).open_capacity().await?,
    };
    Ok((Pool::Sql(actor), Some(task)))
}
