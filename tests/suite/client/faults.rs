//! Exchanges that fail, and the shutdown of the client.

use super::*;

#[tokio::test(start_paused = true)]
async fn unsent_request_costs_nothing() {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::not_connected().delay(ms(20)),
        _ => FakeAnswer::status(200),
    });
    let hourly = "algorithm = \"sliding_window\"\nlimit = 1\nwindow = \"1h\"";
    let client = client(&[("requests", hourly), ("slots", "concurrency = 1")], &transport).await;
    let error = client.send("a", Priority::High, get("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Connect, Delivery::NotSent));
    assert_idle(&client);
    client.try_send("a", Priority::High, get("/")).await.unwrap().text().await.unwrap();
    let error = client.try_send("a", Priority::High, get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotNow, "the second was sent");
}

/// The vendor may have acted on the first attempt, so the delivery is ambiguous even if the last attempt was not sent.
#[tokio::test(start_paused = true)]
async fn delivery_is_ambiguous_after_an_ambiguous_attempt() {
    for (first, expected) in [
        (FakeAnswer::reset(), Delivery::Ambiguous),
        (FakeAnswer::status(503), Delivery::Ambiguous),
        (FakeAnswer::status(408), Delivery::Ambiguous),
        (FakeAnswer::status(425), Delivery::Ambiguous),
        (FakeAnswer::status(429), Delivery::NotSent),
        (FakeAnswer::not_connected(), Delivery::NotSent),
    ] {
        let answer = first.clone();
        let transport = FakeTransport::new(move |call| match call.number {
            0 => answer.clone(),
            _ => FakeAnswer::not_connected(),
        });
        let toml = vendor(&[("slots", "concurrency = 9")]).replace("max_retries = 0", "first_wait = \"1s\"");
        let client = builder(&toml, &transport).build().await.unwrap();
        let error = client.send("a", Priority::High, get("/").deadline(ms(60_000))).await.unwrap_err();
        assert_eq!(error.delivery(), expected, "{first:?}: {error}");
    }
}

/// The vendor's entry says that it does not act on a request that it answers with 503 and `Retry-After`.
#[tokio::test(start_paused = true)]
async fn safe_503_leaves_nothing_ambiguous() {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(503).header("retry-after", "1"),
        _ => FakeAnswer::not_connected(),
    });
    for (safe, expected) in [(false, Delivery::Ambiguous), (true, Delivery::NotSent)] {
        transport.reset_calls();
        let text = retrying(&[], &format!("first_wait = \"1s\", unavailable_is_safe = {safe}"));
        let client = builder(&text, &transport).build().await.unwrap();
        let error = client.send("a", Priority::High, get("/").deadline(ms(60_000))).await.unwrap_err();
        assert_eq!((error.delivery(), error.is_safe_to_resend()), (expected, safe), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_responses_keep_status_and_attempts() {
    let transport = FakeTransport::new(|call| match call.path() {
        "/missing" => FakeAnswer::status(404).header("x-id", "7").body("none"),
        "/slow" => FakeAnswer::status(408),
        "/text" => FakeAnswer::status(200).body("no JSON"),
        _ => FakeAnswer::status(200).body("late").body_delay(ms(5000)),
    });
    let client = client(&[], &transport).await;
    let send = |path: &'static str| client.send("a", Priority::High, get(path).deadline(ms(1000)));
    let error = send("/missing").await.unwrap().error_for_status().unwrap_err();
    assert_eq!((error.kind(), error.delivery(), error.attempts()), (ErrorKind::Status, Delivery::Rejected, 1));
    assert_eq!(error.status().map(|status| status.as_u16()), Some(404));
    let response = error.response().unwrap();
    assert_eq!((response.headers()["x-id"].to_str().unwrap(), response.body().len()), ("7", 0));
    let error = send("/slow").await.unwrap().error_for_status().unwrap_err();
    assert_eq!((error.delivery(), error.is_safe_to_resend()), (Delivery::Ambiguous, false));
    let error = send("/text").await.unwrap().json::<u32>().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Decode, 1));
    let error = send("/late").await.unwrap().bytes().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Timeout, 1));
}

#[tokio::test(start_paused = true)]
async fn possibly_sent_request_counts() {
    let transport = FakeTransport::new(|_| FakeAnswer::reset().delay(ms(20)));
    let limits = [("requests", "algorithm = \"sliding_window\"\nlimit = 2\nsafety = 1.0\nwindow = \"1s\"")];
    let client = client(&limits, &transport).await;
    for _ in 0..2 {
        let error = client.send("a", Priority::High, get("/")).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (ErrorKind::Protocol, Delivery::Ambiguous));
    }
    assert_idle(&client);
    let error = client.try_send("a", Priority::High, get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotNow);
    tokio::time::sleep(ms(1050)).await;
    let error = client.try_send("a", Priority::High, get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "a window after the failure there is room");
}

/// The entry of a vendor with `retry` as its settings of retries.
fn retrying(limits: &[(&str, &str)], retry: &str) -> String {
    vendor(limits).replace("max_retries = 0", retry)
}

#[tokio::test(start_paused = true)]
async fn unprocessed_request_is_resent_and_stays_counted() {
    let transport = FakeTransport::new(|call| match call.number {
        0 | 1 => FakeAnswer::refused_stream(),
        _ => FakeAnswer::status(200),
    });
    let minute = "algorithm = \"sliding_window\"\nlimit = 100\nsafety = 1.0\nwindow = \"1m\"";
    let text = retrying(&[("requests", minute), ("slots", "concurrency = 1")], "max_retries = 1, first_wait = \"1s\"");
    let client = builder(&text, &transport).build().await.unwrap();
    let post = Request::post("v", "/").body("content");
    let response = client.send("a", Priority::High, post).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (200, 3), "two more than retries are allowed");
    let calls = transport.calls();
    let gaps: Vec<u128> = calls.windows(2).map(|pair| pair[1].at.since(pair[0].at).as_millis()).collect();
    assert!(gaps.iter().all(|gap| *gap >= 1000), "the lane pauses: {gaps:?}");
    assert_idle(&client);
    let requests =
        client.status("a", "v").unwrap().limits.into_iter().find(|limit| &*limit.name == "requests").unwrap();
    assert_eq!(requests.remaining, 97, "all three count");
}

#[tokio::test(start_paused = true)]
async fn unprocessed_request_at_doubted_vendor_is_ambiguous() {
    let transport = FakeTransport::new(|_| FakeAnswer::refused_stream());
    for (setting, delivery, calls) in
        [("unprocessed_is_safe = false", Delivery::Ambiguous, 1), ("max_age = \"2s\"", Delivery::Rejected, 4)]
    {
        transport.reset_calls();
        let text = retrying(&[], &format!("max_retries = 2, first_wait = \"1s\", {setting}"));
        let client = builder(&text, &transport).build().await.unwrap();
        let error = client.send("a", Priority::High, Request::post("v", "/").body("content")).await.unwrap_err();
        assert_eq!(error.delivery(), delivery, "{setting}: {error}");
        assert!((1..=calls).contains(&transport.calls().len()), "{setting}: {}", transport.calls().len());
    }
}

#[tokio::test(start_paused = true)]
async fn refused_streams_leave_the_retry_budget_alone() {
    let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
    let transport = FakeTransport::new(move |call| match seen.lock().unwrap().insert(call.path().to_owned()) {
        true => FakeAnswer::refused_stream(),
        false => FakeAnswer::status(200),
    });
    let client = builder(&retrying(&[], "max_retries = 1"), &transport).build().await.unwrap();
    let sends: Vec<_> = (0..60).map(|n| spawn(&client, Priority::High, get(&format!("/{n}")))).collect();
    for send in sends {
        assert_eq!(send.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(client.dead_letter_counts().waiting, 0);
    assert_idle(&client);
}

#[tokio::test(start_paused = true)]
async fn stalled_exchange_counts_until_max_transit() {
    let transport = FakeTransport::new(|_| FakeAnswer::stall());
    let limits = "algorithm = \"sliding_window\"\nlimit = 1\nsafety = 1.0\nwindow = \"1s\"";
    let text = vendor(&[("requests", limits)]).replace("base_url", "max_transit = \"3s\"\nbase_url");
    let text = text.replace("base_url", "connect_timeout = \"2s\"\nbase_url");
    let client = builder(&text, &transport).build().await.unwrap();
    let began = now();
    let error = client.send("a", Priority::High, get("/").attempt_timeout(ms(500))).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Timeout, Delivery::Ambiguous));
    assert!((500..=502).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    tokio::time::sleep(ms(10)).await;
    assert_idle(&client);
    let error = client.send("a", Priority::High, get("/").attempt_timeout(ms(500))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let second = transport.calls()[1].at.since(transport.calls()[0].at);
    assert!((4000..=4300).contains(&second.as_millis()), "3 s of transit and the window, not {second:?}");
}

#[tokio::test(start_paused = true)]
async fn exchange_gets_its_whole_attempt_timeout() {
    let transport = transport_with_delay(ms(170_000));
    let text = vendor(&[]).replace("base_url", "attempt_timeout = \"180s\"\nbase_url");
    let client = builder(&text, &transport).build().await.unwrap();
    let post = || Request::post("v", "/").body("content");
    assert_eq!(client.send("a", Priority::High, post()).await.unwrap().status(), 200);
    assert_eq!(client.try_send("a", Priority::High, post()).await.unwrap().status(), 200);
    // A stated deadline bounds the exchange.
    let began = now();
    let error = client.send("a", Priority::High, post().deadline(ms(60_000))).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Timeout, Delivery::Ambiguous));
    assert!((60_000..=60_002).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}

/// A further attempt waits for its permit for 60 s, however long its exchange may take.
#[tokio::test(start_paused = true)]
async fn long_attempt_timeout_prolongs_no_wait() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(503));
    let text = retrying(&[], "first_wait = \"1s\"").replace("base_url", "attempt_timeout = \"180s\"\nbase_url");
    let client = builder(&text, &transport).build().await.unwrap();
    let began = now();
    let send = spawn(&client, Priority::High, get("/"));
    tokio::time::sleep(ms(500)).await;
    client.tenants().pause("a", "v").unwrap();
    assert_eq!(send.await.unwrap().unwrap_err().kind(), ErrorKind::Deadline);
    assert!((61..=63).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn shutdown_drains_and_then_refuses() {
    let transport = transport_with_delay(ms(100));
    let client = client(&[("slots", "concurrency = 1")], &transport).await;
    let sends: Vec<_> = (0..5)
        .map(|_| {
            let send = spawn(&client, Priority::Normal, get("/"));
            async { send.await.unwrap()?.text().await }
        })
        .collect();
    wait_for_waiters(&client, 4).await;
    let (drained, results) = tokio::join!(client.shutdown(ms(10_000)), async {
        let refused = client.send("a", Priority::High, get("/")).await.unwrap_err();
        assert_eq!((refused.kind(), refused.delivery()), (ErrorKind::Shutdown, Delivery::NotSent));
        let mut results = Vec::new();
        for send in sends {
            results.push(send.await);
        }
        results
    });
    assert!(drained);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(transport.calls().len(), 5);
    assert_idle(&client);
    assert_eq!(client.send("a", Priority::High, get("/")).await.unwrap_err().kind(), ErrorKind::Shutdown);
    assert_eq!(client.try_acquire("a", "v", Priority::High, 1).unwrap_err().kind(), ErrorKind::Shutdown);
    assert!(client.shutdown(Duration::ZERO).await, "again");
}

#[tokio::test(start_paused = true)]
async fn shutdown_reports_requests_still_waiting() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).delay(ms(100)).body("done").body_delay(ms(1)));
    let client = client(&[("slots", "concurrency = 1")], &transport).await;
    let sends: Vec<_> = (0..5).map(|_| spawn(&client, Priority::Normal, get("/"))).collect();
    wait_for_waiters(&client, 4).await;
    let began = now();
    assert!(!client.shutdown(ms(150)).await);
    assert!((150..=160).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    let mut kinds = Vec::new();
    for send in sends {
        kinds.push(send.await.unwrap().map(drop).map_err(|error| (error.kind(), error.delivery())));
    }
    // The first request keeps its slot until its response is read.
    let refused = Err((ErrorKind::Shutdown, Delivery::NotSent));
    assert_eq!(kinds, [Ok(()), refused, refused, refused, refused]);
    assert_eq!(transport.calls().len(), 1);
    assert_idle(&client);
}

#[tokio::test(start_paused = true)]
async fn response_outlives_its_client() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).body("done").body_delay(ms(40)));
    let client = client(&[("slots", "concurrency = 1")], &transport).await;
    let response = client.send("a", Priority::High, get("/")).await.unwrap();
    drop(client);
    assert_eq!(response.text().await.unwrap(), "done");
}
