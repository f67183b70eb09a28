//! The stores that can keep a pool.

use super::redis::{self, Redis};
use crate::BoxFuture;
use crate::capacity::call::{Answer, Call};
use crate::error::Error;
use crate::store::{Actor, Store, capacity};

/// An open pool.
pub(crate) enum Pool {
    /// PostgreSQL or SQLite.
    Sql(Actor),
    /// Redis or Valkey.
    Redis(Redis),
}

impl Pool {
    /// Renews, gives back and takes, for all limits of a call. A call may be answered twice: the ledgers know it again.
    pub(crate) async fn exchange(&self, call: Call) -> Result<Answer, String> {
        match self {
            Pool::Sql(actor) => actor.call(call, capacity::exchange, false).await.map_err(|error| error.to_string()),
            Pool::Redis(redis) => redis.exchange(&call).await,
        }
    }
}

/// Opens the pool at `through`: `store` is the outbox's own store. Returns the task that must be spawned, if it has one.
pub(crate) async fn open(
    through: &str,
    store: Option<&Store>,
) -> Result<(Pool, Option<BoxFuture<'static, ()>>), Error> {
    let scheme = through.split_once("://").map_or("", |(scheme, _)| scheme);
    if matches!(scheme, "redis" | "rediss" | "valkey" | "valkeys") {
        return Ok((Pool::Redis(redis::open(through).await?), None));
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
