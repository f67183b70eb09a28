//! Dead letters in a place of your own: `cargo run --release --example custom_sink`.
//!
//! The first write to the place fails, so the client writes that letter again.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for the command line; a poisoned lock ends it")]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::BoxError;
use integration_client::BoxFuture;
use integration_client::config::TenantEntry;
use integration_client::dead_letter::{DeadLetter, DeadLetterSink};
use integration_client::testing::FakeVendor;
use integration_client::{IntegrationClient, Priority, Request};

/// Stands for a table, a queue or a chat room.
#[derive(Default)]
struct Board {
    /// The ids of all letters that were handed over, including those that the board did not take.
    calls: Mutex<Vec<String>>,
    kept: Mutex<Vec<DeadLetter>>,
}

impl DeadLetterSink for Board {
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let first = self.calls.lock().unwrap().is_empty();
            self.calls.lock().unwrap().push(letter.id.clone());
            if first {
                println!("board: out of chalk");
                return Err("out of chalk".into());
            }
            println!(
                "board: {} at {}: {} after {} attempts",
                letter.tenant,
                letter.vendor,
                letter.reason,
                letter.attempts.len()
            );
            self.kept.lock().unwrap().push(letter.clone());
            Ok(())
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let vendor = FakeVendor::builder().poisoned("/reports", 503).start().await?;
    let retry = "[vendors.demo.retry]\nmax_retries = 1\nfirst_wait = \"20ms\"\n";
    let entry = vendor.vendors_toml("demo").replace("\"bearer\"", "\"none\"") + retry;

    // The client gets one `Arc` of the board, and the application keeps another.
    let board = Arc::new(Board::default());
    let builder = IntegrationClient::builder().vendors_toml(entry).tenant(TenantEntry::new("acme", "demo"));
    let client = builder.dead_letter_sink(board.clone()).build().await?;

    for report in ["/reports/may", "/reports/june"] {
        let result = client.send("acme", Priority::Normal, Request::get("demo", report)).await;
        let Err(error) = result else { return Err("not poisoned".into()) };
        println!("{report}: {error}");
    }
    // Waits for letters that are not written yet.
    client.shutdown(Duration::from_secs(5)).await;

    let (calls, kept, counts) = (board.calls.lock().unwrap(), board.kept.lock().unwrap(), client.dead_letter_counts());
    println!("{} writes for {} letters: {} written, {} lost", calls.len(), kept.len(), counts.written, counts.lost);
    Ok(())
}
