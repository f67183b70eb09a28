//! The table `ic_config_copy`: copies of configurations that are loaded from servers, as they were last in use, by the
//! address of their source.
//!
//! The table is read and written only a few times in a process's life, so each access opens a connection of its own.

use std::fmt;
use std::sync::Arc;

use tokio::time::timeout;

use super::driver::TRANSACTION;
use super::driver::{Connect, DbError, DbKind, Row, args};
use super::opening;
use crate::config::{CopiedFuture, CopyFuture, CopyPlace};
use crate::error::Error;

/// The store as a place for copies.
pub(crate) struct ConfigCopies {
    connect: Arc<dyn Connect>,
}

impl ConfigCopies {
    pub(super) fn new(connect: Arc<dyn Connect>) -> ConfigCopies {
        ConfigCopies { connect }
    }

    async fn run(&self, sql: &'static str, texts: &[&str]) -> Result<Vec<Row>, DbError> {
        let mut connection = opening::connect(&*self.connect).await?;
        let asked = async {
            connection.begin(true).await?;
            let args = texts.iter().flat_map(|text| args![*text]).collect();
            let rows = connection.fetch(sql, args).await?;
            connection.execute("COMMIT", Vec::new()).await?;
            Ok(rows)
        };
        let late = |_| DbError::new(DbKind::Unreachable, "the database did not answer");
        timeout(TRANSACTION, asked).await.map_err(late)?
    }
}

fn failed(error: DbError) -> Error {
    Error::config(format!("the copy of the configuration in the store: {error}")).with_source(error)
}

impl CopyPlace for ConfigCopies {
    fn read<'a>(&'a self, source: &'a str) -> CopyFuture<'a> {
        Box::pin(async move {
            let rows = self.run("SELECT copy FROM ic_config_copy WHERE source = $1", &[source]).await;
            rows.and_then(|mut rows| rows.first_mut().map(Row::text).transpose()).map_err(failed)
        })
    }

    fn write<'a>(&'a self, source: &'a str, copy: &'a str) -> CopiedFuture<'a> {
        Box::pin(async move {
            let sql = "INSERT INTO ic_config_copy (source, copy) VALUES ($1, $2) \
                       ON CONFLICT (source) DO UPDATE SET copy = excluded.copy";
            self.run(sql, &[source, copy]).await.map(drop).map_err(failed)
        })
    }
}

impl fmt::Debug for ConfigCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigCopies").finish_non_exhaustive()
    }
}
