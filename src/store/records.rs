//! Where a job is, what was sent, and how long either is kept.

use super::driver::{Db, DbError, Row, args};
use super::jobs::done;
use super::{Id, LaneTier};
use crate::BoxFuture;

/// Jobs in the outbox; counted up to a bound.
pub(crate) fn count<'a>(most: &'a i64, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<i64, DbError>> {
    Box::pin(async move {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM ic_job LIMIT $1) few";
        let mut rows = db.fetch(sql, args![*most]).await?;
        Ok(rows.first_mut().map(Row::int).transpose()?.unwrap_or(0))
    })
}

/// Jobs of one tenant at one vendor; counted up to a bound.
pub(crate) fn count_lane<'a>(
    (lane, most): &'a (LaneTier, i64),
    db: Db<'a>,
    _: i64,
) -> BoxFuture<'a, Result<i64, DbError>> {
    Box::pin(async move {
        // What is under way is not worth an index.
        let sql =
            "SELECT count(*) FROM (SELECT 1 FROM ic_job WHERE state = 0 AND vendor = $1 AND tenant = $2 LIMIT $3) few";
        let mut rows = db.fetch(sql, args![&lane.vendor, &lane.tenant, *most]).await?;
        Ok(rows.first_mut().map(Row::int).transpose()?.unwrap_or(0))
    })
}

/// Where a job is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Waiting { due_in_ms: i64 },
    UnderWay,
    Done { outcome: i64, status: i64, attempts: i64, result: Option<Vec<u8>> },
    Dead { reason: String },
    Nowhere,
}

pub(crate) fn find<'a>(id: &'a Id, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Place, DbError>> {
    Box::pin(async move {
        let id = id.as_bytes().as_slice();
        // In this order: a job only moves from the first to the others, and one that is sent again back to the first.
        for _ in 0..2 {
            if let Some(row) = db.fetch("SELECT state, run_at FROM ic_job WHERE id = $1", args![id]).await?.first_mut()
            {
                return Ok(match (row.int()?, row.int()?) {
                    (0, run_at) => Place::Waiting { due_in_ms: run_at.saturating_sub(now).max(0) },
                    _ => Place::UnderWay,
                });
            }
            let sql = "SELECT outcome, status, attempts, result FROM ic_done WHERE id = $1";
            if let Some(row) = db.fetch(sql, args![id]).await?.first_mut() {
                let (outcome, status, attempts) = (row.int()?, row.int()?, row.int()?);
                return Ok(Place::Done { outcome, status, attempts, result: row.maybe_bytes()? });
            }
            if let Some(row) = db.fetch("SELECT reason FROM ic_dead WHERE id = $1", args![id]).await?.first_mut() {
                return Ok(Place::Dead { reason: row.text()? });
            }
        }
        Ok(Place::Nowhere)
    })
}

/// Takes a job out that is in nobody's hands. Whether it was.
pub(crate) fn cancel<'a>(id: &'a Id, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<bool, DbError>> {
    Box::pin(async move {
        let id = id.as_bytes().as_slice();
        let look = "SELECT fence FROM ic_job WHERE id = $1 AND state = 0";
        let mut rows = db.fetch(look, args![id]).await?;
        let Some(fence) = rows.first_mut().map(Row::int).transpose()? else { return Ok(false) };
        done(db, id, fence, 0, (1, 0, 0), None, now).await
    })
}

/// Rows that can be read. One that was edited into nonsense must not hide the others.
pub(super) fn readable<T>(rows: Vec<Row>, read: impl Fn(Row) -> Result<T, DbError>) -> Vec<T> {
    let told = |error: DbError| tracing::error!(%error, "a row of the store cannot be read, and is left out");
    rows.into_iter().filter_map(|row| read(row).map_err(told).ok()).collect()
}
