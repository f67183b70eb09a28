//! The SQL of claims: takes due jobs for one process, and those whose time is over, with one statement for each
//! database. Jobs of processes that died are in `owners.rs`.
//!
//! A claim limits the bytes as well as the number of its jobs, because all its jobs are in memory at once.

use std::collections::HashMap;

use super::driver::readable;
use super::driver::{Arg, Column, Db, DbError, Dialect, Row, args, rows};
use super::{Id, LaneTier};
use crate::BoxFuture;

/// The place of a job in the order in which a lane's jobs are due. The default is before all jobs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Position {
    pub(crate) run_at: i64,
    pub(crate) seq: i64,
}

impl Position {
    /// After all jobs.
    pub(crate) const LAST: Position = Position { run_at: i64::MAX, seq: i64::MAX };
}

impl Default for Position {
    fn default() -> Position {
        Position { run_at: i64::MIN, seq: i64::MIN }
    }
}

/// What to claim of a lane and tier.
#[derive(Clone, Debug)]
pub(crate) struct LaneClaim {
    pub(crate) lane: LaneTier,
    pub(crate) count: u32,
    /// Where the search begins in PostgreSQL; SQLite keeps no entries of jobs that have ended. While PostgreSQL holds an old snapshot (a dump), the index keeps the entries of all jobs
    /// that have ended since, and a search from the first entry reads all of them.
    pub(crate) from: Position,
}

/// What to claim: a number of jobs of each lane and tier.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) owner: Id,
    pub(crate) lease_ms: i64,
    pub(crate) lanes: Vec<LaneClaim>,
    /// The most bytes of all jobs together, as they are stored; one job is claimed whatever its size.
    pub(crate) most_bytes: usize,
}

/// A job that this process has claimed. The claim lasts as long as the process writes heartbeats.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) id: Id,
    pub(crate) lane: LaneTier,
    pub(crate) position: Position,
    /// The number of the claim: larger than that of every earlier claim of the job, and never used again.
    pub(crate) fence: i64,
    /// The number of claims of the job that have no outcome, this one included.
    pub(crate) claims: i64,
    /// The number of exchanges of earlier claims that may have left and whose outcome is unknown.
    pub(crate) started: i64,
    /// When the first of these exchanges was recorded, or an earlier time; `None` if there is none.
    pub(crate) started_at: Option<i64>,
    /// When the job was claimed, by the store's clock.
    pub(crate) claimed_at: i64,
    /// Milliseconds until the job expires.
    pub(crate) expires_ms: Option<i64>,
    /// When the job expires, by the store's clock.
    pub(crate) expires_at: Option<i64>,
    pub(crate) keep_result: bool,
    pub(crate) request: Vec<u8>,
    pub(crate) history: Option<Vec<u8>>,
}

impl Claimed {
    /// The bytes that the job takes in the store.
    pub(crate) fn bytes(&self) -> usize {
        self.request.len() + self.history.as_ref().map_or(0, Vec::len)
    }
}

fn claimed(mut row: Row, now: i64) -> Result<Claimed, DbError> {
    let position = Position { run_at: row.int()?, seq: row.int()? };
    let id = row.id()?;
    let lane = LaneTier { tenant: row.text()?, vendor: row.text()?, tier: row.int()? };
    let (fence, claims, started) = (row.int()?, row.int()?, row.int()?);
    // A row of schema 12 has no such time; no exchange began before the job was due.
    let started_at = row.maybe_int()?.unwrap_or(position.run_at);
    let expires_at = row.maybe_int()?;
    let expires_ms = expires_at.map(|at| at.saturating_sub(now));
    let keep_result = row.int()? != 0;
    let (request, history) = (row.bytes()?, row.maybe_bytes()?);
    Ok(Claimed {
        id,
        lane,
        position,
        fence,
        claims,
        started,
        started_at: (started > 0).then_some(started_at),
        claimed_at: now,
        expires_ms,
        expires_at,
        keep_result,
        request,
        history,
    })
}

/// The claim in PostgreSQL. Rows that another process has locked are skipped, not waited for. The chosen rows are
/// updated by primary key, one by one: with a join (`FROM c`, or `IN` with a subquery) the planner decides from
/// statistics, which are never right about a queue, whether to read the whole table instead. With most of a million
/// jobs in one lane it read the whole table, at 0.6 s for each claim. The last column is computed once, with the first
/// row, and takes the lock that [`hold`] takes.
const CLAIM_POSTGRES: &str = "WITH w AS (SELECT * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[], $11::bigint[], $12::bigint[]) \
    WITH ORDINALITY AS t(vendor, tenant, tier, k, from_at, from_seq, lane)), \
    c AS MATERIALIZED (SELECT j.seq, j.run_at, j.bytes, w.lane FROM w CROSS JOIN LATERAL \
    (SELECT q.seq, q.run_at, octet_length(q.request) + coalesce(octet_length(q.history), 0) AS bytes FROM ic_job q \
    WHERE q.state = 0 AND q.vendor = w.vendor AND q.tenant = w.tenant AND q.tier = w.tier \
    AND q.run_at <= $7 AND (q.run_at, q.seq) >= (w.from_at, w.from_seq) ORDER BY q.run_at, q.seq LIMIT w.k \
    FOR UPDATE SKIP LOCKED) j), \
    d AS (SELECT seq, sum(bytes) OVER due AS upto, row_number() OVER due AS place FROM c \
    WINDOW due AS (ORDER BY lane, run_at, seq)) \
    UPDATE ic_job u SET state = 1, claims = u.claims + 1, owner = $1, lease_until = $2, \
    fence = CASE WHEN u.fence < $10 THEN $10 ELSE u.fence + 1 END \
    WHERE u.seq = ANY(ARRAY(SELECT seq FROM d WHERE upto <= $8 OR place = 1)) \
    RETURNING u.run_at, u.seq, u.id, u.tenant, u.vendor, u.tier, u.fence, u.claims, u.started, \
    u.started_at, u.expires_at, u.keep_result, u.request, u.history, (SELECT 1 FROM pg_advisory_xact_lock_shared($9))";

/// The claim in SQLite. It takes the same number of jobs from each lane, because a `LIMIT` cannot depend on a lane. `+
/// 0` keeps the limit from being compiled into the plan; otherwise SQLite would compile the statement again for each
/// claim. `json_each` reads the row numbers that are found in each lane from an array, because a subquery in a join
/// cannot depend on the lane either.
const CLAIM_SQLITE: &str = "WITH w AS MATERIALIZED (SELECT key AS lane, value ->> 0 AS vendor, value ->> 1 AS tenant, \
    value ->> 2 AS tier FROM json_each($7)), \
    c AS MATERIALIZED (SELECT w.lane, s.key AS place, s.value AS seq FROM w CROSS JOIN json_each(\
    (SELECT json_group_array(seq) FROM (SELECT q.seq FROM ic_job q INDEXED BY ic_job_ready WHERE q.state = 0 \
    AND q.vendor = w.vendor AND q.tenant = w.tenant AND q.tier = w.tier AND q.run_at <= $3 \
    ORDER BY q.run_at, q.seq LIMIT $4 + 0))) s), \
    d AS (SELECT c.seq, sum(length(j.request) + coalesce(length(j.history), 0)) OVER due AS upto, \
    row_number() OVER due AS place FROM c CROSS JOIN ic_job j ON j.seq = c.seq \
    WINDOW due AS (ORDER BY c.lane, c.place)) \
    UPDATE ic_job SET state = 1, claims = claims + 1, owner = $1, lease_until = $2, \
    fence = CASE WHEN fence < $8 THEN $8 ELSE fence + 1 END \
    WHERE seq IN (SELECT seq FROM d WHERE upto <= $5 OR place <= $6) \
    RETURNING run_at, seq, id, tenant, vendor, tier, fence, claims, started, started_at, expires_at, keep_result, request, history";

/// Groups lanes by the number of jobs that is wanted from each. The groups are in the order of their first lanes.
fn by_count(lanes: &[LaneClaim]) -> Vec<(u32, Vec<&LaneTier>)> {
    let (mut places, mut groups) = (HashMap::new(), Vec::<(u32, Vec<&LaneTier>)>::new());
    for LaneClaim { lane, count, .. } in lanes {
        let place = *places.entry(*count).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, group)) => group.push(lane),
            None => groups.push((*count, vec![lane])),
        }
    }
    groups
}

/// The number of the lock that the claims of a process hold until their transactions end (PostgreSQL).
pub(super) fn lock_of(owner: Id) -> i64 {
    owner.as_u64_pair().1.cast_signed()
}

/// The least fence of a claim that is made now: the store's time in milliseconds, followed by ten bits of the process's
/// id, so that two processes have different ones in the same millisecond. A count alone repeats itself: after a
/// failover to a standby without the last commits, a row has the fence from before a claim that a process still holds,
/// and the next claim would get the fence of that one.
fn least_fence(owner: Id, now: i64) -> i64 {
    now.saturating_mul(1 << 10).saturating_add(lock_of(owner) & 0x3ff)
}

/// Takes the lock of a process's claims, which they share. While a transaction holds it, its claims may become visible
/// later, even if the process has given the transaction up: see [`unclaim`](super::jobs::unclaim).
async fn hold(owner: Id, db: Db<'_>) -> Result<(), DbError> {
    if db.dialect() == Dialect::Postgres {
        db.fetch("SELECT 1 FROM pg_advisory_xact_lock_shared($1)", args![lock_of(owner)]).await?;
    }
    Ok(())
}

/// Claims jobs, in the order in which they are due. A row that cannot be decoded stays claimed until the process ends,
/// and is logged each time.
pub(crate) fn claim<'a>(wanted: &'a Wanted, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Vec<Claimed>, DbError>> {
    Box::pin(async move {
        let (owner, until) = (wanted.owner.as_bytes().as_slice(), now.saturating_add(wanted.lease_ms));
        let fence = least_fence(wanted.owner, now);
        let mut jobs = Vec::new();
        match db.dialect() {
            Dialect::Sqlite => {
                let mut left = wanted.most_bytes;
                for (count, lanes) in by_count(&wanted.lanes) {
                    let most = i64::try_from(left).unwrap_or(i64::MAX);
                    let whatever = i64::from(jobs.is_empty());
                    let mut args = args![owner, until, now, i64::from(count), most, whatever];
                    let columns = vec![
                        Column::Texts(lanes.iter().map(|lane| &*lane.vendor).collect()),
                        Column::Texts(lanes.iter().map(|lane| &*lane.tenant).collect()),
                        Column::Ints(lanes.iter().map(|lane| lane.tier).collect()),
                    ];
                    args.extend(rows(Dialect::Sqlite, columns));
                    args.push(Arg::from(fence));
                    let found = readable(db.fetch(CLAIM_SQLITE, args).await?, |row| claimed(row, now));
                    left = left.saturating_sub(found.iter().map(Claimed::bytes).sum());
                    jobs.extend(found);
                    if left == 0 {
                        break;
                    }
                }
            }
            Dialect::Postgres => {
                let lanes = &wanted.lanes;
                let texts = |of: fn(&LaneTier) -> &str| Arg::Texts(lanes.iter().map(|want| of(&want.lane)).collect());
                let ints = |of: fn(&LaneClaim) -> i64| Arg::Ints(lanes.iter().map(of).collect());
                let args: Vec<Arg<'_>> = vec![
                    Arg::from(owner),
                    Arg::from(until),
                    texts(|lane| &lane.vendor),
                    texts(|lane| &lane.tenant),
                    ints(|want| want.lane.tier),
                    ints(|want| i64::from(want.count)),
                    Arg::from(now),
                    Arg::from(i64::try_from(wanted.most_bytes).unwrap_or(i64::MAX)),
                    Arg::from(lock_of(wanted.owner)),
                    Arg::from(fence),
                    ints(|want| want.from.run_at),
                    ints(|want| want.from.seq),
                ];
                jobs = readable(db.fetch(CLAIM_POSTGRES, args).await?, |row| claimed(row, now));
            }
        }
        // The rows that an UPDATE returns have no order.
        jobs.sort_by_key(|job| job.position);
        Ok(jobs)
    })
}

/// Jobs that a process claims by their ids.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) owner: Id,
    pub(crate) lease_ms: i64,
    pub(crate) ids: Vec<Id>,
    /// No job is claimed after those that take this many bytes together.
    pub(crate) bytes: usize,
}

/// The named jobs that were claimed, and the ids of which there is no job any more.
pub(crate) type NamedClaims = (Vec<Claimed>, Vec<Id>);

/// Claims those of the named jobs that are due and that no process has claimed.
pub(crate) fn claim_named<'a>(named: &'a Named, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<NamedClaims, DbError>> {
    Box::pin(async move {
        let sql = "UPDATE ic_job SET state = 1, claims = claims + 1, owner = $1, lease_until = $2, \
                   fence = CASE WHEN fence < $5 THEN $5 ELSE fence + 1 END \
                   WHERE id = $3 AND state + 0 = 0 AND run_at <= $4 \
                   RETURNING run_at, seq, id, tenant, vendor, tier, fence, claims, started, started_at, expires_at, keep_result, request, history";
        hold(named.owner, db).await?;
        let (owner, until) = (named.owner.as_bytes().as_slice(), now.saturating_add(named.lease_ms));
        let fence = least_fence(named.owner, now);
        let (mut jobs, mut gone, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
        for id in &named.ids {
            if bytes >= named.bytes {
                break;
            }
            let rows = db.fetch(sql, args![owner, until, id.as_bytes().as_slice(), now, fence]).await?;
            if rows.is_empty() {
                let look = "SELECT 1 FROM ic_job WHERE id = $1";
                if db.fetch(look, args![id.as_bytes().as_slice()]).await?.is_empty() {
                    gone.push(*id);
                }
                continue;
            }
            for job in readable(rows, |row| claimed(row, now)) {
                bytes = bytes.saturating_add(job.bytes());
                jobs.push(job);
            }
        }
        Ok((jobs, gone))
    })
}

/// The process that claims expired jobs, and the most jobs and bytes that it claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) owner: Id,
    pub(crate) lease_ms: i64,
    pub(crate) jobs: i64,
    pub(crate) bytes: i64,
    /// No job expires before this time.
    pub(crate) from: i64,
}

/// Returns the earliest deadline of a waiting job if it has passed.
pub(crate) fn passed_deadline<'a>((): &'a (), db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Option<i64>, DbError>> {
    Box::pin(async move {
        let sql =
            "SELECT expires_at FROM ic_job WHERE state = 0 AND expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";
        let first = db.fetch(sql, Vec::new()).await?.first_mut().map(Row::int).transpose()?;
        Ok(first.filter(|first| *first <= now))
    })
}

/// Claims expired jobs, so that the caller can end them with the fence of this claim.
///
/// The claim searches from the earliest deadline on, in the order of deadlines: then PostgreSQL's planner uses the index
/// of deadlines, whatever its statistics. Without the order or the lower bound it may choose the index of due times, and
/// read all jobs that wait.
pub(crate) fn expired<'a>(most: &'a Most, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Vec<Claimed>, DbError>> {
    Box::pin(async move {
        let sql = match db.dialect() {
            Dialect::Sqlite => {
                "UPDATE ic_job SET state = 1, claims = claims + 1, owner = $1, lease_until = $2, \
                 fence = CASE WHEN fence < $6 THEN $6 ELSE fence + 1 END WHERE seq IN \
                 (SELECT seq FROM (SELECT seq, sum(bytes) OVER done AS upto, row_number() OVER done AS place FROM \
                 (SELECT seq, length(request) + coalesce(length(history), 0) AS bytes FROM ic_job \
                 WHERE state = 0 AND expires_at IS NOT NULL AND expires_at >= $7 AND expires_at <= $3 LIMIT $4 + 0) WINDOW done AS (ORDER BY seq)) \
                 WHERE upto <= $5 OR place = 1) \
                 RETURNING run_at, seq, id, tenant, vendor, tier, fence, claims, started, started_at, expires_at, keep_result, request, history"
            }
            Dialect::Postgres => {
                "WITH c AS MATERIALIZED (SELECT seq, octet_length(request) + coalesce(octet_length(history), 0) AS bytes FROM ic_job \
                 WHERE state = 0 AND expires_at IS NOT NULL AND expires_at >= $7 AND expires_at <= $3 \
                 ORDER BY expires_at LIMIT $4 FOR UPDATE SKIP LOCKED), \
                 d AS (SELECT seq, sum(bytes) OVER done AS upto, row_number() OVER done AS place FROM c WINDOW done AS (ORDER BY seq)) \
                 UPDATE ic_job u SET state = 1, claims = u.claims + 1, owner = $1, lease_until = $2, \
                 fence = CASE WHEN u.fence < $6 THEN $6 ELSE u.fence + 1 END \
                 WHERE u.seq = ANY(ARRAY(SELECT seq FROM d WHERE upto <= $5 OR place = 1)) \
                 RETURNING u.run_at, u.seq, u.id, u.tenant, u.vendor, u.tier, u.fence, u.claims, u.started, u.started_at, u.expires_at, \
                 u.keep_result, u.request, u.history"
            }
        };
        let (until, fence) = (now.saturating_add(most.lease_ms), least_fence(most.owner, now));
        let args = args![most.owner.as_bytes().as_slice(), until, now, most.jobs, most.bytes, fence, most.from];
        hold(most.owner, db).await?;
        let rows = db.fetch(sql, args).await?;
        Ok(readable(rows, |row| claimed(row, now)))
    })
}
