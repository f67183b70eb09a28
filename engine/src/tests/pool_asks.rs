//! When the store of pooled limits is called for units, or for the end of a pause, although no request waits; how long
//! such units stay; and of which pauses the store is not told.

use super::pool::{give, plan_with_pooled_limit, wishes};
use super::*;
use crate::limit::{BlockedBy, FloorPart, Got, Pooled};

fn immediate() -> Ask {
    Ask { immediate: true, ..ask(Tier::Normal) }
}

/// The store grants all that is wanted, under a lease of 10 s.
fn grant_wishes(bench: &mut Bench) {
    for (limit, _, wish) in wishes(bench) {
        let want: u32 = wish.want.iter().sum();
        let got = Got { units: vec![(0, want.saturating_sub(wish.claim))], keep: want, ..Got::default() };
        bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
    }
}

#[test]
fn refused_immediate_request_asks_for_units() {
    let of_lane = plan_with_pooled_limit();
    let of_account = with_shared(plan(vec![]), of_lane.own.clone(), vec![]);
    for plan in [of_lane, of_account] {
        let (mut bench, lane) = Bench::with(plan);
        assert_eq!(wishes(&mut bench), vec![], "nobody has asked");
        let answer = bench.submit(lane, immediate());
        assert!(matches!(answer, Answer::Refused(Refusal::NotNow { .. })), "{answer:?}");
        assert!(bench.engine.is_starved());
        let (limit, _, wish) = wishes(&mut bench).remove(0);
        assert_eq!((wish.claim, wish.want, wish.need, wish.is_starved), (0, [0, 1, 0], 1, true));
        let got = Got { units: vec![(0, 1)], keep: 1, ..Got::default() };
        bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
        bench.submit_granted(lane, immediate());
    }
}

/// A caller may try again only after several calls to the store.
#[test]
fn units_stay_ten_seconds_for_another_try() {
    for tries_again in [true, false] {
        let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
        assert!(matches!(bench.submit(lane, immediate()), Answer::Refused(_)));
        for second in 0..12 {
            bench.now = ms(second * 1_000);
            if tries_again && second == 9 {
                bench.submit_granted(lane, immediate());
            }
            grant_wishes(&mut bench);
        }
        assert_eq!(wishes(&mut bench).is_empty(), !tries_again, "unused units are given back");
    }
}

#[test]
fn check_asks_for_nothing() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    for _ in 0..3 {
        let check = bench.engine.check(bench.now, lane, NO_ENDPOINT, Tier::Low).unwrap();
        assert_eq!(check.stop.and_then(|(reason, _)| reason.lack), Some(BlockedBy::NotHeld));
        assert!(!bench.engine.is_starved());
    }
    assert_eq!(wishes(&mut bench), vec![]);
    // A check makes nothing of an earlier request's wish last longer.
    bench.submit(lane, immediate());
    for second in 0..12 {
        bench.now = ms(second * 1_000);
        bench.engine.check(bench.now, lane, NO_ENDPOINT, Tier::Low).unwrap();
        grant_wishes(&mut bench);
    }
    assert_eq!(wishes(&mut bench), vec![]);
}

#[test]
fn refused_big_request_leaves_no_need() {
    let pooled = Some(Pooled { lasts_ns: 30 * SECOND, floor: None });
    let (mut bench, lane) = Bench::with(plan(vec![LimitSpec { pooled, ..per_second("points", 100) }]));
    assert!(matches!(bench.submit(lane, Ask { cost: 60.into(), ..immediate() }), Answer::Refused(_)));
    let big = wishes(&mut bench).remove(0).2;
    assert!(big.need >= 60 && big.want == [0, big.need, 0], "{big:?}");
    // For another try, the units stay wanted, without a turn.
    bench.now = ms(1_000);
    let again = wishes(&mut bench).remove(0).2;
    assert_eq!((again.need, again.want), (0, big.want));
    bench.now = ms(11_000);
    assert_eq!(wishes(&mut bench), vec![]);
    assert!(matches!(bench.submit(lane, immediate()), Answer::Refused(_)));
    let small = wishes(&mut bench).remove(0).2;
    assert_eq!((small.need, small.want), (1, [0, 1, 0]));
}

#[test]
fn units_for_another_try_go_back_where_others_lack_some() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    assert!(matches!(bench.submit(lane, immediate()), Answer::Refused(_)));
    let (limit, _, _) = wishes(&mut bench).remove(0);
    let until = bench.now.plus_nanos(10 * SECOND);
    bench.engine.hold(bench.now, limit, &Got { keep: 1, is_scarce: true, ..Got::default() }, until);
    bench.now = ms(250);
    let (limit, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!((wish.need, wish.want), (0, [0, 1, 0]), "no unit has come yet");
    let got = Got { units: vec![(0, 1)], keep: 1, is_scarce: true, ..Got::default() };
    bench.engine.hold(bench.now, limit, &got, until);
    bench.now = ms(500);
    let (_, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!((wish.claim, wish.returned, wish.want), (0, vec![(0, 1)], [0; 3]));
}

#[test]
fn unit_for_another_try_becomes_no_floor() {
    let floor = Some(FloorPart { millionths: 200_000, processes: 4 });
    let pooled = Some(Pooled { lasts_ns: 30 * SECOND, floor });
    let (mut bench, lane) = Bench::with(plan(vec![LimitSpec { pooled, ..per_second("points", 100) }]));
    assert!(matches!(bench.submit(lane, immediate()), Answer::Refused(_)));
    for second in 0..12 {
        bench.now = ms(second * 1_000);
        for (limit, _, wish) in wishes(&mut bench) {
            let units = 1u32.min(wish.want[1]).saturating_sub(wish.claim);
            let floor_until = bench.now.plus_nanos(594 * SECOND);
            let floor = units + wish.claim;
            let got = Got { units: vec![(0, units)], keep: 1, floor, floor_until, ..Got::default() };
            bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
        }
    }
    bench.now = ms(12_000);
    assert_eq!(wishes(&mut bench), vec![]);
}

#[test]
fn paused_tenant_takes_no_units_of_its_account() {
    let of_account = plan_with_pooled_limit().own;
    let (mut bench, lane) = Bench::with(with_shared(plan(vec![]), of_account, vec![]));
    bench.engine.pause(bench.now, lane);
    let answer = bench.submit(lane, immediate());
    let Answer::Refused(Refusal::NotNow { reason, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(reason.lack, Some(BlockedBy::Held));
    assert!(!bench.engine.is_starved());
    assert_eq!(wishes(&mut bench), vec![]);
}

/// An operator ends the pause in the process that was told of it, while this one is idle.
#[test]
fn idle_process_learns_that_pause_has_ended() {
    for refused in [ask(Tier::Normal), immediate()] {
        let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
        bench.submit(lane, immediate());
        for second in 0..15 {
            bench.now = ms(second * 1_000);
            for (limit, _, _) in wishes(&mut bench) {
                let got = Got { keep: 1, paused_ns: 40_000 * SECOND, ..Got::default() };
                bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
            }
        }
        assert_eq!(wishes(&mut bench), vec![]);
        let answer = bench.submit(lane, refused);
        assert!(matches!(answer, Answer::Refused(Refusal::RetryLater { .. } | Refusal::NotNow { .. })), "{answer:?}");
        assert!(bench.engine.is_starved());
        grant_wishes(&mut bench);
        bench.submit_granted(lane, refused);
    }
}

/// If the lane were gone, the units that the store grants would have no place.
#[test]
fn lane_stays_while_store_is_asked() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    bench.submit(lane, immediate());
    let (limit, _, _) = wishes(&mut bench).remove(0);
    bench.sweep(bench.now, true);
    assert_eq!(bench.engine.lane_count(), 1);
    let got = Got { units: vec![(0, 1)], keep: 1, ..Got::default() };
    assert!(bench.engine.hold(bench.now, limit, &got, ms(10_000)));
}

#[test]
fn lane_that_was_refused_is_evicted() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    bench.submit(lane, immediate());
    // The process has not called the store, which could grant units to this lane.
    bench.now = ms(200_000);
    bench.sweep(bench.now, true);
    assert_eq!(bench.engine.lane_count(), 0);
    assert_eq!(wishes(&mut bench), vec![]);
}

#[test]
fn operator_ends_pause_of_another_process() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    let (waiter, _) = bench.submit_waiting(lane, ask(Tier::High));
    let (limit, _, _) = wishes(&mut bench).remove(0);
    let got = Got { units: vec![(0, 10)], keep: 10, paused_ns: 40_000 * SECOND, ..Got::default() };
    bench.engine.hold(bench.now, limit, &got, ms(10_000));
    assert!(bench.run(ms(1_000)).is_empty());
    let (limit, _, _) = wishes(&mut bench).remove(0);
    bench.engine.resume(bench.now, lane);
    assert_eq!(bench.run(bench.now), [(bench.now, waiter)]);
    assert!(bench.engine.is_starved(), "the store is to be told at once");
    // The call that was under way is answered: it has given nine units back, and gets nine.
    bench.engine.hold(bench.now, limit, &Got { units: vec![(0, 9)], ..got }, ms(11_000));
    bench.submit_granted(lane, ask(Tier::High));
    let told = [(); 2].map(|()| wishes(&mut bench).remove(0).2.ends_pause);
    assert_eq!(told, [true, false]);
}

#[test]
fn end_of_pause_is_told_without_units() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    bench.engine.resume(bench.now, lane);
    assert!(bench.engine.is_starved());
    let (_, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!((wish.claim, wish.want, wish.ends_pause), (0, [0; 3], true));
    assert_eq!(wishes(&mut bench), vec![]);
}

/// The requests of other processes may pass, as from another address or to another server of the vendor's.
#[test]
fn pause_after_failures_is_not_passed_on() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    bench.submit_waiting(lane, ask(Tier::High));
    give(&mut bench, 10, 10);
    bench.serve(ms(1), 1_000_000);
    let paused_ns = |bench: &mut Bench| wishes(bench).remove(0).2.paused_ns;
    for _ in 0..5 {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.engine.answered_with(bench.now, permit, Feedback::Failed, &[], true);
    }
    assert!(bench.engine.paused_until(bench.now, lane).is_some());
    assert_eq!(paused_ns(&mut bench), 0);
    bench.now = ms(1_500);
    let probe = bench.submit_granted(lane, ask(Tier::High));
    assert_eq!(paused_ns(&mut bench), 0, "nor that a probe is under way");
    bench.engine.answered_with(bench.now, probe, Feedback::PassedFor(5 * SECOND, None), &[], true);
    assert_eq!(paused_ns(&mut bench), 5 * SECOND, "what the vendor states is");
}
