//! Stalls of the store, as other processes, long transactions or a machine in trouble cause them.

use super::Fallible;

/// The kind of a stall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stall {
    /// Another connection holds the lock that writers need.
    Locked,
    /// PostgreSQL's processes for this run's database are stopped. Used only if the server was started by our script.
    Stopped,
}

/// A stall in progress. It ends when this value is dropped, at the latest with the process.
pub(crate) enum Holding {
    Sqlite(Box<sqlx::SqliteConnection>),
    #[cfg(feature = "postgres")]
    Postgres(Box<sqlx::PgConnection>),
    Stopped(Vec<String>),
}

/// The kinds of stalls that are possible for the store at `url`.
pub(crate) fn kinds(url: &str) -> &'static [Stall] {
    match url.starts_with("sqlite:") {
        false if std::env::var_os("IC_TEST_POSTGRES_DIR").is_some() => &[Stall::Locked, Stall::Stopped],
        _ => &[Stall::Locked],
    }
}

pub(crate) async fn begin(url: &str, stall: Stall) -> Fallible<Holding> {
    match (stall, url.strip_prefix("sqlite:")) {
        (Stall::Locked, Some(path)) => lock_sqlite(path).await,
        (Stall::Locked, None) => lock_postgres(url).await,
        (Stall::Stopped, _) => {
            let sql = "SELECT pid::text FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
            let processes = super::database::ask::<String>(url, sql).await?;
            signal("-STOP", &processes)?;
            Ok(Holding::Stopped(processes))
        }
    }
}

async fn lock_sqlite(path: &str) -> Fallible<Holding> {
    use sqlx::Connection;
    // On a busy machine, the programs' own writes may keep this connection waiting.
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let options = options.busy_timeout(std::time::Duration::from_secs(60));
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await?;
    Ok(Holding::Sqlite(Box::new(connection)))
}

#[cfg(feature = "postgres")]
async fn lock_postgres(url: &str) -> Fallible<Holding> {
    use sqlx::Connection;
    let mut connection = sqlx::PgConnection::connect(url).await?;
    sqlx::raw_sql("BEGIN; LOCK TABLE ic_job IN ACCESS EXCLUSIVE MODE").execute(&mut connection).await?;
    Ok(Holding::Postgres(Box::new(connection)))
}

#[cfg(not(feature = "postgres"))]
async fn lock_postgres(_: &str) -> Fallible<Holding> {
    Err("PostgreSQL is not compiled in: --features testing,postgres".into())
}

impl Holding {
    pub(crate) async fn end(self) -> Fallible<()> {
        use sqlx::Connection;
        match self {
            Holding::Sqlite(mut connection) => {
                sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await?;
                Ok(connection.close().await?)
            }
            #[cfg(feature = "postgres")]
            Holding::Postgres(connection) => Ok(connection.close().await?),
            Holding::Stopped(processes) => signal("-CONT", &processes),
        }
    }
}

/// Signals processes. Not checked, because some of them may have ended.
fn signal(signal: &str, processes: &[String]) -> Fallible<()> {
    if !processes.is_empty() {
        std::process::Command::new("kill").arg(signal).args(processes).stderr(std::process::Stdio::null()).status()?;
    }
    Ok(())
}
