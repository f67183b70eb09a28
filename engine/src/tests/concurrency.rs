//! Slots, permits and their three moments, callers that go away.

use super::*;
use crate::throttle::Wait;

#[test]
fn limits_are_taken_all_at_once() {
    let one_per_second = bucket("requests", 1, 1.0);
    let (mut bench, lane) = Bench::with(plan(vec![one_per_second, slots("slots", 1)]));
    let start = bench.now;
    let first = bench.submit_granted(lane, ask(Tier::High));
    let second = bench.submit_waiting(lane, ask(Tier::High)).0;
    let third = bench.submit_waiting(lane, ask(Tier::High)).0;
    bench.run(start + std::time::Duration::from_secs(2));
    bench.engine.finished(bench.now, first);
    let grants = bench.serve(start + std::time::Duration::from_secs(9), 10_000_000);
    let seconds: Vec<(u64, WaiterKey)> =
        grants.into_iter().map(|(at, waiter)| (at.since(start).as_secs(), waiter)).collect();
    assert_eq!(seconds, [(2, second), (3, third)]);
    bench.assert_clean();
}

#[test]
fn slot_is_held_until_response_is_read() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("slots", 1)]));
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let (waiter, until) = bench.submit_waiting(lane, ask(Tier::High));
    assert_eq!(until, Until::OnSettle(Time::MAX));
    bench.engine.answered(bench.now, permit);
    assert!(bench.engine.is_quiet());
    bench.engine.finished(bench.now, permit);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
}

#[test]
fn missed_grant_passes_on_and_returns_first() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("slots", 1)]));
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let sleepy = bench.submit_waiting(lane, ask(Tier::High)).0;
    let awake = bench.submit_waiting(lane, ask(Tier::High)).0;
    bench.engine.finished(bench.now, permit);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [sleepy]);
    let start = bench.now;
    let woken = bench.run(start + std::time::Duration::from_millis(150));
    assert_eq!(woken, [(start + std::time::Duration::from_millis(100), awake)]);
    let Claim::Started(permit, _) = bench.engine.claim(bench.now, awake) else { panic!() };
    let last = bench.submit_waiting(lane, ask(Tier::High)).0;
    assert!(matches!(bench.engine.claim(bench.now, sleepy), Claim::Waiting), "the slot is taken");
    bench.engine.finished(bench.now, permit);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [sleepy], "before the one that came later");
    let Claim::Started(permit, _) = bench.engine.claim(bench.now, sleepy) else { panic!() };
    bench.engine.finished(bench.now, permit);
    let Claim::Started(permit, _) = bench.engine.claim(bench.now, last) else { panic!() };
    bench.engine.finished(bench.now, permit);
    bench.assert_clean();
}

#[test]
fn late_waiter_finds_slot_or_deadline() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("slots", 1)]));
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let start = bench.now;
    let sleepy = bench.submit_waiting(lane, ask(Tier::High)).0;
    let late =
        bench.submit_waiting(lane, Ask { give_up: start + std::time::Duration::from_secs(1), ..ask(Tier::High) }).0;
    bench.engine.finished(bench.now, permit);
    bench.run(start + std::time::Duration::from_secs(2));
    assert!(matches!(bench.engine.claim(bench.now, late), Claim::Refused(Refusal::Deadline)));
    let Claim::Started(permit, _) = bench.engine.claim(bench.now, sleepy) else { panic!() };
    assert!(bench.engine.is_quiet());
    bench.engine.finished(bench.now, permit);
    bench.assert_clean();
}

#[test]
fn unstarted_grant_gives_everything_back() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 1), slots("slots", 1)]));
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    bench.engine.not_sent(bench.now, permit);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
    bench.engine.cancel(bench.now, waiter);
    bench.submit_granted(lane, ask(Tier::High));
}

#[test]
fn abandoned_exchange_keeps_slot_for_service_time() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("slots", 1)]));
    for _ in 0..20 {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.now = bench.now + std::time::Duration::from_millis(200);
        bench.engine.finished(bench.now, permit);
    }
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    bench.engine.abandoned(bench.now, permit);
    let start = bench.now;
    let woken = bench.run(start + std::time::Duration::from_millis(450));
    assert_eq!(woken.len(), 1);
    let held = woken[0].0.since(start).as_millis();
    assert!((350..=400).contains(&held) && woken[0].1 == waiter, "held for {held} ms");
}

#[test]
fn started_permit_ends_at_its_deadline() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 10), slots("slots", 1)]));
    bench.submit_granted(lane, Ask { attempt: Attempt::within(5 * SECOND), ..ask(Tier::High) });
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    let start = bench.now;
    let woken = bench.run(start + std::time::Duration::from_secs(6));
    assert_eq!(woken.first().map(|(at, waiter)| (at.since(start).as_secs(), *waiter)), Some((5, waiter)));
}

/// A connection that is closed is closed for the vendor a little later.
#[test]
fn unanswered_exchange_keeps_slot_until_noticed() {
    let closing = Plan { closing_ns: 2 * SECOND, ..plan(vec![slots("slots", 1)]) };
    let five_seconds = Ask { attempt: Attempt::within(5 * SECOND), ..ask(Tier::High) };
    // Its caller says nothing, goes away at its deadline or a second after it, or went away before: the vendor is expected
    // to be busy with it for a second.
    for (abandoned_at, free_at) in [(None, 7_000), (Some(5_000), 7_000), (Some(6_000), 7_000), (Some(1_000), 4_000)] {
        let (mut bench, lane) = Bench::with(closing.clone());
        let start = bench.now;
        let permit = bench.submit_granted(lane, five_seconds);
        let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
        if let Some(after) = abandoned_at {
            assert_eq!(bench.run(start + std::time::Duration::from_millis(after)), [], "{after}");
            bench.engine.abandoned(bench.now, permit);
        }
        let woken = bench.run(start + std::time::Duration::from_secs(9));
        let (at, who) = woken[0];
        assert_eq!((at.since(start).as_millis(), who), (free_at, waiter), "{abandoned_at:?}");
    }
}

#[test]
fn late_answer_frees_the_slot_at_once() {
    let (mut bench, lane) = Bench::with(Plan { closing_ns: 2 * SECOND, ..plan(vec![slots("slots", 1)]) });
    let permit = bench.submit_granted(lane, Ask { attempt: Attempt::within(5 * SECOND), ..ask(Tier::High) });
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    bench.run(bench.now + std::time::Duration::from_millis(5_500));
    bench.engine.finished(bench.now, permit);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
    bench.engine.cancel(bench.now, waiter);
    bench.assert_clean();
}

/// A stream goes on for minutes after its headers, and states at its end what it cost.
#[test]
fn outlasting_permit_keeps_slot_and_settles() {
    for outlasts_first in [true, false] {
        let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 100), slots("slots", 1)]));
        let permit = bench.submit_granted(lane, Ask { attempt: Attempt::within(5 * SECOND), ..ask(Tier::High) });
        let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
        if outlasts_first {
            bench.engine.outlasts(permit);
            bench.engine.answered(bench.now, permit);
        } else {
            bench.engine.answered(bench.now, permit);
            bench.engine.outlasts(permit);
        }
        assert_eq!(bench.run(bench.now + std::time::Duration::from_secs(300)), [], "the vendor still sends");
        let mut stated = Settled::default();
        stated.set(PointKind::POINTS, 40);
        let corrected = bench.engine.corrected(bench.now, permit, &stated).map(|corrected| corrected.actual);
        assert_eq!(corrected, Some(Cost::from(40)));
        bench.engine.finished(bench.now, permit);
        assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
        bench.engine.cancel(bench.now, waiter);
        bench.assert_clean();
    }
}

/// An exchange of the program's own hangs while it probes a pause.
#[test]
fn outlasting_probe_is_replaced_and_keeps_slot() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("slots", 2)]));
    let refused = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(refused, Feedback::Refused(Wait::Stated(SECOND), None));
    bench.advance_to(ms(1_000));
    let hanging = bench.submit_granted(lane, Ask { attempt: Attempt::within(5 * SECOND), ..ask(Tier::High) });
    bench.engine.outlasts(hanging);
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    let woken = bench.run(ms(60_000));
    assert_eq!(woken.first(), Some(&(ms(6_000), waiter)), "another request probes after five seconds");
    bench.engine.cancel(bench.now, waiter);
    assert_eq!(bench.engine.lanes[lane].own.as_mut()[0].slots_used(), Some(1), "the slot stays taken");
    bench.engine.abandoned(bench.now, hanging);
    bench.assert_clean();
}

/// Its account has other lanes in the old engine.
#[test]
fn outlasting_permit_of_moved_lane_ends() {
    let shared = Arc::new(with_shared(plan(vec![]), vec![slots("account", 2)], vec![]));
    let mut bench = Bench::new();
    let [moving, staying] = ["one", "two"].map(|tenant| bench.lane(tenant, "account", &shared));
    let hanging = bench.submit_granted(moving, Ask { attempt: Attempt::within(5 * SECOND), ..ask(Tier::High) });
    bench.engine.outlasts(hanging);
    drop(bench.engine.move_out(bench.now, moving).expect("the lane exists"));
    bench.now = bench.now.plus_nanos(120 * SECOND);
    bench.engine.poll(bench.now);
    bench.engine.abandoned(bench.now, hanging);
    bench.engine.poll(bench.now);
    for _ in 0..2 {
        let _ = bench.submit_granted(staying, ask(Tier::High));
    }
}

#[test]
fn thousand_waiters_are_granted_in_order() {
    let (mut bench, lane) = Bench::with(plan(vec![bucket("requests", 1, 500.0)]));
    let start = bench.now;
    bench.submit_granted(lane, ask(Tier::Normal));
    let waiters: Vec<WaiterKey> = (0..1000).map(|_| bench.submit_waiting(lane, ask(Tier::Normal)).0).collect();
    // A driver that wakes up 1.3 ms late every time.
    let mut grants = Vec::new();
    let mut polls = 0;
    while let Some(at) = bench.engine.poll_timeout() {
        bench.now = at.plus_nanos(1_300_000);
        bench.engine.poll(bench.now);
        polls += 1;
        let woken: Vec<WaiterKey> = bench.engine.woken().collect();
        for waiter in woken {
            let Claim::Started(permit, _) = bench.engine.claim(bench.now, waiter) else { panic!() };
            grants.push(waiter);
            bench.engine.finished(bench.now, permit);
        }
        if grants.len() == 1000 {
            break;
        }
    }
    assert_eq!(grants, waiters, "the order is exact");
    let took = bench.now.since(start).as_secs_f64();
    assert!((1.98..=2.02).contains(&took), "{took} s, ideally 2.00");
    assert!(polls <= 1020, "{polls} wake-ups for 1000 grants");
}
