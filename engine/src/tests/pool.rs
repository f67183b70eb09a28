//! Limits whose units several processes share: nothing goes without units, and none is used twice.

use super::*;
use crate::cost::Total;
use crate::limit::vendor_bucket::VendorBucketSpec;
use crate::limit::window_counter::CounterSpec;
use crate::limit::{BlockedBy, Floor, FloorPart, Got, Pooled, Wish};
use crate::pool_places::PooledLimit;
use crate::throttle::{Report, Wait};

const MS: u64 = 1_000_000;

/// A limit of 100 a second that processes share; a request is on its way for 10 s at most.
pub(super) fn plan_with_pooled_limit() -> Plan {
    let pooled = Some(Pooled { lasts_ns: 30 * SECOND, floor: None });
    plan(vec![LimitSpec { pooled, measure: Measure::Requests, ..per_second("requests", 100) }])
}

pub(super) fn wishes(bench: &mut Bench) -> Vec<(PooledLimit, String, Wish)> {
    let mut found = Vec::new();
    bench.engine.wishes(bench.now, |limit, name, wish| found.push((limit, name, wish)));
    found
}

/// Gives units to the only limit, under a lease of 10 s.
pub(super) fn give(bench: &mut Bench, units: u32, keep: u32) {
    let (limit, _, _) = wishes(bench).remove(0);
    let got = Got { units: vec![(0, units)], keep, ..Got::default() };
    bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
}

#[test]
fn request_waits_until_units_are_held() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    assert!(!bench.engine.is_starved());
    let answer = bench.submit(lane, ask(Tier::Normal));
    let Answer::Wait { waiter, reason, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(reason.lack, Some(BlockedBy::NotHeld));
    assert!(bench.engine.is_starved());
    let (_, name, wish) = wishes(&mut bench).remove(0);
    assert_eq!(name, "live|vendor|tenant|acme||requests");
    assert_eq!((wish.claim, wish.want, wish.need, wish.is_starved), (0, [0, 1, 0], 1, true));
    assert_eq!(wish.figures.units, 100);
    give(&mut bench, 5, 5);
    assert_eq!(bench.run(ms(0)), vec![(ms(0), waiter)]);
}

#[test]
fn grants_keep_to_held_units_and_lease() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    for _ in 0..100 {
        bench.submit_waiting(lane, ask(Tier::High));
    }
    give(&mut bench, 5, 5);
    // The bucket holds 80 % of the units, and refills at 80 % of five a second.
    let grants = bench.serve(ms(60_000), 10 * MS);
    let within = |until: u64| grants.iter().filter(|(at, _)| *at < ms(until)).count();
    assert_eq!((within(1), within(1_000), within(5_000)), (4, 5, 23));
    assert_eq!((within(9_999), grants.len()), (43, 43), "nothing after the lease");
    bench.submit_waiting(lane, ask(Tier::High));
}

#[test]
fn grant_expires_with_its_lease() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    let (waiter, _) = bench.submit_waiting(lane, ask(Tier::Normal));
    give(&mut bench, 1, 1);
    assert!(matches!(bench.engine.granted(bench.now, waiter), Ok(Some(_))));
    bench.now = ms(10_000);
    assert!(matches!(bench.engine.claim(bench.now, waiter), Claim::Waiting));
    give(&mut bench, 1, 1);
    assert!(matches!(bench.engine.claim(bench.now, waiter), Claim::Started(..)));
}

#[test]
fn surplus_units_are_returned_unused() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    for _ in 0..30 {
        bench.submit(lane, ask(Tier::High));
    }
    give(&mut bench, 20, 20);
    assert_eq!(bench.serve(ms(100), 10 * MS).len(), 17);
    give(&mut bench, 0, 4);
    let (_, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!(wish.claim + wish.returned.iter().map(|(_, units)| units).sum::<u32>(), 20);
    assert_eq!((wish.claim, wish.returned[0]), (4, (0, 3)), "{wish:?}");
    assert!(wish.returned.iter().all(|(free_in, _)| *free_in <= 1_001_100_000), "{wish:?}");
    assert_eq!(bench.serve(ms(2_000), 10 * MS).len(), 4);
}

#[test]
fn received_used_units_count_until_free() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    bench.submit_waiting(lane, ask(Tier::High));
    let (limit, _, _) = wishes(&mut bench).remove(0);
    let got = Got { units: vec![(400 * MS, 1)], keep: 1, ..Got::default() };
    bench.engine.hold(bench.now, limit, &got, ms(10_000));
    assert_eq!(bench.serve(ms(399), MS).len(), 0);
    assert_eq!(bench.serve(ms(410), MS).len(), 1);
}

#[test]
fn outer_limit_asks_after_the_inner_one() {
    let pooled =
        |name: &str| LimitSpec { pooled: Some(Pooled { lasts_ns: 30 * SECOND, floor: None }), ..per_second(name, 100) };
    let (mut bench, lane) = Bench::with(with_shared(plan(vec![pooled("own")]), vec![], vec![pooled("all")]));
    let (waiter, _) = bench.submit_waiting(lane, ask(Tier::Normal));
    for name in ["live|vendor|tenant|acme||own", "live|vendor|vendor|||all"] {
        assert!(bench.engine.is_starved(), "{name}");
        let (limit, _, wish) = wishes(&mut bench).into_iter().find(|(_, found, _)| found == name).unwrap();
        assert!(wish.is_starved, "{wish:?}");
        assert!(bench.run(bench.now).is_empty());
        let got = Got { units: vec![(0, 5)], keep: 5, ..Got::default() };
        bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
    }
    assert_eq!(bench.run(ms(0)), vec![(ms(0), waiter)]);
}

/// Lets the store answer every 250 ms: it gives what is wanted, of so many units. Returns what was sent, and the most that was held.
pub(super) fn serve_with_store(bench: &mut Bench, mut free: u32, looks: u64) -> (usize, u32) {
    let (mut sent, mut most) = (0, 0);
    for _ in 0..looks {
        for (limit, _, wish) in wishes(bench) {
            free += wish.returned.iter().map(|(_, units)| units).sum::<u32>();
            let want: u32 = wish.want.iter().sum();
            let units = want.saturating_sub(wish.claim).min(free);
            free -= units;
            most = most.max(wish.claim + units);
            let got = Got { units: vec![(0, units)], keep: want, ..Got::default() };
            bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
        }
        sent += bench.serve(bench.now.plus_nanos(250 * MS), MS).len();
    }
    (sent, most)
}

#[test]
fn quota_is_used_with_few_units_held() {
    const DAY: u64 = 86_400 * SECOND;
    let pooled = Some(Pooled { lasts_ns: 30 * SECOND, floor: None });
    let kind = LimitKind::Rate {
        bucket: BucketSpec::new(800, 800.0, DAY, 0),
        guard: GuardSpec::Log(LogSpec::new(1_000, 200, DAY, TRANSIT)),
    };
    let pace = Pace { unit_ns: DAY / 800, limit: 1_000, window_ns: DAY, ..Pace::default() };
    let day = LimitSpec { pooled, kind, pace, measure: Measure::Requests, ..per_second("day", 1_000) };
    let plan = plan(vec![day]);
    for (requests, expected) in [(300, 300), (1_000, 800)] {
        let (mut bench, lane) = Bench::with(plan.clone());
        for _ in 0..requests {
            bench.submit_waiting(lane, ask(Tier::Normal));
        }
        let (sent, most) = serve_with_store(&mut bench, 1_000, 800);
        assert!((expected..expected + 5).contains(&sent), "{sent} of {requests}");
        // A quarter more than is used, since 80 % of what is held goes, and a few percent of the whole.
        assert!(most as usize <= (expected * 5 / 4 + 70).min(1_000), "{most} for {sent}");
    }
}

#[test]
fn lost_lease_takes_all_units() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    bench.submit_waiting(lane, ask(Tier::High));
    give(&mut bench, 10, 10);
    bench.serve(ms(10), MS);
    bench.submit(lane, ask(Tier::High));
    let (limit, _, _) = wishes(&mut bench).remove(0);
    let got = Got { is_lost: true, keep: 10, ..Got::default() };
    bench.engine.hold(bench.now, limit, &got, ms(20_000));
    bench.submit_waiting(lane, ask(Tier::High));
    let (_, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!((wish.claim, wish.returned), (0, vec![]));
}

#[test]
fn expired_lease_claims_nothing() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    for _ in 0..10 {
        bench.submit_waiting(lane, ask(Tier::High));
    }
    give(&mut bench, 25, 25);
    assert_eq!(bench.run(bench.now).len(), 10, "in flight");
    bench.now = ms(10_001);
    let (_, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!(wish.claim, 0);
    assert_eq!(wish.returned.iter().map(|(_, units)| units).sum::<u32>(), 25);
    bench.submit_waiting(lane, ask(Tier::High));
}

#[test]
fn own_processes_are_no_foreign_traffic() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    bench.submit_waiting(lane, ask(Tier::High));
    give(&mut bench, 25, 25);
    bench.serve(ms(1_500), MS);
    let report = Report { limit: 100, remaining: 24, reset_ns: Some(SECOND), ..Report::default() };
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.now = ms(1_510);
    bench.engine.answered_with(bench.now, permit, Feedback::Passed(Some(report)), &[], true);
    // Of its 25 all but one is there, though the others have used theirs.
    let left = bench.engine.headroom(bench.now, lane, NO_ENDPOINT);
    assert_eq!(left, Some((24, 25)));
}

#[test]
fn idle_lane_returns_units_and_rests() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    bench.submit_waiting(lane, ask(Tier::High));
    give(&mut bench, 25, 25);
    bench.serve(ms(100), MS);
    bench.sweep(bench.now, true);
    assert_eq!(bench.engine.lane_count(), 1, "a lane that holds units stays");
    for second in 2..12 {
        bench.now = ms(second * 1_000);
        let _ = wishes(&mut bench);
    }
    assert_eq!(wishes(&mut bench), vec![]);
    bench.now = ms(200_000);
    bench.sweep(bench.now, true);
    assert_eq!(bench.engine.lane_count(), 0);
}

#[test]
fn tiers_share_held_units_by_store_weights() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    let mut high = std::collections::HashSet::new();
    for _ in 0..400 {
        high.insert(bench.submit_waiting(lane, ask(Tier::High)).0);
        bench.submit_waiting(lane, ask(Tier::Low));
    }
    let (limit, _, _) = wishes(&mut bench).remove(0);
    // Low waits in all processes and high in this one alone: of its units low has a quarter.
    let got = Got { units: vec![(0, 50)], keep: 50, weights: [750, 0, 250], ..Got::default() };
    bench.engine.hold(bench.now, limit, &got, ms(10_000));
    let grants = bench.serve(ms(5_000), MS);
    let of_high = grants.iter().filter(|(_, waiter)| high.contains(waiter)).count();
    let share = of_high as f64 / grants.len() as f64;
    assert!((0.72..=0.78).contains(&share), "{share} of {}", grants.len());
}

#[test]
fn forecast_uses_the_held_units() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    let total = Total::same(200, 1.into());
    let batch = Batch { tier: Tier::Normal, requests: 200, total, service_ns: 10 * MS };
    let takes = |bench: &Bench| {
        let copy = bench.engine.copy(lane).unwrap();
        forecast(&copy, bench.now, batch).expected.unwrap().as_secs_f64()
    };
    let alone = takes(&bench);
    assert!(alone < 4.0, "with the whole limit: {alone:?}");
    bench.submit_waiting(lane, ask(Tier::Normal));
    give(&mut bench, 10, 10);
    let with_a_tenth = takes(&bench);
    assert!((20.0..30.0).contains(&with_a_tenth), "{with_a_tenth}");
}

#[test]
fn slots_are_held_too() {
    let spec = LimitSpec { pooled: Some(Pooled { lasts_ns: 30 * SECOND, floor: None }), ..slots("at once", 10) };
    let (mut bench, lane) = Bench::with(plan(vec![spec]));
    for _ in 0..5 {
        bench.submit(lane, ask(Tier::Normal));
    }
    let (_, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!((wish.figures.units, wish.figures.again_ns, wish.figures.transit_ns), (10, 0, 30 * SECOND));
    give(&mut bench, 2, 2);
    assert_eq!(bench.run(ms(1)).len(), 2);
}

#[test]
fn guards_keep_to_held_units() {
    for guard in [
        GuardSpec::Counter(CounterSpec::new(99, 100, 20, SECOND, TRANSIT)),
        GuardSpec::Bucket(VendorBucketSpec::new(100, 20, 100.0, SECOND, TRANSIT)),
    ] {
        let Plan { mut own, .. } = plan_with_pooled_limit();
        if let LimitKind::Rate { guard: of_spec, .. } = &mut own[0].kind {
            *of_spec = guard;
        }
        let (mut bench, lane) = Bench::with(plan(own));
        for _ in 0..50 {
            bench.submit(lane, ask(Tier::High));
        }
        give(&mut bench, 10, 10);
        let burst = bench.serve(ms(50), MS).len();
        assert!((8..=10).contains(&burst), "{guard:?}: {burst}");
        let all = burst + bench.serve(ms(2_050), MS).len();
        assert!((18..=30).contains(&all), "{guard:?}: {all}");
    }
}

#[test]
fn pause_of_another_process_holds_this_one() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    bench.submit_waiting(lane, ask(Tier::High));
    let (limit, _, _) = wishes(&mut bench).remove(0);
    let got = Got { units: vec![(0, 10)], keep: 10, paused_ns: 3 * SECOND, ..Got::default() };
    bench.engine.hold(bench.now, limit, &got, ms(10_000));
    assert_eq!(bench.serve(ms(2_999), MS).len(), 0);
    let (_, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!(
        (wish.claim, wish.paused_ns),
        (1, 0),
        "it keeps what it wants, and does not pass the word on as its own"
    );
    assert_eq!(bench.serve(ms(3_001), MS).len(), 1, "its end wakes who waits");
}

#[test]
fn own_pause_is_passed_on() {
    let (mut bench, lane) = Bench::with(plan_with_pooled_limit());
    bench.submit_waiting(lane, ask(Tier::High));
    give(&mut bench, 10, 10);
    bench.serve(ms(1), MS);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    assert_eq!(wishes(&mut bench).remove(0).2.paused_ns, 0);
    let refused = Feedback::Refused(Wait::Stated(5 * SECOND), None);
    bench.engine.answered_with(bench.now, permit, refused, &[], true);
    assert_eq!(wishes(&mut bench).remove(0).2.paused_ns, 5 * SECOND);
}

/// A limit of 100 a second, of which this process goes on with 5 when the store does not answer.
fn plan_with_floor() -> Plan {
    let floor = Some(FloorPart { millionths: 200_000, processes: 4 });
    let pooled = Some(Pooled { lasts_ns: 30 * SECOND, floor });
    plan(vec![LimitSpec { pooled, measure: Measure::Requests, ..per_second("requests", 100) }])
}

/// Gives units under a lease of 10 s, of which `floor` are held for 594 s.
fn give_with_floor(bench: &mut Bench, units: u32, floor: u32) {
    let (limit, _, _) = wishes(bench).remove(0);
    let floor_until = bench.now.plus_nanos(594 * SECOND);
    let got = Got { units: vec![(0, units)], keep: 100, floor, floor_until, ..Got::default() };
    bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
}

#[test]
fn floor_outlasts_the_lease() {
    let (mut bench, lane) = Bench::with(plan_with_floor());
    for _ in 0..1_000 {
        bench.submit_waiting(lane, ask(Tier::High));
    }
    assert_eq!(wishes(&mut bench)[0].2.floor, Floor { each: 5, all: 20 });
    give_with_floor(&mut bench, 50, 5);
    bench.serve(ms(9_999), 10 * MS);
    assert_eq!(bench.serve(ms(11_000), 10 * MS).len(), 0, "the lease has ended");
    let (_, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!(wish.claim, 5);
    assert_eq!(wish.returned.iter().map(|(_, units)| units).sum::<u32>(), 45);
    // The last requests of the lease count until a window after they ended; from then on 80 % of five a second.
    bench.serve(ms(22_000), 10 * MS);
    let (at, floor) = (ms(22_000), bench.serve(ms(32_000), 10 * MS).len());
    assert!((38..=42).contains(&floor), "{floor} in the ten seconds from {at:?}");
    assert_eq!(wishes(&mut bench)[0].2.claim, 5, "and it stays so");
    give_with_floor(&mut bench, 45, 5);
    let back = bench.serve(ms(34_000), 10 * MS).len();
    assert!(back >= 60, "{back} in the two seconds after the store has answered");
}

#[test]
fn expired_grant_does_not_start_on_floor() {
    let (mut bench, lane) = Bench::with(plan_with_floor());
    let (waiter, _) = bench.submit_waiting(lane, ask(Tier::High));
    bench.now = ms(1);
    give_with_floor(&mut bench, 50, 5);
    let before = bench.engine.granted(bench.now, waiter).unwrap().expect("a grant");
    bench.now = ms(10_002);
    wishes(&mut bench);
    give_with_floor(&mut bench, 45, 5);
    let after = bench.engine.granted(bench.now, waiter).unwrap();
    assert_ne!(after, Some(before), "its unit was given back");
}

#[test]
fn resting_process_keeps_floor_ten_minutes() {
    let (mut bench, lane) = Bench::with(plan_with_floor());
    bench.submit_waiting(lane, ask(Tier::High));
    give_with_floor(&mut bench, 50, 5);
    bench.serve(ms(1_000), 10 * MS);
    for second in 12..600 {
        bench.now = ms(second * 1_000);
        give_with_floor(&mut bench, 0, 5);
    }
    let (_, _, wish) = wishes(&mut bench).remove(0);
    assert_eq!((wish.claim, wish.want), (5, [0, 5, 0]));
    // What it wanted is forgotten a few looks after its last request.
    for second in 600..640 {
        bench.now = ms(second * 1_000);
        if let Some((limit, _, _)) = wishes(&mut bench).pop() {
            let got = Got { keep: 100, ..Got::default() };
            bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
        }
    }
    assert_eq!(wishes(&mut bench), vec![]);
}

/// A limit of 1,000 points a minute that processes share.
pub(super) fn plan_in_points(guard: GuardSpec) -> Plan {
    let pooled = Some(Pooled { lasts_ns: 30 * SECOND, floor: None });
    let kind = LimitKind::Rate { bucket: BucketSpec::new(800, 800.0, 60 * SECOND, 0), guard };
    let pace = Pace { unit_ns: 60 * SECOND / 800, limit: 1_000, window_ns: 60 * SECOND, ..Pace::default() };
    plan(vec![LimitSpec { pooled, kind, pace, ..per_second("points", 1_000) }])
}

#[test]
fn large_request_gets_units_for_the_reserve_too() {
    let guard = GuardSpec::Log(LogSpec::new(1_000, 200, 60 * SECOND, TRANSIT));
    let (mut bench, lane) = Bench::with(plan_in_points(guard));
    // Requests of 100 points; one after the other is in the window.
    for (free, looks) in [(1_000, 8), (700, 40)] {
        bench.submit_waiting(lane, Ask { cost: 100.into(), ..ask(Tier::Normal) });
        assert_eq!(serve_with_store(&mut bench, free, looks).0, 1, "{free} units are free");
    }
}

#[test]
fn request_above_held_part_waits_without_a_timer() {
    for guard in [
        GuardSpec::Log(LogSpec::new(1_000, 200, 60 * SECOND, TRANSIT)),
        GuardSpec::Counter(CounterSpec::new(999, 1_000, 200, 60 * SECOND, TRANSIT)),
        GuardSpec::Bucket(VendorBucketSpec::new(1_000, 200, 1_000.0, 60 * SECOND, TRANSIT)),
    ] {
        let (mut bench, lane) = Bench::with(plan_in_points(guard));
        let (waiter, _) = bench.submit_waiting(lane, Ask { cost: 100.into(), ..ask(Tier::Normal) });
        let (_, _, wish) = wishes(&mut bench).remove(0);
        assert!((125..=126).contains(&wish.need), "{guard:?}: {wish:?}");
        give(&mut bench, 110, 130);
        assert!(bench.run(bench.now).is_empty(), "{guard:?}: 88 of the 110 are not reserved");
        assert_eq!(bench.engine.poll_timeout(), None, "{guard:?}");
        assert!(wishes(&mut bench)[0].2.is_starved, "{guard:?}");
        give(&mut bench, 20, 130);
        assert_eq!(bench.run(bench.now), [(bench.now, waiter)], "{guard:?}");
    }
}

/// A unit is in one place: with the engine that the lanes of the account have gone to.
#[test]
fn moved_account_takes_its_units_along() {
    let pooled = Some(Pooled { lasts_ns: 30 * SECOND, floor: None });
    let limit = || vec![LimitSpec { pooled, measure: Measure::Requests, ..per_second("requests", 100) }];
    let narrow = Arc::new(with_shared(plan(vec![]), limit(), vec![]));
    let wide = Arc::new(with_shared(plan(vec![]), limit(), vec![slots("all", 50)]));
    let (mut here, mut there) = (Bench::new(), Bench::new());
    let lanes = ["one", "two"].map(|tenant| here.lane(tenant, "account", &narrow));
    for _ in 0..10 {
        here.submit_waiting(lanes[0], ask(Tier::High));
    }
    give(&mut here, 40, 40);
    assert_eq!(here.serve(ms(100), MS).len(), 10);
    there.now = here.now;
    for (tenant, lane) in ["one", "two"].into_iter().zip(lanes) {
        let moved = here.engine.move_out(here.now, lane).expect("the lane exists");
        let lane = there.lane(tenant, "account", &wide);
        there.engine.take_over(there.now, lane, moved, &mut here.engine);
        // What was held and used is known here, so requests go on without the store.
        let permit = there.submit_granted(lane, ask(Tier::High));
        there.engine.finished(there.now, permit);
        let told: Vec<_> = wishes(&mut here).into_iter().chain(wishes(&mut there)).collect();
        let names: Vec<&str> = told.iter().map(|(_, name, _)| name.as_str()).collect();
        assert_eq!(names, ["live|vendor|account|account||requests"]);
        let returned = told[0].2.returned.iter().map(|(_, units)| units).sum::<u32>();
        assert!((11..=40).contains(&(told[0].2.claim + returned)), "{told:?}");
    }
}

/// The account has sent in the other engine before its lanes come: its units stay where their use is counted.
#[test]
fn units_stay_if_their_use_is_not_known_there() {
    let pooled = Some(Pooled { lasts_ns: 30 * SECOND, floor: None });
    let limit = vec![LimitSpec { pooled, measure: Measure::Requests, ..per_second("requests", 100) }];
    let plan = Arc::new(with_shared(plan(vec![]), limit, vec![]));
    let (mut here, mut there) = (Bench::new(), Bench::new());
    let lanes = [here.lane("one", "account", &plan), there.lane("two", "account", &plan)];
    for (bench, lane) in [&mut here, &mut there].into_iter().zip(lanes) {
        bench.submit_waiting(lane, ask(Tier::High));
        give(bench, 20, 20);
        assert_eq!(bench.serve(ms(10), MS).len(), 1);
    }
    let moved = here.engine.move_out(here.now, lanes[0]).expect("the lane exists");
    let lane = there.lane("one", "account", &plan);
    there.engine.take_over(there.now, lane, moved, &mut here.engine);
    for bench in [&mut here, &mut there] {
        let (_, _, wish) = wishes(bench).remove(0);
        assert_eq!(wish.claim + wish.returned.iter().map(|(_, units)| units).sum::<u32>(), 20, "{wish:?}");
    }
}
