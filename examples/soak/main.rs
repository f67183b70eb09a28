//! Disturbs a whole deployment for some time, and then judges what became of every request.
//!
//!     scripts/soak.sh --seconds 600 --store sqlite
//!     scripts/soak.sh --seconds 60 --store postgres --seed 7 --verbose
//!
//! A sender and one worker (two with PostgreSQL) call three vendors for six tenants of three accounts. They send
//! requests whose callers wait for the answer, some of which are cancelled half-way, and jobs of an outbox. Meanwhile,
//! configurations change, and some are malformed; tenants move to other accounts with other credentials; wall clocks
//! step by an hour or a day; the store is locked or stopped; vendors refuse or reset connections, answer 503 or do not
//! answer; and workers are killed. The vendors run in this process and keep a sliding log of what arrives.
//!
//! The last line is `soak: seconds=N sent=N refused=N over_limit=N lost=N doubled=N stuck=N`. The exit code is 0 if all
//! figures except the first two are 0, and `sent` is not 0. The figures count:
//!
//! | figure | counts |
//! |---|---|
//! | `sent` | exchanges that the vendors admitted |
//! | `refused` | answers of 429 |
//! | `over_limit` | requests above a limit, by the definition of each limit over the vendor's log |
//! | `lost` | accepted jobs that are missing, or dead letters without a cause; answers that no vendor gave |
//! | `doubled` | requests that acted twice, or were sent again after an answer and without a cause |
//! | `stuck` | requests and jobs that had room and were not sent within ten seconds, without the pause after failures |
//!
//! A request is not stuck if its tenant's other requests used an eighth of the tenant's limit meanwhile: the tenant had
//! more to send than its limit allows.
//!
//! A cause is a kill while the job was under way, or an outage that the exchange overlapped. The seed decides what
//! happens and when it begins; which requests it hits depends on the operating system.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a program of its own, which reads the time, spawns and waits")]

#[path = "../crash_test/database.rs"]
#[allow(dead_code, reason = "shared with examples/crash_test")]
mod database;
mod director;
pub(crate) mod judge;
#[path = "../crash_test/process.rs"]
#[allow(dead_code, reason = "shared with examples/crash_test")]
mod process;
mod program;
mod settling;
mod stalls;
pub(crate) mod world;

use std::collections::BTreeMap;
use std::process::ExitCode;

use judge::Verdict;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The most faults of each kind that are printed.
const MOST_FAULTS: usize = 8;

pub(crate) struct Options {
    pub(crate) seconds: u64,
    pub(crate) store: String,
    pub(crate) seed: u64,
    /// Kinds of disturbances that are left out, to find the one that matters.
    pub(crate) without: Vec<String>,
    /// Prints each disturbance.
    pub(crate) verbose: bool,
    /// The file to which the programs' warnings are written.
    pub(crate) log: Option<String>,
    /// Arguments that make this executable run as a program of the soak.
    pub(crate) child_arguments: &'static [&'static str],
}

impl Options {
    pub(crate) fn new() -> Options {
        Options {
            seconds: 600,
            store: "sqlite".to_owned(),
            seed: fastrand::u64(..1_000_000),
            without: Vec::new(),
            verbose: false,
            log: None,
            child_arguments: &[],
        }
    }

    fn read() -> Fallible<Options> {
        let mut options = Options::new();
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            if name == "--verbose" {
                options.verbose = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--seconds" => options.seconds = value.parse()?,
                "--store" => options.store = value,
                "--seed" => options.seed = value.parse()?,
                "--without" => {
                    options.without = value.split(',').map(str::to_owned).collect();
                    if let Some(unknown) = options.without.iter().find(|kind| !director::KINDS.contains(&kind.as_str()))
                    {
                        return Err(format!("--without {unknown}: one of {:?}", director::KINDS).into());
                    }
                }
                "--log" => options.log = Some(value),
                _ => {
                    let usage =
                        "--seconds N, --store sqlite|postgres, --seed N, --without KIND,..., --log FILE, --verbose";
                    return Err(format!("{name}: {usage}").into());
                }
            }
        }
        Ok(options)
    }
}

/// Runs the soak and prints its findings; the last line is the verdict. Returns whether the run had no faults.
pub(crate) fn soak(options: &Options) -> Fallible<bool> {
    println!("soak: seed {}, store {}", options.seed, options.store);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut director = director::Director::new(options, &runtime)?;
    director.disturb(options.seconds)?;
    director.settle()?;
    let (record, problems) = director.into_record()?;
    let verdict = judge::judge(&record);
    for problem in &problems {
        println!("soak: problem: {problem}");
    }
    print(options.seconds, &record, &verdict);
    Ok(verdict.is_clean() && problems.is_empty())
}

fn print(seconds: u64, record: &judge::Record, verdict: &Verdict) {
    let mut printed: BTreeMap<&str, usize> = BTreeMap::new();
    for fault in &verdict.faults {
        let count = printed.entry(fault.split(':').next().unwrap_or_default()).or_default();
        *count += 1;
        if *count <= MOST_FAULTS {
            println!("soak: {fault}");
        }
    }
    for (kind, count) in printed.into_iter().filter(|(_, count)| *count > MOST_FAULTS) {
        println!("soak: {kind}: {} more", count - MOST_FAULTS);
    }
    println!("soak: the fullest windows: {}", verdict.peaks.join(", "));
    let excused: Vec<String> = verdict.excused.iter().map(|(why, count)| format!("{count} {why}")).collect();
    println!(
        "soak: {} requests and jobs, {} kills; excused: {}",
        record.told.len(),
        record.kills.len(),
        excused.join(", ")
    );
    let Verdict { sent, refused, over_limit, lost, doubled, stuck, .. } = verdict;
    println!(
        "soak: seconds={seconds} sent={sent} refused={refused} over_limit={over_limit} lost={lost} doubled={doubled} \
         stuck={stuck}"
    );
}

/// Runs as a program of the soak, if this process was started as one.
pub(crate) fn run_as_program() -> Option<Fallible<bool>> {
    program::is_program().then(program::run)
}

#[allow(dead_code, reason = "tests/suite/soak.rs has a harness instead")]
fn main() -> ExitCode {
    let result = run_as_program().unwrap_or_else(|| Options::read().and_then(|options| soak(&options)));
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}
