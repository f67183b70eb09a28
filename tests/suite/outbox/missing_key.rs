//! Sealed jobs in a process that does not have their key.

use super::*;

/// 32 bytes in base64.
const SEAL_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// A client of a vendor whose entry says that jobs are sealed. Retries wait for a second.
fn sealing(vendor: &FakeVendor, store: &Store) -> IntegrationClientBuilder {
    let more = "\nat_rest = \"sealed\"\nmax_transit = \"1s\"\nconnect_timeout = \"1s\"\nauth";
    let retry = "\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\n[vendors.v.retry]\nfirst_wait = \"1s\"\n\
                 longest_wait = \"1s\"\n";
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor.vendors_toml("v").replacen("\nauth", more, 1) + retry)
        .tenant(TenantEntry::new("acme", "v").credential("env:PATH"))
        .store(store.clone())
}

#[test]
fn job_that_may_have_been_sent_waits_for_its_key() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (serving, dying) = (runtime(), runtime());
    let vendor = serving.block_on(vendor(FakeVendor::builder().fault(When::any().first(1), Fault::Stall)));
    let store = Store::sqlite(folder().join("s.db"));
    let id = dying.block_on(async {
        let client = sealing(&vendor, &store.clone().seal_key(SEAL_KEY)).work().build().await.unwrap();
        let receipt = client.outbox().enqueue("acme", Priority::Normal, post("/a")).await.unwrap();
        while vendor.arrivals().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        receipt.id()
    });
    // Every task ends at its current await, as in a process that is killed.
    dying.shutdown_timeout(Duration::from_secs(5));
    serving.block_on(async {
        let keyless = sealing(&vendor, &store).work().build().await.unwrap();
        let receipt = keyless.outbox().receipt(&id).unwrap();
        // Released by the worker, claimed, and put back for half a minute.
        let is_put_back = |status: &Status| match status {
            Status::Waiting { due_in, .. } => *due_in > Duration::from_secs(5),
            status => !matches!(status, Status::UnderWay),
        };
        let status = wait_for_status(&receipt, is_put_back).await;
        assert!(matches!(status, Status::Waiting { .. }), "{status:?}");
        assert_eq!(vendor.arrivals().len(), 1);
        keyless.shutdown(Duration::from_secs(5)).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_job_with_unreadable_history_is_ambiguous() {
    let vendor = vendor(FakeVendor::builder().fault(When::any().first(100), Fault::Status(500))).await;
    let store = Store::sqlite(folder().join("s.db"));
    let keyed = sealing(&vendor, &store.clone().seal_key(SEAL_KEY)).work().build().await.unwrap();
    let tried = post("/tried").deadline(Duration::from_secs(4));
    let tried = keyed.outbox().enqueue("acme", Priority::Normal, tried).await.unwrap();
    // The response leaves open whether the vendor acted, and the job waits for its next try.
    wait_for_status(&tried, |status| {
        !vendor.arrivals().is_empty() && matches!(status, Status::Waiting { .. } | Status::Dead { .. })
    })
    .await;
    keyed.shutdown(Duration::from_secs(5)).await;
    let accepting = sealing(&vendor, &store.clone().seal_key(SEAL_KEY)).build().await.unwrap();
    let untried = post("/untried").deadline(Duration::from_millis(500));
    let untried = accepting.outbox().enqueue("acme", Priority::Normal, untried).await.unwrap();
    let keyless = sealing(&vendor, &store).work().build().await.unwrap();
    for (id, expected) in [(tried.id(), Reason::Ambiguous), (untried.id(), Reason::Expired)] {
        let status = until_ended(&keyless.outbox().receipt(&id).unwrap()).await;
        assert!(matches!(status, Status::Dead { reason: Some(reason), .. } if reason == expected), "{status:?}");
    }
    assert!(vendor.arrivals().iter().all(|arrival| &*arrival.path == "/tried"));
}
