//! The guard of a sliding counter, against the textbook one.

mod model;

use super::*;
use crate::limit::{Limiter, Rule};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 3_600 * SECOND;

fn ms(n: u64) -> Time {
    Time::from_nanos(START + n * 1_000_000)
}

fn spec() -> CounterSpec {
    CounterSpec::new(99, 100, 0, SECOND, SECOND / 10)
}

/// Whatever is taken now ends now.
fn use_up(guard: &mut WindowCounter, spec: &CounterSpec, now: Time) -> u32 {
    let mut used = 0;
    while guard.has_room(spec, now, 1, true) {
        guard.take(spec, now, 1, true);
        guard.end(spec, now, now, 1, true);
        used += 1;
    }
    used
}

#[test]
fn a_burst_weighs_for_up_to_two_windows() {
    let spec = spec();
    let mut guard = WindowCounter::new(&spec);
    assert_eq!(use_up(&mut guard, &spec, ms(0)), 99);
    assert_eq!(use_up(&mut guard, &spec, ms(1_000)), 0);
    // Half a window after the end of the window that held it, half of it is left.
    let half = use_up(&mut guard, &spec, ms(1_505));
    assert!((47..=50).contains(&half), "{half}");
    assert!(use_up(&mut guard, &spec, ms(2_100)) >= 45);
}

#[test]
fn the_promised_moment_is_the_first_that_fits() {
    let spec = CounterSpec::new(49, 50, 10, SECOND, SECOND / 10);
    let mut random = fastrand::Rng::with_seed(5);
    let mut guard = WindowCounter::new(&spec);
    let mut now = ms(0);
    let mut promises = 0;
    for _ in 0..3_000 {
        let (units, high) = (random.u32(1..4), random.bool());
        match guard.free(&spec, now, units, high) {
            Free::Now => {
                guard.take(&spec, now, units, high);
                guard.end(&spec, now, now, units, high);
            }
            Free::At(at) => {
                promises += 1;
                // Without what was worked out before.
                let fits = |at: Time| {
                    let mut fresh = guard.clone();
                    fresh.forget_known();
                    fresh.has_room(&spec, at, units, high)
                };
                assert!(at > now && fits(at), "{at:?}");
                assert!(!fits(at.minus_nanos(20_000)), "{at:?} could be earlier");
                now = at;
            }
            other => panic!("{other:?}"),
        }
        now = now.plus_nanos(random.u64(0..30_000_000) * random.u64(0..2));
    }
    assert!(promises > 500, "{promises}");
}

#[test]
fn a_vendor_of_any_phase_takes_what_it_grants_at_nearly_the_whole_rate() {
    for phase in 0..20 {
        let spec = spec();
        let rule = Rule::SlidingCounter { limit: 100, window_ns: SECOND, phase_ns: phase * 50_000_000 };
        let mut vendor = Limiter::new(rule);
        let mut guard = WindowCounter::new(&spec);
        let (mut now, mut sent) = (ms(0), 0);
        while now < ms(20_000) {
            match guard.free(&spec, now, 1, true) {
                Free::Now => {
                    guard.take(&spec, now, 1, true);
                    assert!(vendor.arrive(now.as_nanos(), 1), "phase {phase}, {now:?}");
                    guard.end(&spec, now, now, 1, true);
                    sent += 1;
                }
                Free::At(at) | Free::OnSettle(at) => now = at,
            }
        }
        // One window is lost to the burst at the start.
        assert!(sent >= 1_850, "{sent}");
    }
}

#[test]
fn a_known_phase_frees_what_is_in_the_window_before_sooner() {
    let spec = spec();
    let freed = |known: bool| {
        let mut guard = WindowCounter::new(&spec);
        if known {
            guard.begins(&spec, ms(100), ms(101));
        }
        use_up(&mut guard, &spec, ms(0));
        use_up(&mut guard, &spec, ms(600))
    };
    assert_eq!(freed(false), 0);
    let with = freed(true);
    assert!((45..=50).contains(&with), "{with}");
}

#[test]
fn what_contradicts_the_known_phase_replaces_it() {
    let spec = spec();
    let mut guard = WindowCounter::new(&spec);
    guard.begins(&spec, ms(100), ms(101));
    assert!(guard.may_begin(&spec, ms(1_100).as_nanos(), ms(1_100).as_nanos()));
    assert!(!guard.may_begin(&spec, ms(1_500).as_nanos(), ms(1_100).as_nanos()));
    guard.begins(&spec, ms(1_500), ms(1_501));
    assert!(guard.may_begin(&spec, ms(2_500).as_nanos(), ms(2_000).as_nanos()));
    guard.begins(&spec, ms(0), ms(900));
    assert!(guard.may_begin(&spec, ms(2_500).as_nanos(), ms(2_000).as_nanos()), "too wide to mean anything");
    assert!(guard.phase(&spec, ms(1_000_000).as_nanos()).is_none(), "forgotten");
}

#[test]
fn what_is_lost_or_never_left_or_cost_more() {
    let spec = spec();
    let mut guard = WindowCounter::new(&spec);
    guard.take(&spec, ms(0), 90, false);
    guard.give_back(&spec, ms(10), ms(0), 40, false);
    assert!(guard.has_room(&spec, ms(10), 49, false) && !guard.has_room(&spec, ms(10), 50, false));
    guard.owe(&spec, ms(10), 9);
    assert!(guard.has_room(&spec, ms(10), 40, false) && !guard.has_room(&spec, ms(10), 41, false));
    assert!(matches!(guard.free(&spec, ms(10), 60, false), Free::OnSettle(_)), "more than is not under way");
    // Lost after 100 ms, it counts like an end of then.
    guard.advance(&spec, ms(200));
    assert_eq!((guard.transit.units, guard.units(&spec, ms(200))), (0, 59));
    guard.advance(&spec, ms(2_300));
    assert!(guard.is_empty());
}

#[test]
fn what_is_given_back_makes_up_for_what_was_owed_first() {
    let spec = spec();
    let mut guard = WindowCounter::new(&spec);
    guard.take(&spec, ms(0), 99, true);
    guard.owe(&spec, ms(10), 20);
    guard.give_back(&spec, ms(10), ms(0), 25, true);
    assert!(guard.has_room(&spec, ms(10), 5, true) && !guard.has_room(&spec, ms(10), 6, true));
}

/// `now` and what is known then of windows of a second that began between 10 and 10.01 s.
#[test]
fn what_is_known_of_the_windows_fades_with_the_drift_of_clocks() {
    let spec = spec();
    let mut guard = WindowCounter::new(&spec);
    assert!(guard.phase(&spec, START).is_none());
    guard.begins(&spec, ms(10_000), ms(10_010));
    // A window's length is 1.1 ms more than it is, and a clock is off by a five-thousandth.
    for (away, slack_us) in [(0, 1_100), (1_000, 1_300), (2_003, 3_700), (10_012, 14_103), (20_000, 26_002)] {
        for now in [ms(10_000 + away), ms(10_000).minus_nanos(away * 1_000_000)] {
            let Phase { from, to } = guard.phase(&spec, now.as_nanos()).unwrap();
            let slack = [ms(10_000).as_nanos() - from, to - ms(10_010).as_nanos()];
            assert_eq!(slack.map(|slack| slack / 1_000), [slack_us; 2], "{away}");
        }
    }
    assert!(guard.phase(&spec, ms(200_000).as_nanos()).is_none(), "half a window wide");
    let slow = CounterSpec::new(99, 100, 0, 3_600 * SECOND, SECOND);
    guard.begins(&slow, ms(10_000), ms(10_010));
    let after = |windows: u64| Time::from_nanos(ms(10_000).as_nanos() + slow.window * windows);
    assert!(guard.phase(&slow, after(100).as_nanos()).is_some());
    assert!(guard.phase(&slow, after(100).as_nanos() + 1).is_none());
}
