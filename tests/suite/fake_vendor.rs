//! The fake vendor over real sockets, in real time. The tests assert bounds, not exact timings.
#![expect(clippy::unwrap_used, reason = "clippy takes only #[test] functions for tests, not what they call")]

use std::time::Duration;

use integration_client::clock::Clock;
use integration_client::config::Scope;
use integration_client::testing::checker::{Definition, Event, check, refused};
use integration_client::testing::{
    Arrival, Delay, FakeVendor, FakeVendorBuilder, Fault, HeaderStyle, Reply, VendorLimit, When,
};

const HOUR: Duration = Duration::from_secs(3600);

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().retry(reqwest::retry::never()).build().unwrap()
}

async fn started(builder: FakeVendorBuilder) -> FakeVendor {
    builder.start().await.unwrap()
}

async fn get(client: &reqwest::Client, vendor: &FakeVendor, path: &str, key: &str) -> reqwest::Response {
    client.get(vendor.url() + path).bearer_auth(key).send().await.unwrap()
}

async fn statuses(vendor: &FakeVendor, calls: &[(&str, &str)]) -> Vec<u16> {
    let client = client();
    let mut statuses = Vec::new();
    for (path, key) in calls {
        statuses.push(get(&client, vendor, path, key).await.status().as_u16());
    }
    statuses
}

fn admitted(arrivals: &[Arrival]) -> Vec<Event> {
    arrivals.iter().filter(|arrival| arrival.admitted).map(Event::from).collect()
}

#[tokio::test]
async fn refusal_says_when_to_come_back() {
    let vendor = started(FakeVendor::builder().limit(VendorLimit::sliding_window(2, HOUR))).await;
    let client = client();
    let header = |response: &reqwest::Response, name: &str| {
        response.headers().get(name).map(|value| value.to_str().unwrap().parse::<u64>().unwrap())
    };

    let first = get(&client, &vendor, "/", "acme").await;
    assert_eq!((header(&first, "x-ratelimit-limit"), header(&first, "x-ratelimit-remaining")), (Some(2), Some(1)));
    assert_eq!(header(&first, "retry-after"), None);
    get(&client, &vendor, "/", "acme").await;
    let refused = get(&client, &vendor, "/", "acme").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "x-ratelimit-remaining"), Some(0));
    let wait = header(&refused, "retry-after").unwrap();
    assert!((3595..=3600).contains(&wait), "{wait}");
    assert_eq!(vendor.refused(), 1);
}

#[tokio::test]
async fn headers_are_as_told() {
    for (style, expected) in [
        (HeaderStyle::Silent, (false, false)),
        (HeaderStyle::RetryAfter, (true, false)),
        (HeaderStyle::XRateLimit, (true, true)),
    ] {
        let limit = VendorLimit::fixed_window(0, HOUR);
        // The limit has one unit: a limit of zero units would have no time to retry.
        let vendor = started(FakeVendor::builder().headers(style).limit(VendorLimit::fixed_window(1, HOUR))).await;
        get(&client(), &vendor, "/", "a").await;
        let response = get(&client(), &vendor, "/", "a").await;
        let has = |name| response.headers().contains_key(name);
        assert_eq!((has("retry-after"), has("x-ratelimit-remaining")), expected, "{style:?}");

        let never = started(FakeVendor::builder().headers(style).limit(limit)).await;
        let response = get(&client(), &never, "/", "a").await;
        assert_eq!((response.status().as_u16(), response.headers().contains_key("retry-after")), (429, false));
    }
}

#[tokio::test]
async fn scopes_are_kept_apart() {
    let vendor = started(
        FakeVendor::builder()
            .account("shared", ["a1", "a2"])
            .endpoint("reports", "/reports")
            .limit(VendorLimit::sliding_window(5, HOUR).scope(Scope::Vendor))
            .limit(VendorLimit::sliding_window(2, HOUR).scope(Scope::Account))
            .limit(VendorLimit::sliding_window(1, HOUR).scope(Scope::Endpoint).endpoint("reports")),
    )
    .await;
    let calls = [
        ("/reports", "a1"),
        ("/reports/7?x=1", "a1"), // the limit of its endpoint is used up
        ("/reportsx", "a1"),      // not a path of that endpoint
        ("/", "a2"),              // the account's limit is used up by the other key
        ("/", "b"),
        ("/reports", "c"),
        ("/", "c"),
        ("/", "d"), // the vendor-wide limit is used up
    ];
    assert_eq!(statuses(&vendor, &calls).await, [200, 429, 200, 429, 200, 200, 200, 429]);

    let log = vendor.arrivals();
    let second = &log[1];
    assert_eq!((&*second.key, &*second.account, &*second.path), ("a1", "shared", "/reports/7"));
    assert_eq!((&*second.endpoint, second.admitted, second.status), ("reports", false, 429));
    assert_eq!((&*log[2].endpoint, &*log[4].account), ("", "b"));
}

#[tokio::test]
async fn costs_and_tenants_come_in_headers() {
    let vendor = started(FakeVendor::builder().limit(VendorLimit::token_bucket(10, 1, HOUR))).await;
    let client = client();
    for (cost, expected) in [("7", 200), ("4", 429), ("3", 200), ("1", 429)] {
        let request = client.get(vendor.url()).header("x-tenant", "t").header("x-cost", cost);
        assert_eq!(request.send().await.unwrap().status(), expected, "cost {cost}");
    }
    let log = vendor.arrivals();
    assert_eq!(log.iter().map(|arrival| arrival.cost).collect::<Vec<_>>(), [7, 4, 3, 1]);
    assert_eq!(&*log[0].key, "t");
    let definition = Definition::TokenBucket { capacity: 10, rate: 1, per_ns: 3_600_000_000_000 };
    assert_eq!(refused(&log, &definition), 2);
}

#[tokio::test]
async fn concurrency_is_held_until_work_ends() {
    let vendor = started(
        FakeVendor::builder().limit(VendorLimit::concurrency(3)).service_time(Delay::fixed(Duration::from_millis(150))),
    )
    .await;
    let client = client();
    let round = || async {
        let calls: Vec<_> = (0..8).map(|_| get(&client, &vendor, "/", "a")).collect();
        let mut ok = 0;
        for response in futures_join(calls).await {
            ok += usize::from(response.status().is_success());
        }
        ok
    };
    assert_eq!(round().await, 3);
    assert_eq!(round().await, 3, "the places are free again");
    let report = check(&admitted(&vendor.arrivals()), &Definition::Concurrency { limit: 3 });
    assert!(report.is_clean());
    assert_eq!(report.peak, 3);
}

#[tokio::test]
async fn caller_that_hangs_up_frees_its_place() {
    let vendor =
        started(FakeVendor::builder().limit(VendorLimit::concurrency(1)).fault(When::any().nth(1), Fault::Stall)).await;
    let stalled = client().get(vendor.url()).timeout(Duration::from_millis(100)).send().await;
    assert!(stalled.unwrap_err().is_timeout());
    for _ in 0..100 {
        if vendor.summary().finished == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(get(&client(), &vendor, "/", "").await.status(), 200);
    assert_eq!(vendor.arrivals()[0].status, 0);
}

#[tokio::test]
async fn faults_happen_as_scripted() {
    let vendor = started(
        FakeVendor::builder()
            .body_size(100)
            .fault(When::path("/down").first(2), Fault::Status(503))
            .fault(When::path("/reset"), Fault::Reset)
            .fault(When::path("/half"), Fault::HalfBody)
            .fault(
                When::path("/slow"),
                Fault::SlowBody { chunks: 4, chunk_bytes: 10, pause: Duration::from_millis(20) },
            ),
    )
    .await;
    let calls = [("/down", ""), ("/down/x", ""), ("/", ""), ("/down", "")];
    assert_eq!(statuses(&vendor, &calls).await, [503, 503, 200, 200]);

    let client = client();
    let reset = client.get(vendor.url() + "/reset").send().await.unwrap_err();
    assert!(!reset.is_timeout() && !reset.is_connect(), "{reset:?}");
    assert!(format!("{reset:?}").contains("ConnectionReset"), "{reset:?}");

    let half = get(&client, &vendor, "/half", "").await;
    assert_eq!((half.status().as_u16(), half.content_length()), (200, Some(128)));
    assert!(half.bytes().await.is_err());

    let clock = Clock::system();
    let began = clock.now();
    let slow = get(&client, &vendor, "/slow", "").await;
    assert_eq!(slow.bytes().await.unwrap().len(), 40);
    assert!(clock.now().since(began) >= Duration::from_millis(80));

    assert_eq!(get(&client, &vendor, "/", "").await.bytes().await.unwrap().len(), 100);
    vendor.add_fault(When::any(), Fault::Status(500));
    assert_eq!(get(&client, &vendor, "/", "").await.status(), 500);
    vendor.clear_faults();
    assert_eq!(get(&client, &vendor, "/", "").await.status(), 200);
    assert_eq!(vendor.summary().faults, 6);
}

#[tokio::test]
async fn replies_go_by_path() {
    let vendor = started(
        FakeVendor::builder()
            .reply_at("/users", Reply::json(200, r#"{"id":1}"#))
            .reply_at("/users/2", Reply::text(404, "no such user")),
    )
    .await;
    let client = client();
    let user: serde_json::Value = get(&client, &vendor, "/users/1", "").await.json().await.unwrap();
    assert_eq!(user["id"], 1);
    assert_eq!(get(&client, &vendor, "/users/2", "").await.text().await.unwrap(), "no such user");
    assert_eq!(get(&client, &vendor, "/else", "").await.text().await.unwrap(), "{}");
    let posted = client.post(vendor.url() + "/users").body("x".repeat(300_000)).send().await.unwrap();
    assert_eq!(posted.status(), 200, "a large body is read");
}

#[tokio::test]
async fn latency_stands_on_both_ways() {
    let way = Duration::from_millis(30);
    let vendor = started(FakeVendor::builder().latency(way).jitter(Duration::from_millis(10)).seed(7)).await;
    let clock = Clock::system();
    let began = clock.now();
    get(&client(), &vendor, "/", "").await;
    assert!(clock.now().since(began) >= 2 * way);
    let arrival = &vendor.arrivals()[0];
    let waited = arrival.finished_at.unwrap().since(arrival.at);
    assert!(waited < way, "the way back is not the vendor's time, but it took {waited:?}");
}

#[tokio::test]
async fn log_is_bounded_and_can_be_reset() {
    let vendor = started(FakeVendor::builder().log_cap(3).limit(VendorLimit::sliding_window(6, HOUR))).await;
    let calls = [("/", "a"); 5];
    statuses(&vendor, &calls).await;
    assert_eq!(vendor.arrivals().len(), 3);
    assert_eq!((vendor.summary().arrived, vendor.summary().not_logged), (5, 2));
    vendor.reset_log();
    assert_eq!(statuses(&vendor, &calls[..2]).await, [200, 429], "the limit remembers");
    assert_eq!((vendor.arrivals().len(), vendor.summary().arrived), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_is_judged_as_the_definitions_say() {
    let window = Duration::from_millis(50);
    let ns = 50_000_000;
    for (limit, definition) in [
        (
            VendorLimit::fixed_window(20, window).phase(Duration::from_millis(13)),
            Definition::FixedWindow { limit: 20, window_ns: ns, phase_ns: 13_000_000 },
        ),
        (
            VendorLimit::fixed_window(20, window).from_first_request(),
            Definition::FixedWindowFromFirst { limit: 20, window_ns: ns },
        ),
        (
            VendorLimit::sliding_window(20, window).count_both_ends(),
            Definition::SlidingWindow { limit: 20, window_ns: ns, both_ends: true },
        ),
        (
            VendorLimit::sliding_counter(20, window),
            Definition::SlidingCounter { limit: 20, window_ns: ns, phase_ns: 0 },
        ),
        (
            VendorLimit::token_bucket(20, 300, Duration::from_secs(1)),
            Definition::TokenBucket { capacity: 20, rate: 300, per_ns: 1_000_000_000 },
        ),
        (
            VendorLimit::leaky_bucket(20, 300, Duration::from_secs(1)),
            Definition::LeakyBucket { capacity: 20, rate: 300, per_ns: 1_000_000_000 },
        ),
    ] {
        let vendor = started(FakeVendor::builder().jitter(Duration::from_millis(5)).seed(3).limit(limit)).await;
        let client = client();
        let workers: Vec<_> = (0..8)
            .map(|_| async {
                for _ in 0..40 {
                    get(&client, &vendor, "/", "a").await.bytes().await.unwrap();
                }
            })
            .collect();
        futures_join(workers).await;
        let log = vendor.arrivals();
        assert_eq!(log.len(), 320);
        assert!(vendor.refused() > 0, "{definition:?} was not put to the test");
        assert_eq!(refused(&log, &definition), vendor.refused(), "{definition:?}");
        assert!(check(&admitted(&log), &definition).is_clean());
    }
}

#[tokio::test]
async fn vendors_toml_entry_tells_the_truth() {
    let vendor = started(
        FakeVendor::builder()
            .endpoint("reports", "/reports")
            .limit(VendorLimit::fixed_window(100, Duration::from_secs(1)).named("per-second").count_requests())
            .limit(VendorLimit::sliding_window(9, Duration::from_millis(1_500)).scope(Scope::Account))
            .limit(VendorLimit::token_bucket(40, 2, Duration::from_secs(1)))
            .limit(VendorLimit::token_bucket(40, 4, Duration::from_secs(1)).refill_interval(Duration::from_secs(3)))
            .limit(VendorLimit::concurrency(2).scope(Scope::Endpoint).endpoint("reports")),
    )
    .await;
    let text = vendor.vendors_toml("acme-api");
    text.parse::<toml::Table>().unwrap();
    insta::assert_snapshot!(text.replace(&vendor.url(), "URL"), @r#"
    [vendors.acme-api]
    base_url = "URL"
    auth = { scheme = "bearer" }

    [[vendors.acme-api.limits]]
    name = "per-second"
    scope = "tenant"
    algorithm = "fixed_window"
    limit = 100
    window = "1s"

    [[vendors.acme-api.limits]]
    name = "limit-1"
    scope = "account"
    algorithm = "sliding_window"
    limit = 9
    window = "1500ms"
    unit = "points"

    [[vendors.acme-api.limits]]
    name = "limit-2"
    scope = "tenant"
    algorithm = "token_bucket"
    limit = 40
    window = "20s"
    unit = "points"

    [[vendors.acme-api.limits]]
    name = "limit-3"
    scope = "tenant"
    algorithm = "token_bucket"
    limit = 40
    window = "12s"
    refill_interval = "3s"
    unit = "points"

    [vendors.acme-api.endpoints.reports]
    paths = ["/reports", "/reports/**"]

    [[vendors.acme-api.endpoints.reports.limits]]
    name = "limit-4"
    scope = "endpoint"
    concurrency = 2
    "#);
}

#[tokio::test]
async fn builder_that_makes_no_sense_is_refused() {
    let hourly = VendorLimit::sliding_window(1, HOUR);
    for builder in [
        FakeVendor::builder().limit(hourly.clone().endpoint("nowhere")),
        FakeVendor::builder().limit(hourly.scope(Scope::Endpoint)),
        FakeVendor::builder().endpoint("a", "/a").endpoint("a", "/b"),
    ] {
        assert_eq!(builder.start().await.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
}

#[tokio::test]
async fn dropping_the_vendor_ends_it() {
    let vendor = started(FakeVendor::builder()).await;
    let (client, url) = (client(), vendor.url());
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    drop(vendor);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(client.get(&url).send().await.is_err());
}

/// Runs all futures concurrently, in this task.
async fn futures_join<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
