//! Processes that share a limit never exceed it, whatever happens to them and to the store, and use nearly all of it.

use std::time::Duration;

use super::world::{Case, Demand, Keeper, Outcome, Trouble, World};
use crate::config::SharingFloor;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn case(processes: usize, demand: Demand, seed: u64) -> Case {
    let vendors = "[vendors.v]\nbase_url = \"https://v.test\"\nconnect_timeout = \"1s\"\nmax_transit = \"1600ms\"\n\
                   auth = { scheme = \"bearer\" }\n[[vendors.v.limits]]\nname = \"requests\"\nlimit = 100\nwindow = \"1s\"\n\
                   algorithm = \"sliding_window\"\n";
    Case {
        vendors: vendors.to_owned(),
        limit: 100,
        window: secs(1),
        processes,
        keeper: Keeper::Server,
        every: millis(250),
        shares: true,
        demand,
        troubles: Vec::new(),
        lost: 0,
        lease: secs(10),
        floor: None,
        time: secs(60),
        seed,
    }
}

pub(super) fn run(case: Case) -> Outcome {
    let shown = format!("{case:?}");
    let outcome = World::run(case);
    println!(
        "arrived={} refused={} jain={:.3} calls={} tiers={:?}",
        outcome.arrived(),
        outcome.refused,
        outcome.jain(),
        outcome.calls,
        outcome.by_tier
    );
    assert_eq!(outcome.refused, 0, "{shown}");
    outcome
}

/// How many requests arrive from a process that has the limit to itself.
fn alone(time: Duration) -> f64 {
    f64::from(run(Case { time, shares: false, ..case(1, Demand::All, 1) }).arrived())
}

#[test]
fn equal_processes_use_the_limit_as_one_does() {
    let ceiling = alone(secs(60));
    for processes in [2, 4, 8] {
        let outcome = run(case(processes, Demand::All, 7));
        assert!(f64::from(outcome.arrived()) >= 0.95 * ceiling, "{processes}: {} of {ceiling}", outcome.arrived());
        assert!(outcome.jain() >= 0.98, "{processes}: {}", outcome.jain());
    }
}

#[test]
fn a_process_that_alone_has_demand_uses_the_whole_limit() {
    let ceiling = alone(secs(60));
    let outcome = run(case(8, Demand::First, 3));
    assert!(f64::from(outcome.arrived()) >= 0.97 * ceiling, "{} of {ceiling}", outcome.arrived());
}

#[test]
fn units_follow_the_demand() {
    let ceiling = alone(secs(60));
    let outcome = run(case(4, Demand::Moving, 5));
    assert!(f64::from(outcome.arrived()) >= 0.92 * ceiling, "{} of {ceiling}", outcome.arrived());
}

#[test]
fn tiers_have_their_shares_over_all_processes() {
    let outcome = run(Case { time: secs(120), ..case(4, Demand::Tiers, 11) });
    let all = f64::from(outcome.arrived());
    let shares = outcome.by_tier.map(|n| 100.0 * f64::from(n) / all);
    for (share, wanted) in shares.into_iter().zip([60.0, 30.0, 10.0]) {
        assert!((share - wanted).abs() <= 3.0, "{shares:?}");
    }
}

#[test]
fn nothing_is_exceeded_whatever_happens_to_a_process() {
    for (seed, trouble) in [
        (1, Trouble::Kill(0)),
        (2, Trouble::Leave(0)),
        (3, Trouble::Stop(0, millis(200))),
        (4, Trouble::Stop(0, millis(1_400))),
        (5, Trouble::Stop(0, secs(5))),
        (6, Trouble::Stop(0, secs(15))),
    ] {
        let mut it = case(4, Demand::All, seed);
        it.troubles = vec![(secs(20), trouble)];
        let outcome = run(it);
        let last: u32 = outcome.seconds[45..58].iter().sum();
        assert!(last >= 13 * 75, "{trouble:?}: {:?}", outcome.seconds);
    }
}

#[test]
fn a_process_that_leaves_is_replaced_within_two_seconds() {
    let mut it = case(4, Demand::All, 21);
    it.troubles = vec![(secs(20), Trouble::Leave(0))];
    let outcome = run(it);
    let after: u32 = outcome.seconds[22..30].iter().sum();
    assert!(after >= 8 * 76, "{:?}", outcome.seconds);
}

#[test]
fn nothing_is_exceeded_whatever_happens_to_the_store() {
    for (seed, trouble) in [
        (1, Trouble::Stall(secs(5))),
        (2, Trouble::Stall(secs(30))),
        (3, Trouble::Lose),
        (4, Trouble::Step(2_000)),
        (5, Trouble::Step(10_000)),
        (6, Trouble::Step(-10_000)),
        (7, Trouble::Rewind),
    ] {
        let mut it = case(4, Demand::Moving, seed);
        it.time = secs(120);
        it.troubles = vec![(secs(25), trouble)];
        let outcome = run(it);
        let last: u32 = outcome.seconds[100..118].iter().sum();
        assert!(last >= 18 * 70, "{trouble:?}: {:?}", outcome.seconds);
    }
}

#[test]
fn a_stall_that_is_shorter_than_the_lease_costs_nothing() {
    let mut it = case(4, Demand::All, 31);
    it.troubles = vec![(secs(20), Trouble::Stall(secs(8)))];
    let outcome = run(it);
    assert!(outcome.seconds[20..28].iter().all(|n| *n >= 60), "{:?}", outcome.seconds);
}

#[test]
fn calls_may_be_lost_and_made_twice() {
    for seed in 0..4 {
        let mut it = case(4, if seed % 2 == 0 { Demand::All } else { Demand::Moving }, 100 + seed);
        it.lost = 10;
        it.troubles = vec![(secs(20), Trouble::Stop(1, secs(12))), (secs(45), Trouble::Kill(2))];
        run(it);
    }
}

/// Negative control: the simulated vendor does notice when processes exceed the limit.
#[test]
fn processes_that_do_not_share_are_refused() {
    let outcome = World::run(Case { shares: false, ..case(2, Demand::All, 1) });
    assert!(outcome.refused > 1_000, "{}", outcome.refused);
}

/// Many hours of random troubles, for a run by hand: `SHARING_HOURS=100 cargo test --release --all-features --lib
/// random_troubles -- --nocapture`.
#[test]
fn random_troubles() {
    let hours = std::env::var("SHARING_HOURS").ok().and_then(|hours| hours.parse::<f64>().ok()).unwrap_or(0.2);
    let cases = (hours * 60.0).ceil() as u64;
    for seed in 0..cases {
        let mut random = fastrand::Rng::with_seed(seed);
        let processes = random.usize(1..9);
        let demand = random.choice([Demand::All, Demand::First, Demand::Moving, Demand::Tiers]).expect("one of four");
        let mut it = case(processes, demand, seed);
        it.lost = random.u32(0..8);
        it.lease = secs(random.u64(2..12));
        if random.bool() {
            it.floor = Some(SharingFloor::new(0.3, random.u32(1..9)));
        }
        let troubles = (0..random.u32(0..5)).map(|_| {
            let whose = random.usize(0..processes);
            let trouble = match random.u32(0..6) {
                0 => Trouble::Kill(whose),
                1 => Trouble::Stop(whose, millis(random.u64(200..20_000))),
                2 => Trouble::Leave(whose),
                3 => Trouble::Stall(millis(random.u64(100..20_000))),
                4 => Trouble::Cut(whose, millis(random.u64(100..40_000))),
                _ => Trouble::Stop(whose, millis(random.u64(200..1_500))),
            };
            (millis(random.u64(5_000..50_000)), trouble)
        });
        it.troubles = troubles.collect();
        // Either the store's clock steps once, or the store is lost once.
        let at = millis(random.u64(5_000..50_000));
        match random.u32(0..4) {
            0 => it.troubles.push((at, Trouble::Step(random.i64(-10_000..10_000)))),
            1 => it.troubles.push((at, Trouble::Lose)),
            _ => {}
        }
        run(it);
    }
}
