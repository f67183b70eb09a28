//! Refusals, deadlines and what a waiting caller is told.

use std::time::Duration;

use super::*;
use crate::limit::PriorUse;

#[test]
fn promised_moment_is_exact() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 10)]));
    for _ in 0..8 {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.engine.finished(bench.now, permit);
    }
    let (waiter, until) = bench.submit_waiting(lane, ask(Tier::High));
    let Until::At(at) = until else { panic!("{until:?}") };
    bench.engine.poll(at.minus_nanos(1));
    assert!(bench.engine.is_quiet());
    bench.engine.poll(at);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
}

#[test]
fn unmeetable_deadline_is_refused_at_once() {
    let (mut bench, lane) = Bench::with(plan(vec![bucket("requests", 1, 0.1)]));
    bench.submit_granted(lane, ask(Tier::High));
    let give_up = bench.now + Duration::from_secs(5);
    let answer = bench.submit(lane, Ask { give_up, ..ask(Tier::High) });
    assert!(matches!(answer, Answer::Refused(Refusal::TooLate { earliest }) if earliest > give_up), "{answer:?}");
    let answer = bench.submit(lane, Ask { give_up: bench.now, ..ask(Tier::High) });
    assert!(matches!(answer, Answer::Refused(Refusal::Deadline)));
}

#[test]
fn expired_caller_is_refused_on_time() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("slots", 1)]));
    bench.submit_granted(lane, ask(Tier::High));
    let start = bench.now;
    let waiter = bench.submit_waiting(lane, Ask { give_up: start + Duration::from_millis(700), ..ask(Tier::High) }).0;
    let woken = bench.run(start + Duration::from_secs(1));
    assert_eq!(woken, [(start + Duration::from_millis(700), waiter)]);
    assert!(matches!(bench.engine.claim(bench.now, waiter), Claim::Refused(Refusal::Deadline)));
}

#[test]
fn cost_above_the_capacity_is_refused() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("points", 100)]));
    let answer = bench.submit(lane, Ask { cost: 81.into(), ..ask(Tier::High) });
    assert!(matches!(answer, Answer::Refused(Refusal::TooExpensive { largest: 80, cost: 81, .. })), "{answer:?}");
    bench.submit_granted(lane, Ask { cost: 80.into(), ..ask(Tier::High) });
}

#[test]
fn queue_is_bounded_per_lane_and_tier() {
    let (mut bench, lane) = Bench::with(Plan { max_waiting: 3, ..plan(vec![slots("slots", 1)]) });
    bench.submit_granted(lane, ask(Tier::High));
    for _ in 0..3 {
        let _ = bench.submit_waiting(lane, ask(Tier::High));
    }
    assert!(matches!(bench.submit(lane, ask(Tier::High)), Answer::Refused(Refusal::LaneFull { waiting: 3 })));
    bench.submit_waiting(lane, ask(Tier::Normal));
}

#[test]
fn fullest_lane_gives_way_at_the_bound() {
    let mut bench = Bench { engine: Engine::new(Bound::new(10), Default::default()), now: ms(0) };
    let plan = Arc::new(plan(vec![slots("slots", 1)]));
    let (loud, quiet) = (bench.lane("loud", "loud", &plan), bench.lane("quiet", "quiet", &plan));
    bench.submit_granted(loud, ask(Tier::High));
    bench.submit_granted(quiet, ask(Tier::High));
    let waiters: Vec<WaiterKey> = (0..10).map(|n| bench.submit_waiting(loud, ask(Tier::ALL[n % 3])).0).collect();
    assert!(matches!(bench.submit(loud, ask(Tier::High)), Answer::Refused(Refusal::AllFull { .. })));
    bench.submit_waiting(quiet, ask(Tier::Low));
    let woken: Vec<WaiterKey> = bench.engine.woken().collect();
    assert_eq!(woken, [waiters[8]], "the last of the loud lane's low tier");
    assert!(matches!(bench.engine.claim(bench.now, waiters[8]), Claim::Refused(Refusal::AllFull { .. })));
}

#[test]
fn immediate_request_never_waits() {
    let (mut bench, lane) = Bench::with(plan(vec![bucket("requests", 1, 10.0)]));
    let immediate = Ask { immediate: true, ..ask(Tier::High) };
    bench.submit_granted(lane, immediate);
    let Answer::Refused(Refusal::NotNow { until, .. }) = bench.submit(lane, immediate) else { panic!() };
    assert_eq!(until, Until::At(bench.now + Duration::from_millis(100)));
    bench.submit_waiting(lane, ask(Tier::High));
    assert!(matches!(bench.submit(lane, immediate), Answer::Refused(Refusal::NotNow { .. })), "others were first");
}

#[test]
fn time_that_goes_back_changes_nothing() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 10)]));
    for _ in 0..8 {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.engine.finished(bench.now, permit);
    }
    bench.now = ms(0).minus_nanos(10 * SECOND);
    let (_, until) = bench.submit_waiting(lane, ask(Tier::High));
    assert!(until.not_before() > ms(0));
    bench.engine.poll(bench.now);
    assert!(bench.engine.is_quiet());
    assert!(bench.engine.poll_timeout().is_some_and(|at| at > ms(0)));
}

#[test]
fn shutdown_refuses_every_waiter() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("slots", 1)]));
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    bench.engine.shut_down(bench.now);
    assert!(matches!(bench.engine.claim(bench.now, waiter), Claim::Refused(Refusal::Shutdown)));
    assert!(matches!(bench.submit(lane, ask(Tier::High)), Answer::Refused(Refusal::Shutdown)));
    bench.engine.finished(bench.now, permit);
    bench.assert_clean();
}

#[test]
fn actual_cost_is_what_counts() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("points", 100)]));
    let left = |bench: &mut Bench| bench.engine.headroom(bench.now, lane, NO_ENDPOINT).unwrap().0;
    let cheap = bench.submit_granted(lane, Ask { cost: 10.into(), ..ask(Tier::High) });
    bench.settle(cheap, 4);
    assert_eq!(left(&mut bench), 96);
    bench.engine.finished(bench.now, cheap);
    let dear = bench.submit_granted(lane, Ask { cost: 10.into(), ..ask(Tier::High) });
    bench.settle(dear, 60);
    assert_eq!(left(&mut bench), 36);
    // Its answer ends what was believed; the rest has ended already. Both are gone a window later.
    bench.engine.finished(bench.now, dear);
    assert_eq!(left(&mut bench), 36);
    bench.advance_to(bench.now + Duration::from_millis(1_002));
    assert_eq!(left(&mut bench), 100);
    let absurd = bench.submit_granted(lane, Ask { cost: 1.into(), ..ask(Tier::High) });
    bench.settle(absurd, u32::MAX);
    assert_eq!(left(&mut bench), 20, "no more than one request may ever take");
}

#[test]
fn answer_bytes_count_until_read() {
    let spec = LimitSpec { measure: Measure::Bytes, ..per_second("bytes", 100) };
    let (mut bench, lane) = Bench::with(plan(vec![spec, per_second("requests", 1_000)]));
    let left = |bench: &mut Bench| bench.engine.view(bench.now, lane).unwrap().limits[0].left;
    let believed = |received| Ask { cost: Cost::from(1).with_bytes(10, received), ..ask(Tier::High) };
    let long = bench.submit_granted(lane, believed(20));
    bench.engine.answered(bench.now, long);
    assert_eq!(left(&mut bench), 70);
    // A second after the answer's head it still counts: its body has not been read.
    bench.advance_to(bench.now + Duration::from_secs(2));
    assert_eq!(left(&mut bench), 70);
    bench.engine.received(bench.now, long, 50);
    bench.engine.finished(bench.now, long);
    assert_eq!(left(&mut bench), 40, "10 sent and 50 received");
    let short = bench.submit_granted(lane, believed(20));
    bench.engine.received(bench.now, short, 0);
    bench.engine.finished(bench.now, short);
    assert_eq!(left(&mut bench), 30);
    bench.advance_to(bench.now + Duration::from_millis(1_002));
    assert_eq!(left(&mut bench), 100);
    let answer = bench.submit(lane, believed(71));
    assert!(matches!(answer, Answer::Refused(Refusal::TooExpensive { largest: 80, cost: 81, .. })), "{answer:?}");
}

/// A response is dropped before its end: of its length only what has arrived is known.
#[test]
fn unfinished_answer_only_raises_bytes() {
    for (arrived, left) in [(0, 70), (5, 70), (40, 50)] {
        let spec = LimitSpec { measure: Measure::Bytes, ..per_second("bytes", 100) };
        let (mut bench, lane) = Bench::with(plan(vec![spec]));
        let permit = bench.submit_granted(lane, Ask { cost: Cost::from(1).with_bytes(10, 20), ..ask(Tier::High) });
        bench.engine.answered(bench.now, permit);
        bench.engine.received_at_least(bench.now, permit, arrived);
        bench.engine.abandoned(bench.now, permit);
        assert_eq!(bench.engine.view(bench.now, lane).unwrap().limits[0].left, left, "{arrived} bytes have arrived");
    }
}

#[test]
fn prior_use_expires_with_its_window() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 100)]));
    // Ten seconds at the whole rate, all counted as if the vendor had only now seen them.
    for _ in 0..800 {
        let past = PriorUse { requests: 1, cost: 1.into(), high: false, at: bench.now };
        bench.engine.replay(bench.now, lane, NO_ENDPOINT, &past);
    }
    let Answer::Wait { waiter, .. } = bench.submit(lane, ask(Tier::Normal)) else { panic!("the window is full") };
    let start = bench.now;
    let mut waiters = vec![waiter];
    while bench.start_granted(&mut waiters).is_empty() {
        bench.now = bench.engine.poll_timeout().unwrap();
        bench.engine.poll(bench.now);
    }
    let waited = bench.now.since(start).as_millis();
    assert!((1_000..1_010).contains(&waited), "{waited}");
}
