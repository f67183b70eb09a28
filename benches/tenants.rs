//! A million tenants that are added, send once and are removed: the memory that remains, and the stalls of a sender
//! meanwhile.
//!
//! ```text
//! cargo bench --bench tenants
//! ```
//!
//! The bench runs twice: with a limit for each tenant, and with a limit for its account, which has its own lock and
//! table. Meanwhile a thread requests permits of other tenants in the same shards; its slowest calls are the stalls.
//! The report also has the stalls of that thread while nothing else happens, because the machine has some of its own.
//! The process fails when a check does.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the time itself, and has a thread beside")]
#![expect(clippy::unwrap_used, reason = "whatever goes wrong ends the run")]

use std::alloc::System;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::{IntegrationClient, Priority};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MANY: usize = 1_000_000;
const BUSY: usize = 1_000;
const OVERVIEWS: u32 = 5;

const VENDORS: &str = r#"
[vendors.busy]
base_url = "https://vendor.example"
[[vendors.busy.limits]]
name = "hour"
scope = "tenant"
algorithm = "sliding_window"
limit = 4_000_000_000
window = "1h"

[vendors.own]
base_url = "https://vendor.example"
max_transit = "100ms"
[[vendors.own.limits]]
name = "second"
scope = "tenant"
algorithm = "sliding_window"
limit = 100
window = "20s"

[vendors.account]
base_url = "https://vendor.example"
max_transit = "100ms"
[[vendors.account.limits]]
name = "second"
scope = "account"
algorithm = "sliding_window"
limit = 100
window = "20s"
"#;

/// The bytes allocated on the heap and not freed, without the allocator's own overhead.
fn heap_bytes() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn id(n: usize) -> String {
    format!("tenant-{n:07}")
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// Requests permits continuously, in its own thread.
struct Sender {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<u32>>,
}

impl Sender {
    fn start(client: &IntegrationClient, times: Vec<u32>) -> Sender {
        let stop = Arc::new(AtomicBool::new(false));
        let (client, stopped) = (client.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let ids: Vec<String> = (0..BUSY).map(id).collect();
            let mut times = times;
            times.clear();
            for id in ids.iter().cycle() {
                if stopped.load(Ordering::Relaxed) || times.len() == times.capacity() {
                    break;
                }
                let began = Instant::now();
                client.try_acquire(id, "busy", Priority::Normal, 1).unwrap().finish();
                times.push(u32::try_from(began.elapsed().as_nanos()).unwrap_or(u32::MAX));
            }
            times
        });
        Sender { stop, thread }
    }

    /// Stops the thread and prints its slowest calls. Returns the 99.9th percentile in microseconds, and the buffer for
    /// the next run.
    fn stop(self, during: &str) -> (f64, Vec<u32>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut times = self.thread.join().unwrap();
        times.sort_unstable();
        let at = |share: f64| f64::from(times[((times.len() - 1) as f64 * share) as usize]) / 1_000.0;
        println!(
            "  {during:<28} {:>9} calls, p50 {:.2} us, p99.9 {:.1} us, p99.99 {:.1} us, longest {:.0} us",
            times.len(),
            at(0.5),
            at(0.999),
            at(0.9999),
            at(1.0)
        );
        (at(0.999), times)
    }
}

struct Figures {
    start: usize,
    used: usize,
    swept: usize,
    empty: usize,
    gone: usize,
    stall_us: f64,
}

/// Adds a million tenants of `vendor`, uses each once, and removes them.
async fn wave(client: &IntegrationClient, vendor: &str, times: Vec<u32>) -> (Figures, Vec<u32>) {
    println!("{vendor}: {MANY} tenants");
    let empty = heap_bytes();
    for n in 0..MANY {
        client.tenants().set(TenantEntry::new(id(n), vendor)).unwrap();
    }
    let start = heap_bytes();
    let sender = Sender::start(client, times);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, times) = sender.stop("nothing else happens");

    let sender = Sender::start(client, times);
    for n in 0..MANY {
        client.try_acquire(&id(n), vendor, Priority::Normal, 1).unwrap().finish();
    }
    let used = heap_bytes();
    let lanes = client.tenants().lanes();
    let (_, times) = sender.stop("a million lanes are made");
    let sender = Sender::start(client, times);
    let began = Instant::now();
    for _ in 0..OVERVIEWS {
        assert!(client.overview().vendors.iter().any(|other| &*other.vendor == vendor));
    }
    let took = began.elapsed() / OVERVIEWS;
    let (overview, times) = sender.stop("overviews of all lanes");
    println!("  an overview took {took:.0?}");
    // Waits until the windows are over. They are so long that all lanes exist at the same time.
    tokio::time::sleep(Duration::from_millis(20_300)).await;

    let sender = Sender::start(client, times);
    let began = Instant::now();
    client.tenants().rest(true).await;
    let took = began.elapsed();
    let (sweep, times) = sender.stop("the sweep drops them");
    let swept = heap_bytes();
    println!("  {lanes} lanes before the sweep, {} after it, which took {took:.0?}", client.tenants().lanes());

    let sender = Sender::start(client, times);
    client.tenants().retain(|_| true).await;
    let (snapshot, times) = sender.stop("all tenants are looked at");

    let sender = Sender::start(client, times);
    let began = Instant::now();
    let retired = client.tenants().retain(|tenant| &*tenant.vendor.name == "busy").await.len();
    let took = began.elapsed();
    let (cleanup, times) = sender.stop("a cleanup retires them");
    client.tenants().rest(true).await;
    let gone = heap_bytes();
    println!("  {retired} tenants retired in {took:.0?}");
    let stall_us = sweep.max(overview).max(snapshot).max(cleanup);
    (Figures { start, used, swept, empty, gone, stall_us }, times)
}

fn main() -> ExitCode {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let mut failed = false;
    let mut check = |what: &str, figure: f64, most: f64| {
        let ok = figure <= most;
        failed |= !ok;
        println!("  check: {what}: {figure:.2} <= {most:.2} {}", if ok { "ok" } else { "FAILED" });
    };
    let mut line = String::from("tenants:");
    runtime.block_on(async {
        let client = IntegrationClient::builder().without_catalogue().vendors_toml(VENDORS).build().await.unwrap();
        for n in 0..BUSY {
            client.tenants().set(TenantEntry::new(id(n), "busy")).unwrap();
            client.try_acquire(&id(n), "busy", Priority::Normal, 1).unwrap().finish();
        }
        let mut times = Vec::with_capacity(30_000_000);
        for vendor in ["own", "account"] {
            let (figures, room) = wave(&client, vendor, times).await;
            times = room;
            let Figures { start, used, swept, empty, gone, stall_us } = figures;
            println!(
                "  heap: {:.1} MiB with a million tenants, {:.1} with their lanes, {:.1} after the sweep; \
                 {:.1} before they came and {:.1} after they went",
                mib(start),
                mib(used),
                mib(swept),
                mib(empty),
                mib(gone)
            );
            // The buffer of samples exists all the time, and is not part of the library's memory.
            let samples = times.capacity() * size_of::<u32>();
            check("heap after the sweep, of the start", (swept - samples) as f64 / (start - samples) as f64, 1.05);
            check("heap after they went, of before", (gone - samples) as f64 / (empty - samples) as f64, 1.05);
            check("longest stall of a sender, p99.9, in us", stall_us, 1_000.0);
            line += &format!(
                " {vendor}_start={start} {vendor}_lanes={used} {vendor}_swept={swept} {vendor}_gone={gone} \
                 {vendor}_stall_us={stall_us:.1}"
            );
        }
    });
    println!("{line}");
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
