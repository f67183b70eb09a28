//! The cost of the console: pages of many lanes, and viewers beside senders.
//!
//! ```text
//! cargo bench --bench console --features console
//! cargo bench --bench console --features console -- pages
//! ```
//!
//! The second command leaves the throughput out.
//!
//! A page is one answer of the console to a viewer: each with another order, search or number of lanes, so that hardly any
//! is a copy of an earlier one. The walk over all lanes that pages are selected from takes place in the background, and is
//! measured by itself. Meanwhile a thread requests permits in the same shards; its slowest call bounds the time for which
//! a lock was held. The process fails when a check does: a page of 10,000 lanes takes at most 5 ms and one of 100,000 at
//! most 50 ms, and with ten viewers the throughput is at least 0.98 of that without viewers.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the time itself, and has a thread beside")]
#![expect(clippy::unwrap_used, reason = "whatever goes wrong ends the run")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use integration_client::config::TenantEntry;
use integration_client::console::{Access, Console};
use integration_client::status::LaneQuery;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{IntegrationClient, Priority, Request};
use tower::Service as _;

const VENDOR: &str = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\n\
    [[vendors.v.limits]]\nname = \"hour\"\nlimit = 4_000_000_000\nwindow = \"1h\"\nalgorithm = \"sliding_window\"\n";
const VIEWERS: usize = 10;
const ROUNDS: usize = 6;
const ROUND: Duration = Duration::from_secs(2);

async fn client(tenants: usize) -> (IntegrationClient, FakeTransport) {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let mut builder =
        IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR).transport(transport.clone());
    for number in 0..tenants {
        builder = builder.tenant(TenantEntry::new(format!("tenant-{number:06}"), "v"));
    }
    let client = builder.build().await.unwrap();
    // Each tenant has sent once: an idle lane that is not in memory would cost nothing.
    for number in 0..tenants {
        client.try_acquire(&format!("tenant-{number:06}"), "v", Priority::Normal, 1).unwrap().finish();
    }
    (client, transport)
}

/// Requests permits until it is stopped. Returns the slowest of 10,000 calls: a thread that loses its processor looks like
/// a lock that was held, so one of each 10,000 calls is left out.
fn slowest_permit(client: &IntegrationClient, tenants: usize, stop: &AtomicBool) -> Duration {
    let (mut took, mut number) = (Vec::new(), 0);
    while !stop.load(Relaxed) {
        number = (number + 7_919) % tenants;
        let tenant = format!("tenant-{number:06}");
        let began = Instant::now();
        client.try_acquire(&tenant, "v", Priority::Normal, 1).unwrap().finish();
        took.push(began.elapsed());
    }
    took.sort_unstable();
    took[took.len() - 1 - took.len() / 10_000]
}

/// Times `each` for two seconds beside a thread that requests permits. Returns the times in their order, and the slowest
/// permit.
async fn timed(
    client: &IntegrationClient,
    tenants: usize,
    mut each: impl AsyncFnMut(usize),
) -> (Vec<Duration>, Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let (asking, ended) = (client.clone(), stop.clone());
    let beside = std::thread::spawn(move || slowest_permit(&asking, tenants, &ended));
    let (mut took, until) = (Vec::new(), Instant::now() + Duration::from_secs(2));
    while Instant::now() < until {
        let began = Instant::now();
        each(took.len()).await;
        took.push(began.elapsed());
    }
    stop.store(true, Relaxed);
    took.sort_unstable();
    (took, beside.join().unwrap())
}

/// Prints what pages of a client with many lanes take. Returns the median time of a page.
async fn pages(client: &IntegrationClient, tenants: usize) -> Duration {
    let mut console = Console::builder(client.clone()).access(|_| Some(Access::View)).build();
    let background = tokio::spawn(console.background());
    let (_, alone) = timed(client, tenants, async |_| tokio::time::sleep(Duration::from_millis(10)).await).await;
    let (walk, beside_walk) = timed(client, tenants, async |_| {
        assert_eq!(client.lanes_page(&LaneQuery::default()).total, tenants);
    })
    .await;
    let began = Instant::now();
    ask(&mut console, "/api/lanes").await;
    let first = began.elapsed();
    let (page, beside_page) = timed(client, tenants, async |number| {
        let sort = ["worst", "room", "waiting", "name"][number % 4];
        let (limit, vendor) = (1 + number % 200, ["", "&vendor=v"][number / 200 % 2]);
        // Every third viewer searches for a digit, which a third of the names or more contain.
        let search = if number % 3 == 0 { format!("&search={}", number % 10) } else { String::new() };
        ask(&mut console, &format!("/api/lanes?sort={sort}&limit={limit}{vendor}{search}")).await;
    })
    .await;
    background.abort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let median = page[page.len() / 2];
    println!(
        "{tenants:>7} lanes: a page in {:.1} ms ({} pages, slowest {:.1}), the first viewer's in {:.1}, the walk behind it \
         {:.1}; slowest permit {} us, beside walks {} us, alone {} us",
        ms(median),
        page.len(),
        ms(page[page.len() - 1]),
        ms(first),
        ms(walk[walk.len() / 2]),
        beside_page.as_micros(),
        beside_walk.as_micros(),
        alone.as_micros(),
    );
    median
}

async fn ask(console: &mut Console, path: &str) -> usize {
    let request = http::Request::get(path).body(Full::<bytes::Bytes>::default()).unwrap();
    let answer = console.call(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.unwrap().to_bytes().len()
}

/// Sends for a while, beside `viewers` viewers that call the console as its page does. Returns the number of requests
/// sent.
async fn throughput(
    (client, transport): &(IntegrationClient, FakeTransport),
    console: &Console,
    viewers: usize,
) -> u64 {
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..viewers {
        let (mut console, stop) = (console.clone(), stop.clone());
        tasks.spawn(async move {
            let request = http::Request::get("/api/events").body(Full::<bytes::Bytes>::default()).unwrap();
            let mut events = console.call(request).await.unwrap().into_body();
            while !stop.load(Relaxed) {
                ask(&mut console, "/api/lanes").await;
                ask(&mut console, "/api/overview").await;
                let read = async { while events.frame().await.is_some() {} };
                let _ = tokio::time::timeout(ROUND / 2, read).await;
            }
        });
    }
    for number in 0..4usize {
        let (client, transport) = (client.clone(), transport.clone());
        let (stop, sent) = (stop.clone(), sent.clone());
        tasks.spawn(async move {
            let mut tenant = number;
            while !stop.load(Relaxed) {
                tenant = (tenant + 7_919) % 10_000;
                let request = Request::get("v", "/x");
                client.send(&format!("tenant-{tenant:06}"), Priority::Normal, request).await.unwrap();
                if sent.fetch_add(1, Relaxed) % 1_000 == 0 {
                    transport.reset_calls();
                }
                tokio::task::yield_now().await;
            }
        });
    }
    tokio::time::sleep(ROUND).await;
    stop.store(true, Relaxed);
    while tasks.join_next().await.is_some() {}
    sent.load(Relaxed)
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut well = true;
    for (tenants, most) in [(10_000, 5), (100_000, 50)] {
        let (client, _) = client(tenants).await;
        well &= pages(&client, tenants).await <= Duration::from_millis(most);
    }
    if std::env::args().any(|argument| argument == "pages") {
        return if well { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let client = client(10_000).await;
    let console = Console::builder(client.0.clone()).access(|_| Some(Access::View)).build();
    let (mut with, mut without, mut one) = (0, 0, 0);
    throughput(&client, &console, 0).await;
    for _ in 0..ROUNDS {
        without += throughput(&client, &console, 0).await;
        one += throughput(&client, &console, 1).await;
        with += throughput(&client, &console, VIEWERS).await;
    }
    let ratio = |count: u64| count as f64 / without as f64;
    well &= ratio(with) >= 0.98;
    println!(
        "throughput with {VIEWERS} viewers: {:.3} of that without (at least 0.98); with one {:.3}; {} sends a second",
        ratio(with),
        ratio(one),
        without / (ROUNDS as u64 * ROUND.as_secs()),
    );
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
