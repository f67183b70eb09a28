//! Tenants that are cleaned up, and lanes that are dropped while they rest.

use std::collections::HashSet;

use super::*;

fn tenant(n: usize) -> TenantEntry {
    TenantEntry::new(format!("t{n:04}"), "v")
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_retires_whoever_is_not_active() {
    for policy in [OnRemove::Drain, OnRemove::Refuse] {
        let transport = answers(ms(5));
        let client = builder(&vendor(&[("slots", "concurrency = 1")]), &transport).on_remove(policy);
        let client = client.build().await.unwrap();
        let everybody = client.cleanup(&HashSet::from(["a", "b"])).await;
        assert!(everybody.is_empty());
        for n in 0..1_000 {
            client.set_tenant(tenant(n)).unwrap();
        }
        let sends: Vec<_> = (0..6).map(|_| spawn(&client, Priority::Normal, get("/"))).collect();
        until_waiting(&client, 5).await;
        let retired = client.cleanup(&HashSet::from(["b".to_owned(), "t0007".to_owned()])).await;
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
        assert_eq!(client.lanes(), 3);
        tokio::time::sleep(ms(90_000)).await;
        assert_eq!(client.lanes(), 0, "the sweep drops what rests");
        assert_idle(&client);
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_finds_what_was_used() {
    let transport = answers(Duration::ZERO);
    let client =
        client(&[("requests", "algorithm = \"sliding_window\"\nlimit = 10\nwindow = \"1h\"")], &transport).await;
    let try_send = |client: IntegrationClient| async move { client.try_send("a", Priority::High, get("/")).await };
    for _ in 0..8 {
        try_send(client.clone()).await.unwrap().text().await.unwrap();
    }
    assert_eq!(client.retain_tenants(|tenant| &*tenant.id != "a").await.len(), 1);
    tokio::time::sleep(ms(60_000)).await;
    client.set_tenant(TenantEntry::new("a", "v")).unwrap();
    assert_eq!(try_send(client.clone()).await.unwrap_err().kind(), ErrorKind::NotNow, "8 of this hour are used");
}

/// The same sends, with lanes dropped whenever that is possible and with all of them kept, at the same moments.
#[tokio::test(start_paused = true)]
async fn the_same_sends_with_and_without_eviction() {
    // All together may send 80 a second where the limit is the vendor's: seldom enough that queues empty now and then.
    for (scope, seldom, seed) in [("tenant", 8, 1), ("account", 8, 2), ("vendor", 40, 3)] {
        let mut traces = Vec::new();
        for evict in [false, true] {
            let transport = answers(ms(7));
            let limit = format!("scope = \"{scope}\"\n{}", per_second(20, 8).replace("\"1s\"", "\"200ms\""));
            let text = vendor(&[("requests", &limit)]).replace("auth =", "max_transit = \"50ms\"\nauth =");
            let client = builder(&text, &transport).build().await.unwrap();
            (0..20).for_each(|n| client.set_tenant(tenant(n)).unwrap());
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut sends, mut dropped) = (Vec::new(), 0);
            for step in 0..400 {
                // Bursts of one, and then nothing for longer than its window.
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
                    let before = client.lanes();
                    client.rest(true).await;
                    dropped += before - client.lanes();
                }
            }
            for send in sends {
                send.await.unwrap();
            }
            assert!(!evict || dropped > 5, "{scope}: {dropped} lanes were dropped");
            let calls = transport.calls();
            let first = calls[0].at;
            // Shards that wake in the same millisecond do so in any order.
            let mut trace: Vec<_> = calls.iter().map(|call| (call.at.since(first), call.url.clone())).collect();
            trace.sort();
            traces.push(trace);
        }
        let [kept, evicted] = &traces[..] else { panic!("two") };
        let differ = kept.iter().zip(evicted).find(|(kept, evicted)| kept != evicted);
        assert_eq!((kept.len(), differ), (evicted.len(), None), "{scope}");
    }
}
