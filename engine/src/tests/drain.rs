//! Units that cannot move while they are used: a process that always has requests waiting gives up what it may not
//! keep.

use std::collections::VecDeque;

use super::pool::{give, wishes};
use super::*;
use crate::limit::vendor_bucket::VendorBucketSpec;
use crate::limit::window_counter::CounterSpec;
use crate::limit::{Got, Pooled};

const MS: u64 = 1_000_000;
const POOLED: Option<Pooled> = Some(Pooled { lasts_ns: 30 * SECOND, floor: None });

fn plan_with_slots(limit: u32) -> Arc<Plan> {
    Arc::new(plan(vec![LimitSpec { pooled: POOLED, ..slots("at once", limit) }]))
}

/// A process whose requests wait for slots of a limit, and those that are under way.
struct Saturated {
    bench: Bench,
    under_way: VecDeque<PermitKey>,
}

impl Saturated {
    /// Holds `units` of `limit` slots, and uses them.
    fn new(limit: u32, units: u32) -> Saturated {
        let mut bench = Bench::new();
        let lane = bench.lane("acme", "acme", &plan_with_slots(limit));
        for _ in 0..100 {
            bench.submit_waiting(lane, ask(Tier::Normal));
        }
        give(&mut bench, units, units);
        let mut saturated = Saturated { bench, under_way: VecDeque::new() };
        saturated.start();
        assert_eq!(saturated.under_way.len(), units as usize);
        saturated
    }

    fn start(&mut self) {
        for (_, waiter) in self.bench.run(self.bench.now) {
            let Claim::Started(permit, _) = self.bench.engine.claim(self.bench.now, waiter) else { panic!() };
            self.under_way.push_back(permit);
        }
    }

    /// The oldest request ends, and then the process calls the store. Returns what it claims.
    fn finish_one(&mut self) -> u32 {
        let permit = self.under_way.pop_front().expect("a request under way");
        self.bench.engine.finished(self.bench.now, permit);
        self.start();
        wishes(&mut self.bench).remove(0).2.claim
    }
}

#[test]
fn saturated_process_gives_slots_back() {
    let mut process = Saturated::new(10, 10);
    give(&mut process.bench, 0, 5);
    let claims: Vec<u32> = (0..10).map(|_| process.finish_one()).collect();
    assert_eq!(claims, [9, 8, 7, 6, 5, 5, 5, 5, 5, 5]);
    assert_eq!(process.under_way.len(), 5, "it uses all that it may keep");
    give(&mut process.bench, 5, 10);
    process.start();
    assert_eq!(process.under_way.len(), 10, "it has the limit to itself again");
}

#[test]
fn lowered_limit_binds_saturated_processes() {
    let under_way = [5, 5].map(|units| {
        let mut process = Saturated::new(10, units);
        process.bench.lane("acme", "acme", &plan_with_slots(4));
        give(&mut process.bench, 0, 2);
        for _ in 0..units {
            process.finish_one();
        }
        process.under_way.len()
    });
    assert_eq!(under_way, [2, 2]);
}

#[test]
fn last_slot_goes_back_after_its_turn() {
    let mut process = Saturated::new(1, 1);
    give(&mut process.bench, 0, 0);
    assert_eq!(process.finish_one(), 0);
    assert!(process.under_way.is_empty());
    give(&mut process.bench, 1, 1);
    process.start();
    assert_eq!(process.under_way.len(), 1, "its next turn");
}

#[test]
fn idle_process_uses_its_slot_again() {
    let (mut bench, lane) = Bench::with(Arc::unwrap_or_clone(plan_with_slots(10)));
    let (waiter, _) = bench.submit_waiting(lane, ask(Tier::Normal));
    give(&mut bench, 1, 1);
    let Claim::Started(permit, _) = bench.engine.claim(bench.now, waiter) else { panic!() };
    // The request lasts until nothing more is expected. The store lets a process that wants nothing keep nothing.
    for _ in 0..10 {
        give(&mut bench, 0, 0);
        bench.now = bench.now.plus_nanos(SECOND);
    }
    bench.engine.finished(bench.now, permit);
    bench.submit_granted(lane, ask(Tier::Normal));
}

/// Requests that follow one another use one slot, however many of them there are.
#[test]
fn slots_are_wanted_by_use_at_once() {
    let (mut bench, lane) = Bench::with(Arc::unwrap_or_clone(plan_with_slots(10)));
    let (waiter, _) = bench.submit_waiting(lane, ask(Tier::Normal));
    give(&mut bench, 5, 10);
    let Claim::Started(first, _) = bench.engine.claim(bench.now, waiter) else { panic!() };
    bench.engine.finished(bench.now, first);
    for (at_once, rounds) in [(1, 20), (4, 5), (1, 20)] {
        for _ in 0..rounds {
            let permits: Vec<PermitKey> = (0..at_once).map(|_| bench.submit_granted(lane, ask(Tier::Normal))).collect();
            permits.into_iter().for_each(|permit| bench.engine.finished(bench.now, permit));
        }
        let (limit, _, wish) = wishes(&mut bench).remove(0);
        assert_eq!(wish.want, [0, at_once, 0]);
        let got = Got { units: vec![(0, 5 - wish.claim)], keep: 10, ..Got::default() };
        bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
    }
}

#[test]
fn full_guards_give_units_back() {
    for guard in [
        GuardSpec::Bucket(VendorBucketSpec::new(10, 0, 10.0, SECOND, TRANSIT)),
        GuardSpec::Counter(CounterSpec::new(10, 10, 0, SECOND, TRANSIT)),
    ] {
        // The client uses the whole limit, and not 80 % of it.
        let kind = LimitKind::Rate { bucket: BucketSpec::new(10, 10.0, SECOND, 0), guard };
        let spec = LimitSpec { pooled: POOLED, kind, measure: Measure::Requests, ..per_second("requests", 10) };
        let (mut bench, lane) = Bench::with(plan(vec![spec]));
        for _ in 0..1_000 {
            bench.submit_waiting(lane, ask(Tier::Normal));
        }
        give(&mut bench, 10, 10);
        let until = bench.now.plus_nanos(SECOND);
        assert!(bench.serve(until, MS).len() >= 10, "{guard:?}");
        give(&mut bench, 0, 5);
        let mut claim = 0;
        for _ in 0..16 {
            let until = bench.now.plus_nanos(250 * MS);
            bench.serve(until, MS);
            claim = wishes(&mut bench).remove(0).2.claim;
        }
        assert_eq!(claim, 5, "{guard:?}");
        let until = bench.now.plus_nanos(2 * SECOND);
        let sent = bench.serve(until, MS).len();
        assert!((7..=11).contains(&sent), "{guard:?}: {sent} with five a second");
    }
}

#[test]
fn answer_after_reload_is_not_held() {
    let mut bench = Bench::new();
    let lane = bench.lane("acme", "acme", &plan_with_slots(10));
    bench.submit_waiting(lane, ask(Tier::Normal));
    let (got, until) = (Got { units: vec![(0, 5)], keep: 5, ..Got::default() }, bench.now.plus_nanos(SECOND));
    let (limit, _, _) = wishes(&mut bench).remove(0);
    bench.lane("acme", "acme", &plan_with_slots(10));
    assert!(!bench.engine.hold(bench.now, limit, &got, until));
    let (limit, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!((wish.claim, bench.run(bench.now).len()), (0, 0));
    assert!(bench.engine.hold(bench.now, limit, &got, until));
    assert_eq!(bench.run(bench.now).len(), 1);
}
