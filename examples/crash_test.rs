//! Kills a working process again and again, at random moments, and counts what became of every request that it accepted.
//!
//!     scripts/crash-test.sh --kills 100 --store sqlite
//!
//! Three processes at a time: this one, which is the judge; a vendor, which lives in it and enforces its limits; and a
//! worker, which accepts requests and sends them, and is killed with SIGKILL. The judges are the vendor's own record and
//! the worker's output: a line for each request that was acknowledged, on a pipe that outlives it.
//!
//! The last line: `crash-test: store=S kills=N accepted=N lost=N duplicates=N in_flight_at_kill=N double_effects=N refused=N`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a program of its own, which reads a pipe and waits")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::outbox::Status;
use integration_client::store::Store;
use integration_client::testing::{Delay, FakeVendor, HeaderStyle, VendorLimit};
use integration_client::{IntegrationClient, Priority, Request};

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const TENANTS: [&str; 3] = ["acme", "umbra", "zenith"];
/// Of each tenant; so that a worker uses much of the limit, and a restart that forgot would go beyond it.
const LIMIT: u32 = 60;
const WINDOW: Duration = Duration::from_secs(2);

struct Options {
    kills: u32,
    store: String,
    seed: u64,
}

fn options() -> Fallible<Options> {
    let mut options = Options { kills: 3, store: "sqlite".to_owned(), seed: fastrand::u64(..) };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--kills" => options.kills = value.parse()?,
            "--store" => options.store = value,
            "--seed" => options.seed = value.parse()?,
            _ => return Err(format!("{name}: --kills N, --store sqlite|postgres, --seed N").into()),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let result = match std::env::var("CRASH_TEST_STORE") {
        Ok(store) => worker(&store),
        Err(_) => judge(),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("crash-test: {error}");
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

async fn client(store: &str, vendors: &str, work: bool) -> Result<IntegrationClient, integration_client::Error> {
    let mut builder = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendors)
        .store(Store::url(store).keep_done(Duration::MAX));
    for tenant in TENANTS {
        builder = builder.tenant(TenantEntry::new(tenant, "v").credential(format!("env:CRASH_TEST_KEY_{tenant}")));
    }
    if work { builder.work().build().await } else { builder.build().await }
}

/// Accepts and sends until it is killed; or, to drain, only sends until nothing is left.
fn worker(store: &str) -> Fallible<bool> {
    let vendors = std::env::var("CRASH_TEST_VENDORS")?;
    let run = std::env::var("CRASH_TEST_RUN")?;
    let drain = run == "drain";
    runtime()?.block_on(async {
        let client = client(store, &vendors, true).await?;
        say("ready");
        if drain {
            // The judge ends it.
            std::future::pending::<()>().await;
        }
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..6usize {
            let (client, run) = (client.clone(), run.clone());
            tasks.spawn(async move {
                let mut random = fastrand::Rng::new();
                for number in 0u64.. {
                    let tenant = TENANTS[task % TENANTS.len()];
                    let priority = [Priority::High, Priority::Normal, Priority::Low][random.usize(..3)];
                    let path = format!("/jobs/{run}-{task}-{number}");
                    let request = Request::post("v", path.as_str()).json(&[number]);
                    match client.enqueue(tenant, priority, request).await {
                        Ok(receipt) => say(&format!("accepted {} {path}", receipt.id())),
                        Err(error) => say(&format!("failed {error}")),
                    }
                    tokio::time::sleep(Duration::from_millis(random.u64(30..120))).await;
                }
            });
        }
        tasks.join_all().await;
        Ok(true)
    })
}

/// One write for a line: it is on the pipe whole, or not at all.
fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

/// Lines of a worker, read as they come.
struct Worker {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Worker {
    fn start(store: &str, vendors: &str, run: &str) -> Fallible<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env("CRASH_TEST_STORE", store).env("CRASH_TEST_VENDORS", vendors).env("CRASH_TEST_RUN", run);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().ok_or("the worker has no output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let worker = Worker { process, lines };
        match worker.lines.recv_timeout(Duration::from_secs(60))?.as_str() {
            "ready" => Ok(worker),
            other => Err(format!("the worker said {other:?}").into()),
        }
    }

    /// Kills it, and returns everything that it said.
    fn kill(mut self) -> Fallible<Vec<String>> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(self.lines.iter().collect())
    }
}

/// Exchanges that were written down as begun and have no outcome: asked of the database itself.
async fn begun(store: &str) -> Fallible<Vec<String>> {
    let sql = match store.starts_with("sqlite:") {
        true => "SELECT hex(id) || ' ' || fence FROM ic_job WHERE state = 1 AND started = 1",
        false => "SELECT encode(id, 'hex') || ' ' || fence FROM ic_job WHERE state = 1 AND started = 1",
    };
    ask(store, sql).await
}

async fn count(store: &str, sql: &'static str) -> Fallible<i64> {
    let counts: Vec<i64> = ask(store, sql).await?;
    Ok(counts.first().copied().unwrap_or_default())
}

/// The first column of what a statement returns.
#[cfg(feature = "postgres")]
async fn ask<T>(store: &str, sql: &'static str) -> Fallible<Vec<T>>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    use sqlx::{Connection, Row};
    if store.starts_with("sqlite:") {
        return ask_sqlite(store, sql).await;
    }
    let mut connection = sqlx::PgConnection::connect(store).await?;
    let rows = sqlx::query(sql).fetch_all(&mut connection).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

#[cfg(not(feature = "postgres"))]
async fn ask<T>(store: &str, sql: &'static str) -> Fallible<Vec<T>>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite> + Send + Unpin,
{
    ask_sqlite(store, sql).await
}

async fn ask_sqlite<T>(store: &str, sql: &'static str) -> Fallible<Vec<T>>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite> + Send + Unpin,
{
    use sqlx::{Connection, Row};
    let path = store.strip_prefix("sqlite:").ok_or("PostgreSQL is not compiled in: --features testing,postgres")?;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
    let rows = sqlx::query(sql).fetch_all(&mut connection).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

fn judge() -> Fallible<bool> {
    let Options { kills, store: kind, seed } = options()?;
    let folder = std::env::temp_dir().join(format!("ic-crash-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let store = match kind.as_str() {
        "sqlite" => format!("sqlite:{}", folder.join("outbox.db").display()),
        "postgres" => std::env::var("IC_TEST_POSTGRES").map_err(|_| "IC_TEST_POSTGRES names no server")?,
        other => return Err(format!("--store {other}: sqlite or postgres").into()),
    };
    println!("crash-test: seed {seed}, in {}", folder.display());
    let runtime = runtime()?;
    let vendor = runtime.block_on(
        FakeVendor::builder()
            .limit(VendorLimit::sliding_log(LIMIT, WINDOW))
            .headers(HeaderStyle::Silent)
            .service_time(Delay::fixed(Duration::from_millis(5)).jitter(Duration::from_millis(40)))
            .start(),
    )?;
    // The worker's retries are quick, and its vendor honours keys. On this machine nothing is under way for a second.
    let vendors = vendor.vendors_toml("v").replacen(
        "\nauth",
        "\nconnect_timeout = \"1s\"\nmax_transit = \"1s\"\nauth",
        1,
    ) + "\n[vendors.v.retry]\nidempotency_header = \"idempotency-key\"\nfirst_wait = \"200ms\"\nlongest_wait = \"2s\"\n";

    let mut random = fastrand::Rng::with_seed(seed);
    let mut accepted: BTreeMap<String, String> = BTreeMap::new();
    let (mut in_flight, mut failed) = (HashSet::new(), 0);
    let mut hear = |lines: Vec<String>| {
        for line in lines {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["accepted", id, path] => drop(accepted.insert(id.to_owned(), path.to_owned())),
                _ => {
                    failed += 1;
                    println!("crash-test: the worker said {line:?}");
                }
            }
        }
    };
    for kill in 1..=kills {
        let worker = Worker::start(&store, &vendors, &kill.to_string())?;
        std::thread::sleep(Duration::from_millis(random.u64(50..1_500)));
        hear(worker.kill()?);
        // With PostgreSQL those of the kill before may still be there, until their leases end: counted once.
        in_flight.extend(runtime.block_on(begun(&store))?);
        if kill % 10 == 0 {
            println!("crash-test: {kill} kills, {} exchanges under way at them", in_flight.len());
        }
    }
    // One more goes on to the end.
    let worker = Worker::start(&store, &vendors, "drain")?;
    let mut left = i64::MAX;
    for _ in 0..6_000 {
        left = runtime.block_on(count(&store, "SELECT count(*) FROM ic_job"))?;
        if left == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    hear(worker.kill()?);

    let arrivals = vendor.arrivals();
    let mut admitted: HashMap<&str, u64> = HashMap::new();
    let mut keys: HashMap<&str, HashSet<&str>> = HashMap::new();
    for arrival in arrivals.iter().filter(|arrival| arrival.admitted) {
        *admitted.entry(&arrival.path).or_default() += 1;
        keys.entry(&arrival.path).or_default().insert(&arrival.idempotency_key);
    }
    let mut lost = 0;
    runtime.block_on(async {
        let client = client(&store, &vendors, false).await?;
        for (id, path) in &accepted {
            let status = client.receipt(id)?.status().await?;
            let is_safe = match status {
                Status::Delivered { .. } => admitted.contains_key(path.as_str()),
                Status::Dead { .. } => true,
                _ => false,
            };
            if !is_safe {
                lost += 1;
                println!("crash-test: LOST {id} {path}: {status:?}");
            }
        }
        for kept in client.dead_letters_stored()?.list(None, 20).await? {
            let letter = kept.letter;
            println!("crash-test: dead letter {}: {}, {} attempts", letter.id, letter.reason, letter.attempts.len());
        }
        Ok::<_, integration_client::Error>(())
    })?;
    let duplicates: u64 = admitted.values().map(|count| count - 1).sum();
    let double_effects = keys.values().filter(|keys| keys.len() > 1).count();
    let twice = "SELECT count(*) FROM (SELECT id FROM (SELECT id FROM ic_job UNION ALL SELECT id FROM ic_done \
                 UNION ALL SELECT id FROM ic_dead) places GROUP BY id HAVING count(*) > 1) twice";
    let twice = runtime.block_on(count(&store, twice))?;
    let dead = runtime.block_on(count(&store, "SELECT count(*) FROM ic_dead"))?;
    let (refused, in_flight) = (vendor.refused(), in_flight.len());
    println!("crash-test: {} arrivals, {dead} dead letters, {left} left, {twice} in two places", arrivals.len());
    println!(
        "crash-test: store={kind} kills={kills} accepted={} lost={lost} duplicates={duplicates} \
         in_flight_at_kill={in_flight} double_effects={double_effects} refused={refused}",
        accepted.len()
    );
    let _ = std::fs::remove_dir_all(&folder);
    let within = usize::try_from(duplicates).is_ok_and(|duplicates| duplicates <= in_flight);
    Ok(lost == 0 && within && double_effects == 0 && refused == 0 && twice == 0 && left == 0 && failed == 0)
}
