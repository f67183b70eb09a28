//! A Python application that inserts requests in its own transactions and takes the replies:
//! `examples/python/orders.py`, which docs/INTAKE.md shows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::config::TenantEntry;
use integration_client::store::Store;
use integration_client::testing::{FakeAnswer, FakeTransport};

use crate::support::{folder, repository};

/// Runs the application and returns its output, or its error output if it fails.
fn orders(store: &Path, rest: &[&str]) -> Result<String, String> {
    let script = repository().join("examples/python/orders.py");
    let url = format!("sqlite:{}", store.display());
    let run = Command::new("python3").arg(script).arg(url).args(rest).output();
    let run = run.expect("python3 is needed for this test; install it");
    match run.status.success() {
        true => Ok(String::from_utf8(run.stdout).unwrap()),
        false => Err(String::from_utf8(run.stderr).unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_application_commits_are_sent() {
    let store = folder("intake-python").join("s.db");
    let transport = FakeTransport::new(|call| match String::from_utf8_lossy(&call.body).contains("\"quantity\": 0") {
        true => FakeAnswer::status(422).body("no"),
        false => FakeAnswer::status(201).body("{}"),
    });
    let text = "[vendors.orders]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    let builder = builder.tenant(TenantEntry::new("acme", "orders")).store(Store::sqlite(&store)).work();
    let client = builder.build().await.unwrap();
    let feeding = client.outbox().feed_from_table();
    let application = async {
        let run = async |rest: &'static [&'static str]| {
            let store = store.clone();
            tokio::task::spawn_blocking(move || orders(&store, rest)).await.unwrap()
        };
        assert_eq!(run(&["place", "17", "3"]).await.unwrap(), "17 3 placed\n");
        run(&["place", "18", "0"]).await.unwrap();
        // A request whose transaction is not committed is not sent: after an error, or because the order exists
        // already.
        assert!(run(&["fail", "19", "1"]).await.unwrap_err().contains("something went wrong"));
        assert!(run(&["place", "17", "4"]).await.unwrap_err().contains("IntegrityError"));
        for _ in 0..1_000 {
            if client.outbox().replies(10).await.unwrap().len() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(run(&["answers"]).await.unwrap(), "17 3 done 201\n18 0 dead 422\n");
        assert!(client.outbox().replies(10).await.unwrap().is_empty());
        client.shutdown(Duration::from_secs(5)).await;
    };
    let (taken, ()) = tokio::join!(feeding, application);
    assert_eq!((taken.unwrap(), transport.calls().len()), (2, 2));
}
