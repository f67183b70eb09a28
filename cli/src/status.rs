//! `status`: shows what a store holds, and what the processes that work on it are doing.

mod held_up;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::outbox::{Queue, UntakenReplies, WorkerStatus};
use serde_json::{Value, json};

use self::held_up::LaneJobs;
use crate::connect::{self, Named, StoreOption};
use crate::interrupt::Signals;
use crate::output::{self, FAINT, Failure, Outcome, Screen, TITLE, WARNING, headed, wrapped};
use crate::text::{count, span, thousands64};

const EXAMPLES: &str = "\
Examples:
  integration-client status --store jobs.jsonl.sqlite
  integration-client status --store jobs.jsonl.sqlite --watch
  integration-client status --store postgres://… --json | jq .dead
  integration-client status --store postgres://… --tenant acme

Queues are what the store holds. Limits, pauses, what is waited for, jobs that
are too expensive or not configured, and the sources of the configuration are
said by the processes that work on it, each of 200 lanes at most: `run` does so
every second, a program with `IntegrationClientBuilder::publish_status`.

Exit codes: 0 it was shown, 2 the store cannot be read.";

/// Shows what a store holds, and what the processes that work on it are doing.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreOption,

    #[command(flatten)]
    which: Which,

    /// Prints the status again every second, until Ctrl-C.
    #[arg(long)]
    watch: bool,

    /// Prints one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Options that select lanes; without any, all lanes are selected.
#[derive(clap::Args)]
struct Which {
    /// Only lanes of this tenant.
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,

    /// Only lanes at this vendor.
    #[arg(long, value_name = "NAME")]
    vendor: Option<String>,
}

impl Which {
    /// Whether options leave lanes out.
    fn is_narrowed(&self) -> bool {
        self.tenant.is_some() || self.vendor.is_some()
    }

    fn has(&self, tenant: &str, vendor: &str) -> bool {
        let fits = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
        fits(&self.tenant, tenant) && fits(&self.vendor, vendor)
    }

    /// Whether a lane in a worker's status is selected.
    fn has_lane(&self, lane: &Value) -> bool {
        let name = |name: &str| lane[name].as_str().unwrap_or_default();
        self.has(name("tenant"), name("vendor"))
    }

    /// What stands behind the name of the store.
    fn said(&self) -> String {
        let tenant = self.tenant.iter().map(|tenant| format!(", tenant {tenant}"));
        tenant.chain(self.vendor.iter().map(|vendor| format!(", vendor {vendor}"))).collect()
    }
}

/// Queues that are read of the store at most, of all lanes and to find selected ones.
const QUEUES: usize = 10_000;
const SEARCHED: usize = 1_000_000;
/// Rows of a table that are shown at most, except with `--json`.
const ROWS: usize = 20;
/// A status older than this is outdated: the worker that published it counts as gone.
const STALE: Duration = Duration::from_secs(5);

struct Seen {
    queues: Vec<Queue>,
    workers: Vec<WorkerStatus>,
    dead: u64,
    /// `None` if lanes are selected: replies are counted for the whole store.
    replies: Option<UntakenReplies>,
}

pub(crate) fn run(args: &Args, screen: Screen, out: &mut dyn Write) -> Result<Outcome, Failure> {
    // Without `--watch` a signal ends the process, as it does by default.
    let signals = args.watch.then(Signals::listen).transpose()?;
    let runtime = connect::runtime()?;
    let interrupted = async {
        match &signals {
            Some(signals) => signals.first().await,
            None => std::future::pending().await,
        }
    };
    let shown = async {
        let client = args.store.open().await?;
        let named = Named::new(&args.store.store);
        let clears = args.watch && !args.json && std::io::stdout().is_terminal();
        loop {
            let seen = look(&client, &args.which).await?;
            let mut text = Vec::new();
            match args.json {
                true => {
                    let Seen { queues, workers, dead, replies } = seen;
                    let seen = json!({ "queues": queues, "workers": workers, "dead": dead, "replies": replies });
                    writeln!(text, "{seen}")?
                }
                false => show(&named, &args.which, &seen, screen, &mut text)?,
            }
            if clears {
                // Moves the cursor to the upper left corner and clears the screen.
                write!(out, "\u{1b}[H\u{1b}[2J")?;
            }
            out.write_all(&text)?;
            out.flush()?;
            if !args.watch {
                return Ok(Outcome::Fine);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            shown = shown => shown,
            () = interrupted => Ok(Outcome::Fine),
        }
    })
}

async fn look(client: &IntegrationClient, which: &Which) -> Result<Seen, Failure> {
    let most = if which.is_narrowed() { SEARCHED } else { QUEUES };
    let (mut queues, mut workers) = (client.outbox().queues(most).await?, client.outbox().workers().await?);
    queues.retain(|queue| which.has(&queue.tenant, &queue.vendor));
    for worker in &mut workers {
        for lanes in [&mut worker.lanes, &mut worker.too_expensive, &mut worker.not_configured] {
            lanes.retain(|lane| which.has_lane(lane));
        }
    }
    let mut letters = client.outbox().dead_letters()?;
    if let Some(tenant) = &which.tenant {
        letters = letters.tenant(tenant);
    }
    if let Some(vendor) = &which.vendor {
        letters = letters.vendor(vendor);
    }
    let dead = letters.count().await?;
    let replies = if which.is_narrowed() { None } else { Some(client.outbox().untaken_replies().await?) };
    Ok(Seen { queues, workers, dead, replies })
}

fn show(named: &Named, which: &Which, seen: &Seen, screen: Screen, out: &mut dyn Write) -> Result<(), Failure> {
    let sum = |of: fn(&Queue) -> u64| seen.queues.iter().map(of).sum::<u64>();
    let (waiting, under_way) = (sum(|queue| queue.waiting), sum(|queue| queue.under_way));
    writeln!(out, "{TITLE}{}{TITLE:#}{}", named.shown(), which.said())?;
    let figures = [(waiting, "waiting"), (under_way, "under way"), (seen.dead, "dead")];
    let figures = figures.map(|(number, what)| format!("{} {what}", thousands64(number)));
    writeln!(out, "{}", figures.join(", "))?;
    if let Some(UntakenReplies { count: replies, oldest: Some(oldest), .. }) = seen.replies {
        let age = span(Duration::from_secs(oldest.as_secs()));
        let what = if replies == 1 { "reply that nobody has taken" } else { "replies that nobody has taken" };
        writeln!(out, "{} {what}, the oldest {age} old", thousands64(replies))?;
    }
    // One process at a time works on a file. Any status but the latest is that of a process that was killed.
    let most = if named.path().is_some() { 1 } else { usize::MAX };
    let fresh: Vec<&WorkerStatus> = seen.workers.iter().filter(|worker| worker.age <= STALE).take(most).collect();
    match (fresh.len(), seen.workers.first()) {
        (0, None) if waiting > 0 => {
            let text = "no worker is running: nothing is sent until `run` (or a program that calls `work()`) starts. One \
                        that does not publish its status is not seen here";
            writeln!(out, "{}", wrapped(screen, text))?;
        }
        (0, None) => writeln!(out, "{FAINT}no process publishes its status here{FAINT:#}")?,
        (0, Some(last)) => {
            let age = span(Duration::from_secs(last.age.as_secs()));
            writeln!(out, "{WARNING}no process works on it{WARNING:#}; the latest status is {age} old")?;
            if waiting > 0 {
                writeln!(out, "nothing is sent until `run` (or a program that calls `work()`) starts")?;
            }
        }
        (workers, _) => writeln!(out, "{} at work", count(workers, "process").replace("processs", "processes"))?,
    }
    for source in notable_sources(fresh.iter().flat_map(|worker| &worker.config_sources)) {
        writeln!(out, "{}", of_source(screen, source))?;
    }
    let jobs = seen.queues.iter().map(|queue| ((&*queue.tenant, &*queue.vendor), queue.waiting + queue.under_way));
    let jobs = LaneJobs::of(jobs, seen.queues.len() >= QUEUES);
    let lists = |of: fn(&WorkerStatus) -> &[Value]| fresh.iter().copied().map(of).collect::<Vec<_>>();
    let costly = held_up::too_expensive(&jobs, &lists(|worker| &worker.too_expensive));
    let missing = held_up::not_configured(&jobs, &lists(|worker| &worker.not_configured));
    for (head, text) in [("too expensive:", costly), ("not configured:", missing)] {
        if let Some(text) = text {
            writeln!(out, "{}", headed(screen, WARNING, head, &text))?;
        }
    }
    if !seen.queues.is_empty() {
        writeln!(out)?;
        let rows = seen.queues.iter().take(ROWS).map(|queue| {
            let due = match queue.due_in {
                Some(due) if due.is_zero() => match queue.due_for.map_or(0, |since| since.as_secs()) {
                    0 => "now".to_owned(),
                    since => format!("for {}", span(Duration::from_secs(since))),
                },
                Some(due) => format!("in {}", span(Duration::from_secs(due.as_secs().max(1)))),
                None => "-".to_owned(),
            };
            let [tenant, vendor] = [&queue.tenant, &queue.vendor].map(Clone::clone);
            let (waiting, under_way) = (thousands64(queue.waiting), thousands64(queue.under_way));
            vec![tenant, vendor, queue.priority.to_string(), waiting, under_way, due]
        });
        let header = ["tenant", "vendor", "priority", "waiting", "under way", "due"];
        write!(out, "{}", output::table(screen, &header, rows.collect(), &[3, 4]))?;
        more(seen.queues.len(), out)?;
    }
    let lanes: Vec<&Value> = fresh.iter().flat_map(|worker| &worker.lanes).collect();
    if !lanes.is_empty() {
        writeln!(out)?;
        let rows = lanes.iter().take(ROWS).map(|lane| of_lane(lane)).collect();
        let header = ["tenant", "vendor", "headroom", "limits left", "waits"];
        write!(out, "{}", output::table(screen, &header, rows, &[2]))?;
        more(lanes.len(), out)?;
    }
    if which.is_narrowed() && lanes.is_empty() && !fresh.is_empty() {
        let text = "no process at work lists such a lane: each lists 200 at most, and none that has nothing to do";
        writeln!(out, "{FAINT}{}{FAINT:#}", wrapped(screen, text))?;
    }
    Ok(())
}

fn more(rows: usize, out: &mut dyn Write) -> Result<(), Failure> {
    if rows > ROWS {
        writeln!(out, "{FAINT}… and {} more; --json shows all{FAINT:#}", rows - ROWS)?;
    }
    Ok(())
}

/// A number of seconds in a worker's status.
fn elapsed(value: &Value) -> Option<Duration> {
    value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// The sources of the configuration that deserve a line: those with a problem or a copy, and servers and sources of a
/// program in any case. Of a source that several processes read, the worst status counts.
fn notable_sources<'a>(all: impl Iterator<Item = &'a Value>) -> Vec<&'a Value> {
    let is_bad = |source: &Value| source["problem"].is_string() || source["is_copy"] == true;
    let rank = |source: &Value| (is_bad(source), elapsed(&source["age_s"]));
    let mut worst: Vec<&Value> = Vec::new();
    for source in all {
        match worst.iter().position(|other| other["name"] == source["name"]) {
            Some(at) if rank(worst[at]) < rank(source) => worst[at] = source,
            Some(_) => {}
            None => worst.push(source),
        }
    }
    worst.retain(|source| is_bad(source) || !matches!(source["kind"].as_str(), Some("file" | "store")));
    worst
}

/// The line for a source of the configuration, from a worker's status.
fn of_source(screen: Screen, source: &Value) -> String {
    let whole = |value: &Value| span(Duration::from_secs(elapsed(value).unwrap_or_default().as_secs()));
    let is_copy = source["is_copy"] == true;
    let (name, copy) = (source["name"].as_str().unwrap_or("-"), if is_copy { "copy " } else { "" });
    let text = format!("{name}, {copy}confirmed {} ago", whole(&source["age_s"]));
    let problem = source["problem"].as_str().map(|problem| {
        // A refused configuration may have many mistakes, each in a line of its own.
        let first = problem.lines().next().unwrap_or_default();
        format!("; problem for {}: {first}", whole(&source["problem_for_s"]))
    });
    let style = if is_copy || problem.is_some() { WARNING } else { FAINT };
    headed(screen, style, "configuration:", &(text + &problem.unwrap_or_default()))
}

/// The table row for a lane, from a worker's status.
fn of_lane(lane: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let headroom = lane["headroom"].as_f64().map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    let limits = lane["limits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let seconds = |value: &Value| {
        let seconds = elapsed(value);
        seconds.map(|after| span(Duration::from_millis(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))))
    };
    let limits = limits.iter().map(|limit| {
        let ends = seconds(&limit["ends_in_s"]).map_or(String::new(), |after| format!(" (at this rate for {after})"));
        // If nothing of the limit is used, the time of its reset is left out.
        let resets = seconds(&limit["resets_in_s"]).filter(|_| limit["remaining"] != limit["guard"]);
        let resets = resets.map_or(String::new(), |after| format!(" (anew in {after})"));
        format!("{} {}/{}{ends}{resets}", text(&limit["name"]), limit["remaining"], limit["limit"])
    });
    let limits: Vec<String> = limits.collect();
    let pause = &lane["pause"];
    let token = &lane["token"];
    let waits = match () {
        () if matches!(token["state"].as_str(), Some("failing" | "needs_reconnect")) => {
            let again =
                seconds(&token["next_try_s"]).map_or(String::new(), |after| format!("; tried again in {after}"));
            format!("no access token: {}{again}", text(&token["problem"]))
        }
        () if token["problem"].is_string() => format!("access token: {}", text(&token["problem"])),
        () if pause.is_object() => {
            let ends =
                seconds(&pause["ends_in_s"]).map_or("until it is resumed".to_owned(), |after| format!("for {after}"));
            format!("paused {ends}: {}", text(&pause["reason"]))
        }
        () => ["high", "normal", "low"]
            .iter()
            .find_map(|tier| lane["waits"][tier]["reason"].as_str().map(|why| format!("{tier}: {why}")))
            .unwrap_or_else(|| "-".to_owned()),
    };
    vec![text(&lane["tenant"]), text(&lane["vendor"]), headroom, limits.join(", "), waits]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_select_lanes() {
        let lane = json!({ "tenant": "acme", "vendor": "v", "headroom": 1.0 });
        for (tenant, vendor, has, said) in [
            (None, None, true, ""),
            (Some("acme"), None, true, ", tenant acme"),
            (Some("acm"), None, false, ", tenant acm"),
            (None, Some("w"), false, ", vendor w"),
            (Some("acme"), Some("v"), true, ", tenant acme, vendor v"),
        ] {
            let which = Which { tenant: tenant.map(str::to_owned), vendor: vendor.map(str::to_owned) };
            assert_eq!((which.has_lane(&lane), &*which.said()), (has, said));
            assert_eq!(which.is_narrowed(), !said.is_empty());
        }
    }

    #[test]
    fn worst_status_of_source_gets_a_line() {
        let source = |name: &str, kind: &str, age: f64, problem: Option<&str>| {
            json!({
                "name": name, "kind": kind, "age_s": age, "is_copy": false,
                "problem": problem, "problem_for_s": problem.map(|_| 61.4),
            })
        };
        let url = "https://c.example.com/v.toml";
        let all = [
            source(url, "server", 2.5, None),
            source("vendors.toml", "file", 0.5, None),
            source("table ic_config", "store", 0.5, None),
            source(url, "server", 300.0, Some("the server answered 500")),
            source("tenants.toml", "file", 9.0, Some("tenants.toml:3:1: wrong\ntenants.toml:4:1: wrong too")),
            source(url, "server", 400.0, None),
        ];
        let lines = notable_sources(all.iter());
        let lines: Vec<String> = lines.iter().map(|source| of_source(Screen { width: 120 }, source)).collect();
        let head = format!("{WARNING}configuration:{WARNING:#}");
        assert_eq!(
            lines,
            [
                format!("{head} {url}, confirmed 5m ago; problem for 1m 1s: the server answered 500"),
                format!("{head} tenants.toml, confirmed 9s ago; problem for 1m 1s: tenants.toml:3:1: wrong"),
            ]
        );
        let mut copy = source(url, "server", 3_600.0, None);
        let fine = of_source(Screen { width: 120 }, &copy);
        assert_eq!(fine, format!("{FAINT}configuration:{FAINT:#} {url}, confirmed 1h ago"));
        copy["is_copy"] = true.into();
        let copied = of_source(Screen { width: 120 }, &copy);
        assert_eq!(copied, format!("{head} {url}, copy confirmed 1h ago"));
    }
}
