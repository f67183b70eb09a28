//! The reply to a commit is lost: a call does not change more than it was asked to, and recognises what it did or returns
//! an error that says what may have happened.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::outbox::{Receipt, Status};
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, Watch};
use integration_client::testing::{FakeVendor, HeaderStyle};
use integration_client::{Delivery, Error, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request};

use crate::support::folder;

/// Breaks the connection once, at a moment of one kind of write.
#[derive(Default)]
struct Breaking {
    next: Mutex<Option<(&'static str, Moment)>>,
    /// No connection can be made.
    is_away: AtomicBool,
    /// No connection can be made after the next break.
    stays_away: AtomicBool,
}

impl Breaking {
    fn arm(&self, what: &'static str, moment: Moment) {
        *self.next.lock().unwrap() = Some((what, moment));
    }
}

impl Watch for Breaking {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if what == "connect" && self.is_away.load(Relaxed) {
            return Fault::Broken;
        }
        let mut next = self.next.lock().unwrap();
        if *next != Some((what, moment)) {
            return Fault::None;
        }
        *next = None;
        self.is_away.store(self.stays_away.load(Relaxed), Relaxed);
        Fault::Broken
    }
}

async fn vendor() -> FakeVendor {
    FakeVendor::builder().headers(HeaderStyle::Silent).poisoned("/gone", 410).start().await.unwrap()
}

fn builder(vendor: &FakeVendor, store: Store) -> IntegrationClientBuilder {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor.vendors_toml("v"));
    builder.tenant(TenantEntry::new("acme", "v").credential("env:PATH")).store(store)
}

async fn enqueue(client: &IntegrationClient, path: &str) -> Receipt {
    let request = Request::post("v", path).json(&["work"]);
    client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap()
}

#[track_caller]
fn assert_in_doubt(error: &Error, words: &str) {
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Store, Delivery::Ambiguous), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_recognises_its_own_commit() {
    let (vendor, breaking) = (vendor().await, Arc::new(Breaking::default()));
    let store = Store::sqlite(folder("lost-replies").join("s.db")).watched_by(breaking.clone());
    let client = builder(&vendor, store).build().await.unwrap();
    let receipt = enqueue(&client, "/a").await;
    breaking.arm("done", Moment::Committed);
    assert!(receipt.cancel().await.unwrap(), "the second run finds what the first one did");
    assert!(breaking.next.lock().unwrap().is_none(), "the connection broke");
    assert_eq!(receipt.status().await.unwrap(), Status::Cancelled);
    assert!(!receipt.cancel().await.unwrap(), "an earlier call cancelled it");
    // The store stays away after the commit.
    let receipt = enqueue(&client, "/b").await;
    breaking.stays_away.store(true, Relaxed);
    breaking.arm("done", Moment::Committed);
    let error = receipt.cancel().await.unwrap_err();
    assert_in_doubt(&error, "the request's status says whether it is cancelled");
    breaking.is_away.store(false, Relaxed);
    assert_eq!(receipt.status().await.unwrap(), Status::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_not_changed_again_after_a_lost_reply() {
    let (vendor, path) = (vendor().await, folder("lost-replies").join("s.db"));
    let working = builder(&vendor, Store::sqlite(&path)).work().build().await.unwrap();
    for _ in 0..6 {
        enqueue(&working, "/gone").await;
    }
    let all_dead = async {
        while working.outbox().dead_letters().unwrap().count().await.unwrap() < 6 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all_dead).await.expect("the vendor refuses them for good");
    working.shutdown(Duration::from_secs(5)).await;
    drop(working);
    let breaking = Arc::new(Breaking::default());
    let client = builder(&vendor, Store::sqlite(&path).watched_by(breaking.clone())).build().await.unwrap();
    let letters = client.outbox().dead_letters().unwrap();

    breaking.arm("forget", Moment::Committed);
    assert_in_doubt(&letters.purge(2).await.unwrap_err(), "up to 2 letters may be deleted");
    assert_eq!(letters.count().await.unwrap(), 4);
    // A transaction that was certainly not committed is run again.
    breaking.arm("forget", Moment::After);
    assert_eq!(letters.purge(1).await.unwrap(), 1);
    let left = letters.list(None, 10).await.unwrap();
    let ids: Vec<String> = left.into_iter().map(|kept| kept.letter.id).collect();
    assert_eq!(ids.len(), 3);

    breaking.arm("forget", Moment::Committed);
    assert_in_doubt(&letters.remove(&ids[0]).await.unwrap_err(), "the letter may be deleted");
    assert!(letters.show(&ids[0]).await.unwrap().is_none());

    breaking.arm("accept", Moment::Committed);
    let error = letters.redrive(&ids[1]).await.unwrap_err();
    assert_in_doubt(&error, &format!("the receipt {} says whether it is", ids[1]));
    let status = client.outbox().receipt(&ids[1]).unwrap().status().await.unwrap();
    assert!(matches!(status, Status::Waiting { .. }), "{status:?}");
    assert_eq!(letters.count().await.unwrap(), 1);
}
