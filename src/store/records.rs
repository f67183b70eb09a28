//! The state of a job, the counts of jobs, and cancellation.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::driver::{Db, DbError, Row, args};
use super::ends::done;
use super::{Id, LaneTier};
use crate::BoxFuture;

/// Counts the jobs in the outbox, up to a bound.
pub(crate) fn count<'a>(most: &'a i64, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<i64, DbError>> {
    Box::pin(async move {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM ic_job LIMIT $1) few";
        let mut rows = db.fetch(sql, args![*most]).await?;
        Ok(rows.first_mut().map(Row::int).transpose()?.unwrap_or(0))
    })
}

/// Counts the waiting jobs of one tenant at one vendor, up to a bound.
pub(crate) fn count_lane<'a>(
    (lane, most): &'a (LaneTier, i64),
    db: Db<'a>,
    _: i64,
) -> BoxFuture<'a, Result<i64, DbError>> {
    Box::pin(async move {
        // Claimed jobs are left out: counting them would need another index.
        let sql =
            "SELECT count(*) FROM (SELECT 1 FROM ic_job WHERE state = 0 AND vendor = $1 AND tenant = $2 LIMIT $3) few";
        let mut rows = db.fetch(sql, args![&lane.vendor, &lane.tenant, *most]).await?;
        Ok(rows.first_mut().map(Row::int).transpose()?.unwrap_or(0))
    })
}

/// The jobs that wait in a store, and the replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Backlog {
    /// The number of waiting jobs, by tier.
    pub(crate) waiting: [u64; 3],
    /// How long the job that waits longest has been due.
    pub(crate) oldest: Duration,
    /// How long ago the oldest job was accepted, or sent again, whether it waits or is under way.
    pub(crate) age: Duration,
    pub(crate) replies: UntakenReplies,
}

/// The replies that were neither taken nor delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct UntakenReplies {
    pub(crate) count: u64,
    /// The age of the oldest one.
    pub(crate) oldest: Option<Duration>,
}

/// Counts the waiting jobs, from an index alone, and the replies. The job with the lowest number is the oldest, or nearly so.
pub(crate) fn backlog<'a>((): &'a (), db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Backlog, DbError>> {
    Box::pin(async move {
        let sql = "SELECT tier, count(*), min(run_at) FROM ic_job WHERE state = 0 GROUP BY tier";
        let mut backlog = Backlog::default();
        for mut row in db.fetch(sql, Vec::new()).await? {
            let (tier, count, due) = (row.int()?, row.int()?, row.int()?);
            if let Some(waiting) = usize::try_from(tier).ok().and_then(|tier| backlog.waiting.get_mut(tier)) {
                *waiting = u64::try_from(count).unwrap_or(0);
            }
            backlog.oldest = backlog.oldest.max(since(due, now));
        }
        let sql = "SELECT enqueued_at FROM ic_job ORDER BY seq LIMIT 1";
        if let Some(row) = db.fetch(sql, Vec::new()).await?.first_mut() {
            backlog.age = since(row.int()?, now);
        }
        backlog.replies = untaken_replies(&(), db, now).await?;
        Ok(backlog)
    })
}

/// Counts the replies, from an index alone. The reply with the lowest number is the oldest, or nearly so.
pub(crate) fn untaken_replies<'a>((): &'a (), db: Db<'a>, now: i64) -> BoxFuture<'a, Result<UntakenReplies, DbError>> {
    Box::pin(async move {
        let sql = "SELECT count(*), (SELECT at FROM ic_reply ORDER BY seq LIMIT 1) FROM ic_reply";
        let mut rows = db.fetch(sql, Vec::new()).await?;
        let Some(row) = rows.first_mut() else { return Ok(UntakenReplies::default()) };
        let count = u64::try_from(row.int()?).unwrap_or(0);
        Ok(UntakenReplies { count, oldest: row.maybe_int()?.map(|at| since(at, now)) })
    })
}

fn since(at: i64, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(now.saturating_sub(at)).unwrap_or(0))
}

/// The state of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum JobState {
    Waiting { due_in_ms: i64 },
    UnderWay,
    Done { outcome: i64, status: i64, attempts: i64, result: Option<Vec<u8>> },
    Dead { reason: String },
    Nowhere,
}

pub(crate) fn find<'a>(id: &'a Id, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<JobState, DbError>> {
    Box::pin(async move {
        let id = id.as_bytes().as_slice();
        // The tables are searched in this order because a job moves from the first table to the others. A dead letter
        // that is sent again moves back, so all tables are searched twice.
        for _ in 0..2 {
            if let Some(row) = db.fetch("SELECT state, run_at FROM ic_job WHERE id = $1", args![id]).await?.first_mut()
            {
                return Ok(match (row.int()?, row.int()?) {
                    (0, run_at) => JobState::Waiting { due_in_ms: run_at.saturating_sub(now).max(0) },
                    _ => JobState::UnderWay,
                });
            }
            let sql = "SELECT outcome, status, attempts, result FROM ic_done WHERE id = $1";
            if let Some(row) = db.fetch(sql, args![id]).await?.first_mut() {
                let (outcome, status, attempts) = (row.int()?, row.int()?, row.int()?);
                return Ok(JobState::Done { outcome, status, attempts, result: row.maybe_bytes()? });
            }
            if let Some(row) = db.fetch("SELECT reason FROM ic_dead WHERE id = $1", args![id]).await?.first_mut() {
                return Ok(JobState::Dead { reason: row.text()? });
            }
        }
        Ok(JobState::Nowhere)
    })
}

/// Returns the tenant and the vendor of a job, whichever table the job is in.
pub(crate) fn lane<'a>(id: &'a Id, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Option<(String, String)>, DbError>> {
    Box::pin(async move {
        // Tables are searched twice, as in `find`, because a job moves between them.
        let job = "SELECT tenant, vendor FROM ic_job WHERE id = $1";
        let done = "SELECT tenant, vendor FROM ic_done WHERE id = $1";
        let dead = "SELECT tenant, vendor FROM ic_dead WHERE id = $1";
        for sql in [job, done, dead, job, done] {
            if let Some(row) = db.fetch(sql, args![id.as_bytes().as_slice()]).await?.first_mut() {
                return Ok(Some((row.text()?, row.text()?)));
            }
        }
        Ok(None)
    })
}

/// Cancels a job that no process has claimed, and takes it out of the outbox. Returns whether the job was cancelled.
pub(crate) fn cancel<'a>(id: &'a Id, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<bool, DbError>> {
    Box::pin(async move {
        let id = id.as_bytes().as_slice();
        let look = "SELECT fence FROM ic_job WHERE id = $1 AND state = 0";
        let mut rows = db.fetch(look, args![id]).await?;
        let Some(fence) = rows.first_mut().map(Row::int).transpose()? else { return Ok(false) };
        done(db, id, fence, 0, (1, 0, 0), None, now).await
    })
}

/// One call that cancels a job.
#[derive(Debug)]
pub(crate) struct Cancel {
    id: Id,
    /// Whether a run of this call has cancelled the job, in a transaction that may have been committed or not.
    was_waiting: AtomicBool,
}

impl Cancel {
    pub(crate) fn new(id: Id) -> Cancel {
        Cancel { id, was_waiting: AtomicBool::new(false) }
    }
}

/// [`cancel`], for a call that may be run again after a commit whose reply was lost: the call then finds its own
/// cancellation.
pub(crate) fn cancel_in_call<'a>(call: &'a Cancel, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<bool, DbError>> {
    Box::pin(async move {
        if cancel(&call.id, db, now).await? {
            call.was_waiting.store(true, Relaxed);
            return Ok(true);
        }
        if !call.was_waiting.load(Relaxed) {
            return Ok(false);
        }
        let sql = "SELECT 1 FROM ic_done WHERE id = $1 AND outcome = 1";
        Ok(!db.fetch(sql, args![call.id.as_bytes().as_slice()]).await?.is_empty())
    })
}
