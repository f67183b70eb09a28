//! The SQL of `ic_reply`: what became of requests whose senders want to know. Each row is written in the transaction that ends
//! its job, and lies there until somebody takes it, or for a week.

use super::Id;
use super::driver::{Column, Db, DbError, Dialect, args, rows};
use crate::BoxFuture;

/// Rows that nobody takes are kept for this long, in milliseconds: a week.
const KEPT_MS: i64 = 7 * 86_400_000;
/// Rows in one statement, and bytes from which on a statement is closed.
const TOGETHER: (usize, usize) = (256, 1 << 20);

/// A reply as it lies in the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) reply: String,
}

/// Writes replies to jobs that have ended in this transaction.
pub(super) async fn insert(replies: &[(Id, &str)], db: Db<'_>, now: i64) -> Result<(), DbError> {
    let mut left = replies;
    while !left.is_empty() {
        let mut bytes = 0;
        let fits = |(_, reply): &&(Id, &str)| {
            bytes += reply.len();
            bytes <= TOGETHER.1
        };
        let count = left.iter().take(TOGETHER.0).take_while(fits).count().max(1);
        let (some, rest) = left.split_at(count);
        let ids: Vec<String> = some.iter().map(|(id, _)| id.simple().to_string()).collect();
        let columns = vec![
            Column::Texts(ids.iter().map(String::as_str).collect()),
            Column::Texts(some.iter().map(|(_, reply)| *reply).collect()),
        ];
        let sql = match db.dialect() {
            Dialect::Sqlite => {
                "INSERT INTO ic_reply (at, until, id, reply) SELECT $1, $2, o.value ->> 0, o.value ->> 1 FROM json_each($3) o"
            }
            Dialect::Postgres => {
                "INSERT INTO ic_reply (at, until, id, reply) SELECT $1, $2, o.id, o.reply \
                 FROM unnest($3::text[], $4::text[]) AS o(id, reply)"
            }
        };
        let mut args = args![now, now.saturating_add(KEPT_MS)];
        args.extend(rows(db.dialect(), columns));
        db.execute(sql, args).await?;
        left = rest;
    }
    Ok(())
}

/// The oldest replies, at most `most`.
pub(crate) fn read<'a>(most: &'a i64, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Vec<Kept>, DbError>> {
    Box::pin(async move {
        let mut found = Vec::new();
        for mut row in db.fetch("SELECT seq, id, reply FROM ic_reply ORDER BY seq LIMIT $1", args![*most]).await? {
            found.push(Kept { seq: row.int()?, id: row.text()?, reply: row.text()? });
        }
        Ok(found)
    })
}

/// The numbers of replies whose receiver has them.
#[derive(Clone, Debug)]
pub(crate) struct Taken(pub(crate) Vec<i64>);

/// Deletes replies that were taken. Returns how many were there.
pub(crate) fn delete<'a>(taken: &'a Taken, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<u64, DbError>> {
    Box::pin(async move {
        let sql = match db.dialect() {
            Dialect::Sqlite => "DELETE FROM ic_reply WHERE seq IN (SELECT o.value ->> 0 FROM json_each($1) o)",
            Dialect::Postgres => "DELETE FROM ic_reply WHERE seq = ANY($1)",
        };
        db.execute(sql, rows(db.dialect(), vec![Column::Ints(taken.0.clone())])).await
    })
}
