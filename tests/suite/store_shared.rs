//! Several processes, and other programs, at one PostgreSQL store: a process gives up no job of another one, a lock that
//! a program keeps holds up nothing else, and the jobs of a killed process are taken over together.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::dead_letter::Reason;
use integration_client::outbox::{Batch, Status};
use integration_client::store::Store;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{IntegrationClient, IntegrationClientBuilder, Priority, Request};
use sqlx::{Connection, Executor, Row};

use crate::support::database;

const UNLIMITED: &str = "unpublished = true\n";
const SIX_A_MINUTE: &str =
    "[[vendors.v.limits]]\nname = \"requests\"\nalgorithm = \"sliding_window\"\nlimit = 6\nwindow = \"1m\"\n";

fn builder(store: &Store, tenants: &[&str], limits: &str, transport: &FakeTransport) -> IntegrationClientBuilder {
    let text = format!("[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\n{limits}");
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    let builder = tenants.iter().fold(builder, |builder, tenant| builder.tenant(TenantEntry::new(*tenant, "v")));
    builder.store(store.clone())
}

fn answering() -> FakeTransport {
    FakeTransport::new(|_| FakeAnswer::status(200))
}

/// Accepts requests of a tenant together.
async fn accept(client: &IntegrationClient, tenant: &str, count: u64) -> Batch {
    const PAGE: u64 = 500;
    let mut batch = client.outbox().batch(tenant).await.unwrap();
    for first in (0..count).step_by(PAGE as usize) {
        let check = |number| batch.check(number, tenant, Priority::Normal, Request::post("v", format!("/{number}")));
        let requests = (first..count.min(first + PAGE)).map(|number| check(number).unwrap()).collect();
        batch.accept(requests, &first.to_string()).await.unwrap();
    }
    batch
}

async fn until_delivered(batch: &Batch, count: u64, most: Duration) {
    let delivered = async {
        while batch.counts().await.unwrap().delivered < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(most, delivered).await.expect("they are delivered");
}

/// Moves the time of this process's clients.
async fn jump(by: Duration) {
    tokio::time::pause();
    tokio::time::advance(by).await;
    tokio::time::resume();
}

#[tokio::test]
async fn jobs_known_to_another_worker_are_kept() {
    // They take a quarter of an hour: longer than a lane may be missing before a worker gives its jobs up.
    const JOBS: u64 = 80;
    let store = Store::postgres(database("shared").await);
    let (ours, theirs) = (answering(), answering());
    let knows = builder(&store, &["acme"], SIX_A_MINUTE, &ours).work().build().await.unwrap();
    let batch = accept(&knows, "acme", JOBS).await;
    until_delivered(&batch, 1, Duration::from_secs(20)).await;
    let other = builder(&store, &["umbra"], UNLIMITED, &theirs).work().build().await.unwrap();
    for _ in 0..100 {
        // Both look for jobs meanwhile.
        tokio::time::sleep(Duration::from_millis(400)).await;
        if batch.counts().await.unwrap().waiting == 0 {
            break;
        }
        // A job waits in memory for longer than this.
        jump(Duration::from_secs(50)).await;
    }
    assert_eq!(batch.counts().await.unwrap().delivered, JOBS);
    assert_eq!(other.outbox().dead_letters().unwrap().count().await.unwrap(), 0);
    assert_eq!((ours.calls().len() as u64, theirs.calls().len()), (JOBS, 0));
}

/// Each of two workers gets a part of a day's units. A job that one of them has no unit for goes to the other one.
#[tokio::test(flavor = "multi_thread")]
async fn two_workers_use_a_shared_day_up() {
    const LIMIT: u64 = 40;
    let url = database("shared").await;
    let limit = "safety = 1.0\n[[vendors.v.limits]]\nname = \"daily\"\nalgorithm = \"fixed_window\"\nlimit = 40\nwindow = \"1d\"\n";
    let (ours, theirs) = (answering(), answering());
    let build = |transport: &FakeTransport| {
        let builder = builder(&Store::postgres(url.clone()), &["acme"], limit, transport);
        builder.share_through(url.clone()).sharing_lease(Duration::from_secs(2)).work().build()
    };
    let (one, two) = (build(&ours).await.unwrap(), build(&theirs).await.unwrap());
    let batch = accept(&one, "acme", LIMIT + 10).await;
    until_delivered(&batch, LIMIT, Duration::from_secs(60)).await;
    // Both workers look for jobs meanwhile. The ten jobs beyond the limit stay in the store.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let counts = batch.counts().await.unwrap();
    assert_eq!((counts.delivered, counts.waiting, counts.dead), (LIMIT, 10, 0));
    let (ours, theirs) = (ours.calls().len() as u64, theirs.calls().len() as u64);
    assert_eq!(ours + theirs, LIMIT);
    assert!(ours > 0 && theirs > 0, "{ours} and {theirs}");
    for client in [one, two] {
        client.shutdown(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn sole_worker_gives_missing_lane_up() {
    let store = Store::postgres(database("shared").await);
    let accepting = builder(&store, &["acme"], UNLIMITED, &answering()).build().await.unwrap();
    accept(&accepting, "acme", 5).await;
    let working = builder(&store, &["umbra"], UNLIMITED, &answering()).work().build().await.unwrap();
    let letters = working.outbox().dead_letters().unwrap();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(600)).await;
        if letters.count().await.unwrap() == 5 {
            break;
        }
        // Longer than a lane may be missing.
        jump(Duration::from_secs(601)).await;
    }
    let found = letters.list(None, 10).await.unwrap();
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|kept| kept.letter.reason == Reason::NotConfigured), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_job_holds_up_no_other() {
    let url = database("shared").await;
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).delay(Duration::from_secs(1)));
    let builder = builder(&Store::postgres(url.clone()), &["acme", "umbra"], UNLIMITED, &transport);
    let client = builder.work().build().await.unwrap();
    let locked = client.outbox().enqueue("acme", Priority::Normal, Request::post("v", "/locked")).await.unwrap();
    while transport.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut operator = sqlx::PgConnection::connect(&url).await.unwrap();
    operator.execute("BEGIN").await.unwrap();
    let rows = operator.fetch_all("SELECT 1 FROM ic_job FOR UPDATE").await.unwrap();
    assert_eq!(rows.len(), 1);
    let batch = accept(&client, "umbra", 200).await;
    until_delivered(&batch, 200, Duration::from_secs(15)).await;
    assert!(matches!(locked.status().await.unwrap(), Status::UnderWay));
    operator.execute("ROLLBACK").await.unwrap();
    let ended = async {
        while !matches!(locked.status().await.unwrap(), Status::Delivered { .. }) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), ended).await.expect("it is delivered too");
    assert_eq!(transport.calls().len(), 201, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_process_is_replaced_in_one_go() {
    const JOBS: u64 = 2_500;
    let url = database("shared").await;
    // A heartbeat takes two seconds, and a process takes over a thousand jobs in a transaction.
    let store = Store::postgres(url.clone()).lease(Duration::from_secs(8));
    let accepting = builder(&store, &["acme"], UNLIMITED, &answering()).build().await.unwrap();
    let batch = accept(&accepting, "acme", JOBS).await;
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    connection.execute("UPDATE ic_job SET state = 1, owner = '\\x01'").await.unwrap();
    let working = builder(&store, &["acme"], UNLIMITED, &answering()).work().build().await.unwrap();
    let mut left = async || {
        let row = connection.fetch_one("SELECT count(*) FROM ic_job WHERE state = 1 AND owner = '\\x01'").await;
        row.unwrap().get::<i64, _>(0).unsigned_abs()
    };
    let begin = async {
        while left().await == JOBS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), begin).await.expect("the jobs are taken over");
    let rest = async {
        while left().await > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_millis(1_900), rest).await.expect("all are taken over with one heartbeat");
    until_delivered(&batch, JOBS, Duration::from_secs(30)).await;
    working.shutdown(Duration::from_secs(5)).await;
}
