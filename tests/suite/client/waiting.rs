//! Waits for a permit: order, deadlines, bounds, and callers that stop polling.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use integration_client::transport::SecretString;

use super::*;

#[tokio::test(start_paused = true)]
async fn wait_is_told_with_its_reason() {
    let client = client(&[("requests", &per_second(10, 1))], &transport_with_delay(Duration::ZERO)).await;
    client.send("a", Priority::Low, get("/")).await.unwrap();
    let began = now();
    let response = client.send("a", Priority::Low, get("/")).await.unwrap();
    assert_eq!((began.elapsed(), response.waited()), (ms(125), ms(125)));
    let reason = response.waited_for().unwrap();
    assert_eq!(
        (reason.limit(), reason.to_string().as_str()),
        (Some("requests"), "the budget of limit `requests` is used up")
    );
}

#[tokio::test(start_paused = true)]
async fn thousand_waiters_wake_once_in_order() {
    let transport = transport_with_delay(Duration::ZERO);
    // 625 x 0.8 = 500 a second.
    let client = client(&[("requests", &per_second(625, 1))], &transport).await;
    let began = now();
    let wakes = Arc::new(AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..1000 {
        let client = client.clone();
        let send = async move { client.send("a", Priority::Normal, get(&format!("/{n}"))).await.unwrap().waited() };
        tasks.spawn(WakeCounted { future: Box::pin(send), wakes: wakes.clone() });
    }
    let mut longest = Duration::ZERO;
    while let Some(waited) = tasks.join_next().await {
        longest = longest.max(waited.unwrap());
    }
    let took = began.elapsed();
    let wakes = wakes.load(Ordering::Relaxed);
    println!("1,000 waiters at 500/s: {took:?}, {wakes} wake-ups for 999 grants that were waited for");
    assert!((1980..=2020).contains(&took.as_millis()), "{took:?}, ideally 2.00 s");
    assert!(longest <= took);
    assert!(wakes <= 1010, "{wakes} wake-ups");
    let order: Vec<String> = transport.calls().iter().map(|call| call.path().to_owned()).collect();
    let asked: Vec<String> = (0..1000).map(|n| format!("/{n}")).collect();
    assert_eq!(order, asked);
    assert_idle(&client);
}

/// Counts how often its future is woken.
struct WakeCounted<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    wakes: Arc<AtomicU32>,
}

struct CountingWaker {
    inner: Waker,
    wakes: Arc<AtomicU32>,
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.inner.wake_by_ref();
    }
}

impl<T> Future for WakeCounted<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let waker = Waker::from(Arc::new(CountingWaker { inner: context.waker().clone(), wakes: self.wakes.clone() }));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

#[tokio::test(start_paused = true)]
async fn unmeetable_deadline_fails_at_once() {
    let transport = transport_with_delay(Duration::ZERO);
    let client = client(&[("requests", &per_second(10, 1))], &transport).await;
    let error = client.send("a", Priority::High, get("/").deadline(Duration::ZERO)).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Deadline, Delivery::NotSent));
    assert_eq!(transport.calls().len(), 0);

    // A request whose deadline or longest wait cannot be met fails at once.
    client.send("a", Priority::High, get("/")).await.unwrap();
    let began = now();
    for hurried in [get("/").deadline(ms(100)), get("/").max_wait(ms(100))] {
        let error = client.send("a", Priority::High, hurried).await.unwrap_err();
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Deadline, Some(ms(125))), "{error}");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn zero_wait_sends_at_once_or_never() {
    let transport = transport_with_delay(Duration::ZERO);
    let client = client(&[("requests", &per_second(10, 1))], &transport).await;
    let hurried = || get("/").max_wait(Duration::ZERO);
    assert_eq!(client.send("a", Priority::High, hurried()).await.unwrap().status(), 200);
    let error = client.send("a", Priority::High, hurried()).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::NotNow, Some(ms(125))));
    assert_eq!(transport.calls().len(), 1);
    assert_idle(&client);
}

/// The longest wait is for the limits: a credential that takes longer to read does not use it up.
#[tokio::test(start_paused = true)]
async fn max_wait_begins_with_the_ask() {
    let transport = transport_with_delay(Duration::ZERO);
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor(&[("slots", "concurrency = 1")]).replace("none", "bearer"))
        .transport(transport.clone())
        .credential_resolver("keys", |_: String| async {
            tokio::time::sleep(ms(300)).await;
            Ok(SecretString::from("key"))
        })
        .tenant(TenantEntry::new("a", "v").credential("keys:k"))
        .build()
        .await
        .unwrap();
    let hurried = || get("/").max_wait(ms(100));
    assert_eq!(client.send("a", Priority::High, hurried()).await.unwrap().status(), 200);
    let held = client.try_acquire("a", "v", Priority::High, 1).unwrap();
    let began = now();
    let error = client.send("a", Priority::High, hurried()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline);
    assert!((100..=102).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    held.not_sent();
    assert_eq!(transport.calls().len(), 1);
    assert_idle(&client);
}

/// It is unknown when a slot will be free, so a request that waits for one fails only when its deadline passes.
#[tokio::test(start_paused = true)]
async fn possible_deadline_is_waited_for() {
    let transport = transport_with_delay(ms(400));
    let client = client(&[("slots", "concurrency = 1")], &transport).await;
    let first = spawn(&client, Priority::High, get("/"));
    tokio::task::yield_now().await;
    let began = now();
    let error = client.send("a", Priority::High, get("/").max_wait(ms(300))).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Deadline, None));
    assert!((300..=302).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert!(first.await.unwrap().is_ok());
    assert_eq!(transport.calls().len(), 1);
    assert_idle(&client);
}

#[tokio::test(start_paused = true)]
async fn default_deadline_counts_for_waits_and_exchanges() {
    let transport = FakeTransport::new(|_| FakeAnswer::stall());
    let text = vendor(&[("slots", "concurrency = 1")]);
    let client = builder(&text, &transport).default_deadline(ms(700)).build().await.unwrap();
    let began = now();
    let stalled = spawn(&client, Priority::High, get("/"));
    let waits = spawn(&client, Priority::High, get("/"));
    let error = stalled.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Timeout, Delivery::Ambiguous));
    let error = waits.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Deadline, Delivery::NotSent));
    assert!((700..=702).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn full_queues_refuse() {
    let transport = transport_with_delay(ms(100));
    let text = vendor(&[("slots", "concurrency = 1")]);
    let client = builder(&text, &transport).max_waiting_per_tier(2).build().await.unwrap();
    let sends: Vec<_> = (0..3).map(|_| spawn(&client, Priority::Low, get("/"))).collect();
    wait_for_waiters(&client, 2).await;
    assert_eq!(client.in_flight(), 1);
    assert_eq!(client.lane("a", "v").unwrap().waiting(), [0, 0, 2].into());
    let error = client.send("a", Priority::Low, get("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::QueueFull, Delivery::NotSent));
    let high = spawn(&client, Priority::High, get("/high"));
    for send in sends {
        assert!(send.await.unwrap().is_ok());
    }
    assert!(high.await.unwrap().is_ok());
    assert_eq!(transport.calls().len(), 4);
    assert_idle(&client);
}

#[tokio::test(start_paused = true)]
async fn cost_that_never_fits_is_refused() {
    let points = format!("{}\nunit = \"points\"", per_second(10, 8));
    let transport = transport_with_delay(Duration::ZERO);
    let client = client(&[("points", &points)], &transport).await;
    let error = client.send("a", Priority::High, get("/").cost("points", 9)).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::CostAboveCapacity, Delivery::NotSent));
    assert_eq!(client.lane("a", "v").unwrap().acquire(Priority::Low, 9).await.unwrap_err().kind(), error.kind());
    let response = client.send("a", Priority::High, get("/").cost("points", 8)).await.unwrap();
    assert_eq!(response.headroom().unwrap().remaining(), 2);
}

#[tokio::test(start_paused = true)]
async fn lanes_and_permits() {
    let client = client(&[("slots", "concurrency = 2")], &transport_with_delay(Duration::ZERO)).await;
    let lane = client.lane("a", "v").unwrap();
    let first = lane.acquire(Priority::High, 1).await.unwrap();
    let second = client.try_acquire("a", "v", Priority::Low, 1).unwrap();
    assert_eq!((first.waited(), lane.headroom().unwrap().remaining()), (Duration::ZERO, 0));
    assert_eq!(lane.try_acquire(Priority::High, 1).unwrap_err().kind(), ErrorKind::NotNow);
    assert_eq!(client.in_flight(), 2);

    let began = now();
    let (third, ()) = tokio::join!(lane.acquire(Priority::Normal, 1), async {
        tokio::time::sleep(ms(50)).await;
        first.answered();
        tokio::time::sleep(ms(50)).await;
        first.finish();
    });
    let third = third.unwrap();
    assert_eq!((began.elapsed(), third.waited()), (ms(100), ms(100)), "answered frees no slot, finished does");
    second.not_sent();
    third.finish();
    assert_eq!(lane.headroom().unwrap().remaining(), 2);
    assert_idle(&client);
}

/// There is one slot. A future that is granted the permit and never polled again would hold the slot for ever.
#[tokio::test(start_paused = true)]
async fn future_that_nobody_polls_holds_up_nobody() {
    let transport = transport_with_delay(ms(10));
    let client = client(&[("slots", "concurrency = 1")], &transport).await;
    let held = client.lane("a", "v").unwrap().acquire(Priority::Normal, 1).await.unwrap();
    let mut sleepy = pin!(client.send("a", Priority::Normal, get("/sleepy")));
    assert!(poll_once(sleepy.as_mut()).await.is_pending());
    let others: Vec<_> = (0..5).map(|n| spawn(&client, Priority::Normal, get(&format!("/{n}")))).collect();
    wait_for_waiters(&client, 6).await;
    let began = now();
    held.finish();
    for other in others {
        other.await.unwrap().unwrap().text().await.unwrap();
    }
    let took = began.elapsed();
    println!("five others after a future that nobody polls: {took:?}");
    assert!((150..=156).contains(&took.as_millis()), "100 ms until it is revoked, and 10 ms each: {took:?}");
    assert_idle(&client);
    // The future still gets its turn once it is polled again.
    sleepy.await.unwrap().text().await.unwrap();
    assert_eq!(transport.calls().len(), 6);
    assert_idle(&client);
}

#[tokio::test(start_paused = true)]
async fn dropped_future_returns_its_missed_grant() {
    let client = client(&[("slots", "concurrency = 1")], &transport_with_delay(ms(10))).await;
    let held = client.lane("a", "v").unwrap().acquire(Priority::Normal, 1).await.unwrap();
    for wait in [0, 50, 200] {
        let mut sleepy = Box::pin(client.send("a", Priority::Normal, get("/sleepy")));
        assert!(poll_once(sleepy.as_mut()).await.is_pending());
        tokio::time::sleep(ms(wait)).await;
        drop(sleepy);
    }
    let mut sleepy = Box::pin(client.send("a", Priority::Normal, get("/sleepy")));
    assert!(poll_once(sleepy.as_mut()).await.is_pending());
    held.finish();
    tokio::time::sleep(ms(500)).await;
    drop(sleepy);
    assert_idle(&client);
    client.try_send("a", Priority::Low, get("/")).await.unwrap();
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[tokio::test(start_paused = true)]
async fn slot_is_held_until_body_ends() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).body("done").body_delay(ms(40)));
    let client = client(&[("slots", "concurrency = 1")], &transport).await;
    let slot_free = async || client.try_send("a", Priority::High, get("/")).await.is_ok();

    let response = client.send("a", Priority::High, get("/")).await.unwrap();
    assert!(!slot_free().await);
    assert_eq!(response.text().await.unwrap(), "done");
    assert!(slot_free().await);

    let response = client.send("a", Priority::High, get("/")).await.unwrap();
    assert!(!slot_free().await);
    drop(response);
    assert!(slot_free().await);

    let mut response = client.send("a", Priority::High, get("/")).await.unwrap();
    assert_eq!(response.chunk().await.unwrap().as_deref(), Some(&b"done"[..]));
    assert!(!slot_free().await, "there may be more");
    assert_eq!(response.chunk().await.unwrap(), None);
    assert!(slot_free().await, "the last piece was read");
    drop(response);

    let response = client.send("a", Priority::High, get("/")).await.unwrap();
    let reading = response.text();
    drop(reading);
    assert!(slot_free().await, "a read that was cancelled");
}
