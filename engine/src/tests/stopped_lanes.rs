//! Which lanes a refusal visits.

use super::super::pushback::Feedback;
use super::super::throttle::Wait;
use super::*;

const LANES: usize = 10_000;

#[test]
fn repeated_refusal_visits_no_waiting_lane() {
    let account = vec![bucket("requests", 200, 1.0)];
    let plan = Arc::new(with_shared(Plan { has_slots: false, ..plan(Vec::new()) }, account, Vec::new()));
    let mut bench = Bench::new();
    let lanes: Vec<LaneKey> = (0..LANES).map(|n| bench.lane(&format!("tenant {n}"), "account", &plan)).collect();
    let permits: Vec<PermitKey> =
        lanes.iter().take(200).map(|lane| bench.submit_granted(*lane, ask(Tier::High))).collect();
    for lane in &lanes {
        bench.submit_waiting(*lane, ask(Tier::High));
    }
    bench.now = ms(100);
    let mut visits = Vec::new();
    for (n, permit) in permits.into_iter().enumerate() {
        // They come one by one, and the last says that it takes longer.
        bench.now = bench.now.plus_nanos(1_000_000);
        let seconds = if n < 199 { 10 } else { 20 };
        let before = bench.engine.waiters.visits;
        bench.on_response(permit, Feedback::Refused(Wait::Stated(seconds * SECOND), None));
        visits.push(bench.engine.waiters.visits - before);
    }
    assert!(visits[0] >= LANES as u64, "{}", visits[0]);
    assert!(visits[1..199].iter().all(|visits| *visits <= 2), "{visits:?}");
    assert!(visits[199] >= LANES as u64, "{}", visits[199]);
}
