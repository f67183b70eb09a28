//! Grants that are started by a second call, once a store has recorded the exchange.

use std::time::Duration;

use super::*;
use crate::throttle::Wait;
use crate::waiting::WaiterState;

/// A bucket of `capacity` units and a unit each `unit_ns`, with a pace to match.
fn one_each(unit_ns: u64, capacity: u32) -> Plan {
    arriving_within(11 * SECOND, unit_ns, capacity)
}

/// The same, of a vendor whom requests reach within `transit`.
fn arriving_within(transit: u64, unit_ns: u64, capacity: u32) -> Plan {
    let mut limit = bucket("requests", capacity, SECOND as f64 / unit_ns as f64);
    if let LimitKind::Rate { guard, .. } = &mut limit.kind {
        *guard = GuardSpec::Log(LogSpec::new(1_000_000, 0, SECOND, transit));
    }
    paced(Pace { unit_ns, limit: 1, window_ns: unit_ns, ..Pace::default() }, plan(vec![limit]))
}

/// Plain requests of the high tier always wait, and beside them one job of the low tier after the other, each with a
/// record that takes `record` and is good for two seconds. Returns how many of the first `starts` exchanges are jobs.
fn jobs_among(starts: usize, plan: Plan, record: Duration) -> usize {
    let (mut bench, lane) = Bench::with(plan);
    let first = bench.submit_granted(lane, ask(Tier::High));
    bench.engine.finished(bench.now, first);
    for _ in 0..10 {
        bench.submit_waiting(lane, ask(Tier::High));
    }
    let submit = |bench: &mut Bench| bench.engine.submit_deferred(bench.now, lane, &ask(Tier::Low)).expect("it waits");
    let (mut job, mut jobs, mut others) = (submit(&mut bench), 0, 0);
    // When the job's record was asked for, and when its caller starts the grant.
    let (mut asked, mut ready) = (None::<Time>, None::<Time>);
    while jobs + others < starts {
        for waiter in bench.engine.woken().collect::<Vec<_>>() {
            if waiter != job {
                let Claim::Started(permit, _) = bench.engine.claim(bench.now, waiter) else { panic!("it is there") };
                bench.engine.finished(bench.now, permit);
                bench.submit_waiting(lane, ask(Tier::High));
                others += 1;
            } else if asked.is_some_and(|at| bench.now.since(at) < Duration::from_secs(2)) {
                ready = Some(bench.now);
            } else {
                (asked, ready) = (Some(bench.now), Some(bench.now + record));
            }
        }
        if ready.is_some_and(|at| at <= bench.now) {
            ready = None;
            if let Claim::Started(permit, _) = bench.engine.claim(bench.now, job) {
                bench.engine.finished(bench.now, permit);
                (job, asked) = (submit(&mut bench), None);
                jobs += 1;
            }
        } else if bench.engine.is_quiet() {
            let next = bench.engine.poll_timeout().into_iter().chain(ready).min().expect("requests wait");
            bench.now = bench.now.max(next);
            bench.engine.poll(bench.now);
        }
    }
    jobs
}

/// The jobs' share is a seventh. A job whose missed turn counts has half of it.
#[test]
fn job_that_missed_its_grant_has_its_turn_back() {
    let own = || one_each(SECOND / 10, 1);
    let below_shared = with_shared(own(), vec![], vec![bucket("vendor", 100, 10_000.0)]);
    for (what, plan) in [("own", own()), ("below a shared one", below_shared)] {
        let jobs = jobs_among(200, plan, Duration::from_millis(150));
        assert!((19..=30).contains(&jobs), "{what}: {jobs} of 200");
    }
}

/// A record that is written during the wait for the next unit is too old when that one comes.
#[test]
fn slow_limit_waits_for_a_jobs_record() {
    for (unit_ns, record) in [(SECOND, 150), (5 * SECOND, 150), (5 * SECOND, 1_900), (60 * SECOND, 1_000)] {
        let jobs = jobs_among(35, one_each(unit_ns, 1), Duration::from_millis(record));
        assert!((4..=6).contains(&jobs), "{record} ms, a unit each {unit_ns} ns: {jobs} of 35");
    }
}

/// How long a grant is held that is not started, in milliseconds.
fn held_for(plan: Plan) -> u128 {
    let (mut bench, lane) = Bench::with(plan);
    let job = bench.engine.submit_deferred(bench.now, lane, &ask(Tier::High)).expect("it is granted");
    let granted = bench.now;
    while !matches!(bench.engine.waiters[job].state, WaiterState::Missed) {
        bench.now = bench.engine.poll_timeout().expect("the grant is taken back");
        bench.engine.poll(bench.now);
    }
    bench.now.since(granted).as_millis()
}

#[test]
fn grant_is_held_until_limits_would_bring_the_next() {
    let slots_of = |service_ns: u64| Plan { service_ns, ..plan(vec![slots("slots", 1)]) };
    for (what, plan, held) in [
        ("a fast limit", one_each(SECOND / 100, 1), 100),
        ("a slow limit", one_each(SECOND / 4, 1), 300),
        ("a limit of a unit each five seconds", one_each(5 * SECOND, 1), 2_000),
        ("the same where requests arrive within a second", arriving_within(SECOND, 5 * SECOND, 1), 900),
        ("the same with more units", one_each(5 * SECOND, 2), 100),
        ("a slot for a short time", slots_of(SECOND / 10), 100),
        ("a slot for long", slots_of(2 * SECOND), 500),
    ] {
        assert_eq!(held_for(plan), held, "{what}");
    }
}

/// A plain request has nothing to write: its caller is late.
#[test]
fn plain_grant_is_held_for_a_moment_alone() {
    let (mut bench, lane) = Bench::with(one_each(5 * SECOND, 1));
    let first = bench.submit_granted(lane, ask(Tier::High));
    let (sleepy, _) = bench.submit_waiting(lane, ask(Tier::High));
    let (awake, _) = bench.submit_waiting(lane, ask(Tier::High));
    bench.engine.not_sent(bench.now, first);
    let start = bench.now;
    let woken = bench.run(start + Duration::from_secs(1));
    assert_eq!(woken, [(start, sleepy), (start + Duration::from_millis(100), awake)]);
}

/// Those who waited were sent away when the pause began.
#[test]
fn long_pause_refuses_a_job_with_a_missed_grant() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 100)]));
    let first = bench.submit_granted(lane, ask(Tier::Normal));
    let job = bench.engine.submit_deferred(bench.now, lane, &ask(Tier::Low)).expect("it is granted");
    let refused = Feedback::RefusedFor(Whose::Lane, Wait::Stated(7_200 * SECOND), None);
    bench.engine.answered_with(bench.now, first, refused, &[], true);
    bench.now = ms(150);
    bench.engine.poll(bench.now);
    let answer = bench.engine.granted(bench.now, job);
    assert!(matches!(answer, Err(Refusal::RetryLater { at }) if at >= ms(7_200_000)), "{answer:?}");
}
