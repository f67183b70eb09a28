//! Stored jobs whose lane may send nothing for long: they stay due in the store, so that they go as soon as any process
//! has room for them.

use integration_client::testing::{FakeAnswer, FakeTransport};

use super::*;

const VENDOR: &str = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n\
                      safety = 1.0\n";

/// One request in an hour.
const HOURLY: &str = "[[vendors.v.limits]]\nname = \"hourly\"\nscope = \"tenant\"\nalgorithm = \"fixed_window\"\n\
                      limit = 1\nwindow = \"1h\"\n";

/// A client that works, and the file of its vendor.
async fn client_with_file(transport: &FakeTransport, limits: &str) -> (IntegrationClient, PathBuf) {
    let folder = folder();
    let file = folder.join("vendors.toml");
    std::fs::write(&file, format!("{VENDOR}{limits}")).unwrap();
    let builder = IntegrationClient::builder().without_catalogue().without_watching().vendors_file(&file);
    let builder = builder.transport(transport.clone()).tenant(TenantEntry::new("acme", "v"));
    (builder.store(Store::sqlite(folder.join("s.db"))).work().build().await.unwrap(), file)
}

async fn reload(client: &IntegrationClient, file: &PathBuf, limits: &str) {
    std::fs::write(file, format!("{VENDOR}{limits}")).unwrap();
    client.config().reload().await.unwrap();
}

async fn until_calls(transport: &FakeTransport, calls: usize) {
    for _ in 0..1_000 {
        if transport.calls().len() >= calls {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(transport.calls().len(), calls);
}

async fn accept(client: &IntegrationClient, jobs: usize) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for number in 0..jobs {
        let request = post(&format!("/{number}"));
        receipts.push(client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap());
    }
    receipts
}

/// Waits until the worker has claimed the jobs and has given them back.
async fn until_given_back(receipts: &[Receipt]) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    for receipt in receipts {
        wait_for_status(receipt, |status| matches!(status, Status::Waiting { .. })).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_limit_reaches_waiting_jobs() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let (client, file) = client_with_file(&transport, HOURLY).await;
    accept(&client, 1).await;
    until_calls(&transport, 1).await;
    let receipts = accept(&client, 20).await;
    until_given_back(&receipts).await;
    // A raised limit credits no units at once, so that the jobs would go one by one.
    reload(&client, &file, "").await;
    until_calls(&transport, 21).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_lane_sends_waiting_jobs() {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "7200"),
        _ => FakeAnswer::status(200),
    });
    let (client, _) = client_with_file(&transport, "").await;
    accept(&client, 1).await;
    until_calls(&transport, 1).await;
    let receipts = accept(&client, 30).await;
    until_given_back(&receipts).await;
    assert_eq!(transport.calls().len(), 1, "the vendor's pause holds");
    client.tenants().resume("acme", "v").unwrap();
    until_calls(&transport, 31).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_endpoint_rejects_no_waiting_job() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let endpoint = |name: &str| {
        format!(
            "[vendors.v.endpoints.{name}]\npaths = [\"/**\"]\n[[vendors.v.endpoints.{name}.limits]]\nname = \"slow\"\n\
             scope = \"endpoint\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"30s\"\n"
        )
    };
    let (client, file) = client_with_file(&transport, &endpoint("search")).await;
    accept(&client, 1).await;
    until_calls(&transport, 1).await;
    let receipts = accept(&client, 2).await;
    wait_for_status(&receipts[0], |status| matches!(status, Status::UnderWay)).await;
    reload(&client, &file, &endpoint("find")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for receipt in &receipts {
        let status = receipt.status().await.unwrap();
        assert!(!matches!(status, Status::Dead { .. }), "{status:?}");
    }
}

#[tokio::test]
async fn used_up_shared_limit_keeps_one_job_waiting() {
    let folder = folder();
    let limits = "[[vendors.v.limits]]\nname = \"second\"\nscope = \"tenant\"\nlimit = 100\nwindow = \"1s\"\n\
                  [[vendors.v.limits]]\nname = \"daily\"\nscope = \"tenant\"\nalgorithm = \"quota\"\nlimit = 2\n\
                  window = \"1d\"\n";
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(format!("{VENDOR}{limits}"));
    let builder = builder.transport(transport.clone()).tenant(TenantEntry::new("acme", "v"));
    let builder = builder.store(Store::sqlite(folder.join("s.db"))).work();
    let client = builder.share_through(format!("sqlite:{}", folder.join("limits.db").display())).build().await.unwrap();
    let receipts = accept(&client, 60).await;
    until_calls(&transport, 2).await;
    let waiting = || client.status("acme", "v").unwrap().waiting.normal;
    for _ in 0..1_000 {
        if waiting() > 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(waiting() > 2, "as many jobs wait as the limit of a second would take");
    // Longer than a claimed job waits.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    for _ in 0..1_000 {
        if waiting() <= 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..20 {
        assert!(waiting() <= 1, "{} jobs take places of other tenants", waiting());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(transport.calls().len(), 2);
    for receipt in &receipts[2..] {
        let status = receipt.status().await.unwrap();
        assert!(matches!(status, Status::Waiting { .. } | Status::UnderWay), "{status:?}");
    }
}
