//! The PostgreSQL driver: any number of processes, on any number of machines.
//!
//! **Poolers in front of the server** (PgBouncer in transaction mode and the like) give each transaction another server
//! connection. So nothing may outlive a transaction: the driver sends no startup parameter that a pooler refuses, makes
//! settings by `SET LOCAL`, and runs no statement outside of a transaction. Named prepared statements save a round trip
//! each, and are used while every transaction of a connection ran on the same server process: then a name refers to
//! what this connection prepared. Once a transaction runs on another process, there must be a pooler: the connection is
//! replaced, and no names are used again.
//!
//! **A failover may keep connections open.** Every transaction checks whether the server accepts writes, even one that
//! only reads: the data of a former primary is out of date.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Executor, Postgres, Row as _, TypeInfo, ValueRef};

use super::driver::{Arg, Connect, DbError, DbKind, Dialect, Driver, Row, Value};
use crate::BoxFuture;
use crate::error::Error;

/// The time limit of connecting. Below that of a transaction, which includes connecting.
const CONNECT: Duration = Duration::from_secs(5);

/// Begins a transaction in one round trip. The timeouts bound how long a transaction that its client has abandoned can
/// hold its locks, and how long a statement waits for each lock that another program keeps: the store's own transactions
/// hold theirs for milliseconds. A statement that waits for several locks, one after the other, is bounded by
/// `statement_timeout` alone. `synchronous_commit` is switched on if it is off, because an acknowledged commit must
/// be on the disk. `READ COMMITTED` is stated in case the database has another default: each statement must see what
/// was committed before it, so that a statement that waited for a row sees what was written meanwhile.
///
/// Every statement of the store finds its rows by an index, whatever their number. The planner's statistics are never
/// right about a queue, so sequential scans and bitmap scans are switched off. Among the indexes the planner still
/// chooses: a statement about many jobs must state an order or bounds that only the right index serves. The compilation
/// of plans that are estimated to be expensive is switched off too: it would take longer than any of these statements.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = '10s'; SET LOCAL idle_in_transaction_session_timeout = '10s'; \
    SET LOCAL lock_timeout = '2s'; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off; \
    SELECT (extract(epoch from clock_timestamp()) * 1000)::bigint, pg_backend_pid()::bigint, \
    (current_setting('transaction_read_only') = 'on')::int::bigint, \
    CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END";

struct Server {
    options: PgConnectOptions,
    /// Whether a pooler was noticed that changes the server process between transactions.
    is_pooled: AtomicBool,
}

struct Servers(Arc<Server>);

/// A connector to the server at `url`. No error shows the URL: it may hold a password.
pub(super) fn open(url: &str) -> Result<Arc<dyn Connect>, Error> {
    let options = PgConnectOptions::from_str(url).map_err(|_| {
        Error::config("store: the URL is not valid for PostgreSQL; use postgres://USER:PASSWORD@HOST:PORT/DATABASE")
    })?;
    let host = options.get_host();
    let near = host.starts_with('/')
        || host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    // A password or a row leaves the machine in plain text only if the URL says so.
    let options = match near || url.contains("sslmode=") {
        true => options,
        false => options.ssl_mode(PgSslMode::Require),
    };
    // These are the only startup parameters that all common poolers pass on; each pooler refuses some of the others.
    // Other settings are made in each transaction.
    let options = options.application_name("integration-client").extra_float_digits(None).disable_statement_logging();
    Ok(Arc::new(Servers(Arc::new(Server { options, is_pooled: AtomicBool::new(false) }))))
}

impl Connect for Servers {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Driver>, DbError>> {
        Box::pin(async move { Ok(Box::new(Session::open(self.0.clone()).await?) as Box<dyn Driver>) })
    }
}

/// A connection of the store.
struct Session {
    server: Arc<Server>,
    connection: PgConnection,
    /// Whether statements are prepared by name.
    names: bool,
    /// The server process of the latest transaction.
    process: Option<i64>,
}

impl Session {
    async fn open(server: Arc<Server>) -> Result<Session, DbError> {
        let late = |_| DbError::new(DbKind::Unreachable, "PostgreSQL: no connection within 5 s");
        let connected = tokio::time::timeout(CONNECT, server.options.connect()).await;
        let connection = connected.map_err(late)?.map_err(error)?;
        let names = !server.is_pooled.load(Relaxed);
        Ok(Session { server, connection, names, process: None })
    }

    /// Begins a transaction. Returns the store's time, and the id of the server process.
    async fn begun(&mut self) -> Result<(i64, i64), DbError> {
        let mut rows = fetch(&mut self.connection, BEGIN, Vec::new(), false).await?;
        let none = || DbError::new(DbKind::Nonsense, "PostgreSQL: the clock does not answer");
        let row = rows.first_mut().ok_or_else(none)?;
        let (now, process, is_read_only) = (row.int()?, row.int()?, row.int()?);
        if is_read_only != 0 {
            let message = "PostgreSQL: this server is a standby or takes no writes; connect to the primary";
            return Err(DbError::new(DbKind::Unreachable, message));
        }
        Ok((now, process))
    }

    fn note_pooler(&self) {
        if !self.server.is_pooled.swap(true, Relaxed) {
            tracing::info!(
                "PostgreSQL is behind a pooler that changes the server process between transactions: statements are \
                 no longer prepared by name"
            );
        }
    }

    /// Maps an error. A statement name that is taken or unknown means that another server process answered, behind a
    /// pooler.
    fn checked<T>(&self, result: Result<T, sqlx::Error>) -> Result<T, DbError> {
        result.map_err(|failed| {
            let code = failed.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
            let failed = error(failed);
            if self.names && matches!(code.as_str(), "42P05" | "26000") {
                self.note_pooler();
                return failed.unreachable();
            }
            failed
        })
    }
}

impl Driver for Session {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            let done = execute(&mut self.connection, sql, args, self.names).await;
            self.checked(done)
        })
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move {
            let rows = fetch_raw(&mut self.connection, sql, args, self.names).await;
            self.checked(rows)?.iter().map(read).collect()
        })
    }

    fn begin(&mut self, _: bool) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(async move {
            let (mut now, mut process) = self.begun().await?;
            if self.process.is_some_and(|before| before != process) {
                self.note_pooler();
            }
            if self.names && self.server.is_pooled.load(Relaxed) {
                // sqlx caches the statements of this connection by name, and would reuse them, so the connection is
                // replaced.
                execute(&mut self.connection, "ROLLBACK", Vec::new(), false).await.map_err(error)?;
                *self = Session::open(self.server.clone()).await?;
                (now, process) = self.begun().await?;
            }
            self.process = Some(process);
            Ok(now)
        })
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        self.connection.now()
    }
}

fn bound<'q>(sql: &'static str, args: Vec<Arg<'q>>) -> sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments> {
    let mut query = sqlx::query::<Postgres>(sql);
    for arg in args {
        query = match arg {
            Arg::Int(value) => query.bind(value),
            Arg::Text(value) => query.bind(value.map(str::to_owned)),
            Arg::Bytes(value) => query.bind(value.map(<[u8]>::to_vec)),
            Arg::Ints(values) => query.bind(values),
            Arg::MaybeInts(values) => query.bind(values),
            Arg::Texts(values) => query.bind(values.into_iter().map(str::to_owned).collect::<Vec<_>>()),
            Arg::Blobs(values) => {
                query.bind(values.into_iter().map(|value| value.map(<[u8]>::to_vec)).collect::<Vec<_>>())
            }
            Arg::Json(value) => query.bind(value),
        };
    }
    query
}

/// A statement without arguments uses the simple protocol: nothing is prepared, and `sql` may hold several statements.
async fn execute<'a>(
    connection: &mut PgConnection,
    sql: &'static str,
    args: Vec<Arg<'a>>,
    named: bool,
) -> Result<u64, sqlx::Error> {
    let done = match args.is_empty() {
        true => Executor::execute(connection, sql).await?,
        false => bound(sql, args).persistent(named).execute(connection).await?,
    };
    Ok(done.rows_affected())
}

async fn fetch_raw<'a>(
    connection: &mut PgConnection,
    sql: &'static str,
    args: Vec<Arg<'a>>,
    named: bool,
) -> Result<Vec<sqlx::postgres::PgRow>, sqlx::Error> {
    match args.is_empty() {
        true => Executor::fetch_all(connection, sql).await,
        false => bound(sql, args).persistent(named).fetch_all(connection).await,
    }
}

async fn fetch<'a>(
    connection: &mut PgConnection,
    sql: &'static str,
    args: Vec<Arg<'a>>,
    named: bool,
) -> Result<Vec<Row>, DbError> {
    fetch_raw(connection, sql, args, named).await.map_err(error)?.iter().map(read).collect()
}

/// A connection of the caller. It may lead through a pooler, so no statement is prepared by name.
impl Driver for PgConnection {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move { execute(self, sql, args, false).await.map_err(error) })
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(fetch(self, sql, args, false))
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(async move {
            let sql = "SELECT (extract(epoch from clock_timestamp()) * 1000)::bigint";
            let mut rows = fetch(self, sql, Vec::new(), false).await?;
            let none = || DbError::new(DbKind::Nonsense, "PostgreSQL: the clock does not answer");
            rows.first_mut().ok_or_else(none)?.int()
        })
    }
}

fn read(row: &sqlx::postgres::PgRow) -> Result<Row, DbError> {
    let mut values = Vec::with_capacity(row.len());
    for column in 0..row.len() {
        let raw = row.try_get_raw(column).map_err(error)?;
        let kind = raw.type_info();
        values.push(match kind.name() {
            _ if raw.is_null() => Value::Null,
            "INT8" => Value::Int(row.try_get(column).map_err(error)?),
            "INT4" => Value::Int(row.try_get::<i32, _>(column).map_err(error)?.into()),
            "TEXT" | "VARCHAR" => Value::Text(row.try_get(column).map_err(error)?),
            "BYTEA" => Value::Bytes(row.try_get(column).map_err(error)?),
            _ => Value::Other,
        });
    }
    Ok(Row::new(values))
}

fn error(error: sqlx::Error) -> DbError {
    let sqlx::Error::Database(database) = &error else {
        let kind = match &error {
            sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => DbKind::Nonsense,
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => DbKind::Unreachable,
            _ => DbKind::Other,
        };
        let hint = match &error {
            sqlx::Error::Tls(cause) if cause.to_string() == "server does not support TLS" => {
                "; connections to another machine use TLS: switch it on at the server, or set sslmode=disable in the URL"
            }
            _ => "",
        };
        return DbError::new(kind, format!("PostgreSQL: {error}{hint}"));
    };
    let code = database.code().unwrap_or_default();
    let (kind, hint) = match code.as_ref() {
        // Serialization failure, deadlock, statement timeout.
        "40001" | "40P01" | "57014" => (DbKind::Again, ""),
        // Lock not available.
        "55P03" => (DbKind::Locked, "; another program has kept a row or a table locked"),
        // The server shuts down or starts up, or has closed the connection.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => (DbKind::Unreachable, ""),
        code if code.starts_with("08") => (DbKind::Unreachable, ""),
        "53300" => (DbKind::Unreachable, "; raise max_connections, or run fewer clients"),
        "53100" => (DbKind::Storage, "; the server's disk is full"),
        code if code.starts_with("53") => (DbKind::Storage, "; the server is short of memory or of another resource"),
        // Nothing was written, and nothing can be while this connection is used.
        "25006" => (DbKind::Unreachable, "; connect to the primary"),
        "58030" => (DbKind::Storage, "; the server's disk fails"),
        "XX001" | "XX002" => (DbKind::Damaged, "; the server's files are damaged"),
        "28P01" | "28000" => (DbKind::Other, "; look at user and password in the URL"),
        "3D000" => (DbKind::Other, "; create the database first"),
        "42501" => (DbKind::Other, "; the user needs the right to make and change tables"),
        _ => (DbKind::Other, ""),
    };
    DbError::new(kind, format!("PostgreSQL: {}{hint}", database.message()))
}

#[cfg(test)]
mod tests;
