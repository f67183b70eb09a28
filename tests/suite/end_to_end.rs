//! The client against a vendor with a socket, in real time: all requests are sent as fast as the limits allow, and none
//! is refused. The vendor's log of arrivals is judged by the definitions of the limits.
//!
//! The tests assert bounds, not exact timings. The vendor's jitter is drawn from a seeded generator; which request gets
//! which delay depends on the machine.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too, and figures are printed"
)]

use std::time::Duration;

use integration_client::config::{Scope, TenantEntry};
use integration_client::testing::checker::{Definition, refused};
use integration_client::testing::{
    Arrival, Delay, FakeVendor, FakeVendorBuilder, Fault, HeaderStyle, VendorLimit, When, literal,
};
use integration_client::{Delivery, Error, ErrorKind, IntegrationClient, Priority, Request, Response};
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_millis(500);
const WINDOW_NS: u64 = 500_000_000;
const RUN: Duration = Duration::from_millis(2500);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

/// A vendor with a latency of 2 to 10 ms in each direction.
fn vendor_with_jitter() -> FakeVendorBuilder {
    // The vendor is silent, because reports of remaining units would slow the client down before the limit does.
    FakeVendor::builder().headers(HeaderStyle::Silent).latency(ms(2)).jitter(ms(8)).seed(7)
}

/// Starts a vendor, and a client that has the vendor's entry and these tenants, as (name, account).
async fn start_vendor_and_client(
    vendor: FakeVendorBuilder,
    tenants: &[(&str, &str)],
) -> (FakeVendor, IntegrationClient) {
    let vendor = vendor.start().await.unwrap();
    let mut builder = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor.vendors_toml("v") + "\n[vendors.v.retry]\nmax_retries = 0\n");
    for (tenant, account) in tenants {
        builder = builder.tenant(TenantEntry::new(*tenant, "v").account(*account).credential(format!("keys:{tenant}")));
    }
    let client = builder.credential_resolver("keys", literal).build().await.unwrap();
    (vendor, client)
}

/// Runs `callers` for each (tenant, path), which send again as soon as they have read the last response, until [`RUN`]
/// is over. Then waits for the requests under way.
async fn saturate(client: &IntegrationClient, load: &[(&str, &str)], callers: usize) {
    let ends = now() + RUN;
    let mut tasks = tokio::task::JoinSet::new();
    for (tenant, path) in load {
        for n in 0..callers {
            let (client, tenant, path) = (client.clone(), (*tenant).to_owned(), (*path).to_owned());
            tasks.spawn(async move {
                let priority = [Priority::High, Priority::Normal, Priority::Low][n % 3];
                loop {
                    let wait = ends - now();
                    if wait.is_zero() {
                        break;
                    }
                    match client.send(&tenant, priority, Request::get("v", &*path).max_wait(wait)).await {
                        Ok(response) => {
                            assert_eq!(response.status(), 200);
                            response.text().await.unwrap();
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Deadline, "{error}"),
                    }
                }
            });
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    wait_until_idle(client).await;
}

/// Asserts that within 2 s no request waits and none is under way.
async fn wait_until_idle(client: &IntegrationClient) {
    let until = now() + ms(2000);
    while (client.waiting(), client.in_flight()) != (0, 0) {
        assert!(now() < until, "{} wait and {} are in flight", client.waiting(), client.in_flight());
        tokio::time::sleep(ms(5)).await;
    }
}

/// How many units the client may use of a limit within [`RUN`]: 80 % of the limit. The first burst comes on top.
fn budget(limit: u32) -> f64 {
    0.8 * f64::from(limit) * RUN.as_secs_f64() / WINDOW.as_secs_f64()
}

/// Asserts that neither the vendor nor the definition refuses a request, and that at least 85 % of `budget` was used.
#[track_caller]
fn assert_limit_kept(what: &str, log: &[Arrival], of: impl Fn(&Arrival) -> bool, limit: &Definition, budget: f64) {
    let log: Vec<Arrival> = log.iter().filter(|arrival| of(arrival)).cloned().collect();
    let (sent, refused) = (log.len(), refused(&log, limit));
    println!("{what}: {sent} sent, {refused} refused, {:.0} % of the budget", 100.0 * sent as f64 / budget);
    assert_eq!((refused, log.iter().filter(|arrival| !arrival.admitted).count()), (0, 0), "{what}");
    assert!(sent as f64 >= 0.85 * budget, "{what}: {sent} of {budget}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fixed_windows_are_kept() {
    let limit = VendorLimit::fixed_window(100, WINDOW).phase(ms(170));
    let (vendor, client) = start_vendor_and_client(vendor_with_jitter().limit(limit), &[("a", "a"), ("b", "b")]).await;
    saturate(&client, &[("a", "/"), ("b", "/")], 60).await;
    let log = vendor.arrivals();
    for tenant in ["a", "b"] {
        let definition = Definition::FixedWindow { limit: 100, window_ns: WINDOW_NS, phase_ns: 170_000_000 };
        assert_limit_kept("fixed window", &log, |arrival| &*arrival.key == tenant, &definition, budget(100));
        let definition = Definition::FixedWindowEveryPhase { limit: 100, window_ns: WINDOW_NS };
        assert_limit_kept("fixed window, any phase", &log, |arrival| &*arrival.key == tenant, &definition, budget(100));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sliding_windows_are_kept() {
    let limit = VendorLimit::sliding_window(100, WINDOW).count_both_ends();
    let (vendor, client) = start_vendor_and_client(vendor_with_jitter().limit(limit), &[("a", "a")]).await;
    saturate(&client, &[("a", "/")], 60).await;
    let definition = Definition::SlidingWindow { limit: 100, window_ns: WINDOW_NS, both_ends: true };
    assert_limit_kept("sliding log", &vendor.arrivals(), |_| true, &definition, budget(100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_buckets_are_kept() {
    let limit = VendorLimit::token_bucket(100, 200, Duration::from_secs(1));
    let (vendor, client) = start_vendor_and_client(vendor_with_jitter().limit(limit), &[("a", "a")]).await;
    saturate(&client, &[("a", "/")], 60).await;
    let definition = Definition::TokenBucket { capacity: 100, rate: 200, per_ns: 1_000_000_000 };
    assert_limit_kept("token bucket", &vendor.arrivals(), |_| true, &definition, budget(100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrency_limit_is_kept() {
    let service = Delay::fixed(ms(30)).jitter(ms(20));
    let vendor = FakeVendor::builder().limit(VendorLimit::concurrency(8)).service_time(service).seed(7);
    let (vendor, client) = start_vendor_and_client(vendor, &[("a", "a")]).await;
    saturate(&client, &[("a", "/")], 24).await;
    let log = vendor.arrivals();
    // A slot is busy for the service time and for the latency in both directions. The vendor sees only the service
    // time.
    let busy: Duration = log.iter().filter_map(|arrival| Some(arrival.finished_at?.since(arrival.at))).sum();
    let mean = busy.as_secs_f64() / log.len() as f64;
    let budget = 8.0 * RUN.as_secs_f64() / mean;
    assert_limit_kept("concurrency", &log, |_| true, &Definition::Concurrency { limit: 8 }, budget);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_account_limit_is_kept() {
    let limit = VendorLimit::sliding_window(120, WINDOW).scope(Scope::Account);
    let vendor = vendor_with_jitter().account("shared", ["a", "b", "c"]).limit(limit);
    let tenants = [("a", "shared"), ("b", "shared"), ("c", "shared"), ("d", "d")];
    let (vendor, client) = start_vendor_and_client(vendor, &tenants).await;
    saturate(&client, &tenants.map(|(tenant, _)| (tenant, "/")), 40).await;
    let log = vendor.arrivals();
    let definition = Definition::SlidingWindow { limit: 120, window_ns: WINDOW_NS, both_ends: false };
    for account in ["shared", "d"] {
        assert_limit_kept(account, &log, |arrival| &*arrival.account == account, &definition, budget(120));
    }
    for tenant in ["a", "b", "c"] {
        let sent = log.iter().filter(|arrival| &*arrival.key == tenant).count() as f64;
        assert!(sent >= 0.25 * budget(120), "{tenant} sent {sent}: a third each");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_limits_are_kept_at_once() {
    let vendor = vendor_with_jitter()
        .limit(VendorLimit::fixed_window(100, WINDOW))
        .limit(VendorLimit::concurrency(12))
        .limit(VendorLimit::sliding_window(150, WINDOW).scope(Scope::Vendor));
    let (vendor, client) = start_vendor_and_client(vendor, &[("a", "a"), ("b", "b")]).await;
    saturate(&client, &[("a", "/"), ("b", "/")], 40).await;
    let log = vendor.arrivals();
    let everybody = Definition::SlidingWindow { limit: 150, window_ns: WINDOW_NS, both_ends: false };
    assert_limit_kept("vendor-wide", &log, |_| true, &everybody, budget(150));
    for tenant in ["a", "b"] {
        let own = |arrival: &Arrival| &*arrival.key == tenant;
        let definition = Definition::FixedWindow { limit: 100, window_ns: WINDOW_NS, phase_ns: 0 };
        assert_limit_kept("own window", &log, own, &definition, budget(150) / 2.0);
        assert_limit_kept("own slots", &log, own, &Definition::Concurrency { limit: 12 }, budget(150) / 2.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoint_limits_are_kept() {
    let vendor = vendor_with_jitter()
        .endpoint("reports", "/reports")
        .limit(VendorLimit::fixed_window(100, WINDOW))
        .limit(VendorLimit::sliding_window(20, WINDOW).scope(Scope::Endpoint).endpoint("reports"));
    let (vendor, client) = start_vendor_and_client(vendor, &[("a", "a")]).await;
    saturate(&client, &[("a", "/reports/1"), ("a", "/users")], 40).await;
    let log = vendor.arrivals();
    let of_reports = Definition::SlidingWindow { limit: 20, window_ns: WINDOW_NS, both_ends: false };
    assert_limit_kept("endpoint", &log, |arrival| &*arrival.endpoint == "reports", &of_reports, budget(20));
    let of_all = Definition::FixedWindow { limit: 100, window_ns: WINDOW_NS, phase_ns: 0 };
    assert_limit_kept("all endpoints", &log, |_| true, &of_all, budget(100));
}

/// Sends eight requests one after the other, with an attempt timeout of 300 ms, to a vendor with four slots that
/// answers them with `fault`.
async fn faulty(fault: Fault) -> (FakeVendor, IntegrationClient, Vec<Result<Response, Error>>) {
    let vendor = FakeVendor::builder().limit(VendorLimit::concurrency(4)).fault(When::path("/faulty"), fault);
    let (vendor, client) = start_vendor_and_client(vendor, &[("a", "a")]).await;
    let mut results = Vec::new();
    for _ in 0..8 {
        let request = Request::get("v", "/faulty").attempt_timeout(ms(300));
        results.push(client.send("a", Priority::Normal, request).await);
    }
    (vendor, client, results)
}

/// Asserts that all four slots are free again, that a request succeeds, and that the vendor refused nothing.
async fn assert_recovered(vendor: &FakeVendor, client: &IntegrationClient) {
    wait_until_idle(client).await;
    let lane = client.lane("a", "v").unwrap();
    let permits: Vec<_> = (0..4).map(|_| lane.try_acquire(Priority::High, 1).unwrap()).collect();
    assert!(lane.try_acquire(Priority::High, 1).is_err());
    permits.into_iter().for_each(|permit| permit.not_sent());
    let response = client.send("a", Priority::High, Request::get("v", "/")).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "{}");
    wait_until_idle(client).await;
    assert_eq!(vendor.refused(), 0);
}

fn kind_and_delivery(error: &Error) -> (ErrorKind, Delivery) {
    (error.kind(), error.delivery())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_503_is_an_answer() {
    let (vendor, client, results) = faulty(Fault::Status(503)).await;
    for result in results {
        let response = result.unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(
            kind_and_delivery(&response.error_for_status().unwrap_err()),
            (ErrorKind::Status, Delivery::Ambiguous)
        );
    }
    assert!(client.tenants().paused_for("a", "v").unwrap().is_some(), "so many in a row, and the vendor is left alone");
    client.tenants().resume("a", "v").unwrap();
    assert_recovered(&vendor, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_connection_is_ambiguous() {
    let (vendor, client, results) = faulty(Fault::Reset).await;
    for result in results {
        assert_eq!(kind_and_delivery(&result.unwrap_err()), (ErrorKind::Protocol, Delivery::Ambiguous));
    }
    assert_eq!(vendor.summary().arrived, 8, "once each: nothing was sent again");
    assert_recovered(&vendor, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_vendor_is_a_timeout() {
    let (vendor, client, results) = faulty(Fault::Stall).await;
    for result in results {
        assert_eq!(kind_and_delivery(&result.unwrap_err()), (ErrorKind::Timeout, Delivery::Ambiguous));
    }
    assert_recovered(&vendor, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_and_broken_bodies_are_errors() {
    // The body takes 20 x 50 ms, which is more than the attempt timeout.
    let slow = Fault::SlowBody { chunks: 20, chunk_bytes: 10, pause: ms(50) };
    for (fault, kind) in [(slow, ErrorKind::Timeout), (Fault::HalfBody, ErrorKind::Protocol)] {
        let vendor = FakeVendor::builder().limit(VendorLimit::concurrency(4)).fault(When::path("/faulty"), fault);
        let (vendor, client) = start_vendor_and_client(vendor, &[("a", "a")]).await;
        for _ in 0..4 {
            let request = Request::get("v", "/faulty").attempt_timeout(ms(300));
            let response = client.send("a", Priority::Normal, request).await.unwrap();
            assert_eq!((response.status().as_u16(), client.in_flight()), (200, 1));
            assert_eq!(kind_and_delivery(&response.bytes().await.unwrap_err()), (kind, Delivery::Delivered));
        }
        assert_recovered(&vendor, &client).await;
    }
    let patient = Fault::SlowBody { chunks: 5, chunk_bytes: 10, pause: ms(20) };
    let vendor = FakeVendor::builder().limit(VendorLimit::concurrency(4)).fault(When::path("/faulty"), patient);
    let (vendor, client) = start_vendor_and_client(vendor, &[("a", "a")]).await;
    let response = client.send("a", Priority::Normal, Request::get("v", "/faulty")).await.unwrap();
    assert_eq!(response.bytes().await.unwrap().len(), 50);
    assert_recovered(&vendor, &client).await;
}
