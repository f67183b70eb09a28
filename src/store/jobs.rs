//! The SQL of jobs: how jobs are accepted, and how claims that their owner does not know are released. Each later step
//! of a job has a file of its own: [claims](super::claims), [starts](super::starts), [ends](super::ends),
//! [looks](super::looks). Each function is a step for the [writer](super::actor), and can safely be run twice.
//!
//! Lookups by id write `state + 0`, so that PostgreSQL cannot choose the partial index on claimed jobs. With statistics
//! from a moment with few claimed jobs it would choose that index, and read all claimed jobs for each lookup: 2 s
//! instead of 5 ms.
//!
//! **Many jobs in one statement.** The round trip is most of the cost of a small statement, in SQLite too, where the
//! round trip goes to sqlx's thread. So the starts and the ends of a group go into one statement each. Such a statement
//! leaves the planner no choice of how to find the jobs: each of the given rows looks its job up by the index of ids,
//! in a lateral join with a `LIMIT` (PostgreSQL), or in a `CROSS JOIN` that names the index (SQLite). Then the jobs
//! that were found are changed by their row numbers. In PostgreSQL, a statement may wait for the lock of a row while
//! another process takes the job over. Its outermost condition therefore repeats what must still be true of the row.

use std::sync::LazyLock;
use std::time::Duration;

use super::claims::lock_of;
pub(crate) use super::claims::{
    Claimed, LaneClaim, Most, Named, Position, Wanted, claim, claim_named, expired, passed_deadline,
};
use super::driver::{Arg, Column, Db, DbError, Dialect, Row, args, rows};
#[cfg(test)]
pub(crate) use super::ends::finish;
pub(crate) use super::ends::{finish_all, finish_briefly};
pub(crate) use super::job_end::{End, JobEnd};
use super::keys::{self, KEY_MS, KeyTaken};
pub(crate) use super::looks::{DueLanes, Found, all_due, due};
pub(crate) use super::seen::Message;
use super::seen::{self, Seen};
pub(crate) use super::starts::Start;
use super::{Id, LaneTier, same_content};
use crate::BoxFuture;
use crate::clock::{Time, millis};

/// A job to be accepted.
#[derive(Clone, Debug)]
pub(crate) struct NewJob {
    pub(crate) id: Id,
    pub(crate) lane: LaneTier,
    /// Milliseconds until the job may be sent at the earliest.
    pub(crate) delay_ms: i64,
    /// Milliseconds from `checked_at` until the job expires.
    pub(crate) expires_ms: Option<i64>,
    /// When the job was checked, by the clock of this process.
    pub(crate) checked_at: Time,
    pub(crate) keep_result: bool,
    /// The stored request: JSON, or sealed JSON.
    pub(crate) request: Vec<u8>,
    /// The idempotency key that the caller chose, and the fingerprint of the request; both as they are, or both as
    /// keyed hashes.
    pub(crate) key: Option<(String, String)>,
    /// `key` in the other form: the same request may have been accepted while `at_rest` said otherwise. `None` if the
    /// store has no key for hashes.
    pub(crate) other_key: Option<(String, String)>,
    /// The message from which the job was made. The job's id holds a hash of the message and the request.
    pub(crate) message: Option<Message>,
}

impl NewJob {
    /// About how many statements [`insert`] takes for the job: it looks for the message and records it, takes the key, and
    /// inserts the job.
    pub(crate) fn statements(&self) -> usize {
        1 + usize::from(self.key.is_some()) + 2 * usize::from(self.message.is_some())
    }

    /// The job as it is at `now`, when it is about to be written. The statements count `expires_ms` from the moment of
    /// the write, which may come long after the check: the outbox may have been full.
    pub(crate) fn aged_to(self, now: Time) -> NewJob {
        let passed = millis(now.since(self.checked_at));
        let left = |left: i64| left.saturating_sub(i64::try_from(passed).unwrap_or(i64::MAX)).max(0);
        let checked_at = self.checked_at + Duration::from_millis(passed);
        NewJob { expires_ms: self.expires_ms.map(left), checked_at, ..self }
    }
}

/// The result of accepting a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accepted {
    New,
    /// The same request had already been accepted with the same key, or as the same message.
    Before(Id),
    /// Another request had already been accepted with the same key.
    KeyOfAnother,
}

impl Accepted {
    /// The result for a message that was accepted earlier, as the job `before`.
    pub(super) fn of_message(job: Id, before: Id) -> Accepted {
        if same_content(before, job) { Accepted::Before(before) } else { Accepted::KeyOfAnother }
    }
}

pub(crate) fn insert<'a>(job: &'a NewJob, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Accepted, DbError>> {
    Box::pin(async move {
        let id = job.id.as_bytes().as_slice();
        let LaneTier { tenant, vendor, tier } = &job.lane;
        // The message first: the caller's key must not be recorded for a job that is refused.
        if let Some(message) = job.message
            && let Some(Seen::Before(before)) = seen::record(&[(message, job.id)], db, now).await?.first().copied()
        {
            return Ok(Accepted::of_message(job.id, before));
        }
        if let Some(key) = &job.key {
            let expires = now.saturating_add(job.expires_ms.unwrap_or(0)).saturating_add(KEY_MS);
            let whose = (job.id, &job.lane);
            match keys::take(whose, (key, job.other_key.as_ref()), (expires, now), db).await? {
                KeyTaken::ByThis => {}
                KeyTaken::Before(before) => return Ok(Accepted::Before(before)),
                KeyTaken::ByAnother => {
                    // With its record, the message would be taken for an accepted one when it is redelivered.
                    if let Some(message) = job.message {
                        seen::forget(&[message], db).await?;
                    }
                    return Ok(Accepted::KeyOfAnother);
                }
            }
        }
        // If the reply to an earlier commit was lost, the job may be in the outbox already, or may even have ended.
        let sql = "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, expires_at, enqueued_at, keep_result, request) \
                   SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9 \
                   WHERE NOT EXISTS (SELECT 1 FROM ic_done WHERE id = $1) AND NOT EXISTS (SELECT 1 FROM ic_dead WHERE id = $1) \
                   ON CONFLICT (id) DO NOTHING";
        let expires = job.expires_ms.map(|after| now.saturating_add(after));
        let run_at = now.saturating_add(job.delay_ms);
        let keep = i64::from(job.keep_result);
        db.execute(sql, args![id, tenant, vendor, *tier, run_at, expires, now, keep, &job.request]).await?;
        Ok(Accepted::New)
    })
}

/// The most jobs in one INSERT statement.
const TOGETHER: usize = 512;
/// The most bytes of requests in one INSERT statement, because a statement is in memory more than once.
const BYTES_TOGETHER: usize = 4 << 20;
/// The number of jobs in an INSERT statement for SQLite that takes its values as parameters. A remainder of fewer jobs
/// goes into one JSON text. A larger JSON text would cost more to read than the statements that it saves.
const ROWS: usize = 16;

/// The statement for [`ROWS`] jobs in SQLite. Its parameters have no numbers: SQLite searches a list for the name of each
/// parameter that has one, and sqlx asks for the name of each parameter.
static INSERT_ROWS: LazyLock<String> = LazyLock::new(|| {
    let rows = ["(?, ?, ?, ?, ?, ?, ?, ?, ?)"; ROWS].join(", ");
    format!(
        "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, expires_at, enqueued_at, keep_result, request) VALUES {rows} \
         ON CONFLICT (id) DO NOTHING"
    )
});

/// Inserts jobs without keys and with new ids, in as few statements as possible. `again` says that the jobs may have been
/// inserted by a commit whose reply was lost, and may even have ended.
pub(super) async fn insert_many(jobs: &[&NewJob], again: bool, db: Db<'_>, now: i64) -> Result<(), DbError> {
    let mut jobs = jobs;
    while !jobs.is_empty() {
        let mut bytes = 0usize;
        let fits = |job: &&&NewJob| {
            bytes = bytes.saturating_add(job.request.len());
            bytes <= BYTES_TOGETHER
        };
        let count = jobs.iter().take(TOGETHER).take_while(fits).count().max(1);
        let (some, rest) = jobs.split_at(count);
        match db.dialect() {
            Dialect::Postgres => insert_arrays(some, again, db, now).await?,
            Dialect::Sqlite if again => insert_arrays(some, again, db, now).await?,
            Dialect::Sqlite => {
                let mut chunks = some.chunks_exact(ROWS);
                for chunk in &mut chunks {
                    insert_rows(chunk, db, now).await?;
                }
                if !chunks.remainder().is_empty() {
                    insert_arrays(chunks.remainder(), again, db, now).await?;
                }
            }
        }
        jobs = rest;
    }
    Ok(())
}

/// The statement for SQLite that inserts jobs from a JSON text, if they fulfil a condition.
macro_rules! insert_from_json {
    ($condition:literal) => {
        concat!(
            "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, expires_at, enqueued_at, keep_result, request) \
             SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, $1, value ->> 6, \
             unhex(value ->> 7) FROM json_each($2) WHERE ",
            $condition,
            " ON CONFLICT (id) DO NOTHING"
        )
    };
}

/// The statement for PostgreSQL that inserts jobs `j` from arrays, if they fulfil a condition.
macro_rules! insert_from_arrays {
    ($condition:literal) => {
        concat!(
            "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, expires_at, enqueued_at, keep_result, request) \
             SELECT id, tenant, vendor, tier, run_at, expires_at, $1, keep_result, request FROM unnest($2::bytea[], $3::text[], \
             $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bytea[]) \
             AS j(id, tenant, vendor, tier, run_at, expires_at, keep_result, request) WHERE ",
            $condition,
            " ON CONFLICT (id) DO NOTHING"
        )
    };
}

/// Inserts jobs with one statement that takes an array for each column or, in SQLite, one JSON text.
async fn insert_arrays(jobs: &[&NewJob], again: bool, db: Db<'_>, now: i64) -> Result<(), DbError> {
    // A scalar subquery is answered for each row from the index of ids, whatever the planner knows of the tables.
    let sql = match (db.dialect(), again) {
        (Dialect::Sqlite, false) => insert_from_json!("true"),
        (Dialect::Sqlite, true) => insert_from_json!(
            "(SELECT 1 FROM ic_done d WHERE d.id = unhex(value ->> 0) LIMIT 1) IS NULL \
             AND (SELECT 1 FROM ic_dead d WHERE d.id = unhex(value ->> 0) LIMIT 1) IS NULL"
        ),
        (Dialect::Postgres, false) => insert_from_arrays!("true"),
        (Dialect::Postgres, true) => insert_from_arrays!(
            "(SELECT 1 FROM ic_done d WHERE d.id = j.id LIMIT 1) IS NULL \
             AND (SELECT 1 FROM ic_dead d WHERE d.id = j.id LIMIT 1) IS NULL"
        ),
    };
    let columns = vec![
        Column::Blobs(jobs.iter().map(|job| Some(job.id.as_bytes().as_slice())).collect()),
        Column::Texts(jobs.iter().map(|job| &*job.lane.tenant).collect()),
        Column::Texts(jobs.iter().map(|job| &*job.lane.vendor).collect()),
        Column::Ints(jobs.iter().map(|job| job.lane.tier).collect()),
        Column::Ints(jobs.iter().map(|job| now.saturating_add(job.delay_ms)).collect()),
        Column::MaybeInts(jobs.iter().map(|job| job.expires_ms.map(|after| now.saturating_add(after))).collect()),
        Column::Ints(jobs.iter().map(|job| i64::from(job.keep_result)).collect()),
        Column::Blobs(jobs.iter().map(|job| Some(&*job.request)).collect()),
    ];
    let mut args = args![now];
    args.extend(rows(db.dialect(), columns));
    db.execute(sql, args).await.map(drop)
}

/// Inserts [`ROWS`] jobs in SQLite.
async fn insert_rows(jobs: &[&NewJob], db: Db<'_>, now: i64) -> Result<(), DbError> {
    let mut args: Vec<Arg<'_>> = Vec::with_capacity(jobs.len() * 9);
    for job in jobs {
        let LaneTier { tenant, vendor, tier } = &job.lane;
        args.push(job.id.as_bytes().as_slice().into());
        args.push(tenant.into());
        args.push(vendor.into());
        args.push((*tier).into());
        args.push(now.saturating_add(job.delay_ms).into());
        args.push(job.expires_ms.map(|after| now.saturating_add(after)).into());
        args.push(now.into());
        args.push(i64::from(job.keep_result).into());
        args.push((&job.request).into());
    }
    db.execute(INSERT_ROWS.as_str(), args).await.map(drop)
}

/// What became of the claims that a process does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unclaimed {
    /// All were released: this many.
    All(u64),
    /// Another program keeps the rows of some locked. All others were released.
    Part,
    /// None was released, because a claim is still being committed: a server that waits for its disk, or for a standby,
    /// commits it after its client has given it up.
    Pending,
}

/// Releases claims that `owner` does not know, because the reply to the claim was lost. `held` are the jobs whose
/// claims the owner knows.
pub(crate) fn unclaim<'a>(
    (owner, held): &'a (Id, Vec<Id>),
    db: Db<'a>,
    _: i64,
) -> BoxFuture<'a, Result<Unclaimed, DbError>> {
    Box::pin(async move {
        let lock = lock_of(*owner);
        let owner = owner.as_bytes().as_slice();
        match db.dialect() {
            // No claim is being committed, because this transaction has the file to itself.
            Dialect::Sqlite => {
                let look = "SELECT id FROM ic_job WHERE state = 1 AND owner = $1";
                let mut undone = 0;
                for mut row in db.fetch(look, args![owner]).await? {
                    let id = row.id()?;
                    if !held.contains(&id) {
                        let sql = "UPDATE ic_job SET state = 0, owner = NULL, lease_until = NULL, claims = claims - 1 \
                                   WHERE id = $1 AND state + 0 = 1 AND owner = $2";
                        undone += db.execute(sql, args![id.as_bytes().as_slice(), owner]).await?;
                    }
                }
                Ok(Unclaimed::All(undone))
            }
            Dialect::Postgres => {
                // Each claim has the lock until it is visible to the next statement, or undone.
                let sql = "SELECT pg_try_advisory_xact_lock($1)::int::bigint";
                let is_free = db.fetch(sql, args![lock]).await?.first_mut().map(Row::int).transpose()?;
                if is_free != Some(1) {
                    return Ok(Unclaimed::Pending);
                }
                let args = || {
                    let held = held.iter().map(|id| Some(id.as_bytes().as_slice())).collect();
                    vec![Arg::from(owner), Arg::Blobs(held)]
                };
                let sql = "WITH c AS MATERIALIZED (SELECT seq FROM ic_job \
                           WHERE state = 1 AND owner = $1 AND NOT (id = ANY($2)) FOR UPDATE SKIP LOCKED) \
                           UPDATE ic_job u SET state = 0, owner = NULL, lease_until = NULL, claims = u.claims - 1 \
                           WHERE u.seq = ANY(ARRAY(SELECT seq FROM c))";
                let undone = db.execute(sql, args()).await?;
                let left = "SELECT 1 FROM ic_job WHERE state = 1 AND owner = $1 AND NOT (id = ANY($2)) LIMIT 1";
                Ok(match db.fetch(left, args()).await?.is_empty() {
                    true => Unclaimed::All(undone),
                    false => Unclaimed::Part,
                })
            }
        }
    })
}
