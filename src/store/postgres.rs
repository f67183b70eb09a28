//! PostgreSQL: any number of processes, on any number of machines.
//!
//! **Pools in front of the server** (PgBouncer in transaction mode and the like) give each transaction another server
//! connection. So nothing here outlives a transaction: no parameter at the start that a pool refuses, settings by `SET LOCAL`, and no
//! statement outside of a transaction. Named prepared statements save a round trip each, and are used while every transaction
//! of a connection was on the same server process: then a name means what this connection prepared. Once a transaction is on
//! another process, there is a pool: the connection is replaced, and no name is used again.
//!
//! **A failover may keep connections open.** Every transaction looks whether the server takes writes, also one that only reads: what a former
//! primary holds is out of date.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Executor, Postgres, Row as _, TypeInfo, ValueRef};

use super::driver::{Arg, Connect, DbError, DbKind, Dialect, Driver, Row, Value};
use crate::BoxFuture;
use crate::error::Error;

/// A server that does not answer for so long is not there. Below the time limit of a transaction, which connecting is part
/// of.
const CONNECT: Duration = Duration::from_secs(5);

/// Begins a transaction in one round trip. The statement limits are what a transaction that its client gave up may hold its
/// locks for. A commit that is acknowledged and not on the disk would be a promise without a ground.
const BEGIN: &str = "BEGIN; SET LOCAL statement_timeout = '10s'; SET LOCAL idle_in_transaction_session_timeout = '10s'; \
    SELECT (extract(epoch from clock_timestamp()) * 1000)::bigint, pg_backend_pid()::bigint, \
    (current_setting('transaction_read_only') = 'on')::int::bigint, \
    CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END";

struct Server {
    options: PgConnectOptions,
    /// Seen to be behind a pool that changes the server process between transactions.
    is_pooled: AtomicBool,
}

struct Servers(Arc<Server>);

/// Connections to the server at `url`. Nothing of it is shown: it may hold a password.
pub(super) fn open(url: &str) -> Result<Arc<dyn Connect>, Error> {
    let options = PgConnectOptions::from_str(url).map_err(|_| {
        Error::config("store: the URL is none of PostgreSQL; it is postgres://USER:PASSWORD@HOST:PORT/DATABASE")
    })?;
    let host = options.get_host();
    let near = host.starts_with('/')
        || host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    // A password or a row in plain text leaves the machine only where the URL says so.
    let options = match near || url.contains("sslmode=") {
        true => options,
        false => options.ssl_mode(PgSslMode::Require),
    };
    // Only what every pool in front of a server passes on: each of them refuses other parameters at the start. The settings that
    // the store needs are made in each transaction.
    let options = options.application_name("integration-client").extra_float_digits(None).disable_statement_logging();
    Ok(Arc::new(Servers(Arc::new(Server { options, is_pooled: AtomicBool::new(false) }))))
}

impl Connect for Servers {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Driver>, DbError>> {
        Box::pin(async move { Ok(Box::new(Session::open(self.0.clone()).await?) as Box<dyn Driver>) })
    }
}

/// A connection of the store's own.
struct Session {
    server: Arc<Server>,
    connection: PgConnection,
    /// Whether statements are prepared by name.
    names: bool,
    /// The server process of the last transaction.
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

    /// Begins a transaction. Returns the store's clock, and the server process.
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

    fn is_pooled(&self) {
        if !self.server.is_pooled.swap(true, Relaxed) {
            tracing::info!(
                "PostgreSQL is reached through a pool that changes the server process between transactions: statements are \
                 no longer prepared by name"
            );
        }
    }

    /// A name that is taken or unknown was given to another server process, or by another client of the pool.
    fn look_at<T>(&self, result: Result<T, sqlx::Error>) -> Result<T, DbError> {
        result.map_err(|failed| {
            let code = failed.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
            let failed = error(failed);
            if self.names && matches!(code.as_str(), "42P05" | "26000") {
                self.is_pooled();
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
            self.look_at(done)
        })
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move {
            let rows = fetch_raw(&mut self.connection, sql, args, self.names).await;
            self.look_at(rows)?.iter().map(read).collect()
        })
    }

    fn begin(&mut self, _: bool) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(async move {
            let (mut now, mut process) = self.begun().await?;
            if self.process.is_some_and(|before| before != process) {
                self.is_pooled();
            }
            if self.names && self.server.is_pooled.load(Relaxed) {
                // sqlx knows statements of this connection by name, and would use them whatever it is told.
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
            Arg::Texts(values) => query.bind(values.into_iter().map(str::to_owned).collect::<Vec<_>>()),
            Arg::Blobs(values) => query.bind(values.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()),
        };
    }
    query
}

/// Without arguments by the simple protocol: no statement is prepared, and `sql` may be several.
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

/// A connection of the caller's own. It may go through a pool, so nothing is prepared by name on it.
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
        let kind = raw.type_info().name().to_owned();
        values.push(match kind.as_str() {
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
        return DbError::new(kind, format!("PostgreSQL: {error}"));
    };
    let code = database.code().unwrap_or_default();
    let (kind, hint) = match code.as_ref() {
        // Serialization, deadlock, lock not available, ended by its time limit.
        "40001" | "40P01" | "55P03" | "57014" => (DbKind::Again, ""),
        // The server goes down, comes up, or threw the connection out.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => (DbKind::Unreachable, ""),
        code if code.starts_with("08") => (DbKind::Unreachable, ""),
        "53300" => (DbKind::Unreachable, "; raise max_connections, or run fewer clients"),
        "53100" => (DbKind::Storage, "; the server's disk is full"),
        // Nothing was written, and nothing will be as long as this connection is used.
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
