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
//! | `results.rs`, `result_lines.rs`, `bodies.rs` | the result of each job, and the lines that are written for it |
//! | `active.rs` | a run under way: events, progress, and how it ends |
//! | `progress.rs`, `finish.rs`, `account.rs` | what a run shows on its way, at its end, and its summary |
//! | `troubles.rs`, `keys.rs` | problems with tenants; the lanes that are paused because of their keys |
//! | `unconfigured.rs` | the jobs whose vendor or tenant is not configured |
//! | `console.rs` | `--console` |
//! | `dry.rs`, `deadlines.rs`, `costly.rs` | `--dry-run`; which jobs cannot be sent before their deadlines; which cost too much |

mod account;
mod active;
mod args;
mod bodies;
mod console;
mod costly;
mod deadlines;
mod dry;
mod feed;
mod finish;
mod input;
mod job;
mod keys;
mod prepare;
mod progress;
mod result_lines;
mod results;
mod sent;
mod troubles;
mod unconfigured;

use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::clock::Clock;
use integration_client::gateway::Serving;
use integration_client::outbox::{Batch, BatchCounts, Queue};

use self::active::ActiveRun;
pub(crate) use self::args::Args;
use self::args::name;
use self::feed::Feed;
use self::finish::GRACE;
use self::input::{Input, Mark};
use self::keys::PausedLanes;
use self::prepare::{Prepared, prepare};
use self::progress::{Progress, Rate};
use self::results::{LaneTier, Results};
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
    let interrupted = || {
        notes::say("run: interrupted before anything was sent. Run the same command again to go on");
        Ok(Outcome::Interrupted)
    };
    let mut input = tokio::select! {
        input = Input::wait_for(&args.jobs) => input?,
        () = signals.first() => return interrupted(),
    };
    if args.dry_run {
        return tokio::select! {
            looked = dry::run(args, &named, input, clock, Screen::of_terminal()) => looked,
            () = signals.first() => {
                notes::say("run: interrupted; nothing was sent");
                Ok(Outcome::Interrupted)
            }
        };
    }
    let prepared = tokio::select! {
        prepared = prepare(args, &named, &mut input) => prepared?,
        () = signals.first() => return interrupted(),
    };
    // Logging begins after `prepare`, because the clients of both steps read the same files and would log the same
    // warnings.
    notes::listen(args.quiet, false);
    let client = open(args, &named, &prepared.results).await?;
    let begun = match begin(args, &client, &prepared).await {
        Ok(begun) => begun,
        Err(failure) => {
            // The client has begun to send what the store holds already.
            client.shutdown(GRACE).await;
            return Err(failure);
        }
    };
    let Begun { writer, batch, lanes, queues, console } = begun;
    let Prepared { results, counts, mark, sent, .. } = prepared;
    let has_ended = mark.complete && counts.waiting == 0 && input.size == Some(mark.offset);
    if !args.quiet {
        say_what_begins(&counts, &mark, has_ended, &named);
        if args.out.is_none() && !has_ended {
            notes::say("run: no --out: the vendors' responses are not kept");
        }
    }
    let keys = PausedLanes::new(args.quiet);
    let check = async {
        for ((tenant, vendor, _), _) in &lanes {
            keys.check(tenant, vendor, &client).await;
        }
        // The client sends the jobs of other runs in the store too, and would make dead letters of those without a key.
        for queue in &queues {
            keys.check_of_others(&queue.tenant, &queue.vendor, &client).await;
        }
        if !args.quiet {
            unconfigured::said(&queues, &client).iter().for_each(|said| notes::say(&format!("run: {said}")));
        }
    };
    tokio::select! {
        () = check => {}
        // The run hears the signal too, and ends in good order.
        () = signals.first() => {}
    }
    let feed = Feed::begin(&client, input, writer, mark, results.clone(), args.keep_going, sent, keys.clone(), clock);
    let letters = letters_options(batch.run(), &named);
    let mut going = ActiveRun {
        events: client.events(),
        progress: Progress::new(args.quiet),
        client,
        batch,
        results,
        far: feed.far(),
        clock,
        rate: Rate::default(),
        troubles: Troubles::new(keys),
        letters,
        refused: 0,
        is_quiet: args.quiet,
        ends_in: None,
        estimated: None,
        counted: clock.now(),
        ended_by_then: 0,
    };
    let end = going.until_it_ends(feed, signals).await;
    going.progress.end();
    if let Some(console) = console {
        console.shutdown(Duration::ZERO).await;
    }
    going.finish(args, end, began, signals).await
}

/// A run that has begun in the store, or goes on.
struct Begun {
    /// Accepts the lines.
    writer: Batch,
    /// Reads what has become of them.
    batch: Batch,
    /// The jobs that wait from before.
    lanes: Vec<(LaneTier, u64)>,
    /// All jobs of the store.
    queues: Vec<Queue>,
    console: Option<Serving>,
}

/// Begins the run. A new run begins in the store after everything that may refuse it: a refused command must leave
/// the record of the lines that the run before has sent, or the next command would send them again.
async fn begin(args: &Args, client: &IntegrationClient, prepared: &Prepared) -> Result<Begun, Failure> {
    let mut writer = client.outbox().batch(&name(args)).await?;
    prepared.check_unchanged(&writer)?;
    let lanes = if prepared.is_anew() { Vec::new() } else { writer.waiting_by_lane().await? };
    // At once: the client sends these jobs already.
    prepared.results.begin(&prepared.counts, lanes.clone());
    let queues = client.outbox().queues(10_000).await?;
    let console = console::serve(args.console, client).await?;
    prepared.begin_anew(&mut writer).await?;
    let batch = client.outbox().batch(&name(args)).await?;
    Ok(Begun { writer, batch, lanes, queues, console })
}

/// The options that select the dead letters of a run in commands for the user. The store may hold letters of earlier
/// runs, whose requests were done in a later one. The ids of a run's jobs begin with the run's number.
fn letters_options(run: u64, named: &Named) -> String {
    format!(" --run {run:016x}{}", named.option())
}

/// Says what an earlier run of the file has done, if there was one.
fn say_what_begins(counts: &BatchCounts, mark: &Mark, has_ended: bool, named: &Named) {
    let BatchCounts { waiting, delivered, dead, cancelled, .. } = *counts;
    // The run may be one of `--changed`, which has sent few of the lines.
    if has_ended && mark.lines > mark.invalid {
        let line = if mark.invalid == 0 { "line" } else { "valid line" };
        // The account at the end names the commands for dead letters, which send nothing again that is done.
        let anew = match dead {
            0 => "; --anew sends all of its lines again, also those that are done",
            _ => "",
        };
        return notes::say(&format!(
            "run: nothing to send: every {line} of this file has ended in earlier runs ({}){anew}",
            named.shown()
        ));
    }
    if waiting + delivered + dead + cancelled == 0 {
        return;
    }
    notes::say(&format!("run: goes on; from before {delivered} are done, {dead} are dead letters and {waiting} wait"));
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
            "the store {} is in use by another run: wait for its end (`integration-client status{}`), or name another with \
             --store",
            named.shown(),
            named.option()
        ))),
        Err(error) => Err(error.into()),
    }
}
