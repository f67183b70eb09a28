//! Ten thousand requests fail at once, and the sink takes 10 ms for each letter: neither these nor other requests wait
//! for the sink, and every letter is written.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too, and figures are printed"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use integration_client::BoxError;
use integration_client::BoxFuture;
use integration_client::config::TenantEntry;
use integration_client::dead_letter::{DeadLetter, DeadLetterSink};
use integration_client::transport::{Answer, AnswerBody, Exchange, Sent, Transport, TransportError};
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

const LETTERS: usize = 10_000;
const WRITING: Duration = Duration::from_millis(10);
const TIERS: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

/// `failing` breaks all connections at the moment that the test chooses; `healthy` answers after 5 ms. `parks` says
/// whether failures become dead letters.
fn vendors(parks: bool) -> String {
    let vendor = |name: &str| {
        format!(
            r#"
[vendors.{name}]
base_url = "https://{name}.example"
auth = {{ scheme = "none" }}
retry = {{ max_retries = 0, on_ambiguous = "{}" }}
[[vendors.{name}.limits]]
name = "parallel"
concurrency = 20000
"#,
            if parks { "park" } else { "fail" }
        )
    };
    vendor("failing") + &vendor("healthy")
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

/// A transport to both vendors.
struct Vendors {
    /// Each permit breaks one of the connections that the failing vendor holds.
    breaks: Arc<Semaphore>,
}

impl Transport for Vendors {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        let breaks = self.breaks.clone();
        Box::pin(async move {
            if &*exchange.vendor.name == "failing" {
                breaks.acquire().await.unwrap().forget();
                return Err(TransportError::new(Sent::MaybeSent, ErrorKind::Protocol, "the connection was reset"));
            }
            tokio::time::sleep(ms(5)).await;
            let body = AnswerBody::from_bytes("", exchange.vendor.max_response_bytes, exchange.deadline);
            Ok(Answer::new(StatusCode::OK, HeaderMap::new(), body))
        })
    }
}

/// A slow sink that keeps the order of the letters.
#[derive(Default)]
struct Slow(Mutex<Vec<(Priority, String)>>);

impl DeadLetterSink for Slow {
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            tokio::time::sleep(WRITING).await;
            self.0.lock().unwrap().push((letter.priority, letter.id.clone()));
            Ok(())
        })
    }
}

struct Load {
    client: IntegrationClient,
    sink: Arc<Slow>,
    vendors: Arc<Vendors>,
}

impl Load {
    async fn new(parks: bool) -> Load {
        let sink = Arc::<Slow>::default();
        let held = Arc::new(Vendors { breaks: Arc::new(Semaphore::new(0)) });
        let client = IntegrationClient::builder()
            .without_catalogue()
            .vendors_toml(vendors(parks))
            .tenant(TenantEntry::new("a", "failing"))
            .tenant(TenantEntry::new("b", "healthy"))
            .transport(held.clone())
            .dead_letter_sink(sink.clone())
            .max_waiting_per_tier(20_000)
            .build()
            .await
            .unwrap();
        Load { client, sink, vendors: held }
    }

    /// Starts [`LETTERS`] sends to the failing vendor, in all three tiers, and waits until all are under way. Each task
    /// returns the id of its dead letter once its send has failed.
    async fn start_failing_sends(&self) -> JoinSet<Option<String>> {
        let mut sends = JoinSet::new();
        for number in 0..LETTERS {
            let client = self.client.clone();
            sends.spawn(async move {
                let error = client.send("a", TIERS[number % 3], Request::post("failing", "/x").body("x")).await;
                error.unwrap_err().letter_id().map(str::to_owned)
            });
        }
        while self.client.in_flight() < LETTERS as u64 {
            tokio::time::sleep(ms(1)).await;
        }
        sends
    }

    /// The latencies of 20 senders that send to the healthy vendor for `run`.
    async fn healthy_latencies(&self, run: Duration) -> Vec<Duration> {
        let until = now() + run;
        let mut senders = JoinSet::new();
        for number in 0..20 {
            let client = self.client.clone();
            senders.spawn(async move {
                let mut latencies = Vec::new();
                while latencies.is_empty() || now() < until {
                    let began = now();
                    client.send("b", TIERS[number % 3], Request::get("healthy", "/y")).await.unwrap();
                    latencies.push(began.elapsed());
                }
                latencies
            });
        }
        senders.join_all().await.concat()
    }
}

fn p99(mut latencies: Vec<Duration>) -> Duration {
    latencies.sort_unstable();
    latencies[latencies.len() * 99 / 100]
}

/// Writing takes 100 s of virtual time.
#[tokio::test(start_paused = true)]
async fn ten_thousand_letters_are_written_high_first() {
    let load = Load::new(true).await;
    let sends = load.start_failing_sends().await;
    let began = now();
    load.vendors.breaks.add_permits(LETTERS);
    let ids: Vec<String> = sends.join_all().await.into_iter().map(Option::unwrap).collect();
    assert!(began.elapsed() < WRITING, "nobody waits for the sink: {:?}", began.elapsed());
    let counts = load.client.dead_letter_counts();
    assert_eq!((counts.waiting + counts.written, counts.lost), (LETTERS as u64, 0));

    tokio::time::sleep(WRITING * (LETTERS as u32 + 1)).await;
    let counts = load.client.dead_letter_counts();
    assert_eq!((counts.waiting, counts.written, counts.lost), (0, LETTERS as u64, 0));
    let written = load.sink.0.lock().unwrap().clone();
    // The first letter is left out: the sink got it before the others were queued, whatever its priority was.
    assert!(written[1..].is_sorted_by_key(|(priority, _)| *priority as u8), "high first");
    let sorted = |mut ids: Vec<String>| {
        ids.sort_unstable();
        ids
    };
    assert_eq!(sorted(written.into_iter().map(|(_, id)| id).collect()), sorted(ids), "each once");
}

/// Measures latencies in real time. Ten thousand failures within a second load the processors with or without letters.
/// So the test compares storms with letters to storms without, and the time after a storm, while letters are written,
/// to the time before. It takes the best of five rounds: other load on the machine makes some rounds worse, but a wait
/// for the sink would make all rounds worse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_letters_add_nothing_to_latency() {
    const ROUNDS: usize = 5;
    const NOISE: Duration = Duration::from_millis(5);
    let mut best = [Duration::MAX; 4];
    for round in 1..=ROUNDS {
        let (_, without) = measure(false).await;
        let (before, with) = measure(true).await;
        println!(
            "round {round}: p99 {:.1?} before, {:.1?} in the storm ({:.1?} in one without letters), {:.1?} while letters \
             are written; the last of {LETTERS} callers had its error {:.0?} after the first, and {} letters waited",
            before.p99, with.p99, without.p99, with.afterwards, with.took, with.waiting
        );
        for (best, p99) in best.iter_mut().zip([before.p99, without.p99, with.p99, with.afterwards]) {
            *best = p99.min(*best);
        }
    }
    let [before, without, with, afterwards] = best;
    println!(
        "best of {ROUNDS}: p99 {with:.1?} in the storm, {:.2}x that of one without letters ({without:.1?}), and {afterwards:.1?} \
         while letters are written, {:.2}x that before ({before:.1?})",
        with.as_secs_f64() / without.as_secs_f64(),
        afterwards.as_secs_f64() / before.as_secs_f64(),
    );
    assert!(with < without + NOISE && afterwards < before + NOISE);
}

struct Quiet {
    p99: Duration,
}

struct Storm {
    p99: Duration,
    /// The p99 after the storm.
    afterwards: Duration,
    took: Duration,
    /// The number of letters that were queued when the storm was over.
    waiting: u64,
}

/// Makes a storm in a new client.
async fn measure(parks: bool) -> (Quiet, Storm) {
    let load = Load::new(parks).await;
    let sends = load.start_failing_sends().await;
    let before = p99(load.healthy_latencies(ms(500)).await);
    let began = now();
    let (during, took) = tokio::join!(load.healthy_latencies(ms(1000)), async {
        for _ in 0..LETTERS / 100 {
            load.vendors.breaks.add_permits(100);
            tokio::time::sleep(ms(9)).await;
        }
        let letters = sends.join_all().await.into_iter().flatten().count();
        assert_eq!(letters, if parks { LETTERS } else { 0 });
        began.elapsed()
    });
    let counts = load.client.dead_letter_counts();
    if parks {
        assert_eq!((counts.waiting + counts.written, counts.lost), (LETTERS as u64, 0));
        assert!(counts.waiting > LETTERS as u64 / 2, "somebody has waited for the sink: {counts:?}");
    }
    let afterwards = p99(load.healthy_latencies(ms(500)).await);
    (Quiet { p99: before }, Storm { p99: p99(during), afterwards, took, waiting: counts.waiting })
}
