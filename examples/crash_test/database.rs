//! Queries that the judge sends to the database directly, without the library.

use super::Fallible;

/// Exchanges that the store records as begun and without an outcome. Empty if the first worker ended before it had
/// created the tables: at a named point of its first statements, or by the first random kill.
pub(crate) async fn begun(store: &str) -> Fallible<Vec<String>> {
    let tables = match store.starts_with("sqlite:") {
        true => "SELECT count(*) FROM sqlite_master WHERE name = 'ic_job'",
        false => "SELECT count(*) FROM pg_catalog.pg_tables WHERE tablename = 'ic_job'",
    };
    if count(store, tables).await? == 0 {
        return Ok(Vec::new());
    }
    let sql = match store.starts_with("sqlite:") {
        true => "SELECT hex(id) || ' ' || started FROM ic_job WHERE started > 0",
        false => "SELECT encode(id, 'hex') || ' ' || started FROM ic_job WHERE started > 0",
    };
    ask(store, sql).await
}

pub(crate) async fn count(store: &str, sql: &'static str) -> Fallible<i64> {
    let counts: Vec<i64> = ask(store, sql).await?;
    Ok(counts.first().copied().unwrap_or_default())
}

/// Creates a database for this run at the server that IC_TEST_POSTGRES names. Returns the URL of the database.
#[cfg(feature = "postgres")]
pub(crate) async fn empty(prefix: &str) -> Fallible<String> {
    use sqlx::{Connection, Executor};
    let url = std::env::var("IC_TEST_POSTGRES").map_err(|_| "IC_TEST_POSTGRES names no server")?;
    let name = format!("{prefix}_{}", std::process::id());
    // A pooler such as PgBouncer rejects this startup parameter.
    let options = url.parse::<sqlx::postgres::PgConnectOptions>()?.extra_float_digits(None);
    let mut server = sqlx::PgConnection::connect_with(&options).await?;
    server.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await?;
    let (server, _) = url.rsplit_once('/').ok_or("IC_TEST_POSTGRES names no database")?;
    Ok(format!("{server}/{name}"))
}

#[cfg(not(feature = "postgres"))]
pub(crate) async fn empty(_: &str) -> Fallible<String> {
    Err(MISSING.into())
}

/// Runs statements that return no rows.
#[cfg(feature = "postgres")]
pub(crate) async fn run(store: &str, sql: &'static str) -> Fallible<()> {
    use sqlx::Connection;
    let mut connection = sqlx::PgConnection::connect(store).await?;
    sqlx::raw_sql(sql).execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}

#[cfg(not(feature = "postgres"))]
pub(crate) async fn run(_: &str, _: &'static str) -> Fallible<()> {
    Err(MISSING.into())
}

/// Returns the first column of a statement's result.
#[cfg(feature = "postgres")]
pub(crate) async fn ask<T>(store: &str, sql: &'static str) -> Fallible<Vec<T>>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    use sqlx::{Connection, Row};
    if store.starts_with("sqlite:") {
        return ask_sqlite(store, sql).await;
    }
    let mut connection = sqlx::PgConnection::connect(store).await?;
    let rows = sqlx::query(sql).fetch_all(&mut connection).await?;
    connection.close().await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

#[cfg(not(feature = "postgres"))]
pub(crate) async fn ask<T>(store: &str, sql: &'static str) -> Fallible<Vec<T>>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite> + Send + Unpin,
{
    ask_sqlite(store, sql).await
}

const MISSING: &str = "PostgreSQL is not compiled in: --features testing,postgres";

async fn ask_sqlite<T>(store: &str, sql: &'static str) -> Fallible<Vec<T>>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite> + Send + Unpin,
{
    use sqlx::{Connection, Row};
    let path = store.strip_prefix("sqlite:").ok_or(MISSING)?;
    // On a busy machine, the workers' own writes may keep this connection waiting.
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let options = options.busy_timeout(std::time::Duration::from_secs(60));
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
    let rows = sqlx::query(sql).fetch_all(&mut connection).await?;
    connection.close().await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}
