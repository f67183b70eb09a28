//! Decisions per second by number of threads: with one limit for each tenant, and with one limit that all tenants
//! share.
//!
//! ```text
//! cargo bench --bench threads
//! ```
//!
//! Each thread requests permits of its own tenants and returns them at once. With more threads than processors, the
//! figures show the cost of a lock whose holder is not running. `blocked` counts how often a thread gave up its
//! processor, per million decisions: in these threads, that means a lock that another thread held for long. Turns of
//! all cases alternate; figures are medians.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the time itself, and starts threads")]
#![expect(clippy::unwrap_used, reason = "whatever goes wrong ends the run")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::{IntegrationClient, Lane, Priority};

const VENDORS: &str = r#"
[vendors.own]
base_url = "https://vendor.example"
[[vendors.own.limits]]
name = "minute"
algorithm = "sliding_window"
limit = 4_000_000_000
window = "1m"

[vendors.shared]
base_url = "https://vendor.example"
[[vendors.shared.limits]]
name = "minute"
scope = "account"
algorithm = "sliding_window"
limit = 4_000_000_000
window = "1m"
"#;
const TENANTS: usize = 10_000;
const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(300);

/// How often this thread has given up its processor to wait for something.
fn waits() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap_or_default();
    line.trim().parse().unwrap_or(0)
}

/// The decisions per second of all threads together, and the waits per million decisions.
fn run(lanes: &[Lane], threads: usize) -> (f64, f64) {
    let (begin, over) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let work = |lanes: Vec<Lane>| {
        begin.wait();
        let (before, mut decisions) = (waits(), 0u64);
        while !over.load(Relaxed) {
            for lane in lanes.iter().take(1_000) {
                lane.try_acquire(Priority::Normal, 1).unwrap().finish();
            }
            decisions += lanes.len().min(1_000) as u64;
        }
        (decisions, waits() - before)
    };
    let share = |number: usize| lanes.iter().skip(number).step_by(threads).cloned().collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let work = &work;
        let begin_one = |number: usize| {
            let lanes = share(number);
            scope.spawn(move || work(lanes))
        };
        let running: Vec<_> = (0..threads).map(begin_one).collect();
        begin.wait();
        let began = Instant::now();
        std::thread::sleep(TURN);
        over.store(true, Relaxed);
        let done: Vec<_> = running.into_iter().map(|thread| thread.join().unwrap()).collect();
        let took = began.elapsed().as_secs_f64();
        let decisions: u64 = done.iter().map(|(decisions, _)| decisions).sum();
        let waits: u64 = done.iter().map(|(_, waits)| waits).sum();
        (decisions as f64 / took, waits as f64 * 1e6 / decisions as f64)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let client = runtime.block_on(async {
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDORS);
        builder.build().await.unwrap()
    });
    let mut cases = Vec::new();
    for vendor in ["own", "shared"] {
        for number in 0..TENANTS {
            let tenant = TenantEntry::new(format!("t{number}"), vendor);
            // Lanes of one account are under one lock, whatever their limits.
            let tenant = if vendor == "shared" { tenant.account("one") } else { tenant };
            client.tenants().set(tenant).unwrap();
        }
        let lanes: Vec<Lane> = (0..TENANTS).map(|number| client.lane(&format!("t{number}"), vendor).unwrap()).collect();
        // Uses each lane once before the measurement, which excludes the cost of a first use.
        lanes.iter().for_each(|lane| lane.try_acquire(Priority::Normal, 1).unwrap().finish());
        for threads in [1, 2, 4, 8] {
            cases.push((vendor, threads, lanes.clone(), Vec::new(), Vec::new()));
        }
    }
    for _ in 0..TURNS {
        for (_, threads, lanes, rates, blocked) in &mut cases {
            let (rate, waits) = run(lanes, *threads);
            rates.push(rate);
            blocked.push(waits);
        }
    }
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{processors} processors, {TENANTS} tenants, medians of {TURNS} turns");
    let mut summary = format!("threads: processors={processors}");
    for (vendor, threads, _, rates, blocked) in cases {
        let (rate, blocked) = (median(rates) / 1e6, median(blocked));
        println!("{vendor:<7} {threads} threads: {rate:.2} million decisions/s, {blocked:.1} blocked in a million");
        summary += &format!(" {vendor}_{threads}={rate:.2}");
    }
    println!("{summary}");
}
