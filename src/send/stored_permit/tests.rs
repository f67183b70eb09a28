//! Stored jobs on virtual time. A store that stalls between a grant and its exchange: the vendor's limits hold
//! nevertheless. Waits of a job before its exchange: they take nothing of the exchange's time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: helpers unwrap too")]

mod endings;
mod outages;
#[cfg(feature = "oauth")]
mod tokens;
mod unfit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use secrecy::SecretString;
use tokio::sync::watch;

use crate::clock::{Clock, Time};
use crate::config::TenantEntry;
use crate::dead_letter::Reason;
use crate::error::Error;
use crate::outbox::starts::Starts;
use crate::send::durable::{ClaimEnd, Sending, send_stored};
use crate::send::exchange_record::{RecordExchange, StoreTime};
use crate::send::history::History;
use crate::testing::{FakeAnswer, FakeTransport};
use crate::transport::{Body, Signer, SigningParts};
use crate::{BoxError, BoxFuture, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request};

const SECOND: Duration = Duration::from_secs(1);

/// Writes each record in `each`, except while it stalls.
struct StallingRecords {
    clock: Clock,
    began: Time,
    each: Duration,
    /// Stalls of the store: the start of each, counted from `began`, and its length.
    stalls: Vec<(Duration, Duration)>,
    writing: Starts,
    records: AtomicUsize,
    stop: watch::Sender<bool>,
}

impl StallingRecords {
    fn new(each: Duration, stalls: &[(u64, u64)]) -> Arc<StallingRecords> {
        let clock = Clock::system();
        let seconds = |(from, length): &(u64, u64)| (Duration::from_secs(*from), Duration::from_secs(*length));
        Arc::new(StallingRecords {
            clock,
            began: clock.now(),
            each,
            stalls: stalls.iter().map(seconds).collect(),
            writing: Starts::new(clock),
            records: AtomicUsize::new(0),
            stop: watch::Sender::new(false),
        })
    }
}

impl RecordExchange for StallingRecords {
    fn start<'a>(&'a self, _: &'a str, _: u32, again: bool) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let _writing = self.writing.begin();
            self.records.fetch_add(usize::from(!again), Relaxed);
            tokio::time::sleep(self.each).await;
            let now = self.clock.now().since(self.began);
            for (from, length) in &self.stalls {
                if *from <= now && now < *from + *length {
                    tokio::time::sleep(*from + *length - now).await;
                }
            }
            Ok(true)
        })
    }

    fn latest(&self) -> Duration {
        2 * SECOND
    }

    fn stall(&self) -> Option<BoxFuture<'_, ()>> {
        self.writing.stall()
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        let mut stop = self.stop.subscribe();
        Box::pin(async move { drop(stop.wait_for(|stop| *stop).await) })
    }
}

const TWENTY: &str =
    "[[vendors.v.limits]]\nname = \"r\"\nalgorithm = \"sliding_window\"\nlimit = 20\nwindow = \"1s\"\n";

/// One unit in a time that is longer than a claim waits for its permit, and shorter than a claim with its exchange.
const SLOW: &str = "[[vendors.v.limits]]\nname = \"r\"\nalgorithm = \"sliding_window\"\nlimit = 1\nwindow = \"85s\"\n\
                    safety = 1.0\n";

fn builder(limits: &str, transport: &FakeTransport) -> IntegrationClientBuilder {
    let text = format!(
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\nconnect_timeout = \"1s\"\n{limits}"
    );
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    builder.tenant(TenantEntry::new("acme", "v"))
}

/// As [`builder`], for a vendor that takes a secret, which can be read or not.
fn builder_with_secret(limits: &str, transport: &FakeTransport, is_readable: bool) -> IntegrationClientBuilder {
    let text =
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"bearer\" }\nconnect_timeout = \"1s\"\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(format!("{text}{limits}"));
    let builder = builder.transport(transport.clone()).tenant(TenantEntry::new("acme", "v").credential("keys:acme"));
    builder.credential_resolver("keys", move |key: String| async move {
        if is_readable { Ok(SecretString::from(key)) } else { Err(BoxError::from("it cannot be read now")) }
    })
}

fn job(number: usize, records: Arc<dyn RecordExchange>) -> Sending {
    Sending {
        id: format!("{number:032}"),
        tenant: "acme".to_owned(),
        priority: Priority::High,
        request: Request::get("v", format!("/{number}")),
        history: History::default(),
        clock: StoreTime { at: Clock::system().moment(), ms: 0 },
        records,
        begun: Arc::new(AtomicBool::new(false)),
        has_reader: false,
        may_be_known: false,
    }
}

/// The most calls within any `window`.
fn most_within(window: Duration, calls: &[Time]) -> usize {
    let within = |from: &Time| calls.iter().filter(|at| *at >= from && **at < *from + window).count();
    calls.iter().map(within).max().unwrap_or(0)
}

/// Sends `jobs` jobs at once through a limit of 20 a second. Returns when each call reached the vendor.
async fn run(jobs: usize, answers_after: Duration, records: Arc<dyn RecordExchange>) -> Vec<Time> {
    let transport = FakeTransport::new(move |_| FakeAnswer::status(200).delay(answers_after));
    let client = builder(TWENTY, &transport).build().await.unwrap();
    let mut sends = tokio::task::JoinSet::new();
    for number in 0..jobs {
        let (client, job) = (client.clone(), job(number, records.clone()));
        sends.spawn(async move { matches!(send_stored(client.core(), job, None).await, ClaimEnd::Delivered(_)) });
    }
    assert!(sends.join_all().await.into_iter().all(|delivered| delivered), "a job was not delivered");
    transport.calls().iter().map(|call| call.at).collect()
}

#[tokio::test(start_paused = true)]
async fn stalled_store_exceeds_no_window() {
    let records = StallingRecords::new(Duration::from_millis(5), &[(1, 4), (8, 4), (14, 4), (20, 16)]);
    let calls = run(400, Duration::from_millis(50), records.clone()).await;
    assert_eq!((calls.len(), records.records.load(Relaxed)), (400, 400), "each is sent and recorded once");
    assert!(most_within(SECOND, &calls) <= 20, "{}", most_within(SECOND, &calls));
}

#[tokio::test(start_paused = true)]
async fn random_stalls_exceed_no_window() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let stalls: Vec<(u64, u64)> = (0..4).map(|number| (number * 10 + rng.u64(0..6), rng.u64(1..10))).collect();
        let records = StallingRecords::new(Duration::from_millis(rng.u64(0..150)), &stalls);
        let answers = Duration::from_millis(rng.u64(1..400));
        let calls = run(200, answers, records).await;
        let most = most_within(SECOND, &calls);
        assert!(calls.len() == 200 && most <= 20, "seed {seed}: {most} in one second, {} in all", calls.len());
    }
}

#[tokio::test(start_paused = true)]
async fn slow_store_leaves_the_limit_in_use() {
    let ended = |calls: Vec<Time>| calls.into_iter().max().unwrap_or_default().since(Time::ZERO);
    let answers = Duration::from_millis(20);
    let quick = ended(run(400, answers, StallingRecords::new(Duration::from_millis(2), &[])).await);
    // Records that take longer than the engine holds a grant, and as long as the slowest disks take.
    for each in [150, 400, 1_000] {
        let slow = ended(run(400, answers, StallingRecords::new(Duration::from_millis(each), &[])).await);
        assert!(slow < quick.mul_f64(1.25) + Duration::from_millis(each), "{each} ms: {slow:?}, else {quick:?}");
    }
}

/// At one a second the record takes less time than the next unit, at five a second more.
#[tokio::test(start_paused = true)]
async fn slow_store_leaves_a_job_its_share_beside_plain_sends() {
    for (limit, each) in [(1, 150), (1, 400), (5, 400)] {
        let transport = FakeTransport::new(|_| FakeAnswer::status(200));
        let client = builder(&TWENTY.replace("20", &limit.to_string()), &transport).build().await.unwrap();
        let mut sends = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let client = client.clone();
            sends.spawn(async move {
                while client.send("acme", Priority::High, Request::get("v", "/plain")).await.is_ok() {}
            });
        }
        tokio::time::sleep(3 * SECOND).await;
        let records = StallingRecords::new(Duration::from_millis(each), &[]);
        let job = Sending { priority: Priority::Low, ..job(1, records.clone()) };
        // One turn in seven is a job's, and a unit comes every 1.25 s or every 0.25 s.
        let share = Duration::from_millis(8 * 1_250 / limit + each);
        let ending = tokio::time::timeout(share, send_stored(client.core(), job, None)).await;
        assert!(matches!(ending, Ok(ClaimEnd::Delivered(_))), "{limit} a second, {each} ms");
        assert_eq!(records.records.load(Relaxed), 1, "{limit} a second, {each} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn expired_exchange_is_dropped_after_a_stall() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = builder(TWENTY, &transport).build().await.unwrap();
    let records = StallingRecords::new(Duration::ZERO, &[(0, 10)]);
    let ending = send_stored(client.core(), job(1, records), Some(3 * SECOND)).await;
    assert!(matches!(ending, ClaimEnd::Later { .. }));
    assert!(transport.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn grant_after_the_deadline_is_not_sent() {
    for millis in (900..1_500).step_by(20) {
        let transport = FakeTransport::new(|_| FakeAnswer::status(200));
        let client = builder(&TWENTY.replace("20", "1"), &transport).build().await.unwrap();
        client.send("acme", Priority::High, Request::get("v", "/first")).await.unwrap();
        let late = Request::get("v", "/late").deadline(Duration::from_millis(millis));
        let mut late = std::pin::pin!(client.send("acme", Priority::High, late));
        tokio::select! {
            biased;
            _ = &mut late => {}
            () = tokio::task::yield_now() => {
                // The task that polls the send is busy elsewhere until the deadline has passed.
                tokio::time::sleep(Duration::from_millis(millis + 1)).await;
                let error = late.await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Deadline, "{millis} ms: {error}");
            }
        }
        assert_eq!(transport.calls().len(), 1, "{millis} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn recorded_exchange_goes_back_at_a_stop() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = builder(TWENTY, &transport).build().await.unwrap();
    let records = StallingRecords::new(Duration::from_millis(300), &[]);
    let job = job(1, records.clone());
    let begun = job.begun.clone();
    let stop = async {
        // The tenant is paused while the store is slow.
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.tenants().pause("acme", "v").unwrap();
        tokio::time::sleep(Duration::from_millis(850)).await;
        assert!(begun.load(Relaxed), "it is recorded");
        records.stop.send_replace(true);
    };
    let (ending, ()) = tokio::join!(send_stored(client.core(), job, None), stop);
    assert!(matches!(ending, ClaimEnd::Later { wait: Duration::ZERO, .. }), "it is nothing that may have been sent");
    assert!(transport.calls().is_empty());
}

#[expect(clippy::disallowed_methods, reason = "it stands for a signer that blocks")]
fn block() {
    std::thread::sleep(Duration::from_millis(300));
}

/// A signer that takes 300 ms the first time.
#[derive(Clone, Default)]
struct SlowSigner(Arc<AtomicUsize>);

impl Signer for SlowSigner {
    fn sign(
        &self,
        _: &mut SigningParts<'_>,
        _: Option<&SecretString>,
        _: SystemTime,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if self.0.fetch_add(1, Relaxed) == 0 {
            block();
        }
        Ok(())
    }
}

#[tokio::test]
async fn late_signature_is_renewed_on_new_grant() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let text = format!("max_transit = \"1s\"\n{TWENTY}");
    let signer = SlowSigner::default();
    let client = builder(&text, &transport).signer("v", signer.clone()).build().await.unwrap();
    client.send("acme", Priority::High, Request::get("v", "/")).await.unwrap();
    assert_eq!((signer.0.load(Relaxed), transport.calls().len()), (2, 1));
}

/// A streaming body whose exchange did not begin goes with the next one.
#[tokio::test]
async fn late_signature_keeps_streaming_body() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let text = format!("max_transit = \"1s\"\n{TWENTY}");
    let signer = SlowSigner::default();
    let client = builder(&text, &transport).signer("v", signer.clone()).build().await.unwrap();
    let body = Body::wrap(Full::new(Bytes::from_static(b"content")));
    client.send("acme", Priority::High, Request::post("v", "/").body(body)).await.unwrap();
    let bodies: Vec<Bytes> = transport.calls().into_iter().map(|call| call.body).collect();
    assert_eq!((signer.0.load(Relaxed), bodies), (2, vec![Bytes::from_static(b"content")]));
}

/// A vendor whose host can be made reachable.
fn switchable_host(up: &Arc<AtomicBool>) -> FakeTransport {
    let up = up.clone();
    FakeTransport::new(move |_| match up.load(Relaxed) {
        true => FakeAnswer::status(200),
        false => FakeAnswer::not_connected(),
    })
}

/// Five failures in a row open the host's circuit for a second.
async fn open_host(client: &IntegrationClient) {
    for _ in 0..5 {
        let error = client.try_send("acme", Priority::High, Request::get("v", "/")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect);
    }
}

#[tokio::test(start_paused = true)]
async fn job_for_open_host_is_not_recorded() {
    let up = Arc::<AtomicBool>::default();
    let transport = switchable_host(&up);
    let client = builder(TWENTY, &transport).build().await.unwrap();
    open_host(&client).await;
    let records = StallingRecords::new(Duration::ZERO, &[]);
    let job = job(1, records.clone());
    let watch = async {
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert_eq!(records.records.load(Relaxed), 0, "nothing leaves");
        up.store(true, Relaxed);
    };
    let (ending, ()) = tokio::join!(send_stored(client.core(), job, None), watch);
    assert!(matches!(ending, ClaimEnd::Delivered(_)));
    assert_eq!((records.records.load(Relaxed), transport.calls().len()), (1, 6));
}

#[tokio::test(start_paused = true)]
async fn store_that_stalls_holds_no_probe() {
    let up = Arc::<AtomicBool>::default();
    let transport = switchable_host(&up);
    let client = builder(TWENTY, &transport).build().await.unwrap();
    open_host(&client).await;
    let (began, clock) = (Clock::system().now(), Clock::system());
    let job = job(1, StallingRecords::new(Duration::ZERO, &[(0, 30)]));
    let other = async {
        // The job has waited for the host for longer than this request, so it is the first to try the host.
        tokio::time::sleep(Duration::from_millis(100)).await;
        up.store(true, Relaxed);
        client.send("acme", Priority::High, Request::get("v", "/other")).await.unwrap();
        clock.now().since(began)
    };
    let (_, took) = tokio::join!(send_stored(client.core(), job, None), other);
    assert!(took < Duration::from_millis(2_500), "a second for the host, and one for the probe: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn unprocessed_job_is_resent_without_a_retry() {
    let transport = FakeTransport::new(|call| match call.number {
        0..6 => FakeAnswer::refused_stream(),
        _ => FakeAnswer::status(200),
    });
    let client = builder(TWENTY, &transport).build().await.unwrap();
    let records = StallingRecords::new(Duration::ZERO, &[]);
    let mut history = History::default();
    // The job is sent again even if its lane is paused for longer than a job waits in memory.
    loop {
        let request = Request::post("v", "/").body("content");
        match send_stored(client.core(), Sending { request, history, ..job(1, records.clone()) }, None).await {
            ClaimEnd::Later { wait, history: next } => {
                assert_eq!((next.retries, next.connects), (0, next.exchanges));
                tokio::time::sleep(wait).await;
                history = next;
            }
            ClaimEnd::Delivered(_) => break,
            _ => panic!("given up after {} calls", transport.calls().len()),
        }
    }
    assert_eq!(transport.calls().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn retried_job_leaves_its_exchange_the_whole_time() {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(200),
        _ => FakeAnswer::status(200).delay(10 * SECOND),
    });
    let client = builder(SLOW, &transport).build().await.unwrap();
    client.send("acme", Priority::High, Request::get("v", "/first")).await.unwrap();
    let send = |history| {
        let request = Request::post("v", "/").body("content");
        Sending { request, history, ..job(1, StallingRecords::new(Duration::ZERO, &[])) }
    };
    let tried = History { exchanges: 1, ..History::default() };
    let ending = send_stored(client.core(), send(tried), None).await;
    let ClaimEnd::Later { wait, history } = ending else { panic!("the limit has no unit for the job") };
    assert_eq!(transport.calls().len(), 1, "nothing left of an exchange that would have been cut off");
    tokio::time::sleep(wait).await;
    let ending = send_stored(client.core(), send(history), None).await;
    assert!(matches!(ending, ClaimEnd::Delivered(_)));
}

#[tokio::test(start_paused = true)]
async fn job_waits_for_its_host_no_longer_than_for_a_permit() {
    // The sixth connection, the probe, takes longer than a claim waits.
    let transport = FakeTransport::new(|call| match call.number {
        0..5 => FakeAnswer::not_connected(),
        _ => FakeAnswer::not_connected().delay(75 * SECOND),
    });
    let text = format!("[vendors.v]\nbase_url = \"https://v.example\"\nconnect_timeout = \"80s\"\n{TWENTY}");
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    let client = builder.tenant(TenantEntry::new("acme", "v")).build().await.unwrap();
    open_host(&client).await;
    tokio::time::sleep(2 * SECOND).await;
    let probe = Request::get("v", "/").attempt_timeout(100 * SECOND).deadline(100 * SECOND);
    let probe = client.try_send("acme", Priority::High, probe);
    let records = StallingRecords::new(Duration::ZERO, &[]);
    let waiting = async {
        tokio::time::sleep(SECOND).await;
        let clock = Clock::system();
        let began = clock.now();
        let ending = send_stored(client.core(), job(1, records.clone()), None).await;
        (ending, clock.now().since(began))
    };
    let (_, (ending, took)) = tokio::join!(probe, waiting);
    assert!(matches!(ending, ClaimEnd::Later { .. }));
    assert!(took < 61 * SECOND, "{took:?}");
    assert_eq!((records.records.load(Relaxed), transport.calls().len()), (0, 6));
}
