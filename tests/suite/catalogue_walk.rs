//! A short version of the catalogue walk: a simulated vendor enforces and announces each limit of `vendors.toml` as its
//! entry says, while a client sends as much as it may. `cargo run --release --example simulate -- --catalogue` is the
//! whole walk.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that prints figures")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use integration_client::config::{Config, Sources};
use integration_client::testing::walk::{Depth, Sum, cases};

/// The most limits used below 90 % that are accepted today. The goal is zero: lower this with each improvement. This walk
/// has smaller figures than the whole one, so a pause is a larger part of them. It has the same outcome each time.
const MOST_BELOW_90: usize = 3;

#[test]
fn catalogue_limits_are_all_walked() {
    let cases = cases(Depth::SHORT, None).unwrap();
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(Sum::default()));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = case.walk().unwrap();
                    assert!(outcome.requests > 0, "{}: nothing left", case.title());
                    if let Some(short) = sum.lock().unwrap().add(case, &outcome) {
                        println!("{short}");
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap();
    println!("{sum}");
    assert_eq!(sum.vendors(), Config::load(&Sources::new(), 1).unwrap().vendors().names().count());
    assert!(sum.limits() >= 575, "{}: a limit is no longer walked", sum.limits());
    assert_eq!(sum.refused(), 0, "{sum}");
    assert_eq!(sum.unthrottled(), 0, "{sum}");
    assert!(sum.below_90() <= MOST_BELOW_90, "{sum}");
}
