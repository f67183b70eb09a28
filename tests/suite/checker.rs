//! Tests the offline checker against cases worked out by hand and against the scripted vendor.
//!
//! Checker and vendor were written separately from the definitions, so each property here tests both.

use std::time::Duration;

use integration_client::testing::checker::{Definition, Event, Violation, check, refused};
use integration_client::testing::limit::{Limiter, Phase, Refill, Rule};
use integration_client::testing::{Call, ScriptedVendor, VendorLimit};
use proptest::prelude::*;

/// Checks peak and violations (as arrival and count) of a log of single units.
#[track_caller]
fn expect(definition: Definition, arrivals: &[u64], peak: u64, violations: &[(u64, u64)]) {
    let log: Vec<Event> = arrivals.iter().map(|&at| Event::at(at)).collect();
    let report = check(&log, &definition);
    let found: Vec<(u64, u64)> = report.violations.iter().map(|v| (v.at_ns, v.count)).collect();
    assert_eq!((report.peak, &*found), (peak, violations), "{definition:?}");
    assert_eq!(report.violating, violations.len() as u64);
    assert_eq!(report.total, arrivals.len() as u64);
}

#[test]
fn fixed_window_includes_its_start_only() {
    let definition = Definition::FixedWindow { limit: 2, window_ns: 100, phase_ns: 0 };
    expect(definition, &[98, 99, 100, 101], 2, &[]);
    expect(definition, &[100, 150, 199], 3, &[(199, 3)]);
    expect(definition, &[0, 99, 100, 199, 200, 299], 2, &[]);
}

#[test]
fn phase_moves_all_windows() {
    let definition = Definition::FixedWindow { limit: 1, window_ns: 100, phase_ns: 250 };
    expect(definition, &[0, 49, 50, 149, 150], 2, &[(49, 2), (149, 2)]);
}

#[test]
fn unknown_phase_finds_burst_across_edge() {
    let log = [98, 99, 100, 101];
    expect(Definition::FixedWindowEveryPhase { limit: 2, window_ns: 100 }, &log, 4, &[(100, 3), (101, 4)]);
    expect(Definition::FixedWindowEveryPhase { limit: 1, window_ns: 100 }, &[0, 100, 200], 1, &[]);
    expect(Definition::FixedWindowEveryPhase { limit: 1, window_ns: 100 }, &[0, 99], 2, &[(99, 2)]);
}

#[test]
fn first_request_window_waits_for_the_next() {
    let definition = Definition::FixedWindowFromFirst { limit: 2, window_ns: 100 };
    // Windows [30, 130), [130, 230), and after a silence [500, 600).
    expect(definition, &[30, 129, 130, 229, 500, 550, 599], 3, &[(599, 3)]);
}

#[test]
fn sliding_window_counts_both_ends_on_request() {
    let (limit, window_ns) = (2, 100);
    let open = Definition::SlidingWindow { limit, window_ns, both_ends: false };
    let closed = Definition::SlidingWindow { limit, window_ns, both_ends: true };
    expect(open, &[0, 50, 100], 2, &[]);
    expect(closed, &[0, 50, 100], 3, &[(100, 3)]);
    expect(closed, &[0, 50, 101], 2, &[]);
}

#[test]
fn sliding_counter_weighs_the_window_before() {
    let definition = Definition::SlidingCounter { limit: 4, window_ns: 100, phase_ns: 0 };
    // At 100: 4 x 1 + 1 = 5. At 124: 4 x 0.76 + 2 = 5.04, rounded up.
    expect(definition, &[10, 20, 30, 40, 100, 124], 6, &[(100, 5), (124, 6)]);
    // At 125: 4 x 0.75 + 1 = 4 fits to the tick, one tick earlier it does not.
    expect(definition, &[10, 20, 30, 40, 125], 4, &[]);
    expect(definition, &[10, 20, 30, 40, 124], 5, &[(124, 5)]);
    // Two windows later the first four no longer count.
    expect(definition, &[10, 20, 30, 40, 200, 201, 202, 203], 4, &[]);
}

#[test]
fn sliding_counter_takes_its_worst_phase() {
    let definition = Definition::SlidingCounterEveryPhase { limit: 4, window_ns: 100 };
    // Windows that begin at or before 10 count the first four in full.
    expect(definition, &[10, 20, 30, 40, 57], 5, &[(57, 5)]);
    // At 141 no phase counts them in full any more.
    let worst = (0..100).map(|phase_ns| {
        let log: Vec<Event> = [10, 20, 30, 40, 141].map(Event::at).to_vec();
        check(&log, &Definition::SlidingCounter { limit: 4, window_ns: 100, phase_ns }).peak
    });
    let log: Vec<Event> = [10, 20, 30, 40, 141].map(Event::at).to_vec();
    assert_eq!(Some(check(&log, &definition).peak), worst.max());
}

#[test]
fn token_bucket_allows_capacity_and_refill() {
    let definition = Definition::TokenBucket { capacity: 3, rate: 1, per_ns: 10 };
    expect(definition, &[0, 0, 0, 10, 20], 3, &[]);
    expect(definition, &[0, 0, 0, 9], 4, &[(9, 4)]);
    // A wait adds nothing to a full bucket.
    expect(definition, &[1_000, 1_000, 1_000, 1_000], 4, &[(1_000, 4)]);
}

#[test]
fn lumps_come_at_their_tick() {
    let definition = Definition::LumpedBucket { capacity: 4, rate: 1, per_ns: 10, interval_ns: 20, phase_ns: 20 };
    expect(definition, &[0, 0, 0, 0, 20, 20], 4, &[]);
    expect(definition, &[0, 0, 0, 0, 19], 5, &[(19, 5)]);
    expect(definition, &[0, 0, 0, 0, 20, 20, 39], 5, &[(39, 5)]);
}

#[test]
fn leaky_bucket_overflows_by_undrained_units() {
    let definition = Definition::LeakyBucket { capacity: 2, rate: 3, per_ns: 10 };
    // The bucket holds two units; after 3 ns 0.9 units have drained, after 4 ns 1.2 units.
    expect(definition, &[0, 0, 3], 3, &[(3, 3)]);
    expect(definition, &[0, 0, 4], 2, &[]);
}

#[test]
fn concurrency_frees_a_place_at_its_end() {
    let definition = Definition::Concurrency { limit: 1 };
    let log = [Event::at(0).until(10), Event::at(10).until(20), Event::at(19).until(30)];
    let report = check(&log, &definition);
    assert_eq!(report.violations, [Violation { at_ns: 19, count: 2, limit: 1 }]);
    assert_eq!(refused(&log, &definition), 1);
    assert_eq!(refused(&[Event::at(0), Event::at(u64::MAX - 1)], &definition), 1, "the first is never over");
}

#[test]
fn checker_counts_costs_in_any_order() {
    let definition = Definition::SlidingWindow { limit: 10, window_ns: 100, both_ends: false };
    let log = [Event::at(50).cost(4), Event::at(0).cost(7), Event::at(100).cost(6)];
    let report = check(&log, &definition);
    assert_eq!(report.violations, [Violation { at_ns: 50, count: 11, limit: 10 }]);
    assert_eq!((report.total, report.peak), (17, 11));
}

#[test]
fn extreme_numbers_do_not_overflow() {
    let log = [Event::at(0).cost(u32::MAX), Event::at(u64::MAX).cost(u32::MAX)];
    for definition in [
        Definition::FixedWindow { limit: u64::MAX, window_ns: u64::MAX, phase_ns: u64::MAX },
        Definition::FixedWindowEveryPhase { limit: 0, window_ns: 0 },
        Definition::SlidingCounter { limit: 1, window_ns: u64::MAX, phase_ns: 1 },
        Definition::SlidingCounterEveryPhase { limit: 1, window_ns: u64::MAX },
        Definition::TokenBucket { capacity: u64::MAX, rate: u32::MAX, per_ns: u64::MAX },
        Definition::LumpedBucket { capacity: 1, rate: u32::MAX, per_ns: 0, interval_ns: 0, phase_ns: u64::MAX },
        Definition::LeakyBucket { capacity: 0, rate: u32::MAX, per_ns: u64::MAX },
    ] {
        check(&log, &definition);
        refused(&log, &definition);
    }
}

#[test]
fn limits_are_taken_together_or_not() {
    let second = Duration::from_nanos(1_000);
    let mut vendor = ScriptedVendor::new([
        VendorLimit::fixed_window(2, second),
        VendorLimit::sliding_window(3, second).scope(integration_client::config::Scope::Vendor),
    ]);
    let of = |tenant| Call { tenant, account: 0, endpoint: 0, cost: 1 };
    let admitted: Vec<bool> = [1, 1, 1, 1, 2, 2].iter().map(|&t| vendor.arrive(0, &of(t)).admitted).collect();
    assert_eq!(
        admitted,
        [true, true, false, false, true, false],
        "refusals of tenant 1 cost the vendor's limit nothing"
    );
    assert_eq!(vendor.arrive(1, &of(1)).refused_by, Some(0));
    assert_eq!(vendor.arrive(1, &of(2)).refused_by, Some(1));
    assert_eq!(vendor.arrive(1, &of(2)).retry_at_ns, Some(1_000));
}

#[test]
fn endpoint_limit_leaves_other_endpoints_alone() {
    let mut vendor = ScriptedVendor::new([VendorLimit::sliding_window(1, Duration::from_secs(1)).endpoint("reports")]);
    let reports = vendor.endpoint("reports");
    let to = |endpoint| Call { tenant: 1, account: 1, endpoint, cost: 1 };
    assert!(vendor.arrive(0, &to(reports)).admitted);
    assert!(!vendor.arrive(0, &to(reports)).admitted);
    assert!(vendor.arrive(0, &to(0)).admitted);
}

#[test]
fn refused_requests_count_when_told() {
    let rule = VendorLimit::sliding_window(1, Duration::from_nanos(100)).count_refused();
    let mut vendor = ScriptedVendor::new([rule]);
    let call = Call { tenant: 1, account: 1, endpoint: 0, cost: 1 };
    assert!(vendor.arrive(0, &call).admitted);
    let hammered: Vec<bool> = (1..=9).map(|i| vendor.arrive(i * 50, &call).admitted).collect();
    assert_eq!(hammered, [false; 9]);
    assert!(vendor.arrive(550, &call).admitted);
}

/// Rules of the vendor, each with the checker's definition that it must keep to.
fn rules() -> impl Strategy<Value = (Rule, Definition)> {
    let limit = 1u32..12;
    let window = prop_oneof![Just(1u64), Just(7), Just(64), Just(1_000), 1u64..500];
    (limit, window, 0u64..1_200, 1u32..9, 0usize..9, 1u64..90).prop_map(
        |(limit, window_ns, phase_ns, rate, kind, interval_ns)| {
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
                2 | 3 => (
                    Rule::SlidingWindow { limit, window_ns, both_ends: kind == 3 },
                    Definition::SlidingWindow { limit: wide, window_ns, both_ends: kind == 3 },
                ),
                4 => (
                    Rule::SlidingCounter { limit, window_ns, phase_ns },
                    Definition::SlidingCounter { limit: wide, window_ns, phase_ns },
                ),
                5 => (
                    Rule::TokenBucket { capacity, rate, per_ns, refill: Refill::Steady },
                    Definition::TokenBucket { capacity: wide, rate, per_ns },
                ),
                6 => (
                    Rule::TokenBucket { capacity, rate, per_ns, refill: Refill::Lumps { interval_ns, phase_ns } },
                    Definition::LumpedBucket { capacity: wide, rate, per_ns, interval_ns, phase_ns },
                ),
                7 => (
                    Rule::LeakyBucket { capacity, rate, per_ns },
                    Definition::LeakyBucket { capacity: wide, rate, per_ns },
                ),
                _ => (Rule::Concurrency { limit }, Definition::Concurrency { limit: wide }),
            }
        },
    )
}

/// Arrivals as (pause since the last arrival, cost, duration of the exchange).
fn traffic() -> impl Strategy<Value = Vec<(u64, u32, u64)>> {
    let pause = prop_oneof![3 => Just(0u64), 3 => 1u64..4, 2 => 1u64..120, 1 => 500u64..3_000];
    prop::collection::vec((pause, 1u32..4, 1u64..200), 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Requests that the vendor admits break no limit, each refused one would have broken it, and the checker's own
    /// replay refuses as many.
    #[test]
    fn vendor_and_checker_agree((rule, definition) in rules(), traffic in traffic()) {
        let mut vendor = ScriptedVendor::new([VendorLimit::new(rule)]);
        let mut now = 0;
        let mut all = Vec::new();
        let mut admitted: Vec<Event> = Vec::new();
        let mut ends: Vec<(u64, u64)> = Vec::new();
        for (pause, cost, service) in traffic {
            now += pause;
            ends.retain(|&(end, call)| {
                if end <= now {
                    vendor.finish(end, call);
                }
                end > now
            });
            let event = Event::at(now).cost(cost).until(now + service);
            all.push(event);
            let verdict = vendor.arrive(now, &Call { tenant: 3, account: 2, endpoint: 0, cost });
            if verdict.admitted {
                ends.push((now + service, verdict.call));
                admitted.push(event);
            } else {
                admitted.push(event);
                prop_assert_eq!(check(&admitted, &definition).violating, 1, "refused at {} without need", now);
                admitted.pop();
            }
        }
        let report = check(&admitted, &definition);
        prop_assert!(report.is_clean(), "{:?}", report.violations.first());
        prop_assert_eq!(refused(&all, &definition), (all.len() - admitted.len()) as u64);
    }

    /// The retry time that a limiter states is the first time at which the request fits.
    #[test]
    fn time_to_retry_is_exact((rule, _) in rules(), traffic in traffic(), cost in 1u32..14) {
        let mut limiter = Limiter::new(rule);
        let mut now = 0;
        for (pause, cost, _) in traffic {
            now += pause;
            limiter.arrive(now, cost);
        }
        if let Some(at) = limiter.fits_at(now, cost) {
            prop_assert!(limiter.clone().fits(at, cost), "not at {}", at);
            if at > now {
                prop_assert!(!limiter.clone().fits(at - 1, cost), "earlier than {}", at);
            }
        }
    }

    /// A window of unknown phase is judged like the worst of all phases.
    #[test]
    fn phases_are_all_the_worst(pauses in prop::collection::vec(0u64..30, 1..60), window_ns in 1u64..60) {
        let mut now = 100;
        let log: Vec<Event> = pauses.iter().map(|pause| { now += pause; Event::at(now) }).collect();
        let limit = 0;
        let worst = |of: &dyn Fn(u64) -> Definition| (0..window_ns).map(|p| check(&log, &of(p)).peak).max();
        prop_assert_eq!(
            Some(check(&log, &Definition::FixedWindowEveryPhase { limit, window_ns }).peak),
            worst(&|phase_ns| Definition::FixedWindow { limit, window_ns, phase_ns })
        );
        prop_assert_eq!(
            Some(check(&log, &Definition::SlidingCounterEveryPhase { limit, window_ns }).peak),
            worst(&|phase_ns| Definition::SlidingCounter { limit, window_ns, phase_ns })
        );
    }
}

/// Judges a million events by each definition. `cargo test --release --all-features -p suite checker::million --
/// --nocapture` prints how long each definition takes.
#[test]
fn million_events_are_judged() {
    let log: Vec<Event> = (0..1_000_000u64).map(|i| Event::at(i * 1_000).until(i * 1_000 + 50_000)).collect();
    let window_ns = 1_000_000;
    for definition in [
        Definition::FixedWindow { limit: 1_000, window_ns, phase_ns: 17 },
        Definition::FixedWindowEveryPhase { limit: 1_000, window_ns },
        Definition::SlidingCounter { limit: 1_001, window_ns, phase_ns: 17 },
        Definition::TokenBucket { capacity: 1_000, rate: 1_000, per_ns: window_ns },
        Definition::LeakyBucket { capacity: 1_000, rate: 1_000, per_ns: window_ns },
        Definition::Concurrency { limit: 50 },
    ] {
        let clock = integration_client::clock::Clock::system();
        let began = clock.now();
        assert!(check(&log, &definition).is_clean(), "{definition:?}");
        println!("{definition:?}: {:?}", clock.now().since(began));
    }
}
