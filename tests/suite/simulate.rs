//! The engine against vendors of every algorithm in virtual time, as in `examples/simulate.rs`: no request is refused,
//! nearly all of each limit is used, and with the guards switched off the vendors do refuse.
#![allow(clippy::print_stdout, reason = "figures are printed")]

use std::time::Duration;

use integration_client::Priority;
use integration_client::testing::saturation::{
    Case, Cell, Counting, Figures, LimitScope, Outcome, Scene, Travel, saturate,
};

const SECOND: Duration = Duration::from_secs(1);

fn run(case: &Case, requests: u64, seed: u64) -> Outcome {
    saturate(case, requests, seed).expect("the case is valid")
}

#[test]
fn vendors_never_refuse_whatever_happens() {
    for counting in Counting::ALL {
        for (number, travel) in Travel::ALL.into_iter().enumerate() {
            for safety in [0.8, 1.0] {
                let case = Case::new(counting, 100, SECOND, safety, travel).troubled();
                let outcome = run(&case, 3_000, number as u64);
                assert_eq!((outcome.requests, outcome.refused), (3_000, 0), "{case:?}");
            }
        }
    }
}

#[test]
fn without_its_guard_every_vendor_refuses() {
    // `UnknownBucket` sends only a tenth of its limit at once, so it keeps to the limit even without a guard.
    for counting in Counting::ALL.into_iter().filter(|counting| *counting != Counting::UnknownBucket) {
        let refused = |guarded: bool| -> u64 {
            let cases = Travel::ALL.map(|travel| Case::new(counting, 100, SECOND, 1.0, travel).troubled());
            let cases = cases.into_iter().map(|case| if guarded { case } else { case.without_guard() });
            cases.map(|case| run(&case, 5_000, 3).refused).sum()
        };
        assert_eq!(refused(true), 0, "{counting:?}");
        // A bucket that is smaller by one lump fails only because of clock drift, after an hour.
        let drifting = Case::new(counting, 100, SECOND, 1.0, Travel::Instant).without_guard();
        let drifts = || (0..4).map(|seed| run(&drifting, 400_000, seed).refused).sum::<u64>();
        assert!(refused(false) > 0 || drifts() > 0, "{counting:?}: the checks could not fail");
    }
}

#[test]
fn nearly_all_of_a_limit_is_used() {
    for travel in Travel::ALL {
        let window = SECOND.as_nanos() as f64;
        let possible = window / (window + travel.mean_round_trip_ns() as f64);
        let used = |counting: Counting, least: f64| {
            let outcome = run(&Case::new(counting, 100, SECOND, 1.0, travel), 40_000, 1);
            println!(
                "{} {}: {:.2} % used, {:.2} % at least",
                counting.name(),
                travel.name(),
                outcome.share,
                100.0 * least
            );
            assert_eq!(outcome.refused, 0);
            // The run may end in the middle of the last window.
            assert!(outcome.share >= 100.0 * least - 0.25, "{counting:?} {travel:?}: {:.2}", outcome.share);
        };
        used(Counting::FixedWindow, 0.99 * possible);
        used(Counting::SlidingWindow, 0.99 * possible);
        used(Counting::FixedWindowPhaseKnown, 0.99);
        used(Counting::SlidingCounter, 0.96 * possible);
        used(Counting::SlidingCounterPhaseKnown, 0.96 * possible);
        used(Counting::TokenBucket, 0.99);
        used(Counting::LeakyBucket, 0.99);
        used(Counting::LumpedRefill, 0.99);
    }
}

#[test]
fn lower_tiers_use_their_whole_share() {
    for counting in Counting::ALL {
        for travel in [Travel::Instant, Travel::EachWay, Travel::Bunched] {
            let outcome = run(&Case::new(counting, 100, SECOND, 0.8, travel).of(Priority::Normal), 40_000, 1);
            println!("{} {}: {:.2} % used", counting.name(), travel.name(), outcome.share);
            assert_eq!(outcome.refused, 0);
            assert!(outcome.share >= 79.0, "{counting:?} {travel:?}: {:.2}", outcome.share);
        }
    }
}

#[test]
fn sliding_counter_use_equals_an_oracles() {
    let minute = 60 * SECOND;
    for counting in [Counting::SlidingCounter, Counting::SlidingCounterPhaseKnown] {
        let outcome = run(&Case::new(counting, 1_000, minute, 1.0, Travel::EachWay), 400_000, 2);
        println!("{}: {:.2} % used, the oracle {:.2} %", counting.name(), outcome.share, outcome.oracle);
        assert_eq!(outcome.refused, 0);
        assert!(outcome.share >= 0.99 * outcome.oracle, "{counting:?}: {outcome:?}");
    }
}

#[test]
fn same_seed_gives_the_same_trace() {
    let case = Case::new(Counting::UnknownCounter, 100, SECOND, 0.8, Travel::Bimodal).troubled();
    let [once, again, other] = [7, 7, 8].map(|seed| run(&case, 2_000, seed));
    assert_eq!(once, again);
    assert_ne!(once.trace, other.trace);
}

/// The worst figures of `throttle = "adaptive"` with a window of one second, for each scope and each way of counting.
fn figures_of_shared_key(scene: Scene) -> Vec<(Cell, Figures)> {
    let mut all = Vec::new();
    for (scope, counting) in LimitScope::ALL.into_iter().flat_map(|scope| Cell::COUNTINGS.map(|of| (scope, of))) {
        let cell = Cell { scene, counting, scope, window_s: 1, throttle: "adaptive", phases: 1 };
        // What a scope changes shows with one latency.
        let runs = if scope == LimitScope::Tenant { cell.runs() } else { cell.runs_with(&[Travel::EachWay]) };
        let figures = Figures::of(&runs.expect("the case is valid"));
        println!("{} {} {}: {figures}", scene.name(), scope.name(), counting.name());
        all.push((cell, figures));
    }
    all
}

#[test]
fn headers_slow_nobody_down_who_is_alone() {
    for (cell, figures) in figures_of_shared_key(Scene::Alone) {
        assert!(figures.least >= 97.0 && figures.refused == 0.0, "{cell:?}: {figures}");
    }
}

/// Another user takes half of the key's limit for twenty windows, and headers show that. For logs and counters that are
/// full when the other user begins, several requests are under way, so their bounds are wider.
#[test]
fn others_keep_their_share() {
    use Counting::{FixedWindow, LeakyBucket, LumpedRefill, TokenBucket, UnknownBucket, UnknownWindow};
    let holding = [FixedWindow, TokenBucket, LeakyBucket, LumpedRefill, UnknownWindow, UnknownBucket];
    for (cell, figures) in figures_of_shared_key(Scene::Beside) {
        let wanted = if holding.contains(&cell.counting) { (95.0, 1.0) } else { (87.0, 3.0) };
        assert!(figures.least >= wanted.0 && figures.refused <= wanted.1, "{cell:?}: {figures}");
    }
}

/// Two clients that share only the key: bounds on the use of both together, on the smaller share, and on refusals a
/// minute. If requests take no time, the first client that fills a log takes all units that the log frees, before the
/// other one can ask.
#[test]
fn two_clients_share_one_limit_evenly() {
    use Counting::{FixedWindow, LeakyBucket, LumpedRefill, SlidingCounter, TokenBucket, UnknownWindow};
    for (cell, figures) in figures_of_shared_key(Scene::Two) {
        let (refused, split) = match cell.counting {
            TokenBucket | LeakyBucket | LumpedRefill => (0.0, 40.0),
            FixedWindow | UnknownWindow => (4.0, 40.0),
            SlidingCounter => (6.5, 40.0),
            _ => (60.0, 0.0),
        };
        let holds = figures.least >= 88.0 && figures.split >= split && figures.refused <= refused;
        assert!(holds, "{cell:?}: {figures}");
    }
}
