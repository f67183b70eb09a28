//! The client against a vendor with a socket that refuses requests, in real time: penalties, other users of the key, an
//! endpoint that refuses everything.
//!
//! The tests assert bounds, not exact timings.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too, and figures are printed"
)]

use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::dead_letter::MemorySink;
use integration_client::testing::{Arrival, FakeVendor, FakeVendorBuilder, HeaderStyle, VendorLimit, literal};
use integration_client::{IntegrationClient, Priority, Request};

const WINDOW: Duration = Duration::from_secs(1);
const BLOCK: Duration = Duration::from_secs(2);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A vendor with a latency of 2 to 6 ms in each direction.
fn vendor() -> FakeVendorBuilder {
    FakeVendor::builder().latency(ms(2)).jitter(ms(4)).seed(7)
}

/// A client with this entry of the vendor.
async fn client(toml: String) -> IntegrationClient {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(toml)
        .tenant(TenantEntry::new("a", "v").account("a").credential("keys:a"))
        .credential_resolver("keys", literal)
        .dead_letter_sink(MemorySink::new(1))
        .build()
        .await
        .unwrap()
}

/// Runs a number of callers for each path, who send again as soon as they have got a response, for the time `run`. Then
/// drops the requests under way and returns the log of arrivals. `edit_entry` changes the vendor's entry that the client
/// gets.
async fn saturate(
    vendor: FakeVendorBuilder,
    edit_entry: impl Fn(String) -> String,
    load: &[(&str, usize)],
    run: Duration,
) -> Vec<Arrival> {
    let vendor = vendor.start().await.unwrap();
    let client = client(edit_entry(vendor.vendors_toml("v"))).await;
    let mut tasks = tokio::task::JoinSet::new();
    for (path, callers) in load {
        for n in 0..*callers {
            let (client, path) = (client.clone(), (*path).to_owned());
            tasks.spawn(async move {
                let priority = [Priority::High, Priority::Normal, Priority::Low][n % 3];
                loop {
                    let request = Request::get("v", &*path).deadline(secs(120));
                    match client.send("a", priority, request).await {
                        Ok(response) => drop(response.bytes().await.unwrap()),
                        // A caller that gets an error waits, so that it does not spin.
                        Err(_) => tokio::time::sleep(ms(1)).await,
                    }
                }
            });
        }
    }
    tokio::time::sleep(run).await;
    tasks.shutdown().await;
    vendor.arrivals()
}

fn own_arrivals(log: &[Arrival]) -> impl Iterator<Item = &Arrival> {
    log.iter().filter(|arrival| !arrival.foreign)
}

fn count_refused(log: &[Arrival]) -> usize {
    own_arrivals(log).filter(|arrival| arrival.judged && !arrival.admitted).count()
}

fn is_in(arrival: &Arrival, from: Duration, until: Duration) -> bool {
    (from..until).contains(&arrival_time(arrival))
}

fn arrival_time(arrival: &Arrival) -> Duration {
    Duration::from_nanos(arrival.at.as_nanos())
}

fn limits() -> [(&'static str, VendorLimit); 2] {
    [("fixed window", VendorLimit::fixed_window(50, WINDOW)), ("sliding log", VendorLimit::sliding_window(50, WINDOW))]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exact_limit_meets_no_penalty() {
    for_each(limits().map(|(what, limit)| async move {
        let vendor = vendor().headers(HeaderStyle::Silent).limit(limit).penalty(BLOCK);
        let log = saturate(vendor, |toml| toml, &[("/", 60)], secs(5)).await;
        println!("{what}, told the truth: {} sent, {} refused", log.len(), count_refused(&log));
        assert_eq!(count_refused(&log), 0, "{what}");
        assert!(log.len() >= 170, "{what}: {} of 200", log.len());
    }))
    .await;
}

/// Runs all futures concurrently.
async fn for_each<F: Future<Output = ()> + Send + 'static>(futures: impl IntoIterator<Item = F>) {
    let mut tasks: tokio::task::JoinSet<()> = futures.into_iter().collect();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// Runs a measurement with five vendors whose windows begin at different times, and returns the figures in ascending
/// order.
async fn measure_five_phases<T: PartialOrd + Send + 'static, F: Future<Output = T> + Send + 'static>(
    run: impl Fn(u64) -> F,
) -> Vec<T> {
    let tasks: tokio::task::JoinSet<T> = (0..5).map(|phase| run(phase * 200)).collect();
    let mut figures = tasks.join_all().await;
    figures.sort_by(|a, b| a.partial_cmp(b).unwrap());
    figures
}

fn fixed(limit: u32, phase: u64) -> VendorLimit {
    VendorLimit::fixed_window(limit, WINDOW).phase(ms(phase))
}

fn sliding(limit: u32, _: u64) -> VendorLimit {
    VendorLimit::sliding_window(limit, WINDOW)
}

type LimitOfPhase = fn(u32, u64) -> VendorLimit;

/// The client believes twice the real limit. It sends two requests at a time, because each request under way at the
/// first refusal makes the block longer. Returns the used percentage of the real limit in the second ten windows after
/// the first refusal, the most refusals in one of these windows, and the number of all refusals.
async fn use_with_doubled_limit(limit: LimitOfPhase, style: HeaderStyle) -> Vec<(f64, usize, usize)> {
    measure_five_phases(move |phase| async move {
        let vendor = FakeVendor::builder().limit(limit(50, phase)).limit(VendorLimit::concurrency(2));
        let vendor = vendor.headers(style).penalty(BLOCK);
        let twice = |toml: String| toml.replace("limit = 50", "limit = 100");
        let log = saturate(vendor, twice, &[("/", 60)], secs(24)).await;
        let first = own_arrivals(&log).find(|arrival| !arrival.admitted).map(arrival_time).unwrap();
        let since = |second| first + secs(second);
        let used = log.iter().filter(|arrival| arrival.admitted && is_in(arrival, since(10), since(20))).count();
        let refusals = |second| {
            own_arrivals(&log)
                .filter(|arrival| !arrival.admitted && is_in(arrival, since(second), since(second + 1)))
                .count()
        };
        (used as f64 / 5.0, (10..20).map(refusals).max().unwrap(), count_refused(&log))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doubled_limit_is_learned_from_refusals() {
    let trials: [(&str, LimitOfPhase); 2] = [("fixed window", fixed), ("sliding log", sliding)];
    for_each(trials.map(|(what, limit)| async move {
        let learnt = use_with_doubled_limit(limit, HeaderStyle::RetryAfter).await;
        println!("{what}, told twice the limit: (% used, most refused in a window, refused in all) {learnt:.0?}");
        assert!(learnt.iter().all(|(_, most, all)| *most <= 1 && *all <= 8), "{what}: {learnt:?}");
        assert!(learnt[2].0 >= 90.0, "{what}: {learnt:?}");
    }))
    .await;
}

/// Another user of the key takes 50 of 100 requests a second, from second 5 to 15. Returns the used percentage of the
/// other half, and the number of refusals.
async fn use_beside_other_traffic(limit: LimitOfPhase, style: HeaderStyle) -> Vec<(f64, usize)> {
    measure_five_phases(move |phase| async move {
        let vendor = vendor().headers(style).limit(limit(100, phase)).other_traffic("a", 50, secs(5), secs(15));
        let log = saturate(vendor, |toml| toml, &[("/", 60)], secs(16)).await;
        let used = own_arrivals(&log).filter(|arrival| arrival.admitted && is_in(arrival, secs(5), secs(15))).count();
        (used as f64 / 5.0, count_refused(&log))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_user_takes_half() {
    let trials = [("x-ratelimit", HeaderStyle::XRateLimit, 5), ("silent", HeaderStyle::Silent, 30)];
    for_each(trials.map(|(said, style, most)| async move {
        // A machine that stalls leaves units unused, and never uses more: the better of two measurements counts.
        let mut best = 0.0_f64;
        for _ in 0..2 {
            let used = use_beside_other_traffic(fixed, style).await;
            println!("{said}, half taken: (% of what was left used, refused) {used:.0?}");
            assert!(used.iter().all(|(_, refused)| *refused <= most), "{said}: {used:?}");
            best = best.max(used[2].0);
            if best >= 95.0 {
                break;
            }
        }
        assert!(best >= 95.0, "{said}: {best}");
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poisoned_endpoint_leaves_the_others_alone() {
    const RUN: Duration = Duration::from_secs(8);
    // The first refusal may concern all endpoints, so all requests wait until another endpoint has accepted one.
    const KNOWN: Duration = Duration::from_secs(3);
    for_each([("silent", HeaderStyle::Silent), ("x-ratelimit", HeaderStyle::XRateLimit)].map(
        |(said, style)| async move {
            let limit = VendorLimit::sliding_window(100, WINDOW);
            let vendor = vendor().headers(style).limit(limit).endpoint("bad", "/bad").endpoint("good", "/good");
            let good = |log: &[Arrival], from| {
                log.iter().filter(|arrival| &*arrival.endpoint == "good" && is_in(arrival, from, RUN)).count()
            };
            let load = [("/good", 40), ("/bad", 10)];
            let schedule = |toml| toml + "\n[vendors.v.retry]\nfirst_wait = \"500ms\"\n";
            let (alone, log) = tokio::join!(
                saturate(vendor.clone(), schedule, &load[..1], RUN),
                saturate(vendor.poisoned("/bad", 429), schedule, &load, RUN),
            );
            let bad = own_arrivals(&log).filter(|arrival| &*arrival.endpoint == "bad").count();
            let share = |from| good(&log, from) as f64 / good(&alone, from) as f64;
            println!(
                "{said}, poisoned endpoint: the good one sent {} beside {bad} to the poisoned one, {:.0} % of what it sends \
                 alone, and from second 3 on {:.0} %",
                good(&log, Duration::ZERO),
                100.0 * share(Duration::ZERO),
                100.0 * share(KNOWN),
            );
            assert!(share(KNOWN) >= 0.95, "{said}: {:.3}", share(KNOWN));
            assert!(bad <= 30, "{said}: {bad}");
        },
    ))
    .await;
}
