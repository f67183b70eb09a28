//! Sends known secrets through every path of the outbox, and then searches files, log, errors, metrics and events for
//! them.
//!
//! The tests have a process of their own, because one of them takes over the process's log and metrics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::BoxError;
use integration_client::BoxFuture;
use integration_client::config::TenantEntry;
use integration_client::outbox::{Delivered, Receipt, ResponseHandler, Status};
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, Watch};
use integration_client::testing::{FakeVendor, Fault as VendorFault, HeaderStyle, Outage, Reply, When};
use integration_client::transport::SecretString;
use integration_client::{IntegrationClient, Priority, Request};
use metrics_util::debugging::DebuggingRecorder;

/// Must appear in no file, log line, error, metric or event.
const CREDENTIAL: &str = "canary-credential-3f9a1c77";
/// These, too, must appear nowhere. The store keeps them sealed.
const BODY: &str = "canary-body-81c0de55";
const QUERY: &str = "canary-query-0b7e44aa";
const HEADER: &str = "canary-header-5d21f00d";
const ANSWER: &str = "canary-answer-c4fe77b1";
const CANARIES: [&str; 5] = [CREDENTIAL, BODY, QUERY, HEADER, ANSWER];

/// The store keeps these sealed. An opened dead letter shows them, and events may.
const PATH: &str = "canary-path-77aa01c2";
const NOTE: &str = "canary-note-e90b1d34";
const OWN_KEY: &str = "canary-own-key-12f7a9d0";
const AT_REST: [&str; 3] = [PATH, NOTE, OWN_KEY];

/// The key that seals: 32 bytes in base64. Must appear in no file either.
const KEY: &str = "Y2FuYXJ5LXNlYWwta2V5LTMyLWJ5dGVzLWxvbmctISE=";

fn contains(text: &[u8], canary: &str) -> bool {
    text.windows(canary.len()).any(|window| window == canary.as_bytes())
}

fn find_canary(text: &[u8]) -> Option<&'static str> {
    CANARIES.iter().chain(&[KEY, "canary-seal-key"]).find(|canary| contains(text, canary)).copied()
}

#[track_caller]
fn assert_no_canary(what: &str, text: &str) {
    assert_eq!(find_canary(text.as_bytes()), None, "{what}: {text}");
}

/// The whole log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A handler that fails at its first call and panics at its second.
#[derive(Default)]
struct Handler(Mutex<u32>);

impl ResponseHandler for Handler {
    fn delivered<'a>(&'a self, answer: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>> {
        assert_no_canary("an answer's Debug", &format!("{answer:?}"));
        let call = {
            let mut calls = self.0.lock().unwrap();
            *calls += 1;
            *calls
        };
        Box::pin(async move {
            match call {
                1 => Err("no".into()),
                2 => panic!("a test's own"),
                _ => Ok(()),
            }
        })
    }
}

#[derive(Default)]
struct Broken(AtomicBool);

impl Watch for Broken {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        let is_hit = what == "accept" && moment == Moment::Before && self.0.load(Relaxed);
        if is_hit { Fault::Full } else { Fault::None }
    }
}

fn post(path: &str) -> Request {
    let path = format!("{path}/{PATH}?token={QUERY}");
    Request::post("v", path).header("x-personal", HEADER).metadata("note", NOTE).json(&[BODY])
}

async fn client(vendor: &FakeVendor, store: &Store, key: bool, at_rest: &str) -> IntegrationClient {
    let text = vendor.vendors_toml("v").replacen("\nauth", &format!("\nat_rest = \"{at_rest}\"\nauth"), 1);
    let text = text.replacen("\nauth", "\nmax_transit = \"1s\"\nconnect_timeout = \"1s\"\nauth", 1);
    let retry = "\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\n[vendors.v.retry]\nfirst_wait = \"50ms\"\n\
                 longest_wait = \"100ms\"\nmax_retries = 2\n";
    let store = if key { store.clone().seal_key(KEY) } else { store.clone() };
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text + retry).store(store);
    let builder = builder
        .credential_resolver("keys", |_: String| async { Ok(SecretString::from(CREDENTIAL)) })
        .response_handler(Handler::default());
    builder.tenant(TenantEntry::new("acme", "v").credential("keys:acme")).work().build().await.unwrap()
}

async fn until_ended(receipt: &Receipt) -> Status {
    for _ in 0..1_000 {
        let status = receipt.status().await.unwrap();
        assert_no_canary("a status", &format!("{status:?}"));
        if !matches!(status, Status::Waiting { .. } | Status::UnderWay) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not end");
}

/// Returns which files of a folder hold a canary, and how many bytes were searched.
fn files(folder: &Path) -> (Vec<String>, usize) {
    let (mut found, mut looked) = (Vec::new(), 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // The last process that closes the database deletes its log, perhaps just now.
        let Ok(bytes) = std::fs::read(&path) else { continue };
        looked += bytes.len();
        let sealed = AT_REST.iter().copied().filter(|canary| contains(&bytes, canary));
        found.extend(
            find_canary(&bytes).into_iter().chain(sealed).map(|canary| format!("{} holds {canary}", path.display())),
        );
    }
    (found, looked)
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ic-secrets-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn secrets_are_never_written_or_logged() {
    let log = Log::default();
    let writer = log.clone();
    // All events of this project and of sqlx. The HTTP crates are left out, because they log raw bytes at trace level.
    let is_meant = |metadata: &tracing::Metadata<'_>| {
        metadata.target().starts_with("integration_client") || metadata.target().starts_with("sqlx")
    };
    use tracing_subscriber::layer::{Layer, SubscriberExt};
    let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
    let lines = lines.with_filter(tracing_subscriber::filter::filter_fn(is_meant));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines)).unwrap();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::set_global_recorder(recorder).unwrap();

    let folder = folder("sealed");
    let store = Store::sqlite(folder.join("s.db"));
    let events = Arc::new(Mutex::new(String::new()));
    let (serving, dying) = (runtime(), runtime());
    let vendor = FakeVendor::builder()
        .headers(HeaderStyle::Silent)
        .reply(Reply::json(200, format!("[\"{ANSWER}\"]")))
        .poisoned("/gone", 410)
        .poisoned("/busy", 503)
        .poisoned("/forbidden", 401)
        .fault(When::path("/stalls").first(1), VendorFault::Stall)
        .fault(When::path("/reset").first(1), VendorFault::Status(500));
    let vendor = serving.block_on(vendor.start()).unwrap();

    // This runtime stands for a process that ends in the middle of an exchange.
    let stalled = dying.block_on(async {
        let client = client(&vendor, &store, true, "sealed").await;
        let receipt = client.outbox().enqueue("acme", Priority::High, post("/stalls")).await.unwrap();
        while vendor.arrivals().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        receipt.id()
    });
    dying.shutdown_timeout(Duration::from_secs(5));
    assert_eq!(files(&folder).0, [""; 0], "after a process was ended");

    serving.block_on(async {
        let broken = Arc::new(Broken::default());
        let watched = store.clone().max_payload_bytes(10_000).watched_by(broken.clone());
        let client = client(&vendor, &watched, true, "sealed").await;
        let (told, mut heard) = (events.clone(), client.events());
        #[expect(clippy::disallowed_methods, reason = "a test's own")]
        let listener = tokio::spawn(async move {
            while let Some(event) = heard.next().await {
                told.lock().unwrap().push_str(&format!("{event:?}\n"));
            }
        });
        assert_no_canary("a client", &format!("{client:?} {store:?}"));
        assert!(matches!(until_ended(&client.outbox().receipt(&stalled).unwrap()).await, Status::Delivered { .. }));
        let mut dead = Vec::new();
        for path in ["/a", "/reset", "/gone", "/busy", "/forbidden"] {
            let receipt = client.outbox().enqueue("acme", Priority::Normal, post(path).keep_response()).await.unwrap();
            assert_no_canary("a receipt", &format!("{receipt:?}"));
            match until_ended(&receipt).await {
                Status::Delivered { response, .. } => {
                    let body = response.expect("it was asked for").body().clone();
                    assert!(body.windows(ANSWER.len()).any(|window| window == ANSWER.as_bytes()), "it opens");
                }
                Status::Dead { .. } => dead.push(receipt),
                other => panic!("{path}: {other:?}"),
            }
        }
        assert_eq!(dead.len(), 3);
        let letters = client.outbox().dead_letters().unwrap();
        for kept in letters.list(None, 10).await.unwrap() {
            assert_no_canary("a letter", &format!("{kept:?} {}", serde_json::to_string(&kept.letter).unwrap()));
            assert!(kept.can_be_sent);
            assert_eq!(kept.letter.metadata["note"], NOTE, "it opens");
            let request = format!("{:?}", kept.letter.request);
            assert!(request.contains(PATH) && !kept.letter.attempts.is_empty(), "{kept:?}");
        }
        for receipt in &dead {
            assert!(letters.redrive(&receipt.id()).await.unwrap());
            until_ended(receipt).await;
        }
        // Errors of refused requests state the reason and none of the content.
        let mut errors = Vec::new();
        let large = post("/a").body(format!("{BODY}{}", "x".repeat(20_000)));
        errors.push(client.outbox().enqueue("acme", Priority::Low, large).await.unwrap_err());
        errors.push(client.outbox().enqueue("nobody", Priority::Low, post("/a")).await.unwrap_err());
        let own = post("/a").header("authorization", CREDENTIAL);
        errors.push(client.outbox().enqueue("acme", Priority::Low, own).await.unwrap_err());
        let keyed = client.outbox().enqueue("acme", Priority::Low, post("/k").idempotency_key(OWN_KEY)).await.unwrap();
        let again = client.outbox().enqueue("acme", Priority::Low, post("/k").idempotency_key(OWN_KEY)).await.unwrap();
        assert!(again.was_accepted_before() && again.id() == keyed.id(), "it is known again by its hash");
        errors.push(
            client.outbox().enqueue("acme", Priority::Low, post("/l").idempotency_key(OWN_KEY)).await.unwrap_err(),
        );
        let refused = post("/gone").idempotency_key(format!("{OWN_KEY}-2"));
        let refused = client.outbox().enqueue("acme", Priority::Low, refused).await.unwrap();
        assert!(matches!(until_ended(&refused).await, Status::Dead { .. }));
        let kept = letters.show(&refused.id()).await.unwrap().unwrap();
        assert_eq!(kept.letter.idempotency_key.as_deref(), Some(&*format!("{OWN_KEY}-2")));
        broken.0.store(true, Relaxed);
        errors.push(client.outbox().enqueue("acme", Priority::Low, post("/a")).await.unwrap_err());
        broken.0.store(false, Relaxed);
        // A plain send that is given up becomes a dead letter too.
        vendor.set_outage(Outage::Unavailable);
        errors.push(client.send("acme", Priority::High, post("/a")).await.unwrap_err());
        let expiring = post("/a").deadline(Duration::from_millis(300));
        until_ended(&client.outbox().enqueue("acme", Priority::High, expiring).await.unwrap()).await;
        vendor.set_outage(None);
        for error in &errors {
            let source = std::error::Error::source(error).map(|source| format!("{source} {source:?}"));
            assert_no_canary("an error", &format!("{error} {error:?} {source:?}"));
            assert!(!error.to_string().contains(OWN_KEY), "{error}");
        }
        let waiting = client.outbox().enqueue("acme", Priority::Low, post("/busy/again")).await.unwrap();
        assert_eq!(files(&folder).0, [""; 0], "while it works");
        client.shutdown(Duration::from_secs(5)).await;
        drop(client);

        // Without the key the client opens nothing, and gives up no request because of that.
        let keyless = self::client(&vendor, &store, false, "sealed").await;
        let error = keyless.outbox().enqueue("acme", Priority::High, post("/a")).await.unwrap_err();
        assert!(error.to_string().contains("seal_key"), "{error}");
        let letters = keyless.outbox().dead_letters().unwrap();
        let shown = letters.list(None, 100).await.unwrap();
        assert!(shown.len() >= 4 && shown.iter().all(|kept| kept.letter.tenant == "acme"), "{shown:?}");
        assert!(shown.iter().all(|kept| !format!("{kept:?}").contains("canary")), "{shown:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let status = keyless.outbox().receipt(&waiting.id()).unwrap().status().await.unwrap();
        assert!(matches!(status, Status::Waiting { .. } | Status::Dead { .. }), "{status:?}");
        keyless.shutdown(Duration::from_secs(5)).await;
        drop(keyless);
        listener.abort();
    });
    let (found, looked) = files(&folder);
    assert_eq!(found, [""; 0]);
    assert!(looked > 50_000, "{looked}");
    assert_no_canary("an event", &events.lock().unwrap());
    assert!(events.lock().unwrap().lines().count() > 20);
    assert_no_canary("a metric", &format!("{:?}", snapshotter.snapshot().into_vec()));
    let log = log.0.lock().unwrap().clone();
    assert_eq!(find_canary(&log), None, "{}", String::from_utf8_lossy(&log));
    assert!(log.len() > 2_000, "{}", String::from_utf8_lossy(&log));
}

#[test]
fn redacted_job_is_erased_at_its_end() {
    let folder = folder("redacted");
    runtime().block_on(async {
        let vendor = FakeVendor::builder().headers(HeaderStyle::Silent).poisoned("/gone", 410).start().await.unwrap();
        let store = Store::sqlite(folder.join("s.db"));
        let client = client(&vendor, &store, false, "redacted").await;
        let receipt = client.outbox().enqueue("acme", Priority::High, post("/gone").keep_response()).await.unwrap();
        assert!(matches!(until_ended(&receipt).await, Status::Dead { .. }));
        let letters = client.outbox().dead_letters().unwrap();
        let kept = letters.show(&receipt.id()).await.unwrap().unwrap();
        assert!(!kept.can_be_sent);
        let error = letters.redrive(&receipt.id()).await.unwrap_err();
        assert!(error.to_string().contains("outline"), "{error}");
        let receipt = client.outbox().enqueue("acme", Priority::High, post("/a").keep_response()).await.unwrap();
        let status = until_ended(&receipt).await;
        assert!(matches!(status, Status::Delivered { response: None, .. }), "{status:?}");
    });
}

#[test]
fn sealed_letter_keeps_its_attempts_without_key() {
    let folder = folder("keyless");
    runtime().block_on(async {
        let vendor = FakeVendor::builder().headers(HeaderStyle::Silent).poisoned("/gone", 410).start().await.unwrap();
        let store = Store::sqlite(folder.join("s.db"));
        let keyed = client(&vendor, &store, true, "sealed").await;
        let receipt = keyed.outbox().enqueue("acme", Priority::High, post("/gone")).await.unwrap();
        assert!(matches!(until_ended(&receipt).await, Status::Dead { .. }));
        keyed.shutdown(Duration::from_secs(5)).await;
        drop(keyed);

        let keyless = client(&vendor, &store, false, "sealed").await;
        let letters = keyless.outbox().dead_letters().unwrap();
        assert!(!letters.show(&receipt.id()).await.unwrap().unwrap().can_be_sent);
        let error = letters.redrive(&receipt.id()).await.unwrap_err();
        assert!(error.to_string().contains("no key of the store opens it"), "{error}");
        let all = letters.redrive_all(10).await.unwrap();
        assert_eq!((all.jobs, all.unsendable), (0, 1));
        keyless.shutdown(Duration::from_secs(5)).await;
        drop(keyless);

        let keyed = client(&vendor, &store, true, "sealed").await;
        let letters = keyed.outbox().dead_letters().unwrap();
        let kept = letters.show(&receipt.id()).await.unwrap().unwrap();
        assert!(kept.can_be_sent);
        assert_eq!(kept.letter.attempts.iter().map(|attempt| attempt.status).collect::<Vec<_>>(), [Some(410)]);
        assert!(letters.redrive(&receipt.id()).await.unwrap());
    });
}
