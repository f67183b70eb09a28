//! What vendors do besides counting: headers about limits, penalties, other callers, outages, endpoints that always
//! refuse. In virtual time; tests that need a socket are in `fake_vendor_outage.rs`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use integration_client::testing::checker::{Definition, Event, check, refused_with_penalty};
use integration_client::testing::limit::{Phase, Refill, Rule};
use integration_client::testing::{Call, HeaderStyle, Outage, Refusal, ScriptedVendor, VendorLimit, Verdict};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SECOND: Duration = Duration::from_secs(1);
const STYLES: [HeaderStyle; 8] = [
    HeaderStyle::Silent,
    HeaderStyle::RetryAfter,
    HeaderStyle::RetryAfterDate,
    HeaderStyle::XRateLimit,
    HeaderStyle::XRateLimitEpoch,
    HeaderStyle::RateLimit,
    HeaderStyle::Structured,
    HeaderStyle::XRateLimitRetryAfter,
];

fn call(tenant: u32) -> Call {
    Call { tenant, account: 0, endpoint: 0, cost: 1 }
}

/// The wall clock at the vendor's time `at_ns`: at second 2.25 it shows 2023-11-14 22:13:20.6 GMT.
fn wall_clock_at(at_ns: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_700_000_000_600 - 2_250) + Duration::from_nanos(at_ns)
}

fn header_lines(vendor: &mut ScriptedVendor, style: HeaderStyle, at_ns: u64, call: &Call, verdict: &Verdict) -> String {
    let headers = style.headers(&vendor.notice(at_ns, call, verdict), wall_clock_at(at_ns));
    let mut lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))).collect();
    lines.sort();
    lines.join("\n")
}

/// A vendor with 3 units in each of the windows [0 s, 10 s), [10 s, 20 s)…, and 50 a minute, of which `units` were
/// requested at 1.5 s; with the verdict on the last request.
fn vendor_after_requests(units: u32) -> (ScriptedVendor, Verdict) {
    let mut vendor = ScriptedVendor::new([
        VendorLimit::fixed_window(3, 10 * SECOND).named("burst"),
        VendorLimit::sliding_window(50, 60 * SECOND),
        VendorLimit::concurrency(9),
    ]);
    let verdicts: Vec<Verdict> = (0..units).map(|_| vendor.arrive(1_500 * MS, &call(1))).collect();
    (vendor, verdicts[verdicts.len() - 1])
}

#[test]
fn styles_have_their_words() {
    let mut all = String::new();
    for (what, units) in [("admitted", 2), ("refused", 4)] {
        for style in STYLES {
            let (mut vendor, verdict) = vendor_after_requests(units);
            let said = header_lines(&mut vendor, style, 2_250 * MS, &call(1), &verdict);
            let said = if said.is_empty() { "(nothing)" } else { &said };
            all += &format!("-- {what}, {style:?}\n{said}\n");
        }
    }
    insta::assert_snapshot!(all, @r#"
    -- admitted, Silent
    (nothing)
    -- admitted, RetryAfter
    (nothing)
    -- admitted, RetryAfterDate
    (nothing)
    -- admitted, XRateLimit
    x-ratelimit-limit: 3
    x-ratelimit-remaining: 1
    x-ratelimit-reset: 8
    -- admitted, XRateLimitEpoch
    x-ratelimit-limit: 3
    x-ratelimit-remaining: 1
    x-ratelimit-reset: 1700000009
    -- admitted, RateLimit
    ratelimit-limit: 3
    ratelimit-remaining: 1
    ratelimit-reset: 8
    -- admitted, Structured
    ratelimit-policy: "burst";q=3;w=10, "limit-1";q=50;w=60
    ratelimit: "burst";r=1;t=8, "limit-1";r=48;t=60
    -- admitted, XRateLimitRetryAfter
    x-ratelimit-limit: 3
    x-ratelimit-remaining: 1
    -- refused, Silent
    (nothing)
    -- refused, RetryAfter
    retry-after: 8
    -- refused, RetryAfterDate
    date: Tue, 14 Nov 2023 22:13:20 GMT
    retry-after: Tue, 14 Nov 2023 22:13:29 GMT
    -- refused, XRateLimit
    retry-after: 8
    x-ratelimit-limit: 3
    x-ratelimit-remaining: 0
    x-ratelimit-reset: 8
    -- refused, XRateLimitEpoch
    retry-after: 8
    x-ratelimit-limit: 3
    x-ratelimit-remaining: 0
    x-ratelimit-reset: 1700000009
    -- refused, RateLimit
    ratelimit-limit: 3
    ratelimit-remaining: 0
    ratelimit-reset: 8
    retry-after: 8
    -- refused, Structured
    ratelimit-policy: "burst";q=3;w=10, "limit-1";q=50;w=60
    ratelimit: "burst";r=0;t=8, "limit-1";r=47;t=60
    retry-after: 8
    -- refused, XRateLimitRetryAfter
    x-ratelimit-limit: 3
    x-ratelimit-remaining: 0
    x-ratelimit-retryafter: 1700000009
    "#);
}

#[test]
fn headers_are_true_at_the_response() {
    let (mut vendor, first) = vendor_after_requests(1);
    assert_eq!(first.reading.map(|reading| reading.remaining), Some(2));
    vendor.arrive(4_000 * MS, &call(1));
    let later = header_lines(&mut vendor, HeaderStyle::XRateLimit, 9_100 * MS, &call(1), &first);
    assert_eq!(later, "x-ratelimit-limit: 3\nx-ratelimit-remaining: 1\nx-ratelimit-reset: 1");
    let next_window = header_lines(&mut vendor, HeaderStyle::XRateLimit, 10_000 * MS, &call(1), &first);
    let of_the_other = "x-ratelimit-limit: 50\nx-ratelimit-remaining: 48\nx-ratelimit-reset: 54";
    assert_eq!(next_window, of_the_other, "the burst is whole again, so the other limit has less left");

    let (mut vendor, refused) = vendor_after_requests(4);
    for (at, wait) in [(2_000, 8), (9_999, 1), (10_500, 1)] {
        let line = header_lines(&mut vendor, HeaderStyle::RetryAfter, at * MS, &call(1), &refused);
        assert_eq!(line, format!("retry-after: {wait}"), "{at} ms");
    }
}

#[test]
fn timeless_refusal_names_no_wait() {
    let mut vendor = ScriptedVendor::new([VendorLimit::concurrency(1), VendorLimit::sliding_window(9, SECOND)]);
    assert!(vendor.arrive(0, &call(1)).admitted);
    let refused = vendor.arrive(1, &call(1));
    assert_eq!((refused.refused_by, refused.retry_at_ns), (Some(0), None));
    for style in STYLES {
        let said = header_lines(&mut vendor, style, 2, &call(1), &refused);
        assert!(!said.contains("retry"), "{style:?}: {said}");
    }
}

#[test]
fn hits_make_a_block_longer() {
    let mut vendor = ScriptedVendor::new([VendorLimit::fixed_window(1, SECOND)]).penalty(5 * SECOND);
    let verdicts: Vec<(Option<Refusal>, Option<u64>)> = [0, 100, 4_000, 10_099, 14_000, 20_099, 20_100]
        .into_iter()
        .map(|at| vendor.arrive(at * MS, &call(1)))
        .map(|verdict| (verdict.refusal, verdict.retry_at_ns.map(|at| at / MS)))
        .collect();
    let blocked_until = |at| (Some(Refusal::Blocked), Some(at));
    assert_eq!(
        verdicts,
        [
            (None, None),
            (Some(Refusal::Limit), Some(5_100)),
            blocked_until(10_100),
            blocked_until(15_100),
            blocked_until(20_100),
            blocked_until(25_100),
            blocked_until(30_100),
        ]
    );
    let blocked = vendor.arrive(30_099 * MS, &call(1));
    assert_eq!(header_lines(&mut vendor, HeaderStyle::RetryAfter, 30_099 * MS, &call(1), &blocked), "retry-after: 6");
    assert_eq!(header_lines(&mut vendor, HeaderStyle::Silent, 30_099 * MS, &call(1), &blocked), "");
    assert!(vendor.arrive(30_099 * MS, &call(2)).admitted, "another key");
    assert!(vendor.arrive(35_100 * MS, &call(1)).admitted, "a block does not hold its end");
}

#[test]
fn block_end_is_announced_only_with_room() {
    let mut vendor = ScriptedVendor::new([VendorLimit::fixed_window(1, 60 * SECOND)]).penalty(SECOND);
    vendor.arrive(0, &call(1));
    assert_eq!(vendor.arrive(MS, &call(1)).retry_at_ns, Some(60_000 * MS));
}

#[test]
fn others_take_units_at_even_times() {
    let mut vendor =
        ScriptedVendor::new([VendorLimit::fixed_window(5, SECOND)]).other_traffic(call(1), 3, 2 * SECOND, 4 * SECOND);
    let left = |verdict: Verdict| verdict.reading.map(|reading| reading.remaining);
    assert_eq!(left(vendor.arrive(1_999 * MS, &call(1))), Some(4), "they have not begun");
    assert_eq!(left(vendor.arrive(2_000 * MS, &call(1))), Some(3), "one of theirs comes first");
    assert_eq!(left(vendor.arrive(2_700 * MS, &call(1))), Some(0), "three of theirs");
    assert_eq!(vendor.arrive(2_999 * MS, &call(1)).refusal, Some(Refusal::Limit));
    assert_eq!(left(vendor.arrive(2_999 * MS, &call(2))), Some(4), "another key");
    assert_eq!(left(vendor.arrive(9_000 * MS, &call(1))), Some(4));
    let times: Vec<u64> = vendor.foreign().iter().map(|foreign| foreign.at_ns).collect();
    let expected = [2_000_000_000, 2_333_333_333, 2_666_666_666, 3_000_000_000, 3_333_333_333, 3_666_666_666];
    assert_eq!(times, expected, "and none at the end");
}

#[test]
fn others_are_refused_and_blocked_as_everybody() {
    let mut vendor = ScriptedVendor::new([VendorLimit::fixed_window(2, 10 * SECOND), VendorLimit::concurrency(3)])
        .penalty(2 * SECOND)
        .other_traffic(call(1), 1, Duration::ZERO, 5 * SECOND)
        .other_traffic(call(2), 10, SECOND, Duration::from_millis(1_150));
    vendor.advance(60_000 * MS);
    let of = |tenant| {
        let calls = vendor.foreign().iter().filter(move |foreign| foreign.call.tenant == tenant);
        calls.map(|foreign| (foreign.at_ns / MS, foreign.verdict.refusal)).collect::<Vec<_>>()
    };
    let (limit, blocked) = (Some(Refusal::Limit), Some(Refusal::Blocked));
    assert_eq!(of(1), [(0, None), (1_000, None), (2_000, limit), (3_000, blocked), (4_000, blocked)]);
    assert_eq!(of(2), [(1_000, None), (1_100, None)], "and concurrency is free again at once");
    assert!(vendor.foreign().is_sorted_by_key(|foreign| foreign.at_ns));
}

#[test]
fn outage_includes_its_start_only() {
    let minute = 60 * SECOND;
    let mut vendor = ScriptedVendor::new([VendorLimit::fixed_window(2, 1_000 * minute)])
        .outage(minute, 2 * minute, Outage::RetryAfter(5 * SECOND))
        .outage(minute, 3 * minute, Outage::Reset)
        .penalty(minute);
    let mut at = |ms: u64| {
        let verdict = vendor.arrive(ms * MS, &call(1));
        (verdict.status(), header_lines(&mut vendor, HeaderStyle::XRateLimit, ms * MS, &call(1), &verdict))
    };
    assert_eq!(at(59_999).0, 200);
    assert_eq!(at(60_000), (503, "retry-after: 5".into()), "the first declared, and nothing about limits");
    assert_eq!(at(119_999), (503, "retry-after: 5".into()));
    assert_eq!(at(120_000), (0, String::new()));
    assert_eq!(at(180_000).0, 200, "an outage counts in no limit");
    assert_eq!(at(180_001).0, 429);

    vendor.set_outage(Some(Outage::Unavailable));
    assert_eq!(vendor.arrive(180_002 * MS, &call(1)).status(), 503);
    let foreign = vendor.arrive(180_002 * MS, &call(7));
    assert_eq!(foreign.refusal, Some(Refusal::Outage(Outage::Unavailable)), "everybody");
    vendor.set_outage(None);
    assert_eq!(vendor.arrive(180_003 * MS, &call(7)).status(), 200);
    let blocked = vendor.arrive(180_003 * MS, &call(1));
    assert_eq!(blocked.refusal, Some(Refusal::Blocked), "and no hit in between: the vendor was not there");
    assert_eq!(header_lines(&mut vendor, HeaderStyle::Silent, 180_003 * MS, &call(1), &blocked), "");
}

#[test]
fn poisoned_endpoint_counts_nowhere() {
    let limits = [VendorLimit::fixed_window(2, SECOND)];
    let mut vendor = ScriptedVendor::new(limits).poisoned("reports", 429).penalty(SECOND);
    let poisoned = Call { endpoint: vendor.endpoint("reports"), ..call(1) };
    for _ in 0..5 {
        let verdict = vendor.arrive(0, &poisoned);
        assert_eq!((verdict.refusal, verdict.status(), verdict.retry_at_ns), (Some(Refusal::Poisoned(429)), 429, None));
        let told = header_lines(&mut vendor, HeaderStyle::RateLimit, 0, &poisoned, &verdict);
        assert_eq!(told, "ratelimit-limit: 2\nratelimit-remaining: 2\nratelimit-reset: 1", "and no retry-after");
    }
    let admitted: Vec<bool> = (0..3).map(|_| vendor.arrive(0, &call(1)).admitted).collect();
    assert_eq!(admitted, [true, true, false], "neither the limit nor the key's good name has suffered");
    let hit = vendor.arrive(1, &poisoned);
    assert_eq!((hit.refusal, hit.retry_at_ns), (Some(Refusal::Blocked), Some(2_000_000_000)), "a hit is a hit");
}

/// Rate rules of the vendor, each with the checker's definition that it must keep to.
fn rules() -> impl Strategy<Value = (Rule, Definition)> {
    (1u32..12, 1u64..500, 0u64..600, 1u32..9, 0usize..6).prop_map(|(limit, window_ns, phase_ns, rate, kind)| {
        let (capacity, per_ns, wide) = (limit, window_ns, u64::from(limit));
        match kind {
            0 => (
                Rule::FixedWindow { limit, window_ns, phase: Phase::At(phase_ns) },
                Definition::FixedWindow { limit: wide, window_ns, phase_ns },
            ),
            1 => (
                Rule::FixedWindow { limit, window_ns, phase: Phase::FirstRequest },
                Definition::FixedWindowFromFirst { limit: wide, window_ns },
            ),
            2 => (
                Rule::SlidingWindow { limit, window_ns, both_ends: true },
                Definition::SlidingWindow { limit: wide, window_ns, both_ends: true },
            ),
            3 => (
                Rule::SlidingCounter { limit, window_ns, phase_ns },
                Definition::SlidingCounter { limit: wide, window_ns, phase_ns },
            ),
            4 => (
                Rule::TokenBucket { capacity, rate, per_ns, refill: Refill::Steady },
                Definition::TokenBucket { capacity: wide, rate, per_ns },
            ),
            _ => {
                (Rule::LeakyBucket { capacity, rate, per_ns }, Definition::LeakyBucket { capacity: wide, rate, per_ns })
            }
        }
    })
}

fn number(headers: &http::HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// With a penalty and other callers on the key, the admitted requests of both together break no limit, and the
    /// checker's own replay refuses as many of both.
    #[test]
    fn penalties_and_other_callers_are_judged_alike(
        (rule, definition) in rules(),
        pauses in prop::collection::vec(prop_oneof![3 => 0u64..4, 2 => 1u64..120, 1 => 500u64..3_000], 1..150),
        penalty_ns in prop_oneof![Just(0u64), 1u64..400],
        rate in prop_oneof![Just(0u32), 1_000_000u32..50_000_000],
        (from, length) in (0u64..2_000, 0u64..8_000),
    ) {
        let mut vendor = ScriptedVendor::new([VendorLimit::new(rule)])
            .penalty(Duration::from_nanos(penalty_ns))
            .other_traffic(call(3), rate, Duration::from_nanos(from), Duration::from_nanos(from + length));
        let mut now = 0;
        let mut log: Vec<(u64, bool, bool)> = Vec::new();
        for pause in pauses {
            now += pause;
            log.push((now, true, vendor.arrive(now, &call(3)).admitted));
        }
        log.extend(vendor.foreign().iter().map(|foreign| (foreign.at_ns, false, foreign.verdict.admitted)));
        log.sort_by_key(|&(at, own, _)| (at, own));
        let events = |all: bool| -> Vec<Event> {
            log.iter().filter(|&&(_, _, admitted)| all || admitted).map(|&(at, ..)| Event::at(at)).collect()
        };
        prop_assert!(check(&events(false), &definition).is_clean());
        let refused = log.iter().filter(|&&(_, _, admitted)| !admitted).count() as u64;
        prop_assert_eq!(refused_with_penalty(&events(true), &definition, penalty_ns), refused);
    }

    /// `remaining` states exactly how many requests fit at that time, and a request that comes at the stated time is
    /// admitted.
    #[test]
    fn headers_can_be_taken_at_their_word(
        (rule, _) in rules(),
        pauses in prop::collection::vec(0u64..900, 1..60),
        (scale, service) in (prop_oneof![Just(1u64), Just(7_654_321)], 0u64..300),
        penalty in prop_oneof![Just(0u64), 1u64..90],
    ) {
        let scaled = match rule {
            Rule::FixedWindow { limit, window_ns, phase: Phase::At(at) } => {
                Rule::FixedWindow { limit, window_ns: window_ns * scale, phase: Phase::At(at * scale) }
            }
            Rule::TokenBucket { capacity, rate, per_ns, refill } => {
                Rule::TokenBucket { capacity, rate, per_ns: per_ns * scale, refill }
            }
            other => other,
        };
        let mut vendor = ScriptedVendor::new([VendorLimit::new(scaled)]).penalty(Duration::from_nanos(penalty * scale));
        let mut now = 0;
        for pause in pauses {
            now += pause * scale / 8;
            let verdict = vendor.arrive(now, &call(1));
            now += service;
            let notice = vendor.notice(now, &call(1), &verdict);
            let say = |style: HeaderStyle| style.headers(&notice, wall_clock_at(now));
            if verdict.admitted {
                let mut probe = vendor.clone();
                let fits = (0..99).take_while(|_| probe.arrive(now, &call(1)).admitted).count() as u64;
                for (style, name) in [
                    (HeaderStyle::XRateLimit, "x-ratelimit-remaining"),
                    (HeaderStyle::RateLimit, "ratelimit-remaining"),
                    (HeaderStyle::XRateLimitRetryAfter, "x-ratelimit-remaining"),
                ] {
                    prop_assert_eq!(number(&say(style), name), Some(fits));
                }
                prop_assert_eq!(notice.retry_at_ns, None);
            } else {
                let wait = number(&say(HeaderStyle::RetryAfter), "retry-after").map(Duration::from_secs);
                let epoch = number(&say(HeaderStyle::XRateLimitRetryAfter), "x-ratelimit-retryafter");
                let wait_by_epoch = epoch.map(|epoch| (UNIX_EPOCH + Duration::from_secs(epoch)).duration_since(wall_clock_at(now)));
                for wait in [wait, wait_by_epoch.and_then(Result::ok)] {
                    let back = now + u64::try_from(wait.map_or(0, |wait| wait.as_nanos())).unwrap_or(u64::MAX);
                    prop_assert!(back > now && vendor.clone().arrive(back, &call(1)).admitted, "back at {}", back);
                }
            }
        }
    }
}
