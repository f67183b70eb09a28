//! Several processes that work on one PostgreSQL database, and the dead rows that a steady rate leaves in its tables.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use integration_client::outbox::Delivered;
use integration_client::store::Store;
use integration_client::{IntegrationClient, Priority, Request};
use sqlx::{Connection, PgConnection};

use super::{database, filled_probe_with, worker};

/// Set for a process that works: the URL of the database.
pub(crate) const URL: &str = "BENCH_STORE_WORKER";
const JOBS: i64 = 200_000;
const TENANTS: i64 = 100;

/// A client whose worker has begun, and the number of jobs that it has delivered.
async fn counting_client(url: String, tenants: usize) -> (IntegrationClient, Arc<AtomicU64>) {
    let done = Arc::new(AtomicU64::new(0));
    let count = done.clone();
    let handler = move |_: Delivered| {
        count.fetch_add(1, Relaxed);
        async { Ok(()) }
    };
    (worker::client(Store::postgres(url), tenants, None, handler).await, done)
}

/// Works until the standard input closes. Prints a line when it is ready, and at the end the number of jobs that it
/// delivered.
pub(crate) async fn work(url: String) {
    let (client, done) = counting_client(url, TENANTS as usize).await;
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    client.shutdown(Duration::from_secs(10)).await;
    println!("{}", done.load(Relaxed));
}

fn start(url: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.env(URL, url).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    (child, output)
}

async fn number(server: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar::<_, Option<i64>>(sql).fetch_one(server).await.unwrap().unwrap_or(0)
}

/// Lets processes drain an outbox. Prints jobs per second, sessions that wait for locks, deadlocks, and jobs delivered
/// twice.
pub(crate) async fn drain(url: &str) -> bool {
    let mut good = true;
    for processes in [1, 2, 4, 8] {
        let url = database(url).await;
        drop(filled_probe_with(Store::postgres(url.clone()), JOBS, TENANTS).await);
        let mut server = PgConnection::connect(&url).await.unwrap();
        let began = Instant::now();
        let mut children: Vec<_> = (0..processes).map(|_| start(&url)).collect();
        let (mut looks, mut waits) = (0, 0);
        while number(&mut server, "SELECT count(*) FROM (SELECT 1 FROM ic_job LIMIT 1) any_job").await > 0 {
            waits += number(
                &mut server,
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            .await;
            looks += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let took = began.elapsed().as_secs_f64();
        let deadlocks =
            number(&mut server, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await;
        let mut delivered = 0;
        for (child, output) in &mut children {
            drop(child.stdin.take());
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            delivered += line.trim().parse::<i64>().unwrap();
            child.wait().unwrap();
        }
        let doubled = delivered - JOBS;
        good &= doubled == 0 && deadlocks == 0;
        println!(
            "postgres: {processes} processes drain {JOBS} jobs of {TENANTS} tenants: {:.0}/s, doubled {doubled}, deadlocks {deadlocks}, \
             waits for locks {waits} in {looks} looks",
            JOBS as f64 / took
        );
    }
    good
}

/// Lets one process work while jobs are accepted in pages: at full rate, or at `BENCH_RATE` jobs a second. Prints dead rows
/// and sizes every ten seconds, and the most of each at the end.
pub(crate) async fn bloat(url: &str) {
    let url = database(url).await;
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (seconds, rate) = (asked("BENCH_SECONDS").unwrap_or(120), asked("BENCH_RATE").unwrap_or(u64::MAX));
    let (mut most_dead, mut most_size, mut most_all) = (0, 0, 0);
    let (client, done) = counting_client(url.clone(), 100).await;
    let mut server = PgConnection::connect(&url).await.unwrap();
    let mut batch = client.outbox().batch("bloat").await.unwrap();
    let (began, mut sent, mut shown) = (Instant::now(), 0u64, 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        // Accepts no more than a few pages ahead of the worker.
        let due = rate.saturating_mul(began.elapsed().as_millis().try_into().unwrap_or(u64::MAX)) / 1_000;
        if sent > (done.load(Relaxed) + 20_000).min(due) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        } else {
            let request = |number: u64| {
                let request = Request::post("v", "/orders").body(vec![b'x'; 100]);
                batch.check(number, &format!("t{}", number % 100), Priority::Normal, request).unwrap()
            };
            let page = (sent..sent + 2_000).map(request).collect();
            sent += 2_000;
            batch.accept(page, &sent.to_string()).await.unwrap();
        }
        if began.elapsed().as_secs() / 10 > shown {
            shown = began.elapsed().as_secs() / 10;
            let sql = "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE relname = 'ic_job'";
            let dead = number(&mut server, sql).await;
            let vacuums = number(
                &mut server,
                "SELECT coalesce(sum(autovacuum_count), 0)::bigint FROM pg_stat_user_tables WHERE relname = 'ic_job'",
            )
            .await;
            let size = number(&mut server, "SELECT pg_total_relation_size('ic_job')::bigint").await;
            let all = number(&mut server, "SELECT pg_database_size(current_database())::bigint").await;
            (most_dead, most_size, most_all) = (dead.max(most_dead), size.max(most_size), all.max(most_all));
            println!(
                "postgres after {} s: {:.0} jobs/s; ic_job has {dead} dead rows and takes {} MiB, {vacuums} vacuums; the database takes {} MiB",
                shown * 10,
                done.load(Relaxed) as f64 / began.elapsed().as_secs_f64(),
                size >> 20,
                all >> 20
            );
        }
    }
    println!(
        "bloat: seconds={seconds} per_s={:.0} most_dead_rows={most_dead} most_ic_job_mib={} most_database_mib={}",
        done.load(Relaxed) as f64 / began.elapsed().as_secs_f64(),
        most_size >> 20,
        most_all >> 20
    );
    client.shutdown(Duration::from_secs(10)).await;
}

/// Lets one process drain the jobs of one tenant, with and without a snapshot that another session holds meanwhile, as a
/// dump does. Prints the jobs per second of each quarter.
pub(crate) async fn old_snapshot(url: &str) {
    for is_held in [false, true] {
        let url = database(url).await;
        drop(filled_probe_with(Store::postgres(url.clone()), 3 * JOBS, 1).await);
        let mut dump = PgConnection::connect(&url).await.unwrap();
        if is_held {
            let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM ic_job LIMIT 1";
            sqlx::Executor::execute(&mut dump, sql).await.unwrap();
        }
        let (client, done) = counting_client(url, 1).await;
        let mut rates = Vec::new();
        for quarter in 1..=4 {
            let (began, before) = (Instant::now(), done.load(Relaxed));
            while done.load(Relaxed) < quarter * 3 * JOBS.unsigned_abs() / 4 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            rates.push((done.load(Relaxed) - before) as f64 / began.elapsed().as_secs_f64());
        }
        let rates = rates.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", ");
        println!(
            "postgres, {} jobs of one tenant, old snapshot held: {is_held}: {rates} jobs/s in each quarter",
            3 * JOBS
        );
        client.shutdown(Duration::from_secs(10)).await;
        drop(dump);
    }
}
