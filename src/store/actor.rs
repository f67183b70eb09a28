//! The one task that writes: callers hand over their work and wait for its result.
//!
//! **Why a task of its own.** A future can be dropped between any two of its steps. If a caller drops a transaction in
//! the middle of a round trip, sqlx returns the connection to its pool with the transaction still open (sqlx 0.9.0,
//! PostgreSQL): the next user's statement reports success, and is rolled back later with that transaction. Here only
//! this task's future holds a connection, and that future is never dropped.
//!
//! **Group commit.** A sync to the disk costs milliseconds, however much is written. Work that arrives during one sync
//! goes into the next transaction together. When a piece of work fails, the transaction is rolled back and each piece
//! is run in a transaction of its own, so that none fails because of another. Hence every piece of work can be run
//! twice: work that already took effect (in a commit whose reply was lost) is recognised by ids and fences. Claims and
//! changes of dead letters cannot be recognised by anything, and are not run again once they may have been committed.
//! A group ends at [`GROUP_BYTES`] and at [`STATEMENTS`] too: a larger transaction might not end in time, whenever it is
//! tried.
//!
//! **Time limit.** Every transaction must end within [`TRANSACTION`], the round trips to the database included. A
//! transaction that takes longer is given up and its connection closed, because a connection that was abandoned in the
//! middle of a round trip must not be used again. The caller learns whether the transaction may have been committed:
//! that is open only for errors after `COMMIT` was sent ([`DbError::in_doubt`]). A later try that fails does not remove
//! this doubt, and neither does a transaction for each piece of work by itself.
//!
//! **An unreachable store.** No single piece of work causes this error, so the whole group is retried, and everything
//! that waits behind the group fails with it. If each piece of work were retried alone, each caller would wait for the
//! time limits of all callers before it.
//!
//! **A lock that another program keeps** on a row fails the group after two seconds. Each piece of work is then run by
//! itself, and from the first one that meets a lock they wait for a lock for a moment only: those that do not need the
//! row succeed, and the others fail. If hardly any succeeds, or too many fail, the rest of the group fails untried, so
//! that the work behind it does not wait for long. That work does not fail with it: it may need none of the rows.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::driver::{Connect, DbError, DbKind, Driver, STATEMENTS, TRANSACTION, wait_briefly};
use super::jobs::{self, Accepted, NewJob, Start};
use super::opening;
pub(crate) use super::pieces::Step;
use super::pieces::{Call, Exchange, Group, Insert, Size, Work, end_all, exchanges, started};
use crate::BoxFuture;
use crate::clock::Clock;

/// The most pieces of work in one transaction.
const GROUP: usize = 512;
/// The most bytes of one transaction, unless a single piece of work has more.
const GROUP_BYTES: usize = 8 << 20;
/// The most pieces of work of a group that may meet a lock beyond the number of those that were written.
const LOCKED: usize = 8;
/// The most pieces of work of a group that may meet a lock: together they hold up the writer for some seconds.
pub(super) const MOST_LOCKED: usize = 32;
/// The most pieces of work that wait. Beyond that, callers wait to hand theirs over.
const QUEUE: usize = 4096;
/// No new try begins after this time when the database is unreachable or another transaction is in the way. Longer than
/// [`TRANSACTION`], so that a connection that stopped answering is replaced once before the caller gets the error.
pub(super) const PATIENCE: Duration = Duration::from_secs(7);
/// The wait before the second try; doubled each time, up to the longest. A server that is back is noticed within the
/// longest wait.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_millis(400);

/// Accepts work for a store. The task ends when the last clone of this is dropped and all work is done.
#[derive(Clone)]
pub(crate) struct Actor {
    queue: mpsc::Sender<Box<dyn Work>>,
}

impl Actor {
    /// Connects, migrates the tables, and returns the task that must be spawned.
    pub(crate) async fn write(connect: Arc<dyn Connect>) -> Result<(Actor, BoxFuture<'static, ()>), DbError> {
        let connection = opening::connect(&*connect).await?;
        Ok(Actor::on(connect, connection, true))
    }

    /// An actor on a connection of its own for steps that only read, so that they do not delay the writer.
    pub(crate) async fn read(connect: Arc<dyn Connect>) -> Result<(Actor, BoxFuture<'static, ()>), DbError> {
        let connection = connect.connect().await?;
        Ok(Actor::on(connect, connection, false))
    }

    fn on(connect: Arc<dyn Connect>, connection: Box<dyn Driver>, writes: bool) -> (Actor, BoxFuture<'static, ()>) {
        let (queue, work) = mpsc::channel(QUEUE);
        let task = Task { connect, connection: Some(connection), work, next: None, writes };
        (Actor { queue }, Box::pin(task.run()))
    }

    /// Hands over a job with a new id, and waits for the result.
    pub(crate) async fn insert(&self, job: NewJob) -> Result<Accepted, DbError> {
        let (reply, word) = oneshot::channel();
        self.hand_over(Box::new(Insert { job, output: None, reply }), word).await
    }

    /// Hands over an exchange to be recorded, and waits for the result.
    pub(crate) async fn start(&self, start: Start) -> Result<Option<i64>, DbError> {
        let (reply, word) = oneshot::channel();
        self.hand_over(Box::new(Exchange { start, output: None, reply }), word).await
    }

    /// Hands `step` over and waits for the result. Dropping this future drops only the result. With `once` the step is
    /// not run again once it may have been committed.
    pub(crate) async fn call<I, T>(&self, input: I, step: Step<I, T>, once: bool) -> Result<T, DbError>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (reply, word) = oneshot::channel();
        let size = Size { bytes: 0, statements: 1 };
        self.hand_over(Box::new(Call { input, step, once, size, output: None, reply }), word).await
    }

    /// As [`call`](Self::call), for a step that writes requests or responses, or takes many statements.
    pub(crate) async fn call_of<I, T>(&self, size: Size, input: I, step: Step<I, T>) -> Result<T, DbError>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (reply, word) = oneshot::channel();
        self.hand_over(Box::new(Call { input, step, once: false, size, output: None, reply }), word).await
    }

    async fn hand_over<T>(
        &self,
        work: Box<dyn Work>,
        word: oneshot::Receiver<Result<T, DbError>>,
    ) -> Result<T, DbError> {
        let closed = || DbError::new(DbKind::Unreachable, "the store has been closed");
        self.queue.send(work).await.map_err(|_| closed())?;
        // The task ended in the middle of this work, with the runtime; it is unknown how far it came.
        word.await.map_err(|_| closed().in_doubt())?
    }
}

struct Task {
    connect: Arc<dyn Connect>,
    /// `None` after the connection broke.
    connection: Option<Box<dyn Driver>>,
    work: mpsc::Receiver<Box<dyn Work>>,
    /// Work that did not fit into the group before.
    next: Option<Box<dyn Work>>,
    writes: bool,
}

/// How far a transaction had come when it failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Stage {
    /// No work had run: no work caused the failure.
    Begin,
    Work,
    /// `COMMIT` had been sent.
    Commit,
}

/// A transaction that failed and is not retried.
struct Failed {
    error: DbError,
    stage: Stage,
}

impl Failed {
    /// Whether any other work would have failed in the same way.
    fn is_of_the_store(&self) -> bool {
        self.stage == Stage::Begin || self.error.kind == DbKind::Unreachable
    }
}

impl Task {
    /// The next pieces of work that are run together; `None` when there will be no more.
    async fn group(&mut self) -> Option<Group> {
        let first = match self.next.take() {
            Some(first) => first,
            None => self.work.recv().await?,
        };
        let (mut bytes, mut statements, mut group) = (first.bytes(), first.statements(), vec![first]);
        while group.len() < GROUP
            && let Ok(more) = self.work.try_recv()
        {
            bytes = bytes.saturating_add(more.bytes());
            statements = statements.saturating_add(more.statements());
            if bytes > GROUP_BYTES || statements > STATEMENTS {
                self.next = Some(more);
                break;
            }
            group.push(more);
        }
        Some(group)
    }

    async fn run(mut self) {
        while let Some(mut group) = self.group().await {
            match self.commit(&mut group, false, false).await {
                Ok(()) => end_all(group, &Ok(())),
                Err(failed) if failed.is_of_the_store() => self.fail_all(group, failed.error),
                Err(failed) if group.len() == 1 => end_all(group, &Err(failed.error)),
                Err(failed) => {
                    let error = &failed.error;
                    tracing::debug!(%error, together = group.len(), "a group of writes failed; each is tried by itself");
                    self.each_alone(group, error.may_be_committed(), error.kind == DbKind::Locked).await;
                }
            }
        }
    }

    /// Runs each piece of work in a transaction of its own. `in_doubt` says that the group may have been committed, and
    /// `is_brief` that it has waited for a lock.
    async fn each_alone(&mut self, group: Group, in_doubt: bool, mut is_brief: bool) {
        let (mut group, mut locked, mut written) = (group.into_iter(), 0usize, 0usize);
        while let Some(work) = group.next() {
            let mut alone = vec![work];
            let Err(failed) = self.commit(&mut alone, in_doubt, is_brief).await else {
                written += 1;
                end_all(alone, &Ok(()));
                continue;
            };
            end_all(alone, &Err(failed.error.clone()));
            let (is_locked, is_of_the_store) = (failed.error.kind == DbKind::Locked, failed.is_of_the_store());
            is_brief |= is_locked;
            locked += usize::from(is_locked);
            // The others were not part of this transaction.
            let error = if in_doubt { failed.error } else { failed.error.certain() };
            if is_of_the_store {
                return self.fail_all(group.collect(), error);
            }
            if is_locked && locked >= MOST_LOCKED.min(written + LOCKED) {
                return end_all(group, &Err(error));
            }
        }
    }

    /// Ends `group` with an error of the store, and all waiting work too, because the waiting work would fail in the
    /// same way, only later.
    fn fail_all(&mut self, group: Group, error: DbError) {
        let nothing_written = Err(error.clone().certain());
        end_all(group, &Err(error));
        end_all(self.next.take(), &nothing_written);
        while let Ok(work) = self.work.try_recv() {
            work.end(nothing_written.clone());
        }
    }

    /// Runs `group` in one transaction, and retries for up to [`PATIENCE`] if a retry may help. Work that must not be
    /// run again leaves the group with the error once it may have been committed; a group that became empty is done.
    /// `in_doubt` says that an earlier transaction with this work may have been committed, and `is_brief` that it waits
    /// for locks for a moment only.
    async fn commit(&mut self, group: &mut Group, mut in_doubt: bool, is_brief: bool) -> Result<(), Failed> {
        let clock = Clock::system();
        let (began, mut wait) = (clock.now(), FIRST_WAIT);
        for number in 1u32.. {
            let mut stage = Stage::Begin;
            let run = self.transaction(group, in_doubt, is_brief, &mut stage);
            let result = timeout(TRANSACTION, run).await.unwrap_or_else(|_| {
                let message = format!("the database did not answer within {} s", TRANSACTION.as_secs());
                Err(DbError::new(DbKind::Unreachable, message))
            });
            let Err(error) = result else { return Ok(()) };
            // An error that the database returns for COMMIT means that nothing was committed. An error of the disk
            // leaves that open.
            in_doubt |= stage == Stage::Commit && matches!(error.kind, DbKind::Unreachable | DbKind::Storage);
            match error.kind {
                // The connection was abandoned in the middle of a round trip, or is useless.
                DbKind::Unreachable => self.connection = None,
                _ => self.undo().await,
            }
            let error = if in_doubt { error.in_doubt() } else { error };
            if in_doubt {
                let (once, again): (Group, Group) = std::mem::take(group).into_iter().partition(|w| w.is_run_once());
                end_all(once, &Err(error.clone()));
                *group = again;
            }
            // The break of one connection does not say that the store is away. The next group finds that out.
            if group.is_empty() {
                return Ok(());
            }
            let may_help = matches!(error.kind, DbKind::Unreachable | DbKind::Again);
            if !may_help || clock.now().since(began) + wait > PATIENCE {
                return Err(Failed { error, stage });
            }
            tracing::debug!(%error, number, "the store could not be written or read, and is tried again");
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(())
    }

    /// Runs `group` in one transaction, once. `in_doubt` says that an earlier try may have been committed. `stage` reports
    /// how far the transaction came, even if this future is dropped.
    async fn transaction(
        &mut self,
        group: &mut Group,
        in_doubt: bool,
        is_brief: bool,
        stage: &mut Stage,
    ) -> Result<(), DbError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            // Without a connection all work fails, whatever the cause.
            none => none.insert(self.connect.connect().await.map_err(DbError::unreachable)?),
        };
        let now = connection.begin(self.writes).await?;
        if is_brief {
            wait_briefly(&mut **connection).await?;
        }
        *stage = Stage::Work;
        let new: Vec<&NewJob> = group.iter().filter_map(|work| work.new_job()).collect();
        let are_together = new.len() > 1;
        if are_together {
            jobs::insert_many(&new, in_doubt, &mut **connection, now).await?;
        }
        let mut begun = started(exchanges(group), &mut **connection, now).await?;
        for work in group {
            if let Some(number) = work.exchange().and_then(|start| begun.remove(&start.id)) {
                work.set_started(number);
            } else if are_together && work.new_job().is_some() {
                work.set_inserted();
            } else {
                work.run(&mut **connection, now).await?;
            }
        }
        *stage = Stage::Commit;
        connection.execute("COMMIT", Vec::new()).await.map(drop)
    }

    /// Rolls back. If that fails, the connection is closed.
    async fn undo(&mut self) {
        if let Some(connection) = &mut self.connection {
            let undone = timeout(TRANSACTION, connection.execute("ROLLBACK", Vec::new())).await;
            if !matches!(undone, Ok(Ok(_))) {
                self.connection = None;
            }
        }
    }
}
