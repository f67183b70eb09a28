//! The cost of a decision: a permit is requested, granted and settled while no limit is in the way, beside two limiters
//! that only count (they neither queue nor settle). Also the memory of an idle tenant.
//!
//! ```text
//! cargo bench --bench admission
//! ```
//!
//! All subjects run in one process, in many short rounds and in a rotating order, so that other load on the machine
//! affects all of them alike. Figures are medians over the rounds. A round visits ten thousand keys once: either all
//! keys of the subject, visited just before to warm the caches, or the next hundredth of a million keys. Every subject
//! visits the same keys in the same shuffled order. The quotas are so large that no request is refused: a refusal ends
//! the run. The last line is machine-readable; the process fails when a check does.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the time itself")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "whatever goes wrong ends the run")]

use std::alloc::System;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::ops::Range;
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::{IntegrationClient, Lane, Priority};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Three passes over the million keys.
const ROUNDS: usize = 301;
const SEED: u64 = 0x5eed;
const FEW: usize = 10_000;
const MANY: usize = 1_000_000;

/// The limits are a minute wide, so that the sweep of resting lanes (every 10 s) finds none during the run.
const VENDORS: &str = r#"
[vendors.one]
base_url = "https://vendor.example"
[[vendors.one.limits]]
name = "minute"
algorithm = "sliding_window"
limit = 4_000_000_000
window = "1m"

[vendors.four]
base_url = "https://vendor.example"
[[vendors.four.limits]]
name = "second"
algorithm = "sliding_window"
limit = 100_000_000
window = "1s"
[[vendors.four.limits]]
name = "minute"
algorithm = "sliding_window"
limit = 4_000_000_000
window = "1m"
[[vendors.four.limits]]
name = "hour"
algorithm = "sliding_window"
limit = 4_000_000_000
window = "1h"
[[vendors.four.limits]]
name = "at_once"
concurrency = 1_000

[vendors.resting]
base_url = "https://vendor.example"
[[vendors.resting.limits]]
name = "second"
algorithm = "sliding_window"
limit = 1_000_000
window = "1s"
"#;

fn id(n: usize) -> String {
    format!("tenant-{n:07}")
}

/// The ids in an order that is the same for every subject: a Fisher-Yates shuffle with a fixed seed.
fn shuffled(count: usize) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut ids: Vec<String> = (0..count).map(id).collect();
    random.shuffle(&mut ids);
    ids
}

async fn client() -> IntegrationClient {
    IntegrationClient::builder().without_catalogue().vendors_toml(VENDORS).build().await.unwrap()
}

fn add(client: &IntegrationClient, vendor: &str, count: usize) {
    for n in 0..count {
        client.tenants().set(TenantEntry::new(id(n), vendor)).unwrap();
    }
}

/// The bytes allocated on the heap and not freed, without the allocator's own overhead.
fn heap_bytes() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Polls a future once, which must be ready.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a limit was in the way"),
    }
}

/// One thing to measure. `decide` makes the decisions for a range of keys.
struct Subject<'a> {
    name: &'static str,
    keys: usize,
    decide: Box<dyn FnMut(Range<usize>) + 'a>,
    /// Nanoseconds per decision, one figure per round.
    samples: Vec<f64>,
    allocations: usize,
}

impl<'a> Subject<'a> {
    fn new(name: &'static str, keys: usize, decide: impl FnMut(Range<usize>) + 'a) -> Subject<'a> {
        Subject { name, keys, decide: Box::new(decide), samples: Vec::new(), allocations: 0 }
    }

    fn round(&mut self) {
        let from = self.samples.len() * FEW % self.keys;
        let range = from..from + FEW;
        if self.keys == FEW {
            // The subject before has filled the caches with its own data.
            (self.decide)(range.clone());
        }
        let allocations = HEAP.stats().allocations;
        let start = Instant::now();
        (self.decide)(range);
        let took = start.elapsed();
        self.allocations += HEAP.stats().allocations - allocations;
        self.samples.push(took.as_nanos() as f64 / FEW as f64);
    }

    fn median(&self) -> f64 {
        let mut samples = self.samples.clone();
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    }

    fn print(&self) {
        let least = self.samples.iter().copied().fold(f64::MAX, f64::min);
        let most = self.samples.iter().copied().fold(0.0, f64::max);
        let allocations = self.allocations as f64 / (self.samples.len() * FEW) as f64;
        println!(
            "{:<18} {:>7.1} ns ({least:.1}..{most:.1}), {allocations:.4} allocations a decision",
            self.name,
            self.median()
        );
    }
}

/// The bytes of an idle tenant that was used once: its id, its lane and its entry in the table.
async fn idle_tenant_bytes() -> usize {
    let client = client().await;
    let before = heap_bytes();
    add(&client, "resting", MANY);
    let known = heap_bytes();
    for n in 0..MANY {
        client.try_acquire(&id(n), "resting", Priority::Normal, 1).unwrap().finish();
    }
    let used = heap_bytes();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    client.tenants().rest(false).await;
    let rested = heap_bytes();
    client.tenants().rest(true).await;
    let evicted = heap_bytes();
    let each = |bytes: usize| bytes / MANY;
    println!("heap bytes per tenant, of {MANY}, ids of {} bytes:", id(0).len());
    println!("  {:>4} in the tenant table: the configuration's share, used or not", each(known - before));
    println!("  {:>4} more after one use, inside its window", each(used - known));
    println!("  {:>4} more at rest: idle_tenant_bytes", each(rested - known));
    println!(
        "  {:>4} more once the sweep has dropped its lane (the room stays, for the next ones)",
        each(evicted.saturating_sub(known))
    );
    each(rested - known)
}

fn by_handle(lanes: &[Lane]) {
    for lane in lanes {
        black_box(lane).try_acquire(Priority::Normal, 1).unwrap().finish();
    }
}

fn by_ids(client: &IntegrationClient, ids: &[String]) {
    for id in ids {
        client.try_acquire(black_box(id), "one", Priority::Normal, 1).unwrap().finish();
    }
}

fn main() -> ExitCode {
    // One worker for the timers. Decisions are made on this thread, outside the runtime.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    println!("{ROUNDS} rounds, seed {SEED:#x}, medians (least..most)");
    let idle_tenant_bytes = runtime.block_on(idle_tenant_bytes());

    let few = shuffled(FEW);
    let many = shuffled(MANY);
    let (small, large) = runtime.block_on(async { (client().await, client().await) });
    add(&small, "one", FEW);
    add(&small, "four", FEW);
    add(&large, "one", MANY);
    let lanes = |vendor: &str| -> Vec<Lane> { few.iter().map(|id| small.lane(id, vendor).unwrap()).collect() };
    let (one, four) = (lanes("one"), lanes("four"));
    let by_ids_alone = runtime.block_on(client());
    add(&by_ids_alone, "one", FEW);

    println!("governor: keyed(Quota::per_second(u32::MAX)), default store");
    let quota = governor::Quota::per_second(NonZeroU32::MAX);
    let governor = governor::RateLimiter::<String, _, _>::keyed(quota);
    println!("throttle-net: PerKey, u32::MAX a second, Eviction::unbounded, acquire polled once");
    let throttle = || {
        let builder = throttle_net::PerKey::<String>::builder().rate(u32::MAX, Duration::from_secs(1));
        builder.eviction(throttle_net::Eviction::unbounded()).build()
    };
    let (throttle_few, throttle_many) = (throttle(), throttle());

    let mut subjects = [
        Subject::new("handle", FEW, |keys| by_handle(&one[keys])),
        Subject::new("one hot handle", FEW, |keys| {
            keys.for_each(|_| black_box(&one[0]).try_acquire(Priority::Normal, 1).unwrap().finish());
        }),
        Subject::new("four limits", FEW, |keys| by_handle(&four[keys])),
        Subject::new("one hot of four", FEW, |keys| {
            keys.for_each(|_| black_box(&four[0]).try_acquire(Priority::Normal, 1).unwrap().finish());
        }),
        Subject::new("ids 10k", FEW, |keys| by_ids(&by_ids_alone, &few[keys])),
        Subject::new("ids 1m", MANY, |keys| by_ids(&large, &many[keys])),
        Subject::new("governor 10k", FEW, |keys| {
            few[keys].iter().for_each(|id| governor.check_key(black_box(id)).unwrap());
        }),
        Subject::new("throttle-net 10k", FEW, |keys| {
            few[keys].iter().for_each(|id| ready(throttle_few.acquire(black_box(id))).unwrap());
        }),
        Subject::new("throttle-net 1m", MANY, |keys| {
            many[keys].iter().for_each(|id| ready(throttle_many.acquire(black_box(id))).unwrap());
        }),
    ];
    // Uses every key in two slots of the log before the measurement, which excludes the cost of a first use.
    for _ in 0..2 {
        subjects.iter_mut().for_each(|subject| (subject.decide)(0..subject.keys));
    }
    let count = subjects.len();
    for round in 0..ROUNDS {
        (0..count).for_each(|place| subjects[(round + place) % count].round());
    }
    subjects.iter().for_each(Subject::print);
    let [handle, _, four_limits, _, ids_10k, ids_1m, governor_10k, throttle_10k, throttle_1m] =
        subjects.each_ref().map(Subject::median);

    let mut failed = false;
    let mut check = |what: &str, figure: f64, most: f64| {
        let ok = figure <= most;
        failed |= !ok;
        println!("check: {what}: {figure:.1} <= {most:.1} {}", if ok { "ok" } else { "FAILED" });
    };
    check("by handle, at most throttle-net's time", handle, throttle_10k);
    check("four limits, at most 1.4 times one", four_limits, 1.4 * handle);
    check("by ids, a million at most 5 times ten thousand", ids_1m, 5.0 * ids_10k);
    check("by ids, a million at most throttle-net's time", ids_1m, throttle_1m);
    check("bytes of a tenant at rest", idle_tenant_bytes as f64, 200.0);
    println!(
        "admission: handle_ns={handle:.0} four_limits_ns={four_limits:.0} ids_10k_ns={ids_10k:.0} \
         ids_1m_ns={ids_1m:.0} governor_10k_ns={governor_10k:.0} throttle_net_10k_ns={throttle_10k:.0} \
         throttle_net_1m_ns={throttle_1m:.0} idle_tenant_bytes={idle_tenant_bytes}"
    );
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
