//! The client against a vendor with a socket that pushes back, in real time: penalties, somebody else's calls, an
//! endpoint that refuses everything.
//!
//! Bounds, not exact timings.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too, and figures are printed"
)]

use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::dead_letter::MemorySink;
use integration_client::testing::{Arrival, FakeVendor, FakeVendorBuilder, HeaderStyle, VendorLimit};
use integration_client::transport::{BoxFuture, CredentialResolver, SecretString};
use integration_client::{IntegrationClient, Priority, Request};

const WINDOW: Duration = Duration::from_secs(1);
const BLOCK: Duration = Duration::from_secs(2);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Every tenant's key is its name.
struct Keys;

impl CredentialResolver for Keys {
    fn resolve<'a>(
        &'a self,
        key: &'a str,
    ) -> BoxFuture<'a, Result<SecretString, Box<dyn std::error::Error + Send + Sync>>> {
        Box::pin(async move { Ok(key.into()) })
    }
}

/// 2 to 6 ms each way.
fn vendor() -> FakeVendorBuilder {
    FakeVendor::builder().latency(ms(2)).jitter(ms(4)).seed(7)
}

/// A client that is told this about the vendor.
async fn client(toml: String) -> IntegrationClient {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(toml)
        .tenant(TenantEntry::new("a", "v").account("a").credential("keys:a"))
        .credential_resolver("keys", Keys)
        .dead_letter_sink(MemorySink::new(1))
        .build()
        .await
        .unwrap()
}

/// For each path so many callers, who send as soon as they have their last answer, for so long. What they wait for then
/// is given up. The log of what the client sent.
async fn saturate(
    vendor: FakeVendorBuilder,
    told: impl Fn(String) -> String,
    load: &[(&str, usize)],
    run: Duration,
) -> Vec<Arrival> {
    let vendor = vendor.start().await.unwrap();
    let client = client(told(vendor.vendors_toml("v"))).await;
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
                        // Whoever is sent away does not spin.
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

fn own(log: &[Arrival]) -> impl Iterator<Item = &Arrival> {
    log.iter().filter(|arrival| !arrival.foreign)
}

fn refused(log: &[Arrival]) -> usize {
    own(log).filter(|arrival| arrival.judged && !arrival.admitted).count()
}

fn is_in(arrival: &Arrival, from: Duration, until: Duration) -> bool {
    (from..until).contains(&at(arrival))
}

fn at(arrival: &Arrival) -> Duration {
    Duration::from_nanos(arrival.at.as_nanos())
}

/// The vendor's blocks, from and until.
fn blocks(log: &[Arrival]) -> Vec<(Duration, Duration)> {
    let mut blocks: Vec<(Duration, Duration)> = Vec::new();
    for arrival in own(log).filter(|arrival| !arrival.admitted) {
        match blocks.last_mut() {
            Some((_, until)) if *until > at(arrival) => *until += BLOCK,
            _ => blocks.push((at(arrival), at(arrival) + BLOCK)),
        }
    }
    blocks
}

fn limits() -> [(&'static str, VendorLimit); 2] {
    [("fixed window", VendorLimit::fixed_window(50, WINDOW)), ("sliding log", VendorLimit::sliding_log(50, WINDOW))]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_knows_the_limit_meets_no_penalty() {
    for_each(limits().map(|(what, limit)| async move {
        let vendor = vendor().headers(HeaderStyle::Silent).limit(limit).penalty(BLOCK);
        let log = saturate(vendor, |toml| toml, &[("/", 60)], secs(5)).await;
        println!("{what}, told the truth: {} sent, {} refused", log.len(), refused(&log));
        assert_eq!(refused(&log), 0, "{what}");
        assert!(log.len() >= 170, "{what}: {} of 200", log.len());
    }))
    .await;
}

/// All of them at once.
async fn for_each<F: Future<Output = ()> + Send + 'static>(futures: impl IntoIterator<Item = F>) {
    let mut tasks: tokio::task::JoinSet<()> = futures.into_iter().collect();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// Two at a time, as each that is under way when the first is refused makes the block longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_told_twice_the_limit_learns_it() {
    const LEARNT: Duration = Duration::from_secs(10);
    const RUN: Duration = Duration::from_secs(20);
    let styles = [("silent", HeaderStyle::Silent), ("retry-after", HeaderStyle::RetryAfter)];
    for_each(styles.into_iter().flat_map(|style| limits().map(|limit| (style, limit))).map(
        |((said, style), (what, limit))| async move {
            let vendor = FakeVendor::builder().limit(limit).limit(VendorLimit::concurrency(2));
            let vendor = vendor.headers(style).penalty(BLOCK);
            let twice = |toml: String| toml.replace("limit = 50", "limit = 100");
            let log = saturate(vendor, twice, &[("/", 60)], RUN).await;
            let blocks = blocks(&log);
            let blocked: Duration = blocks
                .iter()
                .map(|(from, until)| (*until).clamp(LEARNT, RUN) - (*from).clamp(LEARNT, RUN))
                .sum();
            let free = (RUN - LEARNT - blocked).as_secs_f64();
            let admitted = log.iter().filter(|arrival| arrival.admitted && is_in(arrival, LEARNT, RUN)).count();
            let share = admitted as f64 / (free * 50.0);
            let seconds = |second: u64, admitted: bool| {
                log.iter().filter(|a| a.admitted == admitted && is_in(a, secs(second), secs(second + 1))).count()
            };
            let passed: Vec<_> = (0..RUN.as_secs()).map(|second| seconds(second, true)).collect();
            let failed: Vec<_> = (0..RUN.as_secs()).map(|second| seconds(second, false)).collect();
            let most = *failed[LEARNT.as_secs() as usize..].iter().max().unwrap();
            println!(
                "{what}, {said}, told twice the limit: {:.1} % of what was free, {most} refused in a window at most, \
                 {} in all, blocked for {:.1} s\n  admitted a second {passed:?}\n  refused a second {failed:?}\n  {blocks:.2?}",
                100.0 * share,
                refused(&log),
                blocked.as_secs_f64(),
            );
            // Two are under way, so that two may meet the same refusal. Who is not told how long the block is finds it
            // out by hitting it, which makes it three times as long: most of the time is lost to learning that.
            let least = if style == HeaderStyle::Silent { 0.35 } else { 0.75 };
            assert!(share >= least && most <= 2, "{what}, {said}: {share:.3}, {most}");
            assert!(refused(&log) <= 12, "{what}, {said}: {} refused", refused(&log));
        },
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_else_takes_half() {
    let styles = [("silent", HeaderStyle::Silent, 30), ("x-ratelimit", HeaderStyle::XRateLimit, 10)];
    let limits = [VendorLimit::fixed_window(100, WINDOW), VendorLimit::sliding_log(100, WINDOW)];
    let limits = move || ["fixed window", "sliding log"].into_iter().zip(limits.clone());
    for_each(styles.into_iter().flat_map(|style| limits().map(move |limit| (style, limit))).map(
        |((said, style, most), (what, limit))| async move {
            let vendor = vendor().headers(style).limit(limit).other_traffic("a", 50, secs(3), secs(8));
            let log = saturate(vendor, |toml| toml, &[("/", 60)], secs(12)).await;
            let admitted = |from, until| {
                own(&log).filter(|arrival| arrival.admitted && is_in(arrival, secs(from), secs(until))).count()
            };
            let others = log.iter().filter(|arrival| arrival.foreign);
            let others_refused = others.filter(|arrival| !arrival.admitted).count();
            let (before, during, after) = (admitted(1, 3), admitted(3, 8), admitted(8, 12));
            let passed: Vec<_> = (0..12).map(|second| admitted(second, second + 1)).collect();
            println!(
                "{what}, {said}, half taken: {} refused, {others_refused} of the others'; used {:.0} % before, {:.0} % of \
                 what was left, {:.0} % afterwards\n  {passed:?}",
                refused(&log),
                before as f64 / 2.0,
                during as f64 / 2.5,
                after as f64 / 4.0,
            );
            assert!(refused(&log) <= most, "{what}, {said}: {} refused", refused(&log));
            assert!(during as f64 >= 0.3 * 250.0, "{what}, {said}: {during} of 250");
        },
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisoned_endpoint_leaves_the_others_alone() {
    const RUN: Duration = Duration::from_secs(8);
    // The first refusal may be about everything: all wait, until one of the others has shown that it is not.
    const KNOWN: Duration = Duration::from_secs(3);
    for_each([("silent", HeaderStyle::Silent), ("x-ratelimit", HeaderStyle::XRateLimit)].map(
        |(said, style)| async move {
            let limit = VendorLimit::sliding_log(100, WINDOW);
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
            let bad = own(&log).filter(|arrival| &*arrival.endpoint == "bad").count();
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
