//! SQLite and PostgreSQL, with the statements that the library runs there.

use std::collections::BTreeMap;

use super::reference::Loss;
use super::{LedgerStore, Row};
use crate::BoxFuture;
use crate::capacity::call::{Answer, Call};
use crate::store::driver::{Db, DbError, args};
use crate::store::{Actor, Store, capacity};

/// A database: PostgreSQL if `SERVED`, otherwise SQLite.
pub(super) struct Sql<const SERVED: bool>(Actor);

#[cfg(feature = "sqlite")]
pub(super) async fn sqlite() -> Sql<false> {
    open(&Store::sqlite(crate::store::tests::folder().join("capacity.db"))).await
}

#[cfg(feature = "postgres")]
pub(super) async fn postgres() -> Sql<true> {
    open(&Store::postgres(crate::store::tests::database().await)).await
}

async fn open<const SERVED: bool>(store: &Store) -> Sql<SERVED> {
    let (actor, task) = store.open_capacity().await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test's own")]
    tokio::spawn(task);
    Sql(actor)
}

/// A call, and the time of the clock with which it is answered, in microseconds.
struct TimedCall(Call, u64);

/// The library's own step, run with the test's time instead of the store's.
fn exchange<'a>(at: &'a TimedCall, db: Db<'a>, _now_ms: i64) -> BoxFuture<'a, Result<Answer, DbError>> {
    capacity::exchange_at(&at.0, db, Some(i64::try_from(at.1 / 1_000).unwrap()))
}

fn all<'a>(_: &'a (), db: Db<'a>, _now_ms: i64) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
    Box::pin(async move {
        let mut all = Vec::new();
        for mut row in db.fetch("SELECT name, state FROM ic_capacity", Vec::new()).await? {
            all.push(("short", row.text()?, row.text()?));
        }
        for mut row in db.fetch("SELECT name, state FROM ic_capacity_long", Vec::new()).await? {
            all.push(("long", row.text()?, row.text()?));
        }
        Ok(all)
    })
}

fn replace<'a>(rows: &'a Vec<Row>, db: Db<'a>, _now_ms: i64) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move {
        db.execute("DELETE FROM ic_capacity", Vec::new()).await?;
        db.execute("DELETE FROM ic_capacity_long", Vec::new()).await?;
        for (place, name, state) in rows {
            let sql = match *place {
                "short" => "INSERT INTO ic_capacity (name, state) VALUES ($1, $2)",
                _ => "INSERT INTO ic_capacity_long (name, state) VALUES ($1, $2)",
            };
            db.execute(sql, args![name.as_str(), state.as_str()]).await?;
        }
        Ok(())
    })
}

impl<const SERVED: bool> LedgerStore for Sql<SERVED> {
    const NAME: &str = if SERVED { "postgres" } else { "sqlite" };
    const LOSS: Loss = if SERVED { Loss::OfShortLimits } else { Loss::Never };

    async fn exchange(&mut self, clock_us: u64, call: &Call) -> Answer {
        self.0.call(TimedCall(call.clone(), clock_us), exchange, false).await.unwrap()
    }

    async fn all(&mut self) -> Vec<Row> {
        self.0.call((), all, false).await.unwrap()
    }

    async fn replace(&mut self, rows: &[Row]) {
        self.0.call(rows.to_vec(), replace, false).await.unwrap();
    }

    fn ledgers(rows: &[Row]) -> BTreeMap<String, String> {
        // The row with an empty name holds the state that all ledgers have in common.
        let of_limits = rows.iter().filter(|(_, name, _)| !name.is_empty());
        of_limits.map(|(_, name, state)| (name.clone(), state.clone())).collect()
    }

    fn after_loss(rows: &[Row]) -> Vec<Row> {
        rows.iter().filter(|(place, ..)| *place == "long").cloned().collect()
    }
}
