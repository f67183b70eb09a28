//! Failures of a lane in a row, and sweeps between them.

use std::time::Duration;

use super::super::pushback::Feedback;
use super::*;

fn bench() -> (Bench, LaneKey) {
    Bench::with(Plan { has_slots: false, ..plan(vec![per_second("requests", 100)]) })
}

fn fail(bench: &mut Bench, lane: LaneKey) {
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(permit, Feedback::Failed);
}

fn is_paused(bench: &Bench, lane: LaneKey) -> bool {
    bench.engine.paused_until(bench.now, lane).is_some()
}

#[test]
fn sweeps_forget_no_failures_in_a_row() {
    let (mut bench, lane) = bench();
    for number in 1..=5 {
        fail(&mut bench, lane);
        assert_eq!(is_paused(&bench, lane), number == 5, "{number}");
        bench.advance_to(bench.now + Duration::from_secs(12));
        bench.sweep(bench.now, true);
    }
}

/// A lane that has failed is evicted in the end, and one that is not swept forgets its failures at the same time.
#[test]
fn old_failures_are_forgotten() {
    for sweeps in [false, true] {
        let (mut bench, lane) = bench();
        (0..4).for_each(|_| fail(&mut bench, lane));
        bench.advance_to(bench.now + Duration::from_secs(299));
        bench.sweep(bench.now, true);
        assert_eq!(bench.engine.lane_count(), 1);
        bench.advance_to(bench.now + Duration::from_secs(2));
        if sweeps {
            bench.sweep(bench.now, true);
            assert_eq!(bench.engine.lane_count(), 0);
        } else {
            fail(&mut bench, lane);
            assert!(!is_paused(&bench, lane));
        }
    }
}
