//! The SQL of `ic_intake`: requests that an application inserts in transactions of its own, in any language. The worker
//! moves them into the outbox, or into `ic_intake_refused`, in one transaction: each exactly once.
//!
//! One process moves rows at a time. If two did, one would skip the rows that the other is moving, and later rows of the
//! same lane could be sent before them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::driver::{Column, Db, DbError, Dialect, args, rows};
use super::id::LaneTier;
use super::intake;
use super::jobs::{Accepted, NewJob};
use crate::BoxFuture;

/// A row that waits in `ic_intake`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) seq: i64,
    /// The application's own id, by which a repeated insert is recognised.
    pub(crate) id: Option<String>,
    /// `None` if the request is longer than [`Page::longest`].
    pub(crate) request: Option<Vec<u8>>,
    /// The length of the request, whether it was read or not.
    pub(crate) bytes: i64,
    /// Milliseconds since the row was inserted. A row may state any time: one before 1970 counts as 1970.
    pub(crate) age_ms: i64,
}

/// Which rows to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    /// Only rows after this one are read.
    pub(crate) after: i64,
    pub(crate) rows: i64,
    /// No more rows are read after requests of this many bytes.
    pub(crate) bytes: i64,
    /// The longest request that is read, in bytes.
    pub(crate) longest: i64,
}

impl Page {
    /// Whether a bound of the page was reached, so that others may follow these rows.
    pub(crate) fn is_full(&self, waiting: &[Waiting]) -> bool {
        let bytes: i64 = waiting.iter().map(|row| row.bytes).sum();
        waiting.len() as i64 >= self.rows || bytes >= self.bytes
    }
}

/// The rows of a page. Their sizes are summed up without their contents, so that the database holds no request that is
/// not read.
macro_rules! of_page {
    () => {
        "FROM ic_intake WHERE seq > $1 AND seq <= (SELECT MAX(seq) FROM \
         (SELECT seq, SUM(bytes) OVER (ORDER BY seq) - bytes AS above FROM \
         (SELECT seq, octet_length(request) AS bytes FROM ic_intake WHERE seq > $1 ORDER BY seq LIMIT $2) s) b \
         WHERE above < $4) ORDER BY seq"
    };
}

/// Reads rows in the order of their numbers. Texts are read as bytes: in SQLite a text column may hold anything, and
/// one bad row must not make all the others unreadable. For the same reason no time of a row makes its age overflow.
pub(crate) fn read<'a>(page: &'a Page, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Vec<Waiting>, DbError>> {
    Box::pin(async move {
        let sql = match db.dialect() {
            Dialect::Sqlite => concat!(
                "SELECT seq, CAST(id AS BLOB), CASE WHEN octet_length(request) <= $3 THEN CAST(request AS BLOB) END, \
                 octet_length(request), CAST(1000 * (julianday('now') - 2440587.5) * 86400 - MAX(at, 0) AS INTEGER) ",
                of_page!()
            ),
            Dialect::Postgres => concat!(
                "SELECT seq, convert_to(id, 'UTF8'), \
                 CASE WHEN octet_length(request) <= $3 THEN convert_to(request, 'UTF8') END, octet_length(request), \
                 (1000 * EXTRACT(EPOCH FROM clock_timestamp()))::bigint - GREATEST(at, 0) ",
                of_page!()
            ),
        };
        let mut waiting = Vec::new();
        for mut row in db.fetch(sql, args![page.after, page.rows, page.longest, page.bytes]).await? {
            waiting.push(Waiting {
                seq: row.int()?,
                id: row.maybe_bytes()?.map(|id| String::from_utf8_lossy(&id).into_owned()),
                request: row.maybe_bytes()?,
                bytes: row.int()?,
                age_ms: row.int()?.max(0),
            });
        }
        Ok(waiting)
    })
}

/// A row that is to be moved.
#[derive(Clone, Debug)]
pub(crate) struct CheckedRow {
    pub(crate) seq: i64,
    /// The row's job, or the reason for its refusal.
    pub(crate) job: Result<NewJob, String>,
}

/// The rows that are to be moved in one transaction: a range of those of a page.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) rows: Arc<Vec<CheckedRow>>,
    pub(crate) which: Range<usize>,
    /// The lanes of which an earlier row of the page stays in the table.
    pub(crate) stay: Vec<LaneTier>,
    /// How long refused rows are kept, in milliseconds.
    pub(crate) keep_ms: i64,
}

/// The results of a [`Move`]. Rows that another process has moved before are not among them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moved {
    /// The results of the jobs, by the rows' numbers.
    pub(crate) taken: Vec<(i64, Accepted)>,
    pub(crate) refused: u64,
    /// The rows that stay in the table because the application has locked them, or an earlier row of their lane.
    pub(crate) stay: Vec<i64>,
    /// Whether another process is moving rows. Then this one has moved none.
    pub(crate) is_elsewhere: bool,
}

/// The reason for refusing a row that has the id of another request.
const ANOTHER: &str = "another request was accepted with this id";
/// Characters of a reason; the rest is cut off. A reason may repeat a name from the request, of any length.
const LONGEST_REASON: usize = 1_000;

/// A reason as each database stores it: PostgreSQL accepts no NUL in a text.
fn storable(why: &str) -> String {
    why.chars().take(LONGEST_REASON).collect::<String>().replace('\0', "\\0")
}

/// Moves rows. If this step is run again because the reply to its commit was lost, it finds no row and moves nothing.
pub(crate) fn move_rows<'a>(rows: &'a Move, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Moved, DbError>> {
    Box::pin(async move {
        let Move { rows, which, stay: lanes, keep_ms } = rows;
        let rows = &rows[which.clone()];
        if !is_alone(db).await? {
            return Ok(Moved { is_elsewhere: true, ..Moved::default() });
        }
        let found = lock(rows.iter().map(|row| row.seq).collect(), db).await?;
        let (mut jobs, mut bad, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        let mut lanes: HashSet<(&str, &str)> = lanes.iter().map(|lane| (&*lane.tenant, &*lane.vendor)).collect();
        let mut stay = Vec::new();
        for CheckedRow { seq, job } in rows {
            let lane = job.as_ref().ok().map(|job| (&*job.lane.tenant, &*job.lane.vendor));
            match found.get(seq) {
                None => continue,
                Some(true) if lane.is_none_or(|lane| !lanes.contains(&lane)) => moved.push(*seq),
                // The later rows of the lane stay behind this one, so that they keep their order.
                Some(_) => {
                    stay.push(*seq);
                    lanes.extend(lane);
                    continue;
                }
            }
            match job {
                Ok(job) => jobs.push((*seq, job)),
                Err(why) => bad.push((*seq, &**why)),
            }
        }
        let accepted = intake::take_all(&jobs.iter().map(|(_, job)| *job).collect::<Vec<_>>(), db, now).await?;
        let taken: Vec<(i64, Accepted)> = jobs.iter().zip(accepted).map(|((seq, _), result)| (*seq, result)).collect();
        let reused =
            taken.iter().filter(|(_, result)| *result == Accepted::KeyOfAnother).map(|(seq, _)| (*seq, ANOTHER));
        let mut count = 0;
        for (seq, why) in reused.chain(bad) {
            let keep = "INSERT INTO ic_intake_refused (id, request, at, why, refused_at, until) \
                        SELECT id, request, at, $2, $3, $4 FROM ic_intake WHERE seq = $1";
            let why = storable(why);
            count += db.execute(keep, args![seq, &why, now, now.saturating_add(*keep_ms)]).await?;
        }
        delete(moved, db).await?;
        Ok(Moved { taken, refused: count, stay, is_elsewhere: false })
    })
}

/// Whether no other process moves rows before this transaction ends. A transaction of SQLite has the whole file for
/// itself. In PostgreSQL the transaction takes a lock, which a pooler does not hand on and which ends with the process.
async fn is_alone(db: Db<'_>) -> Result<bool, DbError> {
    if db.dialect() == Dialect::Sqlite {
        return Ok(true);
    }
    // The first number of the lock is arbitrary; the second is that of the table, of which a database may have several
    // in different schemas.
    let sql = "SELECT pg_try_advisory_xact_lock(713491104, 'ic_intake'::regclass::oid::int)::int";
    let mut rows = db.fetch(sql, Vec::new()).await?;
    Ok(rows.first_mut().map(|row| row.int()).transpose()? == Some(1))
}

/// Locks those of the given rows that still exist. Returns for each of these whether it could be locked: it cannot
/// while the application has locked it.
async fn lock(seqs: Vec<i64>, db: Db<'_>) -> Result<HashMap<i64, bool>, DbError> {
    if db.dialect() == Dialect::Sqlite {
        let sql = "SELECT seq FROM ic_intake WHERE seq IN (SELECT o.value ->> 0 FROM json_each($1) o)";
        return Ok(numbers(sql, seqs, db).await?.into_iter().map(|seq| (seq, true)).collect());
    }
    let sql = "SELECT seq FROM ic_intake WHERE seq = ANY($1) ORDER BY seq FOR UPDATE SKIP LOCKED";
    let locked = numbers(sql, seqs.clone(), db).await?;
    let mut found = HashMap::new();
    if locked.len() < seqs.len() {
        let sql = "SELECT seq FROM ic_intake WHERE seq = ANY($1)";
        found.extend(numbers(sql, seqs, db).await?.into_iter().map(|seq| (seq, false)));
    }
    found.extend(locked.into_iter().map(|seq| (seq, true)));
    Ok(found)
}

/// Runs a statement that takes numbers of rows and returns such.
async fn numbers(sql: &'static str, seqs: Vec<i64>, db: Db<'_>) -> Result<Vec<i64>, DbError> {
    let args = rows(db.dialect(), vec![Column::Ints(seqs)]);
    db.fetch(sql, args).await?.into_iter().map(|mut row| row.int()).collect()
}

async fn delete(seqs: Vec<i64>, db: Db<'_>) -> Result<(), DbError> {
    let sql = match db.dialect() {
        Dialect::Sqlite => "DELETE FROM ic_intake WHERE seq IN (SELECT o.value ->> 0 FROM json_each($1) o)",
        Dialect::Postgres => "DELETE FROM ic_intake WHERE seq = ANY($1)",
    };
    let args = rows(db.dialect(), vec![Column::Ints(seqs)]);
    db.execute(sql, args).await.map(drop)
}
