//! Pauses that vendors asked for and that last for longer than some seconds, so that the next process keeps to them.
//!
//! A row belongs to the limit, not to the process that wrote it: two processes that are told to wait write the same row,
//! and the later end counts. A process ends or shortens a row only if the row ends no later than the pause that the
//! process knows of.

use super::driver::{Column, Db, DbError, Dialect, Row, args, readable, rows};
use crate::BoxFuture;
use crate::clock::{Clock, Time, millis};

/// Whose requests wait: those of a tenant at a vendor, of an account, or of all that call a vendor.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Holder {
    pub(crate) vendor: String,
    pub(crate) environment: String,
    /// `tenant`, `account` or `vendor`.
    pub(crate) scope: &'static str,
    /// The tenant or the account; empty for a vendor.
    pub(crate) name: String,
}

/// What of a holder is paused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Paused {
    /// The limit; empty if the pause is of no configured limit.
    pub(crate) limit: String,
    /// The endpoint that the limit is for; `*` if it is for all requests, empty for requests to no endpoint.
    pub(crate) limit_of: String,
    /// The endpoint that is paused, in the same form.
    pub(crate) endpoint: String,
}

/// A pause that has begun or become longer.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub(crate) holder: Holder,
    pub(crate) paused: Paused,
    pub(crate) until: Time,
}

/// A pause that has ended, or ends, earlier than was written.
#[derive(Clone, Debug)]
pub(crate) struct Shortened {
    pub(crate) pause: Begun,
    /// When the pause was to end. A row that ends later is of a pause that another process knows of.
    pub(crate) known: Time,
}

/// A pause that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    /// The index of the holder in the list that was asked for.
    pub(crate) holder: usize,
    pub(crate) paused: Paused,
    pub(crate) left_ms: i64,
}

const KEEP: (&str, &str) = (
    "INSERT INTO ic_pause (vendor, environment, scope, name, limit_name, limit_of, endpoint, until) \
     SELECT o.value ->> 0, o.value ->> 1, o.value ->> 2, o.value ->> 3, o.value ->> 4, o.value ->> 5, o.value ->> 6, \
     o.value ->> 7 FROM json_each($1) o WHERE true \
     ON CONFLICT (vendor, environment, scope, name, limit_name, limit_of, endpoint) \
     DO UPDATE SET until = excluded.until WHERE excluded.until > ic_pause.until",
    "INSERT INTO ic_pause (vendor, environment, scope, name, limit_name, limit_of, endpoint, until) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[]) \
     ON CONFLICT (vendor, environment, scope, name, limit_name, limit_of, endpoint) \
     DO UPDATE SET until = excluded.until WHERE excluded.until > ic_pause.until",
);

const SHORTEN: (&str, &str) = (
    "UPDATE ic_pause SET until = o.value ->> 7 FROM json_each($1) o WHERE ic_pause.vendor = o.value ->> 0 \
     AND ic_pause.environment = o.value ->> 1 AND ic_pause.scope = o.value ->> 2 AND ic_pause.name = o.value ->> 3 \
     AND ic_pause.limit_name = o.value ->> 4 AND ic_pause.limit_of = o.value ->> 5 \
     AND ic_pause.endpoint = o.value ->> 6 AND ic_pause.until > o.value ->> 7 AND ic_pause.until <= o.value ->> 8",
    "UPDATE ic_pause SET until = o.until FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], \
     $6::text[], $7::text[], $8::bigint[], $9::bigint[]) \
     AS o(vendor, environment, scope, name, limit_name, limit_of, endpoint, until, known) \
     WHERE ic_pause.vendor = o.vendor AND ic_pause.environment = o.environment AND ic_pause.scope = o.scope \
     AND ic_pause.name = o.name AND ic_pause.limit_name = o.limit_name AND ic_pause.limit_of = o.limit_of \
     AND ic_pause.endpoint = o.endpoint AND ic_pause.until > o.until AND ic_pause.until <= o.known",
);

/// The columns of the table. `at` makes a time of the store's clock of one of the process's.
fn columns<'a>(pauses: impl Iterator<Item = &'a Begun> + Clone, at: impl Fn(Time) -> i64) -> Vec<Column<'a>> {
    vec![
        Column::Texts(pauses.clone().map(|pause| &*pause.holder.vendor).collect()),
        Column::Texts(pauses.clone().map(|pause| &*pause.holder.environment).collect()),
        Column::Texts(pauses.clone().map(|pause| pause.holder.scope).collect()),
        Column::Texts(pauses.clone().map(|pause| &*pause.holder.name).collect()),
        Column::Texts(pauses.clone().map(|pause| &*pause.paused.limit).collect()),
        Column::Texts(pauses.clone().map(|pause| &*pause.paused.limit_of).collect()),
        Column::Texts(pauses.clone().map(|pause| &*pause.paused.endpoint).collect()),
        Column::Ints(pauses.map(|pause| at(pause.until)).collect()),
    ]
}

/// Writes pauses whose times are of `clock`. Each pause is in one of the lists, and there once.
pub(crate) fn keep<'a>(
    (clock, begun, shortened): &'a (Clock, Vec<Begun>, Vec<Shortened>),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move {
        let dialect = db.dialect();
        // The write may have waited for long, so what is left is counted from now.
        let present = clock.now();
        let at = |time: Time| now.saturating_add(i64::try_from(millis(time.since(present))).unwrap_or(i64::MAX));
        let of_dialect = |(sqlite, postgres): (&'static str, &'static str)| {
            if dialect == Dialect::Sqlite { sqlite } else { postgres }
        };
        if !shortened.is_empty() {
            let mut columns = columns(shortened.iter().map(|shortened| &shortened.pause), at);
            columns.push(Column::Ints(shortened.iter().map(|it| at(it.known)).collect()));
            db.execute(of_dialect(SHORTEN), rows(dialect, columns)).await?;
        }
        if !begun.is_empty() {
            db.execute(of_dialect(KEEP), rows(dialect, columns(begun.iter(), at))).await?;
        }
        Ok(())
    })
}

/// Whether there is a pause that is not over.
pub(crate) fn any<'a>((): &'a (), db: Db<'a>, now: i64) -> BoxFuture<'a, Result<bool, DbError>> {
    Box::pin(async move {
        let found = db.fetch("SELECT until FROM ic_pause WHERE until > $1 LIMIT 1", args![now]).await?;
        Ok(!found.is_empty())
    })
}

/// Reads the pauses of these holders that are not over.
pub(crate) fn read<'a>(holders: &'a Vec<Holder>, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Vec<Stored>, DbError>> {
    Box::pin(async move {
        let sql = match db.dialect() {
            // A CROSS JOIN is made in the order in which it is written: each holder is found by the primary key.
            Dialect::Sqlite => {
                "SELECT o.value ->> 0, p.limit_name, p.limit_of, p.endpoint, p.until FROM json_each($2) o \
                 CROSS JOIN ic_pause p WHERE p.vendor = o.value ->> 1 AND p.environment = o.value ->> 2 \
                 AND p.scope = o.value ->> 3 AND p.name = o.value ->> 4 AND p.until > $1"
            }
            Dialect::Postgres => {
                "SELECT o.number, p.limit_name, p.limit_of, p.endpoint, p.until \
                 FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[]) \
                 AS o(number, vendor, environment, scope, name) JOIN ic_pause p ON p.vendor = o.vendor \
                 AND p.environment = o.environment AND p.scope = o.scope AND p.name = o.name WHERE p.until > $1"
            }
        };
        let columns = vec![
            Column::Ints((0i64..).zip(holders).map(|(number, _)| number).collect()),
            Column::Texts(holders.iter().map(|holder| &*holder.vendor).collect()),
            Column::Texts(holders.iter().map(|holder| &*holder.environment).collect()),
            Column::Texts(holders.iter().map(|holder| holder.scope).collect()),
            Column::Texts(holders.iter().map(|holder| &*holder.name).collect()),
        ];
        let mut args = args![now];
        args.extend(rows(db.dialect(), columns));
        Ok(readable(db.fetch(sql, args).await?, |row| stored(row, now)))
    })
}

fn stored(mut row: Row, now: i64) -> Result<Stored, DbError> {
    let holder = usize::try_from(row.int()?).unwrap_or(usize::MAX);
    let paused = Paused { limit: row.text()?, limit_of: row.text()?, endpoint: row.text()? };
    Ok(Stored { holder, paused, left_ms: row.int()?.saturating_sub(now) })
}
