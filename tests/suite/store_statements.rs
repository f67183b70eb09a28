//! How many statements the store gets for the jobs of a busy worker: they are accepted, claimed, started and ended in
//! groups, and a group is one statement of each kind.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, Watch};
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{IntegrationClient, Priority, Request};

use crate::support::folder;

const JOBS: u64 = 4_000;
const PAGE: u64 = 500;
/// The fewest jobs that a statement of a busy worker is for, on average. SQLite accepts 16 in a statement, and a statement for each
/// job would make it 1.
const JOBS_PER_STATEMENT: u64 = 8;

/// Counts statements by what they do.
#[derive(Default)]
struct Counting(Mutex<BTreeMap<&'static str, u64>>);

impl Watch for Counting {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if moment == Moment::Before {
            *self.0.lock().unwrap().entry(what).or_default() += 1;
        }
        Fault::None
    }
}

/// Accepts and delivers all jobs, and returns the number of statements of each kind.
async fn statements(store: Store) -> BTreeMap<&'static str, u64> {
    let counting = Arc::new(Counting::default());
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(text)
        .tenant(TenantEntry::new("acme", "v"))
        .transport(FakeTransport::new(|_| FakeAnswer::status(200)))
        .store(store.watched_by(counting.clone()))
        .work()
        .build()
        .await
        .unwrap();
    let mut batch = client.outbox().batch("all").await.unwrap();
    for page in 0..JOBS / PAGE {
        let checked = |number| batch.check(number, "acme", Priority::Normal, Request::post("v", format!("/{number}")));
        let requests = (page * PAGE..(page + 1) * PAGE).map(|number| checked(number).unwrap()).collect();
        batch.accept(requests, &page.to_string()).await.unwrap();
    }
    while batch.counts().await.unwrap().delivered < JOBS {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.shutdown(Duration::from_secs(5)).await;
    counting.0.lock().unwrap().clone()
}

fn assert_grouped(statements: &BTreeMap<&'static str, u64>) {
    for what in ["accept", "claim", "start", "done"] {
        let count = statements.get(what).copied().unwrap_or_default();
        assert!(count > 0, "no statement does `{what}` any more: {statements:?}");
        assert!(count <= JOBS / JOBS_PER_STATEMENT, "`{what}` is a statement for few jobs: {statements:?}");
    }
    // Idle looks included.
    let all: u64 = statements.values().sum();
    assert!(all <= JOBS, "more than a statement for each job: {statements:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_gets_a_statement_per_group() {
    let folder = folder("statements");
    assert_grouped(&statements(Store::sqlite(folder.join("s.db"))).await);
    std::fs::remove_dir_all(folder).unwrap();
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn postgres_gets_a_statement_per_group() {
    assert_grouped(&statements(Store::postgres(crate::support::database("statements").await)).await);
}
