//! The client beside its peers, over real sockets, against a vendor in its own process: how much each sends, how much
//! of it is refused, and how long it takes.
//!
//! ```text
//! cargo bench --bench peers
//! cargo bench --bench peers -- --only b --client ours-pace --seconds
//! ```
//!
//! `docs/BENCHMARKS.md` says what the tables mean. The vendor's own algorithm judges every arrival. The last line is
//! machine-readable. The process fails if a request of our client was refused while it knew the limit and used it
//! alone.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the time and starts tasks itself")]
#![expect(clippy::unwrap_used, reason = "whatever goes wrong ends the run")]

mod clients;
mod scenarios;
mod vendor;

use std::process::ExitCode;
use std::time::Instant;

use clients::Kind;
use scenarios::Totals;

const USAGE: &str = "usage: peers [--only a|b|c|d] [--client NAME] [--quick] [--seconds] [--workers N]

  --only S       this scenario alone: a the job, b saturation, c the penalty, d somebody else takes half
  --client NAME  this client alone: ours-adaptive, ours-pace, ours-bands, ours-off, governor, throttle-net, throttle-net-synced, leaky-bucket, tower,
                 oracle
  --quick        shorter runs, whose figures say little
  --seconds      what was admitted and refused in each second
  --workers N    how many records of the job are under way at once (256)";

/// The options of the run.
pub(crate) struct Wanted {
    only: Option<String>,
    pub(crate) clients: Vec<Kind>,
    pub(crate) quick: bool,
    pub(crate) seconds: bool,
    pub(crate) workers: usize,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted { only: None, clients: Kind::ALL.to_vec(), quick: false, seconds: false, workers: 256 };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match &*word {
            // Passed by cargo.
            "--bench" => {}
            "--quick" => wanted.quick = true,
            "--seconds" => wanted.seconds = true,
            "--workers" => {
                wanted.workers = value()?.parse().map_err(|_| "--workers needs a number".to_owned())?;
            }
            "--only" => {
                let scenario = value()?;
                if !["a", "b", "c", "d"].contains(&&*scenario) {
                    return Err(format!("there is no scenario {scenario:?}"));
                }
                wanted.only = Some(scenario);
            }
            "--client" => {
                let name = value()?;
                wanted.clients.retain(|kind| kind.name() == name);
                if wanted.clients.is_empty() {
                    return Err(format!("there is no client {name:?}"));
                }
            }
            _ => return Err(format!("unknown option {word:?}")),
        }
    }
    Ok(wanted)
}

async fn run(wanted: &Wanted) -> Totals {
    let mut totals = Totals::default();
    let is_wanted = |scenario: &str| wanted.only.as_deref().is_none_or(|only| only == scenario);
    if is_wanted("a") {
        scenarios::job(wanted, &mut totals).await;
    }
    if is_wanted("b") {
        scenarios::saturation(wanted, &mut totals).await;
    }
    if is_wanted("c") {
        scenarios::penalty(wanted, &mut totals).await;
    }
    if is_wanted("d") {
        scenarios::others(wanted).await;
    }
    totals
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == "vendor").is_some() {
        vendor::serve(&words.next().unwrap());
        return ExitCode::SUCCESS;
    }
    let wanted = match parse(words) {
        Ok(wanted) => wanted,
        Err(problem) => {
            println!("{problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!(
        "all: HTTP/1.1 keep-alive without TLS, no redirects, no retries of reqwest's, bearer key, tokio's default runtime; \
         the vendor: one thread, a process of its own, seed 7, windows of 1 s that begin 370 ms after its start (in the job \
         at the first request)"
    );
    for kind in &wanted.clients {
        println!("- {}: {}", kind.name(), kind.setting());
    }
    let start = Instant::now();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let totals = runtime.block_on(run(&wanted));
    println!("\nran for {:.0} s", start.elapsed().as_secs_f64());
    // Ratios at the larger limit, then at the smaller one.
    let times = |ratios: &[f64]| ratios.iter().map(|ratio| format!("{ratio:.3}x")).collect::<Vec<_>>().join("/");
    println!(
        "peers: ours_refused={} job_fixed={} job_bucket={}",
        totals.refused,
        times(&totals.job_fixed),
        times(&totals.job_bucket)
    );
    if totals.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
