//! Grants that are started by a second call, once a store has recorded the exchange.

use std::time::Duration;

use super::*;

/// A bucket of `capacity` units and a unit each `unit_ns`, with a pace to match.
fn one_each(unit_ns: u64, capacity: u32) -> Plan {
    let pace = Pace { unit_ns, limit: 1, window_ns: unit_ns, ..Pace::default() };
    paced(pace, plan(vec![bucket("requests", capacity, SECOND as f64 / unit_ns as f64)]))
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
