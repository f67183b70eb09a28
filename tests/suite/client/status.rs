//! The status of a client, and its estimates.

use super::*;
use integration_client::status::PausedBy;

#[tokio::test(start_paused = true)]
async fn status_reports_wait_reason_and_end() {
    let transport = transport_with_delay(ms(10));
    let client = client(&[("requests", &per_second(10, 2)), ("slots", "concurrency = 5")], &transport).await;
    assert!(client.status("a", "v").unwrap().resting, "nobody has sent anything");
    let sends: Vec<_> = (0..5).map(|_| spawn(&client, Priority::Low, get("/"))).collect();
    wait_for_waiters(&client, 3).await;
    let status = client.status("a", "v").unwrap();
    assert_eq!((status.waiting.low, status.in_flight, status.resting), (3, 2, false));
    let wait = status.waits.low.as_ref().unwrap();
    assert_eq!((wait.limit.as_deref(), wait.not_before), (Some("requests"), Some(ms(125))));
    assert!(wait.reason.contains("`requests` is used up"), "{}", wait.reason);
    let limits: Vec<_> =
        status.limits.iter().map(|limit| (&*limit.name, limit.scope, limit.limit, limit.remaining)).collect();
    assert_eq!(limits, [("requests", "tenant", 10, 8), ("slots", "tenant", 5, 3)]);
    assert_eq!((status.headroom, status.shares.high, status.pause), (Some(0.6), 0.6, None));

    client.tenants().pause("a", "v").unwrap();
    let paused = client.status("a", "v").unwrap();
    assert_eq!(paused.pause.as_ref().map(|pause| (pause.by, pause.ends_in)), Some((PausedBy::Operator, None)));
    assert_eq!(client.estimate("a", "v", Priority::Low, 1).unwrap().expected, None);
    let json: serde_json::Value = serde_json::to_value(&paused).unwrap();
    assert_eq!(
        (&json["tenant"], &json["pause"]["by"], &json["waiting"]["low"]),
        (&"a".into(), &"operator".into(), &3.into())
    );

    let overview = client.overview();
    let vendor = &overview.vendors[0];
    assert_eq!((&*vendor.vendor, vendor.lanes, vendor.waiting.low, vendor.in_flight, vendor.paused), ("v", 1, 3, 2, 1));
    assert_eq!(
        (overview.tenants, overview.config_version, overview.config_problem.is_none()),
        (2, client.config().current().version(), true)
    );
    assert!(serde_json::to_string(&overview).unwrap().contains(&overview.config_hash));
    client.tenants().resume("a", "v").unwrap();
    for send in sends {
        send.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_shows_in_the_status() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(429).header("retry-after", "30"));
    let client = client(&[("requests", &per_second(10, 2))], &transport).await;
    assert_eq!(client.send("a", Priority::High, get("/")).await.unwrap().status().as_u16(), 429);
    let pause = client.status("a", "v").unwrap().pause.unwrap();
    assert_eq!(pause.by, PausedBy::Vendor);
    let seconds = pause.ends_in.unwrap().as_secs_f64();
    assert!((29.9..=33.1).contains(&seconds), "{seconds}: the stated time and at most a tenth");
}

/// One tenant of an account is refused: the status of the other says whose limit is paused, and why.
#[tokio::test(start_paused = true)]
async fn pause_shows_its_scope_and_reason() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(429).header("retry-after", "30"));
    let shared = |scope: &str| format!("{}\nscope = \"{scope}\"", per_second(10, 2));
    for scope in ["account", "vendor"] {
        let toml = vendor(&[("requests", &shared(scope))]);
        let [a, b] = ["a", "b"].map(|tenant| TenantEntry::new(tenant, "v").account("one"));
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(toml).tenant(a).tenant(b);
        let client = builder.transport(transport.clone()).build().await.unwrap();
        assert!(client.try_send("b", Priority::High, get("/")).await.is_ok(), "the vendor's 429 is a response");
        assert!(client.try_send("a", Priority::High, get("/")).await.is_err());
        let pause = client.status("a", "v").unwrap().pause.unwrap();
        assert_eq!((pause.by, pause.scope, pause.limit.as_deref()), (PausedBy::Vendor, scope, Some("requests")));
        assert!(
            pause.reason.contains("the vendor refused a request that counts in limit `requests`"),
            "{}",
            pause.reason
        );
    }

    let transport = FakeTransport::new(|_| FakeAnswer::status(503));
    let client = client(&[("requests", &per_second(100, 50))], &transport).await;
    for _ in 0..5 {
        drop(client.send("a", Priority::High, get("/")).await);
    }
    let pause = client.status("a", "v").unwrap().pause.unwrap();
    assert_eq!(
        (pause.scope, pause.limit, &*pause.reason),
        ("tenant", None, "5 requests of the tenant failed in a row")
    );
    client.tenants().pause("a", "v").unwrap();
    let pause = client.status("a", "v").unwrap().pause.unwrap();
    assert_eq!((pause.by, &*pause.reason), (PausedBy::Operator, "an operator paused the tenant"));
}

/// The limits are 10 requests and 100 tokens a second. Thirty requests of 20 tokens each take as long as 600 tokens, of
/// which 80 are available at once.
#[tokio::test(start_paused = true)]
async fn estimate_reckons_with_what_requests_cost() {
    let vendor = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\ncosts = { tokens = 2 }\n\
                  [[vendors.v.limits]]\nname = \"requests\"\nlimit = 10\nwindow = \"1s\"\nalgorithm = \"token_bucket\"\n\
                  [[vendors.v.limits]]\nname = \"tokens\"\nlimit = 100\nwindow = \"1s\"\nalgorithm = \"token_bucket\"\nunit = \"tokens\"\n";
    let builder =
        IntegrationClient::builder().without_catalogue().vendors_toml(vendor).transport(transport_with_delay(ms(20)));
    let client = builder.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    let request = |kind| Request::get("v", "/").cost(kind, 20);
    let costs = client.costs("a", &request("tokens")).unwrap();
    let costs: Vec<_> = costs.iter().map(|(kind, units)| (&**kind, *units)).collect();
    assert_eq!(costs, [("points", 1), ("tokens", 20)]);
    let error = client.costs("a", &request("tokes")).unwrap_err().to_string();
    assert!(error.contains("declares no \"tokes\"; it counts points, tokens"), "{error}");
    assert!(client.estimate_points("a", "v", Priority::Low, 1, &[("tokes", 1)]).is_err());
    let seconds = |points: &[(&str, u64)]| {
        let estimate = client.estimate_points("a", "v", Priority::Low, 30, points).unwrap();
        estimate.expected.unwrap().as_secs_f64()
    };
    let (usual, dear) = (seconds(&[]), seconds(&[("tokens", 600)]));
    assert!((2.5..3.2).contains(&usual), "(30 - 8) / 8 a second: {usual}");
    assert!((6.2..7.2).contains(&dear), "(600 - 80) / 80 a second: {dear}");
    let lane = client.lane("a", "v").unwrap();
    let dear = lane.costing("tokens", 80).unwrap();
    let permit = dear.try_acquire(Priority::High, 1).unwrap();
    assert!(dear.try_acquire(Priority::High, 1).is_err(), "the tokens of a second are taken");
    drop(permit);
    assert!(lane.costing("tokes", 1).is_err());
}

#[tokio::test(start_paused = true)]
async fn estimate_is_what_then_happens() {
    for (backlog, batch, priority) in
        [(0, 40, Priority::Low), (60, 40, Priority::Low), (60, 40, Priority::High), (30, 300, Priority::Normal)]
    {
        let client = client(&[("requests", &per_second(20, 4))], &transport_with_delay(ms(50))).await;
        // From this first response the client learns how long responses take.
        client.send("a", Priority::Normal, get("/")).await.unwrap().bytes().await.unwrap();
        let others: Vec<_> = (0..backlog).map(|_| spawn(&client, Priority::Normal, get("/"))).collect();
        wait_for_waiters(&client, (backlog as u64).saturating_sub(3)).await;
        let estimate = client.estimate("a", "v", priority, batch).unwrap();
        let (began, mut sends) = (now(), tokio::task::JoinSet::new());
        for _ in 0..batch {
            let client = client.clone();
            sends.spawn(async move {
                let request = get("/").deadline(Duration::from_secs(600));
                client.send("a", priority, request).await.unwrap().bytes().await.unwrap();
            });
        }
        sends.join_all().await;
        let took = began.elapsed().as_secs_f64();
        let expected = estimate.expected.unwrap().as_secs_f64();
        println!(
            "{backlog} wait, {batch} more of {priority:?}: expected {expected:.2} s, took {took:.2} s ({estimate:?})"
        );
        assert!((expected - took).abs() <= 0.05 * took, "{expected} {took}");
        assert!(estimate.earliest <= estimate.expected && estimate.expected <= estimate.guaranteed, "{estimate:?}");
        others.into_iter().for_each(|send| send.abort());
    }
    // The estimate returns quickly for any number of requests, also in a lane without a rate limit.
    let unlimited = client(&[("slots", "concurrency = 100000")], &transport_with_delay(ms(20))).await;
    assert_eq!(unlimited.estimate("a", "v", Priority::Low, 0).unwrap().guaranteed, Some(Duration::ZERO));
    for requests in [1, 10_000, u64::MAX] {
        let estimate = unlimited.estimate("a", "v", Priority::Low, requests).unwrap();
        assert!(estimate.earliest <= estimate.guaranteed.or(Some(Duration::MAX)), "{requests}: {estimate:?}");
    }
    // Whatever the other tiers send, low priority gets a tenth: 24 requests a second of the 240 that a limit of 300
    // allows.
    let client = client(&[("requests", &per_second(300, 240))], &transport_with_delay(ms(20))).await;
    for (requests, least, most) in [(240, 9.0, 12.0), (2_000, 75.0, 90.0)] {
        let guaranteed = client.estimate("a", "v", Priority::Low, requests).unwrap().guaranteed.unwrap().as_secs_f64();
        assert!((least..=most).contains(&guaranteed), "{requests}: {guaranteed}");
    }
}

#[tokio::test(start_paused = true)]
async fn check_predicts_and_takes_nothing() {
    let transport = transport_with_delay(ms(10));
    let client = client(&[("requests", &per_second(10, 2)), ("slots", "concurrency = 5")], &transport).await;
    for _ in 0..100 {
        let check = client.check("a", "v", None, Priority::Low).unwrap();
        assert_eq!((check.allowed, check.reason, check.until, check.pending), (true, None, None, 0));
        assert_eq!((check.name.as_deref(), check.limit, check.remaining), (Some("requests"), Some(10), Some(10)));
        assert_eq!(check.reset, Some(Duration::ZERO));
    }
    let sends: Vec<_> = (0..5).map(|_| spawn(&client, Priority::Low, get("/"))).collect();
    wait_for_waiters(&client, 3).await;
    let check = client.check("a", "v", None, Priority::Low).unwrap();
    assert_eq!((check.allowed, check.pending, check.until), (false, 3, Some(ms(125))));
    assert_eq!((check.name.as_deref(), check.limit, check.remaining), (Some("requests"), Some(10), Some(8)));
    assert!(check.reason.as_deref().unwrap().contains("`requests` is used up"), "{check:?}");
    let error = client.try_send("a", Priority::Low, get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotNow);
    let json = serde_json::to_value(&check).unwrap();
    assert_eq!((&json["allowed"], &json["until_s"]), (&false.into(), &0.125.into()));

    client.tenants().pause("b", "v").unwrap();
    let check = client.check("b", "v", None, Priority::High).unwrap();
    assert!(!check.allowed && check.reason.as_deref().unwrap().contains("operator"), "{check:?}");
    assert_eq!(check.until, None);
    for send in sends {
        send.await.unwrap().unwrap();
    }
    assert_eq!(client.check("x", "v", None, Priority::High).unwrap_err().kind(), ErrorKind::UnknownTenant);
    assert_eq!(client.check("a", "v", Some("x"), Priority::High).unwrap_err().kind(), ErrorKind::UnknownEndpoint);
}

#[tokio::test(start_paused = true)]
async fn check_says_how_long_the_vendor_pauses() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(429).header("retry-after", "30"));
    let client = client(&[("requests", &per_second(10, 2))], &transport).await;
    client.try_send("a", Priority::High, get("/")).await.unwrap();
    let check = client.check("a", "v", None, Priority::High).unwrap();
    assert!(!check.allowed && check.reason.is_some(), "{check:?}");
    assert!((30.0..=33.1).contains(&check.until.unwrap().as_secs_f64()), "{check:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_are_listed_until_they_end() {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(500),
        _ => FakeAnswer::status(200).delay(ms(1_000)),
    });
    let retry = "max_retries = 2, first_wait = \"1s\", longest_wait = \"1s\"";
    let text = vendor(&[("slots", "concurrency = 5")]).replace("max_retries = 0", retry);
    let client = builder(&text, &transport).build().await.unwrap();
    assert!(client.under_way(10).is_empty());
    let again = spawn(&client, Priority::Low, get("/"));
    tokio::time::sleep(ms(1_500)).await;
    let cancelled = spawn(&client, Priority::High, get("/"));
    tokio::time::sleep(ms(100)).await;
    let list = client.under_way(10);
    let seen: Vec<_> = list.iter().map(|one| (&*one.tenant, &*one.vendor, one.priority, one.attempt)).collect();
    assert_eq!(seen, [("a", "v", Priority::Low, 2), ("a", "v", Priority::High, 1)]);
    assert_eq!((list[1].since, list[1].endpoint.as_deref()), (ms(100), None));
    assert!(list[0].since > ms(100) && list[0].request_id < list[1].request_id, "{list:?}");
    assert_eq!(client.under_way(1), list[..1]);
    cancelled.abort();
    again.await.unwrap().unwrap();
    tokio::time::sleep(ms(1)).await;
    assert!(client.under_way(10).is_empty());
}

#[tokio::test(start_paused = true)]
async fn status_reports_vendor_rate_and_mean_time() {
    let transport = transport_with_delay(ms(40));
    let client = client(&[("slots", "concurrency = 5")], &transport).await;
    assert_eq!(client.status("a", "v").unwrap().flow.mean, None);
    for _ in 0..100 {
        client.send("a", Priority::High, get("/")).await.unwrap().text().await.unwrap();
        tokio::time::sleep(ms(60)).await;
    }
    for flow in [client.overview().vendors[0].flow, client.status("b", "v").unwrap().flow] {
        assert!((9.0..=11.0).contains(&flow.per_second), "{flow:?}");
        assert!((0.039..=0.042).contains(&flow.mean.unwrap().as_secs_f64()), "{flow:?}");
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(client.status("a", "v").unwrap().flow.per_second < 0.01);
}
