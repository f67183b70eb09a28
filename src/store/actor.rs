//! The one task that writes: whoever wants something written hands it over and waits for the word.
//!
//! **Why a task of its own.** A future can be dropped between any two of its steps. A transaction that its caller drops in
//! the middle of a round trip goes back to sqlx's pool while it is still open (sqlx 0.9.0, PostgreSQL): the next writer's
//! statement says that it worked, and is rolled back with it later. Here nobody's future holds a connection but this task's,
//! and nobody drops that.
//!
//! **Group commit.** A sync to the disk costs milliseconds, however much is written. While one is under way others
//! line up, and go into the next transaction together. When one of them fails, the transaction is undone and each is run
//! by itself, so that nobody fails for another's sake. Hence everything that is handed over can be run twice: what may
//! have happened already (a commit whose word was lost) is found to have happened, by ids and fences. Claims alone cannot be
//! found by anything, and are not run again once they may have been committed.
//!
//! **Time limit.** Every transaction has [`TRANSACTION`] to end, the way to the database and back included. One that takes
//! longer is given up and its connection closed: a connection that is dropped in the middle of a round trip must not be
//! used again. The caller is told whether the transaction may have been committed: only an error that comes after `COMMIT` was
//! sent leaves that open ([`DbError::in_doubt`]).
//!
//! **An unreachable store is no work's fault.** Then the whole group is tried again, and everything that waits behind it
//! fails with it. To try each piece of work by itself would cost every caller the time limit of all callers before it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::driver::{Connect, Db, DbError, DbKind, Driver};
use super::jobs::{self, Accepted, NewJob, TOGETHER};
use super::schema;
use crate::BoxFuture;
use crate::clock::Clock;

/// In one transaction at most.
const GROUP: usize = 256;
/// Handed over and not begun. Callers wait beyond that.
const QUEUE: usize = 4096;
/// The longest that one try of a transaction may take, connecting included. A commit takes milliseconds, the largest claim
/// well below a second.
pub(super) const TRANSACTION: Duration = Duration::from_secs(6);
/// After this no new try begins when the database cannot be reached or others are in the way. Longer than
/// [`TRANSACTION`], so that a connection that stopped answering is replaced once before the caller is told.
const PATIENCE: Duration = Duration::from_secs(7);
/// Before the second try; doubled each time, up to the longest. A server that is back is noticed by then.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_millis(400);

/// A piece of work: a function of its input, the connection and the store's clock. May be run more than once.
pub(crate) type Step<I, T> = for<'a> fn(&'a I, Db<'a>, i64) -> BoxFuture<'a, Result<T, DbError>>;

trait Work: Send {
    fn run<'a>(&'a mut self, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>>;
    /// Tells the caller, with what the last run brought.
    fn end(self: Box<Self>, result: Result<(), DbError>);
    /// It must not be run again where it may have been committed: only its caller can tell what it did.
    fn is_run_once(&self) -> bool {
        false
    }
    /// A new job, of which many go into one statement.
    fn new_job(&self) -> Option<&NewJob> {
        None
    }
    /// Its job is in.
    fn is_in(&mut self) {}
}

/// A job that was never written before: its id was made a moment ago, and it has no key.
struct Insert {
    job: NewJob,
    output: Option<Accepted>,
    reply: oneshot::Sender<Result<Accepted, DbError>>,
}

impl Work for Insert {
    fn run<'a>(&'a mut self, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
        Box::pin(async move {
            self.output = Some(jobs::insert(&self.job, db, now).await?);
            Ok(())
        })
    }

    fn end(self: Box<Self>, result: Result<(), DbError>) {
        let output = self.output.ok_or_else(|| DbError::new(DbKind::Other, "the store did not get to it"));
        let _ = self.reply.send(result.and(output));
    }

    fn new_job(&self) -> Option<&NewJob> {
        Some(&self.job)
    }

    fn is_in(&mut self) {
        self.output = Some(Accepted::New);
    }
}

struct Call<I, T> {
    input: I,
    step: Step<I, T>,
    once: bool,
    output: Option<T>,
    reply: oneshot::Sender<Result<T, DbError>>,
}

impl<I: Send + Sync, T: Send> Work for Call<I, T> {
    fn run<'a>(&'a mut self, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
        Box::pin(async move {
            self.output = Some((self.step)(&self.input, db, now).await?);
            Ok(())
        })
    }

    fn end(self: Box<Self>, result: Result<(), DbError>) {
        let output = self.output.ok_or_else(|| DbError::new(DbKind::Other, "the store did not get to it"));
        // Whoever has gone away has left the work to us all the same.
        let _ = self.reply.send(result.and(output));
    }

    fn is_run_once(&self) -> bool {
        self.once
    }
}

/// Takes work for a store. The task ends when the last of these is gone and all is done.
#[derive(Clone)]
pub(crate) struct Actor {
    queue: mpsc::Sender<Box<dyn Work>>,
}

impl Actor {
    /// Connects, brings the tables up to date, and returns the task that must be spawned.
    pub(crate) async fn write(connect: Arc<dyn Connect>) -> Result<(Actor, BoxFuture<'static, ()>), DbError> {
        let connection = schema::connect(&*connect).await?;
        Ok(Actor::on(connect, connection, true))
    }

    /// The same for those who only read, and hold up no writer.
    pub(crate) async fn read(connect: Arc<dyn Connect>) -> Result<(Actor, BoxFuture<'static, ()>), DbError> {
        let connection = connect.connect().await?;
        Ok(Actor::on(connect, connection, false))
    }

    fn on(connect: Arc<dyn Connect>, connection: Box<dyn Driver>, writes: bool) -> (Actor, BoxFuture<'static, ()>) {
        let (queue, work) = mpsc::channel(QUEUE);
        let task = Task { connect, connection: Some(connection), work, writes };
        (Actor { queue }, Box::pin(task.run()))
    }

    /// Hands a new job over, whose id nobody has seen, and waits for its end.
    pub(crate) async fn insert(&self, job: NewJob) -> Result<Accepted, DbError> {
        let (reply, word) = oneshot::channel();
        self.hand_over(Box::new(Insert { job, output: None, reply }), word).await
    }

    /// Hands `step` over and waits for its end. Dropping this future drops nothing but the word about it. With `once` it is
    /// not run again where it may have been committed.
    pub(crate) async fn call<I, T>(&self, input: I, step: Step<I, T>, once: bool) -> Result<T, DbError>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (reply, word) = oneshot::channel();
        self.hand_over(Box::new(Call { input, step, once, output: None, reply }), word).await
    }

    async fn hand_over<T>(
        &self,
        work: Box<dyn Work>,
        word: oneshot::Receiver<Result<T, DbError>>,
    ) -> Result<T, DbError> {
        let closed = || DbError::new(DbKind::Unreachable, "the store has been closed");
        self.queue.send(work).await.map_err(|_| closed())?;
        // The task ended with the work in hand: with the runtime, in the middle of whatever it did.
        word.await.map_err(|_| closed().in_doubt())?
    }
}

struct Task {
    connect: Arc<dyn Connect>,
    /// None after it broke.
    connection: Option<Box<dyn Driver>>,
    work: mpsc::Receiver<Box<dyn Work>>,
    writes: bool,
}

/// How far a transaction had come when it failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Stage {
    /// No work was run: the failure is no work's fault.
    Begin,
    Work,
    /// `COMMIT` was sent.
    Commit,
}

/// A transaction that failed for good.
struct Failed {
    error: DbError,
    stage: Stage,
}

impl Failed {
    /// Whether the same would have happened to any other work.
    fn is_of_the_store(&self) -> bool {
        self.stage == Stage::Begin || self.error.kind == DbKind::Unreachable
    }
}

type Group = Vec<Box<dyn Work>>;

fn end_all(group: impl IntoIterator<Item = Box<dyn Work>>, result: &Result<(), DbError>) {
    group.into_iter().for_each(|work| work.end(result.clone()));
}

impl Task {
    async fn run(mut self) {
        while let Some(first) = self.work.recv().await {
            let mut group = vec![first];
            while group.len() < GROUP
                && let Ok(more) = self.work.try_recv()
            {
                group.push(more);
            }
            match self.commit(&mut group).await {
                Ok(()) => end_all(group, &Ok(())),
                Err(failed) if failed.is_of_the_store() => self.fail_all(group, failed.error),
                Err(failed) if group.len() == 1 => end_all(group, &Err(failed.error)),
                Err(failed) => {
                    let error = &failed.error;
                    tracing::debug!(%error, together = group.len(), "a group of writes failed; each is tried by itself");
                    self.each_alone(group).await;
                }
            }
        }
    }

    async fn each_alone(&mut self, group: Group) {
        let mut group = group.into_iter();
        while let Some(work) = group.next() {
            let mut alone = vec![work];
            match self.commit(&mut alone).await {
                Ok(()) => end_all(alone, &Ok(())),
                Err(failed) if failed.is_of_the_store() => {
                    let left = alone.into_iter().chain(group).collect();
                    return self.fail_all(left, failed.error);
                }
                Err(failed) => end_all(alone, &Err(failed.error)),
            }
        }
    }

    /// Ends `group` with an error of the store, and with it all that waits: it would fail in the same way, only later.
    fn fail_all(&mut self, group: Group, error: DbError) {
        let nothing_written = Err(error.clone().certain());
        end_all(group, &Err(error));
        while let Ok(work) = self.work.try_recv() {
            work.end(nothing_written.clone());
        }
    }

    /// Runs `group` in one transaction, again for as long as [`PATIENCE`] says where that may help. Work that must not be run
    /// again leaves the group with the error once it may have been committed.
    async fn commit(&mut self, group: &mut Group) -> Result<(), Failed> {
        let clock = Clock::system();
        let (began, mut wait, mut in_doubt) = (clock.now(), FIRST_WAIT, false);
        for number in 1u32.. {
            let mut stage = Stage::Begin;
            let run = self.transaction(group, number == 1, &mut stage);
            let result = timeout(TRANSACTION, run).await.unwrap_or_else(|_| {
                let message = format!("the database did not answer within {} s", TRANSACTION.as_secs());
                Err(DbError::new(DbKind::Unreachable, message))
            });
            let Err(error) = result else { return Ok(()) };
            // An error of the database in answer to COMMIT says that nothing was committed. A disk that fails says nothing.
            in_doubt |= stage == Stage::Commit && matches!(error.kind, DbKind::Unreachable | DbKind::Storage);
            match error.kind {
                // Dropped in the middle of a round trip, or of no use any more.
                DbKind::Unreachable => self.connection = None,
                _ => self.undo().await,
            }
            let error = if in_doubt { error.in_doubt() } else { error };
            if in_doubt {
                let (once, again): (Group, Group) = std::mem::take(group).into_iter().partition(|w| w.is_run_once());
                end_all(once, &Err(error.clone()));
                *group = again;
            }
            let may_help = matches!(error.kind, DbKind::Unreachable | DbKind::Again) && !group.is_empty();
            if !may_help || clock.now().since(began) + wait > PATIENCE {
                return Err(Failed { error, stage });
            }
            tracing::debug!(%error, number, "the store could not be written or read, and is tried again");
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(())
    }

    /// `fresh`: none of it can have been written already. `stage`: how far it came, also where this future is dropped.
    async fn transaction(&mut self, group: &mut Group, fresh: bool, stage: &mut Stage) -> Result<(), DbError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            // Whatever keeps a connection from being made is the store's trouble, and no work's.
            none => none.insert(self.connect.connect().await.map_err(DbError::unreachable)?),
        };
        let now = connection.begin(self.writes).await?;
        *stage = Stage::Work;
        let new: Vec<&NewJob> = group.iter().filter_map(|work| work.new_job()).collect();
        let mut together = if fresh { new.len() / TOGETHER * TOGETHER } else { 0 };
        for jobs in new[..together].chunks_exact(TOGETHER) {
            jobs::insert_many(jobs, &mut **connection, now).await?;
        }
        for work in group {
            if together > 0 && work.new_job().is_some() {
                together -= 1;
                work.is_in();
            } else {
                work.run(&mut **connection, now).await?;
            }
        }
        *stage = Stage::Commit;
        connection.execute("COMMIT", Vec::new()).await.map(drop)
    }

    /// What cannot be undone is dropped with its connection.
    async fn undo(&mut self) {
        if let Some(connection) = &mut self.connection {
            let undone = timeout(TRANSACTION, connection.execute("ROLLBACK", Vec::new())).await;
            if !matches!(undone, Ok(Ok(_))) {
                self.connection = None;
            }
        }
    }
}
