//! Forecasts against what then happens.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::time::Duration;

use super::super::pushback::Feedback;
use super::super::throttle::{Mode, Report, Wait};
use super::super::{Batch, forecast};
use super::*;
use crate::cost::Total;
use crate::plan::{Counting, Pace};

/// A lane in the middle of its work.
struct Situation {
    bench: Bench,
    lane: LaneKey,
    batch: Batch,
    random: fastrand::Rng,
}

fn situation(seed: u64) -> Situation {
    let mut random = fastrand::Rng::with_seed(seed);
    let (limit, seconds) = (random.u32(10..300), random.u64(1..60));
    let mut spec = per_second("requests", limit);
    let budget = (limit as f64 * 0.8).floor().max(1.0);
    spec.kind = LimitKind::Rate {
        bucket: BucketSpec::new(budget as u32, limit as f64 * 0.8, seconds * SECOND, 0),
        guard: GuardSpec::Log(LogSpec::new(limit, limit - budget as u32, seconds * SECOND, TRANSIT)),
    };
    let mut limits = vec![spec];
    if random.bool() {
        limits.push(slots("slots", random.u32(1..30)));
    }
    let pace = Pace {
        unit_ns: seconds * SECOND / budget as u64,
        limit: limit.into(),
        window_ns: seconds * SECOND,
        counting: if random.bool() { Counting::Bucket } else { Counting::Windows },
        mode: [Mode::Bands, Mode::Adaptive, Mode::Pace][seed as usize % 3],
    };
    let shares = random.u8(0..3) == 0;
    let shared = vec![per_second("shared", random.u32(20..300))];
    let plan = paced(pace, plan(limits));
    let plan = Arc::new(if shares { with_shared(plan, Vec::new(), shared) } else { plan });
    let mut bench = Bench::new();
    let lane = bench.lane("acme", "acme", &plan);
    if shares {
        for rival in 0..random.u32(0..5) {
            let key = bench.lane(&format!("rival{rival}"), "rival", &plan);
            for _ in 0..random.u32(0..100) {
                let _ = bench.submit(key, ask(Tier::ALL[usize::from(random.u8(0..3))]));
            }
        }
    }
    let service_ns = random.u64(5..200) * 1_000_000;
    let trouble = match random.u8(0..4) {
        0 => Some(Feedback::Refused(Wait::Stated(random.u64(1..60) * SECOND), None)),
        1 => Some(Feedback::Passed(Some(Report {
            limit: limit.into(),
            remaining: random.u64(0..u64::from(limit) / 3),
            reset_ns: Some(random.u64(1..=seconds) * SECOND),
            ..Report::default()
        }))),
        _ => None,
    };
    if let (Some(word), Answer::Granted(permit)) = (trouble, bench.submit(lane, ask(Tier::High))) {
        bench.on_response(permit, word);
    }
    for tier in Tier::ALL {
        for _ in 0..random.u32(0..100) {
            let _ = bench.submit(lane, ask(tier));
        }
    }
    let (tier, requests) = (Tier::ALL[usize::from(random.u8(0..3))], random.u64(1..400));
    let batch = Batch { tier, requests, total: Total::same(requests, 1.into()), service_ns };
    Situation { bench, lane, batch, random }
}

/// What happens: answers take half to one and a half of what is usual.
fn measure(mut s: Situation) -> Duration {
    let start = s.bench.now;
    let mut ends = BinaryHeap::new();
    let mut service = || s.random.u64(s.batch.service_ns / 2..=s.batch.service_ns * 3 / 2);
    let granted: Vec<PermitKey> = s.bench.engine.permits.keys().collect();
    for permit in granted {
        s.bench.engine.permits.set_deadline(permit, Time::MAX);
        ends.push(Reverse((start.plus_nanos(service()), permit, false)));
    }
    let mut ours = HashSet::new();
    for _ in 0..s.batch.requests {
        match s.bench.submit(s.lane, Ask { attempt: Attempt::within(u64::MAX / 4), ..ask(s.batch.tier) }) {
            Answer::Granted(permit) => ends.push(Reverse((start.plus_nanos(service()), permit, true))),
            Answer::Wait { waiter, .. } => drop(ours.insert(waiter)),
            other => panic!("{other:?}"),
        }
    }
    let mut left = s.batch.requests;
    loop {
        let woken: Vec<WaiterKey> = s.bench.engine.woken().collect();
        for waiter in woken {
            if let Claim::Started(permit, _) = s.bench.engine.claim(s.bench.now, waiter) {
                let end = s.bench.now.plus_nanos(service());
                ends.push(Reverse((end, permit, ours.remove(&waiter))));
            }
        }
        let due = s.bench.engine.poll_timeout().unwrap_or(Time::MAX);
        let answer = ends.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
        s.bench.now = s.bench.now.max(due.min(answer));
        if due < answer {
            s.bench.engine.poll(s.bench.now);
            continue;
        }
        let Some(Reverse((_, permit, is_ours))) = ends.pop() else { panic!("{left} of the batch never go") };
        s.bench.on_response(permit, Feedback::Passed(None));
        left -= u64::from(is_ours);
        if left == 0 {
            return s.bench.now.since(start);
        }
    }
}

#[test]
fn forecast_matches_what_happens() {
    let (mut worst, mut beyond, mut outside) = (0.0f64, Vec::new(), Vec::new());
    for seed in 0..1_000 {
        let s = situation(seed);
        let copy = s.bench.engine.copy(s.lane).unwrap();
        let forecast = forecast(&copy, s.bench.now, s.batch);
        let seconds = |after: Option<Duration>| after.unwrap().as_secs_f64();
        let [earliest, expected, guaranteed] = [forecast.earliest, forecast.expected, forecast.guaranteed].map(seconds);
        let service = s.batch.service_ns as f64 / 1e9;
        let measured = measure(s).as_secs_f64();
        // The last answer alone takes half as long again as is usual.
        let error = ((expected - measured).abs() - service / 2.0).max(0.0) / measured;
        worst = worst.max(error);
        if error > 0.05 {
            beyond.push((seed, expected, measured));
        }
        if earliest > measured * 1.05 + service || guaranteed < measured * 0.95 - service {
            outside.push((seed, earliest, measured, guaranteed));
        }
    }
    println!("1000 situations: worst error {:.2} %, {} beyond 5 %", 100.0 * worst, beyond.len());
    assert!(beyond.is_empty(), "{beyond:?}");
    assert!(outside.is_empty(), "{outside:?}");
}

/// Lanes that wait for a limit which they share, looked at when time has gone on and nobody has told the engine: the first
/// that the copy submits may go at once, and the part of the tree that others were to stand in with it.
#[test]
fn forecast_in_mid_turn_is_possible() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = || vec![per_second("shared", 20)];
        let by_account = random.bool();
        let (account, vendor) = if by_account { (limit(), Vec::new()) } else { (Vec::new(), limit()) };
        let both = random.bool();
        let vendor = if both { limit() } else { vendor };
        let mut limits = vec![per_second("own", 1_000)];
        limits.extend(random.bool().then(|| slots("slots", random.u32(1..5))));
        let plan = Arc::new(with_shared(plan(limits), account, vendor));
        let mut bench = Bench::new();
        let lanes: Vec<LaneKey> = (0..random.usize(2..5))
            .map(|number| bench.lane(&format!("tenant{number}"), if number % 2 == 0 { "one" } else { "two" }, &plan))
            .collect();
        let mut held = Vec::new();
        for lane in &lanes {
            for _ in 0..random.u32(0..30) {
                if let Answer::Granted(permit) = bench.submit(*lane, ask(Tier::ALL[usize::from(random.u8(0..3))])) {
                    held.push(permit);
                }
            }
        }
        for permit in held {
            if random.bool() {
                bench.on_response(permit, Feedback::Passed(None));
            }
        }
        let later = bench.now + Duration::from_millis(random.u64(0..3_000));
        let (tier, requests) = (Tier::ALL[usize::from(random.u8(0..3))], random.u64(1..60));
        let batch = Batch { tier, requests, total: Total::same(requests, 1.into()), service_ns: 20_000_000 };
        let copy = bench.engine.copy(lanes[0]).unwrap();
        let forecast = forecast(&copy, later, batch);
        assert!(forecast.expected.is_some() && forecast.guaranteed >= forecast.expected, "{seed}: {forecast:?}");
    }
}

/// Fifty requests that cost one or two points each: eight points a second, and eight at once.
#[test]
fn requests_that_cost_more_take_longer() {
    let (bench, lane) = Bench::with(plan(vec![bucket("points", 8, 8.0)]));
    let copy = bench.engine.copy(lane).unwrap();
    let seconds = |points: u64| {
        let total = Total::of([points, 50, 50, 50]);
        let batch = Batch { tier: Tier::Normal, requests: 50, total, service_ns: 1_000_000 };
        forecast(&copy, bench.now, batch).earliest.unwrap().as_secs_f64()
    };
    let (cheap, dear) = (seconds(50), seconds(100));
    assert!((5.0..5.6).contains(&cheap), "(50 - 8) / 8 a second: {cheap}");
    assert!((11.0..12.0).contains(&dear), "(100 - 8) / 8 a second: {dear}");
    let total = Total::of([7, 0, 3, 1_000]);
    let shares: Vec<u32> = (0..3).map(|number| total.share(number, 3).points(PointKind::POINTS)).collect();
    assert_eq!((shares.iter().sum::<u32>(), shares.iter().max()), (7, Some(&3)));
}

/// Windows of which one holds a large part of what is simulated, or more.
#[test]
fn batch_of_large_windows_takes_as_many_as_it_needs() {
    for (limit, seconds, requests, windows) in [
        (100, 1, 10_000, 100),
        (600, 60, 10_000, 17),
        (1_000, 1, 10_000, 10),
        (2_000, 3_600, 10_000, 5),
        (1_999, 60, 10_000, 6),
        (6_000, 60, 10_000, 2),
        (5_000, 1, 100_000, 20),
        (30_000, 60, 100_000, 4),
    ] {
        let mut spec = per_second("requests", limit);
        spec.kind = LimitKind::Rate {
            bucket: BucketSpec::new(limit, f64::from(limit), seconds * SECOND, 0),
            guard: GuardSpec::Log(LogSpec::new(limit, 0, seconds * SECOND, 0)),
        };
        let (bench, lane) = Bench::with(plan(vec![spec]));
        let copy = bench.engine.copy(lane).unwrap();
        let batch = Batch { tier: Tier::High, requests, total: Total::same(requests, 1.into()), service_ns: 1_000_000 };
        let took = forecast(&copy, bench.now, batch).earliest.unwrap().as_secs_f64() / seconds as f64;
        let least = f64::from(windows) - 1.0;
        assert!((least * 0.98..least + 1.1).contains(&took), "{limit} in {seconds} s: {took} windows of {windows}");
    }
}
