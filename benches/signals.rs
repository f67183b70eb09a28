//! The cost of reading what a response states about limits: nanoseconds and allocations for typical responses of
//! vendors, and whether the time stays linear in the size of a hostile response.
//!
//! ```text
//! cargo bench --bench signals
//! ```
//!
//! Every response has eight other headers besides those about limits. The last line is machine-readable: reads per
//! second on one core, over a mixture in which four of five responses are of the most frequent kinds, and allocations
//! per response of these kinds. The process fails when such a response allocates, or when a response with a hundred
//! times the bytes takes more than two hundred times as long.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the time itself")]
#![expect(clippy::unwrap_used, reason = "whatever goes wrong ends the run")]

use std::alloc::System;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use integration_client::signals::{self, Dialect};
use integration_client::testing::dialects;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: usize = 15;
const READS: usize = 20_000;

/// The time of these responses: 2026-01-15T10:00:00Z, as `Date` states.
const NOW: u64 = 1_768_471_200;

const SILENT: [(&str, &str); 8] = [
    ("date", "Thu, 15 Jan 2026 10:00:00 GMT"),
    ("content-type", "application/json; charset=utf-8"),
    ("content-length", "1234"),
    ("cache-control", "private, max-age=60, s-maxage=60"),
    ("etag", "\"0123456789abcdef\""),
    ("x-request-id", "5f0c2d3e-0b7a-4b1e-9a53-000000000000"),
    ("strict-transport-security", "max-age=31536000; includeSubdomains"),
    ("vary", "accept, authorization, cookie"),
];

struct Case {
    name: &'static str,
    vendor: &'static str,
    status: u16,
    /// How often the response occurs in the mixture.
    weight: usize,
    /// Whether reading the response may allocate, because its body is JSON.
    allocates: bool,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
}

const CASES: [Case; 8] = [
    Case { name: "nothing said", vendor: "", status: 200, weight: 4, allocates: false, headers: &[], body: "" },
    Case {
        name: "limit, remaining, used, reset since 1970, resource",
        vendor: "github",
        status: 304,
        weight: 4,
        allocates: false,
        headers: &[
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "4987"),
            ("x-ratelimit-used", "13"),
            ("x-ratelimit-reset", "1768474300"),
            ("x-ratelimit-resource", "core"),
        ],
        body: "",
    },
    Case {
        name: "limit, remaining, reset in seconds",
        vendor: "",
        status: 200,
        weight: 4,
        allocates: false,
        headers: &[("ratelimit-limit", "100"), ("ratelimit-remaining", "42"), ("ratelimit-reset", "17")],
        body: "",
    },
    Case {
        name: "used/limit, under a name of its own",
        vendor: "gorgias",
        status: 200,
        weight: 2,
        allocates: false,
        headers: &[("x-gorgias-account-api-call-limit", "10/40")],
        body: "",
    },
    Case {
        name: "two windows, durations",
        vendor: "openai",
        status: 200,
        weight: 2,
        allocates: false,
        headers: &[
            ("x-ratelimit-limit-requests", "14400"),
            ("x-ratelimit-limit-tokens", "18000"),
            ("x-ratelimit-remaining-requests", "14370"),
            ("x-ratelimit-remaining-tokens", "17997"),
            ("x-ratelimit-reset-requests", "2m59.56s"),
            ("x-ratelimit-reset-tokens", "7.66s"),
        ],
        body: "",
    },
    Case {
        name: "a refusal with Retry-After",
        vendor: "",
        status: 429,
        weight: 1,
        allocates: false,
        headers: &[("retry-after", "30")],
        body: "",
    },
    Case {
        name: "structured fields",
        vendor: "",
        status: 200,
        weight: 2,
        allocates: false,
        headers: &[("ratelimit-policy", "\"default\";q=100;w=60"), ("ratelimit", "\"default\";r=50;t=30")],
        body: "",
    },
    Case {
        name: "a bucket in a body",
        vendor: "shopify",
        status: 200,
        weight: 1,
        allocates: true,
        headers: &[],
        body: "{\"data\":{\"shop\":{\"name\":\"x\"}},\"extensions\":{\"cost\":{\"requestedQueryCost\":101,\"actualQueryCost\":46,\
               \"throttleStatus\":{\"maximumAvailable\":1000.0,\"currentlyAvailable\":954,\"restoreRate\":50.0}}}}",
    },
];

fn headers<'a>(lines: impl IntoIterator<Item = &'a (&'static str, &'static str)>) -> HeaderMap {
    let lines = lines.into_iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    lines.collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> ExitCode {
    let dialects = dialects(include_str!("../fixtures/dialects.toml")).unwrap();
    let plain = Dialect::default();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    let mut fine = true;
    let (mut mixture, mut weights, mut most_allocations) = (0.0, 0, 0.0_f64);
    println!("{:<52} {:>8} {:>12}", "response", "ns", "allocations");
    for case in &CASES {
        let headers = headers(SILENT.iter().chain(case.headers));
        let status = StatusCode::from_u16(case.status).unwrap();
        let dialect = dialects.get(case.vendor).map_or(&plain, |dialect| dialect);
        let read = || signals::read(black_box(dialect), status, black_box(&headers), case.body.as_bytes(), now);
        black_box(read());
        let region = Region::new(HEAP);
        for _ in 0..READS {
            black_box(read());
        }
        let allocations = region.change().allocations as f64 / READS as f64;
        let times = (0..ROUNDS).map(|_| {
            let began = Instant::now();
            for _ in 0..READS {
                black_box(read());
            }
            began.elapsed()
        });
        let nanos = median(times.collect()).as_nanos() as f64 / READS as f64;
        println!("{:<52} {nanos:>8.0} {allocations:>12.1}", case.name);
        mixture += nanos * case.weight as f64;
        weights += case.weight;
        if !case.allocates {
            most_allocations = most_allocations.max(allocations);
        }
    }
    fine &= most_allocations == 0.0;
    fine &= is_linear(now);
    let reads_per_s = (1e9 * weights as f64 / mixture) as u64;
    println!("signals: reads_per_s={reads_per_s} allocations={most_allocations:.0}");
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks that a hundred times the bytes, in headers and in a body, take less than two hundred times as long.
fn is_linear(now: SystemTime) -> bool {
    let plain = Dialect::default();
    let (mut first, mut last) = (0.0, 0.0);
    for times in [1, 10, 100] {
        let mut headers = HeaderMap::new();
        for n in 0..3 * times {
            // Few names with many lines; many names; and long values that almost parse.
            headers.append("x-ratelimit-remaining", HeaderValue::from_static("1,"));
            let name = format!("x-ratelimit-remaining-{n}a");
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static("7"));
            headers.append("ratelimit", HeaderValue::from_str(&"\"a\";r=5;t=30,".repeat(4)).unwrap());
            headers.append("retry-after", HeaderValue::from_str(&"1".repeat(60)).unwrap());
        }
        let body = "{\"error\":{\"message\":\"try again in \"},\"x\":[1,2]}".repeat(20 * times);
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let times_taken = (0..ROUNDS).map(|_| {
            let began = Instant::now();
            for _ in 0..50 {
                let status = StatusCode::TOO_MANY_REQUESTS;
                black_box(signals::read(&plain, status, black_box(&headers), body.as_bytes(), now));
            }
            began.elapsed()
        });
        let micros = median(times_taken.collect()).as_nanos() as f64 / 50_000.0;
        println!("{:>9} bytes of headers, {:>9} of body: {micros:>9.1} us", bytes, body.len());
        first = if first == 0.0 { micros } else { first };
        last = micros;
    }
    // Even at the smallest size, some lines of each kind are read, so the first step is the steeper one. The bound
    // leaves a factor of two for it.
    last < 200.0 * first
}
