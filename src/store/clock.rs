//! The store's clock: milliseconds since 1970, which no step of a wall clock moves.
//!
//! PostgreSQL has one clock for all its clients, that of its server. The processes that share a SQLite file share a machine, so
//! they count the milliseconds since that machine was started, from an origin that stands in the file. The origin is taken from
//! the wall clock once for each start of the machine; a step of the wall clock changes nothing until the machine is started again.
//! Then the origin is taken anew, and lies no earlier than the latest time that the file has seen.
//!
//! A machine that says nothing of its start (any but Linux) has the wall clock of each process's first look, continued by
//! that process's monotonic clock.

use super::driver::{Db, DbError, Row, args};

/// Reads the clock of a SQLite file.
pub(super) async fn of_file(db: Db<'_>) -> Result<i64, DbError> {
    let machine = db.machine();
    let Some(boot) = &machine.boot else { return Ok(machine.steady_ms) };
    let origin = origin(db).await?.filter(|origin| *origin.boot == **boot);
    // Without an origin of this start nobody has opened the file since; opening it sets one.
    Ok(origin.map_or(machine.wall_ms, |origin| origin.at_ms.saturating_add(machine.steady_ms)))
}

/// What a SQLite file says of its clock.
struct Origin {
    /// The start of the machine from which time is counted.
    boot: String,
    /// The store's time at that start.
    at_ms: i64,
    /// A recent time of the store.
    latest_ms: i64,
}

async fn origin(db: Db<'_>) -> Result<Option<Origin>, DbError> {
    let mut rows = db.fetch("SELECT boot, at_ms, latest_ms FROM ic_clock LIMIT 1", Vec::new()).await?;
    let read = |row: &mut Row| Ok(Origin { boot: row.text()?, at_ms: row.int()?, latest_ms: row.int()? });
    rows.first_mut().map(read).transpose()
}

/// Sets the origin of a SQLite file's clock if the machine was started since that was done. Inside a transaction that writes.
pub(super) async fn set_origin(db: Db<'_>) -> Result<(), DbError> {
    let machine = db.machine();
    let Some(boot) = &machine.boot else { return Ok(()) };
    let found = origin(db).await?;
    if found.as_ref().is_some_and(|found| *found.boot == **boot) {
        return Ok(());
    }
    let now = found.map_or(machine.wall_ms, |found| machine.wall_ms.max(found.latest_ms));
    db.execute("DELETE FROM ic_clock", Vec::new()).await?;
    let sql = "INSERT INTO ic_clock (boot, at_ms, latest_ms) VALUES ($1, $2, $3)";
    db.execute(sql, args![&**boot, now.saturating_sub(machine.steady_ms), now]).await.map(drop)
}

/// Notes a time, so that the clock goes on behind it after the next start of the machine. For SQLite.
pub(super) async fn note(db: Db<'_>, now: i64) -> Result<(), DbError> {
    db.execute("UPDATE ic_clock SET latest_ms = MAX(latest_ms, $1)", args![now]).await.map(drop)
}
