//! The engine against vendors of every algorithm, on virtual time: what they refuse, and how much of what they allow is used.
//!
//! `cargo run --release --example simulate -- --requests 1000000 --seed 1`
//!
//! Vendors judge requests by when they arrive; the engine knows when it granted them and when they were answered. Ways take
//! 0 to 50 ms, in six manners; vendors' clocks drift by up to 50 ppm, and half of them tick once a millisecond; every
//! second case is troubled: answers are lost, callers go away, the client's clock is set back, its configuration is
//! reloaded, its lane evicted. `share` and `oracle` are in percent of what a client could send that knows the vendor's state and
//! whose requests take no time; the oracle knows the vendor's state as well, and not how long its next request takes.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "an example that measures and prints")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use integration_client::testing::saturation::{Case, Counting, Outcome, Travel, saturate};

const USAGE: &str =
    "usage: simulate [--requests N] [--seed S] [--algorithm A] [--safety F] [--window SECONDS] [--without-guard]

  --requests N      requests for each algorithm (default 200000)
  --seed S          another seed, other phases and delays (default 1)
  --algorithm A     only this one: fixed_window, fixed_window_phase_known, sliding_window, sliding_counter,
                    sliding_counter_phase_known, token_bucket, leaky_bucket, lumped_refill, quota, unknown
  --safety F        only this share of the limit (default: 0.8 and 1)
  --window SECONDS  only this window (default: 1 and 60; the limit is 100 in a window of 1 s, 1,000 in others)
  --without-guard   shows what the guards prevent

exit code: 0 when nothing was refused, 1 when something was, 2 for wrong arguments";

struct Wanted {
    requests: u64,
    seed: u64,
    algorithm: Option<String>,
    safety: Vec<f64>,
    windows: Vec<u64>,
    guarded: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted {
        requests: 200_000,
        seed: 1,
        algorithm: None,
        safety: vec![0.8, 1.0],
        windows: vec![1, 60],
        guarded: true,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--requests" => wanted.requests = number(&word, &value()?, 1..=u64::MAX)?,
            "--seed" => wanted.seed = number(&word, &value()?, 0..=u64::MAX)?,
            "--algorithm" => wanted.algorithm = Some(value()?),
            "--window" => wanted.windows = vec![number(&word, &value()?, 1..=86_400 * 31)?],
            "--safety" => {
                let text = value()?;
                let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
                wanted.safety =
                    vec![share.ok_or_else(|| format!("--safety takes a share above 0 up to 1, not {text}"))?];
            }
            "--without-guard" => wanted.guarded = false,
            "--help" | "-h" => return Err(String::new()),
            _ => return Err(format!("{word} is no argument of this example")),
        }
    }
    if let Some(name) = &wanted.algorithm
        && algorithms(Some(name)).is_empty()
    {
        return Err(format!("{name} is no algorithm of this example"));
    }
    Ok(wanted)
}

fn number(name: &str, text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.replace('_', "").parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("{name} takes a whole number from {} to {}, not {text}", range.start(), range.end()))
}

/// By name; `unknown` stands for all vendors of which the client knows the limit alone.
fn algorithms(name: Option<&str>) -> Vec<(&'static str, Counting)> {
    let named = Counting::ALL.map(|counting| match counting.name().strip_prefix("unknown_") {
        Some(_) => ("unknown", counting),
        None => (counting.name(), counting),
    });
    named
        .into_iter()
        .filter(|(own, counting)| name.is_none_or(|name| name == *own || name == counting.name()))
        .collect()
}

struct Line {
    algorithm: &'static str,
    case: Case,
    safety: f64,
    window: u64,
    delay: String,
    requests: u64,
    seed: u64,
}

fn lines(wanted: &Wanted) -> Vec<Line> {
    let mut lines = Vec::new();
    let chosen = algorithms(wanted.algorithm.as_deref());
    for (algorithm, counting) in &chosen {
        let of_one = chosen.iter().filter(|(other, _)| other == algorithm).count() as u64;
        let cases = 2 * Travel::ALL.len() as u64 * (wanted.safety.len() * wanted.windows.len()) as u64 * of_one;
        for (safety, window) in wanted.safety.iter().flat_map(|safety| wanted.windows.iter().map(|w| (*safety, *w))) {
            for (travel, troubled) in Travel::ALL.iter().flat_map(|travel| [(*travel, false), (*travel, true)]) {
                let limit = if window == 1 { 100 } else { 1_000 };
                let case = Case::new(*counting, limit, Duration::from_secs(window), safety, travel);
                let case = if troubled { case.troubled() } else { case };
                let case = if wanted.guarded { case } else { case.without_guard() };
                let delay = format!("{}{}", travel.name(), if troubled { "+trouble" } else { "" });
                let requests = wanted.requests.div_ceil(cases);
                let seed = wanted.seed.wrapping_mul(1_000).wrapping_add(lines.len() as u64);
                lines.push(Line { algorithm, case, safety, window, delay, requests, seed });
            }
        }
    }
    lines
}

fn main() -> ExitCode {
    let wanted = match parse(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(message) => {
            println!("{}{USAGE}", if message.is_empty() { String::new() } else { format!("simulate: {message}\n\n") });
            return ExitCode::from(if message.is_empty() { 0 } else { 2 });
        }
    };
    let lines = lines(&wanted);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let began = Instant::now();
    // Every core takes the next line; they are told in order all the same.
    let done: Vec<std::sync::Mutex<Option<Result<Outcome, String>>>> = lines.iter().map(|_| None.into()).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some((number, line)) =
                    Some(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).and_then(|n| Some((n, lines.get(n)?)))
                {
                    let outcome = saturate(&line.case, line.requests, line.seed).map_err(|error| error.to_string());
                    if let Ok(mut place) = done[number].lock() {
                        *place = Some(outcome);
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let (mut requests, mut refused, mut decisions, mut trace) = (0, 0, 0, DefaultHasher::new());
    for (line, outcome) in lines.iter().zip(done) {
        let outcome = match outcome.into_inner() {
            Ok(Some(Ok(outcome))) => outcome,
            Ok(Some(Err(message))) => {
                println!("simulate: {message}");
                return ExitCode::from(2);
            }
            _ => return ExitCode::FAILURE,
        };
        let Line { algorithm, safety, window, delay, .. } = line;
        println!(
            "algorithm={algorithm} safety={safety} window_s={window} delay={delay} requests={} refused={} share={:.2} oracle={:.2}",
            outcome.requests, outcome.refused, outcome.share, outcome.oracle
        );
        requests += outcome.requests;
        refused += outcome.refused;
        decisions += outcome.decisions;
        outcome.trace.hash(&mut trace);
    }
    println!(
        "simulate: requests={requests} refused={refused} decisions_per_s={:.0} trace={:016x}",
        decisions as f64 / seconds,
        trace.finish()
    );
    if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
