//! Processes that cannot reach the store go on with a part of a limit.

use std::time::Duration;

use super::simulation::{case, run};
use super::world::{Case, Demand, Outcome, Trouble};
use crate::config::SharingFloor;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Four processes that send as much as they may, under a limit of 100 a second of which each keeps 5 as its floor.
fn case_with_floor(seed: u64, time: u64) -> Case {
    let mut it = case(4, Demand::All, seed);
    it.figures.safety = 1.0;
    it.floor = Some(SharingFloor::new(0.2, 4));
    it.time = secs(time);
    it
}

fn arrivals_between(outcome: &Outcome, from: usize, to: usize) -> u32 {
    outcome.seconds.iter().skip(from).take(to - from).sum()
}

#[test]
fn processes_live_on_their_floor_during_stall() {
    let mut it = case_with_floor(1, 200);
    it.troubles = vec![(secs(20), Trouble::Stall(secs(120)))];
    let outcome = run(it);
    let away = arrivals_between(&outcome, 35, 135);
    assert!((1_700..=2_000).contains(&away), "{away} of 20 a second: {:?}", outcome.seconds);
    assert!(outcome.seconds[35..135].iter().all(|n| *n <= 20), "no burst: {:?}", outcome.seconds);
    let back = arrivals_between(&outcome, 165, 195);
    assert!(back >= 30 * 90, "{back}: {:?}", outcome.seconds);
}

#[test]
fn floor_lasts_ten_minutes() {
    let mut it = case_with_floor(2, 700);
    it.troubles = vec![(secs(20), Trouble::Stall(secs(800)))];
    let outcome = run(it);
    assert!(arrivals_between(&outcome, 590, 610) >= 300, "{:?}", outcome.seconds);
    assert_eq!(arrivals_between(&outcome, 622, 700), 0, "{:?}", outcome.seconds);
}

#[test]
fn without_a_floor_nothing_is_sent() {
    let mut it = Case { floor: None, ..case_with_floor(3, 100) };
    it.troubles = vec![(secs(20), Trouble::Stall(secs(60)))];
    assert_eq!(arrivals_between(&run(it), 32, 80), 0);
}

#[test]
fn others_get_all_but_the_floor() {
    let mut it = case_with_floor(4, 200);
    it.troubles = vec![(secs(20), Trouble::Cut(0, secs(150)))];
    let outcome = run(it);
    let meanwhile = arrivals_between(&outcome, 40, 160);
    assert!(meanwhile >= 120 * 90, "{meanwhile}: {:?}", outcome.seconds);
    assert!(outcome.by_process[0] >= 120 * 4, "{:?}", outcome.by_process);
}

/// A store that has lost its ledgers does not know a process that cannot reach it. It grants no other process the units that
/// this process may use.
#[test]
fn floor_survives_a_loss_of_ledgers() {
    for seed in 0..3 {
        let mut it = case_with_floor(5 + seed, 200);
        it.troubles = vec![(secs(20), Trouble::Cut(0, secs(170))), (secs(40), Trouble::Lose)];
        let outcome = run(it);
        let meanwhile = arrivals_between(&outcome, 70, 180);
        assert!(meanwhile >= 110 * 75, "{meanwhile}: {:?}", outcome.seconds);
        assert!(outcome.by_process[0] >= 120 * 4, "{:?}", outcome.by_process);
    }
}

/// A process without demand keeps its floor. A killed process keeps its floor from the others only until the lease
/// ends.
#[test]
fn resting_process_keeps_its_floor() {
    let mut it = case_with_floor(9, 300);
    it.demand = Demand::Moving;
    it.troubles = vec![(secs(100), Trouble::Stall(secs(100))), (secs(230), Trouble::Kill(3))];
    let outcome = run(it);
    let away = arrivals_between(&outcome, 115, 195);
    assert!(away >= 80 * 4, "{away}: {:?}", outcome.seconds);
}

#[test]
fn floors_never_exceed_their_part() {
    // Eight processes divide the part of the limit that is meant for four.
    let mut it = Case { processes: 8, ..case_with_floor(10, 100) };
    it.troubles = vec![(secs(30), Trouble::Stall(secs(60)))];
    let outcome = run(it);
    assert!(outcome.seconds[45..85].iter().all(|n| *n <= 20), "{:?}", outcome.seconds);
    assert!(arrivals_between(&outcome, 45, 85) >= 40 * 16, "{:?}", outcome.seconds);
}

/// Of ten units one is a floor. Each of 16 processes gets some units, because a unit that the store has not granted as
/// a floor goes back.
#[test]
fn units_beyond_the_floor_circulate() {
    let mut it = Case { processes: 16, ..case_with_floor(11, 100) };
    it.figures.limit = 10;
    it.floor = Some(SharingFloor::new(0.1, 16));
    let outcome = run(it);
    assert!(outcome.by_process.iter().all(|sent| *sent > 0), "{:?}", outcome.by_process);
}
