//! Several processes share one limit through a store, while one of them or the store is killed, stopped or restarted.
//! The vendor, which runs in this process and enforces the limit, is the judge.
//!
//!     cargo run --release --example sharing --features postgres -- --store postgres --processes 4 --seconds 20
//!     cargo run --release --example sharing -- --store sqlite --processes 4 --seconds 60 --fault kill
//!     cargo run --release --example sharing --features redis -- --store redis --fault store-promote
//!     cargo run --release --example sharing --features etcd -- --store etcd --window-ms 60000 --seconds 240 --fault store-restart
//!     scripts/postgres.sh standby; IC_TEST_POSTGRES=$IC_TEST_PGBOUNCER cargo run --release --example sharing --features postgres -- \
//!         --store postgres --fault store-promote
//!     eval "$(IC_TEST_CLOCK=steps scripts/postgres.sh start)"; cargo run --release --example sharing --features postgres -- \
//!         --store postgres --fault store-ahead
//!
//! `store-ahead` and `store-behind` step the clock of the store's server by 8 s.
//!
//! With `--jobs N` the processes drain one outbox of N jobs, and the last line is
//! `sharing-jobs: processes=N jobs=N seconds=S ideal=S refused=N twice=N`; `ideal` is the time for all jobs at 80 % of
//! the limit.
//!
//! Otherwise the last line is
//! `sharing: processes=N limit=L/W store=S fault=F reached=N refused=N jain=N tiers=H/N/L quiet_ms=N back_ms=N`.
//! `reached` is the percentage of the limit that arrived, from the second window to the fault or the end. `quiet_ms` is
//! the longest time without an arrival, and `back_ms` the time from the fault until the processes reached nine tenths
//! of their rate before it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a program of its own, which reads the time and waits")]

#[path = "../crash_test/database.rs"]
#[allow(dead_code, reason = "that program asks more of it")]
mod database;
mod faults;
mod judge;
#[path = "../crash_test/process.rs"]
#[allow(dead_code, reason = "that program asks more of it")]
mod process;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    store: String,
    processes: u32,
    limit: u32,
    window: Duration,
    seconds: u64,
    algorithm: String,
    demand: String,
    fault: String,
    lease: Duration,
    /// The part of the limit with which all processes together go on when the store does not answer; 0 for none.
    floor: f64,
    /// The number of outbox jobs that the processes drain instead of making requests of their own.
    jobs: u32,
    seed: u64,
}

const USAGE: &str = "--store sqlite|postgres|redis|etcd|zookeeper|s3|URL, --processes N, --limit N, --window-ms N, --seconds N, \
    --algorithm sliding|fixed|bucket, --demand uniform|hot|moving|tiers, \
    --fault none|kill|term|stop5|stop15|store-stop|store-away|store-kill|store-restart|store-flush|store-promote|store-ahead|store-behind, --lease-ms N, --floor PART, --jobs N (with --store postgres), --seed N";

fn options() -> Fallible<Options> {
    let mut options = Options {
        store: "sqlite".to_owned(),
        processes: 4,
        limit: 100,
        window: Duration::from_secs(1),
        seconds: 20,
        algorithm: "sliding".to_owned(),
        demand: "uniform".to_owned(),
        fault: "none".to_owned(),
        lease: Duration::from_secs(10),
        floor: 0.0,
        jobs: 0,
        seed: fastrand::u64(..),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name}: {USAGE}"))?;
        match name.as_str() {
            "--store" => options.store = value,
            "--processes" => options.processes = value.parse()?,
            "--limit" => options.limit = value.parse()?,
            "--window-ms" => options.window = Duration::from_millis(value.parse()?),
            "--seconds" => options.seconds = value.parse()?,
            "--algorithm" => options.algorithm = value,
            "--demand" => options.demand = value,
            "--fault" => options.fault = value,
            "--lease-ms" => options.lease = Duration::from_millis(value.parse()?),
            "--floor" => options.floor = value.parse()?,
            "--jobs" => options.jobs = value.parse()?,
            "--seed" => options.seed = value.parse()?,
            _ => return Err(format!("{name}: {USAGE}").into()),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let result = match std::env::var("SHARING_WORKER") {
        Ok(number) => worker::work(&number).map(|()| true),
        Err(_) => options().and_then(|options| judge::run(&options)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sharing: {error}");
            ExitCode::FAILURE
        }
    }
}
