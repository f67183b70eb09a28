//! A job whose tenant is missing in the configuration of the process that works.

use integration_client::testing::{FakeAnswer, FakeTransport};

use super::*;

/// Lets the worker look, and then moves the clock by more than the time for which a lane may be missing.
async fn longer_than_a_lane_may_be_missing() {
    tokio::time::sleep(Duration::from_millis(600)).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    tokio::time::resume();
    tokio::time::sleep(Duration::from_millis(600)).await;
}

#[tokio::test]
async fn invalid_row_keeps_jobs_of_missing_lane() {
    let (store, transport) = (Store::sqlite(folder().join("s.db")), FakeTransport::new(|_| FakeAnswer::status(200)));
    let builder = |tenant: &str| {
        let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
        builder.tenant(TenantEntry::new(tenant, "v")).store(store.clone())
    };
    let accepting = builder("late").build().await.unwrap();
    let receipt = accepting.outbox().enqueue("late", Priority::Normal, post("/late")).await.unwrap();
    accepting.config().set_stored("late", Some("[[tenants]\n")).await.unwrap();
    let working = builder("acme").config_in_store().work().build().await.unwrap();
    assert!(working.config().problem().is_some());
    for _ in 0..3 {
        longer_than_a_lane_may_be_missing().await;
        let status = receipt.status().await.unwrap();
        assert!(matches!(status, Status::Waiting { .. }), "{status:?}");
    }
    accepting.config().set_stored("late", None).await.unwrap();
    for _ in 0..20 {
        longer_than_a_lane_may_be_missing().await;
        if matches!(receipt.status().await.unwrap(), Status::Dead { .. }) {
            break;
        }
    }
    let status = receipt.status().await.unwrap();
    assert!(matches!(status, Status::Dead { reason: Some(Reason::NotConfigured), .. }), "{status:?}");
    assert!(transport.calls().is_empty());
}
