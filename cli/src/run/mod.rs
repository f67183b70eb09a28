//! `run`: sends a file of jobs as fast as the limits allow, and continues after interruptions until all jobs have
//! ended.
//!
//! Lines are accepted into the store page by page, each page together with the position up to which the file was read
//! ([`Batch`]). A run that was interrupted continues there. The library's outbox sends the jobs; this folder reads the
//! file, counts, and shows progress and results.
//!
//! | file | what it does |
//! |---|---|
//! | `prepare.rs` | decides from which line a run goes on, or whether it begins anew, by what an earlier run left |
//! | `input.rs`, `job.rs` | read the file and its lines; whether the part that was read is still the same |
//! | `sent.rs` | which lines an earlier run sent, for `--changed` |
//! | `feed.rs` | moves lines into the store, and leaves out those that were sent |
//! | `results.rs`, `result_lines.rs` | the result of each job, and the lines that are written for it |
//! | `progress.rs`, `finish.rs`, `account.rs` | what a run shows on its way, at its end, and its summary |
//! | `troubles.rs`, `console.rs`, `dry.rs` | problems with tenants, `--console`, `--dry-run` |

mod account;
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

use std::path::PathBuf;
use std::time::Duration;

use integration_client::clock::{Clock, Time};
use integration_client::events::{Event, EventKind, Events};
use integration_client::outbox::{Batch, BatchCounts};
use integration_client::{ErrorKind, IntegrationClient};

use self::feed::{Feed, HowFar};
use self::input::Input;
use self::prepare::{Prepared, prepare};
use self::progress::{Moment, Progress, Rate};
use self::results::Results;
use self::troubles::Troubles;
use crate::connect::{self, Configuration, Named};
use crate::interrupt::Signals;
use crate::notes;
use crate::output::{Failure, Outcome, Screen};

const EXAMPLES: &str = "\
A job is one line:
  {\"tenant\":\"acme\",\"vendor\":\"parcels\",\"priority\":\"low\",\"method\":\"POST\",
   \"path\":\"/labels\",\"body\":{\"order\":17}}
and may have \"headers\" (an object), \"cost\" (points, or {\"input_tokens\":1800}),
\"idempotency_key\" and \"deadline\" (\"2h\", or a moment). A body that is a text
is sent as it is, any other as JSON.

Examples:
  integration-client run jobs.jsonl --vendors vendors.toml --out results.jsonl
  make-jobs | integration-client run - --vendors vendors.toml --store may.sqlite
  integration-client run jobs.jsonl --dry-run
  integration-client run jobs.jsonl --keep-going; \\
      integration-client dead-letters list --store jobs.jsonl.sqlite

Interrupted by Ctrl-C, a crash or a full disk? Run the same command again: it
goes on, and sends nothing twice that has ended. If a file was changed after
its run has ended, the command says which lines differ, and sends nothing until
told: --changed sends those lines, --anew all of them.

The last line on standard error is `run: done=N refused=N dead=N seconds=S`:
jobs that their vendor took, refusals heard by this process, dead letters, and
how long this process took.

A reader of the results that stops reading, or a disk that hangs, costs nothing
but time: answers are kept in the store, and written when it goes on.

Exit codes: 0 all jobs were taken, 1 some are dead letters or were no jobs, 2 it
could not be carried out, 3 it was interrupted: run it again.";

/// Sends a file of jobs, one JSON object per line, as fast as the limits allow.
///
/// A store keeps every job until its vendor has accepted it or it is a dead letter. The store remembers how far the
/// file was read, so that the same command continues where an interrupted one ended. A second process that would work on
/// the same store ends with an error.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file of jobs; `-` is standard input.
    #[arg(value_name = "JOBS.jsonl")]
    jobs: String,

    #[command(flatten)]
    configuration: Configuration,

    /// The store of the jobs: a path, `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST:PORT/DATABASE` [default: the SQLite file
    /// JOBS.jsonl.sqlite, or run.sqlite for standard input].
    #[arg(long, value_name = "URL", env = connect::STORE, hide_env_values = true)]
    store: Option<String>,

    /// The file for the results, one line of JSON per job, in the order in which the jobs end; `-` is standard output.
    #[arg(long, value_name = "RESULTS.jsonl")]
    out: Option<PathBuf>,

    /// Skips lines that are not valid jobs; without this option, the first such line ends the run.
    #[arg(long)]
    keep_going: bool,

    /// Checks every line that the run would still send, and estimates how long the jobs take. Sends nothing, and does not change the
    /// store. The estimate leaves out the limits of endpoints.
    #[arg(long)]
    dry_run: bool,

    /// Sends only lines that are new or changed, if the file differs from the one whose run has ended.
    #[arg(long, conflicts_with = "anew")]
    changed: bool,

    /// Sends all lines again, also those that an earlier run of the file has sent.
    #[arg(long)]
    anew: bool,

    /// Serves a console for operators during the run, which shows the lanes that wait and why, queues, dead letters and events. Nobody
    /// can change anything in it. The address must be one of this machine [default: a free port].
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:0")]
    console: Option<std::net::SocketAddr>,

    /// Shows no progress, only errors and the last line.
    #[arg(long, short)]
    quiet: bool,
}

/// Jobs in hand at once: those that wait for a permit and those under way.
const MOST_JOBS: usize = 4_096;
/// The interval at which the main loop checks progress, problems and the end.
const LOOK: Duration = Duration::from_millis(50);
/// The shortest interval between two readings of events. Waking up for each event of a million jobs would cost more
/// than handling the events.
const HEAR: Duration = Duration::from_millis(5);
/// The interval at which the store is asked whether all jobs have ended, whatever this process has counted.
const COUNT: Duration = Duration::from_secs(2);
/// The shortest interval between two estimates of the end.
const ESTIMATE: Duration = Duration::from_millis(500);

/// Why a run ends.
enum End {
    All,
    Interrupted,
    /// The run cannot go on. The text says why, and what to do about it.
    Stopped(String),
    /// Nobody reads the results any more.
    Unread,
}

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
    notes::listen(args.quiet);
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

fn name(args: &Args) -> String {
    match input::path(&args.jobs) {
        Some(path) => format!("run {}", path.file_name().unwrap_or(path.as_os_str()).display()),
        None => "run -".to_owned(),
    }
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
        Err(error) if error.kind() == ErrorKind::Config && error.to_string().contains("another process works") => {
            Err(Failure::Input(format!(
                "the store {} is in use by another run: wait for its end (`integration-client status --store {0}`), or name \
                 another with --store",
                named.shown()
            )))
        }
        Err(error) => Err(error.into()),
    }
}

struct ActiveRun {
    client: IntegrationClient,
    events: Events,
    batch: Batch,
    results: Results,
    far: HowFar,
    clock: Clock,
    progress: Progress,
    rate: Rate,
    troubles: Troubles,
    /// The store's name for messages.
    store: String,
    refused: u64,
    is_quiet: bool,
    ends_in: Option<Duration>,
    estimated: Option<Time>,
    /// When the store was last asked whether anything is left.
    counted: Time,
}

impl ActiveRun {
    async fn until_it_ends(&mut self, feed: Feed, signals: &Signals) -> End {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut interrupted, mut feeding) = (std::pin::pin!(signals.first()), std::pin::pin!(feed.run()));
        let (mut is_fed, mut rests) = (false, false);
        let mut rest = std::pin::pin!(tokio::time::sleep(HEAR));
        loop {
            tokio::select! {
                () = &mut interrupted => return End::Interrupted,
                // Signals are awaited here too, so that a store that does not answer cannot delay them.
                _ = look.tick() => tokio::select! {
                    () = &mut interrupted => return End::Interrupted,
                    end = self.look() => if let Some(end) = end {
                        return end;
                    },
                },
                fed = &mut feeding, if !is_fed => match fed {
                    Ok(()) => is_fed = true,
                    Err(why) => return End::Stopped(why),
                },
                () = &mut rest, if rests => rests = false,
                event = self.events.next(), if !rests => {
                    let Some(event) = event else { return End::Interrupted };
                    self.hear(&event);
                    self.hear_all().await;
                    rest.set(tokio::time::sleep(HEAR));
                    rests = true;
                }
            }
        }
    }

    /// Handles all events that have happened so far.
    async fn hear_all(&mut self) {
        // Without `unconstrained`, tokio's task budget would make the receiver look empty after some hundred events.
        let all = async {
            loop {
                tokio::select! {
                    biased;
                    Some(event) = self.events.next() => self.hear(&event),
                    () = std::future::ready(()) => return,
                }
            }
        };
        tokio::task::unconstrained(all).await;
    }

    fn hear(&mut self, event: &Event) {
        self.refused += u64::from(matches!(event.kind, EventKind::Refused { .. }));
        if let Some(trouble) = self.troubles.hear(event, &self.client)
            && !self.is_quiet
        {
            notes::now_and_then(&trouble);
        }
    }

    /// How the run ends if results cannot be written.
    fn unwritten(&self) -> Option<End> {
        let problem = self.results.problem()?;
        Some(match problem.kind() {
            std::io::ErrorKind::BrokenPipe => End::Unread,
            _ => End::Stopped(format!(
                "the results cannot be written: {problem}. Make room, and run the same command again: what was answered \
                 meanwhile is in the store"
            )),
        })
    }

    async fn look(&mut self) -> Option<End> {
        if let Some(end) = self.unwritten() {
            return Some(end);
        }
        if let Some(problem) = self.client.outbox().problem() {
            notes::now_and_then(&format!(
                "the store cannot be written: {problem}. Nothing is sent until it can; make room, or end with Ctrl-C"
            ));
        }
        let now = self.clock.now();
        let seen = self.results.seen();
        // The counts of this process may be slightly wrong if another process ended some of the jobs, so the store is
        // also asked at intervals.
        let may_be_all = seen.all_left == 0 || now.since(self.counted) >= COUNT;
        if self.far.is_complete() && may_be_all {
            self.counted = now;
            if matches!(self.batch.goes_on().await, Ok(false)) {
                return Some(End::All);
            }
        }
        // While input is unread and jobs may be accepted, jobs with valid keys may follow, so the run goes on.
        if (self.far.is_complete() || seen.all_left >= feed::AHEAD)
            && let Some(why) = self.troubles.in_the_way(&self.results, &self.client, &self.store)
        {
            return Some(End::Stopped(why));
        }
        self.rate.note(now, seen.done + seen.dead);
        // Progress is computed only when it is shown, because the estimate looks at every waiting job.
        if !self.progress.is_due(now) {
            return None;
        }
        let unread = self.far.unread();
        let per_second = self.rate.per_second();
        if self.estimated.is_none_or(|at| now.since(at) >= ESTIMATE) {
            self.estimated = Some(now);
            let left = self.results.left_by_lane();
            self.ends_in =
                unread.and_then(|unread| progress::ends_in(&self.client, (&left, seen.all_left), unread, per_second));
        }
        let headrooms = self.client.overview().vendors.into_iter().filter_map(|vendor| vendor.headroom);
        let moment = Moment {
            done: seen.done,
            dead: seen.dead,
            refused: self.refused,
            left: unread.map(|unread| seen.all_left + unread),
            per_second: per_second.unwrap_or_default(),
            headroom: headrooms.min_by(f64::total_cmp),
            ends_in: self.ends_in,
        };
        self.progress.show(now, &moment);
        None
    }
}
