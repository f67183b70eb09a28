//! The SQL of ends that are written together, with a statement for each kind of end. The statements end only jobs that
//! still belong to this process, and return the ids of the jobs that they ended. [`ends`](super::ends) writes all other
//! ends one by one.
//!
//! A statement for PostgreSQL may wait for the lock of a row while another process takes the job over, and then checks
//! its outermost condition again, with the new row. So that condition holds the fence too, as a subquery for each row:
//! with a join, the planner would choose how the jobs are found.

use super::Id;
use super::driver::{Column, Db, DbError, Dialect, Row, args, rows};
use super::job_end::{End, JobEnd};

/// The most jobs in one statement.
const TOGETHER: usize = 512;
/// The most jobs in a statement for PostgreSQL in which each row searches all given rows for its values.
const FEW_TOGETHER: usize = 64;

/// Ends that can be written together, by kind.
#[derive(Default)]
pub(super) struct Groups<'a> {
    delivered: Vec<&'a JobEnd>,
    dead: Vec<&'a JobEnd>,
    later: Vec<&'a JobEnd>,
    back: Vec<&'a JobEnd>,
}

impl<'a> Groups<'a> {
    pub(super) fn add(&mut self, end: &'a JobEnd) {
        match &end.end {
            End::Delivered { .. } => self.delivered.push(end),
            End::Dead(_) => self.dead.push(end),
            End::Later { .. } => self.later.push(end),
            End::Back => self.back.push(end),
            End::Wait { .. } | End::Dropped => {}
        }
    }

    /// Writes the ends of each kind, unless there is only one. Returns the ids of the jobs that have ended.
    pub(super) async fn write(&self, db: Db<'_>, now: i64) -> Result<Vec<Id>, DbError> {
        let mut all = Vec::new();
        let few = match db.dialect() {
            Dialect::Sqlite => TOGETHER,
            Dialect::Postgres => FEW_TOGETHER,
        };
        if self.delivered.len() > 1 {
            for some in self.delivered.chunks(TOGETHER) {
                all.extend(delivered(some, db, now).await?);
            }
        }
        if self.dead.len() > 1 {
            for some in self.dead.chunks(few) {
                all.extend(dead(some, db, now).await?);
            }
        }
        if self.later.len() > 1 {
            for some in self.later.chunks(few) {
                all.extend(later(some, db, now).await?);
            }
        }
        if self.back.len() > 1 {
            for some in self.back.chunks(few) {
                all.extend(back(some, db).await?);
            }
        }
        Ok(all)
    }
}

/// The columns by which jobs are found: their ids and fences.
fn whose<'a>(ends: &[&'a JobEnd]) -> Vec<Column<'a>> {
    let ids = ends.iter().map(|end| Some(end.id.as_bytes().as_slice())).collect();
    vec![Column::Blobs(ids), Column::Ints(ends.iter().map(|end| end.fence).collect())]
}

fn ended(rows: &mut [Row]) -> Result<Vec<Id>, DbError> {
    rows.iter_mut().map(Row::id).collect()
}

/// Ends jobs that were delivered. Returns those that no other process has claimed since this process's claim. The
/// others must be ended one by one, because another process has claimed them or made dead letters of them. SQLite takes
/// two statements; no other process can write between them.
async fn delivered(ends: &[&JobEnd], db: Db<'_>, now: i64) -> Result<Vec<Id>, DbError> {
    let (mut ids, mut fences, mut statuses, mut counts, mut results) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for end in ends {
        if let End::Delivered { status, attempts, result, .. } = &end.end {
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
            // A row whose fence grows while this statement waits for its lock is deleted too: a delivery counts even
            // then.
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
    ended(&mut gone)
}

/// Makes dead letters of jobs. SQLite takes two statements; no other process can write between them.
async fn dead(ends: &[&JobEnd], db: Db<'_>, now: i64) -> Result<Vec<Id>, DbError> {
    let letters: Vec<_> = ends
        .iter()
        .filter_map(|end| match &end.end {
            End::Dead(dead) => Some(&**dead),
            _ => None,
        })
        .collect();
    let mut columns = whose(ends);
    columns.extend([
        Column::Texts(letters.iter().map(|dead| &*dead.lane.tenant).collect()),
        Column::Texts(letters.iter().map(|dead| &*dead.lane.vendor).collect()),
        Column::Ints(letters.iter().map(|dead| dead.lane.tier).collect()),
        Column::Texts(letters.iter().map(|dead| &*dead.reason).collect()),
        Column::Blobs(letters.iter().map(|dead| Some(&*dead.letter)).collect()),
        Column::Blobs(letters.iter().map(|dead| dead.request.as_deref()).collect()),
        Column::Ints(letters.iter().map(|dead| i64::from(dead.keep_result)).collect()),
    ]);
    let mut args = args![now];
    args.extend(rows(db.dialect(), columns));
    let mut gone = match db.dialect() {
        Dialect::Sqlite => {
            let sql = "INSERT INTO ic_dead (id, tenant, vendor, tier, reason, died_at, letter, request, keep_result, fence, begun) \
                       SELECT j.id, o.value ->> 2, o.value ->> 3, o.value ->> 4, o.value ->> 5, $1, unhex(o.value ->> 6), \
                       unhex(o.value ->> 7), o.value ->> 8, j.fence, j.begun \
                       FROM json_each($2) o CROSS JOIN ic_job j INDEXED BY sqlite_autoindex_ic_job_1 \
                       ON j.id = unhex(o.value ->> 0) WHERE j.fence = o.value ->> 1 AND j.state + 0 = 1 \
                       ON CONFLICT (id) DO NOTHING";
            db.execute(sql, args).await?;
            let sql = "DELETE FROM ic_job WHERE seq IN (SELECT j.seq FROM json_each($1) o \
                       CROSS JOIN ic_job j INDEXED BY sqlite_autoindex_ic_job_1 ON j.id = unhex(o.value ->> 0) \
                       WHERE j.fence = o.value ->> 1 AND j.state + 0 = 1) RETURNING id";
            db.fetch(sql, rows(Dialect::Sqlite, whose(ends))).await?
        }
        Dialect::Postgres => {
            let sql = "WITH o AS MATERIALIZED (SELECT * FROM unnest($2::bytea[], $3::bigint[], $4::text[], $5::text[], \
                       $6::bigint[], $7::text[], $8::bytea[], $9::bytea[], $10::bigint[]) \
                       AS o(id, fence, tenant, vendor, tier, reason, letter, request, keep_result)), \
                       gone AS (DELETE FROM ic_job u WHERE u.state + 0 = 1 \
                       AND u.fence = (SELECT o.fence FROM o WHERE o.id = u.id LIMIT 1) \
                       AND u.seq = ANY(ARRAY(SELECT j.seq FROM o CROSS JOIN LATERAL \
                       (SELECT q.seq FROM ic_job q WHERE q.id = o.id AND q.fence = o.fence AND q.state + 0 = 1 LIMIT 1) j)) \
                       RETURNING u.id, u.fence, u.begun), \
                       kept AS (INSERT INTO ic_dead (id, tenant, vendor, tier, reason, died_at, letter, request, keep_result, \
                       fence, begun) SELECT gone.id, o.tenant, o.vendor, o.tier, o.reason, $1, o.letter, o.request, \
                       o.keep_result, gone.fence, gone.begun FROM gone JOIN o ON o.id = gone.id ON CONFLICT (id) DO NOTHING) \
                       SELECT id FROM gone";
            db.fetch(sql, args).await?
        }
    };
    ended(&mut gone)
}

/// Puts jobs back, to be tried again later. If the outcome of an exchange is known, the fence is increased, as when a
/// single job is put back.
async fn later(ends: &[&JobEnd], db: Db<'_>, now: i64) -> Result<Vec<Id>, DbError> {
    let (mut known, mut times, mut histories) = (Vec::new(), Vec::new(), Vec::new());
    for end in ends {
        if let End::Later { after_ms, history, .. } = &end.end {
            known.push(i64::from(end.known.is_some()));
            times.push(now.saturating_add(*after_ms));
            histories.push(Some(&**history));
        }
    }
    let mut columns = whose(ends);
    columns.extend([Column::Ints(known), Column::Ints(times), Column::Blobs(histories)]);
    let sql = match db.dialect() {
        Dialect::Sqlite => {
            // `MATERIALIZED`: with a plain subquery, SQLite reads all given rows for each row of the table.
            "WITH c AS MATERIALIZED (SELECT j.seq AS place, o.value ->> 2 AS known, o.value ->> 3 AS run_at, \
             o.value ->> 4 AS history FROM json_each($1) o \
             CROSS JOIN ic_job j INDEXED BY sqlite_autoindex_ic_job_1 ON j.id = unhex(o.value ->> 0) \
             WHERE j.fence = o.value ->> 1 AND j.state + 0 = 1) \
             UPDATE ic_job SET state = 0, claims = 0, started = 0, owner = NULL, lease_until = NULL, run_at = c.run_at, \
             history = unhex(c.history), fence = ic_job.fence + c.known FROM c WHERE ic_job.seq = c.place RETURNING id"
        }
        Dialect::Postgres => {
            "WITH o AS MATERIALIZED (SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[]) \
             AS o(id, fence, known, run_at, history)) \
             UPDATE ic_job u SET state = 0, claims = 0, started = 0, owner = NULL, lease_until = NULL, \
             (run_at, history, fence) = (SELECT o.run_at, o.history, o.fence + o.known FROM o WHERE o.id = u.id LIMIT 1) \
             WHERE u.state + 0 = 1 AND u.fence = (SELECT o.fence FROM o WHERE o.id = u.id LIMIT 1) \
             AND u.seq = ANY(ARRAY(SELECT j.seq FROM o CROSS JOIN LATERAL \
             (SELECT q.seq FROM ic_job q WHERE q.id = o.id AND q.fence = o.fence AND q.state + 0 = 1 LIMIT 1) j)) RETURNING u.id"
        }
    };
    ended(&mut db.fetch(sql, rows(db.dialect(), columns)).await?)
}

/// Undoes claims. `run_at` stays, so that the jobs keep their positions in the queue.
async fn back(ends: &[&JobEnd], db: Db<'_>) -> Result<Vec<Id>, DbError> {
    let sql = match db.dialect() {
        Dialect::Sqlite => {
            "UPDATE ic_job SET state = 0, claims = claims - 1, owner = NULL, lease_until = NULL WHERE seq IN (SELECT j.seq \
             FROM json_each($1) o CROSS JOIN ic_job j INDEXED BY sqlite_autoindex_ic_job_1 ON j.id = unhex(o.value ->> 0) \
             WHERE j.fence = o.value ->> 1 AND j.state + 0 = 1) RETURNING id"
        }
        Dialect::Postgres => {
            "WITH o AS MATERIALIZED (SELECT * FROM unnest($1::bytea[], $2::bigint[]) AS o(id, fence)) \
             UPDATE ic_job u SET state = 0, claims = u.claims - 1, owner = NULL, lease_until = NULL \
             WHERE u.state + 0 = 1 AND u.fence = (SELECT o.fence FROM o WHERE o.id = u.id LIMIT 1) \
             AND u.seq = ANY(ARRAY(SELECT j.seq FROM o CROSS JOIN LATERAL \
             (SELECT q.seq FROM ic_job q WHERE q.id = o.id AND q.fence = o.fence AND q.state + 0 = 1 LIMIT 1) j)) RETURNING u.id"
        }
    };
    ended(&mut db.fetch(sql, rows(db.dialect(), whose(ends))).await?)
}
