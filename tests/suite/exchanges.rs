//! The client counts exactly the exchanges that the vendor has seen: no redirect, retry or connection of a lower layer
//! adds an exchange without a permit. Over sockets, with vendors that reset, redirect, refuse and send GOAWAY.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too, and figures are printed"
)]

use crate::support::http2;
use crate::support::tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http2::{Http2Vendor, Troubles};
use integration_client::BoxFuture;
use integration_client::config::TenantEntry;
use integration_client::dead_letter::{MemorySink, Phase};
use integration_client::testing::{FakeVendor, Fault, HeaderStyle, Outage, VendorLimit, When, literal};
use integration_client::transport::{Answer, Exchange, ReqwestTransport, Sent, Transport, TransportError};
use integration_client::{Delivery, ErrorKind, IntegrationClient, Priority, Request};
use tls::{Authority, Leaf};
use tokio::time::Instant;

const CALLERS: u64 = 50;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

/// Wraps the client's own transport and counts its exchanges. There is one exchange for each started permit, so this
/// also counts permits.
struct CountingTransport {
    inner: ReqwestTransport,
    counts: Arc<StartedPermits>,
}

#[derive(Default)]
struct StartedPermits {
    permits: AtomicU64,
    /// The permits whose exchange was never sent.
    never_left: AtomicU64,
    /// The permits whose exchange the vendor disowned: it said that it did not process the request.
    unprocessed: AtomicU64,
    /// The exchanges that ended at their deadline without a response. hyper may have forgotten one that it was about to
    /// write when its connection ended (see docs/DESIGN.md), which the client cannot know.
    late: AtomicU64,
}

impl Transport for CountingTransport {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        self.counts.permits.fetch_add(1, Relaxed);
        let (counts, exchange) = (self.counts.clone(), self.inner.execute(exchange));
        Box::pin(async move {
            let result = exchange.await;
            match &result {
                Err(error) if error.sent() == Sent::NotSent => drop(counts.never_left.fetch_add(1, Relaxed)),
                Err(error) if error.sent() == Sent::Unprocessed => drop(counts.unprocessed.fetch_add(1, Relaxed)),
                Err(error) if error.kind() == ErrorKind::Timeout => drop(counts.late.fetch_add(1, Relaxed)),
                _ => {}
            }
            result
        })
    }
}

/// A client, with the counts of its sends.
struct Sender {
    client: IntegrationClient,
    sink: Arc<MemorySink>,
    started: Arc<StartedPermits>,
    told: Arc<CallerOutcomes>,
}

/// The outcomes that the callers got.
#[derive(Default)]
struct CallerOutcomes {
    /// The sum of the attempts of all responses.
    attempts: AtomicU64,
    answered: AtomicU64,
    answered_later: AtomicU64,
    moved: AtomicU64,
    letters: AtomicU64,
}

impl Sender {
    async fn new(toml: &str) -> Sender {
        let (sink, started) = (Arc::new(MemorySink::new(1_000_000)), Arc::<StartedPermits>::default());
        let client = IntegrationClient::builder()
            .without_catalogue()
            .vendors_toml(format!("{toml}\n[vendors.v.retry]\nmax_retries = 3\nfirst_wait = \"10ms\"\n"))
            .tenant(TenantEntry::new("a", "v").account("a").credential("keys:a"))
            .credential_resolver("keys", literal)
            .dead_letter_sink(sink.clone())
            .transport(CountingTransport { inner: ReqwestTransport::new(), counts: started.clone() })
            .build()
            .await
            .unwrap();
        Sender { client, sink, started, told: Arc::default() }
    }

    /// Starts `sends` sends, divided among callers who each wait for a response before the next send.
    fn start_sends(&self, sends: u64) -> tokio::task::JoinSet<()> {
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..CALLERS {
            let (client, told) = (self.client.clone(), self.told.clone());
            let own = sends / CALLERS + u64::from(caller < sends % CALLERS);
            tasks.spawn(async move {
                for _ in 0..own {
                    let request =
                        if caller % 2 == 0 { Request::get("v", "/x") } else { Request::put("v", "/x").body("content") };
                    match client.send("a", Priority::Normal, request.deadline(secs(60)).attempt_timeout(secs(15))).await
                    {
                        Ok(response) => {
                            told.attempts.fetch_add(response.attempts().into(), Relaxed);
                            told.answered.fetch_add(1, Relaxed);
                            told.answered_later.fetch_add(u64::from(response.attempts() > 1), Relaxed);
                            told.moved.fetch_add(u64::from(response.status() == 307), Relaxed);
                            response.bytes().await.unwrap();
                        }
                        Err(error) => {
                            assert!(error.letter_id().is_some(), "{error:?}");
                            told.letters.fetch_add(1, Relaxed);
                        }
                    }
                }
            });
        }
        tasks
    }

    /// Returns how many permits were started whose exchange may have been sent, once all dead letters are written.
    /// Asserts that the transport, the responses and the dead letters agree on that number.
    async fn may_have_left(&self) -> u64 {
        let letters = self.told.letters.load(Relaxed);
        let until = now() + secs(5);
        let (written, under_way) = (|| self.sink.letters().len() as u64, || self.client.in_flight());
        // A permit may be given back shortly after its caller has the outcome.
        while written() < letters || under_way() > 0 {
            assert!(now() < until, "{} of {letters} letters, {} under way", written(), under_way());
            tokio::time::sleep(ms(20)).await;
        }
        let records = self.sink.letters().into_iter().flat_map(|letter| letter.attempts);
        let of_letters = records.filter(|record| record.phase != Phase::NotSent).count() as u64;
        let (permits, never_left) = (self.started.permits.load(Relaxed), self.started.never_left.load(Relaxed));
        assert_eq!(self.told.attempts.load(Relaxed) + of_letters, permits - never_left);
        permits - never_left
    }

    fn report(&self, sends: u64, began: Instant) -> String {
        let told = &self.told;
        format!(
            "{sends} sends in {:.1} s: {} permits started, {} never left, {} not processed, {} late; {} answered, {} of them at \
             a second try or later, {} by a 307, {} dead letters",
            began.elapsed().as_secs_f64(),
            self.started.permits.load(Relaxed),
            self.started.never_left.load(Relaxed),
            self.started.unprocessed.load(Relaxed),
            self.started.late.load(Relaxed),
            told.answered.load(Relaxed),
            told.answered_later.load(Relaxed),
            told.moved.load(Relaxed),
            told.letters.load(Relaxed),
        )
    }
}

async fn join_all(mut tasks: tokio::task::JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// Over HTTP/1, with resets, redirects, failures, and a vendor that cannot be reached for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vendor_sees_each_started_exchange() {
    const SENDS: u64 = 50_000;
    let vendor = FakeVendor::builder()
        .headers(HeaderStyle::Silent)
        .limit(VendorLimit::concurrency(20))
        .fault(When::any().every(53), Fault::Reset)
        .fault(When::any().every(11), Fault::Status(307))
        .fault(When::any().every(97), Fault::Status(503))
        .start()
        .await
        .unwrap();
    let sender = Sender::new(&vendor.vendors_toml("v")).await;
    let began = now();
    join_all(sender.start_sends(SENDS / 2)).await;

    // No request is under way, so all failures come from connections that cannot be made.
    vendor.set_outage(Some(Outage::Refuse));
    tokio::time::sleep(ms(100)).await;
    let before = vendor.summary().arrived;
    let tasks = sender.start_sends(SENDS / 2);
    tokio::time::sleep(ms(200)).await;
    assert_eq!(vendor.summary().arrived, before, "nothing gets through");
    vendor.set_outage(None);
    join_all(tasks).await;

    let left = sender.may_have_left().await;
    let summary = vendor.summary();
    println!(
        "HTTP/1, {}; the vendor saw {}, {} of them with a fault",
        sender.report(SENDS, began),
        summary.arrived,
        summary.faults
    );
    assert_eq!((summary.arrived, sender.started.late.load(Relaxed)), (left, 0));
    let told = &sender.told;
    assert_eq!(told.answered.load(Relaxed) + told.letters.load(Relaxed), SENDS);
    assert!(summary.arrived > SENDS && summary.faults > SENDS / 10, "{summary:?}");
    assert!(told.moved.load(Relaxed) > SENDS / 20 && sender.started.never_left.load(Relaxed) > 0);
}

/// Over HTTP/2 and TLS, with GOAWAY in the middle of open streams, after which the vendor answers the streams up to the
/// last one or cuts them off; with refused and reset streams, redirects and failures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vendor_sees_each_http2_exchange_despite_goaway() {
    const SENDS: u64 = 50_000;
    let authority = Authority::new();
    let troubles = Troubles {
        moved_every: 11,
        failed_every: 97,
        refused_every: 101,
        reset_every: 89,
        goaway_after: 500,
        ..Troubles::default()
    };
    let vendor = Http2Vendor::start(authority.acceptor(Leaf::Good, &["h2"]), troubles).await;
    let sender = Sender::new(&format!(
        r#"
[vendors.v]
base_url = "https://{}"
auth = {{ scheme = "bearer" }}
connection = {{ extra_ca = "{}" }}
[[vendors.v.limits]]
name = "parallel"
concurrency = 40
"#,
        vendor.address,
        authority.path().display()
    ))
    .await;
    let began = now();
    join_all(sender.start_sends(SENDS)).await;

    let arrived = sender.may_have_left().await;
    let left = arrived - sender.started.unprocessed.load(Relaxed);
    let of = |count: &AtomicU64| count.load(Relaxed);
    let (counts, told) = (&vendor.counts, &sender.told);
    println!(
        "HTTP/2, {}; the vendor saw {} heads on {} connections, disowned {} by {} GOAWAYs, cut off {} below those, and \
         may have acted on {}",
        sender.report(SENDS, began),
        of(&counts.heads),
        of(&counts.connections),
        of(&counts.disowned),
        of(&counts.goaways),
        of(&counts.cut),
        of(&counts.processed),
    );
    let (processed, late) = (of(&counts.processed), of(&sender.started.late));
    assert!(
        (left - late..=left).contains(&processed),
        "above the last stream is not sent, below it is: {processed} of {left}, {late} late"
    );
    assert!(late <= 20, "{late}");
    let (permits, never_left) = (of(&sender.started.permits), of(&sender.started.never_left));
    assert!(of(&counts.heads) <= permits, "{permits} permits, {} heads", of(&counts.heads));
    assert!(of(&counts.heads) - of(&counts.processed) <= never_left + of(&sender.started.unprocessed));
    assert!(of(&counts.heads) <= arrived + never_left, "{arrived} may have arrived, {} heads", of(&counts.heads));
    assert_eq!(of(&told.answered) + of(&told.letters), SENDS);
    assert!(of(&counts.goaways) > 50 && of(&counts.disowned) > 50 && of(&counts.cut) > 50);
    assert!(of(&told.moved) > SENDS / 20);
}

/// Makes `sends` POSTs without an idempotency key through a client of an HTTP/2 vendor with a limit of `limit` requests
/// a second, and counts their outcomes.
async fn send_posts(
    vendor: &Http2Vendor,
    authority: &Authority,
    limit: u32,
    sends: usize,
    deadline: Duration,
) -> Outcomes {
    send_all(vendor, authority, limit, sends, move || Request::post("v", "/x").body("content").deadline(deadline)).await
}

/// A client of the tenants `a` and `b` of an HTTP/2 vendor with a limit of `limit` requests a second for each.
async fn client_of(vendor: &Http2Vendor, authority: &Authority, limit: u32) -> IntegrationClient {
    let toml = format!(
        r#"
[vendors.v]
base_url = "https://{}"
connection = {{ extra_ca = "{}" }}
retry = {{ first_wait = "100ms", longest_wait = "1s" }}
[[vendors.v.limits]]
name = "requests"
algorithm = "sliding_window"
limit = {limit}
window = "1s"
"#,
        vendor.address,
        authority.path().display()
    );
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(toml);
    builder.tenant(TenantEntry::new("a", "v")).tenant(TenantEntry::new("b", "v")).build().await.unwrap()
}

/// Makes `sends` requests at once, as [`send_posts`] does.
async fn send_all(
    vendor: &Http2Vendor,
    authority: &Authority,
    limit: u32,
    sends: usize,
    request: impl Fn() -> Request,
) -> Outcomes {
    let client = client_of(vendor, authority, limit).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..sends {
        let (client, request) = (client.clone(), request());
        tasks.spawn(async move {
            client.send("a", Priority::Normal, request).await.map(|response| response.status().as_u16())
        });
    }
    let mut posts = Outcomes::default();
    while let Some(ended) = tasks.join_next().await {
        match ended.unwrap() {
            Ok(_) => posts.answered += 1,
            Err(error) => posts.errors.push(error),
        }
    }
    let letters = client.dead_letter_counts();
    posts.letters = letters.waiting as u64 + letters.written;
    posts
}

#[derive(Default)]
struct Outcomes {
    answered: usize,
    errors: Vec<integration_client::Error>,
    letters: u64,
}

/// A vendor may count a stream that it refuses, so the permit stays spent, and the lane is paused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_streams_spend_permits_and_pause() {
    let authority = Authority::new();
    let troubles = Troubles { refused_every: 1, ..Troubles::default() };
    let vendor = Http2Vendor::start(authority.acceptor(Leaf::Good, &["h2"]), troubles).await;
    let posts = send_posts(&vendor, &authority, 10, 1000, secs(3)).await;
    let (heads, most) = (vendor.counts.heads.load(Relaxed), vendor.counts.most_within(secs(1)));
    println!("{heads} streams in 3 s at a limit of 10/s, {most} within a second");
    assert!(most <= 10, "{most} streams within a second at a limit of 10");
    assert!(heads < 24, "{heads} streams to a vendor that refuses all of them");
    assert_eq!((posts.answered, posts.letters), (0, 0), "no request is given up for being refused");
    assert!(posts.errors.iter().all(|error| error.delivery() != Delivery::Ambiguous), "{:?}", posts.errors[0]);
}

/// The vendor closes the connection after every third request: the streams that the GOAWAY disowns count in the limit,
/// and their requests are sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disowned_streams_spend_permits_and_are_resent() {
    for code in [0, 11] {
        let authority = Authority::new();
        let troubles = Troubles { disown_after: 3, goaway_code: code, ..Troubles::default() };
        let vendor = Http2Vendor::start(authority.acceptor(Leaf::Good, &["h2"]), troubles).await;
        let posts = send_posts(&vendor, &authority, 20, 40, secs(40)).await;
        let (counts, most) = (&vendor.counts, vendor.counts.most_within(secs(1)));
        println!("GOAWAY({code}): {} streams, {} disowned", counts.heads.load(Relaxed), counts.disowned.load(Relaxed));
        assert!(most <= 20, "{most} streams within a second at a limit of 20");
        assert_eq!(posts.letters, 0);
        let late = posts.errors.iter().filter(|error| error.kind() == ErrorKind::Timeout).count();
        // hyper may forget requests that are being handed to a connection while it ends (see docs/DESIGN.md).
        assert!(late <= 2, "GOAWAY({code}): {late} ended at their timeout");
        assert_eq!(posts.answered + late, 40, "GOAWAY({code}): {:?}", posts.errors);
        assert_eq!(counts.processed.load(Relaxed), posts.answered as u64, "each was processed once");
        assert!(counts.disowned.load(Relaxed) > 0);
    }
}

/// The first request that waits for a free stream when its connection ends is sent again, as those behind it are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_waiting_for_a_stream_are_resent() {
    let authority = Authority::new();
    let troubles = Troubles { most_streams: 4, goaway_after: 50, answers_open: true, ..Troubles::default() };
    let vendor = Http2Vendor::start(authority.acceptor(Leaf::Good, &["h2"]), troubles).await;
    let gets = send_all(&vendor, &authority, 1_000, 1_000, || Request::get("v", "/x").deadline(secs(60))).await;
    // Now and then so many requests lose their connection that the client's bound on the share of retries is reached.
    let are_resent = gets.errors.iter().all(|error| error.kind() == ErrorKind::Exhausted);
    assert!(are_resent && gets.answered >= 990, "{} of 1,000: {:?}", gets.answered, gets.errors);
    assert!(vendor.counts.connections.load(Relaxed) > 15);
}

/// A tenant holds as many unfinished responses as a connection has streams. Another tenant's request gets a connection of
/// its own, and does not wait within hyper.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_responses_stop_no_other_tenant() {
    let authority = Authority::new();
    let troubles = Troubles { most_streams: 64, endless_bodies: 64, endless_bytes: 1, ..Troubles::default() };
    let vendor = Http2Vendor::start(authority.acceptor(Leaf::Good, &["h2"]), troubles).await;
    let client = client_of(&vendor, &authority, 1_000).await;
    let get = || Request::get("v", "/x").attempt_timeout(secs(60)).deadline(secs(60));
    // Alone, because requests without a connection each open one.
    let mut held = vec![client.send("a", Priority::Normal, get()).await.unwrap()];
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 1..64 {
        let (client, request) = (client.clone(), get());
        tasks.spawn(async move { client.send("a", Priority::Normal, request).await.unwrap() });
    }
    held.extend(tasks.join_all().await);
    assert_eq!(vendor.counts.connections.load(Relaxed), 1);

    let post = || Request::post("v", "/x").body("content").attempt_timeout(secs(5)).deadline(secs(20));
    let send_post = async || client.send("b", Priority::Normal, post()).await.unwrap().text().await.unwrap();
    assert_eq!(send_post().await, "xx");
    assert_eq!(vendor.counts.connections.load(Relaxed), 2);
    drop(held);
    assert_eq!(send_post().await, "xx");
    assert_eq!(vendor.counts.connections.load(Relaxed), 2, "the first has room again");
}

/// The vendor sends as much of five bodies as the client's windows allow, and the test reads none of them. With hyper's
/// default windows these five would use up the connection's window, and no other response could arrive on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_bodies_stop_no_other_tenant() {
    const WINDOWS: u64 = 5 << 20;
    let authority = Authority::new();
    let troubles = Troubles { endless_bodies: 5, endless_bytes: 3 << 19, ..Troubles::default() };
    let vendor = Http2Vendor::start(authority.acceptor(Leaf::Good, &["h2"]), troubles).await;
    let client = client_of(&vendor, &authority, 1_000).await;
    let mut unread = Vec::new();
    for _ in 0..5 {
        let get = Request::get("v", "/x").attempt_timeout(secs(60)).deadline(secs(60));
        unread.push(client.send("a", Priority::Normal, get).await.unwrap());
    }
    let (until, sent) = (now() + secs(10), || vendor.counts.body_bytes.load(Relaxed));
    while sent() < WINDOWS {
        assert!(now() < until, "{} bytes", sent());
        tokio::time::sleep(ms(10)).await;
    }
    let get = Request::get("v", "/x").attempt_timeout(secs(5)).deadline(secs(5));
    let response = client.send("b", Priority::Normal, get).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "xx");
    assert_eq!(vendor.counts.connections.load(Relaxed), 1);
    assert_eq!(sent(), WINDOWS + 2, "an unread response takes 1 MiB");
    drop(unread);
}
