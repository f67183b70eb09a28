//! A process is stopped between two statements of one step for longer than its lease, and another process takes its job
//! over.
//!
//! This concerns PostgreSQL only. On a SQLite file one process works, and a transaction that writes has the file to
//! itself.

use super::super::dead::NewDead;
use super::super::driver::{Arg, Db, DbError, Dialect, Driver, Row};
use super::super::jobs::{self, End, JobEnd};
use super::super::{owners, postgres, records};
use super::*;
use crate::BoxFuture;

/// A connection, and the number of the statement before which another process acts.
struct InterruptedDriver {
    connection: Box<dyn Driver>,
    before: usize,
    statements: usize,
    other: Opened,
    owner: Id,
    taken: bool,
}

impl InterruptedDriver {
    /// Counts a statement. Before the statement with the number `before`, the lease ends and another process takes the
    /// job over.
    async fn step(&mut self) {
        self.statements += 1;
        if self.statements == self.before {
            self.other.write(silent(self.owner), owners::take_over).await.unwrap();
            self.taken = !claim(&self.other, id(), "a", 10).await.is_empty();
        }
    }
}

impl Driver for InterruptedDriver {
    fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }

    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            self.step().await;
            self.connection.execute(sql, args).await
        })
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move {
            self.step().await;
            self.connection.fetch(sql, args).await
        })
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        self.connection.now()
    }
}

/// The names of the tables that hold the job.
async fn places(db: Db<'_>, id: Id) -> Vec<String> {
    let sql = "SELECT 'job' FROM ic_job WHERE id = $1 UNION ALL SELECT 'done' FROM ic_done WHERE id = $1 \
               UNION ALL SELECT 'dead' FROM ic_dead WHERE id = $1";
    let rows = db.fetch(sql, vec![Arg::from(id.as_bytes().as_slice())]).await.unwrap();
    rows.into_iter().map(|mut row| row.text().unwrap()).collect()
}

/// Runs `step` on a job, which another process tries to take over before the statement `before`. Returns whether the
/// takeover succeeded, whether the step reports success, and in which tables the job is in the end.
async fn run_with_takeover(
    claimed: bool,
    before: usize,
    step: impl AsyncFn(Id, i64, Db<'_>, i64) -> bool,
) -> (bool, bool, Vec<String>) {
    let url = database().await;
    let store = Store::postgres(url.clone());
    let (ours, other) = (open(&store).await, open(&store).await);
    let job = accept(&ours, job("a")).await;
    let owner = id();
    let fence = match claimed {
        true => claim(&ours, owner, "a", 1).await[0].fence,
        false => 0,
    };
    let connection = postgres::open(&url).unwrap().connect().await.unwrap();
    let mut stopped = InterruptedDriver { connection, before, statements: 0, other, owner, taken: false };
    stopped.connection.execute("BEGIN", Vec::new()).await.unwrap();
    let now = stopped.now().await.unwrap();
    let told = step(job, fence, &mut stopped, now).await;
    stopped.connection.execute("COMMIT", Vec::new()).await.unwrap();
    (stopped.taken, told, places(&mut *stopped.connection, job).await)
}

fn ends(id: Id) -> Vec<(&'static str, End, &'static str)> {
    let dead = NewDead {
        id,
        lane: lane("a"),
        reason: "rejected".to_owned(),
        letter: b"{}".to_vec(),
        request: None,
        keep_result: false,
        reply: None,
    };
    vec![
        ("delivered", End::Delivered { status: 200, attempts: 1, result: None, reply: None }, "done"),
        (
            "with its answer",
            End::Delivered { status: 200, attempts: 1, result: Some(b"body".to_vec()), reply: None },
            "done",
        ),
        ("dead", End::Dead(Box::new(dead)), "dead"),
        ("later", End::Later { after_ms: 60_000, expires_at: None, history: Vec::new() }, "job"),
        ("back", End::Back, "job"),
        ("dropped", End::Dropped, "job"),
    ]
}

#[tokio::test]
async fn job_taken_over_while_ending_exists_once() {
    for number in 0..ends(id()).len() {
        // Several ends at once use other statements than a single one.
        for together in [false, true] {
            for before in 1..=3 {
                let (of_another, told, places) = run_with_takeover(true, before, async |id, fence, db, now| {
                    let finish = JobEnd { id, fence, known: None, end: ends(id).remove(number).1 };
                    let stranger = JobEnd { id: super::id(), fence, ..finish.clone() };
                    let finishes = if together { vec![finish, stranger] } else { vec![finish] };
                    jobs::finish(&finishes, db, now).await.unwrap()[0]
                })
                .await;
                let (name, _, place) = ends(id()).remove(number);
                let case = format!("{name}, together: {together}, before statement {before}");
                // A delivery counts even if another process has the job.
                assert_eq!(told, !of_another || place == "done", "{case}");
                assert_eq!(places, [if told { place } else { "job" }], "{case}");
                // Several ends that are not written together begin with a look at which of their jobs exist.
                let first = if together && name == "dropped" { 2 } else { 1 };
                assert_eq!(of_another, before <= first, "{case}: only the first statement that writes holds the job");
            }
        }
    }
}

#[tokio::test]
async fn job_claimed_while_cancelled_exists_once() {
    for before in 1..=3 {
        let (of_another, told, places) =
            run_with_takeover(false, before, async |id, _, db, now| records::cancel(&id, db, now).await.unwrap()).await;
        assert_eq!(told, !of_another, "before statement {before}");
        assert_eq!(places, [if told { "done" } else { "job" }], "before statement {before}");
    }
}
