//! Processes that share a limit never exceed it, whatever happens to them and to the store, and use nearly all of it.

use std::time::Duration;

use super::world::{Case, Demand, Figures, Mistake, Outcome, StoreKind, Trouble, World};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn case(processes: usize, demand: Demand, seed: u64) -> Case {
    Case {
        figures: Figures { limit: 100, window: secs(1), safety: 0.8 },
        processes,
        store_kind: StoreKind::Server,
        mistake: None,
        is_checked: true,
        every: millis(250),
        trip: Duration::ZERO,
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
fn arrivals_of_one_process(time: Duration) -> f64 {
    f64::from(run(Case { time, shares: false, ..case(1, Demand::All, 1) }).arrived())
}

#[test]
fn equal_processes_use_the_whole_limit() {
    let time = secs(120);
    let ceiling = arrivals_of_one_process(time);
    for (processes, share) in [(2, 0.97), (4, 0.97), (8, 0.97), (64, 0.9)] {
        let outcome = run(Case { time, ..case(processes, Demand::All, 7) });
        let reached = f64::from(outcome.arrived()) / ceiling;
        println!("processes={processes} demand=equal reached={reached:.3} jain={:.3}", outcome.jain());
        assert!(reached >= share, "{processes}: {reached}");
        assert!(outcome.jain() >= 0.98, "{processes}: {}", outcome.jain());
    }
}

#[test]
fn unequal_processes_use_the_whole_limit() {
    let time = secs(120);
    let ceiling = arrivals_of_one_process(time);
    for (processes, share) in [(2, 0.97), (8, 0.97), (64, 0.9)] {
        let outcome = run(Case { time, ..case(processes, Demand::Skewed, 9) });
        let reached = f64::from(outcome.arrived()) / ceiling;
        println!("processes={processes} demand=skewed reached={reached:.3}");
        assert!(reached >= share, "{processes}: {reached}");
    }
}

#[test]
fn busy_process_alone_uses_whole_limit() {
    let time = secs(120);
    let ceiling = arrivals_of_one_process(time);
    for processes in [2, 8, 64] {
        let outcome = run(Case { time, ..case(processes, Demand::First, 3) });
        let reached = f64::from(outcome.arrived()) / ceiling;
        println!("processes={processes} demand=first reached={reached:.3}");
        assert!(reached >= 0.97, "{processes}: {reached}");
    }
}

#[test]
fn units_follow_the_demand() {
    let time = secs(120);
    let ceiling = arrivals_of_one_process(time);
    for (processes, share) in [(2, 0.94), (4, 0.94), (8, 0.94), (64, 0.9)] {
        let outcome = run(Case { time, ..case(processes, Demand::Moving, 5) });
        let reached = f64::from(outcome.arrived()) / ceiling;
        println!("processes={processes} demand=moving reached={reached:.3}");
        assert!(reached >= share, "{processes}: {reached}");
    }
}

#[test]
fn tiers_have_their_shares_over_all_processes() {
    // Eight processes share the ten units of the low tier. Those with low requests alone keep two, although their part is 1.25.
    for (processes, within) in [(2, 2.0), (4, 2.0), (8, 2.5)] {
        let outcome = run(Case { time: secs(240), ..case(processes, Demand::Tiers, 11) });
        let all = f64::from(outcome.arrived());
        let shares = outcome.by_tier.map(|n| 100.0 * f64::from(n) / all);
        println!("processes={processes} demand=tiers shares={shares:.1?}");
        for (share, wanted) in shares.into_iter().zip([60.0, 30.0, 10.0]) {
            assert!((share - wanted).abs() <= within, "{processes}: {shares:?}");
        }
    }
}

#[test]
fn process_troubles_never_exceed_the_limit() {
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
fn leaving_process_is_replaced_in_two_seconds() {
    let mut it = case(4, Demand::All, 21);
    it.troubles = vec![(secs(20), Trouble::Leave(0))];
    let outcome = run(it);
    let after: u32 = outcome.seconds[22..30].iter().sum();
    assert!(after >= 8 * 76, "{:?}", outcome.seconds);
}

#[test]
fn store_troubles_never_exceed_the_limit() {
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

/// The server's clock is read in the third of five round trips of 80 ms. A ledger that trusted only the time between the
/// end of a call and the begin of the next one would count less than three quarters of the time.
#[test]
fn slow_store_frees_killed_units_in_time() {
    let mut it = case(2, Demand::All, 41);
    (it.figures.window, it.every, it.trip) = (secs(60), secs(1), millis(80));
    it.troubles = vec![(secs(100), Trouble::Kill(0))];
    // The lease, the longest way and the window, and a tenth of them.
    it.time = secs(100) + millis(10_000 + 1_600 + 60_000) * 11 / 10;
    let outcome = run(it);
    // Half of the units were those of the killed process.
    assert!(outcome.held >= 75, "the other process holds {} units", outcome.held);
}

#[test]
fn stall_within_the_lease_costs_nothing() {
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

/// What is wrong, and how it changes a case.
type Change = (&'static str, fn(Case) -> Case);

/// Negative controls.
fn mistakes() -> Vec<Change> {
    // It shows only where units change hands within the second that is lost, so there are many such seconds.
    fn rewinds() -> Vec<(Duration, Trouble)> {
        (10..110).step_by(3).map(|second| (secs(second), Trouble::Rewind)).collect()
    }
    vec![
        ("a process uses units that it has returned", |it| Case { mistake: Some(Mistake::ReturnsAfterTheCall), ..it }),
        // The time that the calling process claims falls behind a little with each call. A process that has not called for
        // 20 s then claims a later time.
        ("the store takes the processes' word for the time", |it| Case {
            store_kind: StoreKind::TrustsProcesses,
            processes: 3,
            demand: Demand::Moving,
            every: millis(50),
            time: secs(100),
            ..it
        }),
        ("a process does not know its answers, and the store goes back", |it| Case {
            mistake: Some(Mistake::KnowsNoAnswer),
            demand: Demand::Bursts,
            troubles: rewinds(),
            ..it
        }),
        ("the store's clock gains more than the slack", |it| Case {
            troubles: vec![(secs(5), Trouble::Slew(1_000_000, secs(100)))],
            ..it
        }),
    ]
}

/// A case that a mistake makes worse.
fn case_for_mistakes(seed: u64) -> Case {
    let it = case(4, if seed.is_multiple_of(2) { Demand::Moving } else { Demand::Bursts }, seed);
    Case { figures: Figures { safety: 1.0, ..it.figures }, time: secs(120), ..it }
}

#[test]
fn mistakes_exceed_the_limit() {
    for (what, change) in mistakes() {
        let refused =
            (0..16).map(|seed| World::run(Case { is_checked: false, ..change(case_for_mistakes(seed)) }).refused);
        let refused = refused.sum::<u32>();
        println!("{what}: refused={refused}");
        assert!(refused > 0, "{what}");
    }
}

#[test]
fn mistakes_violate_an_invariant() {
    for (what, change) in mistakes() {
        let violates = |seed| std::panic::catch_unwind(|| World::run(change(case_for_mistakes(seed)))).is_err();
        assert!((0..4).any(violates), "{what}");
    }
}

/// The same cases without the mistakes, and a store that goes back.
#[test]
fn correct_processes_never_exceed_the_limit() {
    for seed in 0..4 {
        run(case_for_mistakes(seed));
        let troubles = (10..110).step_by(20).map(|second| (secs(second), Trouble::Rewind)).collect();
        run(Case { troubles, ..case_for_mistakes(seed) });
    }
}

/// Negative control: the simulated vendor does notice when processes exceed the limit.
#[test]
fn processes_without_sharing_exceed_the_limit() {
    let outcome = World::run(Case { shares: false, ..case(2, Demand::All, 1) });
    assert!(outcome.refused > 1_000, "{}", outcome.refused);
}
