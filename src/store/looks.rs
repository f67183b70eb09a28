//! The SQL of looks: which lanes and tiers have due jobs.

use super::LaneTier;
use super::driver::readable;
use super::driver::{Db, DbError, Dialect, Row, args};
use crate::BoxFuture;

/// Jobs that a look reads one by one. Where more have become due since the last one, it goes from lane to lane.
const FEW: i64 = 4_096;

/// Lanes and tiers with jobs that have become due after `after`, and the store's time. It reads each of these jobs, or
/// one job of each lane where there are more than [`FEW`] of them.
pub(crate) fn due<'a>(after: &'a i64, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(Vec<LaneTier>, i64), DbError>> {
    Box::pin(async move {
        let sql = match db.dialect() {
            Dialect::Sqlite => {
                "SELECT tenant, vendor, tier, count(*) FROM (SELECT tenant, vendor, tier FROM ic_job INDEXED BY ic_job_due \
                 WHERE state = 0 AND run_at + 0 > $1 AND run_at + 0 <= $2 ORDER BY run_at + 0 LIMIT $3 + 0) \
                 GROUP BY tenant, vendor, tier"
            }
            Dialect::Postgres => {
                "SELECT tenant, vendor, tier, count(*) FROM (SELECT tenant, vendor, tier FROM ic_job \
                 WHERE state = 0 AND run_at + 0 > $1 AND run_at + 0 <= $2 ORDER BY run_at + 0 LIMIT $3) few \
                 GROUP BY tenant, vendor, tier"
            }
        };
        let rows = db.fetch(sql, args![*after, now, FEW]).await?;
        let found = readable(rows, |mut row| Ok((row.text()?, row.text()?, row.int()?, row.int()?)));
        if found.iter().map(|(.., count)| count).sum::<i64>() >= FEW {
            return all_due(&(), db, now).await;
        }
        let lane = |(tenant, vendor, tier, _)| LaneTier { tenant, vendor, tier };
        Ok((found.into_iter().map(lane).collect(), now))
    })
}

/// All lanes and tiers with due jobs, and the store's time: a skip scan, from one lane to the next by the index, past all
/// jobs between them.
pub(crate) fn all_due<'a>((): &'a (), db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(Vec<LaneTier>, i64), DbError>> {
    Box::pin(async move {
        let sql = match db.dialect() {
            // A comparison of three columns at once would use the index for the first of them only.
            Dialect::Sqlite => {
                "WITH RECURSIVE l(seq) AS (SELECT (SELECT seq FROM ic_job INDEXED BY ic_job_ready WHERE state = 0 \
                 ORDER BY vendor, tenant, tier, run_at, seq LIMIT 1) UNION ALL SELECT coalesce(\
                 (SELECT q.seq FROM ic_job q INDEXED BY ic_job_ready WHERE q.state = 0 AND q.vendor = j.vendor \
                 AND q.tenant = j.tenant AND q.tier > j.tier ORDER BY q.tier, q.run_at, q.seq LIMIT 1), \
                 (SELECT q.seq FROM ic_job q INDEXED BY ic_job_ready WHERE q.state = 0 AND q.vendor = j.vendor \
                 AND q.tenant > j.tenant ORDER BY q.tenant, q.tier, q.run_at, q.seq LIMIT 1), \
                 (SELECT q.seq FROM ic_job q INDEXED BY ic_job_ready WHERE q.state = 0 AND q.vendor > j.vendor \
                 ORDER BY q.vendor, q.tenant, q.tier, q.run_at, q.seq LIMIT 1)) \
                 FROM l CROSS JOIN ic_job j ON j.seq = l.seq) \
                 SELECT j.tenant, j.vendor, j.tier FROM l CROSS JOIN ic_job j ON j.seq = l.seq WHERE j.run_at <= $1"
            }
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
