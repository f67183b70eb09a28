//! The cost of the gateway beside a bare reverse proxy made of hyper, in the same run, over loopback:
//!
//! ```text
//! cargo bench --bench gateway
//! ```
//!
//! The vendor, the proxies and the gateway each run in their own process. A caller sends to the vendor directly,
//! through the bare proxy, through a proxy that sends with reqwest as the gateway does, and through the gateway. It
//! does so in turns whose order changes, so that other load on the machine affects all of them. Figures are medians of
//! the turns' differences and ratios. There are several rounds, each with new processes. The gateway checks its token,
//! sets the tenant's credential and keeps two limits, neither of which ever makes a request wait. *Added* is the time
//! that a request takes longer than a direct call.
//!
//! The last line is machine-readable: ratios of requests per second to those of the bare proxy, by the number of
//! connections (GET of 1 kB) and for 1 MB up and down; microseconds added by the gateway and the bare proxy at the
//! median and the 99th percentile with one connection; and the memory of both for each idle connection. Missed aims are
//! reported. The process fails if the gateway reaches less than 0.35 of the bare proxy's requests per second, or adds
//! more than 150 µs at the median.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the time and starts tasks itself")]
#![expect(clippy::unwrap_used, reason = "whatever goes wrong ends the run")]

mod caller;
mod peers;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use caller::{Address, Callers, Kind, Turn};

/// The share of the bare proxy's requests per second that the gateway aims for.
const AIM: f64 = 0.8;
/// A lower share means that the gateway has become slower.
const AT_LEAST: f64 = 0.35;
const ADDED_AT_MOST_US: f64 = 150.0;
const IDLE: usize = 10_000;
/// File descriptors that a process needs besides its idle connections.
const OTHER_FILES: usize = 500;

/// One kind of request, on `at_once` connections.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    kind: Kind,
    at_once: usize,
    turns: usize,
    turn: Duration,
}

const fn load(name: &'static str, kind: Kind, at_once: usize, turns: usize, turn_ms: u64) -> Load {
    Load { name, kind, at_once, turns, turn: Duration::from_millis(turn_ms) }
}

/// Turns are short and many, because a machine's speed changes within seconds.
const LOADS: [Load; 5] = [
    load("c1", Kind::Small, 1, 40, 50),
    load("c64", Kind::Small, 64, 12, 150),
    load("c512", Kind::Small, 512, 8, 300),
    load("up", Kind::Up, 8, 8, 200),
    load("down", Kind::Down, 8, 8, 200),
];

/// A process that runs another part of this program. It ends when this value is dropped.
struct PartProcess {
    child: Child,
    address: Address,
}

impl PartProcess {
    fn start(part: &str, vendor: &str) -> PartProcess {
        let this = std::env::current_exe().unwrap();
        let mut child =
            Command::new(this).args([part, vendor]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address = serde_json::from_str(&said).unwrap();
        PartProcess { child, address }
    }

    /// The resident memory in KiB. `None` if the system does not report it.
    fn memory(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().trim_end_matches(" kB").parse().ok()
    }
}

impl Drop for PartProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Indices into the results of a turn.
const DIRECT: usize = 0;
const PROXY: usize = 1;
const REQWEST: usize = 2;
const GATEWAY: usize = 3;

/// The results of all turns of one load.
type Turns = Vec<[Turn; 4]>;

/// Runs all loads once, with new processes.
async fn round(all: &mut [Turns; LOADS.len()]) {
    let vendor = PartProcess::start("vendor", "");
    let [proxy, reqwest, gateway] =
        ["proxy", "reqwest", "gateway"].map(|part| PartProcess::start(part, &vendor.address.host));
    let parts = [&vendor, &proxy, &reqwest, &gateway];
    for (load, turns) in LOADS.iter().zip(all) {
        let mut callers = Vec::new();
        for part in parts {
            callers.push(Callers::connect(&part.address, load.at_once).await);
        }
        for n in 0..=load.turns {
            let mut turn = [Turn::default(); 4];
            for place in 0..parts.len() {
                let which = (n + place) % parts.len();
                turn[which] = callers[which].turn(load.kind, load.turn).await;
            }
            // The first turn opens the connections to the vendor.
            if n > 0 {
                turns.push(turn);
            }
        }
    }
}

/// Returns the KiB of the gateway and of the proxy per connection that is idle after one request, and the number of
/// such connections.
async fn measure_idle_connections() -> Option<(f64, f64, usize)> {
    let most = std::fs::read_to_string("/proc/self/limits").ok()?;
    let most = most.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let most = most.split_whitespace().next()?.parse().unwrap_or(usize::MAX);
    let connections = IDLE.min(most.saturating_sub(OTHER_FILES));
    if connections < IDLE {
        println!(
            "idle connections: {connections}, not {IDLE}: this system allows a process {most} open files (ulimit -n)"
        );
    }
    let vendor = PartProcess::start("vendor", "");
    let mut each = Vec::new();
    for name in ["gateway", "proxy"] {
        let part = PartProcess::start(name, &vendor.address.host);
        // Memory that the first requests allocate is not freed again, so it is allocated before the measurement.
        drop(Callers::connect(&part.address, 64).await.send_one_each().await);
        let before = part.memory()?;
        let callers = Callers::connect(&part.address, connections).await.send_one_each().await;
        each.push((part.memory()? - before) / connections as f64);
        println!("{name}: {before:.0} KiB before, {:.0} KiB with {connections} idle connections", part.memory()?);
        drop(callers);
    }
    Some((each[0], each[1], connections))
}

fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The median of a figure over all turns.
fn compare(turns: &Turns, of: impl Fn(&[Turn; 4]) -> f64) -> f64 {
    median(turns.iter().map(of))
}

/// Prints one load. Returns the ratio of the gateway's requests per second to those of the bare proxy.
fn report(load: &Load, turns: &Turns) -> f64 {
    let rate = |part: usize| compare(turns, |turn| turn[part].rate);
    let ratio = |a: usize, b: usize| compare(turns, |turn| turn[a].rate / turn[b].rate);
    let p50 = |part: usize| compare(turns, |turn| turn[part].median_us - turn[DIRECT].median_us);
    let p99 = |part: usize| compare(turns, |turn| turn[part].p99_us - turn[DIRECT].p99_us);
    println!(
        "{}: {:.0} requests/s, bare proxy {:.0}, proxy by reqwest {:.0}, direct {:.0}; ratio {:.3} to the bare proxy, {:.3} to \
         that by reqwest; added µs at the median {:.0}, {:.0}, {:.0}, at p99 {:.0}, {:.0}, {:.0} ({} turns)",
        load.name,
        rate(GATEWAY),
        rate(PROXY),
        rate(REQWEST),
        rate(DIRECT),
        ratio(GATEWAY, PROXY),
        ratio(GATEWAY, REQWEST),
        p50(GATEWAY),
        p50(PROXY),
        p50(REQWEST),
        p99(GATEWAY),
        p99(PROXY),
        p99(REQWEST),
        turns.len(),
    );
    ratio(GATEWAY, PROXY)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["vendor", _] => return peers::vendor(),
        ["proxy", vendor] => return peers::proxy(vendor),
        ["reqwest", vendor] => return peers::reqwest_proxy(vendor),
        ["gateway", vendor] => return peers::gateway(vendor),
        _ => {}
    }
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<usize>().ok()
    };
    let rounds = number("--rounds").unwrap_or(4);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut all: [Turns; LOADS.len()] = Default::default();
    for _ in 0..rounds {
        runtime.block_on(round(&mut all));
    }
    let ratios: Vec<f64> = LOADS.iter().zip(&all).map(|(load, turns)| report(load, turns)).collect();
    let idle = runtime.block_on(measure_idle_connections());

    let mut good = true;
    for (load, ratio) in LOADS.iter().zip(&ratios) {
        let verdict = if *ratio >= AT_LEAST { "ok" } else { "FAILED" };
        let aim = if *ratio >= AIM { "reached" } else { "missed" };
        println!("check: {}: {ratio:.3} >= {AT_LEAST} {verdict}; the aim of {AIM} is {aim}", load.name);
        good &= *ratio >= AT_LEAST;
    }
    let p50 = |part: usize| compare(&all[0], |turn| turn[part].median_us - turn[DIRECT].median_us);
    let p99 = |part: usize| compare(&all[0], |turn| turn[part].p99_us - turn[DIRECT].p99_us);
    let verdict = if p50(GATEWAY) <= ADDED_AT_MOST_US { "ok" } else { "FAILED" };
    println!("check: added at the median: {:.0} µs <= {ADDED_AT_MOST_US} µs {verdict}", p50(GATEWAY));
    good &= p50(GATEWAY) <= ADDED_AT_MOST_US;
    let names = LOADS.iter().zip(&ratios).map(|(load, ratio)| format!("{}={ratio:.3}", load.name));
    let idle = idle.map_or("unknown".to_owned(), |(gateway, proxy, at)| format!("{gateway:.1}/{proxy:.1}@{at}"));
    println!(
        "gateway: {} added_us={:.0}/{:.0} p99_us={:.0}/{:.0} idle_kib={idle}",
        names.collect::<Vec<_>>().join(" "),
        p50(GATEWAY),
        p50(PROXY),
        p99(GATEWAY),
        p99(PROXY),
    );
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
