//! The guard of a sliding counter, against the textbook one.

mod model;

use super::*;
use crate::testing::limit::{Limiter, Rule};

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

/// Without what was worked out before.
fn fits(guard: &WindowCounter, spec: &CounterSpec, at: Time, units: u32, high: bool) -> bool {
    let mut fresh = guard.clone();
    fresh.forget_known();
    fresh.has_room(spec, at, units, high)
}

#[test]
fn burst_weighs_up_to_two_windows() {
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
fn promised_moment_is_the_earliest() {
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
                assert!(at > now && fits(&guard, &spec, at, units, high), "{at:?}");
                assert!(!fits(&guard, &spec, at.minus_nanos(20_000), units, high), "{at:?} could be earlier");
                now = at;
            }
            other => panic!("{other:?}"),
        }
        now = now.plus_nanos(random.u64(0..30_000_000) * random.u64(0..2));
    }
    assert!(promises > 500, "{promises}");
}

#[test]
fn promised_moment_is_earliest_with_known_windows() {
    let spec = CounterSpec::new(49, 50, 0, SECOND, SECOND / 100);
    let mut promises = 0;
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut guard = WindowCounter::new(&spec);
        let from = random.u64(0..900);
        guard.begins(&spec, ms(from), ms(from + [1, 40, 200][seed as usize % 3]));
        let mut now = ms(0);
        while now < ms(6_000) {
            let units = random.u32(1..4);
            match guard.free(&spec, now, units, true) {
                Free::Now => {
                    guard.take(&spec, now, units, true);
                    guard.end(&spec, now, now, units, true);
                }
                Free::At(at) => {
                    promises += 1;
                    assert!(at > now && fits(&guard, &spec, at, units, true), "seed {seed}: not at {at:?}");
                    // What clocks drift until then is not known yet.
                    let drift = 40_000 + crate::time::nanos(at.since(now)) / 4_000;
                    let earlier = at.minus_nanos(drift);
                    assert!(!fits(&guard, &spec, earlier, units, true), "seed {seed}: earlier than {at:?}");
                    now = at;
                }
                other => panic!("{other:?}"),
            }
            now = now.plus_nanos(random.u64(0..40_000_000) * random.u64(0..2));
        }
    }
    assert!(promises > 1_000, "{promises}");
}

#[test]
fn grants_suit_a_vendor_of_any_phase() {
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
fn known_phase_frees_the_previous_window_sooner() {
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
fn contradicting_report_replaces_the_known_phase() {
    let spec = spec();
    let mut guard = WindowCounter::new(&spec);
    guard.begins(&spec, ms(100), ms(101));
    assert!(guard.may_begin(&spec, ms(1_100).as_nanos(), ms(1_100).as_nanos()));
    assert!(!guard.may_begin(&spec, ms(1_500).as_nanos(), ms(1_100).as_nanos()));
    guard.begins(&spec, ms(1_500), ms(1_501));
    assert!(guard.may_begin(&spec, ms(2_500).as_nanos(), ms(2_000).as_nanos()));
    for (from, to, what) in [(0, 900, "too wide to mean anything"), (1_900, 1_899, "turned round")] {
        guard.begins(&spec, ms(from), ms(to));
        assert!(guard.may_begin(&spec, ms(2_500).as_nanos(), ms(2_000).as_nanos()), "{what}");
        assert!(!guard.may_begin(&spec, ms(2_000).as_nanos(), ms(2_000).as_nanos()), "{what}");
    }
    assert!(guard.phase(&spec, ms(1_000_000).as_nanos()).is_none(), "forgotten");
}

#[test]
fn guard_counts_lost_returned_and_owed_units() {
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
fn returned_units_settle_owed_ones_first() {
    let spec = spec();
    let mut guard = WindowCounter::new(&spec);
    guard.take(&spec, ms(0), 99, true);
    guard.owe(&spec, ms(10), 20);
    guard.give_back(&spec, ms(10), ms(0), 25, true);
    assert!(guard.has_room(&spec, ms(10), 5, true) && !guard.has_room(&spec, ms(10), 6, true));
}

/// `now` and what is known then of windows of a second that began between 10 and 10.01 s.
#[test]
fn known_phase_fades_with_clock_drift() {
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
    for (width, known) in [(0, true), (498_349_779, true), (498_349_780, false)] {
        let mut guard = WindowCounter::new(&spec);
        guard.begins(&spec, ms(0), ms(0).plus_nanos(width));
        assert_eq!(guard.phase(&spec, START).is_some(), known, "with its slack, {width} is less than half a window");
        assert!(width == 0 || guard.phase(&spec, ms(30_000).as_nanos()).is_none(), "it has grown since");
    }
    let slow = CounterSpec::new(99, 100, 0, 3_600 * SECOND, SECOND);
    guard.begins(&slow, ms(10_000), ms(10_010));
    let after = |windows: u64| Time::from_nanos(ms(10_000).as_nanos() + slow.window * windows);
    assert!(guard.phase(&slow, after(100).as_nanos()).is_some());
    assert!(guard.phase(&slow, after(100).as_nanos() + 1).is_none());
}

#[test]
fn known_windows_repeat_in_both_directions() {
    let spec = spec();
    let mut guard = WindowCounter::new(&spec);
    guard.begins(&spec, ms(10_000), ms(10_010));
    let now = ms(10_000).as_nanos();
    let phase = guard.phase(&spec, now).unwrap();
    let width = phase.to - phase.from;
    for number in 0..9 {
        let first = phase.from + number * spec.window - 4 * spec.window;
        let may = [first - 1, first, first + width, first + width + 1].map(|at| guard.may_begin(&spec, at, now));
        assert_eq!(may, [false, true, true, false], "{number}");
        let last = first + width;
        for (now, last) in [(last, last), (last + spec.window - 1, last), (last - 1, last - spec.window)] {
            assert_eq!(latest(&phase, spec.window, now), last, "{number}");
        }
    }
}

/// What is heard a window after it was known that one begins between 10 and 10.01 s.
#[test]
fn better_or_contradicting_phase_replaces_the_known() {
    let spec = spec();
    for (from, to, replaces) in [(2, 8, true), (-30, 5, false), (5, 40, false), (300, 340, true), (300, 302, true)] {
        let mut guard = WindowCounter::new(&spec);
        guard.begins(&spec, ms(10_000), ms(10_010));
        let begin = ms(10_000).as_nanos() + spec.window;
        let [from, to] = [from, to].map(|at: i64| Time::from_nanos(begin.wrapping_add_signed(at * 1_000_000)));
        guard.begins(&spec, from, to);
        let heard = guard.phase.is_some_and(|phase| (phase.from, phase.to) == (from.as_nanos(), to.as_nanos()));
        assert_eq!(heard, replaces, "{from:?} {to:?}");
    }
}

/// What ended at the very first moment at which the window may have begun is in it.
#[test]
fn window_includes_its_first_moment() {
    let spec = spec();
    let end = START.next_multiple_of(spec.slot);
    for (later, full) in [(0, true), (1, false)] {
        let mut guard = WindowCounter::new(&spec);
        guard.owe(&spec, Time::from_nanos(end), 99);
        // What clocks may have drifted by half a second later is known.
        let from = Time::from_nanos(end + later + 1_200_110);
        guard.begins(&spec, from, from.plus_nanos(1_000_000));
        let now = from.plus_nanos(500_000_000);
        assert_eq!(guard.phase(&spec, now.as_nanos()).map(|phase| phase.from), Some(end + later));
        assert_eq!(guard.held(&spec, now.as_nanos()) >= 99.0, full);
    }
}

#[test]
fn used_reserve_counts_for_one_window() {
    // Of nine five are held back at any moment.
    let spec = CounterSpec::new(20, 20, 9, SECOND, SECOND / 10);
    let mut guard = WindowCounter::new(&spec);
    let end = Time::from_nanos(START.next_multiple_of(spec.slot));
    for _ in 0..2 {
        guard.take(&spec, end, 1, true);
        guard.end(&spec, end, end, 1, true);
    }
    guard.take(&spec, end, 1, true);
    let held_back =
        [0, spec.window - 1, spec.window].map(|after| guard.held_back(&spec, end.as_nanos() + after, false));
    assert_eq!((held_back, guard.held_back(&spec, end.as_nanos(), true)), ([2, 2, 4], 0));
    assert!(!WindowCounter::new(&self::spec()).only_reserve_lacks(&self::spec(), end, 1), "there is none");
}

/// How long to wait is a question of time alone, or of what is under way as well.
#[test]
fn long_wait_depends_on_pending_units() {
    // Of 99: so many ended, and when; so many are under way; so many are asked for.
    for (ended, at, under_way, asked, phase, settles) in [
        (99, 0, 0, 10, false, false),
        (99, 0, 0, 50, false, false),
        (89, 0, 10, 10, false, true),
        (90, 0, 9, 1, true, true),
        (90, 0, 0, 20, true, false),
        (95, 1_100, 20, 1, false, false),
        (9, 0, 90, 20, false, true),
    ] {
        let spec = spec();
        let mut guard = WindowCounter::new(&spec);
        guard.owe(&spec, ms(0), ended);
        if phase {
            guard.begins(&spec, ms(500), ms(501));
        }
        let now = ms(at);
        guard.take(&spec, now, under_way, true);
        let free = guard.free(&spec, now, asked, true);
        assert!(free != Free::Now, "{ended} {under_way} {asked}");
        assert_eq!(matches!(free, Free::OnSettle(_)), settles, "{ended} {under_way} {asked}: {free:?}");
    }
}

/// Working out how much fits is one pass over all; once little does, how long to wait is asked first.
#[test]
fn room_is_computed_once() {
    let spec = spec();
    for (used, full) in [(0, false), (92, false), (93, true), (99, true)] {
        let mut guard = WindowCounter::new(&spec);
        guard.owe(&spec, ms(0), used);
        guard.forget_known();
        let room = guard.has_room(&spec, ms(0), 1, true);
        assert_eq!((room, guard.known, guard.full), (used < 99, 99 - used, full), "{used}");
        guard.advance(&spec, ms(2_100));
        assert!(!guard.full);
    }
    // At the full rate it stays full.
    let mut guard = WindowCounter::new(&spec);
    for now in (0..10_000).map(ms) {
        use_up(&mut guard, &spec, now);
    }
    assert!(guard.full);
}

#[test]
fn counter_keeps_two_windows_in_slots() {
    let spec = CounterSpec::new(100_000, 100_000, 0, SECOND, SECOND / 10);
    let mut guard = WindowCounter::new(&spec);
    for n in 0..10_000 {
        let now = ms(n);
        guard.take(&spec, now, 2, true);
        guard.end(&spec, now, now, 2, true);
    }
    let (ended, lines) = (guard.ended.len(), guard.lines.len());
    assert!((510..=514).contains(&ended) && (510..=514).contains(&lines), "{ended} {lines}");
    assert!(guard.ended.iter().all(|ended| ended.high == ended.units));
    assert_eq!(guard.units_since(Time::from_nanos(0)), guard.ended.iter().map(|ended| ended.units).sum::<u32>());
}
