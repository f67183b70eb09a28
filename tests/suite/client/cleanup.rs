//! Cleanup of tenants that are no longer needed, and eviction of idle lanes.

use std::collections::HashSet;

use super::*;

fn tenant(n: usize) -> TenantEntry {
    TenantEntry::new(format!("t{n:04}"), "v")
}

#[tokio::test(start_paused = true)]
async fn cleanup_retires_inactive_tenants() {
    for policy in [OnRemove::Drain, OnRemove::Refuse] {
        let transport = transport_with_delay(ms(5));
        let client = builder(&vendor(&[("slots", "concurrency = 1")]), &transport).on_remove(policy);
        let client = client.build().await.unwrap();
        let everybody = client.tenants().cleanup(&HashSet::from(["a", "b"])).await;
        assert!(everybody.is_empty());
        for n in 0..1_000 {
            client.tenants().set(tenant(n)).unwrap();
        }
        let sends: Vec<_> = (0..6).map(|_| spawn(&client, Priority::Normal, get("/"))).collect();
        wait_for_waiters(&client, 5).await;
        let retired = client.tenants().cleanup(&HashSet::from(["b".to_owned(), "t0007".to_owned()])).await;
        assert_eq!((retired.len(), client.waiting()), (1_000, if policy == OnRemove::Drain { 5 } else { 0 }));
        let late = client.send("a", Priority::High, get("/")).await.unwrap_err();
        assert_eq!((late.kind(), late.delivery()), (ErrorKind::UnknownTenant, Delivery::NotSent));
        for (number, send) in sends.into_iter().enumerate() {
            match send.await.unwrap() {
                Ok(response) => drop(response.text().await.unwrap()),
                Err(error) => assert_eq!((number > 0, error.kind()), (policy == OnRemove::Refuse, ErrorKind::Retired)),
            }
        }
        assert_eq!(transport.calls().len(), if policy == OnRemove::Drain { 6 } else { 1 });
        client.send("b", Priority::High, get("/")).await.unwrap().text().await.unwrap();
        client.send("t0007", Priority::High, get("/")).await.unwrap().text().await.unwrap();
        assert_eq!(client.tenants().lanes(), 3);
        tokio::time::sleep(ms(90_000)).await;
        assert_eq!(client.tenants().lanes(), 0, "the sweep drops what rests");
        assert_idle(&client);
    }
}

#[tokio::test(start_paused = true)]
async fn returning_tenant_finds_its_usage() {
    let transport = transport_with_delay(Duration::ZERO);
    let client =
        client(&[("requests", "algorithm = \"sliding_window\"\nlimit = 10\nwindow = \"1h\"")], &transport).await;
    let try_send = |client: IntegrationClient| async move { client.try_send("a", Priority::High, get("/")).await };
    for _ in 0..8 {
        try_send(client.clone()).await.unwrap().text().await.unwrap();
    }
    assert_eq!(client.tenants().retain(|tenant| &*tenant.id != "a").await.len(), 1);
    tokio::time::sleep(ms(60_000)).await;
    client.tenants().set(TenantEntry::new("a", "v")).unwrap();
    assert_eq!(try_send(client.clone()).await.unwrap_err().kind(), ErrorKind::NotNow, "8 of this hour are used");
}

/// Makes the same sends twice, once with lanes evicted whenever possible and once with all lanes kept: the exchanges
/// happen at the same times.
#[tokio::test(start_paused = true)]
async fn same_sends_with_and_without_eviction() {
    // A vendor-wide limit lets all tenants together send 80 a second, so sends must be rare enough that queues run
    // empty now and then.
    for (scope, seldom, seed) in [("tenant", 8, 1), ("account", 8, 2), ("vendor", 40, 3)] {
        let mut traces = Vec::new();
        for evict in [false, true] {
            let transport = transport_with_delay(ms(7));
            let limit = format!("scope = \"{scope}\"\n{}", per_second(20, 8).replace("\"1s\"", "\"200ms\""));
            let text = vendor(&[("requests", &limit)]).replace("auth =", "max_transit = \"50ms\"\nauth =");
            let client = builder(&text, &transport).build().await.unwrap();
            (0..20).for_each(|n| client.tenants().set(tenant(n)).unwrap());
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut sends, mut dropped) = (Vec::new(), 0);
            for step in 0..400 {
                // A tenant sends a burst, and then usually nothing for longer than its window.
                let burst = if random.u32(0..seldom) == 0 { random.usize(1..60) } else { 0 };
                let id = format!("t{:04}", random.usize(0..20));
                for n in 0..burst {
                    let (client, id) = (client.clone(), id.clone());
                    let priority = [Priority::High, Priority::Normal, Priority::Low][n % 3];
                    #[expect(clippy::disallowed_methods, reason = "tests measure and spawn")]
                    sends.push(tokio::spawn(async move {
                        client.send(&id, priority, get(&format!("/{step}/{n}"))).await.unwrap().text().await.unwrap();
                    }));
                }
                tokio::time::sleep(ms(random.u64(1..40))).await;
                if evict {
                    let before = client.tenants().lanes();
                    client.tenants().rest(true).await;
                    dropped += before - client.tenants().lanes();
                }
            }
            for send in sends {
                send.await.unwrap();
            }
            assert!(!evict || dropped > 5, "{scope}: {dropped} lanes were dropped");
            let calls = transport.calls();
            let first = calls[0].at;
            // The order of shards that wake in the same millisecond is undefined.
            let mut trace: Vec<_> = calls.iter().map(|call| (call.at.since(first), call.url.clone())).collect();
            trace.sort();
            traces.push(trace);
        }
        let [kept, evicted] = &traces[..] else { panic!("two") };
        let differ = kept.iter().zip(evicted).find(|(kept, evicted)| kept != evicted);
        assert_eq!((kept.len(), differ), (evicted.len(), None), "{scope}");
    }
}

type Answer = Result<HashSet<String>, integration_client::BoxError>;

/// A client with the tenants `a` and `b` that asks `source` every minute which tenants are needed.
async fn client_with_cleanup<A>(
    source: impl Fn(u32) -> A + Send + Sync + 'static,
    may_retire_all: bool,
) -> IntegrationClient
where
    A: Future<Output = Answer> + Send + 'static,
{
    let asked = std::sync::atomic::AtomicU32::new(0);
    let source = move || source(asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let builder = builder(&vendor(&[("slots", "concurrency = 1")]), &transport_with_delay(ms(5)));
    let builder = builder.cleanup_every(Duration::from_secs(60), source);
    let builder = if may_retire_all { builder.cleanup_may_retire_all() } else { builder };
    builder.build().await.unwrap()
}

fn ids(ids: &[&str]) -> HashSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

async fn sleep_minutes(minutes: u64) {
    tokio::time::sleep(Duration::from_secs(60 * minutes) + ms(500)).await;
}

#[tokio::test(start_paused = true)]
async fn cleanup_retires_tenants_its_source_omits() {
    let client = client_with_cleanup(|_| async { Ok(ids(&["b", "set meanwhile"])) }, false).await;
    tokio::time::sleep(ms(59_000)).await;
    assert_eq!((client.overview().tenants, client.overview().cleanup), (2, None));
    tokio::time::sleep(ms(1_500)).await;
    let overview = client.overview();
    let cleanup = overview.cleanup.unwrap();
    assert_eq!((overview.tenants, cleanup.runs, cleanup.failures, cleanup.retired), (1, 1, 0, 1));
    assert_eq!(client.status("a", "v").unwrap_err().kind(), ErrorKind::UnknownTenant);
    client.send("b", Priority::High, get("/")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cleanup_source_error_retires_nobody() {
    let source = |asked| async move {
        match asked {
            0 => Err("the database is away".into()),
            1 => panic!("a mistake in the source"),
            2 => std::future::pending().await,
            3 => Ok(ids(&[])),
            _ => Ok(ids(&["a"])),
        }
    };
    let client = client_with_cleanup(source, false).await;
    let problem = || client.overview().cleanup.and_then(|cleanup| cleanup.problem).unwrap_or_default();
    for (minute, said) in [(1, "is away"), (1, "panicked"), (2, "has not answered within 60 s"), (1, "names nobody")] {
        sleep_minutes(minute).await;
        assert!(problem().contains(said), "{:?} instead of {said}", problem());
        assert_eq!(client.overview().tenants, 2);
    }
    sleep_minutes(1).await;
    let cleanup = client.overview().cleanup.unwrap();
    assert_eq!((cleanup.runs, cleanup.failures, cleanup.retired, cleanup.problem), (5, 4, 1, None));
    assert_eq!(client.overview().tenants, 1);
}

#[tokio::test(start_paused = true)]
async fn cleanup_retires_everybody_only_when_allowed() {
    let client = client_with_cleanup(|_| async { Ok(ids(&[])) }, true).await;
    sleep_minutes(1).await;
    assert_eq!((client.overview().tenants, client.overview().cleanup.unwrap().retired), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn cleanup_spares_tenants_set_meanwhile() {
    let slow = |_| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(ids(&["a", "b"]))
    };
    let client = client_with_cleanup(slow, false).await;
    tokio::time::sleep(Duration::from_secs(65)).await;
    client.tenants().set(tenant(1)).unwrap();
    // The tenant was set again meanwhile, so the source's response is not about this one.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((client.overview().tenants, client.overview().cleanup.unwrap().retired), (3, 0));
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!((client.overview().tenants, client.overview().cleanup.unwrap().retired), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn cleanups_end_with_the_client() {
    let alive = std::sync::Arc::new(());
    for shuts_down in [true, false] {
        let held = alive.clone();
        let source = move |_| {
            let _held = &held;
            async { Ok(ids(&["b"])) }
        };
        let client = client_with_cleanup(source, false).await;
        if shuts_down {
            assert!(client.shutdown(ms(10)).await);
            sleep_minutes(3).await;
            assert_eq!((client.overview().tenants, client.overview().cleanup), (2, None));
        }
        drop(client);
        tokio::time::sleep(ms(10)).await;
        assert_eq!(std::sync::Arc::strong_count(&alive), 1, "the source is gone with the task");
    }
}
