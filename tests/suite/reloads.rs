//! Ten thousand reloads, a third of them malformed, while several threads send requests: no request is lost, sent twice
//! or sent above the limit. In real time, because the test looks for races.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests: figures are printed")]
#![expect(clippy::disallowed_methods, reason = "tests measure and spawn")]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use integration_client::testing::checker::{Definition, Event, check};
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};

use crate::support::text_source::TextSource;

const RELOADS: usize = 10_000;
const TENANTS: usize = 8;
/// How many requests the vendor allows each tenant in 100 ms.
const LIMIT: u32 = 40;

/// A vendor with its tenants. `number` chooses weights, safety, endpoints, further tenants and shared limits.
fn configuration(number: usize) -> String {
    // The safety changes seldom: a bucket that grows gets no units for it, and one that shrinks keeps its debt, so a
    // bucket that did both at every reload would always be empty.
    let safety = [1.0, 0.9, 0.7, 1.0][number / 250 % 4];
    let mut text = format!(
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\nattempt_timeout = \"300ms\"\n\
         max_transit = \"200ms\"\nretry = {{ max_retries = 0 }}\n\
         [[vendors.v.limits]]\nname = \"requests\"\nscope = \"tenant\"\nalgorithm = \"sliding_window\"\n\
         limit = {LIMIT}\nwindow = \"100ms\"\nsafety = {safety:?}\n"
    );
    // A limit that all tenants share needs one lock over them, so every lane moves to another shard, and back.
    if number / 40 % 2 == 1 {
        text += "[[vendors.v.limits]]\nname = \"everybody\"\nscope = \"vendor\"\nalgorithm = \"sliding_window\"\n\
                 limit = 100000\nwindow = \"1s\"\n";
    }
    if number.is_multiple_of(5) {
        text += "[vendors.v.endpoints.extra]\npaths = [\"/extra\"]\n";
    }
    for tenant in 0..TENANTS {
        text += &format!("[[tenants]]\nid = \"t{tenant}\"\nvendor = \"v\"\nweight = {}\n", 1 + number % 4);
    }
    if number % 7 < 4 {
        text += "[[tenants]]\nid = \"guest\"\nvendor = \"v\"\n";
    }
    text
}

struct LoadCounters {
    sent: AtomicUsize,
    retired: AtomicUsize,
    stop: AtomicBool,
}

async fn send_until_stopped(client: IntegrationClient, tenant: String, task: usize, load: Arc<LoadCounters>) {
    let mut number = 0;
    while !load.stop.load(Ordering::Relaxed) {
        let request = Request::get("v", format!("/{tenant}/{task}/{number}"));
        number += 1;
        match client.send(&tenant, Priority::Normal, request).await {
            Ok(response) => {
                response.text().await.unwrap();
                load.sent.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if tenant == "guest" => {
                assert!(matches!(error.kind(), ErrorKind::UnknownTenant | ErrorKind::Retired), "{error}");
                load.retired.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_reloads_lose_and_credit_nothing() {
    let transport = FakeTransport::new(|call| {
        let delay = Duration::from_micros(call.number as u64 % 5 * 700);
        FakeAnswer::status(200).delay(delay).body("done")
    });
    let source = TextSource::new(configuration(0));
    let client = IntegrationClient::builder().config_source(source.clone()).transport(transport.clone()).shards(8);
    let client = client.build().await.unwrap();
    let load = Arc::new(LoadCounters { sent: 0.into(), retired: 0.into(), stop: false.into() });
    let mut tasks = Vec::new();
    for tenant in (0..TENANTS).map(|tenant| format!("t{tenant}")).chain(["guest".to_owned()]) {
        for task in 0..4 {
            tasks.push(tokio::spawn(send_until_stopped(client.clone(), tenant.clone(), task, load.clone())));
        }
    }

    let (mut took, mut accepted, mut refused) = (Vec::new(), 0, 0);
    for number in 1..=RELOADS {
        let text = configuration(number);
        let malformed = number % 3 == 0;
        source.set(match number % 9 {
            0 => text[..text.rfind("v\"").unwrap()].to_owned(),
            3 => text.replace("limit = ", "limt = "),
            6 => text.replace("vendor = \"v\"", "vendor = \"w\""),
            _ => text,
        });
        let before = client.config().current().version();
        let began = Instant::now();
        match client.config().reload().await {
            Ok(version) => {
                took.push(began.elapsed());
                assert!(!malformed && version == before + 1);
                accepted += 1;
            }
            Err(error) => {
                assert!(malformed && client.config().current().version() == before, "{error}");
                refused += 1;
            }
        }
    }
    load.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }

    let calls = transport.calls();
    let sent = load.sent.load(Ordering::Relaxed);
    let paths: HashSet<&str> = calls.iter().map(|call| call.path()).collect();
    assert_eq!((calls.len(), paths.len()), (sent, sent), "each once");
    let mut logs = BTreeMap::<String, Vec<Event>>::new();
    for call in &calls {
        let tenant = call.path().split('/').nth(1).unwrap().to_owned();
        logs.entry(tenant).or_default().push(Event::at(call.at.as_nanos()));
    }
    let is = Definition::SlidingWindow { limit: LIMIT.into(), window_ns: 100_000_000, both_ends: true };
    let reports: Vec<_> = logs.values().map(|log| check(log, &is)).collect();
    let peak = reports.iter().map(|report| report.peak).max().unwrap();
    assert!(reports.iter().all(|report| report.is_clean()), "{peak} of {LIMIT} in one window");

    // A permit whose lane has moved counts in the new shard until its deadline, 300 ms later.
    for _ in 0..300 {
        if (client.waiting(), client.in_flight()) != (0, 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!((client.waiting(), client.in_flight()), (0, 0), "permits that nobody has");

    took.sort_unstable();
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    println!(
        "reloads: {RELOADS} accepted={accepted} refused={refused} sends={sent} retired={} lost=0 doubled=0 \
         peak={peak}/{LIMIT} switch_p50={median:.1?} switch_p999={:.1?} switch_worst={worst:.1?}",
        load.retired.load(Ordering::Relaxed),
        took[took.len() * 999 / 1000],
    );
    assert!(worst <= Duration::from_millis(100), "the slowest reload took {worst:?}");
}
