//! Reads the tables of `docs/RATE_LIMITS.md`, and compares them with what a client does in virtual time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::support::tables;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use integration_client::config::{Config, LimitKind, Rate, RetryPolicy, Sources, TenantEntry, Vendor};
use integration_client::signals::{self, Dialect, Signals};
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::transport::SecretString;
use integration_client::{Delivery, Error, ErrorKind, IntegrationClient, Method, Priority, Request, Response};
use tables::{quoted, rows};
use tokio::task::JoinSet;

const PAGE: &str = include_str!("../../docs/RATE_LIMITS.md");
const TIERS: [(&str, Priority); 3] = [("high", Priority::High), ("normal", Priority::Normal), ("low", Priority::Low)];

fn load(vendor: &str) -> Result<Arc<Vendor>, Error> {
    let text = format!("[vendors.v]\nbase_url = \"https://v.example/base\"\n{vendor}");
    Config::load(&Sources::new().without_catalogue().file("vendors.toml", text), 1)?.vendor("v", "live")
}

/// A client with tenant `a` at a vendor with these settings.
async fn client(vendor: &str, transport: &FakeTransport) -> IntegrationClient {
    let text = format!(
        "[vendors.v]\nbase_url = \"https://v.example/base\"\nauth = {{ scheme = \"bearer\" }}\n{vendor}\n\
         [vendors.v.endpoints.poisoned]\npaths = [\"/poisoned/**\"]\n"
    );
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    let builder = builder
        .credential_resolver("keys", |_: String| async { Ok(SecretString::from("key")) })
        .tenant(TenantEntry::new("a", "v").credential("keys:a"));
    builder.build().await.unwrap()
}

fn limit(algorithm: &str, window: &str) -> String {
    format!("limits = [{{ name = \"l\", limit = 100, window = \"{window}\", algorithm = \"{algorithm}\" }}]\n")
}

/// A request whose deadline is longer than any wait that is measured here.
fn request_with_long_deadline(method: Method, path: &str) -> Request {
    Request::new(method, "v", path).deadline(Duration::from_secs(36_000))
}

async fn send(client: &IntegrationClient, tier: Priority, path: &str) -> Result<Response, Error> {
    client.send("a", tier, request_with_long_deadline(Method::GET, path)).await
}

/// Starts `count` sends at once.
fn spawn_sends(tasks: &mut JoinSet<()>, client: &IntegrationClient, tier: Priority, path: &'static str, count: usize) {
    for _ in 0..count {
        let client = client.clone();
        tasks.spawn(async move { drop(send(&client, tier, path).await) });
    }
}

fn call_times_ns(transport: &FakeTransport) -> Vec<u128> {
    let calls = transport.calls();
    calls.iter().map(|call| call.at.since(calls[0].at).as_nanos()).collect()
}

/// The gaps between successive calls, in milliseconds.
fn gaps(transport: &FakeTransport) -> Vec<u128> {
    call_times_ns(transport).windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect()
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("no number: {text:?}"))
}

fn duration(text: &str) -> Duration {
    for (unit, millis) in [("ms", 1), ("s", 1_000), ("m", 60_000)] {
        if let Some(count) = text.strip_suffix(unit) {
            return Duration::from_millis(number::<u64>(count) * millis);
        }
    }
    panic!("no duration: {text:?}")
}

/// The value of the one figure whose name begins with `name`.
#[track_caller]
fn figure_of_page(name: &str) -> String {
    let found: Vec<_> = rows(PAGE, "figure").into_iter().filter(|row| row[0].starts_with(name)).collect();
    let [row] = &found[..] else { panic!("{name:?}: {found:?}") };
    row[1].clone()
}

fn answer_with_left(left: &str, reset: &str) -> FakeAnswer {
    FakeAnswer::status(200)
        .header("x-ratelimit-limit", "100")
        .header("x-ratelimit-remaining", left)
        .header("x-ratelimit-reset", reset)
}

/// The time between two requests, in milliseconds, at a vendor with a limit of 100 in 12 s that reports how much is
/// left. At full rate it is 150 ms.
async fn spacing(throttle: &str, tier: Priority, left: &'static str, reset: &'static str) -> u128 {
    let transport = FakeTransport::new(move |_| answer_with_left(left, reset));
    let vendor = format!("throttle = \"{throttle}\"\n{}", limit("fixed_window", "12s"));
    let client = client(&vendor, &transport).await;
    for _ in 0..5 {
        send(&client, tier, "/x").await.unwrap();
    }
    // The second request follows the first response at once. Only the later ones are spaced out.
    gaps(&transport)[2]
}

fn leak_text(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

#[tokio::test(start_paused = true)]
async fn bands_are_those_of_the_page() {
    let bands = rows(PAGE, "left of the limit");
    let (nothing, bands) = bands.split_last().unwrap();
    assert_eq!(nothing[..2], ["nothing", "0"]);
    let threshold = |row: &[String]| number::<u64>(row[0].split(' ').find(|word| word.parse::<u64>().is_ok()).unwrap());
    assert_eq!(threshold(&bands[0]), threshold(&bands[1]));
    // Tests the largest and the smallest remaining share of each band.
    for (number_of, row) in bands.iter().enumerate() {
        let most = if number_of == 0 { 99 } else { threshold(row) - 1 };
        let least = bands.get(number_of + 1).map_or(1, |next| threshold(next));
        let share: f64 = number(&row[1]);
        let apart = if share == 1.0 { 0 } else { (150.0 / share) as u128 };
        let (goes, waits) = row[2].split_once(';').unwrap_or((&row[2], ""));
        for (left, (name, tier)) in [least, most].into_iter().flat_map(|left| TIERS.map(|tier| (left, tier))) {
            let expected = match (goes.contains(name), waits.contains(name)) {
                (true, false) => apart,
                (false, true) => 12_000,
                _ => panic!("{name} in {row:?}"),
            };
            let seen = spacing("bands", tier, leak_text(left.to_string()), "600").await;
            assert_eq!(seen, expected, "{name}, {left} left: {row:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn exhaustion_and_recovery_match_the_page() {
    let added = duration(&figure_of_page("added to the vendor's reset")).as_millis();
    let least = duration(&figure_of_page("least pause")).as_millis();
    assert_eq!(spacing("bands", Priority::High, "0", "7").await, 7_000 + added);
    assert_eq!(spacing("bands", Priority::High, "0", "0.1").await, least);

    // The share is first just below a threshold, then above it by not quite enough, and then by enough.
    let above: u64 = number(&figure_of_page("percent above its threshold"));
    let transport = FakeTransport::new(move |call| {
        let left = match call.number {
            0..5 => 29,
            5..10 => 30 + above - 1,
            _ => 30 + above,
        };
        answer_with_left(&left.to_string(), "600")
    });
    let vendor = format!("throttle = \"bands\"\n{}", limit("fixed_window", "12s"));
    let client = client(&vendor, &transport).await;
    for _ in 0..15 {
        send(&client, Priority::High, "/x").await.unwrap();
    }
    let gaps = gaps(&transport);
    assert_eq!((gaps[3], gaps[8], gaps[13]), (200, 200, 0), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn refusal_pauses_as_the_page_says() {
    // The refusals state no wait, so a pause is no longer than the wait that is drawn for the request.
    let share: f64 = number(&figure_of_page("windows that a lane waits after a refusal"));
    let transport = FakeTransport::new(|_| FakeAnswer::status(429));
    let vendor = limit("fixed_window", "12s") + "retry = { first_wait = \"60s\" }\n";
    let refused = client(&vendor, &transport).await;
    for expected in [12.0 * share, 24.0 * share] {
        refused.try_send("a", Priority::High, request_with_long_deadline(Method::GET, "/x")).await.unwrap();
        let paused = refused.tenants().paused_for("a", "v").unwrap().unwrap();
        assert_eq!(paused.as_secs_f64(), expected);
        tokio::time::sleep(paused).await;
    }

    let percent: u128 = number(&figure_of_page("percent of its rate"));
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "20"),
        _ => FakeAnswer::status(200),
    });
    let client = client(&limit("fixed_window", "12s"), &transport).await;
    for _ in 0..4 {
        send(&client, Priority::High, "/x").await.unwrap();
    }
    let gaps = gaps(&transport);
    assert_eq!(gaps[1..3], [0, 150 * 100 / percent], "{gaps:?}");
}

/// Nothing left of an endpoint's limit stops the requests to that endpoint, and no others.
#[tokio::test(start_paused = true)]
async fn exhausted_endpoint_stops_alone() {
    let transport = FakeTransport::new(|_| answer_with_left("0", "7"));
    let of_an_endpoint = format!("[vendors.v.endpoints.rest]\npaths = [\"/x\"]\n{}", limit("fixed_window", "12s"));
    let client = client(&of_an_endpoint, &transport).await;
    for _ in 0..3 {
        send(&client, Priority::Low, "/x").await.unwrap();
    }
    assert_eq!(gaps(&transport), [7_500, 7_500]);
}

#[tokio::test(start_paused = true)]
async fn throttle_modes_match_the_page() {
    let head = "`throttle` | what is done | 29 of 100 left, reset in 29 s, window 12 s: between two requests";
    let ways = rows(PAGE, head);
    for way in &ways {
        let expected: u128 = number(way[2].strip_suffix(" ms").unwrap());
        assert_eq!(spacing(&way[0], Priority::High, "29", "29").await, expected, "{way:?}");
    }
    let names: Vec<&str> = ways.iter().map(|way| &*way[0]).collect();
    assert_eq!(names, choices("throttle = \"nonsense\"\n"));
    assert_eq!(load("").unwrap().throttle.name(), names[0], "{}", ways[0][1]);
}

/// The choices that the error about a wrong value names.
fn choices(vendor: &str) -> Vec<String> {
    let message = load(vendor).unwrap_err().to_string();
    let (_, listed) = message.split_once("choices").unwrap_or_else(|| panic!("{message}"));
    listed
        .lines()
        .next()
        .unwrap()
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn algorithm_guards_match_the_page() {
    let table = rows(PAGE, "`algorithm` | guard | 100 in 1m: at once | in any 1m | 100 in 1s: at once | in any 1s");
    let first_word = |row: &Vec<String>| row[0].split(',').next().unwrap().trim_matches('`').to_owned();
    let named: Vec<String> = table.iter().map(first_word).collect();
    let known = choices(&limit("nonsense", "1m"));
    assert_eq!(named.iter().collect::<BTreeSet<_>>(), known.iter().collect::<BTreeSet<_>>());
    for (name, row) in named.iter().zip(&table) {
        for (window, cells) in [("1m", &row[2..4]), ("1s", &row[4..6])] {
            let (at_once, in_any) = sent_at_once_and_per_window(name, window, Priority::High).await;
            assert_eq!([at_once.to_string(), in_any.to_string()], *cells, "{name}, 100 in {window}");
        }
    }
    let default = load("limits = [{ name = \"l\", limit = 100, window = \"1m\" }]\n").unwrap();
    let stated = table.iter().find(|row| row[0].ends_with(", the default")).unwrap();
    assert_eq!(first_word(stated), rate(&default).algorithm.name());
}

fn rate(vendor: &Vendor) -> &Rate {
    let LimitKind::Rate(rate) = &vendor.limits[0].kind else { panic!("{:?}", vendor.limits) };
    rate
}

/// Of 400 requests that come together: how many are sent at once, and how many at most in any window.
async fn sent_at_once_and_per_window(algorithm: &str, window: &str, tier: Priority) -> (usize, usize) {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = client(&limit(algorithm, window), &transport).await;
    let mut tasks = JoinSet::new();
    spawn_sends(&mut tasks, &client, tier, "/x", 400);
    while tasks.join_next().await.is_some() {}
    let (moments, window) = (call_times_ns(&transport), duration(window).as_nanos());
    let within = |from: &u128| moments.iter().filter(|at| (*from..*from + window).contains(*at)).count();
    assert_eq!(moments.len(), 400);
    (moments.iter().filter(|at| **at == 0).count(), moments.iter().map(within).max().unwrap())
}

#[tokio::test(start_paused = true)]
async fn tiers_share_as_the_page_says() {
    let table = rows(PAGE, "tier | weight | of a hundred grants where all wait | in any minute, of 100 in 1m");
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let vendor =
        "limits = [{ name = \"l\", limit = 1000, window = \"1000s\", burst = 1, algorithm = \"fixed_window\" }]\n";
    let client = client(vendor, &transport).await;
    client.tenants().pause("a", "v").unwrap();
    let mut tasks = JoinSet::new();
    for (path, tier) in [("/high", Priority::High), ("/normal", Priority::Normal), ("/low", Priority::Low)] {
        spawn_sends(&mut tasks, &client, tier, path, 100);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    client.tenants().resume("a", "v").unwrap();
    while tasks.join_next().await.is_some() {}
    let calls = transport.calls();
    let weights: u64 = table.iter().map(|row| number::<u64>(&row[1])).sum();
    assert_eq!(table.iter().map(|row| &*row[0]).collect::<Vec<_>>(), TIERS.map(|(name, _)| name));
    for (row, (name, tier)) in table.iter().zip(TIERS) {
        let granted = calls[..100].iter().filter(|call| call.path().ends_with(name)).count();
        assert_eq!(granted.to_string(), row[2], "{row:?}");
        assert_eq!((number::<u64>(&row[1]) * 100 / weights).to_string(), row[2], "{row:?}");
        assert_eq!(sent_at_once_and_per_window("fixed_window", "1m", tier).await.1.to_string(), row[3], "{row:?}");
    }
}

#[test]
fn defaults_are_those_of_the_page() {
    // An entry with the page's figures equals an empty entry.
    let table = rows(PAGE, "`[vendors.NAME.retry]`");
    let mut entry = "[vendors.v.retry]\n".to_owned();
    for row in table.iter().filter(|row| row[1] != "none") {
        let bare = row[1].parse::<u64>().is_ok() || row[1].parse::<bool>().is_ok();
        let value = if bare { row[1].clone() } else { format!("\"{}\"", row[1]) };
        entry.push_str(&format!("{} = {value}\n", row[0]));
    }
    assert_eq!(load(&entry).unwrap().retry, RetryPolicy::default());
    assert_eq!(load("").unwrap().retry, RetryPolicy::default());
    let fields = format!("{:#?}", RetryPolicy::default());
    let fields = fields.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(':'));
    let fields: BTreeSet<&str> = fields.map(|(name, _)| name).filter(|name| !name.starts_with(' ')).collect();
    assert_eq!(table.iter().map(|row| &*row[0]).collect::<BTreeSet<_>>(), fields);

    let (_, most) = table[0][2].split_once("0 to ").unwrap();
    let most: u32 = number(most.split(';').next().unwrap());
    let retries = |count: u32| load(&format!("retry = {{ max_retries = {count} }}\n"));
    assert!(retries(0).is_ok() && retries(most).is_ok() && retries(most + 1).is_err(), "{most}");

    let vendor = load(&limit("unknown", "1m")).unwrap();
    assert!(PAGE.contains(&format!("`safety` = {} of the vendor's limit", rate(&vendor).safety)));
    let transit = vendor.max_transit;
    assert!(PAGE.contains(&format!("`max_transit` ({}s unless stated", transit.as_secs())), "{transit:?}");
    assert_eq!(transit, vendor.connect_timeout + Duration::from_secs(1));

    // Figures that no client shows are read from the source code.
    let builder = include_str!("../../src/client/builder.rs").replace('_', "");
    let per_tier = figure_of_page("requests of one tenant, vendor and tier that wait");
    let all = figure_of_page("requests that wait altogether");
    let plan = include_str!("../../src/dispatch/plan.rs").replace('_', "");
    assert!(plan.contains(&format!("maxwaiting: {per_tier},")), "{per_tier}");
    assert!(include_str!("../../engine/src/tier.rs").contains("WEIGHTS: [u32; 3] = [6, 3, 1];"));
    assert!(builder.contains(&format!("maxwaiting: {all},\n")), "{all}");
}

#[tokio::test(start_paused = true)]
async fn wait_ranges_match_the_page() {
    fastrand::seed(7);
    let line = PAGE.lines().find(|line| line.contains("drawn evenly from")).unwrap();
    let words = line.split([' ', ',']).filter_map(|word| word.split_once('-'));
    let ranges: Vec<(u128, u128)> = words.map(|(low, high)| (number(low), number(high))).collect();
    assert_eq!(ranges.len() as u32, RetryPolicy::default().max_retries);
    let mut drawn = vec![Vec::new(); ranges.len()];
    for _ in 0..100 {
        let transport = FakeTransport::new(|_| FakeAnswer::status(503));
        let client = client("", &transport).await;
        assert_eq!(send(&client, Priority::High, "/x").await.unwrap_err().kind(), ErrorKind::Exhausted);
        let gaps = gaps(&transport);
        assert_eq!(gaps.len(), ranges.len());
        gaps.iter().zip(&mut drawn).for_each(|(gap, drawn)| drawn.push(*gap));
    }
    fills(&drawn, &ranges);
}

/// Asserts that the drawn waits lie within the ranges, given in seconds, and come near both of their ends.
#[track_caller]
fn fills(drawn: &[Vec<u128>], ranges: &[(u128, u128)]) {
    for (drawn, (low, high)) in drawn.iter().zip(ranges) {
        let (low, high) = (low * 1_000, high * 1_000);
        let (least, most) = (drawn.iter().min().unwrap(), drawn.iter().max().unwrap());
        let near = (high - low) / 15;
        assert!(
            (low..=low + near).contains(least) && (high - near..=high + 1).contains(most),
            "{low}-{high}: {drawn:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn stated_wait_supplement_matches_the_page() {
    fastrand::seed(7);
    let percent: u128 = number(&figure_of_page("percent that jitter adds"));
    let most = duration(&figure_of_page("most that jitter adds")).as_secs().into();
    for wait in [20, 200] {
        let mut drawn = Vec::new();
        for _ in 0..100 {
            let transport = FakeTransport::new(move |call| match call.number {
                0 => FakeAnswer::status(429).header("retry-after", &wait.to_string()),
                _ => FakeAnswer::status(200),
            });
            let client = client("", &transport).await;
            send(&client, Priority::High, "/x").await.unwrap();
            drawn.push(gaps(&transport)[0]);
        }
        let wait = u128::from(wait as u32);
        fills(&[drawn], &[(wait, wait + (wait * percent / 100).min(most))]);
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_and_breakers_match_the_page() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let paused = client("", &transport).await;
    paused.tenants().pause("a", "v").unwrap();
    let began = now();
    paused.send("a", Priority::High, Request::get("v", "/x")).await.unwrap_err();
    assert_eq!(began.elapsed(), duration(&figure_of_page("deadline of each try")));

    let failures: usize = number(&figure_of_page("breaker: failures in a row"));
    let first = duration(&figure_of_page("breaker: first pause")).as_millis();
    let longest = duration(&figure_of_page("breaker: longest pause")).as_millis();
    let doubled = (0..7).map(|step| (first << step).min(longest));
    let expected: Vec<u128> = std::iter::repeat_n(0, failures - 1).chain(doubled).collect();
    for answer in [FakeAnswer::status(500), FakeAnswer::not_connected()] {
        let what = format!("{answer:?}");
        let transport = FakeTransport::new(move |_| answer.clone());
        let client = client("retry = { max_retries = 0 }\n", &transport).await;
        for _ in 0..=expected.len() {
            drop(send(&client, Priority::High, "/x").await);
        }
        assert_eq!(gaps(&transport), expected, "{what}");
    }
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

#[tokio::test(start_paused = true)]
async fn retry_budget_matches_the_page() {
    let free: usize = number(&figure_of_page("retry budget: retries after failures"));
    let each: usize = number(&figure_of_page("retry budget: requests of that minute"));
    let transport = FakeTransport::new(|call| match call.path() {
        "/base/bad" => FakeAnswer::reset(),
        _ => FakeAnswer::status(200),
    });
    let vendor = "retry = { max_retries = 20, first_wait = \"10ms\", longest_wait = \"10ms\" }\n";
    let client = client(vendor, &transport).await;
    let retries = async |good: usize, bad: usize| {
        transport.reset_calls();
        let mut tasks = JoinSet::new();
        spawn_sends(&mut tasks, &client, Priority::High, "/good", good);
        while tasks.join_next().await.is_some() {}
        spawn_sends(&mut tasks, &client, Priority::High, "/bad", bad);
        while tasks.join_next().await.is_some() {}
        transport.calls().len() - good - bad
    };
    assert_eq!(retries(0, 30).await, free);
    // The budget counts requests only from the first failure on, so the request that failed first is not counted.
    assert_eq!(retries(40 * each, 30).await, (30 - 1 + 40 * each + 30) / each - free);
}

#[tokio::test(start_paused = true)]
async fn answers_mean_what_the_page_says() {
    let table = rows(PAGE, "answer");
    let row = |name: &str| table.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name:?}"));
    let named = |status: u16| table.iter().find(|row| row[0].split(", ").any(|word| word == status.to_string()));
    let other = |status: u16| row(if status >= 500 { "any other 5xx" } else { "all others" });
    // Tests every 4xx, the common 5xx, and every fifth other status.
    let is_asked = |status: &u16| status / 100 == 4 || status.is_multiple_of(5) || [502, 503, 504].contains(status);
    let statuses = (200..600).filter(is_asked);
    let answers = statuses.map(|status| (FakeAnswer::status(status), named(status).unwrap_or_else(|| other(status))));
    let breaks = (FakeAnswer::reset(), row("a connection that breaks after the request has left"));
    let refused = (FakeAnswer::refused_stream(), row("an HTTP/2 stream that the vendor did not process"));
    for (answer, row) in answers.chain([breaks, refused, (FakeAnswer::not_connected(), row("no connection"))]) {
        for (method, meaning) in [(Method::GET, &row[1]), (Method::POST, &row[2])] {
            let (seen, what) = (meaning_of(answer.clone(), method.clone(), "").await, format!("{method} {answer:?}"));
            assert!(meaning.starts_with(seen), "{what}: {seen}, but the page says {meaning:?}");
            if meaning.contains("`unavailable_is_safe`") {
                let answer = answer.clone().header("retry-after", "1");
                assert_eq!(meaning_of(answer.clone(), method.clone(), "").await, "ambiguous", "{what}");
                assert_eq!(meaning_of(answer, method, ", unavailable_is_safe = true").await, "again", "{what}");
            }
        }
    }
}

/// What becomes of a request that gets this response to each attempt.
async fn meaning_of(answer: FakeAnswer, method: Method, setting: &str) -> &'static str {
    let transport = FakeTransport::new(move |_| answer.clone());
    let vendor = format!("retry = {{ max_retries = 3, first_wait = \"1s\", max_age = \"30s\"{setting} }}\n");
    let client = client(&vendor, &transport).await;
    let result = client.send("a", Priority::High, request_with_long_deadline(method, "/x")).await;
    match (result, transport.calls().len()) {
        (Ok(_), 1) => "the caller's",
        (Ok(response), 2) if response.status() == 401 => "once more, with a fresh credential",
        (Err(error), 1) if error.delivery() == Delivery::Ambiguous => "ambiguous",
        (Err(error), 4) if error.kind() == ErrorKind::Exhausted => "again",
        (Err(error), 5..) if matches!(error.delivery(), Delivery::NotSent | Delivery::Rejected) => {
            "again, and not counted as a retry"
        }
        (result, calls) => panic!("{result:?} after {calls} calls"),
    }
}

fn read(name: &str, value: &'static str) -> Signals {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static(value));
    signals::read(&Dialect::default(), StatusCode::OK, &headers, b"", SystemTime::UNIX_EPOCH)
}

#[test]
fn headers_are_read_as_the_page_says() {
    for row in &rows(PAGE, "header") {
        for name in
            quoted(&row[0]).into_iter().filter(|name| name.contains("retry-after") || name.starts_with("ratelimit"))
        {
            let value = match name {
                "ratelimit" => "\"minute\";r=9;t=9",
                "ratelimit-policy" => "\"minute\";q=9;w=9",
                _ => "9",
            };
            let (nine, seconds) = (Some(9), Some(Duration::from_secs(9)));
            let of_acme = format!("acme-{name}");
            // A name that begins with `x-` is not read with another prefix in front of it.
            if name.starts_with("x-") {
                assert_eq!(read(&of_acme, value).retry_after, None, "{of_acme}");
            }
            for name in [name, &of_acme].into_iter().filter(|name| !name.starts_with("acme-x-")) {
                let signals = read(name, value);
                let window = signals.windows.first().cloned().unwrap_or_default();
                let is_so = match &*row[1] {
                    text if text.starts_with("a wait in seconds") => signals.retry_after == seconds,
                    text if text.starts_with("a wait in milli") => {
                        signals.retry_after == Some(Duration::from_millis(9))
                    }
                    _ if name.ends_with("policy") => (window.limit, window.window) == (nine, seconds),
                    _ => (window.remaining, window.reset_in) == (nine, seconds),
                };
                assert!(is_so, "{name}: {signals:?}");
            }
        }
    }
    for row in &rows(PAGE, "word in the header's name") {
        for word in quoted(&row[0]) {
            let signals = read(&format!("x-ratelimit-{word}"), "9");
            let window = signals.windows.first().cloned().unwrap_or_default();
            let (nine, seconds) = (Some(9), Some(Duration::from_secs(9)));
            let is_so = match &*row[1] {
                "the limit" => window.limit == nine,
                "what is left of it" => window.remaining == nine,
                text if text.starts_with("what was used") => window.used == nine,
                text if text.starts_with("seconds until the reset") => window.reset_in == seconds,
                "the window's length" => window.window == seconds,
                _ => signals.is_empty(),
            };
            assert!(is_so, "{word}: {signals:?}");
        }
    }
}

#[test]
fn toml_of_the_page_is_valid() {
    let examples: Vec<&str> = PAGE.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 1);
    let config = Config::load(&Sources::new().file("RATE_LIMITS.md", examples[0]), 1).unwrap();
    assert_eq!(config.warnings(), [""; 0]);
}
