//! Many hours of random troubles: processes that share a limit never exceed it, whatever happens.
//!
//! The test makes one hour of it. `SHARING_HOURS=10000 cargo test --release --all-features --lib random_troubles --
//! --nocapture` makes as many hours as it names, `SHARING_SEED` other ones. All processors work on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

use super::simulation::case;
use super::world::{Case, Demand, Figures, Trouble, World};
use crate::config::SharingFloor;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(random: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(random.u64(from..to))
}

/// Mostly a few processes, sometimes as many as 64.
fn processes(random: &mut Rng) -> usize {
    match random.u32(0..20) {
        0 if random.u32(0..10) == 0 => random.usize(9..65),
        0..4 => random.usize(5..9),
        _ => random.usize(1..5),
    }
}

fn figures(random: &mut Rng) -> Figures {
    let choices = [(2, 1), (10, 1), (20, 1), (100, 1), (10, 5), (30, 10), (10, 60), (60, 60), (300, 60)];
    let (limit, window) = random.choice(choices).expect("one of them");
    Figures { limit, window: secs(window), safety: if random.bool() { 1.0 } else { 0.8 } }
}

/// Figures of a process that knows the limit as stricter than it is.
fn stricter(random: &mut Rng, figures: &Figures) -> Figures {
    match random.u32(0..3) {
        0 => Figures { limit: random.u32(1..figures.limit + 1), ..*figures },
        1 => Figures { window: figures.window * random.u32(1..4), ..*figures },
        _ => *figures,
    }
}

fn random_case(seed: u64) -> Case {
    let mut random = Rng::with_seed(seed);
    let figures = figures(&mut random);
    let processes = processes(&mut random);
    let demands = [Demand::All, Demand::First, Demand::Moving, Demand::Tiers, Demand::Bursts];
    let mut it = case(processes, random.choice(demands).expect("one of them"), seed);
    it.figures = figures;
    it.every = (figures.window / 4).clamp(Duration::from_millis(250), secs(1));
    it.time = secs(60).max(10 * figures.window);
    it.lost = random.u32(0..8);
    it.lease = secs(random.u64(2..12));
    if random.bool() {
        it.floor = Some(SharingFloor::new(0.3, random.u32(1..9)));
    }
    // A few runs last longer than a floor does.
    if it.floor.is_some() && random.u32(0..20) == 0 {
        it.time = secs(900);
        let lasts = millis(&mut random, 500_000, 700_000);
        let whose = random.usize(0..processes);
        it.troubles.push((secs(50), if random.bool() { Trouble::Stall(lasts) } else { Trouble::Cut(whose, lasts) }));
    }
    let last = it.time.as_millis() as u64 - 10_000;
    for _ in 0..random.u32(0..5) {
        let whose = random.usize(0..processes);
        let trouble = match random.u32(0..9) {
            0 => Trouble::Kill(whose),
            1 => Trouble::Leave(whose),
            2 => Trouble::Stall(millis(&mut random, 100, 20_000)),
            3 => Trouble::Cut(whose, millis(&mut random, 100, 40_000)),
            4 | 5 => Trouble::Configure(whose, stricter(&mut random, &figures)),
            6 => Trouble::Stop(whose, millis(&mut random, 200, 20_000)),
            _ => Trouble::Stop(whose, millis(&mut random, 200, 1_500)),
        };
        it.troubles.push((millis(&mut random, 5_000, last), trouble));
    }
    // In half of the cases the store's clock steps once or is slewed once, or the store is lost once.
    let at = millis(&mut random, 5_000, last);
    match random.u32(0..6) {
        0 => it.troubles.push((at, Trouble::Step(random.i64(-10_000..10_000)))),
        1 => it.troubles.push((at, Trouble::Slew(random.i64(-80_000..80_000), millis(&mut random, 100, 10_000)))),
        2 => it.troubles.push((at, Trouble::Lose)),
        _ => {}
    }
    // In a quarter of the cases one process begins with figures of its own.
    if random.u32(0..4) == 0 {
        let whose = random.usize(0..processes);
        it.troubles.push((Duration::ZERO, Trouble::Configure(whose, stricter(&mut random, &figures))));
    }
    it
}

/// Prints the case in which an assertion fails.
struct NamedOnPanic(String);

impl Drop for NamedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this case fails: {}", self.0);
        }
    }
}

#[test]
fn random_troubles() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<f64>().ok());
    let hours = number("SHARING_HOURS").unwrap_or(1.0);
    let first = number("SHARING_SEED").unwrap_or(0.0) as u64;
    let (next, simulated, arrived, calls) =
        (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        while (simulated.load(Ordering::Relaxed) as f64) < hours * 3_600.0 {
            let it = random_case(next.fetch_add(1, Ordering::Relaxed));
            let (time, named) = (it.time.as_secs(), NamedOnPanic(format!("{it:?}")));
            let outcome = World::run(it);
            assert_eq!(outcome.refused, 0);
            drop(named);
            simulated.fetch_add(time, Ordering::Relaxed);
            arrived.fetch_add(u64::from(outcome.arrived()), Ordering::Relaxed);
            calls.fetch_add(u64::from(outcome.calls), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in all {
            thread.join().expect("no case fails");
        }
    });
    println!(
        "sharing: hours={:.1} cases={} requests={} calls={} refused=0",
        simulated.into_inner() as f64 / 3_600.0,
        next.into_inner() - first,
        arrived.into_inner(),
        calls.into_inner()
    );
}
