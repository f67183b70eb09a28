//! Processes with differing clocks share a limit of a minute through a store that can compare and swap but has no
//! clock.

use std::time::Duration;

use super::world::{Case, Demand, Figures, Outcome, StoreKind, Trouble, World};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn case(processes: usize, demand: Demand, seed: u64) -> Case {
    Case {
        figures: Figures { limit: 100, window: secs(60), safety: 0.8 },
        processes,
        store_kind: StoreKind::Swaps,
        mistake: None,
        is_checked: true,
        every: secs(5),
        trip: Duration::ZERO,
        shares: true,
        demand,
        troubles: Vec::new(),
        lost: 0,
        lease: secs(30),
        floor: None,
        time: secs(1_200),
        seed,
    }
}

fn run(case: Case) -> Outcome {
    let shown = format!("{case:?}");
    let outcome = World::run(case);
    let (arrived, jain, calls) = (outcome.arrived(), outcome.jain(), outcome.calls);
    println!("arrived={arrived} refused={} jain={jain:.3} calls={calls}", outcome.refused);
    assert_eq!(outcome.refused, 0, "{shown}");
    outcome
}

/// Arrivals in `count` minutes, starting with minute `first`. The vendor allows 100 per minute.
fn arrivals_in_minutes(outcome: &Outcome, first: usize, count: usize) -> u32 {
    outcome.seconds.iter().skip(first * 60).take(count * 60).sum()
}

#[test]
fn equal_processes_use_the_whole_limit() {
    let ceiling = f64::from(run(Case { shares: false, ..case(1, Demand::All, 1) }).arrived());
    for processes in [2, 4, 8] {
        let outcome = run(case(processes, Demand::All, 7));
        assert!(f64::from(outcome.arrived()) >= 0.9 * ceiling, "{processes}: {} of {ceiling}", outcome.arrived());
        assert!(outcome.jain() >= 0.95, "{processes}: {}", outcome.jain());
    }
}

#[test]
fn units_follow_the_demand() {
    let outcome = run(case(4, Demand::Moving, 5));
    assert!(arrivals_in_minutes(&outcome, 1, 18) >= 18 * 70, "{:?}", outcome.seconds);
}

#[test]
fn troubles_without_clock_never_exceed_limit() {
    for (seed, trouble) in [
        (1, Trouble::Kill(0)),
        (2, Trouble::Leave(0)),
        (3, Trouble::Stop(0, Duration::from_millis(1_400))),
        (4, Trouble::Stop(0, secs(20))),
        (5, Trouble::Stop(0, secs(90))),
        (6, Trouble::Stall(secs(20))),
        (7, Trouble::Stall(secs(120))),
        (8, Trouble::Rewind),
        (9, Trouble::Step(10_000)),
        (10, Trouble::Step(-10_000)),
    ] {
        let mut it = case(4, Demand::All, seed);
        it.troubles = vec![(secs(300), trouble)];
        let outcome = run(it);
        assert!(arrivals_in_minutes(&outcome, 12, 7) >= 7 * 65, "{trouble:?}: {:?}", outcome.seconds);
    }
}

#[test]
fn random_troubles_without_a_clock() {
    let hours = std::env::var("SHARING_HOURS").ok().and_then(|hours| hours.parse::<f64>().ok()).unwrap_or(6.0);
    for seed in 0..(hours * 3.0).ceil() as u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let processes = random.usize(1..7);
        let demand = random.choice([Demand::All, Demand::First, Demand::Moving, Demand::Tiers]).expect("one of four");
        let mut it = case(processes, demand, seed);
        it.lost = random.u32(0..8);
        it.every = secs(random.u64(1..6));
        it.lease = secs(random.u64(10..61));
        let troubles = (0..random.u32(0..6)).map(|_| {
            let whose = random.usize(0..processes);
            let trouble = match random.u32(0..4) {
                0 => Trouble::Kill(whose),
                1 => Trouble::Leave(whose),
                2 => Trouble::Stall(Duration::from_millis(random.u64(100..90_000))),
                _ => Trouble::Stop(whose, Duration::from_millis(random.u64(200..90_000))),
            };
            (secs(random.u64(20..1_000)), trouble)
        });
        it.troubles = troubles.collect();
        // The clocks of the store's servers step once.
        it.troubles.push((secs(random.u64(20..1_000)), Trouble::Step(random.i64(-10_000..10_000))));
        run(it);
    }
}

/// Negative control: the limit is exceeded if each process takes its own clock for the store's.
#[test]
fn comparing_clocks_exceeds_the_limit() {
    let mut refused = 0;
    for seed in 0..5 {
        let it = Case { store_kind: StoreKind::SwapsByOwnClock, is_checked: false, ..case(4, Demand::Moving, seed) };
        refused += World::run(it).refused;
    }
    println!("refused={refused}");
    assert!(refused > 0);
}

/// Negative control: the limit is exceeded if the dates of answers are wrong by more than the margin allows.
#[test]
fn dates_wrong_by_minutes_exceed_the_limit() {
    // The clocks step while units move from the first process to the second, which then has all of the demand.
    let when = |seed| secs(600) + Duration::from_millis(300 * seed);
    let step = |seed| Case { troubles: vec![(when(seed), Trouble::Step(300_000))], ..case(4, Demand::Moving, seed) };
    let refused: u32 = (0..20).map(|seed| World::run(step(seed)).refused).sum();
    println!("refused={refused}");
    assert!(refused > 0);
}
