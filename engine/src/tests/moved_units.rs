//! What becomes of the store's answer if the units have gone to another engine meanwhile.

use super::pool::{give, wishes};
use super::*;
use crate::limit::{Got, Pooled, Wish};

/// The first of two lanes of an account moves between a call to the store and the answer. Its old holder stays.
#[test]
fn answer_for_units_that_have_gone_is_not_taken() {
    let pooled = Some(Pooled { lasts_ns: 30 * SECOND, floor: None });
    let limit = vec![LimitSpec { pooled, measure: Measure::Requests, ..per_second("requests", 100) }];
    let plan = Arc::new(with_shared(plan(vec![]), limit, vec![]));
    let (mut here, mut there) = (Bench::new(), Bench::new());
    let lanes = ["one", "two"].map(|tenant| here.lane(tenant, "account", &plan));
    for _ in 0..10 {
        here.submit_waiting(lanes[0], ask(Tier::High));
    }
    give(&mut here, 40, 40);
    assert_eq!(here.serve(ms(100), 1_000_000).len(), 10);
    there.now = here.now;
    let (limit, _, told) = wishes(&mut here).remove(0);
    let moved = here.engine.move_out(here.now, lanes[0]).expect("the lane exists");
    let lane = there.lane("one", "account", &plan);
    there.engine.take_over(there.now, lane, moved, &mut here.engine);
    let got = Got { units: vec![(0, 10)], keep: 50, floor: 5, floor_until: Time::MAX, ..Got::default() };
    assert!(!here.engine.hold(here.now, limit, &got, here.now.plus_nanos(10 * SECOND)));
    assert!(wishes(&mut here).is_empty(), "nothing is held here");
    let units = |wish: &Wish| wish.claim + wish.returned.iter().map(|(_, units)| units).sum::<u32>();
    let found = wishes(&mut there);
    assert_eq!(found.iter().map(|(_, _, wish)| units(wish)).collect::<Vec<_>>(), [told.claim]);
    // What the next call brings is taken where the units are.
    assert!(there.engine.hold(there.now, found[0].0, &got, there.now.plus_nanos(10 * SECOND)));
}
