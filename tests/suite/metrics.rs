//! The metrics that a client exports, in virtual time: no socket, nothing really sleeps.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod broken;
mod config_problem;
mod gateway;
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use integration_client::config::{ConfigSource, LoadFuture, Sources, TenantEntry};
use integration_client::gateway::{Gateway, Listen};
use integration_client::metrics::{Kind, METRICS};
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, Watch};
use integration_client::testing::{FakeAnswer, FakeCall, FakeTransport};
use integration_client::{IntegrationClient, IntegrationClientBuilder, Priority, Request};
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example/base"
auth = { scheme = "none" }
retry = { first_wait = "1s", longest_wait = "10s" }
[[vendors.v.limits]]
name = "requests"
algorithm = "sliding_window"
limit = 100
window = "1s"
"#;

fn builder(script: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync + 'static) -> IntegrationClientBuilder {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(VENDOR)
        .transport(FakeTransport::new(script))
        .tenant(TenantEntry::new("a", "v"))
        .tenant(TenantEntry::new("b", "v"))
        .tenant(TenantEntry::new("c", "v"))
}

fn get() -> Request {
    Request::get("v", "/x").deadline(Duration::from_secs(3_600))
}

/// Waits for a second, after which the client has recorded its metrics.
async fn sleep_a_second() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// The recorded series, as `name{label=value,…}` and the value; for histograms the count. Each value can be read only
/// once.
fn recorded_series(recorder: &DebuggingRecorder) -> BTreeMap<String, f64> {
    let values = recorder.snapshotter().snapshot().into_vec().into_iter();
    values
        .map(|(key, _, _, value)| {
            let mut labels: Vec<String> =
                key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            labels.sort();
            let value = match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(value) => value.into_inner(),
                DebugValue::Histogram(values) => values.len() as f64,
            };
            (format!("{}{{{}}}", key.key().name(), labels.join(",")), value)
        })
        .collect()
}

/// The series of one metric, without its name. Of a counter only those above zero, because all begin with zero.
fn series_of(told: &BTreeMap<String, f64>, metric: &str) -> Vec<(String, f64)> {
    let series = told.iter().filter_map(|(name, value)| {
        let labels = name.strip_prefix(metric)?.strip_prefix('{')?.strip_suffix('}')?;
        (!metric.ends_with("_total") || *value > 0.0).then(|| (labels.to_owned(), *value))
    });
    series.collect()
}

#[track_caller]
fn check(told: &BTreeMap<String, f64>, metric: &str, expected: &[(&str, f64)]) {
    let expected: Vec<(String, f64)> = expected.iter().map(|(labels, value)| ((*labels).to_owned(), *value)).collect();
    assert_eq!(series_of(told, metric), expected, "{metric}");
}

#[tokio::test(start_paused = true)]
async fn numbers_are_what_happened() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let client = builder(|call| match (call.path(), call.number) {
        (_, 0) => FakeAnswer::status(429).header("retry-after", "7"),
        ("/base/reset", _) => FakeAnswer::reset(),
        ("/base/kept", _) => FakeAnswer::status(200).body("kept").body_delay(Duration::from_secs(10)),
        _ => FakeAnswer::status(200).delay(Duration::from_millis(100)),
    })
    .build()
    .await
    .unwrap();
    client.send("a", Priority::High, get()).await.unwrap();
    client.send("a", Priority::Low, Request::post("v", "/reset")).await.unwrap_err();
    client.send("nobody", Priority::Low, get()).await.unwrap_err();
    client.send("a", Priority::Low, Request::get("v", "no slash")).await.unwrap_err();
    let send = client.send("b", Priority::Normal, get());
    tokio::time::timeout(Duration::from_millis(50), send).await.unwrap_err();
    let permit = client.lane("c", "v").unwrap().acquire(Priority::Normal, 1).await.unwrap();
    permit.not_sent();
    let kept = client.send("b", Priority::Normal, Request::get("v", "/kept")).await.unwrap();
    sleep_a_second().await;
    let told = recorded_series(&recorder);
    check(
        &told,
        "integration_client_requests_total",
        &[
            ("outcome=cancelled,priority=normal,vendor=v", 1.0),
            ("outcome=completed,priority=high,vendor=v", 1.0),
            ("outcome=completed,priority=normal,vendor=v", 1.0),
            ("outcome=invalid_request,priority=low,vendor=v", 1.0),
            ("outcome=protocol,priority=low,vendor=v", 1.0),
            ("outcome=unknown_tenant,priority=low,vendor=unknown", 1.0),
        ],
    );
    check(
        &told,
        "integration_client_attempts_total",
        &[("outcome=2xx,vendor=v", 2.0), ("outcome=4xx,vendor=v", 1.0), ("outcome=protocol,vendor=v", 1.0)],
    );
    check(
        &told,
        "http_client_request_duration_seconds",
        &[
            ("error_type=429,http_request_method=GET,http_response_status_code=429,vendor=v", 1.0),
            ("error_type=protocol,http_request_method=POST,vendor=v", 1.0),
            ("http_request_method=GET,http_response_status_code=200,vendor=v", 2.0),
        ],
    );
    check(
        &told,
        "integration_client_wait_seconds",
        &[("priority=high,vendor=v", 2.0), ("priority=low,vendor=v", 1.0), ("priority=normal,vendor=v", 3.0)],
    );
    check(
        &told,
        "integration_client_permits_total",
        &[
            ("outcome=abandoned,vendor=v", 1.0),
            ("outcome=finished,vendor=v", 3.0),
            ("outcome=not_sent,vendor=v", 1.0),
            ("outcome=started,vendor=v", 6.0),
        ],
    );
    check(&told, "integration_client_refusals_total", &[("vendor=v", 1.0)]);
    check(&told, "integration_client_pauses_total", &[("vendor=v", 1.0)]);
    check(&told, "integration_client_paused_lanes", &[("vendor=unknown", 0.0), ("vendor=v", 0.0)]);
    check(&told, "integration_client_in_flight", &[("vendor=unknown", 0.0), ("vendor=v", 1.0)]);
    check(&told, "integration_client_config_version", &[("", 1.0)]);
    drop(kept);
}

#[tokio::test(start_paused = true)]
async fn metrics_count_waiting_and_paused() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let client = builder(|_| FakeAnswer::status(200)).build().await.unwrap();
    client.tenants().pause("a", "v").unwrap();
    client.tenants().pause("b", "v").unwrap();
    client.tenants().pause("c", "v").unwrap();
    client.tenants().resume("c", "v").unwrap();
    let wait = async |priority| client.send("a", priority, get()).await.unwrap();
    let looks = async {
        sleep_a_second().await;
        sleep_a_second().await;
        let told = recorded_series(&recorder);
        let depth =
            [("priority=high,vendor=v", 2.0), ("priority=low,vendor=v", 1.0), ("priority=normal,vendor=v", 0.0)];
        check(&told, "integration_client_queue_depth", &depth);
        check(&told, "integration_client_paused_lanes", &[("vendor=v", 2.0)]);
        client.tenants().resume("a", "v").unwrap();
    };
    tokio::join!(wait(Priority::High), wait(Priority::High), wait(Priority::Low), looks);
    sleep_a_second().await;
    sleep_a_second().await;
    // Reading has set the debugging recorder's gauges to zero, so these values are differences.
    let depth = [("priority=high,vendor=v", -2.0), ("priority=low,vendor=v", -1.0), ("priority=normal,vendor=v", 0.0)];
    check(&recorded_series(&recorder), "integration_client_queue_depth", &depth);
}

#[tokio::test(start_paused = true)]
async fn metrics_rate_is_over_busy_time() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let client = builder(|_| FakeAnswer::status(200).delay(Duration::from_millis(100))).build().await.unwrap();
    for _ in 0..5 {
        client.send("a", Priority::High, get()).await.unwrap().bytes().await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    let told = recorded_series(&recorder);
    check(&told, "integration_client_requests_per_second", &[("vendor=v", 10.0)]);
    check(&told, "integration_client_response_mean_seconds", &[("vendor=v", 0.1)]);
    check(&told, "integration_client_headroom_ratio", &[("vendor=v", 0.95)]);
    check(&told, "integration_client_headroom_average_ratio", &[("vendor=v", 0.95)]);
    check(&told, "integration_client_throttle_ratio", &[("vendor=v", 1.0)]);
}

/// An average of long ago would keep the alert for low headroom on.
#[tokio::test(start_paused = true)]
async fn vendor_without_requests_has_its_limit_left() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let client = builder(|_| FakeAnswer::status(200).delay(Duration::from_millis(100))).build().await.unwrap();
    for _ in 0..5 {
        client.send("a", Priority::High, get()).await.unwrap().bytes().await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(290)).await;
    check(&recorded_series(&recorder), "integration_client_headroom_average_ratio", &[("vendor=v", 0.95)]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    check(&recorded_series(&recorder), "integration_client_headroom_average_ratio", &[("vendor=v", 1.0)]);
}

#[tokio::test(start_paused = true)]
async fn metrics_label_tenants_up_to_a_bound() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let client = builder(|_| FakeAnswer::status(200)).tenant_labels(1).build().await.unwrap();
    for tenant in ["b", "a", "c", "b"] {
        client.send(tenant, Priority::High, get()).await.unwrap();
    }
    client.send("nobody", Priority::High, get()).await.unwrap_err();
    client.send("a", Priority::High, Request::get("nowhere", "/x")).await.unwrap_err();
    client.try_acquire("nobody", "nowhere", Priority::High, 1).unwrap_err();
    sleep_a_second().await;
    let told = recorded_series(&recorder);
    assert!(!told.keys().any(|series| series.contains("nobody") || series.contains("nowhere")), "{told:?}");
    check(
        &told,
        "integration_client_requests_total",
        &[
            ("outcome=completed,priority=high,tenant=b,vendor=v", 2.0),
            ("outcome=completed,priority=high,tenant=other,vendor=v", 2.0),
            ("outcome=unknown_tenant,priority=high,vendor=unknown", 1.0),
            ("outcome=unknown_vendor,priority=high,vendor=unknown", 1.0),
        ],
    );
}

/// A source whose first load returns a valid configuration, and all later ones a broken one.
#[derive(Debug)]
struct BreakingSource(std::sync::atomic::AtomicBool);

impl ConfigSource for BreakingSource {
    fn load(&self) -> LoadFuture<'_> {
        let text = match self.0.swap(true, std::sync::atomic::Ordering::Relaxed) {
            false => "# nothing yet",
            true => "[vendors.v]\nnonsense = 1\n",
        };
        Box::pin(async move { Ok(Sources::new().without_catalogue().file("vendors.toml", text)) })
    }
}

struct FullDisk(std::sync::atomic::AtomicBool);

impl Watch for FullDisk {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        let fails = what == "accept" && moment == Moment::Before && self.0.load(std::sync::atomic::Ordering::Relaxed);
        if fails { Fault::Full } else { Fault::None }
    }
}

async fn retire_two_tenants() {
    let active = || async { Ok(["a".to_owned()].into()) };
    let client = builder(|_| FakeAnswer::status(200)).cleanup_every(Duration::from_secs(1), active);
    let client = client.build().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(client.overview().tenants, 1);
}

/// A store on a full disk. In real time, because a thread of its own reads and writes the file.
async fn fail_a_store_write() {
    tokio::time::resume();
    let path = std::env::temp_dir().join(format!("ic-metrics-{}.db", std::process::id()));
    let store = Store::sqlite(&path).watched_by(Arc::new(FullDisk(true.into())));
    let client = builder(|_| FakeAnswer::status(200)).store(store).build().await.unwrap();
    client.outbox().enqueue("a", Priority::High, Request::post("v", "/x").json(&[1])).await.unwrap_err();
    drop(client);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _ = std::fs::remove_file(&path);
}

/// A client that shares its limits through a file. In real time, for the same reason.
async fn share_limits_through_a_file() {
    let path = std::env::temp_dir().join(format!("ic-metrics-shared-{}.db", std::process::id()));
    let builder = builder(|_| FakeAnswer::status(200)).share_through(format!("sqlite:{}", path.display()));
    let client = builder.build().await.unwrap();
    client.send("a", Priority::High, get()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    client.shutdown(Duration::from_secs(1)).await;
    drop(client);
    let _ = std::fs::remove_file(&path);
}

/// A rate is a difference between values, so a counter that appeared only with its first refusal would not show it.
#[tokio::test(start_paused = true)]
async fn counters_begin_with_zero() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let client = builder(|_| FakeAnswer::status(200)).build().await.unwrap();
    client.send("a", Priority::High, get()).await.unwrap();
    sleep_a_second().await;
    let told = recorded_series(&recorder);
    for series in [
        "integration_client_refusals_total{vendor=v}",
        "integration_client_pauses_total{vendor=v}",
        "integration_client_dead_letters_total{reason=ambiguous,vendor=v}",
        "integration_client_attempts_total{outcome=4xx,vendor=v}",
        "integration_client_requests_total{outcome=exhausted,priority=low,vendor=v}",
        "integration_client_events_missed_total{}",
        "integration_client_config_rejected_total{}",
    ] {
        assert_eq!(told.get(series), Some(&0.0), "{series}");
    }
}

/// A client goes through everything that can happen to it. The metrics that it then exports are those of the table, the
/// page and the dashboard, with the same names, kinds and labels.
#[tokio::test(start_paused = true)]
async fn metrics_page_and_dashboard_match_the_client() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let client = builder(|call| match call.path() {
        "/base/refused" => FakeAnswer::status(429).header("retry-after", "1"),
        "/base/unreachable" if call.number < 13 => FakeAnswer::not_connected(),
        _ => FakeAnswer::status(200).header("x-ratelimit-limit", "100").header("x-ratelimit-remaining", "15"),
    });
    let client = client.config_source(BreakingSource(false.into())).watch_config(Duration::from_secs(36_000));
    let client = client.event_capacity(1).build().await.unwrap();
    let _serving = Gateway::builder(client.clone()).build().serve(Listen::loopback()).await.unwrap();
    let mut events = client.events();
    let get = |path: &str| Request::get("v", path).deadline(Duration::from_secs(3_600));
    client.send("a", Priority::High, get("/x")).await.unwrap();
    client.send("b", Priority::Normal, get("/refused")).await.unwrap_err();
    client.send("c", Priority::Low, get("/unreachable")).await.unwrap();
    client.config().reload().await.unwrap_err();
    events.next().await.unwrap();
    sleep_a_second().await;
    drop(client);
    retire_two_tenants().await;
    fail_a_store_write().await;
    share_limits_through_a_file().await;

    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut kinds = BTreeMap::new();
    for (key, _, description, _) in recorder.snapshotter().snapshot().into_vec() {
        let name = key.key().name().to_owned();
        assert!(description.is_some(), "{name}");
        labels.entry(name.clone()).or_default().extend(key.key().labels().map(|label| label.key().to_owned()));
        kinds.insert(name, key.kind());
    }
    let exported: Vec<&String> = labels.keys().collect();
    let mut table: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
    table.sort_unstable();
    assert_eq!(exported, table);
    for metric in METRICS {
        let kind = match metric.kind {
            Kind::Counter => MetricKind::Counter,
            Kind::Gauge => MetricKind::Gauge,
            _ => MetricKind::Histogram,
        };
        assert_eq!(kinds[metric.name], kind, "{}", metric.name);
        let stated: BTreeSet<String> = metric.labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(labels[metric.name], stated, "{}", metric.name);
        for page in [include_str!("../../docs/METRICS.md"), include_str!("../../docs/grafana-dashboard.json")] {
            assert!(page.contains(metric.name), "{}", metric.name);
        }
    }
}
