//! The SQL of ends: what is written when a claim of a job is over.

use std::collections::HashSet;
use std::sync::Arc;

use super::Id;
use super::dead::{self, NewDead};
use super::driver::{Column, Db, DbError, Dialect, Row, args, rows};
use crate::BoxFuture;

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
    /// The number of the exchange with a known outcome, as [`start`](super::starts::start) returned it; `None` where this claim made no
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

/// The largest result that goes into a statement with others, so that no such statement becomes larger than a few MiB.
const MOST_TOGETHER: usize = 16 * 1024;
/// Jobs in one statement.
const TOGETHER: usize = 512;

/// Ends claims. Returns for each whether it took effect.
pub(crate) fn finish<'a>(ends: &'a Vec<JobEnd>, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Vec<bool>, DbError>> {
    Box::pin(async move {
        let mut told = vec![false; ends.len()];
        let small = |end: &&JobEnd| match &end.end {
            End::Delivered { result, .. } => result.as_ref().is_none_or(|result| result.len() <= MOST_TOGETHER),
            _ => false,
        };
        let together: Vec<&JobEnd> = ends.iter().filter(small).collect();
        if together.len() > 1 {
            let mut known = HashSet::with_capacity(together.len());
            for some in together.chunks(TOGETHER) {
                known.extend(delivered_together(some, db, now).await?);
            }
            for (told, end) in told.iter_mut().zip(ends) {
                *told = small(&end) && known.contains(&end.id);
            }
        }
        for (told, end) in told.iter_mut().zip(ends) {
            if !*told {
                *told = finish_one(end, db, now).await?;
            }
        }
        Ok(told)
    })
}

/// Ends jobs that were delivered. Returns those of them that were still this process's; the others are ended one by one,
/// because another process has claimed or buried them. Two statements in SQLite, where no other process can write
/// between them.
async fn delivered_together(ends: &[&JobEnd], db: Db<'_>, now: i64) -> Result<Vec<Id>, DbError> {
    let (mut ids, mut fences, mut statuses, mut counts, mut results) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for end in ends {
        if let End::Delivered { status, attempts, result } = &end.end {
            ids.push(Some(end.id.as_bytes().as_slice()));
            fences.push(end.fence);
            statuses.push(i64::from(*status));
            counts.push(i64::from(*attempts));
            results.push(result.as_deref());
        }
    }
    let whose = vec![Column::Blobs(ids.clone()), Column::Ints(fences.clone())];
    let all = vec![
        Column::Blobs(ids),
        Column::Ints(fences),
        Column::Ints(statuses),
        Column::Ints(counts),
        Column::Blobs(results),
    ];
    let mut args = args![now];
    args.extend(rows(db.dialect(), all));
    let mut gone = match db.dialect() {
        Dialect::Sqlite => {
            let sql = "INSERT INTO ic_done (id, tenant, vendor, outcome, status, attempts, finished_at, result) \
                       SELECT j.id, j.tenant, j.vendor, 0, o.value ->> 2, o.value ->> 3, $1, unhex(o.value ->> 4) \
                       FROM json_each($2) o CROSS JOIN ic_job j INDEXED BY sqlite_autoindex_ic_job_1 \
                       ON j.id = unhex(o.value ->> 0) WHERE j.fence = o.value ->> 1 ON CONFLICT (id) DO NOTHING";
            db.execute(sql, args).await?;
            let sql = "DELETE FROM ic_job WHERE seq IN (SELECT j.seq FROM json_each($1) o \
                       CROSS JOIN ic_job j INDEXED BY sqlite_autoindex_ic_job_1 ON j.id = unhex(o.value ->> 0) \
                       WHERE j.fence = o.value ->> 1) RETURNING id";
            db.fetch(sql, rows(Dialect::Sqlite, whose)).await?
        }
        Dialect::Postgres => {
            // A row whose fence grows while its lock is waited for is deleted too: a delivery counts even then.
            let sql = "WITH o AS MATERIALIZED (SELECT * FROM unnest($2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], \
                       $6::bytea[]) AS o(id, fence, status, attempts, result)), \
                       gone AS (DELETE FROM ic_job WHERE seq = ANY(ARRAY(SELECT j.seq FROM o CROSS JOIN LATERAL \
                       (SELECT q.seq FROM ic_job q WHERE q.id = o.id AND q.fence = o.fence LIMIT 1) j)) \
                       RETURNING id, tenant, vendor), \
                       kept AS (INSERT INTO ic_done (id, tenant, vendor, outcome, status, attempts, finished_at, result) \
                       SELECT gone.id, gone.tenant, gone.vendor, 0, o.status, o.attempts, $1, o.result \
                       FROM gone JOIN o ON o.id = gone.id ON CONFLICT (id) DO NOTHING) SELECT id FROM gone";
            db.fetch(sql, args).await?
        }
    };
    gone.iter_mut().map(Row::id).collect()
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
