//! Dead letters in SQL. A job becomes one in the transaction in which it leaves the outbox, and comes back in the one in
//! which its letter goes: its id is in one place at any moment.

use super::driver::{Db, DbError, Row, args};
use super::records::readable;
use super::{Id, LaneTier};
use crate::transport::BoxFuture;

/// A letter that is to be kept.
#[derive(Clone, Debug)]
pub(crate) struct NewDead {
    pub(crate) id: Id,
    pub(crate) lane: LaneTier,
    pub(crate) reason: String,
    /// What may be shown: JSON, or that sealed.
    pub(crate) letter: Vec<u8>,
    /// What it takes to send it again: JSON, or that sealed.
    pub(crate) request: Option<Vec<u8>>,
    pub(crate) keep_result: bool,
}

async fn insert(dead: &NewDead, db: Db<'_>, now: i64) -> Result<u64, DbError> {
    let sql = "INSERT INTO ic_dead (id, tenant, vendor, tier, reason, died_at, letter, request, keep_result) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING";
    let LaneTier { tenant, vendor, tier } = &dead.lane;
    let (id, keep) = (dead.id.as_bytes().as_slice(), i64::from(dead.keep_result));
    let request = dead.request.as_deref();
    db.execute(sql, args![id, tenant, vendor, *tier, &dead.reason, now, &dead.letter, request, keep]).await
}

/// Moves a job to the dead letters. False where it was not in the state, or with the fence, that was thought.
pub(super) async fn bury(dead: &NewDead, fence: i64, state: i64, db: Db<'_>, now: i64) -> Result<bool, DbError> {
    let sql = "DELETE FROM ic_job WHERE id = $1 AND fence = $2 AND state + 0 = $3";
    if db.execute(sql, args![dead.id.as_bytes().as_slice(), fence, state]).await? == 0 {
        return Ok(false);
    }
    insert(dead, db, now).await?;
    Ok(true)
}

/// Keeps the letter of a request that was never in the outbox.
pub(crate) fn keep<'a>(dead: &'a NewDead, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move { insert(dead, db, now).await.map(drop) })
}

/// Which letters: all that fit what is stated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) tenant: Option<String>,
    pub(crate) vendor: Option<String>,
    pub(crate) reason: Option<String>,
    /// Those that died before this, in milliseconds since 1970.
    pub(crate) before: Option<i64>,
    /// Those behind this one.
    pub(crate) after: i64,
    /// None behind this one.
    pub(crate) upto: Option<i64>,
    pub(crate) most: i64,
}

/// A letter as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) seq: i64,
    pub(crate) id: Id,
    pub(crate) lane: LaneTier,
    pub(crate) reason: String,
    /// In milliseconds since 1970.
    pub(crate) died_at: i64,
    /// JSON, or that sealed.
    pub(crate) letter: Vec<u8>,
    pub(crate) can_be_sent: bool,
}

/// Letters, oldest first.
pub(crate) fn list<'a>(filter: &'a Filter, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Vec<Kept>, DbError>> {
    Box::pin(async move {
        let sql = "SELECT seq, id, tenant, vendor, tier, reason, died_at, letter, CASE WHEN request IS NULL THEN 0 ELSE 1 END FROM ic_dead WHERE seq > $1 \
                   AND ($2 IS NULL OR tenant = $2) AND ($3 IS NULL OR vendor = $3) AND ($4 IS NULL OR reason = $4) \
                   AND ($5 IS NULL OR died_at < $5) AND ($7 IS NULL OR seq <= $7) ORDER BY seq LIMIT $6";
        let (tenant, vendor, reason) = (filter.tenant.as_deref(), filter.vendor.as_deref(), filter.reason.as_deref());
        let args = args![filter.after, tenant, vendor, reason, filter.before, filter.most, filter.upto];
        Ok(readable(db.fetch(sql, args).await?, kept))
    })
}

fn kept(mut row: Row) -> Result<Kept, DbError> {
    let (seq, id) = (row.int()?, row.id()?);
    let lane = LaneTier { tenant: row.text()?, vendor: row.text()?, tier: row.int()? };
    let (reason, died_at, letter) = (row.text()?, row.int()?, row.bytes()?);
    Ok(Kept { seq, id, lane, reason, died_at, letter, can_be_sent: row.int()? != 0 })
}

/// Where the newest letter stands; none where there is none.
pub(crate) fn newest<'a>((): &'a (), db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Option<i64>, DbError>> {
    Box::pin(async move {
        let mut rows = db.fetch("SELECT max(seq) FROM ic_dead", Vec::new()).await?;
        Ok(rows.first_mut().map(Row::maybe_int).transpose()?.flatten())
    })
}

/// One letter, and its request.
pub(crate) fn show<'a>(id: &'a Id, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Option<Kept>, DbError>> {
    Box::pin(async move {
        let sql = "SELECT seq, id, tenant, vendor, tier, reason, died_at, letter, CASE WHEN request IS NULL THEN 0 ELSE 1 END FROM ic_dead WHERE id = $1";
        db.fetch(sql, args![id.as_bytes().as_slice()]).await?.into_iter().next().map(kept).transpose()
    })
}

/// What became of a letter that was to be sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Redriven {
    /// It is a job again, with its id, its key and fresh attempts.
    Yes,
    /// Its request was not kept.
    NoRequest,
    /// It is not there, or not there any more.
    Gone,
}

/// Makes a letter a job again. Of two who try at once one does.
pub(crate) fn redrive<'a>(
    (id, history): &'a (Id, Option<Vec<u8>>),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Redriven, DbError>> {
    Box::pin(async move {
        let bytes = id.as_bytes().as_slice();
        let look = "SELECT tenant, vendor, tier, keep_result, request FROM ic_dead WHERE id = $1";
        let Some(mut row) = db.fetch(look, args![bytes]).await?.into_iter().next() else { return Ok(Redriven::Gone) };
        let (tenant, vendor, tier, keep) = (row.text()?, row.text()?, row.int()?, row.int()?);
        let Some(request) = row.maybe_bytes()? else { return Ok(Redriven::NoRequest) };
        if db.execute("DELETE FROM ic_dead WHERE id = $1", args![bytes]).await? == 0 {
            return Ok(Redriven::Gone);
        }
        let sql = "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, enqueued_at, keep_result, request, history) \
                   VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING";
        let history = history.as_deref();
        db.execute(sql, args![bytes, &tenant, &vendor, tier, now, keep, &request, history]).await?;
        Ok(Redriven::Yes)
    })
}

/// Deletes letters; how many.
pub(crate) fn purge<'a>(filter: &'a Filter, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<u64, DbError>> {
    Box::pin(async move {
        let sql = "DELETE FROM ic_dead WHERE seq IN (SELECT seq FROM ic_dead WHERE seq > $1 AND ($2 IS NULL OR tenant = $2) \
                   AND ($3 IS NULL OR vendor = $3) AND ($4 IS NULL OR reason = $4) AND ($5 IS NULL OR died_at < $5) \
                   ORDER BY seq LIMIT $6)";
        let (tenant, vendor, reason) = (filter.tenant.as_deref(), filter.vendor.as_deref(), filter.reason.as_deref());
        db.execute(sql, args![filter.after, tenant, vendor, reason, filter.before, filter.most]).await
    })
}

/// How many letters there are; counted up to a bound.
pub(crate) fn count<'a>(most: &'a i64, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<i64, DbError>> {
    Box::pin(async move {
        let mut rows = db.fetch("SELECT count(*) FROM (SELECT 1 FROM ic_dead LIMIT $1) few", args![*most]).await?;
        Ok(rows.first_mut().map(Row::int).transpose()?.unwrap_or(0))
    })
}
