//! Conditions that only PostgreSQL has: failovers, poolers in front of the server, and the planner's statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use sqlx::{Connection, Executor};

use super::super::actor::Step;
use super::super::driver::{Driver, Row, args};
use super::super::faults::{Fault, Moment, Watch};
use super::super::jobs::{End, JobEnd, Most, Start};
use super::super::owners::{self, Beat};
use super::super::purge::{self, Retention, What};
use super::super::records;
use super::*;

/// Makes the connection that runs the next statement of a given kind lead to a server that takes no writes, as after a
/// failover that keeps connections open.
#[derive(Default)]
struct Failover {
    at: parking_lot::Mutex<Option<(&'static str, &'static str)>>,
    connections: AtomicU32,
}

impl Watch for Failover {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if what == "connect" {
            self.connections.fetch_add(1, Relaxed);
        }
        let mut at = self.at.lock();
        match *at {
            Some((when, sql)) if moment == Moment::Before && when == what => {
                *at = None;
                Fault::First(sql)
            }
            _ => Fault::None,
        }
    }
}

#[tokio::test]
async fn server_without_memory_is_no_fault_of_the_data() {
    let store = open(&Store::postgres(database().await)).await;
    let short: Step<(), u64> =
        |(), db, _| db.execute("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53200'; END $$", Vec::new());
    let wrong: Step<(), u64> =
        |(), db, _| db.execute("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '22003'; END $$", Vec::new());
    for (step, is_down) in [(short, true), (wrong, false)] {
        let error = store.write((), step).await.unwrap_err();
        assert_eq!(crate::store::is_down(&error), is_down, "{error}");
    }
}

#[tokio::test]
async fn connection_to_read_only_server_is_replaced() {
    let watch = Arc::new(Failover::default());
    let store = Store::postgres(database().await).watched_by(watch.clone());
    let opened = open(&store).await;
    let session = "SET default_transaction_read_only = on";
    // The server becomes read-only before a transaction begins, or in the middle of it (error 25006).
    for at in [("begin", session), ("accept", "SET TRANSACTION READ ONLY")] {
        let before = watch.connections.load(Relaxed);
        *watch.at.lock() = Some(at);
        let accepted = accept(&opened, job("a")).await;
        assert_eq!(watch.connections.load(Relaxed), before + 1, "{at:?}");
        assert!(matches!(opened.read(accepted, records::find).await.unwrap(), records::JobState::Waiting { .. }));
        assert_eq!(opened.problems.now(), None);
    }
    // The data of a former primary is out of date, so it is not read either.
    let before = watch.connections.load(Relaxed);
    *watch.at.lock() = Some(("begin", session));
    opened.read(10, records::count).await.unwrap();
    assert_eq!(watch.connections.load(Relaxed), before + 1);
}

#[tokio::test]
async fn standby_server_is_refused_at_start() {
    let url = database().await;
    let name = url.rsplit_once('/').unwrap().1;
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    Executor::execute(&mut connection, sqlx::AssertSqlSafe(sql)).await.unwrap();
    let error = Store::postgres(url).open(false).await.err().expect("it is refused");
    assert!(error.to_string().contains("connect to the primary"), "{error}");
}

/// Connections of several processes share two of the server's, so that hardly any two transactions of one connection
/// run on the same server connection.
#[tokio::test(flavor = "multi_thread")]
async fn pooler_in_transaction_mode_works() {
    const STORES: usize = 5;
    const ROUNDS: usize = 20;
    let url = pooled(&database().await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..STORES {
        let store = Store::postgres(url.clone());
        tasks.spawn(async move {
            let (opened, owner, tenant) = (open(&store).await, id(), format!("t{number}"));
            for round in 0..ROUNDS {
                let mut new = job(&tenant);
                new.key = Some((format!("k{round}"), "fingerprint".to_owned()));
                let (first, second) = tokio::join!(accept(&opened, job(&tenant)), accept(&opened, new));
                let claimed = claim(&opened, owner, &tenant, 10).await;
                assert_eq!(claimed.len(), 2);
                let end = || End::Delivered { status: 200, attempts: 1, result: None, reply: None };
                let ends: Vec<_> = claimed
                    .iter()
                    .map(|job| JobEnd { id: job.id, fence: job.fence, known: None, end: end() })
                    .collect();
                assert_eq!(opened.write(ends, jobs::finish).await.unwrap(), [true, true]);
                for id in [first, second] {
                    let place = opened.read(id, records::find).await.unwrap();
                    assert!(matches!(place, records::JobState::Done { status: 200, .. }), "{place:?}");
                }
                assert_eq!(opened.problems.now(), None);
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pooler_connection_of_caller_accepts_jobs() {
    let url = pooled(&database().await);
    let opened = open(&Store::postgres(url.clone())).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let url = url.clone();
        tasks.spawn(async move {
            let options = url.parse::<sqlx::postgres::PgConnectOptions>().unwrap().extra_float_digits(None);
            let mut connection = sqlx::PgConnection::connect_with(&options).await.unwrap();
            for _ in 0..20 {
                Executor::execute(&mut connection, "BEGIN").await.unwrap();
                let now = connection.now().await.unwrap();
                jobs::insert(&job("a"), &mut connection, now).await.unwrap();
                Executor::execute(&mut connection, "COMMIT").await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(opened.read(1_000, records::count).await.unwrap(), 120);
}

/// The number of the outbox's rows that this connection has read, by PostgreSQL's own statistics.
fn rows_read<'a>(db: super::super::driver::Db<'a>) -> crate::BoxFuture<'a, i64> {
    Box::pin(async move {
        let sql =
            "SELECT (seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_xact_user_tables WHERE relname = 'ic_job'";
        let rows = db.fetch(sql, Vec::new()).await.unwrap();
        rows.into_iter().next().map_or(0, |mut row: Row| row.int().unwrap())
    })
}

/// Claims jobs, starts their exchanges and ends the claims. Returns how many jobs there were, and how many rows each
/// step read.
const CLAIM_AND_END: Step<Wanted, (usize, [i64; 3])> = |wanted, db, now| {
    Box::pin(async move {
        let before = rows_read(&mut *db).await;
        let claimed = jobs::claim(wanted, db, now).await?;
        let claim = rows_read(&mut *db).await;
        let start = |job: &Claimed| Start {
            id: job.id,
            fence: job.fence,
            owner: wanted.owner,
            lane: job.lane.clone(),
            again: false,
            endpoint: String::new(),
            points: 1,
            slot_ms: 0,
            counts_ms: 0,
        };
        let starts: Vec<Start> = claimed.iter().map(start).collect();
        let begun = starts::start_many(&starts.iter().collect::<Vec<_>>(), db, now).await?;
        assert_eq!(begun.len(), claimed.len());
        let started = rows_read(&mut *db).await;
        let end = || End::Delivered { status: 200, attempts: 1, result: None, reply: None };
        let ends: Vec<_> =
            claimed.iter().map(|job| JobEnd { id: job.id, fence: job.fence, known: None, end: end() }).collect();
        jobs::finish(&ends, db, now).await?;
        Ok((claimed.len(), [claim - before, started - claim, rows_read(db).await - started]))
    })
};

/// Looks for jobs that have become due, which are many, and at all lanes. Returns how many lanes were found, and how
/// many rows the looks read.
const LOOK: Step<i64, (usize, i64)> = |after, db, now| {
    Box::pin(async move {
        let before = rows_read(&mut *db).await;
        assert!(jobs::due(after, &mut *db, now).await?.is_cut);
        let all = jobs::all_due(&(None, 10_000), &mut *db, now).await?;
        Ok((all.lanes.len(), rows_read(db).await - before))
    })
};

/// Inserts `large` jobs of one tenant, and `small` jobs of each of a thousand others.
async fn fill(url: &str, large: u32, small: u32) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    let from = NEXT.fetch_add(10_000_000, Relaxed);
    let sql = format!(
        "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, enqueued_at, request) \
         SELECT convert_to(lpad((i + {from})::text, 16, '0'), 'UTF8'), \
         CASE WHEN i <= {large} THEN 'large' ELSE 't' || (i % 1000) END, 'v', 1, i, i, convert_to(repeat('x', 200), 'UTF8') \
         FROM generate_series(1, {large} + {small} * 1000) i"
    );
    Executor::execute(&mut connection, sqlx::AssertSqlSafe(sql)).await.unwrap();
}

/// A store in a new database whose table of jobs keeps the statistics that a test gives it, and a connection to it.
async fn without_autovacuum() -> (String, Opened, sqlx::PgConnection) {
    let url = database().await;
    let opened = open(&Store::postgres(url.clone())).await;
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    Executor::execute(&mut connection, "ALTER TABLE ic_job SET (autovacuum_enabled = false)").await.unwrap();
    (url, opened, connection)
}

#[tokio::test]
async fn claim_reads_few_rows_with_any_statistics() {
    // The statistics are those of a full table, of an empty one, of one with small lanes only or with one large lane
    // only, or there are none.
    for statistics in ["fresh", "empty", "small", "large", "none"] {
        let (url, opened, mut connection) = without_autovacuum().await;
        match statistics {
            // This is how autovacuum leaves a table whose jobs have all ended.
            "empty" => drop(Executor::execute(&mut connection, "VACUUM ANALYZE ic_job").await.unwrap()),
            "small" | "large" => {
                let (large, small) = if statistics == "small" { (0, 2) } else { (10_000, 0) };
                fill(&url, large, small).await;
                Executor::execute(&mut connection, "ANALYZE ic_job").await.unwrap();
            }
            _ => {}
        }
        fill(&url, 100_000, 5).await;
        if statistics == "fresh" {
            Executor::execute(&mut connection, "ANALYZE ic_job").await.unwrap();
        }
        let owner = id();
        // These are more rounds than a server needs to settle on a generic plan.
        for round in 0..12 {
            let mut lanes = vec![whole(lane("large"), 64)];
            lanes.extend((0..255).map(|tenant| whole(lane(&format!("t{}", round * 70 + tenant)), 2)));
            let wanted = Wanted { owner, lease_ms: 60_000, lanes, most_bytes: 1 << 30 };
            let (claimed, read) = opened.write(wanted, CLAIM_AND_END).await.unwrap();
            let claimed = i64::try_from(claimed).unwrap();
            assert!(claimed >= 64, "{statistics} {round}: {claimed}");
            for (what, read) in ["claim", "start", "end"].iter().zip(read) {
                let most = 6 * claimed + 500;
                assert!(read <= most, "{statistics} {round}: to {what} {claimed} jobs read {read} rows");
            }
        }
        // A look at all lanes goes from lane to lane (a quarter of them have jobs left), and one for jobs that have become
        // due reads few of them.
        let (lanes, read) = opened.write(0, LOOK).await.unwrap();
        let most = 3 * i64::try_from(lanes).unwrap() + 5_000;
        assert!(lanes >= 200 && read <= most, "{statistics}: a look at {lanes} lanes read {read} rows");
    }
}

/// The number of entries that this connection has read of an index, with those of rows that are gone.
fn entries_read<'a>(index: &'static str, db: super::super::driver::Db<'a>) -> crate::BoxFuture<'a, i64> {
    Box::pin(async move {
        let sql = "SELECT pg_stat_get_xact_tuples_returned($1::regclass)::bigint";
        db.fetch(sql, args![index]).await.unwrap().remove(0).int().unwrap()
    })
}

/// Claims jobs and ends the claims. Returns the position of the last job, and how many index entries the claim read.
const CLAIM_FROM: Step<Wanted, (Position, i64)> = |wanted, db, now| {
    Box::pin(async move {
        let before = entries_read("ic_job_ready", &mut *db).await;
        let claimed = jobs::claim(wanted, db, now).await?;
        let read = entries_read("ic_job_ready", &mut *db).await - before;
        let end = || End::Delivered { status: 200, attempts: 1, result: None, reply: None };
        let ends: Vec<_> =
            claimed.iter().map(|job| JobEnd { id: job.id, fence: job.fence, known: None, end: end() }).collect();
        jobs::finish(&ends, db, now).await?;
        Ok((claimed.iter().map(|job| job.position).max().unwrap(), read))
    })
};

/// Writes a heartbeat. Returns how many entries of the index of claims it read.
const BEAT: Step<Beat, i64> = |beat, db, now| {
    Box::pin(async move {
        let before = entries_read("ic_job_owned", &mut *db).await;
        owners::beat(beat, db, now).await?;
        Ok(entries_read("ic_job_owned", db).await - before)
    })
};

/// A dump keeps the index entries of all jobs that end while it runs.
#[tokio::test]
async fn old_snapshot_slows_neither_claim_nor_heartbeat() {
    let (url, opened, _connection) = without_autovacuum().await;
    let mut dump = sqlx::PgConnection::connect(&url).await.unwrap();
    Executor::execute(&mut dump, "BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    Executor::execute(&mut dump, "SELECT count(*) FROM ic_job").await.unwrap();
    fill(&url, 4_000, 0).await;
    let owner = id();
    let wanted = |from| {
        let lanes = vec![LaneClaim { from, ..whole(lane("large"), 64) }];
        Wanted { owner, lease_ms: 60_000, lanes, most_bytes: 1 << 30 }
    };
    let mut from = Position::default();
    for round in 0..50 {
        let (last, read) = opened.write(wanted(from), CLAIM_FROM).await.unwrap();
        assert!(last > from && read <= 100, "{round}: a claim of 64 jobs read {read} entries");
        from = last;
    }
    let (last, read) = opened.write(wanted(Position::default()), CLAIM_FROM).await.unwrap();
    assert!(last > from && read >= 3_200, "from the first job on {read} entries are read");
    let read = opened.write(Beat { owner, number: 1, lease_ms: 60_000 }, BEAT).await.unwrap();
    assert!(read <= 10, "a heartbeat read {read} entries");
}

/// Deletes expired outcomes. Returns where the next step begins, and how many entries of their index this one read.
const PURGE: Step<purge::Step, (i64, i64)> = |step, db, now| {
    Box::pin(async move {
        let before = entries_read("ic_done_finished", &mut *db).await;
        let swept = purge::step(step, db, now).await?;
        assert_eq!(swept.settled, 300);
        Ok((swept.from, entries_read("ic_done_finished", db).await - before))
    })
};

#[tokio::test]
async fn old_snapshot_slows_no_purge() {
    let (url, opened, mut connection) = without_autovacuum().await;
    Executor::execute(&mut connection, "ALTER TABLE ic_done SET (autovacuum_enabled = false)").await.unwrap();
    let sql = "INSERT INTO ic_done (id, tenant, vendor, outcome, status, attempts, finished_at) \
               SELECT convert_to(lpad(i::text, 16, '0'), 'UTF8'), 'a', 'v', 0, 200, 1, i FROM generate_series(1, 9000) i";
    Executor::execute(&mut connection, sql).await.unwrap();
    let mut dump = sqlx::PgConnection::connect(&url).await.unwrap();
    Executor::execute(&mut dump, "BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    Executor::execute(&mut dump, "SELECT count(*) FROM ic_done").await.unwrap();
    let keep = Retention { done_ms: 3_600_000, ..Retention::UNLIMITED };
    let step = |from| purge::Step { what: What::Done, keep, rows: 300, from };
    let mut from = i64::MIN;
    for round in 0..20 {
        let (next, read) = opened.write(step(from), PURGE).await.unwrap();
        assert!(read <= 1_000, "{round}: a step of 300 rows read {read} entries");
        from = next;
    }
    let (_, read) = opened.write(step(i64::MIN), PURGE).await.unwrap();
    assert!(read >= 6_000, "from the first entry on {read} are read");
}

/// Claims expired jobs. Returns how many, and how many rows that read.
const EXPIRE: Step<Most, (usize, i64)> = |most, db, now| {
    Box::pin(async move {
        let before = rows_read(&mut *db).await;
        let claimed = match jobs::passed_deadline(&(), db, now).await? {
            Some(from) => jobs::expired(&Most { from, ..*most }, db, now).await?,
            None => Vec::new(),
        };
        Ok((claimed.len(), rows_read(db).await - before))
    })
};

/// Inserts `count` jobs of a thousand tenants, with a deadline after `after` each.
async fn fill_with_deadlines(connection: &mut sqlx::PgConnection, count: u32, after: i64) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let from = NEXT.fetch_add(10_000_000, Relaxed);
    let sql = format!(
        "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, expires_at, enqueued_at, request) \
         SELECT convert_to(lpad((i + {from})::text, 16, '0'), 'UTF8'), 't' || (i % 1000), 'v', 1, i, {after} + i, i, \
         convert_to(repeat('x', 200), 'UTF8') FROM generate_series(1, {count}) i"
    );
    Executor::execute(connection, sqlx::AssertSqlSafe(sql)).await.unwrap();
}

#[tokio::test]
async fn search_for_expired_jobs_reads_few_rows() {
    // The year 2096.
    const FAR: i64 = 4_000_000_000_000;
    // The statistics are those of a full table, of an empty one or of one with expired jobs only, or there are none.
    for statistics in ["fresh", "empty", "expired", "none"] {
        let (_, opened, mut connection) = without_autovacuum().await;
        match statistics {
            "empty" => drop(Executor::execute(&mut connection, "VACUUM ANALYZE ic_job").await.unwrap()),
            "expired" => {
                fill_with_deadlines(&mut connection, 2_000, 0).await;
                Executor::execute(&mut connection, "ANALYZE ic_job").await.unwrap();
                Executor::execute(&mut connection, "DELETE FROM ic_job").await.unwrap();
            }
            _ => {}
        }
        fill_with_deadlines(&mut connection, 50_000, FAR).await;
        if statistics == "fresh" {
            Executor::execute(&mut connection, "ANALYZE ic_job").await.unwrap();
        }
        let most = Most { owner: id(), lease_ms: 60_000, jobs: 100, bytes: 1 << 30, from: 0 };
        // These are more rounds than a server needs to settle on a generic plan.
        for round in 0..12 {
            let (claimed, read) = opened.write(most, EXPIRE).await.unwrap();
            assert!(claimed == 0 && read <= 10, "{statistics} {round}: {claimed} of none, {read} rows");
            fill_with_deadlines(&mut connection, 100, 0).await;
            let (claimed, read) = opened.write(most, EXPIRE).await.unwrap();
            assert!(claimed == 100 && read <= 1_000, "{statistics} {round}: {claimed} of 100, {read} rows");
        }
    }
}
