//! How many decisions per second the engine makes in the simulator: 1,000 lanes, visited in turn, in virtual time.
//!
//! A decision is whether a request may be sent (a submission, a poll, a claim) or how a request has ended (answered,
//! finished). There are two cases: every lane stays below its budget, so that each request is granted at once; and
//! every lane always has a queue, with network delays. The figures include the simulator's own work: the vendor that
//! judges each arrival, the records of grants and arrivals, and in the second case the heap of future events.
//!
//! `cargo bench --bench simulator`

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a bench reads the time and prints")]
#![expect(clippy::unwrap_used, reason = "a bench may stop where it stands")]

use std::time::{Duration, Instant};

use integration_client::Priority;
use integration_client::config::{Sources, TenantEntry};
use integration_client::testing::{Job, Network, ScriptedVendor, VendorLimit, World};

const LANES: usize = 1_000;
const REQUESTS: usize = 800;
const SECOND: Duration = Duration::from_secs(1);

/// If `queued`, each lane gets its whole bucket and twenty requests more at the start, and then requests at its
/// budget's rate; otherwise half of that rate.
fn world(seed: u64, queued: bool) -> World {
    let vendor = r#"
[vendors.v]
base_url = "https://v.example"
max_transit = "100ms"
[[vendors.v.limits]]
name = "rate"
limit = 100
window = "1s"
algorithm = "sliding_window"
scope = "tenant"
"#;
    let tenants = (0..LANES).map(|lane| TenantEntry::new(format!("t{lane:04}"), "v"));
    let sources = Sources::new().without_catalogue().file("bench", vendor).tenants(tenants);
    let limits = ScriptedVendor::new([VendorLimit::sliding_window(100, SECOND)]);
    let delay = Duration::from_millis(if queued { 20 } else { 0 });
    let network =
        Network { to_vendor: Duration::ZERO..=delay, from_vendor: Duration::ZERO..=delay, ..Network::default() };
    let mut world = World::new(sources, limits, seed).unwrap().network(network);
    for number in 0..LANES * REQUESTS {
        let priority = [Priority::High, Priority::Normal, Priority::Low][number / LANES % 3];
        let turn = (number / LANES) as u32;
        let at = match queued {
            true => Duration::from_micros(12_500) * turn.saturating_sub(100),
            false => Duration::from_micros(25_000) * turn,
        };
        world.submit(at, Job::new(number % LANES, priority));
    }
    world
}

/// The median decisions per second of five rounds.
fn measure(name: &str, queued: bool) -> u64 {
    let mut rounds = Vec::new();
    for round in 0..5 {
        let mut world = world(1, queued);
        let began = Instant::now();
        world.run(SECOND * 40).unwrap();
        let took = began.elapsed().as_secs_f64();
        let per_second = (world.decisions() as f64 / took) as u64;
        println!(
            "{name} {round}: {} decisions in {took:.2} s, {per_second} a second, {} grants, {} refused, trace {:016x}",
            world.decisions(),
            world.grants().len(),
            world.refused(),
            world.trace()
        );
        assert_eq!((world.grants().len(), world.refused()), (LANES * REQUESTS, 0));
        rounds.push(per_second);
    }
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

fn main() {
    let at_once = measure("at once", false);
    let queued = measure("queued", true);
    println!("simulator: lanes={LANES} decisions_per_s={at_once} queued_decisions_per_s={queued}");
}
