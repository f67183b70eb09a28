//! The usage of lanes that their vendors may still count: written with the start of each exchange, and read by the next
//! process.
//!
//! Rows are read by lane and in pages, so that memory does not grow with their number. Each row is one slot of time of
//! one process; the rows of one slot add up.

use super::Id;
use super::driver::{Arg, Db, DbError, Dialect, Row, args};
use crate::BoxFuture;

/// The most rows of one lane in one page.
pub(crate) const ROWS: i64 = 256;
/// The most lanes in one read.
pub(crate) const LANES: usize = 32;

/// The last row of a lane that was read, by its endpoint, slot, owner and tier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    endpoint: String,
    slot: i64,
    owner: Vec<u8>,
    high: i64,
}

impl Mark {
    /// The position before all rows.
    pub(crate) const START: Mark = Mark { endpoint: String::new(), slot: i64::MIN, owner: Vec::new(), high: i64::MIN };
}

/// A lane to be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) tenant: String,
    pub(crate) vendor: String,
    /// The position behind which to read.
    pub(crate) after: Mark,
}

/// The usage of a lane in one slot of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    pub(crate) endpoint: String,
    pub(crate) high: bool,
    pub(crate) requests: i64,
    pub(crate) points: i64,
    /// The age of the latest exchange in the slot.
    pub(crate) age_ms: i64,
}

/// Some of the usage of one lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    /// The index of the lane in the list that was asked for.
    pub(crate) lane: usize,
    pub(crate) rows: Vec<Usage>,
    /// The position to go on from, where the lane has more rows.
    pub(crate) more: Option<Mark>,
}

/// Reads what processes other than `owner` have sent of each lane: up to [`ROWS`] rows of each. A lane without rows has
/// no page in the result.
pub(crate) fn read<'a>(
    (owner, lanes): &'a (Id, Vec<Wanted>),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Vec<Page>, DbError>> {
    Box::pin(async move {
        let owner = owner.as_bytes().as_slice();
        let mut pages = Vec::new();
        match db.dialect() {
            Dialect::Sqlite => {
                let sql = "SELECT $1, endpoint, slot, owner, high, requests, points, last_at FROM ic_spent \
                           WHERE tenant = $2 AND vendor = $3 AND (endpoint, slot, owner, high) > ($4, $5, $6, $7) \
                           AND owner <> $8 AND until > $9 ORDER BY endpoint, slot, owner, high LIMIT $10";
                for (number, lane) in (0i64..).zip(lanes) {
                    let Wanted { tenant, vendor, after } = lane;
                    let Mark { endpoint, slot, owner: marked, high } = after;
                    let args = args![number, tenant, vendor, endpoint, *slot, marked, *high, owner, now, ROWS];
                    gather(db.fetch(sql, args).await?, now, &mut pages);
                }
            }
            Dialect::Postgres => {
                // Each lane by the primary key, whatever the planner's statistics say about the number of rows.
                let sql = "SELECT l.number, s.endpoint, s.slot, s.owner, s.high, s.requests, s.points, s.last_at \
                           FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bytea[], $7::bigint[]) \
                           AS l(number, tenant, vendor, endpoint, slot, owner, high) CROSS JOIN LATERAL \
                           (SELECT * FROM ic_spent u WHERE u.tenant = l.tenant AND u.vendor = l.vendor \
                           AND (u.endpoint, u.slot, u.owner, u.high) > (l.endpoint, l.slot, l.owner, l.high) \
                           AND u.owner <> $8 AND u.until > $9 ORDER BY u.endpoint, u.slot, u.owner, u.high LIMIT $10) s \
                           ORDER BY l.number, s.endpoint, s.slot, s.owner, s.high";
                let args = vec![
                    Arg::Ints((0i64..).zip(lanes).map(|(number, _)| number).collect()),
                    Arg::Texts(lanes.iter().map(|lane| &*lane.tenant).collect()),
                    Arg::Texts(lanes.iter().map(|lane| &*lane.vendor).collect()),
                    Arg::Texts(lanes.iter().map(|lane| &*lane.after.endpoint).collect()),
                    Arg::Ints(lanes.iter().map(|lane| lane.after.slot).collect()),
                    Arg::Blobs(lanes.iter().map(|lane| &*lane.after.owner).collect()),
                    Arg::Ints(lanes.iter().map(|lane| lane.after.high).collect()),
                    Arg::from(owner),
                    Arg::from(now),
                    Arg::from(ROWS),
                ];
                gather(db.fetch(sql, args).await?, now, &mut pages);
            }
        }
        Ok(pages)
    })
}

/// Sorts rows, which come lane by lane, into pages. A row that cannot be decoded is logged and left out.
fn gather(rows: Vec<Row>, now: i64, pages: &mut Vec<Page>) {
    let (mut count, mut last) = (0, None);
    for mut row in rows {
        let Some(lane) = row.int().ok().and_then(|lane| usize::try_from(lane).ok()) else { continue };
        if pages.last().is_none_or(|page| page.lane != lane) {
            pages.push(Page { lane, rows: Vec::new(), more: None });
            (count, last) = (0, None);
        }
        let Some(page) = pages.last_mut() else { continue };
        match usage(row, now) {
            Ok((usage, mark)) => {
                page.rows.push(usage);
                last = Some(mark);
            }
            Err(error) => tracing::error!(%error, "a row of the store cannot be read, and is left out"),
        }
        count += 1;
        if count == ROWS {
            page.more = last.take();
        }
    }
}

fn usage(mut row: Row, now: i64) -> Result<(Usage, Mark), DbError> {
    let mark = Mark { endpoint: row.text()?, slot: row.int()?, owner: row.bytes()?, high: row.int()? };
    let (requests, points) = (row.int()?, row.int()?);
    let age_ms = now.saturating_sub(row.int()?).max(0);
    let usage = Usage { endpoint: mark.endpoint.clone(), high: mark.high != 0, requests, points, age_ms };
    Ok((usage, mark))
}
