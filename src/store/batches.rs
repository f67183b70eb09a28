//! The SQL of batches: numbered requests of one source, accepted together with the mark up to which the source was
//! read, and their outcomes. Also the SQL of queues and of workers' statuses.

use std::collections::BTreeMap;

use super::driver::{Db, DbError, Row, args, rows_of_page};
use super::jobs::{self, NewJob};
use super::records::JobState;
use super::{Id, LaneTier, Opened};
use crate::BoxFuture;
use crate::error::Error;

/// The first half of the ids of a batch's requests.
pub(crate) type Run = [u8; 8];

/// The stored data of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) run: Run,
    pub(crate) mark: String,
    pub(crate) pages: i64,
    pub(crate) begun_at: i64,
}

/// Returns the batch of this name, and creates it with `run` if there is none. With a mark to begin anew with, `run`
/// and the mark replace those of an existing batch.
pub(crate) fn open<'a>(
    (name, run, anew): &'a (String, Run, Option<String>),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Found, DbError>> {
    Box::pin(async move {
        let run = run.as_slice();
        if anew.is_some() {
            // The notes of the replaced run stay for the run that replaces it. The notes of earlier runs are deleted.
            // If this very step was committed before and its reply lost, the batch has the new run already, and the
            // replaced run is one of the earlier ones: nothing is deleted then.
            let sql = "DELETE FROM ic_note WHERE batch = $1 AND run NOT IN (SELECT run FROM ic_batch WHERE name = $1) \
                       AND EXISTS (SELECT 1 FROM ic_batch WHERE name = $1 AND run <> $2)";
            db.execute(sql, args![name, run]).await?;
            db.execute("DELETE FROM ic_batch WHERE name = $1 AND run <> $2", args![name, run]).await?;
        }
        let mark = anew.as_deref().unwrap_or_default();
        let sql = "INSERT INTO ic_batch (name, run, mark, pages, begun_at) VALUES ($1, $2, $3, 0, $4) \
                   ON CONFLICT (name) DO NOTHING";
        db.execute(sql, args![name, run, mark, now]).await?;
        find(name, db).await?.ok_or_else(gone)
    })
}

/// Returns the names of batches, at most 1,000.
pub(crate) fn names<'a>((): &'a (), db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Vec<String>, DbError>> {
    Box::pin(async move {
        let rows = db.fetch("SELECT name FROM ic_batch ORDER BY name LIMIT 1000", Vec::new()).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    })
}

async fn find(name: &str, db: Db<'_>) -> Result<Option<Found>, DbError> {
    let sql = "SELECT run, mark, pages, begun_at FROM ic_batch WHERE name = $1";
    let mut rows = db.fetch(sql, args![name]).await?;
    let Some(row) = rows.first_mut() else { return Ok(None) };
    let run = row.bytes()?.try_into().map_err(|_| gone())?;
    Ok(Some(Found { run, mark: row.text()?, pages: row.int()?, begun_at: row.int()? }))
}

fn gone() -> DbError {
    DbError::new(super::DbKind::Nonsense, "the batch's row is gone or damaged; was it edited by hand?")
}

/// Requests of a batch that are accepted together, and the mark up to which the source has been read after them.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) run: Run,
    /// The number of pages before this one.
    pub(crate) before: i64,
    pub(crate) mark: String,
    /// The program's note about this page, kept for as long as the run; empty if there is none.
    pub(crate) note: Vec<u8>,
    pub(crate) jobs: Vec<NewJob>,
}

/// Accepts a page and its mark, both or neither. Returns false if another process has changed the batch.
pub(crate) fn accept<'a>(page: &'a Page, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<bool, DbError>> {
    Box::pin(async move {
        let Page { name, run, before, mark, note, jobs } = page;
        let sql = "UPDATE ic_batch SET mark = $1, pages = pages + 1 WHERE name = $2 AND run = $3 AND pages = $4";
        if db.execute(sql, args![mark, name, run.as_slice(), *before]).await? == 0 {
            // An earlier run of this very step may have been committed, and its reply lost.
            let found = find(name, db).await?;
            return Ok(found.is_some_and(|found| found.run == *run && found.pages == before + 1 && found.mark == *mark));
        }
        if !note.is_empty() {
            let sql = "INSERT INTO ic_note (batch, run, page, note) VALUES ($1, $2, $3, $4)";
            db.execute(sql, args![name, run.as_slice(), *before, note]).await?;
        }
        match &jobs[..] {
            [job] => jobs::insert(job, db, now).await.map(drop)?,
            jobs => jobs::insert_many(&jobs.iter().collect::<Vec<_>>(), false, db, now).await?,
        }
        Ok(true)
    })
}

/// The number of a page of a run, and the note about that page.
pub(crate) type Note = (i64, Vec<u8>);

/// Returns the notes about the pages of a run after page `after`, in order; at most `most`.
pub(crate) fn notes<'a>(
    (run, after, most): &'a (Run, i64, i64),
    db: Db<'a>,
    _: i64,
) -> BoxFuture<'a, Result<Vec<Note>, DbError>> {
    Box::pin(async move {
        let sql = "SELECT page, note FROM ic_note WHERE run = $1 AND page > $2 ORDER BY page LIMIT $3";
        let rows = db.fetch(sql, args![run.as_slice(), *after, *most]).await?;
        rows.into_iter().map(|mut row| Ok((row.int()?, row.bytes()?))).collect()
    })
}

/// The first and the last id of a batch's requests.
fn range(run: &Run) -> ([u8; 16], [u8; 16]) {
    let (mut first, mut last) = ([0; 16], [0xff; 16]);
    first[..8].copy_from_slice(run);
    last[..8].copy_from_slice(run);
    (first, last)
}

/// How many of a batch's requests are in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) waiting: i64,
    pub(crate) delivered: i64,
    pub(crate) cancelled: i64,
    pub(crate) dead: i64,
}

/// Requests that are counted in one transaction, which takes some tens of milliseconds.
const COUNTED: i64 = 50_000;

/// The first request behind those that are counted together.
const NEXT_JOB: &str = "SELECT id FROM ic_job WHERE id >= $1 AND id < $2 ORDER BY id LIMIT 1 OFFSET $3";

/// Counts a batch's requests by their states.
pub(crate) async fn counts(store: &Opened, run: Run) -> Result<Counts, Error> {
    counts_by(store, run, COUNTED).await
}

/// [`counts`], with a number of requests for each transaction: one that counted millions would not end in time.
pub(super) async fn counts_by(store: &Opened, run: Run, page: i64) -> Result<Counts, Error> {
    // The tables are counted in the order in which a job moves through them, so that no job is missed. A job that moves
    // meanwhile may be counted twice.
    let (waiting, _) = count_in(Table::Jobs, store, run, page).await?;
    let (done, cancelled) = count_in(Table::Done, store, run, page).await?;
    let (dead, _) = count_in(Table::Dead, store, run, page).await?;
    Ok(Counts { waiting, delivered: done.saturating_sub(cancelled), cancelled, dead })
}

/// Counts a batch's requests that are in the outbox, without those that have ended: there may be millions of them.
pub(crate) async fn waiting(store: &Opened, run: Run) -> Result<i64, Error> {
    Ok(count_in(Table::Jobs, store, run, COUNTED).await?.0)
}

/// Counts a batch's requests that are in the outbox, by lane and tier.
pub(crate) async fn waiting_by_lane(store: &Opened, run: Run) -> Result<BTreeMap<LaneTier, i64>, Error> {
    let (mut all, mut from) = (BTreeMap::new(), Some(Id::from_bytes(range(&run).0)));
    while let Some(first) = from {
        let part = Part { table: Table::Jobs, run, first, most: COUNTED };
        let (lanes, next) = store.read(part, count_by_lane).await?;
        for (lane, jobs) in lanes {
            let sum: &mut i64 = all.entry(lane).or_default();
            *sum = sum.saturating_add(jobs);
        }
        from = next;
    }
    Ok(all)
}

/// Requests by lane and tier, and the first request that was not counted.
type CountedByLane = (Vec<(LaneTier, i64)>, Option<Id>);

fn count_by_lane<'a>(part: &'a Part, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<CountedByLane, DbError>> {
    Box::pin(async move {
        let (first, last) = (part.first.into_bytes(), range(&part.run).1);
        let next = db.fetch(NEXT_JOB, args![first.as_slice(), last.as_slice(), part.most]).await?;
        let next = next.into_iter().next().map(|mut row| row.id()).transpose()?;
        let last = next.map_or(last, Id::into_bytes);
        let sql = "SELECT tenant, vendor, tier, count(*) FROM ic_job WHERE id >= $1 AND id < $2 \
                   GROUP BY tenant, vendor, tier";
        let mut lanes = Vec::new();
        for mut row in db.fetch(sql, args![first.as_slice(), last.as_slice()]).await? {
            lanes.push((LaneTier { tenant: row.text()?, vendor: row.text()?, tier: row.int()? }, row.int()?));
        }
        Ok((lanes, next))
    })
}

/// Counts a batch's requests in one table: all, and those that are cancelled.
async fn count_in(table: Table, store: &Opened, run: Run, page: i64) -> Result<(i64, i64), Error> {
    let (mut all, mut from) = ((0i64, 0i64), Some(Id::from_bytes(range(&run).0)));
    while let Some(first) = from {
        let part = store.read(Part { table, run, first, most: page }, count).await?;
        all = (all.0.saturating_add(part.count), all.1.saturating_add(part.cancelled));
        from = part.next;
    }
    Ok(all)
}

#[derive(Clone, Copy, Debug)]
enum Table {
    Jobs,
    Done,
    Dead,
}

/// The requests of a batch that are counted together: those in one table, from the id `first` on.
#[derive(Clone, Copy, Debug)]
struct Part {
    table: Table,
    run: Run,
    first: Id,
    most: i64,
}

struct Counted {
    count: i64,
    cancelled: i64,
    /// The first request that was not counted; `None` if there is none.
    next: Option<Id>,
}

fn count<'a>(part: &'a Part, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Counted, DbError>> {
    Box::pin(async move {
        let (next, all) = match part.table {
            Table::Jobs => (NEXT_JOB, "SELECT count(*), 0 FROM ic_job WHERE id >= $1 AND id < $2"),
            Table::Done => (
                "SELECT id FROM ic_done WHERE id >= $1 AND id < $2 ORDER BY id LIMIT 1 OFFSET $3",
                "SELECT count(*), count(CASE WHEN outcome = 1 THEN 1 END) FROM ic_done WHERE id >= $1 AND id < $2",
            ),
            Table::Dead => (
                "SELECT id FROM ic_dead WHERE id >= $1 AND id < $2 ORDER BY id LIMIT 1 OFFSET $3",
                "SELECT count(*), 0 FROM ic_dead WHERE id >= $1 AND id < $2",
            ),
        };
        // No request has the last id of the range.
        let (first, last) = (part.first.into_bytes(), range(&part.run).1);
        let args = args![first.as_slice(), last.as_slice(), part.most];
        let next = db.fetch(next, args).await?.first_mut().map(Row::id).transpose()?;
        let last = next.map_or(last, Id::into_bytes);
        let mut rows = db.fetch(all, args![first.as_slice(), last.as_slice()]).await?;
        let row = rows.first_mut().ok_or_else(gone)?;
        Ok(Counted { count: row.int()?, cancelled: row.int()?, next })
    })
}

/// Whether any of a batch's requests is still in the outbox.
pub(crate) fn goes_on<'a>(run: &'a Run, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<bool, DbError>> {
    Box::pin(async move {
        let (first, last) = range(run);
        let sql = "SELECT 1 FROM ic_job WHERE id >= $1 AND id <= $2 LIMIT 1";
        Ok(!db.fetch(sql, args![first.as_slice(), last.as_slice()]).await?.is_empty())
    })
}

/// The last of the requests whose results go into one page, if there are more results. `sizes` are those of the next
/// results, in their order.
fn last_of_page(sizes: &[(Id, i64)]) -> Option<Id> {
    let count = rows_of_page(sizes.iter().map(|(_, size)| *size));
    if count < sizes.len() { sizes.get(count - 1).map(|(id, _)| *id) } else { None }
}

/// Returns the outcomes of a batch's requests after the id `after`, in the order of the requests' numbers; at most
/// `most`, and fewer if their results have many bytes. Behind the last one it returns none.
pub(crate) fn ended<'a>(
    (run, after, most): &'a (Run, Option<Id>, i64),
    db: Db<'a>,
    _: i64,
) -> BoxFuture<'a, Result<Vec<(Id, JobState)>, DbError>> {
    Box::pin(async move {
        let (first, last) = range(run);
        let after = after.map_or(first, Id::into_bytes);
        let sql = "SELECT id, length(result) FROM ic_done WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3";
        let mut sizes = Vec::new();
        for mut row in db.fetch(sql, args![after.as_slice(), last.as_slice(), *most]).await? {
            sizes.push((row.id()?, row.maybe_int()?.unwrap_or(0)));
        }
        // Dead letters behind the page's last result come with the results behind it.
        let last = last_of_page(&sizes).map_or(last, Id::into_bytes);
        let sql =
            "SELECT id, outcome, status, attempts, result FROM ic_done WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3";
        let args = args![after.as_slice(), last.as_slice(), *most];
        let mut found = Vec::new();
        for mut row in db.fetch(sql, args).await? {
            let (id, outcome, status, attempts) = (row.id()?, row.int()?, row.int()?, row.int()?);
            found.push((id, JobState::Done { outcome, status, attempts, result: row.maybe_bytes()? }));
        }
        let sql = "SELECT id, reason FROM ic_dead WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3";
        for mut row in db.fetch(sql, args![after.as_slice(), last.as_slice(), *most]).await? {
            found.push((row.id()?, JobState::Dead { reason: row.text()? }));
        }
        // Each table returned up to `most` rows; those that are cut off here come with the next page.
        found.sort_by_key(|(id, _)| *id);
        found.truncate(usize::try_from(*most).unwrap_or(usize::MAX));
        Ok(found)
    })
}

/// The numbers of jobs of one lane and tier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Queue {
    pub(crate) lane: LaneTier,
    pub(crate) waiting: i64,
    pub(crate) under_way: i64,
    /// Milliseconds until the first waiting job is due.
    pub(crate) due_in_ms: Option<i64>,
}

/// Returns the lanes and tiers that have jobs, sorted by name; at most `most`.
pub(crate) fn queues<'a>(most: &'a i64, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Vec<Queue>, DbError>> {
    Box::pin(async move {
        // Two queries, each answered from an index alone, because a row may be large.
        let sql = "SELECT tenant, vendor, tier, count(*), min(run_at) FROM ic_job WHERE state = 0 \
                   GROUP BY vendor, tenant, tier ORDER BY vendor, tenant, tier LIMIT $1";
        let mut queues = BTreeMap::new();
        for mut row in db.fetch(sql, args![*most]).await? {
            let lane = LaneTier { tenant: row.text()?, vendor: row.text()?, tier: row.int()? };
            let (waiting, due) = (row.int()?, row.int()?.saturating_sub(now));
            queues.insert(lane.clone(), Queue { lane, waiting, under_way: 0, due_in_ms: Some(due) });
        }
        let sql = "SELECT tenant, vendor, tier, count(*) FROM ic_job WHERE state = 1 AND owner IS NOT NULL \
                   GROUP BY tenant, vendor, tier LIMIT $1";
        for mut row in db.fetch(sql, args![*most]).await? {
            let lane = LaneTier { tenant: row.text()?, vendor: row.text()?, tier: row.int()? };
            let under_way = row.int()?;
            let none = Queue { lane: lane.clone(), waiting: 0, under_way: 0, due_in_ms: None };
            queues.entry(lane).or_insert(none).under_way = under_way;
        }
        Ok(queues.into_values().collect())
    })
}

/// Publishes the status of a working process, or removes it.
pub(crate) fn tell<'a>(
    (owner, status): &'a (Id, Option<String>),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<u64, DbError>> {
    Box::pin(async move {
        let owner = owner.as_bytes().as_slice();
        // A process that was killed leaves its row behind.
        db.execute("DELETE FROM ic_worker WHERE told_at < $1", args![now.saturating_sub(STALE_MS)]).await?;
        match status {
            Some(status) => {
                let sql = "INSERT INTO ic_worker (owner, told_at, status) VALUES ($1, $2, $3) \
                           ON CONFLICT (owner) DO UPDATE SET told_at = excluded.told_at, status = excluded.status";
                db.execute(sql, args![owner, now, status]).await
            }
            None => db.execute("DELETE FROM ic_worker WHERE owner = $1", args![owner]).await,
        }
    })
}

/// A status is deleted after this time without an update.
const STALE_MS: i64 = 3_600_000;

/// A working process, the age of its status in milliseconds, and the status.
pub(crate) type WorkerStatusRow = (Id, i64, String);

/// Returns the latest status of each working process.
pub(crate) fn worker_statuses<'a>(
    (): &'a (),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Vec<WorkerStatusRow>, DbError>> {
    Box::pin(async move {
        let sql = "SELECT owner, told_at, status FROM ic_worker ORDER BY told_at DESC LIMIT 100";
        let rows = db.fetch(sql, Vec::new()).await?;
        rows.into_iter().map(|mut row| Ok((row.id()?, now.saturating_sub(row.int()?).max(0), row.text()?))).collect()
    })
}
