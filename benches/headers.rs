//! The cost of reading rate-limit headers, on real sockets: a client that always has more to send and uses its key
//! alone calls a vendor that states the remaining units in every response, and beside it a vendor that sends no such
//! headers.
//!
//! ```text
//! cargo bench --bench headers
//! ```
//!
//! All cells run at the same time, each with its own vendor and client, so that other load on the machine slows all of
//! them alike. `reached` is a percentage of the share of the limit that a client uses (80 of 100 in a second), and
//! `ratio` compares the cell with the one without headers. The exit code is 1 if a cell with headers reaches less than
//! 0.97 of the cell without, or had requests refused.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::unwrap_used, reason = "whatever goes wrong ends the run")]
#![expect(clippy::disallowed_methods, reason = "a bench starts tasks")]

use std::process::ExitCode;
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, HeaderStyle, VendorLimit, literal};
use integration_client::{IntegrationClient, Priority, Request};
use tokio::task::JoinSet;
use tokio::time::sleep;

const LIMIT: u32 = 100;
const WINDOW: Duration = Duration::from_secs(1);
/// The client's share of a limit by default.
const SAFETY: f64 = 0.8;
/// Windows that are not measured: in them, the client uses up the initial burst and finds its pace.
const WARM_UP_WINDOWS: u32 = 2;
const WINDOWS: u32 = 10;
const CALLERS: usize = 24;
const STYLES: [HeaderStyle; 4] =
    [HeaderStyle::Silent, HeaderStyle::XRateLimit, HeaderStyle::XRateLimitEpoch, HeaderStyle::Structured];
const WANTED_SHARE: f64 = 0.97;

/// The result of one cell.
struct CellResult {
    percent: f64,
    refused: u64,
}

async fn measure_cell(limit: VendorLimit, style: HeaderStyle) -> CellResult {
    let (latency, jitter) = (Duration::from_millis(5), Duration::from_millis(10));
    let vendor = FakeVendor::builder().limit(limit).headers(style).latency(latency).jitter(jitter);
    let vendor = vendor.start().await.unwrap();
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor.vendors_toml("v"))
        .tenant(TenantEntry::new("t", "v").credential("keys:t"))
        .credential_resolver("keys", literal)
        .build()
        .await
        .unwrap();
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let client = client.clone();
        callers.spawn(async move {
            let priority = [Priority::High, Priority::Normal, Priority::Low][number % 3];
            loop {
                let response = client.send("t", priority, Request::get("v", "/")).await;
                drop(response.unwrap().bytes().await);
            }
        });
    }
    sleep(WINDOW * WARM_UP_WINDOWS).await;
    let before = vendor.summary();
    sleep(WINDOW * WINDOWS).await;
    let after = vendor.summary();
    callers.shutdown().await;
    let admitted = after.admitted - before.admitted;
    let percent = 100.0 * admitted as f64 / (SAFETY * f64::from(LIMIT * WINDOWS));
    CellResult { percent, refused: after.refused }
}

#[tokio::main]
async fn main() -> ExitCode {
    let limits = [
        ("fixed_window", VendorLimit::fixed_window(LIMIT, WINDOW)),
        ("sliding_window", VendorLimit::sliding_window(LIMIT, WINDOW)),
    ];
    let cells = limits.into_iter().flat_map(|(name, limit)| STYLES.map(|style| (name, limit.clone(), style)));
    let running: Vec<_> =
        cells.map(|(name, limit, style)| (name, style, tokio::spawn(measure_cell(limit, style)))).collect();
    let (mut silent, mut short) = (0.0, 0);
    for (name, style, cell) in running {
        let CellResult { percent, refused } = cell.await.unwrap();
        if style == HeaderStyle::Silent {
            silent = percent;
        }
        let ratio = percent / silent;
        short += u32::from(ratio < WANTED_SHARE || refused > 0);
        println!("headers: algorithm={name} says={style:?} reached={percent:.1} refused={refused} ratio={ratio:.3}");
    }
    println!("headers: windows={WINDOWS} short={short}");
    if short == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
