//! A job whose tenant or setting is missing in the configuration of the process that works.

use std::sync::atomic::AtomicI64;

use integration_client::OnRemove;
use integration_client::testing::{FakeAnswer, FakeTransport};

use super::forgotten_keys::Machine;
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

/// An operator has paused the tenant, whose jobs pile up. The configuration lacks it twice, for a moment each time.
#[tokio::test]
async fn paused_tenants_jobs_outlast_absences() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    let builder = builder.tenant(TenantEntry::new("acme", "v")).store(Store::sqlite(folder().join("s.db"))).work();
    let client = builder.build().await.unwrap();
    client.tenants().pause("acme", "v").unwrap();
    let mut receipts = Vec::new();
    for number in 0..20 {
        let request = post(&format!("/{number}"));
        receipts.push(client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap());
    }
    for absence in 0..2 {
        client.tenants().remove("acme", "v", OnRemove::Drain).unwrap();
        // The worker looks at the lane meanwhile.
        tokio::time::sleep(Duration::from_millis(600)).await;
        client.tenants().set(TenantEntry::new("acme", "v")).unwrap();
        for receipt in &receipts {
            let status = receipt.status().await.unwrap();
            assert!(matches!(status, Status::Waiting { .. }), "absence {absence}: {status:?}");
        }
        longer_than_a_lane_may_be_missing().await;
    }
    assert_eq!(transport.calls().len(), 0, "the pause stands");
    client.tenants().resume("acme", "v").unwrap();
    for receipt in &receipts {
        let status = until_ended(receipt).await;
        assert!(matches!(status, Status::Delivered { .. }), "{status:?}");
    }
}

/// The vendor may have acted on the only attempt, and by the time an operator looks it may have forgotten the key.
#[tokio::test]
async fn doubted_job_of_missing_tenant_is_ambiguous() {
    let (store, transport) = (Store::sqlite(folder().join("s.db")), FakeTransport::new(|_| FakeAnswer::reset()));
    let builder = |tenant: &str| {
        let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n\
                    [vendors.v.idempotency]\nheader = \"idempotency-key\"\n[vendors.v.retry]\nfirst_wait = \"3s\"\n";
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
        builder.tenant(TenantEntry::new(tenant, "v")).store(store.clone()).work()
    };
    let first = builder("late").build().await.unwrap();
    let id = first.outbox().enqueue("late", Priority::Normal, post("/late")).await.unwrap().id();
    while transport.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let receipt = first.outbox().receipt(&id).unwrap();
    wait_for_status(&receipt, |status| matches!(status, Status::Waiting { .. })).await;
    first.shutdown(Duration::from_secs(1)).await;
    let working = builder("acme").build().await.unwrap();
    let receipt = working.outbox().receipt(&id).unwrap();
    for _ in 0..20 {
        longer_than_a_lane_may_be_missing().await;
        if matches!(receipt.status().await.unwrap(), Status::Dead { .. }) {
            break;
        }
    }
    let status = receipt.status().await.unwrap();
    assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}");
    assert_eq!(transport.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_of_missing_endpoint_becomes_a_letter() {
    let machine = Arc::new(Machine { began: now(), ahead_ms: AtomicI64::new(0) });
    let store = Store::sqlite(folder().join("s.db")).watched_by(machine.clone());
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let builder = |more: &str| {
        let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(format!("{text}{more}"));
        builder.transport(transport.clone()).tenant(TenantEntry::new("acme", "v")).store(store.clone())
    };
    let accepting = builder("[vendors.v.endpoints.search]\npaths = [\"/search\"]\n").build().await.unwrap();
    let request = post("/search").endpoint("search");
    let receipt = accepting.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
    accepting.shutdown(Duration::from_secs(1)).await;
    let working = builder("").work().build().await.unwrap();
    let receipt = working.outbox().receipt(&receipt.id()).unwrap();
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(600)).await;
        if matches!(receipt.status().await.unwrap(), Status::Dead { .. }) {
            break;
        }
        // Longer than each of the job's waits.
        machine.ahead_ms.fetch_add(70_000, Relaxed);
    }
    let status = receipt.status().await.unwrap();
    assert!(matches!(status, Status::Dead { reason: Some(Reason::NotConfigured), .. }), "{status:?}");
    assert!(transport.calls().is_empty());
}

#[tokio::test]
async fn redacted_job_of_missing_tenant_keeps_no_request() {
    let (store, transport) = (Store::sqlite(folder().join("s.db")), FakeTransport::new(|_| FakeAnswer::status(200)));
    let builder = |tenant: &str| {
        let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n\
                    at_rest = \"redacted\"\n";
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
        builder.tenant(TenantEntry::new(tenant, "v")).store(store.clone())
    };
    let accepting = builder("late").build().await.unwrap();
    let request = post("/late").deadline(Duration::from_secs(1)).metadata("order", "17").reply();
    let receipt = accepting.outbox().enqueue("late", Priority::Normal, request).await.unwrap();
    // This process does not know the tenant, and so not what its vendor's entry says.
    let working = builder("acme").work().build().await.unwrap();
    let status = until_ended(&receipt).await;
    assert!(matches!(status, Status::Dead { reason: Some(Reason::Expired), .. }), "{status:?}");
    let kept = accepting.outbox().dead_letters().unwrap().show(&receipt.id()).await.unwrap().unwrap();
    assert!(!kept.can_be_sent, "the store has no request: {kept:?}");
    let replies = working.outbox().replies(10).await.unwrap();
    assert_eq!(replies.len(), 1);
    assert!(replies[0].json.contains("\"metadata\":null"), "{}", replies[0].json);
    assert!(transport.calls().is_empty());
}

#[tokio::test]
async fn redacted_job_keeps_no_answer_after_the_entry_has_changed() {
    let store = Store::sqlite(folder().join("s.db"));
    let transport = FakeTransport::new(|_| FakeAnswer::status(422).body("secret-word"));
    let builder = |at_rest: &str| {
        let text = format!(
            "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\nunpublished = true\n\
             at_rest = \"{at_rest}\"\n"
        );
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
        builder.tenant(TenantEntry::new("acme", "v")).store(store.clone())
    };
    let accepting = builder("redacted").build().await.unwrap();
    let receipt = accepting.outbox().enqueue("acme", Priority::Normal, post("/jobs")).await.unwrap();
    accepting.shutdown(Duration::from_secs(1)).await;
    let working = builder("plain").work().build().await.unwrap();
    let plain = working.outbox().enqueue("acme", Priority::Normal, post("/jobs")).await.unwrap();
    let letters = working.outbox().dead_letters().unwrap();
    for (id, holds_answer) in [(receipt.id(), false), (plain.id(), true)] {
        let kept = loop {
            if let Some(kept) = letters.show(&id).await.unwrap() {
                break kept;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let letter = serde_json::to_string(&kept.letter).unwrap();
        assert_eq!((letter.contains("secret-word"), kept.can_be_sent), (holds_answer, holds_answer), "{letter}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn published_status_names_what_is_not_configured() {
    let (store, transport) = (Store::sqlite(folder().join("s.db")), FakeTransport::new(|_| FakeAnswer::status(200)));
    let builder = |tenant: &str| {
        let vendor =
            "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"bearer\" }\nunpublished = true\n";
        let text = format!("{vendor}[[tenants]]\nid = \"{tenant}\"\nvendor = \"v\"\n");
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
        builder.store(store.clone())
    };
    let accepting = builder("late").build().await.unwrap();
    accepting.outbox().enqueue("late", Priority::Normal, post("/late")).await.unwrap();
    accepting.shutdown(Duration::from_secs(1)).await;
    let builder = builder("keyless").work().publish_status(Duration::from_millis(100));
    let working = builder.build().await.unwrap();
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..500 {
        let workers = working.outbox().workers().await.unwrap();
        let named = |one: &serde_json::Value| ["tenant", "vendor", "lacks"].map(|name| one[name].to_string()).join(" ");
        seen = workers.iter().flat_map(|worker| &worker.not_configured).map(named).collect();
        if seen.len() > 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(seen, ["\"late\" \"v\" \"tenant\"", "\"keyless\" \"v\" \"credential\""]);
}
