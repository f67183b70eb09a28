//! How near to the truth a lane gets that was told a wrong limit, or shares it with somebody, against a vendor in
//! made-up time: answers take 4 to 12 ms, callers send again as soon as they are answered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::super::pushback::Feedback;
use super::super::throttle::{Mode, Report, Wait};
use super::*;
use crate::plan::{Counting, Pace};
use crate::testing::{Call, ScriptedVendor, VendorLimit};

const CALL: Call = Call { tenant: 1, account: 1, endpoint: 0, cost: 1 };

/// What the vendor says beside the status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Announced {
    Nothing,
    RetryAfter,
    Headers,
}

struct Trial {
    vendor: ScriptedVendor,
    announced: Announced,
    mode: Mode,
    /// What the client believes; the vendor may take less.
    configured_limit: u32,
    is_sliding: bool,
    /// Most requests under way.
    at_once: u32,
    callers: usize,
    seconds: u64,
    seed: u64,
}

/// Requests by second: admitted and refused, and the vendor's refusals one by one.
#[derive(Default)]
struct Record {
    admitted: Vec<u32>,
    refused: Vec<u32>,
    refusals: Vec<u64>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Answer { permit: PermitKey, word: usize },
    Arrive { permit: PermitKey },
    Again,
}

impl Trial {
    fn run(mut self) -> Record {
        let pace = Pace {
            unit_ns: SECOND * 10 / (8 * u64::from(self.configured_limit)),
            limit: self.configured_limit.into(),
            window_ns: SECOND,
            counting: if self.is_sliding { Counting::Log } else { Counting::Windows },
            mode: self.mode,
        };
        let limits = vec![per_second("requests", self.configured_limit), slots("slots", self.at_once)];
        let (mut bench, lane) = Bench::with(paced(pace, plan(limits)));
        let mut random = fastrand::Rng::with_seed(self.seed);
        let start = bench.now;
        let mut record = Record {
            admitted: vec![0; self.seconds as usize],
            refused: vec![0; self.seconds as usize],
            refusals: Vec::new(),
        };
        let mut words: Vec<Feedback> = Vec::new();
        let mut todo = BinaryHeap::new();
        let mut waiters: Vec<WaiterKey> = Vec::new();
        let mut idle = self.callers;
        let mut way = || random.u64(2_000_000..6_000_000);
        let mut seed = fastrand::Rng::with_seed(self.seed + 1);
        loop {
            let mut granted = Vec::new();
            while idle > 0 {
                idle -= 1;
                match bench.submit(lane, ask(Tier::Normal)) {
                    Answer::Granted(permit) => granted.push(permit),
                    Answer::Wait { waiter, .. } => waiters.push(waiter),
                    other => panic!("{other:?}"),
                }
            }
            granted.extend(bench.start_granted(&mut waiters));
            for permit in granted {
                todo.push(Reverse((bench.now + Duration::from_nanos(way()), Event::Arrive { permit })));
            }
            let timer = bench.engine.poll_timeout().unwrap_or(Time::MAX);
            let event = todo.peek().map_or(Time::MAX, |next| next.0.0);
            let next = timer.min(event);
            let elapsed = next.since(start);
            if elapsed.as_secs() >= self.seconds {
                return record;
            }
            bench.now = next;
            if timer <= event {
                bench.engine.poll(next);
                continue;
            }
            let (second, at_ns) = (elapsed.as_secs() as usize, elapsed.as_nanos() as u64);
            match todo.pop().unwrap().0.1 {
                Event::Again => idle += 1,
                Event::Arrive { permit } => {
                    let verdict = self.vendor.arrive(at_ns, &CALL);
                    let notice = self.vendor.notice(at_ns, &CALL, &verdict);
                    let reading = notice.foremost.filter(|_| self.announced == Announced::Headers);
                    let seconds = |at: u64| at.saturating_sub(at_ns).div_ceil(SECOND) * SECOND;
                    let report = reading.map(|reading| Report {
                        limit: reading.limit.into(),
                        remaining: reading.remaining.into(),
                        reset_ns: Some(seconds(reading.reset_at_ns)),
                        ..Report::default()
                    });
                    let word = if verdict.admitted {
                        record.admitted[second] += 1;
                        Feedback::Passed(report)
                    } else {
                        record.refused[second] += 1;
                        record.refusals.push(at_ns);
                        let told = notice.retry_at_ns.filter(|_| self.announced != Announced::Nothing);
                        let mut jitter = |ns: u64| ns + ns * seed.u64(0..100) / 1_000;
                        let most = 10 * SECOND;
                        Feedback::Refused(
                            told.map_or(Wait::Guess { most }, |at| Wait::Stated(jitter(seconds(at).max(SECOND)))),
                            report,
                        )
                    };
                    words.push(word);
                    let back = bench.now + Duration::from_nanos(way());
                    todo.push(Reverse((back, Event::Answer { permit, word: words.len() - 1 })));
                }
                Event::Answer { permit, word } => {
                    let word = words[word];
                    bench.on_response(permit, word);
                    match word {
                        Feedback::Refused(Wait::Guess { .. }, _) => {
                            let back = bench.now + Duration::from_millis(seed.u64(5_000..10_000));
                            todo.push(Reverse((back, Event::Again)));
                        }
                        _ => idle += 1,
                    }
                }
            }
        }
    }
}

fn sum(of: &[u32], seconds: std::ops::Range<usize>) -> u32 {
    of[seconds].iter().sum()
}

/// Ten phases of the vendor's windows: the figures of each, least first.
fn figures_by_phase<T: PartialOrd + std::fmt::Debug>(what: &str, trial: impl Fn(u64) -> T) -> Vec<T> {
    let mut figures: Vec<T> = (0..10).map(trial).collect();
    figures.sort_by(|a, b| a.partial_cmp(b).unwrap());
    println!("{what}: {figures:.0?}");
    figures
}

/// Sixty callers of a limit of which the client was told 100 a second.
fn trial(
    vendor: ScriptedVendor,
    announced: Announced,
    mode: Mode,
    fixed: bool,
    at_once: u32,
    seconds: u64,
    seed: u64,
) -> Trial {
    Trial { vendor, announced, mode, configured_limit: 100, is_sliding: !fixed, at_once, callers: 60, seconds, seed }
}

fn limit(fixed: bool, limit: u32, phase: u64) -> VendorLimit {
    match fixed {
        true => VendorLimit::fixed_window(limit, Duration::from_secs(1)).phase(Duration::from_millis(phase)),
        false => VendorLimit::sliding_window(limit, Duration::from_secs(1)),
    }
}

/// Somebody else takes 50 of 100 a second from second 5 to 15: percent of the other half that was used, and refusals.
fn use_beside_other_traffic(fixed: bool, announced: Announced, at_once: u32) -> Vec<(f64, usize)> {
    figures_by_phase(&format!("fixed={fixed} {announced:?} at_once={at_once}, half taken"), |seed| {
        let (from, until) = (Duration::from_secs(5), Duration::from_secs(15));
        let vendor = ScriptedVendor::new([limit(fixed, 100, seed * 100)]).other_traffic(CALL, 50, from, until);
        let record = trial(vendor, announced, Mode::Bands, fixed, at_once, 42, seed).run();
        let after = sum(&record.admitted, 32..42);
        // Bands alone hold a lane that sends evenly at seven tenths where units come back one by one.
        let least = if !fixed && announced == Announced::Headers { 680 } else { 760 };
        assert!(after >= least, "{after} of the 800 in the last ten seconds: it recovers");
        (f64::from(sum(&record.admitted, 5..15)) / 5.0, record.refusals.len())
    })
}

/// Told 100 a second where the vendor takes 50, and blocks for 2 s at each refusal and hit: percent of the 50 in the
/// second ten seconds, and refusals.
fn use_with_doubled_limit(fixed: bool, announced: Announced) -> Vec<(f64, usize)> {
    figures_by_phase(&format!("fixed={fixed} {announced:?}, told twice the limit"), |seed| {
        let vendor = ScriptedVendor::new([limit(fixed, 50, seed * 100)]).penalty(Duration::from_secs(2));
        let record = trial(vendor, announced, Mode::Bands, fixed, 2, 20, seed).run();
        (f64::from(sum(&record.admitted, 10..20)) / 5.0, record.refusals.len())
    })
}

#[test]
fn rest_beside_others_is_used() {
    for at_once in [1, 2, 4, 100] {
        for (announced, most) in [(Announced::Headers, 5), (Announced::Nothing, 30)] {
            let used = use_beside_other_traffic(true, announced, at_once);
            assert!(used.iter().all(|(used, refused)| *used >= 85.0 && *refused <= most), "{used:?}");
            assert!(used[2].0 >= 95.0, "{used:?}");
        }
        // Retry-After alone: each refusal costs the second that it states.
        assert!(
            use_beside_other_traffic(true, Announced::RetryAfter, at_once)
                .iter()
                .all(|(used, refused)| *used >= 70.0 && *refused <= 30)
        );
        assert!(
            use_beside_other_traffic(false, Announced::Nothing, at_once)
                .iter()
                .all(|(used, refused)| *used >= 90.0 && *refused <= 30)
        );
        // Units come back one by one, so that little is ever left: the bands slow the lane down for good, in one phase of ten to
        // half of the rest. One refusal is what it may cost to find out about the other.
        let used = use_beside_other_traffic(false, Announced::Headers, at_once);
        assert!(used.iter().all(|(used, refused)| *used >= 45.0 && *refused <= 1), "{used:?}");
        assert!(used[1].0 >= 55.0, "{used:?}");
    }
}

#[test]
fn lane_learns_a_doubled_limit() {
    for (fixed, announced) in
        [(true, Announced::RetryAfter), (true, Announced::Headers), (false, Announced::RetryAfter)]
    {
        let learnt = use_with_doubled_limit(fixed, announced);
        // Of a limit that the vendor states four fifths are used, as of any other.
        let least = if announced == Announced::Headers { 79.0 } else { 90.0 };
        // The first refusal may be an accident, and the second teaches: where a burst met two of the vendor's windows, which is one
        // phase of ten, a third one and its block lie in these ten seconds.
        assert!(learnt.iter().all(|(used, refused)| *used >= 75.0 && *refused <= 5), "{learnt:?}");
        assert!(learnt[1].0 >= least, "{learnt:?}");
    }
    // Nobody says how long the block is: it is found out by hitting it, which makes it longer.
    for fixed in [true, false] {
        let learnt = use_with_doubled_limit(fixed, Announced::Nothing);
        assert!(learnt.iter().all(|(_, refused)| *refused <= 8), "{learnt:?}");
    }
}

/// How a limit that is used alone fares with headers on every answer, in percent of what it does without them.
fn use_alone_with_headers(fixed: bool, mode: Mode, at_once: u32) -> (f64, f64) {
    let run = |announced: Announced, seed: u64| {
        let vendor = ScriptedVendor::new([limit(fixed, 100, seed * 100)]);
        let record = trial(vendor, announced, mode, fixed, at_once, 12, seed).run();
        assert!(record.refusals.is_empty(), "{:?}", record.refusals);
        f64::from(sum(&record.admitted, 2..12))
    };
    let shares = figures_by_phase(&format!("fixed={fixed} {mode:?} at_once={at_once}, alone"), |seed| {
        100.0 * run(Announced::Headers, seed) / run(Announced::Nothing, seed)
    });
    (shares[0], shares[5])
}

/// Somebody else takes half, and says so in the headers: the least percent of the rest that was used from the third second on,
/// and the most refusals.
fn adaptive_use_beside_other_traffic(fixed: bool, at_once: u32) -> (f64, usize) {
    let figures = figures_by_phase(&format!("fixed={fixed} adaptive at_once={at_once}, half taken"), |seed| {
        let (from, until) = (Duration::from_secs(5), Duration::from_secs(25));
        let vendor = ScriptedVendor::new([limit(fixed, 100, seed * 100)]).other_traffic(CALL, 50, from, until);
        let record = trial(vendor, Announced::Headers, Mode::Adaptive, fixed, at_once, 35, seed).run();
        let after = sum(&record.admitted, 30..35);
        assert!(after >= 380, "{after} of the 400 in the last five seconds: it recovers");
        (f64::from(sum(&record.admitted, 8..25)) / 8.5, record.refusals.len())
    });
    let most = figures.iter().map(|(_, refused)| *refused).max().unwrap_or(0);
    (figures[0].0, most)
}

#[test]
fn adaptive_limit_alone_loses_nothing() {
    for (fixed, at_once) in [(true, 2), (true, 100), (false, 2), (false, 100)] {
        let (least, usual) = use_alone_with_headers(fixed, Mode::Adaptive, at_once);
        assert!(usual >= 97.0 && least >= 97.0, "fixed={fixed} at_once={at_once}: {least} {usual}");
    }
}

#[test]
fn adaptive_limit_leaves_others_their_part() {
    for (fixed, at_once) in [(true, 2), (true, 100), (false, 2), (false, 100)] {
        let (least, refused) = adaptive_use_beside_other_traffic(fixed, at_once);
        assert!(least >= 85.0 && refused <= 5, "fixed={fixed} at_once={at_once}: {least} {refused}");
    }
}
