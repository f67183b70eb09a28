//! The SQL of dead letters. A job becomes a letter in the transaction that takes it out of the outbox, and a letter
//! becomes a job again in the transaction that deletes the letter: an id is in one table at any time.

use super::driver::{Db, DbError, Dialect, Row, args, readable, rows_of_page};
use super::keys::{self, KEY_MS, KeyTaken, RequestKey};
use super::{Id, LaneTier};
use crate::BoxFuture;

/// A letter to be kept.
#[derive(Clone, Debug)]
pub(crate) struct NewDead {
    pub(crate) id: Id,
    pub(crate) lane: LaneTier,
    pub(crate) reason: String,
    /// The content to be shown: JSON, or sealed JSON.
    pub(crate) letter: Vec<u8>,
    /// The request, to send the letter again: JSON, or sealed JSON.
    pub(crate) request: Option<Vec<u8>>,
    pub(crate) keep_result: bool,
    /// The reply for the sender of the request, if the sender asked for one.
    pub(crate) reply: Option<String>,
}

async fn insert(dead: &NewDead, (fence, begun): (i64, i64), db: Db<'_>, now: i64) -> Result<u64, DbError> {
    let sql = "INSERT INTO ic_dead (id, tenant, vendor, tier, reason, died_at, letter, request, keep_result, fence, begun) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (id) DO NOTHING";
    let LaneTier { tenant, vendor, tier } = &dead.lane;
    let (id, keep) = (dead.id.as_bytes().as_slice(), i64::from(dead.keep_result));
    let request = dead.request.as_deref();
    let args = args![id, tenant, vendor, *tier, &dead.reason, now, &dead.letter, request, keep, fence, begun];
    db.execute(sql, args).await
}

/// Moves a job to the dead letters. Returns false if the job does not have this fence and state any more.
pub(super) async fn bury(dead: &NewDead, fence: i64, state: i64, db: Db<'_>, now: i64) -> Result<bool, DbError> {
    let sql = "DELETE FROM ic_job WHERE id = $1 AND fence = $2 AND state + 0 = $3 RETURNING fence, begun";
    let mut gone = db.fetch(sql, args![dead.id.as_bytes().as_slice(), fence, state]).await?;
    let Some(row) = gone.first_mut() else { return Ok(false) };
    let was = (row.int()?, row.int()?);
    insert(dead, was, db, now).await?;
    Ok(true)
}

/// Moves a job to the dead letters because the outcome of its exchange number `known` is known, even if another process
/// has claimed the job by now. Replaces a letter with the reason `ambiguous` in the same way. Returns false if another
/// exchange has begun since, or if the job has ended.
pub(super) async fn bury_known(dead: &NewDead, fence: i64, known: i64, db: Db<'_>, now: i64) -> Result<bool, DbError> {
    for sql in [
        "DELETE FROM ic_job WHERE id = $1 AND ((fence = $2 AND state + 0 = 1) OR (fence >= $2 AND begun = $3)) RETURNING fence, begun",
        "DELETE FROM ic_dead WHERE id = $1 AND fence > $2 AND begun = $3 AND reason = 'ambiguous' RETURNING fence, begun",
    ] {
        let mut gone = db.fetch(sql, args![dead.id.as_bytes().as_slice(), fence, known]).await?;
        if let Some(row) = gone.first_mut() {
            let was = (row.int()?, row.int()?);
            insert(dead, was, db, now).await?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Turns a letter with the reason `ambiguous` into a job again, because the outcome of its exchange number `known` is
/// known. The job expires at `expires_at`, as before. Returns false if there is no such letter, or if its request was
/// not kept.
pub(super) async fn revive(
    id: &[u8],
    fence: i64,
    known: i64,
    (run_at, expires_at, history): (i64, Option<i64>, &[u8]),
    db: Db<'_>,
    now: i64,
) -> Result<bool, DbError> {
    let sql = "DELETE FROM ic_dead WHERE id = $1 AND fence > $2 AND begun = $3 AND reason = 'ambiguous' AND request IS NOT NULL \
               RETURNING tenant, vendor, tier, keep_result, request, fence, begun";
    let mut gone = db.fetch(sql, args![id, fence, known]).await?;
    let Some(row) = gone.first_mut() else { return Ok(false) };
    again(id, row, (0, run_at, expires_at, Some(history)), db, now).await?;
    Ok(true)
}

/// Inserts the job that a letter was made from; `row` holds tenant, vendor, tier, `keep_result`, request, fence and
/// begun. The job's fence is larger than that of every earlier claim, and its count of exchanges is increased by
/// `exchanges`.
async fn again(
    id: &[u8],
    row: &mut Row,
    (exchanges, run_at, expires_at, history): (i64, i64, Option<i64>, Option<&[u8]>),
    db: Db<'_>,
    now: i64,
) -> Result<(), DbError> {
    let (tenant, vendor, tier, keep) = (row.text()?, row.text()?, row.int()?, row.int()?);
    let (request, fence, begun) = (row.bytes()?, row.int()?, row.int()?);
    let (fence, begun) = (fence.saturating_add(1), begun.saturating_add(exchanges));
    let sql = "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, expires_at, enqueued_at, keep_result, request, \
               history, fence, begun) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
               ON CONFLICT (id) DO NOTHING";
    let args = args![id, &tenant, &vendor, tier, run_at, expires_at, now, keep, &request, history, fence, begun];
    db.execute(sql, args).await.map(drop)
}

/// Keeps the letter of a request that was never in the outbox.
pub(crate) fn keep<'a>(dead: &'a NewDead, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move { insert(dead, (0, 0), db, now).await.map(drop) })
}

/// Selects letters: those that match all given fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) tenant: Option<String>,
    pub(crate) vendor: Option<String>,
    pub(crate) reason: Option<String>,
    /// Letters from before this time, in milliseconds since 1970.
    pub(crate) before: Option<i64>,
    /// Letters after this position.
    pub(crate) after: i64,
    /// Letters up to this position.
    pub(crate) upto: Option<i64>,
    pub(crate) most: i64,
}

/// A row of the dead letters.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetterRow {
    pub(crate) seq: i64,
    pub(crate) id: Id,
    pub(crate) lane: LaneTier,
    pub(crate) reason: String,
    /// In milliseconds since 1970.
    pub(crate) died_at: i64,
    /// JSON, or sealed JSON.
    pub(crate) letter: Vec<u8>,
    pub(crate) can_be_sent: bool,
    fence: i64,
}

impl DeadLetterRow {
    pub(crate) fn version(&self) -> Version {
        Version { reason: self.reason.clone(), fence: self.fence }
    }
}

/// Tells a letter from the earlier and the later ones of its job. Each time the job is given up its fence is larger, and
/// an outcome that becomes known afterwards gives a letter `ambiguous` another reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    pub(crate) reason: String,
    pub(crate) fence: i64,
}

/// Letters, and the position of the last row that was read for them; `None` if there was none, and only then do no letters
/// follow. Rows that cannot be decoded are left out.
pub(crate) type Page = (Vec<DeadLetterRow>, Option<i64>);

/// Returns the letters that match, oldest first: as many as the filter says, and fewer if they have many bytes. Letters that
/// are committed meanwhile may come on top.
pub(crate) fn list<'a>(filter: &'a Filter, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Page, DbError>> {
    Box::pin(async move {
        let (tenant, vendor, reason) = (filter.tenant.as_deref(), filter.vendor.as_deref(), filter.reason.as_deref());
        let sql = "SELECT seq, length(letter) FROM ic_dead WHERE seq > $1 \
                   AND ($2 IS NULL OR tenant = $2) AND ($3 IS NULL OR vendor = $3) AND ($4 IS NULL OR reason = $4) \
                   AND ($5 IS NULL OR died_at < $5) AND ($7 IS NULL OR seq <= $7) ORDER BY seq LIMIT $6";
        let args = args![filter.after, tenant, vendor, reason, filter.before, filter.most, filter.upto];
        let mut sizes = Vec::new();
        for mut row in db.fetch(sql, args).await? {
            sizes.push((row.int()?, row.maybe_int()?.unwrap_or(0)));
        }
        sizes.truncate(rows_of_page(sizes.iter().map(|(_, size)| *size)));
        let Some(last) = sizes.last().map(|(seq, _)| *seq) else { return Ok((Vec::new(), None)) };
        // Without a number of rows: a letter with an earlier position may have been committed since, and the last letter
        // would be cut off, behind which the next page begins.
        let sql = "SELECT seq, id, tenant, vendor, tier, reason, died_at, letter, CASE WHEN request IS NULL THEN 0 ELSE 1 END, fence FROM ic_dead WHERE seq > $1 \
                   AND ($2 IS NULL OR tenant = $2) AND ($3 IS NULL OR vendor = $3) AND ($4 IS NULL OR reason = $4) \
                   AND ($5 IS NULL OR died_at < $5) AND seq <= $6 ORDER BY seq";
        let args = args![filter.after, tenant, vendor, reason, filter.before, last];
        let rows = db.fetch(sql, args).await?;
        let letters = readable(rows, |mut row: Row| row.int().and_then(|seq| kept(seq, row)));
        Ok((letters, Some(last)))
    })
}

/// A letter, of a row whose position has been read.
fn kept(seq: i64, mut row: Row) -> Result<DeadLetterRow, DbError> {
    let id = row.id()?;
    let lane = LaneTier { tenant: row.text()?, vendor: row.text()?, tier: row.int()? };
    let (reason, died_at, letter) = (row.text()?, row.int()?, row.bytes()?);
    Ok(DeadLetterRow { seq, id, lane, reason, died_at, letter, can_be_sent: row.int()? != 0, fence: row.int()? })
}

/// Returns the position of the newest letter; `None` if there is no letter.
pub(crate) fn newest<'a>((): &'a (), db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Option<i64>, DbError>> {
    Box::pin(async move {
        let mut rows = db.fetch("SELECT max(seq) FROM ic_dead", Vec::new()).await?;
        Ok(rows.first_mut().map(Row::maybe_int).transpose()?.flatten())
    })
}

/// Returns one letter.
pub(crate) fn show<'a>(id: &'a Id, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Option<DeadLetterRow>, DbError>> {
    Box::pin(async move {
        let sql = "SELECT seq, id, tenant, vendor, tier, reason, died_at, letter, CASE WHEN request IS NULL THEN 0 ELSE 1 END, fence FROM ic_dead WHERE id = $1";
        let letter = |mut row: Row| row.int().and_then(|seq| kept(seq, row));
        db.fetch(sql, args![id.as_bytes().as_slice()]).await?.into_iter().next().map(letter).transpose()
    })
}

/// The result of sending a letter again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Redriven {
    /// The letter is a job again, with its id, its key and fresh attempts.
    Yes,
    /// The key of the letter has expired since, and another request was accepted with it.
    KeyTaken,
    /// The request of the letter was not kept.
    NoRequest,
    /// The letter does not exist, or not any more: there may be a later one of the same job.
    Gone,
}

/// A letter that is to be sent again.
#[derive(Clone, Debug)]
pub(crate) struct Redrive {
    pub(crate) id: Id,
    /// The letter that the history was made from: no other one is sent, because its history would be lost.
    pub(crate) seen: Version,
    /// The history of the job.
    pub(crate) history: Option<Vec<u8>>,
    pub(crate) key: Option<RequestKey>,
}

/// Returns the request of a letter as it is stored; `None` if there is none.
pub(crate) fn request<'a>(id: &'a Id, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Option<Vec<u8>>, DbError>> {
    Box::pin(async move {
        let mut rows = db.fetch("SELECT request FROM ic_dead WHERE id = $1", args![id.as_bytes().as_slice()]).await?;
        Ok(rows.first_mut().map(Row::maybe_bytes).transpose()?.flatten())
    })
}

/// Takes the key of a letter for the job that it becomes, for as long as that of a new job: the key may have expired and
/// been deleted. Returns false if another request has the key by now.
async fn has_key(id: Id, seen: &Version, key: &RequestKey, db: Db<'_>, now: i64) -> Result<bool, DbError> {
    // The row stays locked, because without its letter the key would belong to a job that does not exist.
    let sql = match db.dialect() {
        Dialect::Sqlite => {
            "SELECT tenant, vendor, tier FROM ic_dead WHERE id = $1 AND reason = $2 AND fence = $3 AND request IS NOT NULL"
        }
        Dialect::Postgres => {
            "SELECT tenant, vendor, tier FROM ic_dead WHERE id = $1 AND reason = $2 AND fence = $3 AND request IS NOT NULL \
             FOR UPDATE"
        }
    };
    let mut rows = db.fetch(sql, args![id.as_bytes().as_slice(), &seen.reason, seen.fence]).await?;
    let Some(row) = rows.first_mut() else { return Ok(true) };
    let lane = LaneTier { tenant: row.text()?, vendor: row.text()?, tier: row.int()? };
    let (forms, until) = ((&key.key, key.other_key.as_ref()), now.saturating_add(KEY_MS));
    if keys::prolong((id, &lane), forms, (until, now), db).await? {
        return Ok(true);
    }
    Ok(matches!(keys::take((id, &lane), forms, (until, now), db).await?, KeyTaken::ByThis))
}

/// Turns a letter into a job again. If two callers do so at the same time, one of them succeeds.
pub(crate) fn redrive<'a>(redrive: &'a Redrive, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Redriven, DbError>> {
    Box::pin(async move {
        let Redrive { id, seen, history, key } = redrive;
        let bytes = id.as_bytes().as_slice();
        if let Some(key) = key
            && !has_key(*id, seen, key, db, now).await?
        {
            return Ok(Redriven::KeyTaken);
        }
        let letter = || args![bytes, &seen.reason, seen.fence];
        let sql = "DELETE FROM ic_dead WHERE id = $1 AND reason = $2 AND fence = $3 AND request IS NOT NULL \
                   RETURNING tenant, vendor, tier, keep_result, request, fence, begun";
        let Some(mut row) = db.fetch(sql, letter()).await?.into_iter().next() else {
            let left = "SELECT 1 FROM ic_dead WHERE id = $1 AND reason = $2 AND fence = $3";
            let left = db.fetch(left, letter()).await?;
            return Ok(if left.is_empty() { Redriven::Gone } else { Redriven::NoRequest });
        };
        // Counted like an exchange, so that outcomes of earlier claims do not apply to the new job. The new job has no
        // deadline: the operator who sends a letter again wants it sent.
        again(bytes, &mut row, (1, now, None, history.as_deref()), db, now).await?;
        Ok(Redriven::Yes)
    })
}

/// Deletes letters, oldest first. Returns their positions.
pub(crate) fn purge<'a>(filter: &'a Filter, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Vec<i64>, DbError>> {
    Box::pin(async move {
        let sql = "DELETE FROM ic_dead WHERE seq IN (SELECT seq FROM ic_dead WHERE seq > $1 AND ($2 IS NULL OR tenant = $2) \
                   AND ($3 IS NULL OR vendor = $3) AND ($4 IS NULL OR reason = $4) AND ($5 IS NULL OR died_at < $5) \
                   AND ($7 IS NULL OR seq <= $7) ORDER BY seq LIMIT $6) RETURNING seq";
        let (tenant, vendor, reason) = (filter.tenant.as_deref(), filter.vendor.as_deref(), filter.reason.as_deref());
        let args = args![filter.after, tenant, vendor, reason, filter.before, filter.most, filter.upto];
        db.fetch(sql, args).await?.iter_mut().map(Row::int).collect()
    })
}

/// Deletes one letter. Returns the number of letters that were deleted: 0 or 1.
pub(crate) fn remove<'a>(id: &'a Id, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<u64, DbError>> {
    Box::pin(async move { db.execute("DELETE FROM ic_dead WHERE id = $1", args![id.as_bytes().as_slice()]).await })
}

/// Counts the letters that match, up to `most`.
pub(crate) fn count_matching<'a>(filter: &'a Filter, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<i64, DbError>> {
    Box::pin(async move {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM ic_dead WHERE seq > $1 AND ($2 IS NULL OR tenant = $2) \
                   AND ($3 IS NULL OR vendor = $3) AND ($4 IS NULL OR reason = $4) AND ($5 IS NULL OR died_at < $5) \
                   AND ($7 IS NULL OR seq <= $7) LIMIT $6) few";
        let (tenant, vendor, reason) = (filter.tenant.as_deref(), filter.vendor.as_deref(), filter.reason.as_deref());
        let args = args![filter.after, tenant, vendor, reason, filter.before, filter.most, filter.upto];
        Ok(db.fetch(sql, args).await?.first_mut().map(Row::int).transpose()?.unwrap_or(0))
    })
}

/// Counts the letters, up to a bound.
pub(crate) fn count<'a>(most: &'a i64, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<i64, DbError>> {
    Box::pin(async move {
        let mut rows = db.fetch("SELECT count(*) FROM (SELECT 1 FROM ic_dead LIMIT $1) few", args![*most]).await?;
        Ok(rows.first_mut().map(Row::int).transpose()?.unwrap_or(0))
    })
}
