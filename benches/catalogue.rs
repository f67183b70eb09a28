//! How long it takes to read and check the shipped catalogue, alone and with many tenants.
//!
//! Every client reads the catalogue when it starts and at each reload.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement reads the clock and prints"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use integration_client::config::{Config, Sources, TenantEntry};

/// The median of `times` runs.
fn median(times: usize, mut run: impl FnMut()) -> Duration {
    let mut took: Vec<Duration> = (0..times)
        .map(|_| {
            let began = Instant::now();
            run();
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[times / 2]
}

fn main() {
    let sources = Sources::new();
    let took = median(101, || drop(black_box(Config::load(&sources, 1).unwrap())));
    let vendors = Config::load(&sources, 1).unwrap().vendors().names().count();
    println!("the catalogue, {vendors} vendors: {:.2} ms", took.as_secs_f64() * 1e3);

    let tenants = (0..10_000).map(|number| TenantEntry::new(format!("tenant-{number}"), "github"));
    let sources = Sources::new().tenants(tenants);
    let took = median(11, || drop(black_box(Config::load(&sources, 1).unwrap())));
    println!("the catalogue and 10,000 tenants: {:.2} ms", took.as_secs_f64() * 1e3);
}
