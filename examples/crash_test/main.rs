//! Kills, stops and starves workers and their store again and again, and counts what became of every request that the
//! workers accepted.
//!
//!     scripts/crash-test.sh --kills 100 --store sqlite
//!     scripts/crash-test.sh --zombies 100 --store postgres
//!     scripts/crash-test.sh --store-restarts 20 --store postgres
//!
//! A run has several processes: this one, which is the judge and holds a vendor that enforces its limits; workers,
//! which accept requests and send them; and the store, if it is a server. The verdict rests on the vendor's own record
//! and on the workers' output: one line for each acknowledged request, on a pipe that outlives the worker.
//!
//! Half of the kills are SIGKILL at a random moment. The other half happen at a named point: before a statement,
//! between the statement and its commit, or between the commit and its acknowledgement. There the process ends itself
//! by `abort`, which runs no more of its code than SIGKILL does.
//!
//! The last line is
//! `crash-test: store=S kills=N accepted=N lost=N duplicates=N in_flight_at_kill=N double_effects=N refused=N`. In the
//! other modes, `zombies` or `store_restarts` takes the place of `kills`, and the figures of that mode follow at the
//! end.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a program of its own, which reads the time, a pipe and waits")]

mod database;
mod judge;
mod kills;
mod process;
mod restarts;
mod worker;
mod zombies;

use std::process::ExitCode;
use std::time::Duration;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const TENANTS: [&str; 3] = ["acme", "umbra", "zenith"];

enum Mode {
    Kills(u32),
    Zombies(u32),
    Restarts(u32),
}

struct Options {
    mode: Mode,
    store: String,
    seed: u64,
    /// The longest life of a worker.
    round: Duration,
}

const USAGE: &str =
    "--kills N, --zombies N or --store-restarts N; --store sqlite|postgres, --seed N, --round MILLISECONDS";

fn options() -> Fallible<Options> {
    let mut options = Options {
        mode: Mode::Kills(3),
        store: "sqlite".to_owned(),
        seed: fastrand::u64(..),
        round: Duration::from_millis(600),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--kills" => options.mode = Mode::Kills(value.parse()?),
            "--zombies" => options.mode = Mode::Zombies(value.parse()?),
            "--store-restarts" => options.mode = Mode::Restarts(value.parse()?),
            "--store" => options.store = value,
            "--seed" => options.seed = value.parse()?,
            "--round" => options.round = Duration::from_millis(value.parse::<u64>()?.max(30)),
            _ => return Err(format!("{name}: {USAGE}").into()),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let result = match std::env::var("CRASH_TEST_STORE") {
        Ok(store) => worker::work(&store),
        Err(_) => options().and_then(|options| match options.mode {
            Mode::Kills(kills) => kills::run(&options, kills),
            Mode::Zombies(zombies) => zombies::run(&options, zombies),
            Mode::Restarts(restarts) => restarts::run(&options, restarts),
        }),
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
