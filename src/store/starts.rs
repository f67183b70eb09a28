//! The SQL of starts: what is recorded about an exchange before it leaves.

use std::collections::HashMap;

use super::driver::{Column, Db, DbError, Dialect, Row, args, rows};
use super::{Id, LaneTier, usage};
use crate::BoxFuture;

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
    /// The width of a slot of usage, and how long usage counts; 0 if the vendor has no limit by time.
    pub(crate) slot_ms: i64,
    pub(crate) counts_ms: i64,
}

/// Records that an exchange is about to leave, its usage of the limits, and the time if the job has no other exchange
/// without an outcome. Returns the number of the exchange, which is larger than those of all earlier exchanges of the
/// job. Returns `None` if the claim is over, because another process has taken the job over or the store has lost the
/// claim; then the exchange must not be made.
///
/// The number of the first exchange of a claim is the claim's fence. A count alone repeats itself after a failover to a
/// standby without the last commits, and the outcome of a lost exchange would then count for a later one.
///
/// Only the job's row decides, because a takeover changes the row; no clock is consulted.
pub(crate) fn start<'a>(start: &'a Start, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Option<i64>, DbError>> {
    Box::pin(async move {
        let id = start.id.as_bytes().as_slice();
        let sql = "UPDATE ic_job SET started = started + $3, \
                   begun = CASE WHEN $3 = 0 THEN begun WHEN begun < fence THEN fence ELSE begun + 1 END, \
                   started_at = CASE WHEN started = 0 THEN $5 ELSE started_at END \
                   WHERE id = $1 AND fence = $2 AND state + 0 = 1 AND owner = $4 RETURNING begun";
        let (exchanges, owner) = (i64::from(!start.again), start.owner.as_bytes().as_slice());
        let mut rows = db.fetch(sql, args![id, start.fence, exchanges, owner, now]).await?;
        let Some(begun) = rows.first_mut().map(Row::int).transpose()? else { return Ok(None) };
        spend(&[start], db, now).await?;
        Ok(Some(begun))
    })
}

/// [`start`] for many exchanges of different jobs of one owner, none of which is recorded already. Returns for each job
/// the number of its exchange; a job that another process has taken over is not among them.
pub(super) async fn start_many(starts: &[&Start], db: Db<'_>, now: i64) -> Result<HashMap<Id, i64>, DbError> {
    let Some(first) = starts.first() else { return Ok(HashMap::new()) };
    let sql = match db.dialect() {
        Dialect::Sqlite => {
            "UPDATE ic_job SET started = started + 1, \
             begun = CASE WHEN begun < fence THEN fence ELSE begun + 1 END, \
             started_at = CASE WHEN started = 0 THEN $2 ELSE started_at END WHERE owner = $1 AND seq IN (SELECT j.seq \
             FROM json_each($3) o CROSS JOIN ic_job j INDEXED BY sqlite_autoindex_ic_job_1 ON j.id = unhex(o.value ->> 0) \
             WHERE j.fence = o.value ->> 1 AND j.state + 0 = 1) RETURNING id, begun"
        }
        Dialect::Postgres => {
            "UPDATE ic_job SET started = started + 1, \
             begun = CASE WHEN begun < fence THEN fence ELSE begun + 1 END, \
             started_at = CASE WHEN started = 0 THEN $2 ELSE started_at END WHERE owner = $1 AND state + 0 = 1 AND seq = ANY(ARRAY(\
             SELECT j.seq FROM unnest($3::bytea[], $4::bigint[]) AS o(id, fence) CROSS JOIN LATERAL \
             (SELECT q.seq FROM ic_job q WHERE q.id = o.id AND q.fence = o.fence AND q.state + 0 = 1 LIMIT 1) j)) \
             RETURNING id, begun"
        }
    };
    let ids = starts.iter().map(|start| Some(start.id.as_bytes().as_slice())).collect();
    let fences = starts.iter().map(|start| start.fence).collect();
    let mut args = args![first.owner.as_bytes().as_slice(), now];
    args.extend(rows(db.dialect(), vec![Column::Blobs(ids), Column::Ints(fences)]));
    let mut begun = HashMap::with_capacity(starts.len());
    for mut row in db.fetch(sql, args).await? {
        begun.insert(row.id()?, row.int()?);
    }
    let ours: Vec<&Start> = starts.iter().copied().filter(|start| begun.contains_key(&start.id)).collect();
    spend(&ours, db, now).await?;
    Ok(begun)
}

/// Adds the usage of exchanges of one owner. Each owner has rows of its own, so that no two processes ever wait for the
/// same row.
async fn spend(starts: &[&Start], db: Db<'_>, now: i64) -> Result<(), DbError> {
    let Some(owner) = starts.first().map(|start| start.owner) else { return Ok(()) };
    let mut spent = usage::Sums::default();
    for start in starts.iter().filter(|start| start.slot_ms > 0) {
        let LaneTier { tenant, vendor, tier } = &start.lane;
        let row = usage::Slot {
            tenant,
            vendor,
            endpoint: &start.endpoint,
            slot: now / start.slot_ms,
            high: i64::from(*tier == 0),
            unit: "",
        };
        spent.add(row, (1, start.points), (now, now.saturating_add(start.counts_ms)));
    }
    spent.write(&owner, db).await
}
