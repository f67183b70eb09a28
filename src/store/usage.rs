//! The usage of lanes that their vendors may still count. It is written with the start of each job's exchange or, by
//! [`add`], within about a second, and is read by the next process.
//!
//! Requests and points are in one table, because each exchange writes them. Other units are in a second table, with a
//! row for each unit.
//!
//! Rows are read by lane and in pages, so that memory does not grow with their number. Each row is one slot of time of
//! one process; the rows of one slot add up.

use std::collections::BTreeMap;

use super::Id;
use super::driver::{Arg, Column, Db, DbError, Dialect, Row, args};
use crate::BoxFuture;

/// The most rows of one lane in one page.
pub(crate) const ROWS: i64 = 256;
/// The most rows in one read.
pub(crate) const ALL_ROWS: i64 = 8_192;
/// The most lanes in one read. Most have no rows after a restart, and a read costs round trips.
pub(crate) const LANES: usize = 1_024;

/// Which table is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    /// Requests and points.
    Requests,
    /// Other units.
    Units,
}

/// The position of the last row of a lane that was read: its endpoint, slot, owner, tier and unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    endpoint: String,
    slot: i64,
    owner: Vec<u8>,
    high: i64,
    unit: String,
}

impl Mark {
    /// The position before all rows.
    pub(crate) const START: Mark =
        Mark { endpoint: String::new(), slot: i64::MIN, owner: Vec::new(), high: i64::MIN, unit: String::new() };
}

/// A lane to be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) tenant: String,
    pub(crate) vendor: String,
    /// The position after which to read.
    pub(crate) after: Mark,
}

/// The usage of a lane in one slot of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    pub(crate) endpoint: String,
    pub(crate) high: bool,
    /// Empty for requests and points.
    pub(crate) unit: String,
    pub(crate) requests: i64,
    /// The number of points, or of the other unit.
    pub(crate) units: i64,
    /// How long ago the newest units in the slot were taken.
    pub(crate) age_ms: i64,
}

/// A page of the usage of one lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    /// The index of the lane in the list that was asked for.
    pub(crate) lane: usize,
    pub(crate) rows: Vec<Usage>,
    /// The position after which the next page begins, if the lane may have more rows.
    pub(crate) more: Option<Mark>,
}

/// The two statements that read one table, for SQLite and for PostgreSQL. `$unit`, `$requests` and `$units` are columns
/// of the table, or constants for a column that the table does not have.
macro_rules! statements {
    ($table:literal, $unit:literal, $requests:literal, $units:literal, $key:literal, $after:literal, $joined:literal) => {
        (
            concat!(
                "SELECT $1, endpoint, slot, owner, high, ", $unit, ", ", $requests, ", ", $units, ", last_at FROM ", $table,
                " WHERE tenant = $2 AND vendor = $3 AND (", $key, ") > (", $after, ") AND owner <> $9 AND until > $10 \
                 AND $8 = $8 ORDER BY ", $key, " LIMIT $11"
            ),
            // Reads each lane by the primary key, whatever the planner's statistics say about the number of rows.
            concat!(
                "SELECT l.number, s.endpoint, s.slot, s.owner, s.high, s.unit, s.requests, s.units, s.last_at \
                 FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bytea[], $7::bigint[], $8::text[]) \
                 AS l(number, tenant, vendor, endpoint, slot, owner, high, unit) CROSS JOIN LATERAL \
                 (SELECT endpoint, slot, owner, high, ", $unit, " AS unit, ", $requests, "::bigint AS requests, ", $units,
                " AS units, last_at FROM ", $table, " u WHERE u.tenant = l.tenant AND u.vendor = l.vendor AND (", $key,
                ") > (", $joined, ") AND u.owner <> $9 AND u.until > $10 ORDER BY ", $key, " LIMIT $11) s \
                 ORDER BY l.number, s.endpoint, s.slot, s.owner, s.high, s.unit"
            ),
        )
    };
}

const REQUESTS: (&str, &str) = statements!(
    "ic_spent",
    "''",
    "requests",
    "points",
    "endpoint, slot, owner, high",
    "$4, $5, $6, $7",
    "l.endpoint, l.slot, l.owner, l.high"
);
const UNITS: (&str, &str) = statements!(
    "ic_used",
    "unit",
    "0",
    "units",
    "endpoint, slot, owner, high, unit",
    "$4, $5, $6, $7, $8",
    "l.endpoint, l.slot, l.owner, l.high, l.unit"
);

/// Reads what processes other than `owner` have sent for each lane, up to [`ROWS`] rows of each lane and [`ALL_ROWS`] in
/// total. A lane without rows has no page in the result.
pub(crate) fn read<'a>(
    (owner, table, lanes): &'a (Id, Table, Vec<Wanted>),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Vec<Page>, DbError>> {
    Box::pin(async move {
        let owner = owner.as_bytes().as_slice();
        let rows = (ALL_ROWS / i64::try_from(lanes.len()).unwrap_or(ALL_ROWS).max(1)).clamp(1, ROWS);
        let (sqlite, postgres) = match table {
            Table::Requests => REQUESTS,
            Table::Units => UNITS,
        };
        let mut pages = Vec::new();
        match db.dialect() {
            Dialect::Sqlite => {
                for (number, lane) in (0i64..).zip(lanes) {
                    let Wanted { tenant, vendor, after } = lane;
                    let Mark { endpoint, slot, owner: marked, high, unit } = after;
                    let args = args![number, tenant, vendor, endpoint, *slot, marked, *high, unit, owner, now, rows];
                    gather(db.fetch(sqlite, args).await?, rows, now, &mut pages);
                }
            }
            Dialect::Postgres => {
                let args = vec![
                    Arg::Ints((0i64..).zip(lanes).map(|(number, _)| number).collect()),
                    Arg::Texts(lanes.iter().map(|lane| &*lane.tenant).collect()),
                    Arg::Texts(lanes.iter().map(|lane| &*lane.vendor).collect()),
                    Arg::Texts(lanes.iter().map(|lane| &*lane.after.endpoint).collect()),
                    Arg::Ints(lanes.iter().map(|lane| lane.after.slot).collect()),
                    Arg::Blobs(lanes.iter().map(|lane| Some(&*lane.after.owner)).collect()),
                    Arg::Ints(lanes.iter().map(|lane| lane.after.high).collect()),
                    Arg::Texts(lanes.iter().map(|lane| &*lane.after.unit).collect()),
                    Arg::from(owner),
                    Arg::from(now),
                    Arg::from(rows),
                ];
                gather(db.fetch(postgres, args).await?, rows, now, &mut pages);
            }
        }
        Ok(pages)
    })
}

/// The units that a lane has taken since its usage was last written, for one endpoint, in either the high tier or those
/// below it. A figure is negative if responses said that less was used than had been counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) tenant: String,
    pub(crate) vendor: String,
    pub(crate) endpoint: String,
    pub(crate) high: bool,
    pub(crate) requests: i64,
    pub(crate) points: i64,
    pub(crate) units: Vec<(String, i64)>,
    /// The width of a slot of usage, and how long usage counts.
    pub(crate) slot_ms: i64,
    pub(crate) counts_ms: i64,
    /// How long ago the units were taken, at most a second more.
    pub(crate) age_ms: i64,
}

/// The key of a row of usage, without its owner. The unit is empty for requests and points.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot<'a> {
    pub(super) tenant: &'a str,
    pub(super) vendor: &'a str,
    pub(super) endpoint: &'a str,
    pub(super) slot: i64,
    pub(super) high: i64,
    pub(super) unit: &'a str,
}

/// The amounts that are to be added to a row.
#[derive(Clone, Copy, Default)]
struct Sum {
    requests: i64,
    /// The number of points, or of the other unit.
    units: i64,
    /// When the newest units were taken.
    last_at: i64,
    /// Until when the row counts at least.
    until: i64,
}

/// Usage that is to be added, a sum for each row.
#[derive(Default)]
pub(super) struct Sums<'a> {
    requests: BTreeMap<Slot<'a>, Sum>,
    units: BTreeMap<Slot<'a>, Sum>,
}

/// A statement that inserts rows of usage, and adds to the rows that exist. A row keeps the time of its newest usage:
/// with the time of a late write, all of the row would count longer.
macro_rules! add_to {
    ($table:literal, $columns:literal, $key:literal, $sums:literal, $rows:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (tenant, vendor, endpoint, slot, owner, high, ",
            $columns,
            ", last_at, until) ",
            $rows,
            " ON CONFLICT (tenant, vendor, endpoint, slot, owner, high",
            $key,
            ") DO UPDATE SET ",
            $sums,
            ", last_at = CASE WHEN excluded.last_at > ",
            $table,
            ".last_at THEN excluded.last_at ELSE ",
            $table,
            ".last_at END, until = CASE WHEN excluded.until > ",
            $table,
            ".until THEN excluded.until ELSE ",
            $table,
            ".until END"
        )
    };
}

const ADD_REQUESTS: (&str, &str) = (
    add_to!(
        "ic_spent",
        "requests, points",
        "",
        "requests = ic_spent.requests + excluded.requests, points = ic_spent.points + excluded.points",
        "SELECT o.value ->> 0, o.value ->> 1, o.value ->> 2, o.value ->> 3, $1, o.value ->> 4, o.value ->> 5, \
         o.value ->> 6, o.value ->> 7, o.value ->> 8 FROM json_each($2) o WHERE true"
    ),
    add_to!(
        "ic_spent",
        "requests, points",
        "",
        "requests = ic_spent.requests + excluded.requests, points = ic_spent.points + excluded.points",
        "SELECT tenant, vendor, endpoint, slot, $1::bytea, high, requests, units, last_at, until FROM \
         unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], \
         $10::bigint[]) AS o(tenant, vendor, endpoint, slot, high, requests, units, last_at, until)"
    ),
);
const ADD_UNITS: (&str, &str) = (
    add_to!(
        "ic_used",
        "unit, units",
        ", unit",
        "units = ic_used.units + excluded.units",
        "SELECT o.value ->> 0, o.value ->> 1, o.value ->> 2, o.value ->> 3, $1, o.value ->> 4, o.value ->> 5, \
         o.value ->> 6, o.value ->> 7, o.value ->> 8 FROM json_each($2) o WHERE true"
    ),
    add_to!(
        "ic_used",
        "unit, units",
        ", unit",
        "units = ic_used.units + excluded.units",
        "SELECT tenant, vendor, endpoint, slot, $1::bytea, high, unit, units, last_at, until FROM \
         unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[], \
         $10::bigint[]) AS o(tenant, vendor, endpoint, slot, high, unit, units, last_at, until)"
    ),
);

impl<'a> Sums<'a> {
    /// Adds requests and units, of which the newest were taken at `last_at`, to a row, which counts at least until
    /// `until`.
    pub(super) fn add(&mut self, row: Slot<'a>, (requests, units): (i64, i64), (last_at, until): (i64, i64)) {
        let sums = if row.unit.is_empty() { &mut self.requests } else { &mut self.units };
        let sum = sums.entry(row).or_default();
        *sum = Sum {
            requests: sum.requests.saturating_add(requests),
            units: sum.units.saturating_add(units),
            last_at: sum.last_at.max(last_at),
            until: sum.until.max(until),
        };
    }

    /// Adds the sums to the rows of `owner`: one statement for each of the two tables.
    pub(super) async fn write(&self, owner: &Id, db: Db<'_>) -> Result<(), DbError> {
        for (sums, (sqlite, postgres), is_units) in
            [(&self.requests, ADD_REQUESTS, false), (&self.units, ADD_UNITS, true)]
        {
            if sums.is_empty() {
                continue;
            }
            let sql = if db.dialect() == Dialect::Sqlite { sqlite } else { postgres };
            let sixth = match is_units {
                true => Column::Texts(sums.keys().map(|row| row.unit).collect()),
                false => Column::Ints(sums.values().map(|sum| sum.requests).collect()),
            };
            let columns = vec![
                Column::Texts(sums.keys().map(|row| row.tenant).collect()),
                Column::Texts(sums.keys().map(|row| row.vendor).collect()),
                Column::Texts(sums.keys().map(|row| row.endpoint).collect()),
                Column::Ints(sums.keys().map(|row| row.slot).collect()),
                Column::Ints(sums.keys().map(|row| row.high).collect()),
                sixth,
                Column::Ints(sums.values().map(|sum| sum.units).collect()),
                Column::Ints(sums.values().map(|sum| sum.last_at).collect()),
                Column::Ints(sums.values().map(|sum| sum.until).collect()),
            ];
            let mut args = args![owner.as_bytes().as_slice()];
            args.extend(super::driver::rows(db.dialect(), columns));
            db.execute(sql, args).await?;
        }
        Ok(())
    }
}

/// Adds the units that lanes have taken to the usage of the process `owner`.
pub(crate) fn add<'a>(
    (owner, taken): &'a (Id, Vec<Taken>),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move {
        let mut sums = Sums::default();
        for lane in taken {
            let Taken { tenant, vendor, endpoint, .. } = lane;
            let (taken_at, slot_ms) = (now.saturating_sub(lane.age_ms), lane.slot_ms.max(1));
            let (slot, until) = (taken_at / slot_ms, taken_at.saturating_add(lane.counts_ms));
            // Units that are returned make no row younger: no usage is older than the beginning of its slot. With new
            // requests there is new usage, though more may have been returned of earlier ones.
            let last_at = |more: i64| {
                if lane.requests > 0 || more > 0 { taken_at } else { slot.saturating_mul(slot_ms) }
            };
            let row = Slot { tenant, vendor, endpoint, slot, high: i64::from(lane.high), unit: "" };
            if lane.requests != 0 || lane.points != 0 {
                sums.add(row, (lane.requests, lane.points), (last_at(lane.points), until));
            }
            for (unit, more) in lane.units.iter().filter(|(_, more)| *more != 0) {
                sums.add(Slot { unit, ..row }, (0, *more), (last_at(*more), until));
            }
        }
        sums.write(owner, db).await
    })
}

/// Sorts rows, which come lane by lane and `most` of a lane, into pages. A row that cannot be decoded is logged and left
/// out.
fn gather(rows: Vec<Row>, most: i64, now: i64, pages: &mut Vec<Page>) {
    let (mut count, mut last) = (0, None);
    for mut row in rows {
        let Some(lane) = row.int().ok().and_then(|lane| usize::try_from(lane).ok()) else { continue };
        if pages.last().is_none_or(|page| page.lane != lane) {
            pages.push(Page { lane, rows: Vec::new(), more: None });
            (count, last) = (0, None);
        }
        let Some(page) = pages.last_mut() else { continue };
        let read = mark(&mut row).and_then(|mark| {
            // The next page begins behind this row, also if the rest of it cannot be decoded.
            last = Some(mark.clone());
            usage(row, mark, now)
        });
        match read {
            Ok(usage) => page.rows.push(usage),
            Err(error) => tracing::error!(%error, "a row of the store cannot be read, and is left out"),
        }
        count += 1;
        if count == most {
            page.more = last.take();
        }
    }
}

fn mark(row: &mut Row) -> Result<Mark, DbError> {
    Ok(Mark { endpoint: row.text()?, slot: row.int()?, owner: row.bytes()?, high: row.int()?, unit: row.text()? })
}

fn usage(mut row: Row, mark: Mark, now: i64) -> Result<Usage, DbError> {
    let (requests, units) = (row.int()?, row.int()?);
    let age_ms = now.saturating_sub(row.int()?).max(0);
    Ok(Usage { endpoint: mark.endpoint, high: mark.high != 0, unit: mark.unit, requests, units, age_ms })
}
