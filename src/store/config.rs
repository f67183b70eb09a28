//! Vendors and tenants in the store: texts in the format of `vendors.toml`, one a row, laid over what files say.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::actor::TRANSACTION;
use super::driver::{Connect, Db, DbError, DbKind, Driver, Row, args};
use super::schema;
use crate::config::{ConfigSource, FingerprintFuture, LoadFuture};
use crate::error::Error;
use crate::transport::BoxFuture;

/// What another source says, and the rows of the table `ic_config` over it.
pub(crate) struct StoreSource {
    connect: Arc<dyn Connect>,
    under: Arc<dyn ConfigSource>,
    /// Taken out while it is used: whoever drops the future in the middle drops the connection too.
    connection: Mutex<Option<Box<dyn Driver>>>,
}

impl StoreSource {
    pub(crate) fn new(connect: Arc<dyn Connect>, under: Arc<dyn ConfigSource>) -> StoreSource {
        StoreSource { connect, under, connection: Mutex::default() }
    }

    async fn fetch(&self, sql: &'static str) -> Result<Vec<Row>, DbError> {
        let mut place = self.connection.lock().await;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => schema::connect(&*self.connect).await?,
        };
        let late = |_| DbError::new(DbKind::Unreachable, "the database did not answer");
        let rows = timeout(TRANSACTION, in_transaction(&mut *connection, sql)).await.map_err(late)??;
        *place = Some(connection);
        Ok(rows)
    }

    async fn rows(&self) -> Result<Vec<(String, String)>, DbError> {
        let rows = self.fetch("SELECT name, text FROM ic_config ORDER BY name").await?;
        rows.into_iter().map(|mut row| Ok((row.text()?, row.text()?))).collect()
    }

    async fn version(&self) -> Result<i64, DbError> {
        let mut rows = self.fetch("SELECT version FROM ic_config_version").await?;
        Ok(rows.first_mut().map(Row::int).transpose()?.unwrap_or(0))
    }
}

/// Reads in a transaction, as all is: it has the settings that every transaction has, and looks at what it is connected to.
async fn in_transaction(db: Db<'_>, sql: &'static str) -> Result<Vec<Row>, DbError> {
    db.begin(false).await?;
    let rows = db.fetch(sql, Vec::new()).await?;
    db.execute("COMMIT", Vec::new()).await?;
    Ok(rows)
}

impl ConfigSource for StoreSource {
    fn load(&self) -> LoadFuture<'_> {
        Box::pin(async move {
            let mut sources = self.under.load().await?;
            let failed =
                |error: DbError| Error::config(format!("the configuration in the store: {error}")).with_source(error);
            for (name, text) in self.rows().await.map_err(failed)? {
                sources = sources.over(format!("row `{name}` of ic_config"), text);
            }
            Ok(sources)
        })
    }

    fn fingerprint(&self) -> FingerprintFuture<'_> {
        Box::pin(async move {
            let under = self.under.fingerprint().await?;
            let version = self.version().await.ok()?;
            // Neither changes often, and both only grow or are hashes: a product of a large odd number keeps them apart.
            Some(under ^ (version as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        })
    }
}

impl fmt::Debug for StoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSource").field("under", &self.under).finish_non_exhaustive()
    }
}

/// Sets a row, or removes it.
pub(crate) fn set<'a>(
    (name, text): &'a (String, Option<String>),
    db: Db<'a>,
    _: i64,
) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move {
        match text {
            Some(text) => {
                let sql = "INSERT INTO ic_config (name, text) VALUES ($1, $2) \
                           ON CONFLICT (name) DO UPDATE SET text = excluded.text";
                db.execute(sql, args![name, text]).await?;
            }
            None => {
                db.execute("DELETE FROM ic_config WHERE name = $1", args![name]).await?;
            }
        }
        Ok(())
    })
}

/// All rows, by name. As many as a configuration has: they are read as a whole anyway.
pub(crate) fn all<'a>((): &'a (), db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Vec<(String, String)>, DbError>> {
    Box::pin(async move {
        let rows = db.fetch("SELECT name, text FROM ic_config ORDER BY name", Vec::new()).await?;
        rows.into_iter().map(|mut row| Ok((row.text()?, row.text()?))).collect()
    })
}
