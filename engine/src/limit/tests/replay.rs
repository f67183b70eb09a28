//! What another process sent, counted in any order.

use super::*;
use crate::limit::guard::{Guard, Taken};

/// Moments, units and tiers of 120 requests within two windows and a half before `ms(0)`, oldest first.
fn past_requests(random: &mut fastrand::Rng) -> Vec<Taken> {
    let mut ages: Vec<u64> = (0..120).map(|_| random.u64(0..2_500 * MS)).collect();
    ages.sort_unstable_by(|one, other| other.cmp(one));
    let taken = |age| Taken { granted: ms(0).minus_nanos(age), units: random.u32(1..4), high: random.bool() };
    ages.into_iter().map(taken).collect()
}

fn guard_by_replay(spec: &GuardSpec, past: &[Taken]) -> Guard {
    let mut guard = Guard::new(spec).unwrap();
    past.iter().for_each(|taken| guard.replay(spec, ms(0), *taken));
    guard
}

/// The guard of a process that sent all of it itself, each answered at once.
fn guard_by_sending(spec: &GuardSpec, past: &[Taken]) -> Guard {
    let mut guard = Guard::new(spec).unwrap();
    for taken in past {
        guard.units(spec, taken.granted);
        guard.take(spec, *taken);
        guard.end(spec, taken.granted, *taken);
    }
    guard
}

fn specs() -> Vec<GuardSpec> {
    let merging = GuardSpec::Log(LogSpec::new(5_000, 100, SECOND, TRANSIT));
    guards().into_iter().chain([merging]).collect()
}

/// Units inside at moments after the present, 2 ms apart.
fn units_over_time(guard: &Guard, spec: &GuardSpec) -> Vec<u32> {
    let mut guard = guard.clone();
    (0..1_200).map(|step| guard.units(spec, ms(2 * step))).collect()
}

#[test]
fn replayed_requests_count_in_any_order() {
    let mut random = fastrand::Rng::with_seed(17);
    for _ in 0..20 {
        for spec in specs() {
            let mut past = past_requests(&mut random);
            let lived = units_over_time(&guard_by_sending(&spec, &past), &spec);
            let in_order = units_over_time(&guard_by_replay(&spec, &past), &spec);
            random.shuffle(&mut past);
            let shuffled = units_over_time(&guard_by_replay(&spec, &past), &spec);
            match spec {
                GuardSpec::Log(log) => {
                    assert_eq!(shuffled, in_order, "{spec:?}");
                    if log.limit > 1_000 {
                        // A process that sends merges its own ends into wider slots while it is far from the limit.
                        continue;
                    }
                    // A slot of 1/256 of the window is freed with its last entry: 2 steps of 2 ms later.
                    for (step, lived) in lived.iter().enumerate() {
                        assert!(shuffled[step] >= *lived, "{spec:?} at {step}");
                        assert!(shuffled.get(step + 2).is_none_or(|recalled| recalled <= lived), "{spec:?} at {step}");
                    }
                }
                GuardSpec::Counter(_) => assert_eq!((&shuffled, &in_order), (&lived, &lived), "{spec:?}"),
                GuardSpec::Bucket(bucket) => {
                    // More than the whole bucket cannot be missing.
                    let enough = lived[0].min(bucket.capacity);
                    assert!((enough..=bucket.capacity).contains(&shuffled[0]), "{} {enough}", shuffled[0]);
                    assert_eq!(in_order[0], enough);
                }
                GuardSpec::Off => {}
            }
        }
    }
}

#[test]
fn replayed_requests_join_pending_ones() {
    for spec in specs() {
        let mut guard = Guard::new(&spec).unwrap();
        let here = Taken { granted: ms(0), units: 3, high: false };
        guard.take(&spec, here);
        guard.replay(&spec, ms(10), Taken { granted: ms(0).minus_nanos(100 * MS), units: 4, high: true });
        assert!((6..=7).contains(&guard.units(&spec, ms(10))), "{spec:?} {}", guard.units(&spec, ms(10)));
        guard.end(&spec, ms(20), here);
        assert!((6..=7).contains(&guard.units(&spec, ms(20))), "{spec:?} {}", guard.units(&spec, ms(20)));
        assert!(guard.rests(&spec, ms(3_000)), "{spec:?}");
    }
}

#[test]
fn replay_survives_extreme_numbers() {
    for spec in specs() {
        let mut guard = Guard::new(&spec).unwrap();
        for age in [0, 5 * MS, 900 * MS, u64::MAX] {
            for units in [u32::MAX, 0, 1, u32::MAX - 1] {
                let taken = Taken { granted: ms(0).minus_nanos(age), units, high: units % 2 == 1 };
                guard.replay(&spec, ms(0), taken);
                guard.replay(&spec, ms(0), Taken { granted: Time::MAX, ..taken });
            }
        }
        assert!(!guard.has_room(&spec, ms(1), 1, true), "{spec:?}");
        guard.take(&spec, Taken { granted: ms(2), units: 0, high: false });
        guard.rests(&spec, ms(100_000));
    }
}
