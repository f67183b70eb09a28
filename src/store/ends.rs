//! The SQL of ends: what is written when a claim of a job ends.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::driver::{Column, Db, DbError, Dialect, args, rows, wait_briefly};
use super::ends_together::Groups;
use super::job_end::{End, JobEnd};
use super::{Id, dead, replies};
use crate::BoxFuture;

/// [`finish`] for a list that the caller keeps until it is written.
pub(crate) fn finish_all<'a>(
    ends: &'a Arc<Vec<JobEnd>>,
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Vec<bool>, DbError>> {
    finish(ends, db, now)
}

/// As [`finish_all`], and waits for a lock for a moment only: another program may keep the row of a job locked.
pub(crate) fn finish_briefly<'a>(
    ends: &'a Arc<Vec<JobEnd>>,
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Vec<bool>, DbError>> {
    Box::pin(async move {
        wait_briefly(db).await?;
        finish(ends, db, now).await
    })
}

/// Ends claims. Returns for each whether it took effect.
///
/// Ends of one kind are written together if their jobs still belong to this process; all others are written one by one.
/// If a job has several ends, only the first is written together with others, so that the ends take effect in their
/// order.
pub(crate) fn finish<'a>(ends: &'a Vec<JobEnd>, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Vec<bool>, DbError>> {
    Box::pin(async move {
        let mut told = vec![false; ends.len()];
        let mut places = HashMap::with_capacity(ends.len());
        let mut groups = Groups::default();
        for (place, end) in ends.iter().enumerate() {
            if end.end.is_small() && !places.contains_key(&end.id) {
                groups.add(end);
            }
            places.entry(end.id).or_insert(place);
        }
        for id in groups.write(db, now).await? {
            if let Some(told) = places.get(&id).and_then(|place| told.get_mut(*place)) {
                *told = true;
            }
        }
        let left: Vec<Id> = ends.iter().zip(&told).filter(|(_, told)| !**told).map(|(end, _)| end.id).collect();
        let exist = existing(&left, db).await?;
        for (told, end) in told.iter_mut().zip(ends) {
            if !*told && exist.contains(&end.id) {
                *told = finish_one(end, db, now).await?;
            }
        }
        let ended = ends.iter().zip(&told).filter(|(_, told)| **told);
        let replies: Vec<_> = ended.filter_map(|(end, _)| Some((end.id, end.end.reply()?))).collect();
        replies::insert(&replies, db, now).await?;
        Ok(told)
    })
}

/// Those of the jobs that are in the outbox or among the dead letters. No other job has an end: after a commit whose reply
/// was lost, the jobs of the whole list have ended, and a look for each by itself would take several statements. One
/// statement looks into both tables, because a letter that is sent again moves from one to the other.
async fn existing(ids: &[Id], db: Db<'_>) -> Result<HashSet<Id>, DbError> {
    // The end itself finds out whether its job exists.
    if ids.len() <= 1 {
        return Ok(ids.iter().copied().collect());
    }
    let sql = match db.dialect() {
        Dialect::Sqlite => {
            "SELECT j.id FROM json_each($1) o CROSS JOIN ic_job j INDEXED BY sqlite_autoindex_ic_job_1 \
             ON j.id = unhex(o.value ->> 0) UNION ALL \
             SELECT d.id FROM json_each($1) o CROSS JOIN ic_dead d INDEXED BY sqlite_autoindex_ic_dead_1 \
             ON d.id = unhex(o.value ->> 0)"
        }
        Dialect::Postgres => {
            "SELECT id FROM ic_job WHERE id = ANY($1) UNION ALL SELECT id FROM ic_dead WHERE id = ANY($1)"
        }
    };
    let ids = ids.iter().map(|id| Some(id.as_bytes().as_slice())).collect();
    let found = db.fetch(sql, rows(db.dialect(), vec![Column::Blobs(ids)])).await?;
    found.into_iter().map(|mut row| row.id()).collect()
}

async fn finish_one(finish: &JobEnd, db: Db<'_>, now: i64) -> Result<bool, DbError> {
    let (id, fence, known) = (finish.id.as_bytes().as_slice(), finish.fence, finish.known);
    match &finish.end {
        End::Delivered { status, attempts, result, .. } => {
            let what = (0, i64::from(*status), i64::from(*attempts));
            // A delivery ends the job whatever its fence: another process may have claimed the job since, and after a
            // failover that lost the last commits the row's fence is smaller than this claim's. A letter that is sent
            // again moves from `ic_dead` to `ic_job` between the two statements, so both are run twice.
            for _ in 0..2 {
                for sql in [
                    "DELETE FROM ic_job WHERE id = $1 RETURNING tenant, vendor",
                    "DELETE FROM ic_dead WHERE id = $1 RETURNING tenant, vendor",
                ] {
                    let mut gone = db.fetch(sql, args![id]).await?;
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
        End::Later { after_ms, expires_at, history } => {
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
            dead::revive(id, fence, known, (run_at, *expires_at, history), db, now).await
        }
        End::Wait { after_ms } => {
            // A row of schema 12 does not say when its first exchange without an outcome was recorded: `run_at`, which
            // changes here, stands for it.
            let sql = "UPDATE ic_job SET state = 0, run_at = $3, started_at = coalesce(started_at, run_at), \
                       claims = claims - 1, owner = NULL, lease_until = NULL \
                       WHERE id = $1 AND fence = $2 AND state + 0 = 1";
            Ok(db.execute(sql, args![id, fence, now.saturating_add(*after_ms)]).await? > 0)
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
