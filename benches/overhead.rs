//! The overhead of the client: requests per second through `client.send` divided by requests per second through bare
//! reqwest with the same settings, with the body read, against a vendor in its own process on loopback.
//!
//! ```text
//! cargo bench --bench overhead --features metrics
//! ```
//!
//! The two take turns, in pairs whose order alternates, so that other load on the machine affects both. The figure is
//! the median of the pairs' ratios. No request ever waits for a limit. The last line is machine-readable; the process
//! fails when a ratio is below 0.95.
//!
//! The pairs come from several rounds, each in its own process with its own vendor. The memory layout of a process, and
//! which of the runtime's threads reads the sockets, move a ratio by 0.02 for as long as the process lives, and no
//! number of pairs within one process would show it.
//!
//! `observed` is the same measurement with a formatting subscriber at info, a listener to all events and a metrics
//! recorder; with 64 concurrent requests it must be at least 0.90.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the time and starts tasks itself")]
#![expect(clippy::unwrap_used, reason = "whatever goes wrong ends the run")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::events::Events;
use integration_client::testing::{FakeVendor, HeaderStyle};
use integration_client::{IntegrationClient, Priority, Request};
use metrics_exporter_prometheus::PrometheusBuilder;
use secrecy::SecretString;

const ROUNDS: usize = 12;
/// Concurrent requests, pairs per round, and milliseconds of a turn. Turns are short and many, because a machine's
/// speed changes within seconds and then affects both turns of a pair. With one concurrent request, a request is as
/// fast as the thread that wakes for it, which is mostly the same one for as long as a task lives. So these turns are
/// as short as possible.
const LOADS: [Load; 3] = [load(1, 160, 10), load(64, 16, 100), load(512, 16, 100)];

#[derive(Clone, Copy)]
struct Load {
    at_once: usize,
    pairs: usize,
    turn: Duration,
}

const fn load(at_once: usize, pairs: usize, turn_ms: u64) -> Load {
    Load { at_once, pairs, turn: Duration::from_millis(turn_ms) }
}

const AT_LEAST: f64 = 0.95;
/// The least ratio with observers, at the middle concurrency.
const OBSERVED_AT_LEAST: f64 = 0.90;
const KEY: &str = "key-of-acme";

const LIMITS: &str = r#"
[[vendors.fake.limits]]
name = "rate"
algorithm = "sliding_window"
limit = 1_000_000
window = "1s"
[[vendors.fake.limits]]
name = "at_once"
concurrency = 10_000
"#;

/// The vendor: answers `{}` to every request until its standard input closes.
fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let vendor = FakeVendor::builder().headers(HeaderStyle::Silent).log_cap(0).start().await.unwrap();
        println!("{}", vendor.url());
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    });
}

/// A client with the settings of our own transport, and with the timeout that our client sets for an attempt and its
/// body.
fn bare_client() -> reqwest::Client {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .no_proxy()
        .gzip(true)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .connect_timeout(Duration::from_secs(10))
        .timeout(Duration::from_secs(30))
        .user_agent("bare")
        .build()
        .unwrap()
}

/// The requests per second of `at_once` tasks, each of which sends one request after the other for one turn.
async fn turn<F, Fut>(load: Load, send: F) -> f64
where
    F: Fn() -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..load.at_once {
        let send = send.clone();
        tasks.spawn(async move {
            let mut sent = 0_u64;
            while start.elapsed() < load.turn {
                send().await;
                sent += 1;
            }
            sent
        });
    }
    let sent: u64 = tasks.join_all().await.into_iter().sum();
    sent as f64 / start.elapsed().as_secs_f64()
}

fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The requests per second of both clients, pair by pair.
async fn compare(load: Load, url: &str, observed: bool) -> Vec<(f64, f64)> {
    let toml = format!("[vendors.fake]\nbase_url = \"{url}\"\nauth = {{ scheme = \"bearer\" }}\n{LIMITS}");
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(toml)
        .credential_resolver("bench", |_: String| async { Ok(SecretString::from(KEY)) })
        .tenant(TenantEntry::new("acme", "fake").credential("bench:acme"))
        .build()
        .await
        .unwrap();
    if observed {
        listen(client.events());
    }
    let (reqwest, url) = (bare_client(), format!("{url}/things/1"));
    let ours = move || {
        let client = client.clone();
        async move {
            let response = client.send("acme", Priority::Normal, Request::get("fake", "/things/1")).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(response.bytes().await.unwrap().len(), 2);
        }
    };
    let bare = move || {
        let (client, url) = (reqwest.clone(), url.clone());
        async move {
            let response = client.get(&url).bearer_auth(KEY).send().await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(response.bytes().await.unwrap().len(), 2);
        }
    };
    let mut pairs = Vec::new();
    for pair in 0..=load.pairs {
        let (a, b);
        if pair % 2 == 0 {
            a = turn(load, ours.clone()).await;
            b = turn(load, bare.clone()).await;
        } else {
            b = turn(load, bare.clone()).await;
            a = turn(load, ours.clone()).await;
        }
        // The first pair opens the connections.
        if pair > 0 {
            pairs.push((a, b));
        }
    }
    pairs
}

/// Installs a subscriber that formats every span and event from info up and discards the output, and a metrics recorder
/// (used with the feature `metrics`). Both stay for the life of the process, so these measurements come last.
fn observe(runtime: &tokio::runtime::Runtime) {
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(std::io::sink).init();
    let recorder = PrometheusBuilder::new().set_buckets(&[0.001, 0.01, 0.1, 1.0]).unwrap().install_recorder().unwrap();
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            recorder.run_upkeep();
        }
    });
}

/// Reads all events.
fn listen(mut events: Events) {
    tokio::spawn(async move { while events.next().await.is_some() {} });
}

/// Runs one round and prints a line for each pair.
fn round() {
    let mut vendor = child("serve", Stdio::piped());
    let mut url = String::new();
    BufReader::new(vendor.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for observed in [false, true] {
        if observed {
            observe(&runtime);
        }
        for load in LOADS {
            for (ours, bare) in runtime.block_on(compare(load, url.trim(), observed)) {
                println!("{}", serde_json::to_string(&(observed, load.at_once, ours, bare)).unwrap());
            }
        }
    }
    drop(vendor.stdin.take());
    vendor.wait().unwrap();
}

/// Starts this program as another part of the bench.
fn child(part: &str, stdin: Stdio) -> Child {
    let this = std::env::current_exe().unwrap();
    Command::new(this).arg(part).stdin(stdin).stdout(Stdio::piped()).spawn().unwrap()
}

/// Requests per second of both clients. The key is whether observers are installed, and the concurrency; the value has
/// the pairs of each round.
type Pairs = BTreeMap<(bool, usize), Vec<Vec<(f64, f64)>>>;

fn rounds() -> Pairs {
    let mut pairs = Pairs::new();
    for round in 0..ROUNDS {
        let output = child("round", Stdio::null()).wait_with_output().unwrap();
        assert!(output.status.success(), "round {round} failed: {}", output.status);
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let (observed, concurrency, ours, bare): (bool, usize, f64, f64) = serde_json::from_str(line).unwrap();
            let of = pairs.entry((observed, concurrency)).or_default();
            of.resize_with(round + 1, Vec::new);
            of[round].push((ours, bare));
        }
    }
    pairs
}

/// Prints the measurement at one concurrency and returns its ratio.
fn figure(pairs: &Pairs, observed: bool, concurrency: usize) -> f64 {
    let rounds = &pairs[&(observed, concurrency)];
    let all: Vec<(f64, f64)> = rounds.iter().flatten().copied().collect();
    let ratios = |pairs: &[(f64, f64)]| pairs.iter().map(|(ours, bare)| ours / bare).collect::<Vec<_>>();
    let spread = |figures: &[f64]| figures.iter().fold((f64::MAX, 0.0), |(least, most), x| (x.min(least), x.max(most)));
    let figure = median(ratios(&all));
    let by_pair = spread(&ratios(&all));
    let by_round = spread(&rounds.iter().map(|round| median(ratios(round))).collect::<Vec<_>>());
    println!(
        "{}c={concurrency}: {:.0} requests/s beside {:.0} of bare reqwest; ratio {figure:.3} ({} pairs {:.3}..{:.3}, \
         medians of rounds {:.3}..{:.3})",
        if observed { "observed " } else { "" },
        median(all.iter().map(|pair| pair.0)),
        median(all.iter().map(|pair| pair.1)),
        all.len(),
        by_pair.0,
        by_pair.1,
        by_round.0,
        by_round.1,
    );
    figure
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => {
            serve();
            return ExitCode::SUCCESS;
        }
        Some("round") => {
            round();
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    println!(
        "{ROUNDS} rounds; both: HTTP/1.1 keep-alive without TLS, no redirects, no \
         retries, a time limit of 30 s, bearer key, tokio's default runtime; the vendor: one thread, its own process"
    );
    let pairs = rounds();
    let [ratios, observed] = [false, true].map(|observed| LOADS.map(|load| figure(&pairs, observed, load.at_once)));

    let plain = LOADS.iter().zip(ratios).map(|(load, ratio)| (format!("c={}", load.at_once), ratio, AT_LEAST));
    let watched = (format!("observed c={}", LOADS[1].at_once), observed[1], OBSERVED_AT_LEAST);
    let mut good = true;
    for (what, ratio, at_least) in plain.chain([watched]) {
        let verdict = if ratio >= at_least { "ok" } else { "FAILED" };
        println!("check: {what}: {ratio:.3} >= {at_least:.2} {verdict}");
        good &= ratio >= at_least;
    }
    let what = if cfg!(feature = "metrics") { "spans, events and metrics" } else { "spans and events" };
    println!("observed c1={:.3} c64={:.3} c512={:.3}, by {what}", observed[0], observed[1], observed[2]);
    println!("overhead: c1={:.3} c64={:.3} c512={:.3}", ratios[0], ratios[1], ratios[2]);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
