//! How many decisions the engine makes a second in the simulator: 1,000 lanes, all of them busy, on virtual time.
//!
//! A decision is a poll or a settle (answered, finished, given back); submissions and claims are not counted. The
//! figure contains the simulator's own work: the scripted vendor, the network and the heap of what is to happen.
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

fn world(seed: u64) -> World {
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
    let limits = ScriptedVendor::new([VendorLimit::sliding_log(100, SECOND)]);
    let network = Network {
        to_vendor: Duration::ZERO..=Duration::from_millis(20),
        from_vendor: Duration::ZERO..=Duration::from_millis(20),
        ..Network::default()
    };
    let mut world = World::new(sources, limits, seed).unwrap().network(network);
    for number in 0..LANES * REQUESTS {
        let priority = [Priority::High, Priority::Normal, Priority::Low][number / LANES % 3];
        // 100 a second where the budget is 80: queues form and grow.
        let at = Duration::from_millis(10) * (number / LANES) as u32;
        world.submit(at, Job::new(number % LANES, priority));
    }
    world
}

fn main() {
    let mut rounds = Vec::new();
    let mut last = String::new();
    for round in 0..5 {
        let mut world = world(1);
        let began = Instant::now();
        world.run(SECOND * 20).unwrap();
        let took = began.elapsed().as_secs_f64();
        let per_second = (world.decisions() as f64 / took) as u64;
        println!(
            "round {round}: {} decisions in {took:.2} s, {per_second} a second, {} grants, {} refused",
            world.decisions(),
            world.grants().len(),
            world.refused()
        );
        assert_eq!(world.refused(), 0);
        rounds.push(per_second);
        last = format!("lanes={LANES} decisions={} trace={:016x}", world.decisions(), world.trace());
    }
    rounds.sort_unstable();
    println!("simulator: {last} decisions_per_s={}", rounds[rounds.len() / 2]);
}
