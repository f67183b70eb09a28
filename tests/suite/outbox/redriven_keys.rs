//! Idempotency keys of dead letters that are sent again: purged a day after they were accepted, or shared in a batch.

use std::path::Path;

use super::*;

/// Deletes the keys that a store has recorded.
async fn purge_keys(path: &Path) {
    use sqlx::Connection;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut own = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("DELETE FROM ic_key").execute(&mut own).await.unwrap();
}

fn order() -> Request {
    post("/gone").idempotency_key("k-1")
}

/// A store with the dead letter of an [`order`] alone; its path, and the letter's id.
async fn store_with_letter(vendor: &FakeVendor) -> (PathBuf, String) {
    let path = folder().join("s.db");
    let working = client(vendor, &Store::sqlite(&path), RETRY).work().build().await.unwrap();
    let receipt = working.outbox().enqueue("acme", Priority::Normal, order()).await.unwrap();
    let status = until_ended(&receipt).await;
    assert!(matches!(status, Status::Dead { .. }), "{status:?}");
    assert!(working.shutdown(Duration::from_secs(5)).await);
    purge_keys(&path).await;
    (path, receipt.id())
}

#[tokio::test(flavor = "multi_thread")]
async fn key_of_redriven_job_is_accepted_once() {
    let vendor = vendor(FakeVendor::builder().poisoned("/gone", 410)).await;
    let (path, id) = store_with_letter(&vendor).await;
    let client = client(&vendor, &Store::sqlite(&path), RETRY).build().await.unwrap();
    assert!(client.outbox().dead_letters().unwrap().redrive(&id).await.unwrap());
    let again = client.outbox().enqueue("acme", Priority::Normal, order()).await.unwrap();
    assert_eq!((again.id(), again.was_accepted_before()), (id, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn letter_is_not_redriven_beside_a_later_request_with_its_key() {
    let vendor = vendor(FakeVendor::builder().poisoned("/gone", 410)).await;
    let (path, id) = store_with_letter(&vendor).await;
    let client = client(&vendor, &Store::sqlite(&path), RETRY).build().await.unwrap();
    let later = client.outbox().enqueue("acme", Priority::Normal, order()).await.unwrap();
    assert!(!later.was_accepted_before());
    let letters = client.outbox().dead_letters().unwrap();
    let error = letters.redrive(&id).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::KeyReused, Delivery::NotSent), "{error}");
    let all = letters.redrive_all(10).await.unwrap();
    assert_eq!((all.jobs, all.unsendable), (0, 1));
    assert_eq!(letters.count().await.unwrap(), 1);
    assert!(later.cancel().await.unwrap());
    purge_keys(&path).await;
    assert!(letters.redrive(&id).await.unwrap(), "the key is free");
}

/// A batch does not compare keys, so its letters take none.
#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_batch_may_share_a_key() {
    let vendor = vendor(FakeVendor::builder().poisoned("/gone", 410)).await;
    let store = Store::sqlite(folder().join("s.db"));
    let working = client(&vendor, &store, RETRY).work().build().await.unwrap();
    let mut batch = working.outbox().batch("orders").await.unwrap();
    let orders: Vec<_> = (0..2).map(|number| batch.check(number, "acme", Priority::Normal, order()).unwrap()).collect();
    batch.accept(orders, "2").await.unwrap();
    for _ in 0..1_000 {
        if !batch.goes_on().await.unwrap() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(batch.counts().await.unwrap().dead, 2);
    drop(batch);
    assert!(working.shutdown(Duration::from_secs(5)).await);

    let client = client(&vendor, &store, RETRY).build().await.unwrap();
    let all = client.outbox().dead_letters().unwrap().redrive_all(10).await.unwrap();
    assert_eq!((all.jobs, all.unsendable), (2, 0));
    let other = client.outbox().enqueue("acme", Priority::Normal, order()).await.unwrap();
    assert!(!other.was_accepted_before(), "a request of another origin");
}
