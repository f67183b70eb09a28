//! The SQL of looks, which find the lanes and tiers that have due jobs.

use super::LaneTier;
use super::claims::Position;
use super::driver::readable;
use super::driver::{Db, DbError, Dialect, args};
use crate::BoxFuture;

/// The most jobs that a look for new jobs reads. If more have become due, a look at all lanes finds the others.
const FEW: i64 = 4_096;

/// Lanes and tiers with due jobs. None of a lane's jobs that the look has seen is before the position.
pub(crate) type DueLanes = Vec<(LaneTier, Position)>;

/// What a look has found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) lanes: DueLanes,
    /// The store's time.
    pub(crate) at: i64,
    /// Whether further jobs may have become due, in other lanes too.
    pub(crate) is_cut: bool,
}

/// Returns the lanes and tiers with jobs that have become due after `after`, as far as the first [`FEW`] of these jobs
/// show them.
pub(crate) fn due<'a>(after: &'a i64, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Found, DbError>> {
    Box::pin(async move {
        let sql = match db.dialect() {
            Dialect::Sqlite => {
                "SELECT tenant, vendor, tier, count(*), min(run_at) FROM (SELECT tenant, vendor, tier, run_at FROM ic_job INDEXED BY ic_job_due \
                 WHERE state = 0 AND run_at + 0 > $1 AND run_at + 0 <= $2 ORDER BY run_at + 0 LIMIT $3 + 0) \
                 GROUP BY tenant, vendor, tier"
            }
            Dialect::Postgres => {
                "SELECT tenant, vendor, tier, count(*), min(run_at) FROM (SELECT tenant, vendor, tier, run_at FROM ic_job \
                 WHERE state = 0 AND run_at + 0 > $1 AND run_at + 0 <= $2 ORDER BY run_at + 0 LIMIT $3) few \
                 GROUP BY tenant, vendor, tier"
            }
        };
        let rows = db.fetch(sql, args![*after, now, FEW]).await?;
        let found = readable(rows, |mut row| {
            let lane = LaneTier { tenant: row.text()?, vendor: row.text()?, tier: row.int()? };
            let (count, run_at) = (row.int()?, row.int()?);
            Ok((count, (lane, Position { run_at, seq: i64::MIN })))
        });
        let is_cut = found.iter().map(|(count, _)| count).sum::<i64>() >= FEW;
        Ok(Found { lanes: found.into_iter().map(|(_, lane)| lane).collect(), at: now, is_cut })
    })
}

/// A page of the lanes and tiers with due jobs.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(crate) lanes: DueLanes,
    /// The store's time.
    pub(crate) at: i64,
    /// The lane after which the next page begins; `None` for the last page.
    pub(crate) more: Option<LaneTier>,
}

/// Returns lanes and tiers with due jobs in the order of vendor, tenant and tier, after the lane `after` or from the
/// first. Examines at most `most` lanes and tiers that have jobs. The statement is a skip scan: it goes from one lane
/// to the next by the index, past all jobs between them.
pub(crate) fn all_due<'a>(
    (after, most): &'a (Option<LaneTier>, i64),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Lanes, DbError>> {
    Box::pin(async move {
        let sql = match db.dialect() {
            // A comparison of three columns at once would use the index for the first of them only.
            Dialect::Sqlite => {
                "WITH RECURSIVE l(seq) AS (SELECT coalesce(\
                 (SELECT q.seq FROM ic_job q INDEXED BY ic_job_ready WHERE q.state = 0 AND q.vendor = $1 \
                 AND q.tenant = $2 AND q.tier > $3 ORDER BY q.tier, q.run_at, q.seq LIMIT 1), \
                 (SELECT q.seq FROM ic_job q INDEXED BY ic_job_ready WHERE q.state = 0 AND q.vendor = $1 \
                 AND q.tenant > $2 ORDER BY q.tenant, q.tier, q.run_at, q.seq LIMIT 1), \
                 (SELECT q.seq FROM ic_job q INDEXED BY ic_job_ready WHERE q.state = 0 AND q.vendor > $1 \
                 ORDER BY q.vendor, q.tenant, q.tier, q.run_at, q.seq LIMIT 1)) UNION ALL SELECT coalesce(\
                 (SELECT q.seq FROM ic_job q INDEXED BY ic_job_ready WHERE q.state = 0 AND q.vendor = j.vendor \
                 AND q.tenant = j.tenant AND q.tier > j.tier ORDER BY q.tier, q.run_at, q.seq LIMIT 1), \
                 (SELECT q.seq FROM ic_job q INDEXED BY ic_job_ready WHERE q.state = 0 AND q.vendor = j.vendor \
                 AND q.tenant > j.tenant ORDER BY q.tenant, q.tier, q.run_at, q.seq LIMIT 1), \
                 (SELECT q.seq FROM ic_job q INDEXED BY ic_job_ready WHERE q.state = 0 AND q.vendor > j.vendor \
                 ORDER BY q.vendor, q.tenant, q.tier, q.run_at, q.seq LIMIT 1)) \
                 FROM l CROSS JOIN ic_job j ON j.seq = l.seq LIMIT $4 + 0) \
                 SELECT j.tenant, j.vendor, j.tier, j.run_at, j.seq FROM l CROSS JOIN ic_job j ON j.seq = l.seq"
            }
            Dialect::Postgres => {
                "WITH RECURSIVE l AS ((SELECT vendor, tenant, tier, run_at, seq FROM ic_job WHERE state = 0 \
                 AND (vendor, tenant, tier) > ($1, $2, $3) ORDER BY vendor, tenant, tier, run_at, seq LIMIT 1) UNION ALL \
                 SELECT n.vendor, n.tenant, n.tier, n.run_at, n.seq FROM l CROSS JOIN LATERAL (SELECT vendor, tenant, tier, run_at, seq \
                 FROM ic_job WHERE state = 0 AND (vendor, tenant, tier) > (l.vendor, l.tenant, l.tier) \
                 ORDER BY vendor, tenant, tier, run_at, seq LIMIT 1) n) \
                 SELECT tenant, vendor, tier, run_at, seq FROM l LIMIT $4"
            }
        };
        // No lane sorts before this one.
        let first = LaneTier { tenant: String::new(), vendor: String::new(), tier: i64::MIN };
        let LaneTier { tenant, vendor, tier } = after.as_ref().unwrap_or(&first);
        let rows = db.fetch(sql, args![vendor, tenant, *tier, *most]).await?;
        let is_cut = i64::try_from(rows.len()).unwrap_or(i64::MAX) >= *most;
        let mut found = readable(rows, |mut row| {
            let lane = LaneTier { tenant: row.text()?, vendor: row.text()?, tier: row.int()? };
            Ok((lane, Position { run_at: row.int()?, seq: row.int()? }))
        });
        // If the last row cannot be decoded, the next page begins after the row before it, so that the look does not
        // end here.
        let more = found.last().filter(|_| is_cut).map(|(lane, _)| lane.clone());
        found.retain(|(_, position)| position.run_at <= now);
        Ok(Lanes { lanes: found, at: now, more })
    })
}
