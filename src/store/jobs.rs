//! The SQL of jobs: accepted, [claimed](super::claims), started, finished. Each function is a step for the
//! [writer](super::actor), and can safely be run twice.
//!
//! Lookups by id write `state + 0`, so that PostgreSQL cannot choose the partial index on claimed jobs. With statistics
//! from a moment with few claimed jobs it would choose that index, and read all claimed jobs for each lookup: 2 s
//! instead of 5 ms.

use std::sync::{Arc, LazyLock};

pub(crate) use super::claims::{Claimed, Most, Wanted, claim, expired};
use super::dead::{self, NewDead};
use super::driver::readable;
use super::driver::{Arg, Db, DbError, Dialect, Row, args};
use super::{Id, LaneTier};
use crate::BoxFuture;

/// A job to be accepted.
#[derive(Clone, Debug)]
pub(crate) struct NewJob {
    pub(crate) id: Id,
    pub(crate) lane: LaneTier,
    /// Milliseconds until the job may be sent at the earliest.
    pub(crate) delay_ms: i64,
    /// Milliseconds until the job expires.
    pub(crate) expires_ms: Option<i64>,
    pub(crate) keep_result: bool,
    /// The stored request: JSON, or sealed JSON.
    pub(crate) request: Vec<u8>,
    /// The idempotency key that the caller chose, and the fingerprint of the request.
    pub(crate) key: Option<(String, String)>,
    /// The deduplication key of a message, derived from the names of its source and of the message, and the fingerprint
    /// of the request.
    pub(crate) message: Option<(String, String)>,
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

/// How long a key is kept after its request was accepted or has expired.
const KEY_MS: i64 = 24 * 3600 * 1000;

pub(crate) fn insert<'a>(job: &'a NewJob, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Accepted, DbError>> {
    Box::pin(async move {
        let id = job.id.as_bytes().as_slice();
        let LaneTier { tenant, vendor, tier } = &job.lane;
        // The message's key first: the caller's key must not be recorded for a job that is refused.
        for (key, fingerprint) in [&job.message, &job.key].into_iter().flatten() {
            let take = "INSERT INTO ic_key (tenant, vendor, key, job, fingerprint, expires_at) \
                        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, vendor, key) DO NOTHING";
            let expires = now.saturating_add(job.expires_ms.unwrap_or(0)).saturating_add(KEY_MS);
            let taken = db.execute(take, args![tenant, vendor, key, id, fingerprint, expires]).await?;
            if taken == 0 {
                let look = "SELECT job, fingerprint FROM ic_key WHERE tenant = $1 AND vendor = $2 AND key = $3";
                let mut rows = db.fetch(look, args![tenant, vendor, key]).await?;
                if let Some(row) = rows.first_mut() {
                    let (before, known) = (row.id()?, row.text()?);
                    if known != *fingerprint {
                        return Ok(Accepted::KeyOfAnother);
                    }
                    // With this job's id, an earlier run of this step was committed and its reply was lost, or the
                    // message was redelivered.
                    if before != job.id {
                        return Ok(Accepted::Before(before));
                    }
                }
            }
        }
        // The job may be in the outbox already, or even have ended, where the reply to a commit was lost.
        let sql = "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, expires_at, enqueued_at, keep_result, request) \
                   SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9 \
                   WHERE NOT EXISTS (SELECT 1 FROM ic_done WHERE id = $1) AND NOT EXISTS (SELECT 1 FROM ic_dead WHERE id = $1) \
                   ON CONFLICT (id) DO NOTHING";
        let expires = job.expires_ms.map(|after| now.saturating_add(after));
        let run_at = now.saturating_add(job.delay_ms);
        let keep = i64::from(job.keep_result);
        let written =
            db.execute(sql, args![id, tenant, vendor, *tier, run_at, expires, now, keep, &job.request]).await?;
        Ok(if written == 0 && job.message.is_some() { Accepted::Before(job.id) } else { Accepted::New })
    })
}

/// Jobs in one INSERT statement: the round trip is most of the cost of a statement.
pub(super) const TOGETHER: usize = 16;

/// The statement for [`TOGETHER`] jobs.
static INSERT_MANY: LazyLock<String> = LazyLock::new(|| {
    let row = |row: usize| {
        let parameters: Vec<String> = (1..=9).map(|column| format!("${}", row * 9 + column)).collect();
        format!("({})", parameters.join(", "))
    };
    let rows: Vec<String> = (0..TOGETHER).map(row).collect();
    format!(
        "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, expires_at, enqueued_at, keep_result, request) VALUES {} \
         ON CONFLICT (id) DO NOTHING",
        rows.join(", ")
    )
});

/// Inserts [`TOGETHER`] jobs in one statement: jobs without keys and with new ids.
pub(super) async fn insert_many(jobs: &[&NewJob], db: Db<'_>, now: i64) -> Result<(), DbError> {
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
    db.execute(INSERT_MANY.as_str(), args).await.map(drop)
}

/// An exchange that is about to leave.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) id: Id,
    pub(crate) fence: i64,
    pub(crate) owner: Id,
    pub(crate) lane: LaneTier,
    /// Whether the exchange is recorded already, and its usage must be recorded once more under the current time.
    pub(crate) again: bool,
    pub(crate) endpoint: String,
    pub(crate) points: i64,
    /// The width of a slot of usage, and how long usage counts; 0 where the vendor has no limit by time.
    pub(crate) slot_ms: i64,
    pub(crate) counts_ms: i64,
}

/// Records that an exchange is about to leave, and its usage of the limits. Returns the number of exchanges of the job
/// that have begun, with this one. Returns `None` where another process has taken the job over; then the exchange must
/// not be made.
///
/// Only the job's row decides whether the job was taken over, and no clock does: a takeover changes the row.
pub(crate) fn start<'a>(start: &'a Start, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Option<i64>, DbError>> {
    Box::pin(async move {
        let id = start.id.as_bytes().as_slice();
        let sql = "UPDATE ic_job SET started = started + $3, begun = begun + $3 WHERE id = $1 AND fence = $2 AND state + 0 = 1 \
                   RETURNING begun";
        let exchanges = i64::from(!start.again);
        let mut rows = db.fetch(sql, args![id, start.fence, exchanges]).await?;
        let Some(begun) = rows.first_mut().map(Row::int).transpose()? else { return Ok(None) };
        if start.slot_ms > 0 {
            // One row for each owner, so that no two processes ever wait for the same row.
            let sql = "INSERT INTO ic_spent (tenant, vendor, endpoint, slot, owner, high, requests, points, last_at, until) \
                       VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $8, $9) \
                       ON CONFLICT (tenant, vendor, endpoint, slot, owner, high) DO UPDATE SET requests = ic_spent.requests + 1, \
                       points = ic_spent.points + excluded.points, last_at = excluded.last_at, until = excluded.until";
            let LaneTier { tenant, vendor, tier } = &start.lane;
            let (slot, high) = (now / start.slot_ms, i64::from(*tier == 0));
            let until = now.saturating_add(start.counts_ms);
            let owner = start.owner.as_bytes().as_slice();
            let endpoint = &start.endpoint;
            db.execute(sql, args![tenant, vendor, endpoint, slot, owner, high, start.points, now, until]).await?;
        }
        Ok(Some(begun))
    })
}

/// The end of a claim.
///
/// An end with a known outcome of an exchange stays true even if another process has the job by now: this process may
/// have been stopped or cut off from the store, so that another process took its claim for one without an outcome. Such
/// an end counts unless another exchange of the job has begun since. A delivery counts even then. Every other end
/// counts for its own claim only.
#[derive(Clone, Debug)]
pub(crate) struct JobEnd {
    pub(crate) id: Id,
    pub(crate) fence: i64,
    /// The number of the exchange with a known outcome, as [`start`] returned it; `None` where this claim made no
    /// exchange, or its outcome is unknown.
    pub(crate) known: Option<i64>,
    pub(crate) end: End,
}

#[derive(Clone, Debug)]
pub(crate) enum End {
    Delivered {
        status: u16,
        attempts: u32,
        result: Option<Vec<u8>>,
    },
    Dead(Box<NewDead>),
    /// Retried after this many milliseconds, with the history of attempts.
    Later {
        after_ms: i64,
        history: Vec<u8>,
    },
    /// Nothing was tried: the claim is undone and not counted.
    Back,
    /// It is unknown what was tried: treated as if the process had ended.
    Dropped,
}

/// [`finish`] for a list that the sender keeps until it is written.
pub(crate) fn finish_all<'a>(
    ends: &'a Arc<Vec<JobEnd>>,
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Vec<bool>, DbError>> {
    finish(ends, db, now)
}

/// Ends claims. Returns for each whether it took effect.
pub(crate) fn finish<'a>(ends: &'a Vec<JobEnd>, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Vec<bool>, DbError>> {
    Box::pin(async move {
        let mut told = vec![false; ends.len()];
        let plain = |finish: &JobEnd| matches!(&finish.end, End::Delivered { result: None, .. });
        if db.dialect() == Dialect::Postgres && ends.iter().filter(|finish| plain(finish)).count() > 1 {
            let known = delivered_together(ends.iter().filter(|finish| plain(finish)), db, now).await?;
            for (told, finish) in told.iter_mut().zip(ends) {
                *told = plain(finish) && known.contains(&finish.id);
            }
        }
        for (told, finish) in told.iter_mut().zip(ends) {
            if !*told {
                *told = finish_one(finish, db, now).await?;
            }
        }
        Ok(told)
    })
}

/// Ends jobs that were delivered and keep no result, which most do, in one statement. For PostgreSQL.
async fn delivered_together<'a>(
    ends: impl Iterator<Item = &'a JobEnd>,
    db: Db<'_>,
    now: i64,
) -> Result<Vec<Id>, DbError> {
    let sql = "WITH gone AS (DELETE FROM ic_job j USING unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[]) \
               AS o(id, fence, status, attempts) WHERE j.id = o.id AND j.fence = o.fence \
               RETURNING j.id, j.tenant, j.vendor, o.status, o.attempts), \
               kept AS (INSERT INTO ic_done (id, tenant, vendor, outcome, status, attempts, finished_at) \
               SELECT id, tenant, vendor, 0, status, attempts, $5 FROM gone ON CONFLICT (id) DO NOTHING) \
               SELECT id FROM gone";
    let (mut ids, mut fences, mut statuses, mut counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for finish in ends {
        if let End::Delivered { status, attempts, .. } = &finish.end {
            ids.push(finish.id.as_bytes().as_slice());
            fences.push(finish.fence);
            statuses.push(i64::from(*status));
            counts.push(i64::from(*attempts));
        }
    }
    let args = vec![Arg::Blobs(ids), Arg::Ints(fences), Arg::Ints(statuses), Arg::Ints(counts), Arg::from(now)];
    db.fetch(sql, args).await?.iter_mut().map(Row::id).collect()
}

async fn finish_one(finish: &JobEnd, db: Db<'_>, now: i64) -> Result<bool, DbError> {
    let (id, fence, known) = (finish.id.as_bytes().as_slice(), finish.fence, finish.known);
    match &finish.end {
        End::Delivered { status, attempts, result } => {
            let what = (0, i64::from(*status), i64::from(*attempts));
            // A letter that is sent again moves from `ic_dead` to `ic_job` between the two statements, so both are run
            // twice.
            for _ in 0..2 {
                for sql in [
                    "DELETE FROM ic_job WHERE id = $1 AND fence >= $2 RETURNING tenant, vendor",
                    "DELETE FROM ic_dead WHERE id = $1 AND fence > $2 RETURNING tenant, vendor",
                ] {
                    let mut gone = db.fetch(sql, args![id, fence]).await?;
                    if let Some(row) = gone.first_mut() {
                        let lane = (row.text()?, row.text()?);
                        insert_done(db, id, lane, what, result.as_deref(), now).await?;
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        }
        End::Dead(dead) => match known {
            Some(known) => dead::bury_known(dead, fence, known, db, now).await,
            None => dead::bury(dead, fence, 1, db, now).await,
        },
        End::Later { after_ms, history } => {
            let run_at = now.saturating_add(*after_ms);
            let Some(known) = known else {
                let sql = "UPDATE ic_job SET state = 0, run_at = $3, history = $4, claims = 0, started = 0, owner = NULL, \
                           lease_until = NULL WHERE id = $1 AND fence = $2 AND state + 0 = 1";
                return Ok(db.execute(sql, args![id, fence, run_at, history]).await? > 0);
            };
            // The fence is increased, so that a claim of another process that loses the job here can neither send nor
            // end it.
            let sql = "UPDATE ic_job SET state = 0, run_at = $3, history = $4, claims = 0, started = 0, owner = NULL, \
                       lease_until = NULL, fence = fence + 1 \
                       WHERE id = $1 AND ((fence = $2 AND state + 0 = 1) OR (fence >= $2 AND begun = $5))";
            if db.execute(sql, args![id, fence, run_at, history, known]).await? > 0 {
                return Ok(true);
            }
            dead::revive(id, fence, known, (run_at, history), db, now).await
        }
        End::Back | End::Dropped => {
            // `run_at` stays, so that the job keeps its position in the queue.
            let sql = "UPDATE ic_job SET state = 0, claims = claims - $3, owner = NULL, lease_until = NULL \
                       WHERE id = $1 AND fence = $2 AND state + 0 = 1";
            let untried = i64::from(matches!(finish.end, End::Back));
            Ok(db.execute(sql, args![id, fence, untried]).await? > 0)
        }
    }
}

/// Moves a job from the outbox to the table of finished jobs. The DELETE comes first and locks the row: a process that
/// was stopped between two statements for longer than its lease may have lost the job, and must then not write to that
/// table.
pub(super) async fn done(
    db: Db<'_>,
    id: &[u8],
    fence: i64,
    state: i64,
    (outcome, status, attempts): (i64, i64, i64),
    result: Option<&[u8]>,
    now: i64,
) -> Result<bool, DbError> {
    let sql = "DELETE FROM ic_job WHERE id = $1 AND fence = $2 AND state + 0 = $3 RETURNING tenant, vendor";
    let mut gone = db.fetch(sql, args![id, fence, state]).await?;
    let Some(row) = gone.first_mut() else { return Ok(false) };
    let lane = (row.text()?, row.text()?);
    insert_done(db, id, lane, (outcome, status, attempts), result, now).await?;
    Ok(true)
}

async fn insert_done(
    db: Db<'_>,
    id: &[u8],
    (tenant, vendor): (String, String),
    (outcome, status, attempts): (i64, i64, i64),
    result: Option<&[u8]>,
    now: i64,
) -> Result<(), DbError> {
    let sql = "INSERT INTO ic_done (id, tenant, vendor, outcome, status, attempts, finished_at, result) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING";
    db.execute(sql, args![id, &tenant, &vendor, outcome, status, attempts, now, result]).await.map(drop)
}

/// Releases claims of `owner` that it does not know, because the reply to the claim was lost. `held` are those it
/// knows.
pub(crate) fn unclaim<'a>((owner, held): &'a (Id, Vec<Id>), db: Db<'a>, _: i64) -> BoxFuture<'a, Result<u64, DbError>> {
    Box::pin(async move {
        let owner = owner.as_bytes().as_slice();
        match db.dialect() {
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
                Ok(undone)
            }
            Dialect::Postgres => {
                let sql = "UPDATE ic_job SET state = 0, owner = NULL, lease_until = NULL, claims = claims - 1 \
                           WHERE state = 1 AND owner = $1 AND NOT (id = ANY($2))";
                let held = held.iter().map(|id| id.as_bytes().as_slice()).collect();
                db.execute(sql, vec![Arg::from(owner), Arg::Blobs(held)]).await
            }
        }
    })
}

/// Lanes and tiers with jobs that have become due after `after`, and the store's time. At most 10,000.
pub(crate) fn due<'a>(after: &'a i64, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(Vec<LaneTier>, i64), DbError>> {
    Box::pin(async move {
        let sql = "SELECT DISTINCT tenant, vendor, tier FROM ic_job WHERE state = 0 AND run_at > $1 AND run_at <= $2 LIMIT 10000";
        let rows = db.fetch(sql, args![*after, now]).await?;
        Ok((readable(rows, lane), now))
    })
}

/// All lanes and tiers with due jobs, and the store's time.
pub(crate) fn all_due<'a>((): &'a (), db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(Vec<LaneTier>, i64), DbError>> {
    Box::pin(async move {
        let sql = match db.dialect() {
            Dialect::Sqlite => {
                "SELECT tenant, vendor, tier FROM (SELECT DISTINCT vendor, tenant, tier FROM ic_job WHERE state = 0) l \
                 WHERE EXISTS (SELECT 1 FROM ic_job j WHERE j.state = 0 AND j.vendor = l.vendor AND j.tenant = l.tenant \
                 AND j.tier = l.tier AND j.run_at <= $1)"
            }
            // A skip scan: from one lane to the next by the index, past all rows between them.
            Dialect::Postgres => {
                "WITH RECURSIVE l AS ((SELECT vendor, tenant, tier, run_at FROM ic_job WHERE state = 0 \
                 ORDER BY vendor, tenant, tier, run_at LIMIT 1) UNION ALL \
                 SELECT n.vendor, n.tenant, n.tier, n.run_at FROM l CROSS JOIN LATERAL (SELECT vendor, tenant, tier, run_at \
                 FROM ic_job WHERE state = 0 AND (vendor, tenant, tier) > (l.vendor, l.tenant, l.tier) \
                 ORDER BY vendor, tenant, tier, run_at LIMIT 1) n) SELECT tenant, vendor, tier FROM l WHERE run_at <= $1"
            }
        };
        let rows = db.fetch(sql, args![now]).await?;
        Ok((readable(rows, lane), now))
    })
}

fn lane(mut row: Row) -> Result<LaneTier, DbError> {
    Ok(LaneTier { tenant: row.text()?, vendor: row.text()?, tier: row.int()? })
}
