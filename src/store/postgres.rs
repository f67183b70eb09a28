//! PostgreSQL: any number of processes, on any number of machines.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection, Postgres, Row as _, TypeInfo, ValueRef};

use super::driver::{Arg, Connect, DbError, DbKind, Dialect, Driver, Row, Value};
use crate::error::Error;
use crate::transport::BoxFuture;

/// A server that does not answer for so long is not there. Below the time limit of a transaction, which connecting is part
/// of.
const CONNECT: Duration = Duration::from_secs(5);

struct Server {
    options: PgConnectOptions,
}

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
    let options = options
        .application_name("integration-client")
        // A transaction that its client gave up must not hold its locks for much longer than the client waited.
        .options([("statement_timeout", "10s"), ("idle_in_transaction_session_timeout", "10s")])
        .disable_statement_logging();
    Ok(Arc::new(Server { options }))
}

impl Connect for Server {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Driver>, DbError>> {
        Box::pin(async move {
            let connected = tokio::time::timeout(CONNECT, self.options.connect()).await;
            let late = |_| DbError::new(DbKind::Unreachable, "PostgreSQL: no connection within 5 s");
            let mut connection = connected.map_err(late)?.map_err(error)?;
            // A commit that is acknowledged and not on the disk would be a promise without a ground.
            let sync = "SELECT set_config('synchronous_commit', 'on', false) \
                        WHERE current_setting('synchronous_commit') = 'off'";
            connection.execute(sync, Vec::new()).await?;
            let mut rows = connection.fetch("SELECT pg_is_in_recovery()::int::bigint", Vec::new()).await?;
            let in_recovery = rows.first_mut().map(Row::int).transpose()?;
            if in_recovery != Some(0) {
                let _ = connection.close().await;
                let message = "PostgreSQL: this server is a read-only standby; connect to the primary";
                return Err(DbError::new(DbKind::Other, message));
            }
            Ok(Box::new(connection) as Box<dyn Driver>)
        })
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

impl Driver for PgConnection {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            let done = bound(sql, args).execute(self).await.map_err(error)?;
            Ok(done.rows_affected())
        })
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move {
            let rows = bound(sql, args).fetch_all(self).await.map_err(error)?;
            rows.iter().map(read).collect()
        })
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(async move {
            let sql = "SELECT (extract(epoch from clock_timestamp()) * 1000)::bigint";
            let mut rows = self.fetch(sql, Vec::new()).await?;
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
        // Serialization, deadlock, lock not available.
        "40001" | "40P01" | "55P03" => (DbKind::Again, ""),
        // The server goes down, comes up, or threw the connection out.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => (DbKind::Unreachable, ""),
        code if code.starts_with("08") => (DbKind::Unreachable, ""),
        "53300" => (DbKind::Unreachable, "; raise max_connections, or run fewer clients"),
        "53100" => (DbKind::Storage, "; the server's disk is full"),
        "25006" => (DbKind::Storage, "; connect to the primary"),
        "28P01" | "28000" => (DbKind::Other, "; look at user and password in the URL"),
        "3D000" => (DbKind::Other, "; create the database first"),
        "42501" => (DbKind::Other, "; the user needs the right to make and change tables"),
        _ => (DbKind::Other, ""),
    };
    DbError::new(kind, format!("PostgreSQL: {}{hint}", database.message()))
}
