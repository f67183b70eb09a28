//! The pieces of work that callers hand to the [writer](super::actor), and what the pieces of one transaction do
//! together: the new jobs of a group go into one statement, and so do its exchanges.

use std::collections::{HashMap, HashSet};

use tokio::sync::oneshot;

use super::driver::{Db, DbError, DbKind};
use super::jobs::{self, Accepted, NewJob, Start};
use super::{Id, starts};
use crate::BoxFuture;

/// A piece of work: a function of its input, the connection and the store's time. May be run more than once.
pub(crate) type Step<I, T> = for<'a> fn(&'a I, Db<'a>, i64) -> BoxFuture<'a, Result<T, DbError>>;

pub(super) trait Work: Send {
    fn run<'a>(&'a mut self, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>>;
    /// Sends the result of the last run to the caller.
    fn end(self: Box<Self>, result: Result<(), DbError>);
    /// Whether the work must not be run again once it may have been committed, because then only its caller can find
    /// out what it did.
    fn is_run_once(&self) -> bool {
        false
    }
    /// The bytes of requests and responses that the work writes.
    fn bytes(&self) -> usize {
        0
    }
    /// About how many statements the work takes of its own, beside those that it has in common with others of its group.
    fn statements(&self) -> usize;
    /// The new job that this work inserts. The new jobs of a group go into one statement.
    fn new_job(&self) -> Option<&NewJob> {
        None
    }
    /// Records that the job of [`new_job`](Self::new_job) was inserted.
    fn set_inserted(&mut self) {}
    /// The exchange that this work records. The exchanges of a group go into one statement.
    fn exchange(&self) -> Option<&Start> {
        None
    }
    /// Records the number of the exchange that has begun; `None` if another process has the job.
    fn set_started(&mut self, _begun: Option<i64>) {}
}

/// Records an exchange that is about to leave.
pub(super) struct Exchange {
    pub(super) start: Start,
    pub(super) output: Option<Option<i64>>,
    pub(super) reply: oneshot::Sender<Result<Option<i64>, DbError>>,
}

impl Work for Exchange {
    fn run<'a>(&'a mut self, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
        Box::pin(async move {
            self.output = Some(starts::start(&self.start, db, now).await?);
            Ok(())
        })
    }

    fn end(self: Box<Self>, result: Result<(), DbError>) {
        let output = self.output.ok_or_else(|| DbError::new(DbKind::Other, "the store did not run the work"));
        let _ = self.reply.send(result.and(output));
    }

    fn statements(&self) -> usize {
        usize::from(self.start.again)
    }

    fn exchange(&self) -> Option<&Start> {
        // If the exchange is recorded already, only its usage is added, which the statement for many exchanges cannot
        // do.
        Some(&self.start).filter(|start| !start.again)
    }

    fn set_started(&mut self, begun: Option<i64>) {
        self.output = Some(begun);
    }
}

/// Inserts a job that was never written before: its id is new, and it has no key.
pub(super) struct Insert {
    pub(super) job: NewJob,
    pub(super) output: Option<Accepted>,
    pub(super) reply: oneshot::Sender<Result<Accepted, DbError>>,
}

impl Work for Insert {
    fn run<'a>(&'a mut self, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
        Box::pin(async move {
            self.output = Some(jobs::insert(&self.job, db, now).await?);
            Ok(())
        })
    }

    fn end(self: Box<Self>, result: Result<(), DbError>) {
        let output = self.output.ok_or_else(|| DbError::new(DbKind::Other, "the store did not run the work"));
        let _ = self.reply.send(result.and(output));
    }

    fn bytes(&self) -> usize {
        self.job.request.len()
    }

    fn statements(&self) -> usize {
        0
    }

    fn new_job(&self) -> Option<&NewJob> {
        Some(&self.job)
    }

    fn set_inserted(&mut self) {
        self.output = Some(Accepted::New);
    }
}

/// How much a step writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    /// The bytes of requests and responses.
    pub(crate) bytes: usize,
    /// About how many statements.
    pub(crate) statements: usize,
}

/// Runs a step.
pub(super) struct Call<I, T> {
    pub(super) input: I,
    pub(super) step: Step<I, T>,
    pub(super) once: bool,
    pub(super) size: Size,
    pub(super) output: Option<T>,
    pub(super) reply: oneshot::Sender<Result<T, DbError>>,
}

impl<I: Send + Sync, T: Send> Work for Call<I, T> {
    fn run<'a>(&'a mut self, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
        Box::pin(async move {
            self.output = Some((self.step)(&self.input, db, now).await?);
            Ok(())
        })
    }

    fn end(self: Box<Self>, result: Result<(), DbError>) {
        let output = self.output.ok_or_else(|| DbError::new(DbKind::Other, "the store did not run the work"));
        // The caller may have gone away; the work was done all the same.
        let _ = self.reply.send(result.and(output));
    }

    fn is_run_once(&self) -> bool {
        self.once
    }

    fn bytes(&self) -> usize {
        self.size.bytes
    }

    fn statements(&self) -> usize {
        self.size.statements
    }
}

/// The work of one transaction.
pub(super) type Group = Vec<Box<dyn Work>>;

/// Ends all work of a group with the same result.
pub(super) fn end_all(group: impl IntoIterator<Item = Box<dyn Work>>, result: &Result<(), DbError>) {
    group.into_iter().for_each(|work| work.end(result.clone()));
}

/// Returns the exchanges of a group that go into one statement; none if there is only one. If the group holds several
/// exchanges of one job, only the first is among them. The statement is for the jobs of one owner: all work of one
/// process has the same owner.
pub(super) fn exchanges(group: &Group) -> Vec<&Start> {
    let mut jobs = HashSet::new();
    let starts: Vec<&Start> =
        group.iter().filter_map(|work| work.exchange()).filter(|start| jobs.insert(start.id)).collect();
    let is_of_one = starts.first().is_some_and(|first| starts.iter().all(|start| start.owner == first.owner));
    if is_of_one && starts.len() > 1 { starts } else { Vec::new() }
}

/// Records exchanges in one statement. Returns for each job the number of its exchange, or `None` if another process
/// has the job.
pub(super) async fn started(starts: Vec<&Start>, db: Db<'_>, now: i64) -> Result<HashMap<Id, Option<i64>>, DbError> {
    let begun = starts::start_many(&starts, db, now).await?;
    Ok(starts.iter().map(|start| (start.id, begun.get(&start.id).copied())).collect())
}
