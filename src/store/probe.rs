//! The store's own statements, for the benchmark that times them. Not part of the API.

use super::driver::{Db, DbError, Dialect, args};
use super::jobs::{self, End, JobEnd, LaneClaim, Position, Wanted};
use super::{Id, LaneTier, Opened, Store};
use crate::BoxFuture;
use crate::clock::Clock;
use crate::error::Error;

/// A store, of which single statements can be run.
pub struct Probe {
    store: Opened,
    owner: Id,
}

/// A claimed job.
#[derive(Debug)]
pub struct Held(Id, i64);

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Probe {
    /// Opens a store. The returned tasks must be spawned.
    pub async fn open(store: Store) -> Result<(Probe, Vec<BoxFuture<'static, ()>>), Error> {
        let (store, tasks) = store.open(false).await?;
        Ok((Probe { store, owner: super::new_id(Clock::system()) }, tasks))
    }

    /// Inserts `rows` due jobs, spread over `tenants` (`t0`, `t1`, …) at the vendor `v` and the three priorities. Their
    /// ids grow, as those of accepted jobs do.
    pub async fn fill(&self, rows: i64, tenants: i64) -> Result<(), Error> {
        for from in (0..rows).step_by(FILL as usize) {
            self.store.write((from, rows.min(from + FILL), tenants), fill).await?;
        }
        Ok(())
    }

    /// Claims `count` jobs of each tenant and priority.
    pub async fn claim(&self, lanes: &[(String, i64)], count: u32) -> Result<Vec<Held>, Error> {
        let lane = |(tenant, tier): &(String, i64)| LaneClaim {
            lane: LaneTier { tenant: tenant.clone(), vendor: "v".to_owned(), tier: *tier },
            count,
            from: Position::default(),
        };
        let wanted = Wanted {
            owner: self.owner,
            lease_ms: 60_000,
            lanes: lanes.iter().map(lane).collect(),
            most_bytes: 1 << 30,
        };
        let claimed = self.store.write(wanted, jobs::claim).await?;
        Ok(claimed.into_iter().map(|job| Held(job.id, job.fence)).collect())
    }

    /// Ends jobs as delivered. Returns how many were ended.
    pub async fn finish(&self, held: Vec<Held>) -> Result<usize, Error> {
        let end = || End::Delivered { status: 200, attempts: 1, result: None, reply: None };
        let ends = held.into_iter().map(|Held(id, fence)| JobEnd { id, fence, known: None, end: end() }).collect();
        let told = self.store.write(ends, super::ends::finish).await?;
        Ok(told.into_iter().filter(|told| *told).count())
    }
}

/// Rows in one transaction: the server aborts statements that take too long.
const FILL: i64 = 50_000;
/// The stored form of a small POST.
const REQUEST: &str = r#"{"request":{"whole":{"method":"POST","path":"/orders","headers":[["content-type","application/json"]],"body":"[\"0123456789012345678901234567890123456789012345678901234567890123456789\"]"}}}"#;

fn fill<'a>((from, until, tenants): &'a (i64, i64, i64), db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move {
        let sql = match db.dialect() {
            Dialect::Sqlite => {
                "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, enqueued_at, request) \
                 WITH RECURSIVE n(i) AS (SELECT $1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2) \
                 SELECT CAST(printf('%016d', i) AS BLOB), 't' || (i % $3), 'v', (i / $3) % 3, $4 - 1000, $4, $5 FROM n"
            }
            Dialect::Postgres => {
                "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, enqueued_at, request) \
                 SELECT convert_to(lpad(i::text, 16, '0'), 'UTF8'), 't' || (i % $3), 'v', (i / $3) % 3, $4 - 1000, $4, \
                 $5 FROM generate_series($1, $2 - 1) i"
            }
        };
        db.execute(sql, args![*from, *until, *tenants, now, REQUEST.as_bytes()]).await.map(drop)
    })
}
