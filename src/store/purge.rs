//! Deletes expired rows, in small steps: a single step for all of them would block every other write for seconds.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Opened;
use super::driver::{Db, DbError, Dialect, Row, args};
use crate::BoxFuture;
use crate::clock::Clock;
use crate::error::Error;

/// The retention times in milliseconds, and the most dead letters that are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    pub(crate) done_ms: i64,
    pub(crate) dead_ms: i64,
    pub(crate) most_dead: i64,
}

impl Retention {
    /// Keeps ended jobs and letters for ever. Rows that state when they expire are deleted all the same.
    pub(crate) const UNLIMITED: Retention = Retention { done_ms: i64::MAX, dead_ms: i64::MAX, most_dead: i64::MAX };
}

/// The number of rows in the first step.
const FIRST: i64 = 500;
/// The number of rows in the largest step.
const MAX_ROWS: i64 = 4_000;
/// How long the statements of a step should take. With its commit a step then delays other writes by less than 20 ms.
const GOAL: Duration = Duration::from_millis(10);
/// The number of letters that are counted in one transaction, which takes some tens of milliseconds.
const LETTERS: i64 = 100_000;
/// By how much an expired key is extended if its job has not ended.
const KEY_AGAIN_MS: i64 = 3_600_000;
/// By how much the time of an expired outcome is extended if its batch keeps it.
const OUTCOME_AGAIN_MS: i64 = 86_400_000;

/// What a step deletes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Outcomes of jobs that were delivered or cancelled.
    Done,
    Keys,
    Usage,
    UsageInUnits,
    /// Pauses that vendors asked for.
    Pauses,
    /// The ids of messages that were seen.
    Seen,
    /// Rows of `ic_intake` that were refused.
    RefusedRows,
    /// Replies that nobody took.
    Replies,
    OldLetters,
    /// The letters up to this one, if there are more letters than the configured number.
    Surplus(i64),
    /// The free pages of a SQLite file, which are given back to the file system. A step gives back a fixed number of
    /// pages.
    Space,
}

/// The statement that finds the earliest time of a table, or the first position, from `$1` on.
macro_rules! earliest {
    ($table:literal, $column:literal) => {
        concat!("SELECT ", $column, " FROM ", $table, " WHERE ", $column, " >= $1 ORDER BY ", $column, " LIMIT 1")
    };
}

impl What {
    /// The statement that searches for the earliest row. None for the pages of a file.
    fn search(self) -> Option<&'static str> {
        Some(match self {
            What::Done => earliest!("ic_done", "finished_at"),
            What::Keys => earliest!("ic_key", "expires_at"),
            What::Usage => earliest!("ic_spent", "until"),
            What::UsageInUnits => earliest!("ic_used", "until"),
            What::Pauses => earliest!("ic_pause", "until"),
            What::Seen => earliest!("ic_seen", "until"),
            What::RefusedRows => earliest!("ic_intake_refused", "until"),
            What::Replies => earliest!("ic_reply", "until"),
            What::OldLetters => earliest!("ic_dead", "died_at"),
            What::Surplus(_) => earliest!("ic_dead", "seq"),
            What::Space => return None,
        })
    }

    /// The time, or the position, up to which rows are deleted.
    fn until(self, keep: Retention, now: i64) -> i64 {
        match self {
            What::Done => now.saturating_sub(keep.done_ms),
            What::OldLetters => now.saturating_sub(keep.dead_ms),
            What::Surplus(last) => last,
            _ => now,
        }
    }
}

/// A step, which deletes at most `rows` rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) what: What,
    pub(super) keep: Retention,
    pub(super) rows: i64,
    /// The time, or the position, from which on rows are searched: earlier ones were deleted by earlier steps.
    pub(super) from: i64,
}

/// The result of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swept {
    /// The number of rows that were deleted, or whose time was extended.
    pub(super) settled: u64,
    /// The number of rows for the next step.
    next: i64,
    /// Where the next step begins.
    pub(super) from: i64,
}

/// The shortest time between two purges.
const EVERY: Duration = Duration::from_secs(60);
/// The longest time between two purges: the longer expired rows gather, the longer the next purge takes.
const LATEST: Duration = Duration::from_secs(600);

/// The time until the next purge, after one that took `took`. A purge that takes long is made less often, so that purges
/// take a small part of the store's time.
pub(crate) fn again_after(took: Duration) -> Duration {
    took.saturating_mul(20).clamp(EVERY, LATEST)
}

/// The statement that deletes rows of a table whose `until` has passed, from `$3` on.
macro_rules! expired {
    ($table:literal, $is_sqlite:expr) => {
        match $is_sqlite {
            true => concat!(
                "DELETE FROM ",
                $table,
                " WHERE rowid IN (SELECT rowid FROM ",
                $table,
                " WHERE until >= $3 AND until <= $1 \
                 ORDER BY until LIMIT $2)"
            ),
            false => concat!(
                "DELETE FROM ",
                $table,
                " WHERE ctid = ANY(ARRAY(SELECT ctid FROM ",
                $table,
                " WHERE until >= $3 AND until <= $1 \
                 ORDER BY until LIMIT $2)) AND until <= $1"
            ),
        }
    };
}

/// The condition that the batch of a row of `ic_done` keeps it: the row is of the batch's present run, and the batch has
/// notes of that run. Takes two look-ups by keys, however many batches and notes there are.
macro_rules! batch_keeps_it {
    () => {
        "EXISTS (SELECT 1 FROM ic_batch WHERE ic_batch.run = substr(ic_done.id, 1, 8) AND ic_batch.name = \
         (SELECT ic_note.batch FROM ic_note WHERE ic_note.run = substr(ic_done.id, 1, 8) ORDER BY ic_note.page LIMIT 1))"
    };
}

/// Deletes all expired rows, in steps between which other writes run. Returns the number of dead letters that were
/// deleted. A table that cannot be purged does not keep the others from it.
pub(crate) async fn run(store: &Opened, keep: Retention) -> Result<u64, Error> {
    // What has expired is deleted even if the letters cannot be counted. The store has logged that error.
    let surplus = surplus(store, keep.most_dead, LETTERS).await.unwrap_or_default();
    let expired = [
        What::Done,
        What::Keys,
        What::Usage,
        What::UsageInUnits,
        What::Pauses,
        What::Seen,
        What::RefusedRows,
        What::Replies,
        What::OldLetters,
    ];
    let space = store.is_alone.then_some(What::Space);
    let mut is_anew = store.purged.lock().begin(store.clock.now());
    let (mut letters, mut failure) = (0, None);
    for what in expired.into_iter().chain(surplus.map(What::Surplus)).chain(space) {
        if let Err(error) = sweep(store, (what, keep), &mut is_anew, &mut letters).await {
            failure = failure.or(Some(error));
        }
    }
    failure.map_or(Ok(letters), Err)
}

/// Deletes what has expired in one table, and adds the number of dead letters to `letters`.
async fn sweep(
    store: &Opened,
    (what, keep): (What, Retention),
    is_anew: &mut bool,
    letters: &mut u64,
) -> Result<(), Error> {
    let (mut rows, search, clock) = (FIRST, what.search(), store.clock);
    let mut from = match search {
        Some(search) => start(store, (what, keep), search, is_anew).await?,
        None => i64::MIN,
    };
    loop {
        let began = clock.now();
        let swept = store.write(Step { what, keep, rows, from }, step).await?;
        from = swept.from;
        if let Some(search) = search {
            store.purged.lock().set(search, from);
        }
        if matches!(what, What::OldLetters | What::Surplus(_)) {
            *letters += swept.settled;
        }
        if matches!(what, What::Surplus(_)) {
            store.surplus_letters.fetch_add(swept.settled, Relaxed);
        }
        if swept.settled < rows.unsigned_abs() {
            return Ok(());
        }
        rows = swept.next;
        // Other waiting writes go first.
        tokio::time::sleep(clock.now().since(began).min(Duration::from_secs(1))).await;
    }
}

/// Where the purge of a table begins: where the last one ended, or at the earliest row. That row is searched for on the
/// reading connection: behind the entries of many deleted rows the search may not end in time, and would hold up all writes.
/// If it fails, the position of the last purge is still good, and of the other tables only those without one are searched.
async fn start(store: &Opened, of: (What, Retention), search: &'static str, is_anew: &mut bool) -> Result<i64, Error> {
    let known = store.purged.lock().from(search);
    if let Some(from) = known.filter(|_| !*is_anew) {
        return Ok(from);
    }
    let found = store.read(of, first).await;
    *is_anew &= found.is_ok();
    match known {
        Some(from) => Ok(found.unwrap_or(from)),
        None => found,
    }
}

/// Where a table begins. No further than what is purged now: rows may still come that expire before its earliest one.
fn first<'a>((what, keep): &'a (What, Retention), db: Db<'a>, now: i64) -> BoxFuture<'a, Result<i64, DbError>> {
    Box::pin(async move {
        let until = what.until(*keep, now);
        let Some(search) = what.search() else { return Ok(until) };
        Ok(earliest(search, i64::MIN, db).await?.unwrap_or(until).min(until))
    })
}

/// The earliest time of a table, or the first position, from `from` on.
async fn earliest(search: &'static str, from: i64, db: Db<'_>) -> Result<Option<i64>, DbError> {
    db.fetch(search, args![from]).await?.first_mut().map(Row::int).transpose()
}

/// Finds the newest letter beyond the `most` newest. Counts the letters on the reading connection, `page` of them in
/// each transaction: one that counted millions would not end in time.
pub(super) async fn surplus(store: &Opened, most: i64, page: i64) -> Result<Option<i64>, Error> {
    if most == i64::MAX {
        return Ok(None);
    }
    let (mut from, mut left) = (i64::MAX, most);
    loop {
        let count = left.min(page);
        let Some(seq) = store.read((from, count), older).await? else { return Ok(None) };
        left = left.saturating_sub(count);
        if left <= 0 {
            return Ok(Some(seq));
        }
        from = seq;
    }
}

/// The letter that is `count` letters older than the newest one up to `from`.
fn older<'a>((from, count): &'a (i64, i64), db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Option<i64>, DbError>> {
    Box::pin(async move {
        let sql = "SELECT seq FROM ic_dead WHERE seq <= $1 ORDER BY seq DESC LIMIT 1 OFFSET $2";
        db.fetch(sql, args![*from, *count]).await?.first_mut().map(Row::int).transpose()
    })
}

/// Deletes the oldest expired rows.
pub(super) fn step<'a>(step: &'a Step, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Swept, DbError>> {
    Box::pin(async move {
        let Step { what, keep, rows, from } = *step;
        let clock = Clock::system();
        let began = clock.now();
        let is_sqlite = db.dialect() == Dialect::Sqlite;
        let Some(search) = what.search() else {
            let settled = if space(db).await? { rows.unsigned_abs() } else { 0 };
            return Ok(Swept { settled, next: rows, from });
        };
        let until = what.until(keep, now);
        // The clock, or the positions of letters, may have gone back.
        let from = if from > until { i64::MIN } else { from };
        let earliest = earliest(search, from, db).await?;
        // No further than `until`: rows may still come that expire before the earliest one.
        let from = earliest.unwrap_or(until).min(until);
        if earliest.is_none_or(|earliest| earliest > until) {
            return Ok(Swept { settled: 0, next: rows, from });
        }
        let settled = match what {
            What::Done => outcomes(db, (from, until), rows).await?,
            What::Keys => keys(db, (from, until), rows).await?,
            What::Usage => db.execute(expired!("ic_spent", is_sqlite), args![until, rows, from]).await?,
            What::UsageInUnits => db.execute(expired!("ic_used", is_sqlite), args![until, rows, from]).await?,
            What::Pauses => db.execute(expired!("ic_pause", is_sqlite), args![until, rows, from]).await?,
            What::Seen => db.execute(expired!("ic_seen", is_sqlite), args![until, rows, from]).await?,
            What::RefusedRows => db.execute(expired!("ic_intake_refused", is_sqlite), args![until, rows, from]).await?,
            What::Replies => db.execute(expired!("ic_reply", is_sqlite), args![until, rows, from]).await?,
            What::OldLetters => {
                let sql = match is_sqlite {
                    true => {
                        "DELETE FROM ic_dead WHERE seq IN (SELECT seq FROM ic_dead WHERE died_at >= $3 AND died_at <= $1 \
                         ORDER BY died_at LIMIT $2)"
                    }
                    false => {
                        "DELETE FROM ic_dead WHERE seq = ANY(ARRAY(SELECT seq FROM ic_dead WHERE died_at >= $3 \
                         AND died_at <= $1 ORDER BY died_at LIMIT $2))"
                    }
                };
                db.execute(sql, args![until, rows, from]).await?
            }
            What::Surplus(_) => {
                let sql = match is_sqlite {
                    true => {
                        "DELETE FROM ic_dead WHERE seq IN (SELECT seq FROM ic_dead WHERE seq >= $3 AND seq <= $1 \
                         ORDER BY seq LIMIT $2)"
                    }
                    false => {
                        "DELETE FROM ic_dead WHERE seq = ANY(ARRAY(SELECT seq FROM ic_dead WHERE seq >= $3 AND seq <= $1 \
                         ORDER BY seq LIMIT $2))"
                    }
                };
                db.execute(sql, args![until, rows, from]).await?
            }
            What::Space => 0,
        };
        // In PostgreSQL a step blocks no other write, and its time includes the network's, so it need not shrink below
        // the first size.
        let least = if is_sqlite { 1 } else { FIRST };
        Ok(Swept { settled, next: next(rows, clock.now().since(began)).max(least), from })
    })
}

/// Gives free pages of a SQLite file back to the file system if there are many. Returns whether to go on. A queue needs
/// most of its free pages again soon, so the file keeps free pages up to a quarter of its size, and 16 MiB of them in
/// any case.
async fn space(db: Db<'_>) -> Result<bool, DbError> {
    let free = count(db, "PRAGMA freelist_count").await?;
    if free <= LEFT_FREE.max(count(db, "PRAGMA page_count").await? / 4) {
        return Ok(false);
    }
    // For each page that is given back, a page is moved from the end of the file. In all that takes about a
    // millisecond.
    db.fetch("PRAGMA incremental_vacuum(128)", Vec::new()).await?;
    // A file that was made by an earlier version cannot give pages back.
    Ok(count(db, "PRAGMA freelist_count").await? < free)
}

/// The number of free pages that a SQLite file keeps, whatever its size.
const LEFT_FREE: i64 = 4_096;

async fn count(db: Db<'_>, sql: &'static str) -> Result<i64, DbError> {
    Ok(db.fetch(sql, Vec::new()).await?.first_mut().map(Row::int).transpose()?.unwrap_or(0))
}

/// Handles outcomes of the times from `from` to `until`. Those that their batches keep are extended, as keys are below.
/// Nothing but this purge reads the time of an outcome.
async fn outcomes(db: Db<'_>, (from, until): (i64, i64), rows: i64) -> Result<u64, DbError> {
    let (keep, delete) = match db.dialect() {
        Dialect::Sqlite => (
            concat!(
                "UPDATE ic_done SET finished_at = $4 WHERE id IN (SELECT id FROM ic_done WHERE finished_at >= $3 \
                 AND finished_at <= $1 ORDER BY finished_at LIMIT $2) AND ",
                batch_keeps_it!()
            ),
            concat!(
                "DELETE FROM ic_done WHERE id IN (SELECT id FROM ic_done WHERE finished_at >= $3 \
                 AND finished_at <= $1 ORDER BY finished_at LIMIT $2) AND NOT ",
                batch_keeps_it!()
            ),
        ),
        Dialect::Postgres => (
            concat!(
                "UPDATE ic_done SET finished_at = $4 WHERE id = ANY(ARRAY(SELECT id FROM ic_done WHERE finished_at >= $3 \
                 AND finished_at <= $1 ORDER BY finished_at LIMIT $2)) AND ",
                batch_keeps_it!()
            ),
            // Another process may delete rows between the two statements, and others are then the oldest.
            concat!(
                "DELETE FROM ic_done WHERE id = ANY(ARRAY(SELECT id FROM ic_done WHERE finished_at >= $3 \
                 AND finished_at <= $1 ORDER BY finished_at LIMIT $2)) AND NOT ",
                batch_keeps_it!()
            ),
        ),
    };
    let has_notes = !db.fetch("SELECT 1 FROM ic_note LIMIT 1", Vec::new()).await?.is_empty();
    let kept = match has_notes {
        true => db.execute(keep, args![until, rows, from, until.saturating_add(OUTCOME_AGAIN_MS)]).await?,
        false => 0,
    };
    let left = rows.saturating_sub(i64::try_from(kept).unwrap_or(i64::MAX));
    let deleted = if left > 0 { db.execute(delete, args![until, left, from]).await? } else { 0 };
    Ok(kept + deleted)
}

/// Handles expired keys: the key of an ended job is deleted, that of another job is extended. If such keys were only
/// skipped, every step would skip all of them again.
async fn keys(db: Db<'_>, (from, now): (i64, i64), rows: i64) -> Result<u64, DbError> {
    let (keep, delete) = match db.dialect() {
        Dialect::Sqlite => (
            "UPDATE ic_key SET expires_at = $4 WHERE rowid IN (SELECT rowid FROM ic_key WHERE expires_at >= $3 \
             AND expires_at <= $1 ORDER BY expires_at LIMIT $2) AND EXISTS (SELECT 1 FROM ic_job WHERE ic_job.id = ic_key.job)",
            "DELETE FROM ic_key WHERE rowid IN (SELECT rowid FROM ic_key WHERE expires_at >= $3 \
             AND expires_at <= $1 ORDER BY expires_at LIMIT $2) AND NOT EXISTS (SELECT 1 FROM ic_job WHERE ic_job.id = ic_key.job)",
        ),
        Dialect::Postgres => (
            // Another process may renew a key while this statement waits for its row.
            "UPDATE ic_key SET expires_at = $4 WHERE ctid = ANY(ARRAY(SELECT ctid FROM ic_key WHERE expires_at >= $3 \
             AND expires_at <= $1 ORDER BY expires_at LIMIT $2)) AND expires_at <= $1 \
             AND EXISTS (SELECT 1 FROM ic_job WHERE ic_job.id = ic_key.job)",
            "DELETE FROM ic_key WHERE ctid = ANY(ARRAY(SELECT ctid FROM ic_key WHERE expires_at >= $3 \
             AND expires_at <= $1 ORDER BY expires_at LIMIT $2)) AND expires_at <= $1 \
             AND NOT EXISTS (SELECT 1 FROM ic_job WHERE ic_job.id = ic_key.job)",
        ),
    };
    let kept = db.execute(keep, args![now, rows, from, now.saturating_add(KEY_AGAIN_MS)]).await?;
    // Extended keys are not among the oldest any more, so all keys that are deleted here belong to ended jobs.
    let left = rows.saturating_sub(i64::try_from(kept).unwrap_or(i64::MAX));
    let deleted = if left > 0 { db.execute(delete, args![now, left, from]).await? } else { 0 };
    Ok(kept + deleted)
}

/// The number of rows for the next step, after a step of `rows` whose statements took `time`.
fn next(rows: i64, time: Duration) -> i64 {
    let next = match time {
        time if time > 4 * GOAL => rows / 8,
        time if time > GOAL => rows / 2,
        time if time < GOAL / 3 => rows.saturating_mul(2),
        _ => rows,
    };
    next.clamp(1, MAX_ROWS)
}

#[cfg(test)]
mod tests;
