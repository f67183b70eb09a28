//! The SQL of message ids that were seen: how a redelivered message is recognised, for longer than its job is kept.
//!
//! A row holds the message, its job and a time, 40 bytes in all. A job's id holds a hash of its message and of the
//! fingerprint of its request, so that another request with the id of a message is recognised by the job's id alone.
//!
//! Earlier versions recorded a message under a hash of its name. Such records are found as long as there are any, also
//! those that processes of an earlier version write beside this one.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::time::Duration;

use super::driver::{Arg, Column, Db, DbError, Dialect, args, rows};
use super::id::{FIRST_BY_NUMBER, id_by_number};
use super::{Id, millis_of};

/// A message of a source, and how long its id is kept, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    id: Id,
    /// The id under which earlier versions recorded the message.
    hash: Id,
    keep_ms: i64,
}

impl Message {
    /// `name` is what the source calls the message, and `hash` a hash of that and of all else by which it is known.
    pub(crate) fn new(name: &str, hash: Id, keep: Duration) -> Message {
        Message { id: id_by_number(name, hash), hash, keep_ms: millis_of(keep) }
    }
}

/// What is known about a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// Nothing was known; the message is recorded now.
    New,
    /// The message was recorded with this job.
    Before(Id),
}

/// What is recorded of a message.
#[derive(Clone, Copy)]
struct Record {
    job: Id,
    /// When the record may be deleted, in milliseconds.
    until: i64,
}

/// The part of its time after which the record of a message is renewed when the message comes again: an eighth. A
/// message that comes again sooner costs no write.
const RENEWED_AFTER: i64 = 8;

/// Records messages with their jobs, and returns what was known about each, in the same order. Of two equal messages in
/// the list, the second counts as known. Renews the records of known messages: a source without acknowledgements of
/// single messages delivers the same messages again at each start, for as long as an older one has no room.
pub(super) async fn record(messages: &[(Message, Id)], db: Db<'_>, now: i64) -> Result<Vec<Seen>, DbError> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    // The messages are sorted so that two processes that record the same messages lock them in the same order, and do
    // not wait for each other in a deadlock.
    let mut sorted: Vec<&(Message, Id)> = messages.iter().collect();
    sorted.sort_by_key(|(message, _)| message.id);
    let mut known = records_by_hash(&sorted, db).await?;
    let others: Vec<_> = sorted.iter().copied().filter(|(message, _)| !known.contains_key(&message.id)).collect();
    let (mut new, by_number) = match db.dialect() {
        Dialect::Sqlite => insert_unknown(&others, db, now).await?,
        Dialect::Postgres => {
            let sql = "INSERT INTO ic_seen (message, job, until) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) \
                       ON CONFLICT (message) DO NOTHING RETURNING message";
            let found = db.fetch(sql, rows(Dialect::Postgres, columns(&others, now))).await?;
            let new: HashSet<Id> = found.into_iter().map(|mut row| row.id()).collect::<Result<_, _>>()?;
            let old: Vec<_> = others.into_iter().filter(|(message, _)| !new.contains(&message.id)).collect();
            (new, records_by_number(&old, db).await?)
        }
    };
    known.extend(by_number);
    renew(&sorted, &known, db, now).await?;
    let mut known: HashMap<Id, Id> = known.into_iter().map(|(message, record)| (message, record.job)).collect();
    let mut seen = Vec::with_capacity(messages.len());
    for (message, job) in messages {
        if new.remove(&message.id) {
            known.insert(message.id, *job);
            seen.push(Seen::New);
        } else {
            // Without a row, the record expired between the two statements. The message was known until now.
            seen.push(Seen::Before(known.get(&message.id).copied().unwrap_or(*job)));
        }
    }
    Ok(seen)
}

/// The job of each message that is known, in the same order. Renews the records of known messages as [`record`] does.
pub(super) async fn look(messages: &[(Message, Id)], db: Db<'_>, now: i64) -> Result<Vec<Option<Id>>, DbError> {
    let all: Vec<&(Message, Id)> = messages.iter().collect();
    let known = records_of(&all, db).await?;
    renew(&all, &known, db, now).await?;
    Ok(messages.iter().map(|(message, _)| known.get(&message.id).map(|record| record.job)).collect())
}

/// Records messages, in place of what was recorded of them before.
pub(super) async fn replace(messages: &[(Message, Id)], db: Db<'_>, now: i64) -> Result<(), DbError> {
    // Sorted as in `record`. No statement of PostgreSQL may write a row twice.
    let mut sorted: Vec<&(Message, Id)> = messages.iter().collect();
    sorted.sort_by_key(|(message, _)| message.id);
    sorted.dedup_by_key(|(message, _)| message.id);
    let sql = match db.dialect() {
        Dialect::Sqlite => {
            "INSERT INTO ic_seen (message, job, until) \
             SELECT unhex(value ->> 0), unhex(value ->> 1), value ->> 2 FROM json_each($1) WHERE true \
             ON CONFLICT (message) DO UPDATE SET job = excluded.job, until = excluded.until"
        }
        Dialect::Postgres => {
            "INSERT INTO ic_seen (message, job, until) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) \
             ON CONFLICT (message) DO UPDATE SET job = excluded.job, until = excluded.until"
        }
    };
    db.execute(sql, rows(db.dialect(), columns(&sorted, now))).await.map(drop)
}

/// Deletes the records of messages, also those of earlier versions.
pub(super) async fn forget(messages: &[Message], db: Db<'_>) -> Result<(), DbError> {
    let sql = match db.dialect() {
        Dialect::Sqlite => "DELETE FROM ic_seen WHERE message IN (SELECT unhex(value ->> 0) FROM json_each($1))",
        Dialect::Postgres => "DELETE FROM ic_seen WHERE message = ANY($1)",
    };
    let ids = messages.iter().flat_map(|message| [&message.id, &message.hash]).map(|id| Some(id.as_bytes().as_slice()));
    db.execute(sql, rows(db.dialect(), vec![Column::Blobs(ids.collect())])).await.map(drop)
}

/// Keeps the records of known messages for their whole time again.
async fn renew(messages: &[&(Message, Id)], known: &HashMap<Id, Record>, db: Db<'_>, now: i64) -> Result<(), DbError> {
    let old = messages.iter().filter_map(|(message, _)| {
        let record = known.get(&message.id)?;
        let passed = message.keep_ms.saturating_sub(record.until.saturating_sub(now));
        (passed > message.keep_ms / RENEWED_AFTER).then_some((*message, record.job))
    });
    let old: Vec<(Message, Id)> = old.collect();
    if old.is_empty() {
        return Ok(());
    }
    replace(&old, db, now).await
}

/// The records of the messages that are known, by [`Message::id`].
async fn records_of(messages: &[&(Message, Id)], db: Db<'_>) -> Result<HashMap<Id, Record>, DbError> {
    let mut known = records_by_hash(messages, db).await?;
    known.extend(records_by_number(messages, db).await?);
    Ok(known)
}

/// The records that an earlier version wrote, by [`Message::id`].
async fn records_by_hash(messages: &[&(Message, Id)], db: Db<'_>) -> Result<HashMap<Id, Record>, DbError> {
    // The order leaves the planner no choice but the index of ids.
    let sql = "SELECT message FROM ic_seen WHERE message < $1 ORDER BY message LIMIT 1";
    if messages.is_empty() || db.fetch(sql, args![FIRST_BY_NUMBER.as_bytes().as_slice()]).await?.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: HashMap<Id, Id> = messages.iter().map(|(message, _)| (message.hash, message.id)).collect();
    let found = fetch_records(ids.keys(), db).await?;
    Ok(found.into_iter().filter_map(|(hash, record)| Some((*ids.get(&hash)?, record))).collect())
}

/// The records that this version wrote, by [`Message::id`].
async fn records_by_number(messages: &[&(Message, Id)], db: Db<'_>) -> Result<HashMap<Id, Record>, DbError> {
    if messages.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(fetch_records(messages.iter().map(|(message, _)| &message.id), db).await?.into_iter().collect())
}

async fn fetch_records(ids: impl Iterator<Item = &Id>, db: Db<'_>) -> Result<Vec<(Id, Record)>, DbError> {
    let sql = match db.dialect() {
        Dialect::Sqlite => {
            "WITH m AS MATERIALIZED (SELECT unhex(value ->> 0) AS id FROM json_each($1)) \
             SELECT message, job, until FROM ic_seen WHERE message IN (SELECT id FROM m)"
        }
        Dialect::Postgres => "SELECT message, job, until FROM ic_seen WHERE message = ANY($1)",
    };
    let ids = ids.map(|id| Some(id.as_bytes().as_slice())).collect();
    let found = db.fetch(sql, rows(db.dialect(), vec![Column::Blobs(ids)])).await?;
    found.into_iter().map(|mut row| Ok((row.id()?, Record { job: row.id()?, until: row.int()? }))).collect()
}

/// Messages in one INSERT statement in SQLite whose values are parameters.
const ROWS: usize = 64;

/// The statement for [`ROWS`] messages in SQLite.
static INSERT_ROWS: LazyLock<String> = LazyLock::new(|| {
    let rows = ["(?, ?, ?)"; ROWS].join(", ");
    format!("INSERT INTO ic_seen (message, job, until) VALUES {rows} ON CONFLICT (message) DO NOTHING")
});

/// Inserts the messages that SQLite does not know. Returns their ids, and the records of the known ones. The
/// transaction excludes other writers, so nobody inserts a message between the statements. `RETURNING` would save one
/// statement, but each row that sqlx reads from SQLite costs as much as the insertion of one, and usually no message is
/// known.
async fn insert_unknown(
    messages: &[&(Message, Id)],
    db: Db<'_>,
    now: i64,
) -> Result<(HashSet<Id>, HashMap<Id, Record>), DbError> {
    let known = records_by_number(messages, db).await?;
    let unknown: Vec<_> = messages.iter().copied().filter(|(message, _)| !known.contains_key(&message.id)).collect();
    let mut chunks = unknown.chunks_exact(ROWS);
    for chunk in &mut chunks {
        let mut args: Vec<Arg<'_>> = Vec::with_capacity(3 * ROWS);
        for (message, job) in chunk {
            args.push(message.id.as_bytes().as_slice().into());
            args.push(job.as_bytes().as_slice().into());
            args.push(now.saturating_add(message.keep_ms).into());
        }
        db.execute(INSERT_ROWS.as_str(), args).await?;
    }
    if !chunks.remainder().is_empty() {
        let sql = "INSERT INTO ic_seen (message, job, until) \
                   SELECT unhex(value ->> 0), unhex(value ->> 1), value ->> 2 FROM json_each($1) WHERE true \
                   ON CONFLICT (message) DO NOTHING";
        db.execute(sql, rows(Dialect::Sqlite, columns(chunks.remainder(), now))).await?;
    }
    Ok((unknown.iter().map(|(message, _)| message.id).collect(), known))
}

fn columns<'m>(messages: &[&'m (Message, Id)], now: i64) -> Vec<Column<'m>> {
    vec![
        Column::Blobs(messages.iter().map(|(message, _)| Some(message.id.as_bytes().as_slice())).collect()),
        Column::Blobs(messages.iter().map(|(_, job)| Some(job.as_bytes().as_slice())).collect()),
        Column::Ints(messages.iter().map(|(message, _)| now.saturating_add(message.keep_ms)).collect()),
    ]
}
