//! The SQL of `ic_reply`, which holds replies: they tell the senders of requests what became of them. Each reply is
//! written in the transaction that ends its job. It stays until a reader takes it or it is delivered to a target, but
//! for a week at most.

use super::Id;
use super::driver::{Column, Db, DbError, Dialect, args, rows};
use crate::BoxFuture;

/// How long a reply that nobody takes is kept, in milliseconds: a week.
const KEPT_MS: i64 = 7 * 86_400_000;
/// A reply is due from the start, and its `due` is the time of writing less this number. So the `due` of a reply that
/// was never tried is negative, and the index of this column serves them apart from the others, in order.
const UNTRIED: i64 = 1 << 60;
/// The most rows and the most bytes of replies in one statement. A single reply may be larger.
const TOGETHER: (usize, usize) = (256, 1 << 20);

/// A row of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) reply: String,
}

/// Writes the replies of jobs that end in this transaction.
pub(crate) async fn insert(replies: &[(Id, &str)], db: Db<'_>, now: i64) -> Result<(), DbError> {
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
                "INSERT INTO ic_reply (at, until, due, id, reply) \
                 SELECT $1, $2, $3, o.value ->> 0, o.value ->> 1 FROM json_each($4) o"
            }
            Dialect::Postgres => {
                "INSERT INTO ic_reply (at, until, due, id, reply) SELECT $1, $2, $3, o.id, o.reply \
                 FROM unnest($4::text[], $5::text[]) AS o(id, reply)"
            }
        };
        let mut args = args![now, now.saturating_add(KEPT_MS), now.saturating_sub(UNTRIED)];
        args.extend(rows(db.dialect(), columns));
        db.execute(sql, args).await?;
        left = rest;
    }
    Ok(())
}

/// Returns the oldest replies, at most `most`.
pub(crate) fn read<'a>(most: &'a i64, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Vec<Kept>, DbError>> {
    Box::pin(async move {
        let mut found = Vec::new();
        for mut row in db.fetch("SELECT seq, id, reply FROM ic_reply ORDER BY seq LIMIT $1", args![*most]).await? {
            found.push(Kept { seq: row.int()?, id: row.text()?, reply: row.text()? });
        }
        Ok(found)
    })
}

/// The numbers of replies that their receiver has taken.
#[derive(Clone, Debug)]
pub(crate) struct Taken(pub(crate) Vec<i64>);

/// Deletes replies that were taken. Returns how many were deleted.
pub(crate) fn delete<'a>(taken: &'a Taken, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<u64, DbError>> {
    Box::pin(remove(taken.0.clone(), db))
}

async fn remove(numbers: Vec<i64>, db: Db<'_>) -> Result<u64, DbError> {
    let sql = match db.dialect() {
        Dialect::Sqlite => "DELETE FROM ic_reply WHERE seq IN (SELECT o.value ->> 0 FROM json_each($1) o)",
        Dialect::Postgres => "DELETE FROM ic_reply WHERE seq = ANY($1)",
    };
    db.execute(sql, rows(db.dialect(), vec![Column::Ints(numbers)])).await
}

/// Which of the due replies a process claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// Those whose delivery was never tried, the oldest first.
    Untried,
    /// The same, the newest first.
    NewestUntried,
    /// Those that were tried before, and those that an older version of this library wrote; the first that is due
    /// first.
    Tried,
}

impl Which {
    /// The values of the column `due` that these replies have: from the first to before the second.
    fn due(self, now: i64) -> (i64, i64) {
        match self {
            Which::Untried | Which::NewestUntried => (i64::MIN, 0),
            Which::Tried => (0, now.saturating_add(1)),
        }
    }
}

/// Which replies a process claims in order to deliver them, how many, and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// The most replies of all kinds together.
    pub(crate) most: i64,
    /// The kinds in the order in which they are claimed, each with its most.
    pub(crate) shares: Vec<(Which, i64)>,
    /// How long no other process delivers the claimed replies, in milliseconds.
    pub(crate) held_ms: i64,
}

/// A reply that this process is to deliver, and the number of tries, this one included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ToDeliver {
    pub(crate) kept: Kept,
    pub(crate) tries: i64,
    /// Whether it was claimed as one that was never tried.
    pub(crate) was_untried: bool,
}

/// Whether a reply is due of those that `claim` would take. Reads only, so that looking at an empty table writes
/// nothing.
pub(crate) fn is_any_due<'a>(claim: &'a Claim, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<bool, DbError>> {
    Box::pin(async move {
        // The ranges adjoin.
        let ranges = claim.shares.iter().map(|(which, _)| which.due(now));
        let Some((from, until)) = ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))) else {
            return Ok(false);
        };
        let sql = "SELECT seq FROM ic_reply WHERE due >= $1 AND due < $2 LIMIT 1";
        Ok(!db.fetch(sql, args![from, until]).await?.is_empty())
    })
}

/// The statement that claims replies whose `due` is in a range, in an order.
macro_rules! claim_in {
    ($order:literal, $lock:literal) => {
        concat!(
            "UPDATE ic_reply SET due = $1, tries = tries + 1 WHERE seq IN \
             (SELECT seq FROM ic_reply WHERE due >= $2 AND due < $3 ORDER BY ",
            $order,
            " LIMIT $4",
            $lock,
            ") RETURNING seq, id, reply, tries"
        )
    };
}

/// Claims due replies. They are due again when the claim ends, so that another process delivers the replies of a
/// process that was killed.
pub(crate) fn claim<'a>(claim: &'a Claim, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<Vec<ToDeliver>, DbError>> {
    Box::pin(async move {
        let (mut claimed, mut room, mut exhausted) = (Vec::new(), claim.most, Vec::new());
        for (which, most) in &claim.shares {
            let most = room.min(*most);
            if most <= 0 || exhausted.contains(which) {
                continue;
            }
            // In PostgreSQL, replies that another process is claiming are skipped.
            let sql = match (db.dialect(), which) {
                (Dialect::Sqlite, Which::NewestUntried) => claim_in!("due DESC, seq DESC", ""),
                (Dialect::Sqlite, _) => claim_in!("due, seq", ""),
                (Dialect::Postgres, Which::NewestUntried) => {
                    claim_in!("due DESC, seq DESC", " FOR UPDATE SKIP LOCKED")
                }
                (Dialect::Postgres, _) => claim_in!("due, seq", " FOR UPDATE SKIP LOCKED"),
            };
            let (from, until) = which.due(now);
            let before = room;
            for mut row in db.fetch(sql, args![now.saturating_add(claim.held_ms), from, until, most]).await? {
                let kept = Kept { seq: row.int()?, id: row.text()?, reply: row.text()? };
                claimed.push(ToDeliver { kept, tries: row.int()?, was_untried: *which != Which::Tried });
                room -= 1;
            }
            if before - room < most {
                exhausted.push(*which);
            }
        }
        claimed.sort_by_key(|claimed| claimed.kept.seq);
        Ok(claimed)
    })
}

/// The results of delivering claimed replies, by the numbers of the replies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Settled {
    pub(crate) delivered: Vec<i64>,
    /// Replies that could not be delivered, and after how many milliseconds they are due again.
    pub(crate) later: Vec<(i64, i64)>,
}

/// Deletes the replies that were delivered, and sets when the others are due again.
pub(crate) fn settle<'a>(settled: &'a Settled, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move {
        if !settled.delivered.is_empty() {
            remove(settled.delivered.clone(), db).await?;
        }
        if settled.later.is_empty() {
            return Ok(());
        }
        let sql = match db.dialect() {
            Dialect::Sqlite => {
                "UPDATE ic_reply SET due = $1 + (o.value ->> 1) FROM json_each($2) o WHERE seq = o.value ->> 0"
            }
            Dialect::Postgres => {
                "UPDATE ic_reply SET due = $1 + o.wait FROM unnest($2::bigint[], $3::bigint[]) AS o(number, wait) \
                 WHERE seq = o.number"
            }
        };
        let (numbers, waits) = settled.later.iter().copied().unzip();
        let mut args = args![now];
        args.extend(rows(db.dialect(), vec![Column::Ints(numbers), Column::Ints(waits)]));
        db.execute(sql, args).await.map(drop)
    })
}
