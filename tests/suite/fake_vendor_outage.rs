//! The fake vendor's troubles over real sockets. The tests assert bounds, not exact timings. Tests that need no socket
//! are in `fake_vendor_troubles.rs`.
#![expect(clippy::unwrap_used, reason = "clippy takes only #[test] functions for tests, not what they call")]

use std::time::Duration;

use integration_client::testing::checker::{Definition, refused, refused_with_penalty};
use integration_client::testing::{Arrival, FakeVendor, FakeVendorBuilder, HeaderStyle, Outage, VendorLimit};

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_NS: u64 = 3_600_000_000_000;

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().retry(reqwest::retry::never()).build().unwrap()
}

async fn started(builder: FakeVendorBuilder) -> FakeVendor {
    builder.start().await.unwrap()
}

async fn try_get(client: &reqwest::Client, vendor: &FakeVendor, path: &str) -> reqwest::Result<reqwest::Response> {
    client.get(vendor.url() + path).bearer_auth("acme").send().await
}

async fn get(client: &reqwest::Client, vendor: &FakeVendor, path: &str) -> reqwest::Response {
    try_get(client, vendor, path).await.unwrap()
}

fn header(response: &reqwest::Response, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn retry_after_date_comes_with_date_header() {
    let builder = FakeVendor::builder().headers(HeaderStyle::RetryAfterDate);
    let vendor = started(builder.limit(VendorLimit::sliding_window(1, HOUR))).await;
    let client = client();
    get(&client, &vendor, "/").await;
    let refused = get(&client, &vendor, "/").await;
    let seconds = |name| {
        let text = header(&refused, name).unwrap();
        jiff::fmt::rfc2822::parse(&text).unwrap().timestamp().as_second()
    };
    let wait = seconds("retry-after") - seconds("date");
    assert!((3_595..=3_601).contains(&wait), "{wait}");
    assert_eq!(refused.headers().get_all("date").iter().count(), 1);
}

#[tokio::test]
async fn response_headers_are_true_when_sent() {
    let vendor = started(
        FakeVendor::builder()
            .headers(HeaderStyle::RateLimit)
            .limit(VendorLimit::sliding_window(9, HOUR))
            .service_time(integration_client::testing::Delay::fixed(Duration::from_millis(150))),
    )
    .await;
    let client = client();
    let (first, second) = tokio::join!(get(&client, &vendor, "/"), get(&client, &vendor, "/"));
    for response in [first, second] {
        assert_eq!(header(&response, "ratelimit-remaining").as_deref(), Some("7"), "both had come by then");
    }
}

#[tokio::test]
async fn blocked_key_is_logged_as_refused() {
    let penalty = HOUR / 2;
    let builder = FakeVendor::builder().limit(VendorLimit::sliding_window(1, HOUR)).penalty(penalty);
    let vendor = started(builder).await;
    let client = client();
    get(&client, &vendor, "/").await;
    for hits in 1..5u64 {
        let blocked = get(&client, &vendor, "/").await;
        assert_eq!(blocked.status(), 429);
        let wait: u64 = header(&blocked, "retry-after").unwrap().parse().unwrap();
        let expected = (1_800 * hits).max(3_600);
        assert!((expected - 5..=expected).contains(&wait), "{wait} after {hits}");
    }
    let log = vendor.arrivals();
    assert!(log.iter().skip(1).all(|arrival| !arrival.admitted && arrival.judged && arrival.status == 429));
    assert_eq!((vendor.summary().arrived, vendor.refused()), (5, 4));
    let definition = Definition::SlidingWindow { limit: 1, window_ns: HOUR_NS, both_ends: false };
    assert_eq!(refused_with_penalty(&log, &definition, HOUR_NS / 2), 4);
}

#[tokio::test]
async fn others_share_the_key_and_the_log() {
    let vendor = started(
        FakeVendor::builder()
            .limit(VendorLimit::fixed_window(60, Duration::from_millis(50)))
            .other_traffic("acme", 2_000, Duration::from_millis(20), HOUR)
            .other_traffic("globex", 100, Duration::ZERO, HOUR),
    )
    .await;
    let client = client();
    // Runs until 20 of our requests are refused and one of the other users of our key, who begin 20 ms later, is
    // admitted.
    let is_others = |arrival: &Arrival| &*arrival.key == "acme" && arrival.foreign && arrival.admitted;
    while vendor.refused() < 20 || !vendor.arrivals().iter().any(is_others) {
        get(&client, &vendor, "/").await;
    }
    let (log, counts) = (vendor.arrivals(), vendor.summary());
    assert!(log.is_sorted_by_key(|arrival| arrival.at));
    assert!(log.iter().any(|arrival| &*arrival.key == "globex" && arrival.foreign && arrival.admitted));
    let acme: Vec<_> = log.iter().filter(|arrival| &*arrival.key == "acme").cloned().collect();
    let own_refused = acme.iter().filter(|arrival| !arrival.foreign && !arrival.admitted).count() as u64;
    let foreign = acme.iter().filter(|arrival| arrival.foreign && arrival.admitted);
    assert!(foreign.count() > 0 && counts.foreign > counts.foreign_refused);
    assert_eq!(counts.refused, own_refused);
    let definition = Definition::FixedWindow { limit: 60, window_ns: 50_000_000, phase_ns: 0 };
    let all_refused = acme.iter().filter(|arrival| !arrival.admitted).count() as u64;
    assert_eq!(refused(&acme, &definition), all_refused, "of both, and the checker says so too");
}

#[tokio::test]
async fn outage_answers_503_and_counts_nowhere() {
    let vendor =
        started(FakeVendor::builder().headers(HeaderStyle::Silent).limit(VendorLimit::sliding_window(2, HOUR)).outage(
            Duration::ZERO,
            HOUR,
            Outage::RetryAfter(Duration::from_secs(30)),
        ))
        .await;
    let client = client();
    let down = get(&client, &vendor, "/").await;
    assert_eq!((down.status().as_u16(), header(&down, "retry-after").as_deref()), (503, Some("30")));

    let vendor = started(FakeVendor::builder().limit(VendorLimit::sliding_window(2, HOUR))).await;
    get(&client, &vendor, "/").await;
    vendor.set_outage(Outage::Unavailable);
    let down = get(&client, &vendor, "/").await;
    assert_eq!((down.status().as_u16(), header(&down, "retry-after")), (503, None));
    assert_eq!(header(&down, "x-ratelimit-remaining"), None);
    vendor.set_outage(None);
    let statuses = [get(&client, &vendor, "/").await.status(), get(&client, &vendor, "/").await.status()];
    assert_eq!(statuses.map(|status| status.as_u16()), [200, 429], "the outage took none");

    let log = vendor.arrivals();
    assert_eq!((log[1].status, log[1].admitted, log[1].judged), (503, false, false));
    let counts = vendor.summary();
    assert_eq!((counts.arrived, counts.admitted, counts.refused, counts.unavailable), (4, 2, 1, 1));
    let definition = Definition::SlidingWindow { limit: 2, window_ns: HOUR_NS, both_ends: false };
    assert_eq!(refused(log.iter().filter(|arrival| arrival.judged), &definition), 1);
}

#[tokio::test]
async fn outage_may_reset_whoever_asks() {
    let vendor = started(FakeVendor::builder()).await;
    let client = client();
    get(&client, &vendor, "/").await.bytes().await.unwrap();
    vendor.set_outage(Outage::Reset);
    for _ in 0..3 {
        let reset = try_get(&client, &vendor, "/").await.unwrap_err();
        assert!(!reset.is_connect(), "{reset:?}");
        assert!(format!("{reset:?}").contains("ConnectionReset"), "{reset:?}");
    }
    vendor.set_outage(None);
    assert_eq!(get(&client, &vendor, "/").await.status(), 200);
    let statuses: Vec<u16> = vendor.arrivals().iter().map(|arrival| arrival.status).collect();
    assert_eq!(statuses, [200, 0, 0, 0, 200]);
}

#[tokio::test]
async fn outage_may_refuse_connections() {
    let vendor = started(FakeVendor::builder()).await;
    let client = client();
    get(&client, &vendor, "/").await.bytes().await.unwrap();
    for _ in 0..3 {
        vendor.set_outage(Outage::Refuse);
        wait_until(|| async { try_get(&client, &vendor, "/").await.is_err_and(|error| error.is_connect()) }).await;
        let arrived = vendor.summary().arrived;
        let refused = try_get(&client, &vendor, "/").await.unwrap_err();
        assert!(refused.is_connect() && format!("{refused:?}").contains("ConnectionRefused"), "{refused:?}");
        assert_eq!(vendor.summary().arrived, arrived, "nothing reaches it");
        vendor.set_outage(None);
        wait_until(|| async { try_get(&client, &vendor, "/").await.is_ok_and(|answer| answer.status() == 200) }).await;
    }
}

#[tokio::test]
async fn refusing_connections_ends_those_that_are_open() {
    let builder = FakeVendor::builder().limit(VendorLimit::concurrency(1));
    let builder =
        builder.fault(integration_client::testing::When::path("/stall"), integration_client::testing::Fault::Stall);
    let vendor = started(builder.outage(HOUR, 2 * HOUR, Outage::Refuse)).await;
    let client = client();
    let down = async {
        wait_until(|| async { vendor.summary().admitted == 1 }).await;
        vendor.set_outage(Outage::Refuse);
    };
    let (stalled, ()) = tokio::join!(try_get(&client, &vendor, "/stall"), down);
    let error = stalled.unwrap_err();
    assert!(format!("{error:?}").contains("ConnectionReset"), "{error:?}");
    vendor.set_outage(None);
    wait_until(|| async { try_get(&client, &vendor, "/").await.is_ok_and(|answer| answer.status() == 200) }).await;
}

#[tokio::test]
async fn declared_outages_come_and_go_by_themselves() {
    let ms = Duration::from_millis;
    let client = client();
    let vendor = started(FakeVendor::builder().outage(ms(0), ms(150), Outage::Refuse)).await;
    wait_until(|| async { try_get(&client, &vendor, "/").await.is_ok_and(|answer| answer.status() == 200) }).await;
    let admitted = vendor.arrivals().into_iter().find(|arrival| arrival.admitted).unwrap();
    assert!(admitted.at.as_nanos() >= 150_000_000, "{:?}", admitted.at);
}

#[tokio::test]
async fn poisoned_path_leaves_the_rest_alone() {
    let vendor = started(
        FakeVendor::builder()
            .endpoint("reports", "/reports")
            .limit(VendorLimit::sliding_window(3, HOUR))
            .poisoned("/reports/slow", 429)
            .poisoned("/teapot", 418),
    )
    .await;
    let client = client();
    for (path, status, left) in [
        ("/reports/slow", 429, "3"),
        ("/reports/slow/7?x=1", 429, "3"),
        ("/reports/slower", 200, "2"),
        ("/teapot", 418, "2"),
        ("/", 200, "1"),
        ("/reports/slow", 429, "1"),
    ] {
        let answer = get(&client, &vendor, path).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "retry-after")), (status, None), "{path}");
        assert_eq!(header(&answer, "x-ratelimit-remaining").as_deref(), Some(left), "{path}");
    }
    let counts = vendor.summary();
    assert_eq!((counts.admitted, counts.refused, counts.poisoned), (2, 0, 4));
    let first = &vendor.arrivals()[0];
    assert_eq!((&*first.endpoint, first.status, first.admitted, first.judged), ("reports", 429, false, false));
}

/// Waits until `so` returns true, for two seconds at most.
async fn wait_until<F: Future<Output = bool>>(so: impl Fn() -> F) {
    for _ in 0..400 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(so().await, "not within two seconds");
}
