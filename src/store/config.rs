//! Vendors and tenants in the store: texts as in files, one per row, which override those of all other sources.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::driver::TRANSACTION;
use super::driver::{Connect, Db, DbError, DbKind, Driver, Row, args};
use super::opening;
use super::rows::{self, Read, Rows};
use crate::BoxFuture;
use crate::config::{
    ConfigProblem, ConfigSource, CopyPlace, FingerprintFuture, LastUsedFuture, LoadFuture, SourceContent, SourceKind,
    SourceRecord, Sources, TakenFuture, join_fingerprints, run_blocking,
};
use crate::error::Error;

/// A configuration source in which the rows of the table `ic_config` override another source.
pub(crate) struct StoreSource {
    connect: Arc<dyn Connect>,
    under: Arc<dyn ConfigSource>,
    /// The connection is taken out while it is in use. If a caller drops the future in the middle, the connection is
    /// dropped too.
    connection: Mutex<Option<Box<dyn Driver>>>,
    /// The result of the latest load.
    last: parking_lot::Mutex<Last>,
    /// What is known of the rows, for the status.
    record: Arc<SourceRecord>,
}

/// The hash of all the texts that were combined, and the problem that the source below the rows reports.
type Inputs = (u64, Option<ConfigProblem>);

#[derive(Default)]
struct Last {
    /// The rows that were used in the latest load without an error.
    used: Option<Rows>,
    /// The inputs of the latest load, and its result. Kept because one look at the configuration loads everything
    /// twice.
    read: Option<(Inputs, Read)>,
}

impl StoreSource {
    pub(crate) fn new(connect: Arc<dyn Connect>, under: Arc<dyn ConfigSource>) -> StoreSource {
        let record = Arc::new(SourceRecord::new("table ic_config".to_owned(), SourceKind::Store));
        StoreSource { connect, under, connection: Mutex::default(), last: parking_lot::Mutex::default(), record }
    }

    pub(crate) fn record(&self) -> Arc<SourceRecord> {
        self.record.clone()
    }

    async fn fetch(&self, sql: &'static str) -> Result<Vec<Row>, DbError> {
        let mut place = self.connection.lock().await;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => opening::connect(&*self.connect).await?,
        };
        let late = |_| DbError::new(DbKind::Unreachable, "the database did not answer");
        let rows = timeout(TRANSACTION, in_transaction(&mut *connection, sql)).await.map_err(late)??;
        *place = Some(connection);
        Ok(rows)
    }

    async fn rows(&self) -> Result<Rows, DbError> {
        let rows = self.fetch("SELECT name, text FROM ic_config ORDER BY name").await?;
        rows.into_iter().map(|mut row| Ok((row.text()?, row.text()?))).collect()
    }

    /// Combines `under` with the rows that are valid; rows override `under`. Returns also what is wrong with the others.
    async fn laid(&self, under: Sources, rows: Rows) -> Result<(Sources, Option<String>), Error> {
        let hash = rows.iter().fold(under.clone(), |sources, (name, text)| sources.over(name, text)).hash();
        let all = (hash, under.problem().cloned());
        let used = {
            let last = self.last.lock();
            if let Some((inputs, read)) = &last.read
                && *inputs == all
            {
                return Ok((read.sources.clone(), read.wrong.clone()));
            }
            last.used.clone()
        };
        let read = run_blocking(move || rows::lay(&under, &rows, used.as_ref())).await?;
        let mut last = self.last.lock();
        let before = last.read.as_ref().and_then(|(_, read)| read.sources.problem());
        if let Some(problem) = read.sources.problem()
            && before != Some(problem)
        {
            tracing::error!(
                why = problem.why,
                "some rows of the configuration in the store are invalid; the others are used"
            );
        }
        if read.used.is_some() {
            last.used.clone_from(&read.used);
        }
        last.read = Some((all, read.clone()));
        Ok((read.sources, read.wrong))
    }

    /// Lays the rows over `under`.
    async fn over(&self, under: Sources) -> Result<Sources, Error> {
        let failed =
            |error: DbError| Error::config(format!("the configuration in the store: {error}")).with_source(error);
        let read = self.rows().await.inspect_err(|error| self.record.failed(&error.to_string()));
        let rows = read.map_err(failed)?;
        let mut hasher = DefaultHasher::new();
        rows.hash(&mut hasher);
        let of_under = under.fingerprint();
        let (sources, problem) = self.laid(under, rows).await?;
        // One server holds the rows, so they are those of the version that it stated last, or later ones.
        let content = SourceContent { hash: hasher.finish(), fingerprint: None, copy_age: None, problem };
        let fingerprints = of_under.zip(self.record.loaded(content));
        Ok(sources.with_fingerprint(fingerprints.map(|(under, version)| join_fingerprints(under, version))))
    }

    async fn version(&self) -> Result<i64, DbError> {
        let mut rows = self.fetch("SELECT version FROM ic_config_version").await?;
        Ok(rows.first_mut().map(Row::int).transpose()?.unwrap_or(0))
    }
}

/// Reads inside a transaction, which has the settings that all transactions have, and checks which server it is
/// connected to.
async fn in_transaction(db: Db<'_>, sql: &'static str) -> Result<Vec<Row>, DbError> {
    db.begin(false).await?;
    let rows = db.fetch(sql, Vec::new()).await?;
    db.execute("COMMIT", Vec::new()).await?;
    Ok(rows)
}

impl ConfigSource for StoreSource {
    fn load(&self) -> LoadFuture<'_> {
        Box::pin(async move {
            match self.under.load().await {
                Ok(under) => self.over(under).await,
                Err(error) => {
                    // The rows are of no use, but the status says whether the store answers.
                    if let Ok(version) = self.version().await {
                        self.record.answered(version as u64);
                    }
                    Err(error)
                }
            }
        })
    }

    fn load_last_used(&self) -> LastUsedFuture<'_> {
        Box::pin(async move { self.over(self.under.load_last_used().await?).await.ok() })
    }

    fn taken(&self) -> TakenFuture<'_> {
        self.record.taken();
        self.under.taken()
    }

    fn keep_copies_in(&self, place: Arc<dyn CopyPlace>) {
        self.under.keep_copies_in(place);
    }

    fn fingerprint(&self) -> FingerprintFuture<'_> {
        Box::pin(async move {
            let under = self.under.fingerprint().await?;
            let version = self.version().await.ok()?;
            self.record.stated(version as u64);
            Some(join_fingerprints(under, version as u64))
        })
    }
}

impl fmt::Debug for StoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSource").field("under", &self.under).finish_non_exhaustive()
    }
}

/// Sets a row, or removes it if the text is `None`.
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

/// Returns all rows, sorted by name. Their number needs no bound: a configuration is always loaded as a whole.
pub(crate) fn all<'a>((): &'a (), db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Vec<(String, String)>, DbError>> {
    Box::pin(async move {
        let rows = db.fetch("SELECT name, text FROM ic_config ORDER BY name", Vec::new()).await?;
        rows.into_iter().map(|mut row| Ok((row.text()?, row.text()?))).collect()
    })
}
