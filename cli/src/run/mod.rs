//! `run`: sends a file of jobs as fast as the limits allow, and continues after interruptions until all jobs have
//! ended.
//!
//! Lines are accepted into the store page by page, each page together with the position up to which the file was read
//! (a `Batch` of the library). A run that was interrupted continues there. The library's outbox sends the jobs; this folder reads the
//! file, counts, and shows progress and results.
//!
//! | file | what it does |
//! |---|---|
//! | `args.rs` | the options |
//! | `prepare.rs` | decides from which line a run goes on, or whether it begins anew, by what an earlier run left |
//! | `input.rs`, `job.rs` | read the file and its lines; whether the part that was read is still the same |
//! | `sent.rs` | which lines an earlier run sent, for `--changed` |
//! | `feed.rs` | moves lines into the store, and leaves out those that were sent |
//! | `results.rs`, `result_lines.rs` | the result of each job, and the lines that are written for it |
//! | `active.rs` | a run under way: events, progress, and how it ends |
//! | `progress.rs`, `finish.rs`, `account.rs` | what a run shows on its way, at its end, and its summary |
//! | `troubles.rs`, `console.rs`, `dry.rs` | problems with tenants, `--console`, `--dry-run` |

mod account;
mod active;
mod args;
mod console;
mod dry;
mod feed;
mod finish;
mod input;
mod job;
mod prepare;
mod progress;
mod result_lines;
mod results;
mod sent;
mod troubles;

use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::clock::Clock;
use integration_client::outbox::BatchCounts;

use self::active::ActiveRun;
pub(crate) use self::args::Args;
use self::args::name;
use self::feed::Feed;
use self::input::Input;
use self::prepare::{Prepared, prepare};
use self::progress::{Progress, Rate};
use self::results::Results;
use self::troubles::Troubles;
use crate::connect::{self, Named};
use crate::interrupt::Signals;
use crate::notes;
use crate::output::{Failure, Outcome, Screen};

/// Jobs in hand at once: those that wait for a permit and those under way.
const MOST_JOBS: usize = 4_096;

pub(crate) fn run(args: &Args) -> Result<Outcome, Failure> {
    let clock = Clock::system();
    let signals = Signals::listen()?;
    let runtime = connect::runtime()?;
    let done = runtime.block_on(go(args, clock, &signals));
    // A thread may still be blocked in reading from a pipe; do not wait for it.
    runtime.shutdown_background();
    done
}

async fn go(args: &Args, clock: Clock, signals: &Signals) -> Result<Outcome, Failure> {
    let began = clock.now();
    let named = Named::new(&args.store.clone().unwrap_or_else(|| match input::path(&args.jobs) {
        Some(path) => format!("sqlite:{}.sqlite", path.display()),
        None => "sqlite:run.sqlite".to_owned(),
    }));
    let mut input = Input::open(&args.jobs)?;
    if args.dry_run {
        return tokio::select! {
            looked = dry::run(args, &named, input, clock, Screen::of_terminal()) => looked,
            () = signals.first() => Ok(Outcome::Interrupted),
        };
    }
    let Prepared { results, counts, mark, sent } = tokio::select! {
        prepared = prepare(args, &named, &mut input) => prepared?,
        () = signals.first() => {
            notes::say("run: interrupted before anything was sent. Run the same command again to go on");
            return Ok(Outcome::Interrupted);
        }
    };
    // Logging begins after `prepare`, because the clients of both steps read the same files and would log the same
    // warnings.
    notes::listen(args.quiet, false);
    let client = open(args, &named, &results).await?;
    let (writer, batch) = (client.outbox().batch(&name(args)).await?, client.outbox().batch(&name(args)).await?);
    let queues = client.outbox().queues(10_000).await?;
    let console = console::serve(args.console, &client).await?;
    results.begin(&counts, &queues);
    if counts.waiting + counts.delivered + counts.dead > 0 && !args.quiet {
        let BatchCounts { waiting, delivered, dead, .. } = counts;
        notes::say(&format!("run: goes on; from before {delivered} are done, {dead} are dead and {waiting} wait"));
    }
    let feed = Feed::begin(&client, input, writer, mark, results.clone(), args.keep_going, sent, clock);
    let mut going = ActiveRun {
        events: client.events(),
        progress: Progress::new(args.quiet),
        client,
        batch,
        results,
        far: feed.far(),
        clock,
        rate: Rate::default(),
        troubles: Troubles::default(),
        store: named.shown(),
        refused: 0,
        is_quiet: args.quiet,
        ends_in: None,
        estimated: None,
        counted: clock.now(),
    };
    let end = going.until_it_ends(feed, signals).await;
    going.progress.end();
    if let Some(console) = console {
        console.shutdown(Duration::ZERO).await;
    }
    going.finish(args, &named, end, began, signals).await
}

/// Builds the client that sends the jobs.
async fn open(args: &Args, named: &Named, results: &Results) -> Result<IntegrationClient, Failure> {
    let store = named
        .store()
        .max_payload_bytes(2 * usize::try_from(input::LONGEST).unwrap_or(usize::MAX))
        // The store keeps the results of all of the run's jobs.
        .keep_done(Duration::MAX)
        .keep_dead(Duration::MAX)
        .max_dead(u64::MAX);
    let builder = args.configuration.builder()?.config_in_store().store(store).work().max_jobs(MOST_JOBS);
    let builder = builder.response_handler(results.clone()).event_capacity(1 << 16);
    match builder.publish_status(Duration::from_secs(1)).build().await {
        Ok(client) => Ok(client),
        Err(error) if error.is_store_in_use() => Err(Failure::Input(format!(
            "the store {} is in use by another run: wait for its end (`integration-client status --store {0}`), or name \
             another with --store",
            named.shown()
        ))),
        Err(error) => Err(error.into()),
    }
}
