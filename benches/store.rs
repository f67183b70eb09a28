//! The cost of the store: accepting jobs with a sync to disk, claiming them from a full outbox, and recording their
//! outcomes.
//!
//! ```text
//! cargo bench --all-features --bench store
//! ```
//!
//! Accepting is measured in the same run beside a loop that only commits the same rows in groups of the same size,
//! because the disk limits both. PostgreSQL is measured if `IC_TEST_POSTGRES` names a server
//! (`eval "$(scripts/postgres.sh start)"`); each part creates its own database there.
//!
//! The last line summarizes what a worker reaches, in jobs per second (`benches/store/worker.rs`): over HTTP and
//! without sockets, the lower figure of one tenant and 1,000 tenants; with a million waiting jobs of one tenant, the
//! lower share of what the worker reaches with few; bare reqwest at the same vendor; and, if node and npm are
//! installed, graphile-worker at the same vendor and PostgreSQL server (`scripts/graphile-worker.sh`). `-- worker`
//! measures only this, and `-- worker sqlite_http`, for example, only one part of it.
//!
//! `-- processes` lets 1, 2, 4 and 8 processes drain one PostgreSQL database (`benches/store/processes.rs`). `-- bloat`
//! works on one for some minutes (`BENCH_SECONDS`), at full rate or at `BENCH_RATE` jobs a second, and prints its dead
//! rows and its size. `-- snapshot`
//! drains 600,000 jobs of one tenant while another session holds a snapshot, as a dump does. These run only on request.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the time itself, and spawns")]
#![expect(clippy::unwrap_used, reason = "whatever goes wrong ends the run")]

#[cfg(feature = "postgres")]
#[path = "store/processes.rs"]
mod processes;
#[path = "store/worker.rs"]
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::store::Store;
use integration_client::store::probe::Probe;
use integration_client::{IntegrationClient, Priority, Request};
use sqlx::{Connection, SqliteConnection};

/// As of the command line: a job begins on one thread and ends on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VENDORS: &str = "[vendors.v]\nbase_url = \"https://vendor.example\"\n";
/// The number of concurrent callers of `enqueue`, and of rows in a group of the bare loop.
const CONCURRENT_CALLERS: usize = 256;
const ROWS: i64 = 1_000_000;
const TENANTS: i64 = 10_000;

fn folder() -> PathBuf {
    // Not in /tmp, which may be in memory: a sync must reach a disk.
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(format!("bench-store-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

async fn client(store: Store) -> IntegrationClient {
    let tenant = |n: usize| TenantEntry::new(format!("t{n}"), "v").credential("env:PATH");
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDORS).store(store);
    (0..8).fold(builder, |builder, n| builder.tenant(tenant(n))).build().await.unwrap()
}

/// The number of requests accepted per second by as many callers as a group has rows.
async fn enqueue(client: &IntegrationClient, each: usize) -> f64 {
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..CONCURRENT_CALLERS {
        let client = client.clone();
        tasks.spawn(async move {
            for number in 0..each {
                let request = Request::post("v", format!("/jobs/{caller}/{number}")).body(vec![b'x'; 150]);
                client.outbox().enqueue(&format!("t{}", caller % 8), Priority::Normal, request).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    rate(CONCURRENT_CALLERS * each, began.elapsed())
}

/// The number of rows per second that a loop commits which does nothing else.
async fn bare_commit_rate(path: &Path, groups: usize) -> f64 {
    use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
    let options = SqliteConnectOptions::new().filename(path).synchronous(SqliteSynchronous::Full);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    let began = Instant::now();
    for group in 0..groups {
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
        for row in 0..CONCURRENT_CALLERS {
            let sql = "INSERT INTO ic_job (id, tenant, vendor, tier, run_at, enqueued_at, request) VALUES ($1, $2, 'v', 1, $3, $3, $4)";
            let mut id = vec![0u8; 16];
            id[..8].copy_from_slice(&(group as u64).to_be_bytes());
            id[8..].copy_from_slice(&(row as u64).to_be_bytes());
            let query =
                sqlx::query(sql).bind(id).bind(format!("t{}", row % 8)).bind(group as i64).bind(vec![b'x'; 250]);
            query.execute(&mut connection).await.unwrap();
        }
        sqlx::query("COMMIT").execute(&mut connection).await.unwrap();
    }
    rate(CONCURRENT_CALLERS * groups, began.elapsed())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The milliseconds of a claim of 200 jobs from 20 lanes and tiers: the median and the maximum of 50 claims.
async fn claim_times_ms(probe: &Probe) -> (f64, f64) {
    let mut times = Vec::new();
    for round in 0..50i64 {
        let lanes: Vec<(String, i64)> = (0..20).map(|n| (format!("t{}", (round * 20 + n) % TENANTS), n % 3)).collect();
        let began = Instant::now();
        let held = probe.claim(&lanes, 10).await.unwrap();
        times.push(began.elapsed().as_secs_f64() * 1e3);
        assert_eq!(held.len(), 200);
    }
    let worst = times.iter().copied().fold(0.0, f64::max);
    (median(times), worst)
}

/// The number of jobs per second that are claimed and recorded as delivered. As in a worker, the next batch is claimed
/// while the outcomes of the last one are written, and both share one transaction if they can.
async fn claim_and_finish_rate(probe: &Probe) -> f64 {
    let began = Instant::now();
    let half = |first: i64| async move {
        let mut done = 0;
        for round in 0..50i64 {
            let lane = |n| (format!("t{}", first + (round * 20 + n) % 2_500), 0);
            let held = probe.claim(&(0..20).map(lane).collect::<Vec<_>>(), 10).await.unwrap();
            done += probe.finish(held).await.unwrap();
        }
        done
    };
    let (one, other) = tokio::join!(half(5_000), half(7_500));
    rate(one + other, began.elapsed())
}

/// Set for the process that measures its own memory: the path of the store's file.
const MEMORY: &str = "BENCH_STORE_MEMORY";

/// The resident memory of this process in MiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap_or_default() / 1024.0
}

/// Works on the jobs in the store for 25 s, for 10,000 tenants of which each may send once in ten seconds. Prints the
/// highest memory of this process.
async fn work_and_print_memory(path: &str) -> bool {
    use integration_client::testing::{FakeAnswer, FakeTransport};
    let vendors = format!(
        "{VENDORS}auth = {{ scheme = \"none\" }}\n[[vendors.v.limits]]\nname = \"requests\"\n\
         algorithm = \"sliding_window\"\nlimit = 1\nwindow = \"10s\"\n"
    );
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendors).store(Store::sqlite(path));
    let builder = (0..TENANTS).fold(builder, |builder, n| builder.tenant(TenantEntry::new(format!("t{n}"), "v")));
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = builder.transport(transport).work().build().await.unwrap();
    let (began, mut most) = (Instant::now(), 0.0);
    while began.elapsed() < Duration::from_secs(25) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        most = f64::max(most, resident());
    }
    println!("{most:.1}");
    drop(client);
    true
}

/// The MiB that a separate process takes to work on a store.
fn memory(path: &Path) -> f64 {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.env(MEMORY, path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().and_then(|line| line.parse().ok()).expect("the process measured nothing")
}

async fn filled_probe(store: Store) -> Probe {
    filled_probe_with(store, ROWS, TENANTS).await
}

async fn filled_probe_with(store: Store, rows: i64, tenants: i64) -> Probe {
    let (probe, tasks) = Probe::open(store).await.unwrap();
    tasks.into_iter().for_each(|task| drop(tokio::spawn(task)));
    probe.fill(rows, tenants).await.unwrap();
    probe
}

/// The URL of an empty database on the server at `url`.
#[cfg(feature = "postgres")]
async fn database(url: &str) -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("bench_{}_{number}", std::process::id());
    let mut server = sqlx::PgConnection::connect(url).await.unwrap();
    sqlx::Executor::execute(&mut server, sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    format!("{}/{name}", url.rsplit_once('/').unwrap().0)
}

#[cfg(not(feature = "postgres"))]
async fn database(url: &str) -> String {
    url.to_owned()
}

/// Lets a worker deliver `count` of `rows` waiting jobs of `tenants` tenants. Returns the jobs per second.
async fn measure_worker(
    what: &str,
    store: Store,
    (rows, tenants): (i64, i64),
    count: usize,
    vendor: Option<u16>,
) -> f64 {
    let (probe, tasks) = Probe::open(store.clone()).await.unwrap();
    let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    probe.fill(rows, tenants).await.unwrap();
    drop(probe);
    for task in tasks {
        let _ = task.await;
    }
    let worked = worker::work(store, usize::try_from(tenants).unwrap(), count, vendor).await;
    let first = worked.first.as_secs_f64() * 1e3;
    println!(
        "{what}: {rows} waiting of {tenants} tenants: {:.0} jobs/s, first answer after {first:.0} ms",
        worked.a_second
    );
    worked.a_second
}

/// How many jobs a worker delivers from a small backlog, and from a backlog of a million.
const FEW_JOBS: usize = 30_000;
const MANY_JOBS: usize = 60_000;

/// The jobs per second of graphile-worker. `None` if it cannot be run.
fn graphile(url: &str, vendor: u16) -> Option<f64> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/graphile-worker.sh");
    let arguments = [url.to_owned(), FEW_JOBS.to_string(), vendor.to_string()];
    let output = std::process::Command::new(script).args(arguments).output().ok()?;
    if !output.status.success() {
        println!("graphile-worker: not measured: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8_lossy(&output.stdout).lines().rev().find_map(|line| line.trim().parse().ok())
}

/// Measures workers from end to end. Returns the summary line.
async fn workers(folder: &Path, is_asked_for: impl Fn(&str) -> bool) -> String {
    let vendor = worker::Vendor::start();
    let url = std::env::var("IC_TEST_POSTGRES").ok().filter(|_| cfg!(feature = "postgres"));
    let (mut figures, mut shares) = (Vec::new(), Vec::new());
    for name in ["sqlite", "postgres"] {
        let mut rates = Vec::new();
        let parts = [
            ("http", 0, 1),
            ("http", 0, 1_000),
            ("fake", 0, 1),
            ("fake", 0, 1_000),
            ("million", 0, TENANTS),
            ("million", ROWS, 1),
            ("million", ROWS, TENANTS),
        ];
        for (number, (part, rows, tenants)) in parts.into_iter().enumerate() {
            let store = match (&url, name) {
                (_, "sqlite") => Store::sqlite(folder.join(format!("work-{number}.db"))),
                (Some(url), _) => Store::postgres(database(url).await),
                (None, _) => continue,
            };
            if !is_asked_for(&format!("{name}_{part}")) {
                rates.push(f64::NAN);
                continue;
            }
            let (rows, count) = if rows == 0 { (FEW_JOBS as i64, FEW_JOBS) } else { (rows, MANY_JOBS) };
            let port = (part == "http").then_some(vendor.port);
            rates.push(measure_worker(&format!("{name} {part}"), store, (rows, tenants), count, port).await);
        }
        let [one_http, many_http, one, many, most, one_million, most_million] = rates[..] else {
            figures.push(("-".to_owned(), "-".to_owned()));
            continue;
        };
        println!(
            "{name}: with a million waiting, of one tenant {:.2} and of {TENANTS} {:.2} times as many jobs/s as with few",
            one_million / one,
            most_million / most
        );
        figures.push((format!("{:.0}", one_http.min(many_http)), format!("{:.0}", one.min(many))));
        shares.push(one_million / one);
    }
    let bare = worker::bare(vendor.port, FEW_JOBS).await;
    let theirs = match &url {
        Some(url) if is_asked_for("graphile") => graphile(&database(url).await, vendor.port),
        _ => None,
    };
    let theirs = theirs.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
    let share = shares.into_iter().fold(f64::INFINITY, f64::min);
    format!(
        "store: sqlite_http={} postgres_http={} sqlite_fake={} postgres_fake={} one_tenant_million={share:.2} bare={bare:.0} graphile={theirs}",
        figures[0].0, figures[1].0, figures[0].1, figures[1].1
    )
}

async fn run() -> bool {
    let folder = folder();
    let mut good = true;
    let mut ratios = Vec::new();
    // `-- postgres` measures PostgreSQL only.
    let is_named = |what: &str| std::env::args().skip(1).any(|name| name == what);
    let is_asked_for =
        |what: &str| std::env::args().skip(1).all(|argument| argument.starts_with('-')) || is_named(what);
    for round in (0..3).take_while(|_| is_asked_for("sqlite")) {
        let path = folder.join(format!("enqueue-{round}.db"));
        let client = client(Store::sqlite(&path)).await;
        let (ours, theirs) = (enqueue(&client, 40).await, bare_commit_rate(&path, 40).await);
        println!(
            "sqlite enqueue, full sync, {CONCURRENT_CALLERS} callers: {ours:.0}/s; the bare loop: {theirs:.0}/s; {:.2}",
            ours / theirs
        );
        ratios.push(ours / theirs);
    }
    if is_asked_for("sqlite") {
        let ratio = median(ratios);
        good &= ratio >= 0.7;
        println!("sqlite enqueue beside the bare loop, the median of three: {ratio:.2} (at least 0.70)");
        let probe = filled_probe(Store::sqlite(folder.join("claim.db"))).await;
        let (claim, worst) = claim_times_ms(&probe).await;
        println!(
            "sqlite claim of 200 from {ROWS} rows in {TENANTS} lanes: {claim:.1} ms, at worst {worst:.1} ms (at most 30)"
        );
        println!("sqlite claim and ack in batches of 200: {:.0}/s", claim_and_finish_rate(&probe).await);
        good &= claim <= 30.0;
        drop(probe);
        let few = folder.join("few.db");
        let (probe, tasks) = Probe::open(Store::sqlite(&few)).await.unwrap();
        tasks.into_iter().for_each(|task| drop(tokio::spawn(task)));
        probe.fill(1_000, TENANTS).await.unwrap();
        drop(probe);
        let (few, many) = (memory(&few), memory(&folder.join("claim.db")));
        println!(
            "memory of a process that works on 1,000 and on about {ROWS} queued requests of {TENANTS} tenants: \
             {few:.0} MiB and {many:.0} MiB (at most 64 more)"
        );
        good &= many - few <= 64.0;
    }
    match std::env::var("IC_TEST_POSTGRES") {
        Ok(url) if cfg!(feature = "postgres") && is_asked_for("postgres") => {
            let probe = filled_probe(Store::postgres(database(&url).await)).await;
            let (claim, worst) = claim_times_ms(&probe).await;
            println!(
                "postgres claim of 200 from {ROWS} rows in {TENANTS} lanes: {claim:.1} ms, at worst {worst:.1} ms (at most 30)"
            );
            let pairs = claim_and_finish_rate(&probe).await;
            println!("postgres claim and ack in batches of 200: {pairs:.0}/s (at least 5000)");
            good &= claim <= 30.0 && pairs >= 5_000.0;
        }
        Err(_) => println!("postgres: not measured; set IC_TEST_POSTGRES to the URL of an empty database"),
        Ok(_) => {}
    }
    #[cfg(feature = "postgres")]
    if let Ok(url) = std::env::var("IC_TEST_POSTGRES") {
        if is_named("processes") {
            good &= processes::drain(&url).await;
        }
        if is_named("bloat") {
            processes::bloat(&url).await;
        }
        if is_named("snapshot") {
            processes::old_snapshot(&url).await;
        }
    }
    if is_asked_for("worker") {
        // Parts of the worker measurement may be named; without a name, all of them run.
        let parts: Vec<String> =
            std::env::args().skip(1).filter(|name| name.contains('_') || name == "graphile").collect();
        let summary = workers(&folder, |part| parts.is_empty() || parts.iter().any(|name| name == part)).await;
        println!("{summary}");
    }
    let _ = std::fs::remove_dir_all(&folder);
    good
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if std::env::var_os(worker::VENDOR).is_some() {
        runtime.block_on(worker::vendor());
        return ExitCode::SUCCESS;
    }
    #[cfg(feature = "postgres")]
    if let Ok(url) = std::env::var(processes::URL) {
        runtime.block_on(processes::work(url));
        return ExitCode::SUCCESS;
    }
    let good = match std::env::var(MEMORY) {
        Ok(path) => runtime.block_on(work_and_print_memory(&path)),
        Err(_) => runtime.block_on(run()),
    };
    match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
