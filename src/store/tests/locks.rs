//! Another program keeps a row or a table locked.

use std::sync::Arc;

use sqlx::{Connection, Executor, PgConnection};

use super::super::jobs::{Accepted, Unclaimed};
use super::*;
use crate::error::{Delivery, Error, ErrorKind};

/// A store, and a program that keeps in a transaction what `sql` locks.
async fn with_lock(sql: &'static str) -> (Arc<Opened>, PgConnection) {
    let url = database().await;
    let opened = open(&Store::postgres(url.clone())).await;
    let mut program = PgConnection::connect(&url).await.unwrap();
    program.execute("BEGIN").await.unwrap();
    program.execute(sql).await.unwrap();
    (Arc::new(opened), program)
}

/// Accepts jobs at once, so that the writer takes them together.
async fn insert_all(store: &Arc<Opened>, jobs: Vec<NewJob>) -> Vec<(Id, Result<Accepted, Error>)> {
    let mut writes = tokio::task::JoinSet::new();
    for job in jobs {
        let store = store.clone();
        writes.spawn(async move { (job.id, store.insert(job).await) });
    }
    writes.join_all().await
}

#[tokio::test]
async fn locked_key_fails_its_own_request_alone() {
    let sql = "INSERT INTO ic_key (tenant, vendor, key, job, fingerprint, expires_at) \
               VALUES ('a', 'v', 'key', '\\x00', 'f', 0)";
    let (store, mut program) = with_lock(sql).await;
    let locked = NewJob { key: Some(("key".to_owned(), "fingerprint".to_owned())), ..job("a") };
    let mut jobs: Vec<NewJob> = (0..50).map(|_| job("b")).collect();
    jobs.insert(20, locked.clone());
    for (id, result) in insert_all(&store, jobs).await {
        match result {
            Err(error) => {
                assert_eq!((id, error.kind(), error.delivery()), (locked.id, ErrorKind::Store, Delivery::NotSent));
                assert!(error.to_string().contains("kept a row or a table locked"), "{error}");
            }
            Ok(accepted) => assert!(id != locked.id && accepted == Accepted::New),
        }
    }
    program.execute("ROLLBACK").await.unwrap();
    assert_eq!(store.insert(locked).await.unwrap(), Accepted::New);
}

#[tokio::test]
async fn locked_table_fails_writes_within_a_bound() {
    let (store, mut program) = with_lock("LOCK TABLE ic_job IN EXCLUSIVE MODE").await;
    let clock = Clock::system();
    let began = clock.now();
    for (_, result) in insert_all(&store, (0..300).map(|_| job("a")).collect()).await {
        assert_eq!(result.unwrap_err().delivery(), Delivery::NotSent);
    }
    let took = clock.now().since(began);
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert!(store.problems.now().is_some_and(|problem| problem.contains("locked")));
    program.execute("ROLLBACK").await.unwrap();
    accept(&store, job("a")).await;
}

#[tokio::test]
async fn locked_claim_holds_up_no_other_release() {
    let url = database().await;
    let store = open(&Store::postgres(url.clone())).await;
    for _ in 0..3 {
        accept(&store, job("a")).await;
    }
    let owner = id();
    assert_eq!(claim(&store, owner, "a", 3).await.len(), 3);
    let mut program = PgConnection::connect(&url).await.unwrap();
    program.execute("BEGIN").await.unwrap();
    program.execute("SELECT 1 FROM ic_job ORDER BY seq LIMIT 1 FOR UPDATE").await.unwrap();
    let unclaim = || store.write((owner, Vec::new()), jobs::unclaim);
    assert_eq!(unclaim().await.unwrap(), Unclaimed::Part);
    assert_eq!(claim(&store, id(), "a", 3).await.len(), 2, "the others were released");
    program.execute("ROLLBACK").await.unwrap();
    assert_eq!(unclaim().await.unwrap(), Unclaimed::All(1));
}
