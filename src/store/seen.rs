//! The SQL of message ids that were seen: how a redelivered message is recognised, for longer than its job is kept.
//!
//! A row holds the message, its job and a time, 40 bytes in all. A job's id is made of its message and of the
//! fingerprint of its request, so that another request with the id of a message is recognised by the job's id alone.

use std::collections::HashSet;

use super::Id;
use super::driver::{Column, Db, DbError, Dialect, args, rows};

/// A message of a source, and how long its id is kept, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) id: Id,
    pub(crate) keep_ms: i64,
}

/// What is known about a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// Nothing was known; the message is recorded now.
    New,
    /// The message was recorded with this job.
    Before(Id),
}

/// Records messages with their jobs, and returns what was known about each, in the same order. Of two equal messages in
/// the list, the second counts as known.
pub(super) async fn record(messages: &[(Message, Id)], db: Db<'_>, now: i64) -> Result<Vec<Seen>, DbError> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    // The messages are sorted so that two processes that record the same messages lock them in the same order, and do
    // not wait for each other in a deadlock.
    let mut sorted: Vec<&(Message, Id)> = messages.iter().collect();
    sorted.sort_by_key(|(message, _)| message.id);
    let mut new = HashSet::with_capacity(messages.len());
    let sql = match db.dialect() {
        Dialect::Sqlite => {
            "INSERT INTO ic_seen (message, job, until) \
             SELECT unhex(value ->> 0), unhex(value ->> 1), value ->> 2 FROM json_each($1) WHERE true \
             ON CONFLICT (message) DO NOTHING RETURNING message"
        }
        Dialect::Postgres => {
            "INSERT INTO ic_seen (message, job, until) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) \
             ON CONFLICT (message) DO NOTHING RETURNING message"
        }
    };
    let columns = vec![
        Column::Blobs(sorted.iter().map(|(message, _)| Some(message.id.as_bytes().as_slice())).collect()),
        Column::Blobs(sorted.iter().map(|(_, job)| Some(job.as_bytes().as_slice())).collect()),
        Column::Ints(sorted.iter().map(|(message, _)| now.saturating_add(message.keep_ms)).collect()),
    ];
    for mut row in db.fetch(sql, rows(db.dialect(), columns)).await? {
        new.insert(row.id()?);
    }
    let mut seen = Vec::with_capacity(messages.len());
    for (message, job) in messages {
        if new.remove(&message.id) {
            seen.push(Seen::New);
            continue;
        }
        let look = "SELECT job FROM ic_seen WHERE message = $1";
        let mut rows = db.fetch(look, args![message.id.as_bytes().as_slice()]).await?;
        // Without a row, the record expired between the two statements. The message was known until now.
        seen.push(Seen::Before(rows.first_mut().map(|row| row.id()).transpose()?.unwrap_or(*job)));
    }
    Ok(seen)
}
