//! Opening a store: a look whether there is anything to do, and the wait for the tables that a migration changes.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::clock;
use super::driver::{Connect, Db, DbError, DbKind, Dialect, Driver, TRANSACTION};
use super::schema::{VERSION, prepare, version};

/// The wait before a migration is tried again that met a lock. The other processes work meanwhile.
const PAUSE: Duration = Duration::from_secs(5);

/// Connects, and creates or migrates the tables. If the first connection turns out to be unusable, which only its first
/// statements show, or if another process has kept a SQLite file locked, a second one is tried. While another program
/// keeps a table locked (PostgreSQL), the migration is tried for as long as needed.
pub(super) async fn connect(connect: &dyn Connect) -> Result<Box<dyn Driver>, DbError> {
    let (mut is_second, mut waits) = (false, 0_u64);
    loop {
        match open(connect).await {
            Err(error) if error.kind == DbKind::Locked => {
                if waits.is_multiple_of(10) {
                    tracing::warn!(
                        %error,
                        "the store's tables must be changed for this version, and wait for a transaction that uses them \
                         (a dump, a query, a session that is idle in a transaction) or for another process that changes \
                         them; this process tries again every few seconds: let that transaction end, or end it \
                         (pg_locks and pg_stat_activity name it)"
                    );
                }
                waits += 1;
                is_second = false;
                sleep(PAUSE).await;
            }
            Err(error) if !is_second && matches!(error.kind, DbKind::Unreachable | DbKind::Again) => is_second = true,
            result => return result,
        }
    }
}

async fn open(connect: &dyn Connect) -> Result<Box<dyn Driver>, DbError> {
    let mut connection = connect.connect().await?;
    let late = |_| DbError::new(DbKind::Unreachable, "the database did not answer");
    if timeout(TRANSACTION, is_ready(&mut *connection)).await.map_err(late)?? {
        return Ok(connection);
    }
    let begun = async {
        match connection.dialect() {
            // SQLite's clock is in a table, which may not exist yet.
            Dialect::Sqlite => connection.execute("BEGIN IMMEDIATE", Vec::new()).await.map(drop),
            Dialect::Postgres => connection.begin(true).await.map(drop),
        }
    };
    timeout(TRANSACTION, begun).await.map_err(late)??;
    prepare(&mut *connection).await?;
    if connection.dialect() == Dialect::Sqlite {
        clock::set_origin(&mut *connection).await?;
    }
    connection.execute("COMMIT", Vec::new()).await?;
    Ok(connection)
}

/// Whether the store has all tables, and a SQLite file a clock that counts from the machine's boot. Only reads, so that
/// a process that opens the store waits for no other: a busy worker leaves hardly a moment between its commits to a
/// file, and a process that migrates a database may wait for long.
async fn is_ready(db: Db<'_>) -> Result<bool, DbError> {
    let sql = match db.dialect() {
        Dialect::Sqlite => {
            // SQLite's clock is in a table, which may not exist yet.
            db.execute("BEGIN", Vec::new()).await?;
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'ic_schema'"
        }
        Dialect::Postgres => {
            db.begin(false).await?;
            "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = current_schema() AND tablename = 'ic_schema'"
        }
    };
    let tables = db.fetch(sql, Vec::new()).await?.first_mut().map(|row| row.int()).transpose()?;
    let mut is_ready = tables > Some(0) && version(db).await? == VERSION;
    if is_ready && db.dialect() == Dialect::Sqlite {
        is_ready = clock::has_origin(db).await?;
    }
    db.execute("COMMIT", Vec::new()).await?;
    Ok(is_ready)
}
