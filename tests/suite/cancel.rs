//! Drops requests at every point at which a send can wait, and a hundred thousand times at random. Nothing may be left
//! behind: no permit, no slot, no place in a queue, no entry in a window.
//!
//! Paused time and a scripted transport. All choices and delays are drawn from seeded generators.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too, and figures are printed"
)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use integration_client::BoxFuture;
use integration_client::config::TenantEntry;
use integration_client::testing::{FakeAnswer, FakeCall, FakeTransport};
use integration_client::transport::{CredentialResolver, SecretString};
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example"
retry = { max_retries = 0 }
auth = { scheme = "bearer" }
connect_timeout = "1s"
attempt_timeout = "5s"

[[vendors.v.limits]]
name = "requests"
algorithm = "sliding_window"
limit = 900
window = "1s"

[[vendors.v.limits]]
name = "slots"
concurrency = 20

[[vendors.v.limits]]
name = "account"
scope = "account"
algorithm = "fixed_window"
limit = 1000
window = "1s"
burst = 1000

[vendors.v.endpoints.reports]
paths = ["/reports"]

[[vendors.v.endpoints.reports.limits]]
name = "reports"
scope = "endpoint"
algorithm = "sliding_window"
limit = 100
window = "1s"
"#;

/// 80 % of 900: the number of requests that may be sent at once.
const BURST: usize = 720;
const TENANTS: [&str; 4] = ["a", "b", "c", "d"];
const TIERS: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A resolver that takes a while, so that a send waits for its credential.
struct SlowResolver;

impl CredentialResolver for SlowResolver {
    fn resolve<'a>(
        &'a self,
        key: &'a str,
    ) -> BoxFuture<'a, Result<SecretString, Box<dyn std::error::Error + Send + Sync>>> {
        Box::pin(async move {
            tokio::time::sleep(ms(1)).await;
            Ok(key.into())
        })
    }
}

async fn client(transport: &FakeTransport) -> IntegrationClient {
    let mut builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR).shards(4);
    for tenant in TENANTS {
        // Two accounts, so that tenants of one account share its limits and tenants of different accounts do not.
        let account = if tenant < "c" { "ab" } else { "cd" };
        builder = builder.tenant(TenantEntry::new(tenant, "v").account(account).credential("keys:k"));
    }
    builder.credential_resolver("keys", SlowResolver).transport(transport.clone()).build().await.unwrap()
}

/// Polls a future up to `times` times and then drops it. `None` if it was not ready by then.
async fn poll_then_drop<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    std::future::poll_fn(|context| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Asserts that once all windows have ended the whole budget and all slots are free.
async fn assert_nothing_is_left(client: &IntegrationClient) {
    tokio::time::sleep(ms(15_000)).await;
    assert_eq!((client.waiting(), client.in_flight()), (0, 0), "waiting, in flight");
    for tenant in TENANTS {
        let lane = client.lane(tenant, "v").unwrap();
        let reports = lane.endpoint("reports").unwrap();
        assert_eq!(lane.waiting(), [0, 0, 0].into());
        assert_eq!(reports.headroom().unwrap().percent(), 100, "{tenant}");
        let mut permits = Vec::new();
        for n in 0..BURST {
            let permit = lane.try_acquire(Priority::High, 1);
            permits.push(permit.unwrap_or_else(|why| panic!("{tenant}: {n} of {BURST} granted: {why}")));
            if permits.len() == 20 {
                assert!(lane.try_acquire(Priority::High, 1).is_err(), "20 slots");
                permits.drain(..).for_each(|permit| permit.not_sent());
                // `not_sent` has given the units back. Now 20 more are used up.
                (0..20).for_each(|_| lane.try_acquire(Priority::High, 1).unwrap().finish());
            }
        }
        assert!(lane.try_acquire(Priority::High, 1).is_err(), "{BURST} and no more");
        tokio::time::sleep(ms(5_000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn send_may_be_dropped_after_any_poll() {
    let script = |call: &FakeCall| match call.path() {
        "/refused" => FakeAnswer::not_connected().delay(ms(3)),
        "/reset" => FakeAnswer::reset().delay(ms(3)),
        _ => FakeAnswer::status(200).delay(ms(3)).body("done").body_delay(ms(3)),
    };
    let mut points = 0;
    for path in ["/", "/reports", "/refused", "/reset"] {
        for polls in 0.. {
            // A new client for each round, so that the credential has to be fetched each time.
            let transport = FakeTransport::new(script);
            let client = client(&transport).await;
            let lane = client.lane("a", "v").unwrap();
            let mut held: Vec<_> = (0..20).map(|_| lane.try_acquire(Priority::Low, 1).unwrap()).collect();
            let send = async {
                let response = client.send("a", Priority::Normal, Request::get("v", path)).await?;
                response.text().await
            };
            let free_one = async {
                tokio::time::sleep(ms(7)).await;
                held.pop().unwrap().finish();
            };
            let (outcome, ()) = tokio::join!(poll_then_drop(send, polls), free_one);
            held.into_iter().for_each(|permit| permit.finish());
            assert_nothing_is_left(&client).await;
            points += 1;
            match outcome {
                None => assert!(transport.calls().len() <= 1),
                Some(result) => {
                    assert_eq!(transport.calls().len(), 1);
                    assert_eq!(result.is_ok(), matches!(path, "/" | "/reports"), "{path}: {result:?}");
                    assert!(polls >= 4, "key, permit, exchange (and body) were waited for: {polls} polls");
                    break;
                }
            }
        }
    }
    println!("dropped at {points} points: 0 permits, slots, places and entries left behind");
}

/// The headers of the refusal state no wait, so the client looks for one in the body. The caller goes away meanwhile.
#[tokio::test(start_paused = true)]
async fn refusal_outlasts_its_caller() {
    let vendor = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\n";
    let transport = FakeTransport::new(|_| FakeAnswer::status(429).body("slow down").body_delay(ms(200)));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor).transport(transport.clone());
    let client = builder.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    let sent = tokio::time::timeout(ms(100), client.send("a", Priority::Normal, Request::get("v", "/"))).await;
    assert!(sent.is_err(), "the body has not arrived");
    assert_eq!((transport.calls().len(), client.in_flight()), (1, 0));
    let error = client.try_send("a", Priority::High, Request::get("v", "/")).await.unwrap_err();
    assert_eq!((error.kind(), transport.calls().len()), (ErrorKind::NotNow, 1), "{error}");
}

/// Makes one request and perhaps drops it: a whole send, or now and then a permit that is held for a while.
async fn request_and_perhaps_drop(client: IntegrationClient, seed: u64, dropped: Arc<AtomicU64>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let tenant = TENANTS[random.usize(..4)];
    let priority = TIERS[random.usize(..3)];
    let path = ["/", "/reports"][random.usize(..2)];
    let by_hand = random.u8(..8) == 0;
    let hold = ms(random.u64(..4));
    let work = async {
        if by_hand {
            let permit = client.lane(tenant, "v").unwrap().acquire(priority, 1).await;
            tokio::time::sleep(hold).await;
            permit.map(drop)
        } else {
            let response = client.send(tenant, priority, Request::get("v", path)).await?;
            response.text().await.map(drop)
        }
    };
    let ended = if random.bool() {
        poll_then_drop(work, random.usize(..6)).await.is_some()
    } else {
        tokio::time::timeout(ms(random.u64(..40)), work).await.is_ok()
    };
    if !ended {
        dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn sends_may_be_dropped_at_random() {
    let outcomes = |call: &FakeCall| {
        let mut random = fastrand::Rng::with_seed(call.number as u64 ^ 0x5eed);
        match random.u8(..10) {
            0 => FakeAnswer::not_connected(),
            1 => FakeAnswer::reset(),
            2 => FakeAnswer::stall(),
            3 => FakeAnswer::status(503),
            _ => FakeAnswer::status(200).body("done").body_delay(ms(random.u64(..5))),
        }
        .delay(ms(random.u64(..10)))
    };
    let transport = FakeTransport::new(outcomes);
    let client = client(&transport).await;
    let dropped = Arc::new(AtomicU64::new(0));
    let (mut started, mut calls) = (0, 0);
    while dropped.load(Ordering::Relaxed) < 100_000 {
        let mut sends = tokio::task::JoinSet::new();
        for _ in 0..2_000 {
            started += 1;
            sends.spawn(request_and_perhaps_drop(client.clone(), started, dropped.clone()));
        }
        while let Some(ended) = sends.join_next().await {
            ended.unwrap();
        }
        calls += transport.calls().len();
        transport.reset_calls();
    }
    assert_nothing_is_left(&client).await;
    println!(
        "{} of {started} dropped at random, {calls} exchanges: 0 permits, slots, places and entries left behind",
        dropped.load(Ordering::Relaxed)
    );
}
