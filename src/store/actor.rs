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
//! found by anything, and are run once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::driver::{Connect, Db, DbError, DbKind, Dialect, Driver};
use super::jobs::{self, Accepted, NewJob, TOGETHER};
use super::schema;
use crate::clock::Clock;
use crate::transport::BoxFuture;

/// In one transaction at most.
const GROUP: usize = 256;
/// Handed over and not begun. Callers wait beyond that.
const QUEUE: usize = 4096;
/// For how long work is tried when the database cannot be reached or others are in its way.
const PATIENCE: Duration = Duration::from_secs(6);
/// Before the second try; doubled each time, up to the longest. A server that is back is noticed by then.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_millis(400);

/// A piece of work: a function of its input, the connection and the store's clock. May be run more than once.
pub(crate) type Step<I, T> = for<'a> fn(&'a I, Db<'a>, i64) -> BoxFuture<'a, Result<T, DbError>>;

trait Work: Send {
    fn run<'a>(&'a mut self, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>>;
    /// Tells the caller, with what the last run brought.
    fn end(self: Box<Self>, result: Result<(), DbError>);
    /// It must not be run again where it may have happened: only its caller can tell what it did.
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
        let mut connection = connect.connect().await?;
        schema::open(&mut *connection).await?;
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
        let ended = || DbError::new(DbKind::Unreachable, "the store has been closed");
        let insert = Box::new(Insert { job, output: None, reply });
        self.queue.send(insert).await.map_err(|_| ended())?;
        word.await.map_err(|_| ended())?
    }

    /// Hands `step` over and waits for its end. Dropping this future drops nothing but the word about it. With `once` an
    /// [unreachable](DbKind::Unreachable) store may have done it, and it is not run again.
    pub(crate) async fn call<I, T>(&self, input: I, step: Step<I, T>, once: bool) -> Result<T, DbError>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (reply, word) = oneshot::channel();
        let ended = || DbError::new(DbKind::Unreachable, "the store has been closed");
        let call = Box::new(Call { input, step, once, output: None, reply });
        self.queue.send(call).await.map_err(|_| ended())?;
        word.await.map_err(|_| ended())?
    }
}

async fn begin(db: Db<'_>, writes: bool) -> Result<(), DbError> {
    // A transaction that reads first and writes then would be refused where another writes in between.
    let sql = match db.dialect() {
        Dialect::Sqlite if writes => "BEGIN IMMEDIATE",
        _ => "BEGIN",
    };
    db.execute(sql, Vec::new()).await.map(drop)
}

struct Task {
    connect: Arc<dyn Connect>,
    /// None after it broke.
    connection: Option<Box<dyn Driver>>,
    work: mpsc::Receiver<Box<dyn Work>>,
    writes: bool,
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
            let patience = if group.len() > 1 { Duration::ZERO } else { PATIENCE };
            match self.commit(&mut group, patience).await {
                Ok(()) => group.into_iter().for_each(|work| work.end(Ok(()))),
                Err(error) if group.len() == 1 => group.into_iter().for_each(|work| work.end(Err(error.clone()))),
                Err(error) => {
                    tracing::debug!(%error, together = group.len(), "a group of writes failed; each is tried by itself");
                    let mut patience = PATIENCE;
                    for work in group {
                        if error.kind == DbKind::Unreachable && work.is_run_once() {
                            work.end(Err(error.clone()));
                            continue;
                        }
                        let mut alone = vec![work];
                        let result = self.commit(&mut alone, patience).await;
                        if matches!(&result, Err(error) if error.kind == DbKind::Unreachable) {
                            // The others need not wait as long once more.
                            patience = Duration::ZERO;
                        }
                        alone.into_iter().for_each(|work| work.end(result.clone()));
                    }
                }
            }
        }
    }

    /// Runs `group` in one transaction, again for as long as `patience` says where that may help.
    async fn commit(&mut self, group: &mut [Box<dyn Work>], patience: Duration) -> Result<(), DbError> {
        let clock = Clock::system();
        let (began, mut wait) = (clock.now(), FIRST_WAIT);
        for number in 1u32.. {
            let Err(error) = self.transaction(group, number == 1).await else { break };
            let may_help = match error.kind {
                DbKind::Unreachable => !group.iter().any(|work| work.is_run_once()),
                kind => kind == DbKind::Again,
            };
            match error.kind {
                DbKind::Unreachable => self.connection = None,
                _ => self.undo().await,
            }
            if !may_help || clock.now().since(began) + wait > patience {
                return Err(error);
            }
            tracing::warn!(%error, number, "the store could not be reached, and is tried again");
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(())
    }

    /// `fresh`: none of it can have been written already.
    async fn transaction(&mut self, group: &mut [Box<dyn Work>], fresh: bool) -> Result<(), DbError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.connect.connect().await?),
        };
        begin(&mut **connection, self.writes).await?;
        let now = connection.now().await?;
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
        connection.execute("COMMIT", Vec::new()).await.map(drop)
    }

    /// What cannot be undone is dropped with its connection.
    async fn undo(&mut self) {
        if let Some(connection) = &mut self.connection
            && connection.execute("ROLLBACK", Vec::new()).await.is_err()
        {
            self.connection = None;
        }
    }
}
