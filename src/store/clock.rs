//! The store's clock: milliseconds since 1970, not affected by steps of a wall clock.
//!
//! PostgreSQL has one clock for all its clients, that of its server. The processes that share a SQLite file share a
//! machine, so they count the milliseconds since the machine was booted, from an origin that is stored in the file. The
//! origin is taken from the wall clock once for each boot; a step of the wall clock has no effect until the next boot.
//! Then a new origin is taken, no earlier than the latest time that the file has recorded.
//!
//! On a machine that does not report its boot (any but Linux) each process starts from the wall clock and continues by a
//! monotonic clock; the ledgers of shared limits count by the wall clock there. On Linux and macOS the time in which the
//! machine is suspended counts.

use super::driver::{Db, DbError, Row, args};
use crate::BoxFuture;
use crate::clock::MachineTime;

/// Returns the store's time.
pub(crate) fn now<'a>((): &'a (), _: Db<'a>, now: i64) -> BoxFuture<'a, Result<i64, DbError>> {
    Box::pin(std::future::ready(Ok(now)))
}

/// Reads the clock of a SQLite file.
pub(super) async fn of_file(db: Db<'_>) -> Result<i64, DbError> {
    let machine = db.machine();
    let Some(boot) = &machine.boot else { return Ok(machine.steady_ms) };
    let origin = origin(db).await?.filter(|origin| *origin.boot == **boot);
    // Without an origin for this boot no process has opened the file since the boot; opening the file sets one.
    Ok(origin.map_or(machine.wall_ms, |origin| origin.at_ms.saturating_add(machine.steady_ms)))
}

/// The time of the ledgers of shared limits in a SQLite file whose clock reads `now_ms`. Where the machine does not report
/// its boot, the clocks of two processes can differ for as long as both live, and a ledger that is read by both would count
/// the difference with each change from one to the other. They have the wall clock in common, and a ledger bounds what a
/// step of it does.
pub(super) fn of_ledgers(machine: &MachineTime, now_ms: i64) -> i64 {
    match machine.boot {
        Some(_) => now_ms,
        None => machine.wall_ms,
    }
}

/// The clock data of a SQLite file.
struct Origin {
    /// The boot from which time is counted.
    boot: String,
    /// The store's time at that boot.
    at_ms: i64,
    /// A recent time of the store.
    latest_ms: i64,
}

async fn origin(db: Db<'_>) -> Result<Option<Origin>, DbError> {
    let mut rows = db.fetch("SELECT boot, at_ms, latest_ms FROM ic_clock LIMIT 1", Vec::new()).await?;
    let read = |row: &mut Row| Ok(Origin { boot: row.text()?, at_ms: row.int()?, latest_ms: row.int()? });
    rows.first_mut().map(read).transpose()
}

/// Whether the origin of a SQLite file's clock was set since the machine was booted, so that no new one is needed.
pub(super) async fn has_origin(db: Db<'_>) -> Result<bool, DbError> {
    let machine = db.machine();
    let Some(boot) = &machine.boot else { return Ok(true) };
    Ok(origin(db).await?.is_some_and(|found| *found.boot == **boot))
}

/// Sets the origin of a SQLite file's clock if the machine was booted since the origin was set. Runs inside a
/// transaction that writes.
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

/// Records a time, so that the clock continues after it at the next boot. For SQLite.
pub(super) async fn note(db: Db<'_>, now: i64) -> Result<(), DbError> {
    db.execute("UPDATE ic_clock SET latest_ms = MAX(latest_ms, $1)", args![now]).await.map(drop)
}
