//! How much the statements read in SQLite, whatever its statistics say. That is measured in steps of SQLite's virtual
//! machine, not in time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};

use super::super::dead::NewDead;
use super::super::jobs::{End, JobEnd, Start};
use super::*;

/// A connection that counts the steps of its statements.
struct StepCounter {
    connection: SqliteConnection,
    steps: Arc<AtomicU64>,
}

impl StepCounter {
    async fn open(path: &Path) -> StepCounter {
        let mut connection = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
        let steps = Arc::new(AtomicU64::new(0));
        let count = steps.clone();
        connection.lock_handle().await.unwrap().set_progress_handler(1, move || {
            count.fetch_add(1, Relaxed);
            true
        });
        StepCounter { connection, steps }
    }

    async fn run(&mut self, sql: String) {
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut self.connection).await.unwrap();
    }

    fn take_steps(&self) -> u64 {
        self.steps.swap(0, Relaxed)
    }

    /// Inserts `large` jobs of one tenant, and `small` jobs of each of 10,000 others, which became due after those of
    /// the large tenant.
    async fn fill(&mut self, large: u32, small: u32) {
        self.run(format!(
            "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, enqueued_at, request) \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {large} + {small} * 10000) \
             SELECT randomblob(16), iif(i <= {large}, 'large', 't' || (i % 10000)), 'v', 1, i, i, randomblob(200) FROM n"
        ))
        .await;
    }
}

/// The steps that a claim, the starts and the ends take for each job.
async fn steps_a_job(
    counted: &mut StepCounter,
    lanes: Vec<LaneClaim>,
    owner: Id,
    end: fn(&Claimed) -> End,
) -> [u64; 3] {
    let now = 1 << 40;
    counted.take_steps();
    let wanted = Wanted { owner, lease_ms: 60_000, lanes, most_bytes: 1 << 30 };
    let claimed = jobs::claim(&wanted, &mut counted.connection, now).await.unwrap();
    let count = u64::try_from(claimed.len()).unwrap();
    assert!(count >= 64, "{count}");
    let claim = counted.take_steps() / count;
    let start = |job: &Claimed| Start {
        id: job.id,
        fence: job.fence,
        owner,
        lane: job.lane.clone(),
        again: false,
        endpoint: String::new(),
        points: 1,
        slot_ms: 0,
        counts_ms: 0,
    };
    let starts: Vec<Start> = claimed.iter().map(start).collect();
    let begun = starts::start_many(&starts.iter().collect::<Vec<_>>(), &mut counted.connection, now).await.unwrap();
    assert_eq!(begun.len(), claimed.len());
    let start = counted.take_steps() / count;
    let end = |job: &Claimed| JobEnd { id: job.id, fence: job.fence, known: None, end: end(job) };
    let ends: Vec<_> = claimed.iter().map(end).collect();
    assert!(jobs::finish(&ends, &mut counted.connection, now).await.unwrap().iter().all(|ended| *ended));
    [claim, start, counted.take_steps() / count]
}

/// Makes the end of a job.
type MakeEnd = fn(&Claimed) -> End;

/// The kinds of ends that are written together.
const ENDS: [(&str, MakeEnd); 4] = [("delivered", delivered), ("dead", dead), ("later", later), ("back", back)];

fn delivered(_: &Claimed) -> End {
    End::Delivered { status: 200, attempts: 1, result: None, reply: None }
}

fn dead(job: &Claimed) -> End {
    End::Dead(Box::new(NewDead {
        id: job.id,
        lane: job.lane.clone(),
        reason: "exhausted".to_owned(),
        letter: b"{}".to_vec(),
        request: Some(b"request".to_vec()),
        keep_result: false,
        reply: None,
    }))
}

/// Due after all that these tests claim.
fn later(_: &Claimed) -> End {
    End::Later { after_ms: 1 << 40, expires_at: None, history: b"{}".to_vec() }
}

fn back(_: &Claimed) -> End {
    End::Back
}

#[tokio::test]
async fn claim_takes_as_many_steps_whatever_waits() {
    // The statistics are those of a full file, of an empty one, of one with small lanes only or with one large lane
    // only, or there are none.
    for statistics in ["fresh", "empty", "small", "large", "none"] {
        let path = folder().join("store.db");
        let opened = open(&Store::sqlite(&path)).await;
        let mut counted = StepCounter::open(&path).await;
        match statistics {
            "empty" => counted.run("ANALYZE".to_owned()).await,
            "small" | "large" => {
                let (large, small) = if statistics == "small" { (0, 1) } else { (10_000, 0) };
                counted.fill(large, small).await;
                counted.run("ANALYZE".to_owned()).await;
            }
            _ => {}
        }
        counted.fill(200_000, 3).await;
        if statistics == "fresh" {
            counted.run("ANALYZE".to_owned()).await;
        }
        let owner = id();
        for (round, (name, end)) in ENDS.into_iter().enumerate() {
            let mut lanes = vec![whole(lane("large"), 64)];
            lanes.extend((0..255).map(|tenant| whole(lane(&format!("t{}", round * 255 + tenant)), 2)));
            let [claim, start, end] = steps_a_job(&mut counted, lanes, owner, end).await;
            assert!(
                claim <= 500 && start <= 150 && end <= 300,
                "{statistics} {name}: {claim} steps to claim a job, {start} to start and {end} to end it"
            );
        }
        // A look goes from lane to lane.
        counted.take_steps();
        let found = jobs::all_due(&(None, i64::MAX), &mut counted.connection, 1 << 40).await.unwrap();
        assert_eq!(found.lanes.len(), 10_001);
        let look = counted.take_steps() / 10_001;
        assert!(look <= 150, "{statistics}: a look at all lanes took {look} steps for each");
        // A page of a look takes steps in proportion to its lanes.
        let after = Some(lane("t5000"));
        let found = jobs::all_due(&(after, 100), &mut counted.connection, 1 << 40).await.unwrap();
        let look = counted.take_steps() / 100;
        assert!(found.lanes.len() == 100 && look <= 200, "{statistics}: a part of a look took {look} steps for each");
        // A look for jobs that have become due reads a bounded number of them, and leaves the others to looks at all.
        let found = jobs::due(&0, &mut counted.connection, 1 << 40).await.unwrap();
        let look = counted.take_steps();
        assert!(found.is_cut && !found.lanes.is_empty(), "{statistics}: {found:?}");
        assert!(look <= 4_096 * 100, "{statistics}: a look at new jobs took {look} steps");
        let last = 200_000 + 30_000 - 9;
        let found = jobs::due(&last, &mut counted.connection, 1 << 40).await.unwrap();
        let look = counted.take_steps();
        assert!(
            !found.is_cut && found.lanes.len() <= 9 && look <= 2_000,
            "{statistics}: a look at {} new jobs took {look} steps",
            found.lanes.len()
        );
        drop(opened);
    }
}
