//! The SQL that accepts many jobs in few statements: the jobs of one fetch from a message broker, or of rows of
//! [`ic_intake`](super::intake_table).

use std::ops::Range;
use std::sync::Arc;

use super::Id;
use super::driver::{Db, DbError, DbKind};
use super::jobs::{self, Accepted, Message, NewJob};
use super::seen::{self, Seen};
use crate::BoxFuture;
use crate::error::Error;

/// About how many statements [`take`] takes for the job alone: the jobs without keys go into a few statements together.
pub(crate) fn statements(job: &NewJob) -> usize {
    if job.key.is_some() { job.statements() } else { 0 }
}

/// Accepts those of `jobs` that are in the range `which`. Returns the result of each, in the same order.
pub(crate) fn take<'a>(
    (jobs, which): &'a (Arc<Vec<NewJob>>, Range<usize>),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Vec<Accepted>, DbError>> {
    Box::pin(async move { take_all(&jobs[which.clone()].iter().collect::<Vec<_>>(), db, now).await })
}

/// Records something about each message, unless something is recorded already. Returns what was recorded before, in the
/// same order.
#[expect(clippy::ptr_arg, reason = "the store passes a reference to the value that it was given")]
pub(crate) fn note<'a>(
    notes: &'a Vec<(Message, Id)>,
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Vec<Option<Id>>, DbError>> {
    Box::pin(async move {
        let noted = |seen: Seen| match seen {
            Seen::New => None,
            Seen::Before(noted) => Some(noted),
        };
        Ok(seen::record(notes, db, now).await?.into_iter().map(noted).collect())
    })
}

/// Records something about each message, in place of what was recorded before.
#[expect(clippy::ptr_arg, reason = "the store passes a reference to the value that it was given")]
pub(crate) fn note_anew<'a>(notes: &'a Vec<(Message, Id)>, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(seen::replace(notes, db, now))
}

/// Deletes what was recorded about these messages.
#[expect(clippy::ptr_arg, reason = "the store passes a reference to the value that it was given")]
pub(crate) fn forget_notes<'a>(messages: &'a Vec<Message>, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(seen::forget(messages, db))
}

/// Says of each message, with the job that it would become, what was accepted before: `None` if it is not known. Keeps
/// the records of known messages as [`take`] does, and records no message.
#[expect(clippy::ptr_arg, reason = "the store passes a reference to the value that it was given")]
pub(crate) fn recognise<'a>(
    messages: &'a Vec<(Message, Id)>,
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Vec<Option<Accepted>>, DbError>> {
    Box::pin(async move {
        let known = seen::look(messages, db, now).await?;
        let accepted = |((_, job), before): (&(Message, Id), Option<Id>)| Some(Accepted::of_message(*job, before?));
        Ok(messages.iter().zip(known).map(accepted).collect())
    })
}

/// Whether the database rejected what was to be written, so that it may take other jobs.
pub(crate) fn is_rejection(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<DbError>());
    source.is_some_and(|error| error.kind == DbKind::Other)
}

/// [`take`], as a part of a larger step.
pub(super) async fn take_all(jobs: &[&NewJob], db: Db<'_>, now: i64) -> Result<Vec<Accepted>, DbError> {
    // A job with a key that its caller chose is inserted by itself: it takes more than one statement in any case.
    let messages: Vec<_> = jobs
        .iter()
        .filter(|job| job.key.is_none())
        .filter_map(|job| job.message.map(|message| (message, job.id)))
        .collect();
    let seen = seen::record(&messages, db, now).await?;
    let (mut seen, mut accepted) = (seen.into_iter(), Vec::with_capacity(jobs.len()));
    let mut together: Vec<&NewJob> = Vec::new();
    for job in jobs {
        if job.key.is_some() {
            // The jobs before this one are inserted first, so that the jobs of a lane keep their order.
            jobs::insert_many(&std::mem::take(&mut together), false, db, now).await?;
            accepted.push(jobs::insert(job, db, now).await?);
            continue;
        }
        let seen = if job.message.is_some() { seen.next().unwrap_or(Seen::New) } else { Seen::New };
        accepted.push(match seen {
            Seen::Before(before) => Accepted::of_message(job.id, before),
            Seen::New => {
                together.push(job);
                Accepted::New
            }
        });
    }
    jobs::insert_many(&together, false, db, now).await?;
    Ok(accepted)
}
