//! The working processes: their heartbeats, what other processes read about them, and the takeover of a silent
//! process's jobs.
//!
//! No time is compared with another process's clock, or with a time that was stored earlier. A working process writes a
//! number that grows; another process measures by its own monotonic clock for how long it has read the same number
//! ([`Leases`](crate::outbox::leases::Leases)). So neither a step of a clock nor a stall of the store makes a process
//! look silent.

use std::time::Duration;

use super::driver::readable;
use super::driver::{Arg, Connect, Db, DbError, DbKind, Dialect, Row, args};
use super::{Id, clock, opening};
use crate::BoxFuture;
use crate::clock::{Clock, Time};

/// A heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct Beat {
    pub(crate) owner: Id,
    /// The number of the heartbeat, larger than that of the one before.
    pub(crate) number: i64,
    pub(crate) lease_ms: i64,
}

/// Another process, as its latest heartbeat tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// The id as its row holds it; the row may have been edited.
    pub(crate) owner: Vec<u8>,
    /// The number of the heartbeat.
    pub(crate) number: i64,
    pub(crate) lease_ms: i64,
}

/// The most processes that are read.
const MAX_OWNERS: i64 = 10_000;

/// Writes a heartbeat and reads those of other processes. Returns `None` if the owner's row is gone from a SQLite file:
/// another process works on the file by now.
///
/// The step also updates the table of jobs, although it changes only claims without an owner there. So a lock on that
/// table delays the heartbeats of all processes alike, instead of blocking the writes of one process while another one
/// writes heartbeats.
pub(crate) fn beat<'a>(beat: &'a Beat, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Option<Vec<Seen>>, DbError>> {
    Box::pin(async move {
        let owner = beat.owner.as_bytes().as_slice();
        let unowned = "UPDATE ic_job SET state = 0, owner = NULL WHERE state = 1 AND owner IS NULL";
        if db.dialect() == Dialect::Sqlite {
            let sql = "UPDATE ic_owner SET beat = $2, lease_ms = $3 WHERE owner = $1";
            if db.execute(sql, args![owner, beat.number, beat.lease_ms]).await? == 0 {
                return Ok(None);
            }
            db.execute(unowned, Vec::new()).await?;
            clock::note(db, now).await?;
            // No other process works on the file.
            return Ok(Some(Vec::new()));
        }
        db.execute(unowned, Vec::new()).await?;
        let sql = "SELECT owner, beat, lease_ms FROM ic_owner WHERE owner <> $1 LIMIT $2";
        let seen = readable(db.fetch(sql, args![owner, MAX_OWNERS]).await?, known);
        // The heartbeat is written last, so that its row is locked for one round trip only.
        let sql = "INSERT INTO ic_owner (owner, beat, lease_ms, seat) VALUES ($1, $2, $3, '') \
                   ON CONFLICT (owner) DO UPDATE SET beat = excluded.beat, lease_ms = excluded.lease_ms";
        db.execute(sql, args![owner, beat.number, beat.lease_ms]).await?;
        Ok(Some(seen))
    })
}

fn known(mut row: Row) -> Result<Seen, DbError> {
    Ok(Seen { owner: row.bytes()?, number: row.int()?, lease_ms: row.int()? })
}

/// Returns the processes other than `owner` that have claims and no heartbeat: a process that claimed jobs and ended before
/// its first heartbeat, or whose row was deleted. For PostgreSQL.
///
/// This is not part of the heartbeat: while an old snapshot is held, it reads the index entries of all claims that have
/// ended since, and may take seconds.
pub(crate) fn unregistered<'a>(owner: &'a Id, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Vec<Vec<u8>>, DbError>> {
    Box::pin(async move {
        // A skip scan: from one owner to the next by the index, whatever the planner's statistics say.
        let sql = "WITH RECURSIVE o AS ((SELECT owner FROM ic_job WHERE state = 1 AND owner IS NOT NULL ORDER BY owner LIMIT 1) \
                   UNION ALL SELECT n.owner FROM o CROSS JOIN LATERAL (SELECT owner FROM ic_job WHERE state = 1 \
                   AND owner > o.owner ORDER BY owner LIMIT 1) n) \
                   SELECT owner FROM o WHERE owner <> $1 AND NOT EXISTS (SELECT 1 FROM ic_owner k WHERE k.owner = o.owner) LIMIT $2";
        let rows = db.fetch(sql, args![owner.as_bytes().as_slice(), MAX_OWNERS]).await?;
        Ok(readable(rows, |mut row| row.bytes()))
    })
}

/// Removes the row of a process that has stopped working, unless the process leaves claims behind.
pub(crate) fn leave<'a>(owner: &'a Id, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<u64, DbError>> {
    Box::pin(async move {
        let sql = "DELETE FROM ic_owner WHERE owner = $1 AND NOT EXISTS (SELECT 1 FROM ic_job WHERE state = 1 AND owner = $1)";
        db.execute(sql, args![owner.as_bytes().as_slice()]).await
    })
}

/// A process that has been silent for a lease.
#[derive(Clone, Debug)]
pub(crate) struct Silent {
    pub(crate) owner: Vec<u8>,
    pub(crate) number: Option<i64>,
    /// The end of the time in which a takeover is allowed. A transaction that takes longer met a stall of the store,
    /// after which the observation is void.
    pub(crate) not_after: Time,
    pub(crate) clock: Clock,
}

/// The most jobs that one transaction releases.
const TOGETHER: i64 = 1_000;

/// Whether a takeover that released `jobs` jobs may have left others.
pub(crate) fn is_cut(jobs: u64) -> bool {
    i64::try_from(jobs).is_ok_and(|jobs| jobs >= TOGETHER)
}

/// Releases claims of a silent process, up to [`TOGETHER`]. Returns how many. For PostgreSQL.
pub(crate) fn take_over<'a>(silent: &'a Silent, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<u64, DbError>> {
    Box::pin(async move {
        let owner = silent.owner.as_slice();
        // The lock makes the process's next heartbeat wait for this transaction. If a heartbeat is just being written,
        // its row is skipped, and nothing is released.
        let sql = "SELECT beat FROM ic_owner WHERE owner = $1 FOR UPDATE SKIP LOCKED";
        let mut rows = db.fetch(sql, args![owner]).await?;
        if rows.first_mut().map(Row::int).transpose()? != silent.number {
            return Ok(0);
        }
        // A locked row belongs to a job that the owner is just ending. It is skipped and examined again later.
        let sql = "SELECT seq FROM ic_job WHERE state = 1 AND owner = $1 LIMIT $2 FOR UPDATE SKIP LOCKED";
        let mut rows = db.fetch(sql, args![owner, TOGETHER]).await?;
        let jobs: Vec<i64> = rows.iter_mut().map(Row::int).collect::<Result<_, _>>()?;
        if silent.clock.now() > silent.not_after {
            return Ok(0);
        }
        let mut taken = 0;
        if !jobs.is_empty() {
            let sql = "UPDATE ic_job SET state = 0, owner = NULL WHERE seq = ANY($1) AND state + 0 = 1";
            taken = db.execute(sql, vec![Arg::Ints(jobs)]).await?;
        }
        let sql = "DELETE FROM ic_owner WHERE owner = $1 AND NOT EXISTS (SELECT 1 FROM ic_job WHERE state = 1 AND owner = $1)";
        db.execute(sql, args![owner]).await?;
        Ok(taken)
    })
}

/// Releases the claims of all other processes on a SQLite file. `owner` holds the file's lock, so no other process can
/// be working on it. Claims of `owner` itself stay.
pub(crate) fn recover<'a>(owner: &'a Id, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<u64, DbError>> {
    Box::pin(async move {
        let sql = "UPDATE ic_job SET state = 0, owner = NULL WHERE state = 1 AND (owner IS NULL OR owner <> $1)";
        db.execute(sql, args![owner.as_bytes().as_slice()]).await
    })
}

/// The registration of the one process that works on a SQLite file.
#[derive(Clone, Debug)]
pub(super) struct Registration {
    pub(super) owner: Id,
    /// The boot of the machine and the identity of the lock file: a process that holds the lock knows that an earlier
    /// process with the same lock is gone.
    pub(super) lock: String,
    pub(super) lease: Duration,
}

/// The longest time between two heartbeats, however long the lease is: a third of [`LONGEST_WAIT`].
pub(crate) const LONGEST_BEAT: Duration = Duration::from_secs(10);
/// The longest wait of a new process before another process, with another lock, counts as gone.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long a new process waits for a heartbeat of another process with this lease: half the lease, which is the time of
/// two heartbeats, up to a bound. Half a second is added as a margin.
pub(crate) fn wait_for_beat(lease: Duration) -> Duration {
    (lease / 2).min(LONGEST_WAIT) + Duration::from_millis(500)
}

/// Registers the process. Returns false if another process works on the file: that process holds another lock, because
/// the lock file was removed and created again, and it still writes heartbeats.
pub(super) async fn register(connect: &dyn Connect, process: &Registration) -> Result<bool, DbError> {
    let mut connection = opening::connect(connect).await?;
    let others = match try_to_register(&mut *connection, process, &[]).await {
        // Another process kept the file locked.
        Err(error) if error.kind == DbKind::Again => try_to_register(&mut *connection, process, &[]).await?,
        others => others?,
    };
    let Some(longest) = others.iter().map(|other| other.lease_ms).max() else { return Ok(true) };
    tokio::time::sleep(wait_for_beat(Duration::from_millis(u64::try_from(longest).unwrap_or(0)))).await;
    Ok(try_to_register(&mut *connection, process, &others).await?.is_empty())
}

/// Registers the process if all other processes at the file are in `silent`, with unchanged heartbeats. Returns the
/// processes that are not.
async fn try_to_register(db: Db<'_>, process: &Registration, silent: &[Seen]) -> Result<Vec<Seen>, DbError> {
    db.execute("BEGIN IMMEDIATE", Vec::new()).await?;
    let others = register_if_alone(db, process, silent).await;
    let end = if others.as_ref().is_ok_and(Vec::is_empty) { "COMMIT" } else { "ROLLBACK" };
    db.execute(end, Vec::new()).await?;
    others
}

async fn register_if_alone(db: Db<'_>, process: &Registration, silent: &[Seen]) -> Result<Vec<Seen>, DbError> {
    let (boot, _) = process.lock.split_once('/').unwrap_or_default();
    // A process from an earlier boot of the machine is gone, and so is one that held the lock that this process holds.
    let sql = "SELECT owner, beat, lease_ms FROM ic_owner WHERE seat <> $1 AND substr(seat, 1, length($2) + 1) = $2 || '/' LIMIT $3";
    let mut others = readable(db.fetch(sql, args![&process.lock, boot, MAX_OWNERS]).await?, known);
    others.retain(|other| !silent.contains(other));
    if others.is_empty() {
        db.execute("DELETE FROM ic_owner", Vec::new()).await?;
        let lease_ms = super::millis_of(process.lease);
        let sql = "INSERT INTO ic_owner (owner, beat, lease_ms, seat) VALUES ($1, 0, $2, $3)";
        db.execute(sql, args![process.owner.as_bytes().as_slice(), lease_ms, &process.lock]).await?;
    }
    Ok(others)
}
