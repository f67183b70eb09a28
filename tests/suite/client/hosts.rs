//! Hosts that cannot be reached for a while, and the requests that wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use integration_client::testing::literal;

use super::*;

/// A transport to a host that can be switched off. Each response takes `delay`.
fn switchable_transport(up: &Arc<AtomicBool>, delay: Duration) -> FakeTransport {
    let up = up.clone();
    FakeTransport::new(move |_| match up.load(SeqCst) {
        true => FakeAnswer::status(200).delay(delay),
        false => FakeAnswer::not_connected(),
    })
}

#[expect(clippy::disallowed_methods, reason = "tests measure and spawn")]
fn spawn_for(
    client: &IntegrationClient,
    tenant: &'static str,
    request: Request,
) -> tokio::task::JoinHandle<Result<Response, Error>> {
    let client = client.clone();
    tokio::spawn(async move { client.send(tenant, Priority::High, request).await })
}

/// Opens the host's circuit breaker with five failures in a row: for the next second no request is sent to the host.
async fn open_breaker(client: &IntegrationClient) {
    for _ in 0..5 {
        let error = client.send("b", Priority::High, get("/")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect);
    }
}

/// A tenant whose quota is used up cannot hold the probe, the one connection that tests whether a host is reachable
/// again.
#[tokio::test(start_paused = true)]
async fn tenant_without_quota_holds_no_probe() {
    let up = Arc::new(AtomicBool::new(true));
    let transport = switchable_transport(&up, Duration::ZERO);
    let hourly = "algorithm = \"sliding_window\"\nlimit = 10\nwindow = \"1m\"";
    let client = client(&[("requests", hourly)], &transport).await;
    while client.try_send("a", Priority::High, get("/")).await.is_ok() {}
    up.store(false, SeqCst);
    open_breaker(&client).await;
    let began = now();
    let without_quota = spawn_for(&client, "a", get("/a").deadline(secs(300)));
    tokio::time::sleep(ms(54)).await;
    up.store(true, SeqCst);
    let others: Vec<_> = (0..4).map(|_| spawn_for(&client, "b", get("/b").deadline(secs(20)))).collect();
    for other in others {
        assert_eq!(other.await.unwrap().unwrap().status(), 200);
    }
    let took = began.elapsed();
    assert!(took < ms(1500), "the host is tried after a second, by whoever has quota: {took:?}");
    assert_eq!(without_quota.await.unwrap().unwrap().status(), 200);
    assert_idle(&client);
}

/// A tenant whose secret takes long to resolve cannot hold the probe either.
#[tokio::test(start_paused = true)]
async fn tenant_without_secret_holds_no_probe() {
    use integration_client::BoxFuture;
    use integration_client::transport::{CredentialResolver, SecretString};
    struct Slow;
    impl CredentialResolver for Slow {
        fn resolve<'a>(
            &'a self,
            key: &'a str,
        ) -> BoxFuture<'a, Result<SecretString, Box<dyn std::error::Error + Send + Sync>>> {
            Box::pin(async move {
                if key == "slow" {
                    tokio::time::sleep(secs(60)).await;
                }
                Ok(key.into())
            })
        }
    }
    let up = Arc::new(AtomicBool::new(false));
    let transport = switchable_transport(&up, Duration::ZERO);
    let text = vendor(&[]).replace("none", "bearer");
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(text)
        .transport(transport.clone())
        .credential_resolver("keys", Slow)
        .tenant(TenantEntry::new("a", "v").credential("keys:slow"))
        .tenant(TenantEntry::new("b", "v").credential("keys:quick"))
        .build()
        .await
        .unwrap();
    open_breaker(&client).await;
    let began = now();
    let slow = spawn_for(&client, "a", get("/a").deadline(secs(300)));
    tokio::time::sleep(ms(54)).await;
    up.store(true, SeqCst);
    let other = spawn_for(&client, "b", get("/b").deadline(secs(20)));
    assert_eq!(other.await.unwrap().unwrap().status(), 200);
    assert!(began.elapsed() < ms(1500), "{:?}", began.elapsed());
    assert_eq!(slow.await.unwrap().unwrap().status(), 200);
}

/// The requests that wait for a host are sent gradually once the host is reachable again.
#[tokio::test(start_paused = true)]
async fn waiters_of_a_host_return_gradually() {
    const WAITING: usize = 5000;
    let up = Arc::new(AtomicBool::new(false));
    let transport = switchable_transport(&up, ms(5));
    let client = client(&[], &transport).await;
    open_breaker(&client).await;
    let before = transport.calls().len();
    let sends: Vec<_> = (0..WAITING).map(|_| spawn_for(&client, "a", get("/").deadline(secs(60)))).collect();
    tokio::time::sleep(ms(500)).await;
    assert_eq!(transport.calls().len(), before, "they all wait for the host");
    up.store(true, SeqCst);
    let began = now();
    for send in sends {
        assert_eq!(send.await.unwrap().unwrap().status(), 200);
    }
    let calls = transport.calls();
    let at: Vec<u128> = calls[before..].iter().map(|call| call.at.since(calls[before].at).as_millis()).collect();
    assert_eq!(at.len(), WAITING);
    let within = |from: u128, to: u128| at.iter().filter(|at| (from..to).contains(at)).count();
    let steps: Vec<usize> = (0..20).map(|step| within(step * 250, (step + 1) * 250)).collect();
    println!("by quarters of a second: {steps:?}");
    assert_eq!(within(0, 5), 1, "one tries it");
    assert!(within(0, 1000) <= 64, "{steps:?}");
    assert!(
        steps.windows(2).all(|pair| pair[1] <= 2 * pair[0].max(2) + 2),
        "at most twice as many each time: {steps:?}"
    );
    assert!(began.elapsed() < secs(8), "{:?}", began.elapsed());
    assert_idle(&client);
}

/// A tenant moves to another account while its requests wait for the host. Both accounts' limits are in one shard, so
/// the new account's permits are granted at once.
#[tokio::test(start_paused = true)]
async fn host_wait_ends_with_the_new_credential() {
    let text = vendor(&[
        ("of_account", "scope = \"account\"\nconcurrency = 10"),
        ("of_vendor", "scope = \"vendor\"\nconcurrency = 100"),
    ]);
    let in_account = |account: &str| TenantEntry::new("a", "v").account(account).credential(format!("keys:{account}"));
    let up = Arc::new(AtomicBool::new(false));
    let transport = switchable_transport(&up, Duration::ZERO);
    let builder = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(text.replace("none", "bearer"))
        .transport(transport.clone())
        .credential_resolver("keys", literal)
        .shards(1);
    let other = TenantEntry::new("b", "v").credential("keys:other");
    let client = builder.tenant(in_account("old")).tenant(other).build().await.unwrap();
    open_breaker(&client).await;
    let before = transport.calls().len();
    let sends: Vec<_> = (0..3).map(|_| spawn_for(&client, "a", get("/").deadline(secs(60)))).collect();
    tokio::time::sleep(ms(100)).await;
    assert_eq!(transport.calls().len(), before, "they wait for the host");
    client.tenants().set(in_account("new")).unwrap();
    up.store(true, SeqCst);
    for send in sends {
        assert_eq!(send.await.unwrap().unwrap().status(), 200);
    }
    let calls = transport.calls();
    let secrets: Vec<_> = calls[before..].iter().map(|call| call.header("authorization").unwrap()).collect();
    assert_eq!(secrets, ["Bearer new"; 3]);
    assert_idle(&client);
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn unconnected_host_shows_in_status_and_lists() {
    use integration_client::status::{LaneQuery, LaneState};
    let up = Arc::new(AtomicBool::new(true));
    let client = client(&[], &switchable_transport(&up, Duration::ZERO)).await;
    client.send("a", Priority::High, get("/")).await.unwrap();
    let shown = || {
        let status = client.status("a", "v").unwrap();
        let page = client.lanes_page(&LaneQuery::default());
        let states: Vec<LaneState> = page.lanes.iter().map(|lane| lane.state).collect();
        (status.unreachable.map(|host| host.to_string()), states)
    };
    let (host, states) = shown();
    assert_eq!((host, states.contains(&LaneState::Unreachable)), (None, false));
    up.store(false, SeqCst);
    open_breaker(&client).await;
    let (host, states) = shown();
    assert_eq!(host.as_deref(), Some("v.example"));
    assert!(states.iter().all(|state| *state == LaneState::Unreachable), "{states:?}");
    up.store(true, SeqCst);
    client.send("a", Priority::High, get("/").deadline(secs(60))).await.unwrap();
    assert_eq!(shown().0, None);
}

/// When the pause ends, the host is left alone for a while, and the request has waited for longer than its time already.
#[tokio::test(start_paused = true)]
async fn host_that_fails_in_a_pause_is_waited_for() {
    let up = Arc::new(AtomicBool::new(true));
    let is_up = up.clone();
    let transport = FakeTransport::new(move |call| match (is_up.load(SeqCst), call.path()) {
        (false, _) => FakeAnswer::not_connected(),
        (true, "/refused") => FakeAnswer::status(429).header("retry-after", "100"),
        (true, _) => FakeAnswer::status(200),
    });
    let client = client(&[], &transport).await;
    assert_eq!(client.send("a", Priority::High, get("/refused")).await.unwrap().status(), 429);
    let began = now();
    let paused = spawn_for(&client, "a", get("/a"));
    tokio::time::sleep(secs(60)).await;
    up.store(false, SeqCst);
    open_breaker(&client).await;
    // Each of these waits for the host, the last for 16 s. The next try is half a minute after that.
    open_breaker(&client).await;
    up.store(true, SeqCst);
    assert_eq!(began.elapsed().as_secs(), 91);
    assert_eq!(paused.await.unwrap().unwrap().status(), 200);
    assert!(began.elapsed() >= secs(120), "{:?}", began.elapsed());
    assert_idle(&client);
}
