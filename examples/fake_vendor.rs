//! A vendor in its own process, for benchmarks and for experiments by hand.
//!
//! ```text
//! cargo run --release --features testing --example fake_vendor -- \
//!     --port 0 --limit 100 --window-ms 1000 --algorithm fixed_window --latency-ms 5 --jitter-ms 3
//! ```
//!
//! First prints `listening on http://127.0.0.1:PORT`. Stops when its standard input closes, and then prints one line of
//! counts. Without `--limit` it admits every request; `--threads` is 1 by default.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the command line")]

use std::error::Error;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use integration_client::testing::{FakeVendor, FakeVendorBuilder, HeaderStyle, VendorLimit};

const USAGE: &str = "usage: fake_vendor [--port N] [--limit N] [--window-ms N] [--algorithm fixed_window|sliding_window|\
sliding_counter|token_bucket|leaky_bucket] [--concurrency N] [--latency-ms N] [--jitter-ms N] [--service-ms N] \
[--body-bytes N] [--seed N] [--log-cap N] [--threads N] [--penalty-ms N] [--silent] [--headers silent|retry_after|\
retry_after_date|x_ratelimit|x_ratelimit_epoch|ratelimit|structured|x_ratelimit_retryafter]";

fn main() -> ExitCode {
    if std::env::args().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let ended = parse(std::env::args().skip(1)).and_then(|(vendor, threads)| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(threads).enable_all().build()?.block_on(run(vendor))
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fake_vendor: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(vendor: FakeVendorBuilder) -> Result<(), Box<dyn Error>> {
    let vendor = vendor.start().await?;
    println!("listening on {}", vendor.url());
    let stdin_closes = || std::io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(stdin_closes).await??;
    let counts = vendor.summary();
    println!(
        "arrived {} admitted {} refused {} faults {} finished {} not_logged {}",
        counts.arrived, counts.admitted, counts.refused, counts.faults, counts.finished, counts.not_logged
    );
    Ok(())
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<(FakeVendorBuilder, usize), Box<dyn Error>> {
    let mut builder = FakeVendor::builder().log_cap(0);
    let (mut limit, mut window_ms, mut algorithm) = (None, 1_000, "fixed_window".to_owned());
    let (mut latency, mut jitter, mut threads) = (0, 0, 1);
    while let Some(flag) = args.next() {
        if flag == "--silent" {
            builder = builder.headers(HeaderStyle::Silent);
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{flag}: no such option, or its value is missing\n{USAGE}"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("{flag} needs a number, not {value:?}\n{USAGE}"));
        builder = match &*flag {
            "--port" => {
                let port = value.parse().map_err(|_| format!("--port needs a port, not {value:?}\n{USAGE}"))?;
                builder.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            }
            "--concurrency" => builder.limit(VendorLimit::concurrency(number()?)),
            "--service-ms" => {
                let fixed = Duration::from_millis(number()?.into());
                builder.service_time(integration_client::testing::Delay::fixed(fixed))
            }
            "--penalty-ms" => builder.penalty(Duration::from_millis(number()?.into())),
            "--headers" => builder.headers(match &*value {
                "silent" => HeaderStyle::Silent,
                "retry_after" => HeaderStyle::RetryAfter,
                "retry_after_date" => HeaderStyle::RetryAfterDate,
                "x_ratelimit" => HeaderStyle::XRateLimit,
                "x_ratelimit_epoch" => HeaderStyle::XRateLimitEpoch,
                "ratelimit" => HeaderStyle::RateLimit,
                "structured" => HeaderStyle::Structured,
                "x_ratelimit_retryafter" => HeaderStyle::XRateLimitRetryAfter,
                other => return Err(format!("unknown style {other}\n{USAGE}").into()),
            }),
            "--body-bytes" => builder.body_size(number()? as usize),
            "--seed" => builder.seed(number()?.into()),
            "--log-cap" => builder.log_cap(number()? as usize),
            other => {
                match other {
                    "--limit" => limit = Some(number()?),
                    "--window-ms" => window_ms = number()?,
                    "--algorithm" => algorithm = value.clone(),
                    "--latency-ms" => latency = number()?,
                    "--jitter-ms" => jitter = number()?,
                    "--threads" => threads = number()?.max(1) as usize,
                    _ => return Err(format!("unknown option {other}\n{USAGE}").into()),
                }
                builder
            }
        };
    }
    let window = Duration::from_millis(window_ms.into());
    if let Some(limit) = limit {
        builder = builder.limit(match &*algorithm {
            "fixed_window" => VendorLimit::fixed_window(limit, window),
            "sliding_window" => VendorLimit::sliding_window(limit, window),
            "sliding_counter" => VendorLimit::sliding_counter(limit, window),
            "token_bucket" => VendorLimit::token_bucket(limit, limit, window),
            "leaky_bucket" => VendorLimit::leaky_bucket(limit, limit, window),
            other => return Err(format!("unknown algorithm {other}\n{USAGE}").into()),
        });
    }
    let ms = |n: u32| Duration::from_millis(n.into());
    Ok((builder.latency(ms(latency)).jitter(ms(jitter)), threads))
}
