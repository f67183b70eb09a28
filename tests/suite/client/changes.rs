//! Tenants and configurations that change while requests wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use integration_client::config::{ConfigSource, Sources};

use super::*;
use crate::support::text_source::TextSource;

async fn reloadable(text: &str, transport: &FakeTransport) -> (IntegrationClient, TextSource) {
    let source = TextSource::new(text);
    let client = builder("", transport).config_source(source.clone()).shards(8).build().await.unwrap();
    (client, source)
}

fn tenants(text: String) -> String {
    text + "[[tenants]]\nid = \"c\"\nvendor = \"v\"\n"
}

/// Starts `count` sends of tenant `a`, which all wait, and returns their tasks.
async fn start_waiting_sends(
    client: &IntegrationClient,
    count: usize,
) -> Vec<tokio::task::JoinHandle<Result<Response, Error>>> {
    let before = client.waiting();
    let sends = (0..count).map(|n| spawn(client, Priority::Normal, get(&format!("/{n}")))).collect();
    wait_for_waiters(client, before + count as u64).await;
    sends
}

async fn all_answered(sends: Vec<tokio::task::JoinHandle<Result<Response, Error>>>) {
    for send in sends {
        send.await.unwrap().unwrap().text().await.unwrap();
    }
}

/// Asserts that the calls from number `from` on were for the paths `/0` to `/count - 1`, each once and in order.
#[track_caller]
fn assert_in_order(transport: &FakeTransport, from: usize, count: usize) {
    let paths: Vec<String> = transport.calls()[from..].iter().map(|call| call.path().to_owned()).collect();
    let expected: Vec<String> = (0..count).map(|n| format!("/{n}")).collect();
    assert_eq!(paths, expected);
}

#[tokio::test(start_paused = true)]
async fn tenant_gets_other_limits_while_it_waits() {
    let transport = transport_with_delay(Duration::ZERO);
    let client = client(&[("requests", &per_second(10, 1))], &transport).await;
    client.send("a", Priority::Normal, get("/first")).await.unwrap().text().await.unwrap();
    let sends = start_waiting_sends(&client, 80).await;
    let began = now();
    // At 8 requests a second this would take 10 s; at 80 a second it takes 1 s.
    client.tenants().set(TenantEntry::new("a", "v").limit("requests", 100)).unwrap();
    all_answered(sends).await;
    let took = began.elapsed();
    assert!((980..=1130).contains(&took.as_millis()), "what was owed stays owed, the rest goes faster: {took:?}");
    assert_in_order(&transport, 1, 80);
    assert_idle(&client);
}

#[tokio::test(start_paused = true)]
async fn removed_tenant_drains_or_is_refused() {
    let transport = transport_with_delay(ms(10));
    let client = client(&[("slots", "concurrency = 1")], &transport).await;
    let sends = start_sends_behind_one(&client, 5).await;
    client.tenants().remove("a", "v", OnRemove::Drain).unwrap();
    assert_eq!(client.send("a", Priority::High, get("/")).await.unwrap_err().kind(), ErrorKind::UnknownTenant);
    assert_eq!(client.tenants().remove("a", "v", OnRemove::Drain).unwrap_err().kind(), ErrorKind::UnknownTenant);
    all_answered(sends).await;
    assert_eq!(transport.calls().len(), 6);
    assert_idle(&client);

    client.tenants().set(TenantEntry::new("a", "v")).unwrap();
    let sends = start_sends_behind_one(&client, 5).await;
    client.tenants().remove("a", "v", OnRemove::Refuse).unwrap();
    let mut refused = 0;
    for send in sends {
        match send.await.unwrap() {
            Ok(response) => drop(response.text().await.unwrap()),
            Err(error) => {
                assert_eq!((error.kind(), error.delivery()), (ErrorKind::Retired, Delivery::NotSent));
                refused += 1;
            }
        }
    }
    assert_eq!((refused, transport.calls().len()), (5, 7));
    tokio::time::sleep(ms(20)).await;
    assert_idle(&client);
}

/// Starts one send that is under way, and `count` that wait for it.
async fn start_sends_behind_one(
    client: &IntegrationClient,
    count: usize,
) -> Vec<tokio::task::JoinHandle<Result<Response, Error>>> {
    let mut sends = vec![spawn(client, Priority::Normal, get("/first"))];
    tokio::task::yield_now().await;
    sends.extend(start_waiting_sends(client, count).await);
    sends
}

#[tokio::test(start_paused = true)]
async fn reload_changes_limits_under_those_who_wait() {
    let transport = transport_with_delay(Duration::ZERO);
    let (client, source) = reloadable(&vendor(&[("requests", &per_second(10, 1))]), &transport).await;
    client.send("a", Priority::Normal, get("/first")).await.unwrap().text().await.unwrap();
    let sends = start_waiting_sends(&client, 80).await;
    let version = client.config().current().version();
    let began = now();
    source.set(tenants(vendor(&[("requests", &per_second(100, 1))])));
    assert_eq!(client.config().reload().await.unwrap(), version + 1);
    all_answered(sends).await;
    assert!((980..=1130).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert_in_order(&transport, 1, 80);
    client.send("c", Priority::Normal, get("/")).await.unwrap();
    client.send("b", Priority::Normal, get("/")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn broken_reload_changes_nothing() {
    let transport = transport_with_delay(Duration::ZERO);
    let (client, source) = reloadable(&vendor(&[("requests", &per_second(10, 1))]), &transport).await;
    client.send("a", Priority::Normal, get("/first")).await.unwrap();
    let sends = start_waiting_sends(&client, 8).await;
    let version = client.config().current().version();
    let began = now();
    for broken in ["nonsense", "[vendors.w]\nbase_url = \"https://w.example\"\nauth = { scheme = \"none\" }\n"] {
        source.set(tenants(broken.to_owned()));
        let error = client.config().reload().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
    assert_eq!(client.config().current().version(), version);
    assert_eq!(client.send("c", Priority::Normal, get("/")).await.unwrap_err().kind(), ErrorKind::UnknownTenant);
    all_answered(sends).await;
    assert!((1000..=1010).contains(&began.elapsed().as_millis()), "8 a second still: {:?}", began.elapsed());
}

/// A vendor-wide limit needs one lock over all tenants: lanes move to another shard, waiters and history included.
#[tokio::test(start_paused = true)]
async fn wider_scope_moves_waiting_requests() {
    for wide in ["account", "vendor"] {
        let transport = transport_with_delay(ms(5));
        let narrow = per_second(10, 8);
        let (client, source) = reloadable(&vendor(&[("requests", &narrow)]), &transport).await;
        let began = now();
        let first = (0..8).map(|n| spawn(&client, Priority::Normal, get(&format!("/first/{n}")))).collect();
        all_answered(first).await;
        let sends = start_waiting_sends(&client, 16).await;
        let wider = format!("scope = \"{wide}\"\n{}", per_second(1000, 800));
        source.set(tenants(vendor(&[("requests", &narrow), ("everybody", &wider)])));
        client.config().reload().await.unwrap();
        tokio::task::yield_now().await;
        assert_eq!(client.waiting(), 16, "nothing is granted by moving");
        all_answered(sends).await;
        let took = began.elapsed();
        // 24 requests against a full bucket of 8 that refills 8 a second.
        assert!((1950..=2100).contains(&took.as_millis()), "{wide}: {took:?}");
        assert_in_order(&transport, 8, 16);
        tokio::time::sleep(ms(40_000)).await;
        assert_idle(&client);
    }
}

/// Reloads back and forth between a tenant's and a vendor-wide limit, while sends keep arriving: no request is lost,
/// sent twice or sent above the limit.
#[tokio::test(start_paused = true)]
async fn reloads_lose_and_credit_nothing() {
    let transport = transport_with_delay(ms(3));
    let narrow = vendor(&[("requests", &per_second(50, 40))]);
    let everybody = format!("scope = \"vendor\"\n{}", per_second(1000, 800));
    let wide = vendor(&[("requests", &per_second(50, 40)), ("everybody", &everybody)]);
    let (client, source) = reloadable(&narrow, &transport).await;
    let lane = client.lane("a", "v").unwrap();
    let mut sends = Vec::new();
    for round in 0..20 {
        sends.extend((0..20).map(|n| spawn(&client, Priority::Normal, get(&format!("/{round}/{n}")))));
        tokio::time::sleep(ms(7)).await;
        source.set(if round % 2 == 0 { wide.clone() } else { narrow.clone() });
        client.config().reload().await.unwrap();
        // A handle that was made before the reload still works.
        if let Ok(permit) = lane.try_acquire(Priority::High, 1) {
            permit.not_sent();
        }
        tokio::time::sleep(ms(23)).await;
    }
    all_answered(sends).await;
    let calls = transport.calls();
    let mut paths: Vec<&str> = calls.iter().map(|call| call.path()).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!((calls.len(), paths.len()), (400, 400), "each once");
    let log: Vec<_> =
        calls.iter().map(|call| integration_client::testing::checker::Event::at(call.at.as_nanos())).collect();
    let limit = integration_client::testing::checker::Definition::SlidingWindow {
        limit: 50,
        window_ns: 1_000_000_000,
        both_ends: true,
    };
    let report = integration_client::testing::checker::check(&log, &limit);
    assert!(report.is_clean(), "at most 50 in any second: {} in one", report.peak);
    tokio::time::sleep(ms(40_000)).await;
    assert_idle(&client);
}

/// A handle refers to its endpoint by a number, and a reload may renumber the endpoints.
#[tokio::test(start_paused = true)]
async fn handle_keeps_its_endpoint_through_a_reload() {
    let endpoint = |name: &str, limit: u32| {
        format!(
            "[vendors.v.endpoints.{name}]\npaths = [\"/{name}\"]\n[[vendors.v.endpoints.{name}.limits]]\nname = \"{name}\"\n\
             scope = \"endpoint\"\nalgorithm = \"sliding_window\"\nlimit = {limit}\nwindow = \"1h\"\n"
        )
    };
    let reports = vendor(&[]) + &endpoint("reports", 2);
    let (client, source) = reloadable(&reports, &transport_with_delay(Duration::ZERO)).await;
    let lane = client.lane("a", "v").unwrap().endpoint("reports").unwrap();
    lane.try_acquire(Priority::High, 1).unwrap().finish();
    let refused = |result: Result<Permit, Error>| result.map(Permit::finish).unwrap_err().kind();
    assert_eq!(refused(lane.try_acquire(Priority::High, 1)), ErrorKind::NotNow, "80 % of two an hour");

    source.set(reports.clone() + &endpoint("export", 1000));
    client.config().reload().await.unwrap();
    assert_eq!(refused(lane.try_acquire(Priority::High, 1)), ErrorKind::NotNow, "not the export's limit");
    assert_eq!(lane.headroom().unwrap().limit(), 2);

    source.set(vendor(&[]) + &endpoint("export", 1000));
    client.config().reload().await.unwrap();
    assert_eq!(refused(lane.try_acquire(Priority::High, 1)), ErrorKind::UnknownEndpoint);
    assert_eq!(refused(lane.acquire(Priority::High, 1).await), ErrorKind::UnknownEndpoint);
}

/// A tenant of `account`, which shares the account's limit with the other tenants of it.
fn tenant_of_account(name: &str, account: &str) -> TenantEntry {
    TenantEntry::new(name, "v").account(account)
}

fn spawn_send(
    client: &IntegrationClient,
    tenant: &'static str,
    path: &'static str,
) -> tokio::task::JoinHandle<Result<Response, Error>> {
    let client = client.clone();
    #[expect(clippy::disallowed_methods, reason = "tests measure and spawn")]
    tokio::spawn(async move { client.send(tenant, Priority::High, get(path)).await })
}

/// The accounts are in different shards, so each change of the account moves the tenant to another shard.
#[tokio::test(start_paused = true)]
async fn account_left_and_reentered_keeps_its_slots() {
    let transport = transport_with_delay(Duration::from_secs(5));
    let limits = [("account", "scope = \"account\"\nconcurrency = 4"), ("own", "concurrency = 6")];
    let text = vendor(&limits);
    let client = builder(&text, &transport).shards(16).build().await.unwrap();
    client.tenants().set(tenant_of_account("a", "first")).unwrap();
    client.tenants().set(tenant_of_account("b", "first")).unwrap();
    let sends: Vec<_> = (0..4).map(|_| spawn_send(&client, "a", "/a")).collect();
    let began = now();
    while client.in_flight() < 4 {
        tokio::task::yield_now().await;
    }
    let others = spawn_send(&client, "b", "/b");
    wait_for_waiters(&client, 1).await;
    for account in ["second", "first", "third", "first"] {
        client.tenants().set(tenant_of_account("a", account)).unwrap();
        if account == "first" {
            let refused = client.try_send("a", Priority::High, get("/again")).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NotNow);
        }
        tokio::time::sleep(ms(100)).await;
        assert_eq!((transport.calls().len(), client.in_flight()), (4, 4), "exchanges of account `first`");
    }
    others.await.unwrap().unwrap().text().await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 10, "the first end wakes who waits at the account");
    all_answered(sends).await;
    assert_idle(&client);
}

/// The outcome of an exchange is applied in the shard to which its lane has moved meanwhile.
#[tokio::test(start_paused = true)]
async fn refusal_pauses_a_lane_that_changed_account() {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "30").delay(ms(500)),
        _ => FakeAnswer::status(200),
    });
    let text = vendor(&[("account", "scope = \"account\"\nconcurrency = 4")]);
    let client = builder(&text, &transport).shards(16).build().await.unwrap();
    client.tenants().set(tenant_of_account("a", "first")).unwrap();
    let first = spawn_send(&client, "a", "/refused");
    tokio::time::sleep(ms(100)).await;
    for account in ["second", "third", "fourth"] {
        client.tenants().set(tenant_of_account("a", account)).unwrap();
    }
    tokio::time::sleep(ms(500)).await;
    let began = now();
    client.send("a", Priority::High, get("/next")).await.unwrap().text().await.unwrap();
    // 30 s after the refusal, and up to a tenth longer.
    let waited = began.elapsed().as_secs();
    assert!((29..=33).contains(&waited), "{waited} s");
    all_answered(vec![first]).await;
    assert_idle(&client);
}

/// An account's limit of 600 requests a minute.
fn account_limit() -> String {
    vendor(&[("requests", "scope = \"account\"\nalgorithm = \"sliding_window\"\nlimit = 600\nwindow = \"60s\"")])
}

/// The figure of the limit that is in force for a tenant, whose lane is in memory from then on.
fn figure(client: &IntegrationClient, tenant: &str) -> u32 {
    client.lane(tenant, "v").unwrap().headroom().unwrap().limit()
}

#[tokio::test(start_paused = true)]
async fn account_limit_follows_its_tenants() {
    let transport = transport_with_delay(Duration::ZERO);
    let client = builder(&account_limit(), &transport).build().await.unwrap();
    for limit in [1_200, 10, 100] {
        client.tenants().set(tenant_of_account("strict", "acme").limit("requests", limit)).unwrap();
        assert_eq!(figure(&client, "strict"), limit);
    }
    client.tenants().set(tenant_of_account("usual", "acme")).unwrap();
    assert_eq!(figure(&client, "usual"), 100, "the stricter one");
    // A tenant that is in use finds its account's figure, however long the others have been idle.
    let handle = client.lane("usual", "v").unwrap();
    tokio::time::sleep(ms(60_000)).await;
    assert_eq!(handle.headroom().unwrap().limit(), 100);
    client.tenants().remove("strict", "v", OnRemove::Drain).unwrap();
    assert_eq!(figure(&client, "usual"), 600, "the tenant has gone");
}

#[tokio::test(start_paused = true)]
async fn reload_of_one_tenant_keeps_stricter_figure() {
    let transport = transport_with_delay(Duration::ZERO);
    let text = |limits: &str, weight: u32| {
        let tenant =
            |id: &str, rest: &str| format!("[[tenants]]\nid = \"{id}\"\nvendor = \"v\"\naccount = \"acme\"\n{rest}\n");
        account_limit() + &tenant("strict", limits) + &tenant("usual", &format!("weight = {weight}"))
    };
    let stated = "limits = { requests = { limit = 100 } }";
    let (client, source) = reloadable(&text(stated, 1), &transport).await;
    assert_eq!((figure(&client, "strict"), figure(&client, "usual")), (100, 100));
    for (limits, weight, expected) in [(stated, 2, 100), ("", 2, 600)] {
        source.set(text(limits, weight));
        client.config().reload().await.unwrap();
        assert_eq!(figure(&client, "usual"), expected, "{limits} {weight}");
    }
}

/// A source that keeps a copy of what it loaded last, once that is in force, as a source on a server does.
#[derive(Clone, Debug, Default)]
struct KeepingSource {
    text: Arc<Mutex<String>>,
    loaded: Arc<Mutex<String>>,
    kept: Arc<Mutex<String>>,
}

impl KeepingSource {
    fn set(&self, text: &str) {
        *self.text.lock().unwrap() = text.to_owned();
    }
}

impl ConfigSource for KeepingSource {
    fn load(&self) -> Pin<Box<dyn Future<Output = Result<Sources, Error>> + Send + '_>> {
        let text = self.text.lock().unwrap().clone();
        *self.loaded.lock().unwrap() = text.clone();
        Box::pin(async move { Ok(Sources::new().without_catalogue().file("kept.toml", text)) })
    }

    fn taken(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            // A load that does not wait for this begins and ends meanwhile.
            tokio::time::sleep(ms(10)).await;
            let loaded = self.loaded.lock().unwrap().clone();
            *self.kept.lock().unwrap() = loaded;
        })
    }
}

#[tokio::test(start_paused = true)]
async fn kept_copy_is_the_accepted_one() {
    let source = KeepingSource::default();
    let text = |limit| vendor(&[("requests", &per_second(limit, 1))]);
    source.set(&text(10));
    let builder = builder("", &transport_with_delay(Duration::ZERO)).config_source(source.clone());
    let client = builder.build().await.unwrap();
    source.set(&text(20));
    let invalid = async {
        source.set("nonsense = 1");
        client.config().reload().await
    };
    let (valid, invalid) = tokio::join!(client.config().reload(), invalid);
    assert_eq!((valid.unwrap(), invalid.unwrap_err().kind()), (2, ErrorKind::Config));
    assert_eq!(*source.kept.lock().unwrap(), text(20));
}
