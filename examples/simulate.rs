//! Runs the engine against vendors of every algorithm, in virtual time: how many requests they refuse, and how much of
//! their limits is used.
//!
//! `cargo run --release --example simulate -- --requests 1000000 --seed 1`
//! `cargo run --release --example simulate -- --catalogue`
//! `cargo run --release --example simulate -- --sharing`
//!
//! A vendor counts a request when it arrives; the engine knows when it granted the request and when the answer came. A
//! request takes 0 to 50 ms to arrive, by one of six distributions. Vendors' clocks drift by up to 50 ppm, and half of
//! them tick once a millisecond. Every second case has troubles: answers are lost, callers cancel, the client's clock
//! is set back, its configuration is reloaded, its lane is evicted. `share` and `oracle` are percentages of what a
//! client could send that knows the vendor's state and whose requests take no time. The oracle also knows the vendor's
//! state, but not how long its next request will take.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "an example that measures and prints")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use integration_client::Priority;
use integration_client::config::Throttle;
use integration_client::testing::saturation::{
    Case, Cell, Counting, Figures, LimitScope, Outcome, Scene, Travel, saturate,
};
use integration_client::testing::walk::{self, Depth, Sum};

const USAGE: &str =
    "usage: simulate [--requests N] [--seed S] [--algorithm A] [--safety F] [--window SECONDS] [--tier T] [--without-guard]
       simulate --catalogue [--vendor NAME] [--throttle MODE] [--short] [--all]
       simulate --sharing [--algorithm A] [--window SECONDS] [--scene S] [--scope S] [--short] [--all]

  --requests N      requests for each algorithm (default 200000)
  --seed S          another seed, other phases and delays (default 1)
  --algorithm A     only this one: fixed_window, fixed_window_phase_known, sliding_window, sliding_counter,
                    sliding_counter_phase_known, token_bucket, leaky_bucket, lumped_refill, quota, unknown
  --safety F        only this share of the limit (default: 0.8 and 1)
  --window SECONDS  only this window (default: 1 and 60; the limit is 100 in a window of 1 s, 1,000 in others)
  --tier T          only requests of high, normal or low priority (default: all in turn)
  --without-guard   shows what the guards prevent
  --catalogue       instead: every limit of vendors.toml, enforced and announced as its entry says
  --vendor NAME     of the catalogue only this vendor
  --throttle MODE   every limit of it slows down so: bands, adaptive, pace, off (default: as its entry says)
  --sharing         instead: what headers, other users of the key and a second client cost
  --scene S         of these only this one: alone, beside, two, retry_after, silent
  --scope S         whose the limit is: tenant (default), account, vendor, endpoint, or all
  --short           with smaller figures, as the tests do it
  --all             a line for each limit or run, and not for those alone that fall short

exit code: 0 when nothing was refused and no limit falls short, 1 when something was, 2 for wrong arguments; of --sharing
0 when each line of `adaptive` keeps to its bound";

struct Wanted {
    requests: u64,
    seed: u64,
    algorithm: Option<String>,
    safety: Vec<f64>,
    windows: Vec<u64>,
    tier: Option<Priority>,
    guarded: bool,
    catalogue: bool,
    sharing: bool,
    scene: Option<String>,
    scopes: Vec<LimitScope>,
    vendor: Option<String>,
    throttle: Option<Throttle>,
    short: bool,
    all: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted {
        requests: 200_000,
        seed: 1,
        algorithm: None,
        safety: vec![0.8, 1.0],
        windows: vec![1, 60],
        tier: None,
        guarded: true,
        catalogue: false,
        sharing: false,
        scene: None,
        scopes: vec![LimitScope::Tenant],
        vendor: None,
        throttle: None,
        short: false,
        all: false,
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
            "--tier" => wanted.tier = Some(tier(&value()?)?),
            "--without-guard" => wanted.guarded = false,
            "--catalogue" => wanted.catalogue = true,
            "--sharing" => wanted.sharing = true,
            "--scene" => wanted.scene = Some(value()?),
            "--scope" => wanted.scopes = scopes(&value()?)?,
            "--vendor" => wanted.vendor = Some(value()?),
            "--throttle" => wanted.throttle = Some(throttle(&value()?)?),
            "--short" => wanted.short = true,
            "--all" => wanted.all = true,
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

fn scopes(name: &str) -> Result<Vec<LimitScope>, String> {
    let chosen: Vec<_> = LimitScope::ALL.into_iter().filter(|scope| name == "all" || name == scope.name()).collect();
    if chosen.is_empty() {
        Err(format!("--scope takes tenant, account, vendor, endpoint or all, not {name}"))
    } else {
        Ok(chosen)
    }
}

fn throttle(name: &str) -> Result<Throttle, String> {
    let modes = [Throttle::Bands, Throttle::Adaptive, Throttle::Pace, Throttle::Off];
    let found = modes.into_iter().find(|mode| mode.name() == name);
    found.ok_or_else(|| format!("--throttle takes {}, not {name}", modes.map(Throttle::name).join(", ")))
}

fn number(name: &str, text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.replace('_', "").parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("{name} takes a whole number from {} to {}, not {text}", range.start(), range.end()))
}

fn tier(name: &str) -> Result<Priority, String> {
    let tiers = [Priority::High, Priority::Normal, Priority::Low];
    let named = tiers.into_iter().find(|tier| tier.to_string() == name);
    named.ok_or_else(|| format!("--tier takes high, normal or low, not {name}"))
}

/// The algorithms of this name. `unknown` stands for all vendors of which the client knows only the limit.
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
                let case = wanted.tier.map_or(case.clone(), |tier| case.of(tier));
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

/// The results of `run` for all things, in order. Each core takes the next thing when it has finished one.
fn on_every_core<T: Sync, O: Send>(
    things: &[T],
    run: impl Fn(&T) -> Result<O, integration_client::Error> + Sync,
) -> Vec<Option<Result<O, String>>> {
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<O, String>>>> = things.iter().map(|_| None.into()).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some((number, thing)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, things.get(n)?)))
                {
                    let outcome = run(thing).map_err(|error| error.to_string());
                    if let Ok(mut place) = done[number].lock() {
                        *place = Some(outcome);
                    }
                }
            });
        }
    });
    done.into_iter().map(|place| place.into_inner().ok().flatten()).collect()
}

/// Simulates every limit of the catalogue.
fn catalogue(wanted: &Wanted) -> ExitCode {
    let depth = if wanted.short { Depth::SHORT } else { Depth::WHOLE };
    let depth = Depth { throttle: wanted.throttle, ..depth };
    let cases = match walk::cases(depth, wanted.vendor.as_deref()) {
        Ok(cases) => cases,
        Err(error) => {
            println!("simulate: {error}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let (mut sum, mut unwalked) = (Sum::default(), 0);
    for (case, outcome) in cases.iter().zip(on_every_core(&cases, walk::Case::walk)) {
        match outcome {
            Some(Ok(outcome)) => {
                let short = sum.add(case, &outcome);
                if let Some(short) = &short {
                    println!("{short}");
                } else if wanted.all {
                    let share = outcome.share.map_or("-".to_owned(), |share| format!("{share:.1} %"));
                    println!("{} ok: {} requests, {share}", case.title(), outcome.requests);
                }
            }
            other => {
                unwalked += 1;
                let why = other.and_then(Result::err).unwrap_or_else(|| "it panicked".to_owned());
                println!("{} unwalked: {why}", case.title());
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{} cases, {} requests, {seconds:.1} s, {unwalked} unwalked", cases.len(), sum.requests());
    println!("{sum}");
    let falls_short = unwalked + sum.refused() + sum.unthrottled() + sum.below_90() > 0;
    if falls_short { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs the scenarios in which a key is shared. `adaptive` has to keep to the bounds; `bands` is there for comparison.
fn sharing(wanted: &Wanted) -> ExitCode {
    let chosen = algorithms(wanted.algorithm.as_deref());
    let countings = || Cell::COUNTINGS.into_iter().filter(|counting| chosen.iter().any(|(_, of)| of == counting));
    let phases = if wanted.short { 1 } else { 4 };
    let mut cells = Vec::new();
    for scene in Scene::ALL.into_iter().filter(|scene| wanted.scene.as_deref().is_none_or(|name| name == scene.name()))
    {
        for (counting, window_s) in countings().flat_map(|counting| wanted.windows.iter().map(move |w| (counting, *w)))
        {
            for scope in wanted.scopes.iter().copied() {
                let cell = |throttle| Cell { scene, counting, scope, window_s, throttle, phases };
                cells.extend(["adaptive", "bands"].map(cell));
            }
        }
    }
    let began = Instant::now();
    let mut short = 0;
    for (pair, outcomes) in cells.chunks(2).zip(on_every_core(&cells, Cell::runs).chunks(2)) {
        let [Some(Ok(adaptive)), Some(Ok(bands))] = outcomes else {
            println!("simulate: {:?} went wrong: {outcomes:?}", pair[0]);
            return ExitCode::from(2);
        };
        let (cell, figures) = (&pair[0], Figures::of(adaptive));
        let falls_short = !cell.holds(&figures);
        short += usize::from(falls_short);
        let (scene, counting) = (cell.scene.name(), cell.counting.name());
        let verdict = match cell.bound() {
            Some(_) if falls_short => "short",
            Some(_) => "holds",
            None => "-",
        };
        println!(
            "{scene:<11} {counting:<15} {:<8} window_s={:<2} {verdict:<5} adaptive: {figures} | bands: {}",
            cell.scope.name(),
            cell.window_s,
            Figures::of(bands)
        );
        for run in adaptive.iter().filter(|_| wanted.all) {
            let (travel, stated) = (run.travel.name(), run.stated);
            println!("    {travel:<8} safety={} phase={} {stated:?}: {}", run.safety, run.phase, run.figures);
        }
    }
    println!("sharing: lines={} short={short} seconds={:.1}", cells.len() / 2, began.elapsed().as_secs_f64());
    if short == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let wanted = match parse(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(message) => {
            println!("{}{USAGE}", if message.is_empty() { String::new() } else { format!("simulate: {message}\n\n") });
            return ExitCode::from(if message.is_empty() { 0 } else { 2 });
        }
    };
    if wanted.catalogue {
        return catalogue(&wanted);
    }
    if wanted.sharing {
        return sharing(&wanted);
    }
    let lines = lines(&wanted);
    let began = Instant::now();
    let done = on_every_core(&lines, |line| saturate(&line.case, line.requests, line.seed));
    let seconds = began.elapsed().as_secs_f64();
    let (mut requests, mut refused, mut decisions, mut trace) = (0, 0, 0, DefaultHasher::new());
    for (line, outcome) in lines.iter().zip(done) {
        let outcome: Outcome = match outcome {
            Some(Ok(outcome)) => outcome,
            Some(Err(message)) => {
                println!("simulate: {message}");
                return ExitCode::from(2);
            }
            None => return ExitCode::FAILURE,
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
