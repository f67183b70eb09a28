//! A database behind a slow network, in simulated time: each statement takes a round trip, and transactions end in time
//! nevertheless. And what does not depend on a count of the backlog that takes long, or fails.

use std::collections::HashSet;

use parking_lot::Mutex;

use super::super::STATEMENTS;
use super::super::jobs::{Accepted, End, JobEnd};
use super::stalls::{Scripted, scripted, scripted_store};
use super::*;
use crate::config::TenantEntry;
use crate::error::ErrorKind;
use crate::outbox::{Intake, IntakeSource, MessageRef};
use crate::testing::{FakeAnswer, FakeTransport};
use crate::{BoxError, BoxFuture, Error, IntegrationClient, Priority, Request};

const VENDORS: &str = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n\
     [vendors.v.idempotency]\nheader = \"idempotency-key\"\n";

/// A client on a scripted database that accepts requests and sends none.
async fn client() -> (Scripted, IntegrationClient) {
    client_with(|store| store).await
}

/// As [`client`], with these settings of its store.
async fn client_with(settings: impl FnOnce(Store) -> Store) -> (Scripted, IntegrationClient) {
    let (script, store) = scripted_store();
    let store = settings(store);
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDORS).transport(transport);
    (script, builder.tenant(TenantEntry::new("acme", "v")).store(store).build().await.unwrap())
}

/// A source that delivers its messages once, all together.
struct Once(Mutex<Vec<Intake>>);

impl Once {
    /// Messages with idempotency keys.
    fn keyed(count: usize) -> Once {
        let message = |number: usize| {
            let content = format!(
                r#"{{"tenant":"acme","vendor":"v","method":"POST","path":"/{number}","idempotency_key":"k{number}"}}"#
            );
            Intake::json(number.to_string(), content)
        };
        Once(Mutex::new((0..count).map(message).collect()))
    }
}

impl IntakeSource for Once {
    fn name(&self) -> &str {
        "orders"
    }

    fn fetch(&self, _: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        let messages = std::mem::take(&mut *self.0.lock());
        Box::pin(async move { Ok(messages) })
    }

    fn taken<'a>(&'a self, _: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { Ok(()) })
    }

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>> {
        panic!("{messages:?}")
    }
}

/// Hands over 1,024 messages with keys while each statement takes this long. Returns the most statements of a
/// transaction, and how many transactions were not committed.
async fn hand_over(takes: Duration) -> (usize, usize) {
    let (script, client) = client().await;
    script.set(|script| script.takes = takes);
    let source = Once::keyed(1_024);
    let fed = client.outbox().feed_from(&source);
    assert_eq!(tokio::time::timeout(Duration::from_secs(3_600), fed).await.unwrap().unwrap(), 1_024, "{takes:?}");
    let script = script.0.lock();
    (script.most_statements, script.begun - script.committed)
}

#[tokio::test(start_paused = true)]
async fn keyed_messages_end_in_time_over_a_slow_network() {
    let (most, failed) = hand_over(Duration::from_millis(15)).await;
    // In SQLite a message takes one statement more than is counted.
    assert!(most <= STATEMENTS * 5 / 4 + 2, "{most} statements in a transaction");
    assert_eq!(failed, 0);
}

#[tokio::test(start_paused = true)]
async fn hand_over_writes_fewer_after_a_failure() {
    // 50 messages take 25 s at first.
    let (_, failed) = hand_over(Duration::from_millis(100)).await;
    // A size that is too large is tried again after ten minutes.
    assert!((1..=10).contains(&failed), "{failed} transactions did not end in time: each size is tried twice");
}

#[tokio::test(start_paused = true)]
async fn keyed_requests_end_in_time_over_a_slow_network() {
    let (script, store) = scripted().await;
    script.set(|script| script.takes = Duration::from_millis(20));
    let mut inserts = tokio::task::JoinSet::new();
    for number in 0..600 {
        let store = store.clone();
        let key = Some((format!("k{number}"), "print".to_owned()));
        inserts.spawn(async move { store.insert(NewJob { key, ..job("a") }).await });
    }
    for accepted in inserts.join_all().await {
        assert_eq!(accepted.unwrap(), Accepted::New);
    }
    let most = script.0.lock().most_statements;
    assert!(most <= STATEMENTS + 2, "{most} statements in a transaction");
}

#[tokio::test(start_paused = true)]
async fn requests_tried_again_end_in_time_over_a_slow_network() {
    // The connection breaks before anything is written, or the reply to the commit is lost.
    for word in ["BEGIN", "COMMIT"] {
        let (script, store) = scripted().await;
        script.set(|script| {
            script.takes = Duration::from_millis(15);
            (script.breaks, script.once) = (HashSet::from([word]), HashSet::from([word]));
        });
        let mut inserts = tokio::task::JoinSet::new();
        for _ in 0..512 {
            let store = store.clone();
            inserts.spawn(async move { store.insert(job("a")).await });
        }
        for accepted in inserts.join_all().await {
            assert_eq!(accepted.unwrap(), Accepted::New, "{word}");
        }
        assert!(script.0.lock().breaks.is_empty(), "{word}: it has failed");
    }
}

/// As after a commit whose reply was lost.
#[tokio::test(start_paused = true)]
async fn ends_written_again_take_few_statements() {
    let (script, store) = scripted().await;
    let end = || End::Delivered { status: 200, attempts: 1, result: None, reply: None };
    let ends: Vec<JobEnd> = (0..512).map(|_| JobEnd { id: id(), fence: 1, known: None, end: end() }).collect();
    assert_eq!(store.write(ends, jobs::finish).await.unwrap(), vec![false; 512]);
    let most = script.0.lock().most_statements;
    assert!(most <= 6, "{most} statements");
}

async fn enqueue(client: &IntegrationClient) -> Result<(), Error> {
    client.outbox().enqueue("acme", Priority::Normal, Request::post("v", "/a")).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn failed_count_of_backlog_refuses_no_request() {
    let (script, client) = client().await;
    script.set(|script| (script.full, script.once) = (HashSet::from(["BEGIN"]), HashSet::from(["BEGIN"])));
    enqueue(&client).await.unwrap();
    let (is_over, counts) = {
        let script = script.0.lock();
        (script.full.is_empty(), script.counts)
    };
    assert!(is_over && counts == 0, "the count was the transaction that failed");
}

#[tokio::test(start_paused = true)]
async fn slow_count_of_backlog_is_made_less_often() {
    let (script, client) = client().await;
    script.set(|script| script.takes = Duration::from_secs(1));
    // A count takes three seconds, and the write of a request as well.
    for _ in 0..60 {
        enqueue(&client).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let counts = script.0.lock().counts;
    assert!((1..=5).contains(&counts), "{counts} counts in four minutes");
}

#[tokio::test(start_paused = true)]
async fn slow_count_of_lane_frees_its_bound_soon() {
    let (script, client) = client_with(|store| store.max_lane_backlog(3)).await;
    // The count of the lane takes six seconds, and finds none.
    script.set(|script| script.takes = Duration::from_millis(1_900));
    enqueue(&client).await.unwrap();
    script.set(|script| script.takes = Duration::from_millis(1));
    for _ in 0..2 {
        enqueue(&client).await.unwrap();
    }
    // The database has no jobs: all have ended.
    let (clock, began) = (Clock::system(), Clock::system().now());
    while let Err(error) = enqueue(&client).await {
        assert_eq!(error.kind(), ErrorKind::QueueFull, "{error}");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let waited = clock.now().since(began);
        assert!(waited < Duration::from_secs(15), "the lane counts as full although it is empty: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_count_of_lane_refuses_no_request() {
    let (script, client) = client_with(|store| store.max_lane_backlog(3)).await;
    enqueue(&client).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    script.set(|script| (script.full, script.once) = (HashSet::from(["BEGIN"]), HashSet::from(["BEGIN"])));
    enqueue(&client).await.unwrap();
    assert!(script.0.lock().full.is_empty(), "the count was the transaction that failed");
}

/// A client with 3,000 tenants starts, and each of them has an account of its own.
#[tokio::test(start_paused = true)]
async fn usage_of_thousands_of_lanes_takes_few_reads() {
    let (script, store) = scripted_store();
    let limit = "[[vendors.v.limits]]\nname = \"minute\"\nscope = \"account\"\nlimit = 600\nwindow = \"1m\"\n";
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(format!("{VENDORS}{limit}"));
    let tenants = (0..3_000).map(|number| TenantEntry::new(format!("tenant-{number}"), "v"));
    let builder = tenants.fold(builder.transport(transport), |builder, tenant| builder.tenant(tenant));
    let client = builder.store(store).build().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(script.0.lock().usage_reads, 3, "1,024 lanes at a time");
    client.tenants().set(TenantEntry::new("late", "v")).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(script.0.lock().usage_reads, 4, "that of the new tenant alone");
}
