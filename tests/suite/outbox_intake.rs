//! Each message of a broker becomes exactly one job, even if ids repeat, the outbox is full or the store fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::BoxError;
use integration_client::BoxFuture;
use integration_client::config::TenantEntry;
use integration_client::dead_letter::Reason;
use integration_client::outbox::{Intake, IntakeSource, MessageRef};
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, Watch};
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{Error, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request};

mod away;
mod held;

fn store() -> Store {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("ic-intake-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let folder: PathBuf = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    Store::sqlite(folder.join("s.db"))
}

fn client(transport: &FakeTransport, store: &Store) -> IntegrationClientBuilder {
    client_with("", transport, store)
}

fn client_with(entry: &str, transport: &FakeTransport, store: &Store) -> IntegrationClientBuilder {
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
    let text = format!("{text}{entry}");
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    builder.tenant(TenantEntry::new("acme", "v")).tenant(TenantEntry::new("umbra", "v")).store(store.clone())
}

/// A message source with a few messages, each a tenant, an id and a body. An empty tenant stands for a message whose
/// content is the body.
struct Broker {
    name: &'static str,
    messages: Mutex<Vec<(&'static str, &'static str, &'static str)>>,
    can_postpone: bool,
    in_order: bool,
    /// Whether the source waits for more messages after its last one, instead of ending.
    never_ends: bool,
    /// Whether the source fails after its last message, instead of ending.
    fails: bool,
    taken: Mutex<Vec<String>>,
    refused: Mutex<Vec<(String, ErrorKind)>>,
    postponed: Mutex<Vec<String>>,
}

fn broker(name: &'static str, messages: &[(&'static str, &'static str, &'static str)]) -> Broker {
    Broker {
        name,
        messages: Mutex::new(messages.to_vec()),
        can_postpone: false,
        in_order: false,
        never_ends: false,
        fails: false,
        taken: Mutex::default(),
        refused: Mutex::default(),
        postponed: Mutex::default(),
    }
}

impl Broker {
    fn taken_ids(&self) -> Vec<String> {
        self.taken.lock().unwrap().clone()
    }

    fn postponed_ids(&self) -> Vec<String> {
        self.postponed.lock().unwrap().clone()
    }
}

impl IntakeSource for Broker {
    fn name(&self) -> &str {
        self.name
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        let mut messages = self.messages.lock().unwrap();
        let most = most.min(messages.len());
        let intake = |(tenant, id, body): (&str, &str, &str)| match tenant {
            "" => Intake::json(id, body),
            _ => {
                let request = Request::post("v", format!("/{tenant}/{body}")).body(body.to_owned());
                Intake::new(id, tenant, Priority::Normal, request)
            }
        };
        let messages: Vec<Intake> = messages.drain(..most).map(intake).collect();
        Box::pin(async move {
            if messages.is_empty() && self.fails {
                return Err("it fails".into());
            }
            if messages.is_empty() && self.never_ends {
                std::future::pending::<()>().await;
            }
            Ok(messages)
        })
    }

    fn taken<'a>(&'a self, messages: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        self.taken.lock().unwrap().extend(messages.iter().map(|message| message.id.clone()));
        Box::pin(async { Ok(()) })
    }

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>> {
        let told = messages.iter().map(|(message, why)| (message.id.clone(), why.kind()));
        self.refused.lock().unwrap().extend(told);
        Box::pin(async { Ok(()) })
    }

    fn can_postpone(&self) -> bool {
        self.can_postpone
    }

    fn acknowledges_in_order(&self) -> bool {
        self.in_order
    }

    fn later<'a>(&'a self, messages: &'a [MessageRef], _: Duration) -> BoxFuture<'a, Result<(), BoxError>> {
        self.postponed.lock().unwrap().extend(messages.iter().map(|message| message.id.clone()));
        Box::pin(async { Ok(()) })
    }
}

/// A store into which nothing can be written while the flag is set.
#[derive(Default)]
struct UnwritableStore(AtomicBool);

impl Watch for UnwritableStore {
    fn at(&self, what: &'static str, _: Moment) -> Fault {
        if what == "accept" && self.0.load(Relaxed) { Fault::Full } else { Fault::None }
    }
}

async fn sent_paths(transport: &FakeTransport, count: usize) -> Vec<String> {
    for _ in 0..1_000 {
        if transport.calls().len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Waits for calls that should not come.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut paths: Vec<String> = transport.calls().iter().map(|call| call.path().to_owned()).collect();
    paths.sort();
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_message_is_one_job() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let client = client(&transport, &store).work().build().await.unwrap();
    let messages = broker("orders", &[("acme", "1", "a"), ("acme", "2", "b"), ("acme", "1", "a")]);
    assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 2);
    assert_eq!(messages.taken_ids(), ["1", "2", "1"]);
    assert_eq!(sent_paths(&transport, 2).await, ["/acme/a", "/acme/b"]);
    // The jobs have ended by now, and their ids are still known.
    let again = broker("orders", &[("acme", "2", "b")]);
    assert_eq!((client.outbox().feed_from(&again).await.unwrap(), again.taken_ids().len()), (0, 1));
    assert_eq!(sent_paths(&transport, 2).await.len(), 2);
}

/// A message that is delivered twice is one job. As two jobs each would get another idempotency key.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_message_with_key_is_one_job() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let keys = "idempotency = { header = \"idempotency-key\" }\n";
    let client = client_with(keys, &transport, &store).work().build().await.unwrap();
    let messages = broker("orders", &[("acme", "1", "a"), ("acme", "1", "a")]);
    assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 1);
    assert_eq!(messages.taken_ids(), ["1", "1"]);
    assert!(messages.refused.lock().unwrap().is_empty());
    assert_eq!(sent_paths(&transport, 1).await, ["/acme/a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_ids_are_separate_by_source() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let client = client(&transport, &store).work().build().await.unwrap();
    for (source, body) in [("orders", "a"), ("returns", "b")] {
        let messages = broker(source, &[("acme", "1", body), ("umbra", "1", body)]);
        assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 2, "{source}");
    }
    assert_eq!(sent_paths(&transport, 4).await, ["/acme/a", "/acme/b", "/umbra/a", "/umbra/b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reused_message_id_is_refused_not_lost() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let client = client(&transport, &store).work().build().await.unwrap();
    let messages = broker("orders", &[("acme", "1", "a"), ("acme", "1", "other"), ("acme", "2", "b")]);
    assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 2);
    assert_eq!(messages.taken_ids(), ["1", "2"]);
    assert_eq!(*messages.refused.lock().unwrap(), [("1".to_owned(), ErrorKind::KeyReused)]);
    assert_eq!(sent_paths(&transport, 2).await, ["/acme/a", "/acme/b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_for_full_outbox_waits() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().max_backlog(3));
    let accepting = client(&transport, &store).build().await.unwrap();
    let all = [("acme", "1", "a"), ("acme", "2", "b"), ("acme", "3", "c"), ("acme", "4", "d"), ("acme", "5", "e")];
    let messages = broker("orders", &all);
    let mut feeding = std::pin::pin!(accepting.outbox().feed_from(&messages));
    let full = tokio::time::timeout(Duration::from_millis(1_500), &mut feeding).await;
    assert!(full.is_err(), "it goes on");
    assert_eq!(messages.taken_ids(), ["1", "2", "3"]);
    let _working = client(&transport, &store).work().build().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), feeding).await;
    assert_eq!(ended.expect("there is room again").unwrap(), 5);
    assert_eq!(messages.taken_ids(), ["1", "2", "3", "4", "5"], "in their order");
    assert!(messages.refused.lock().unwrap().is_empty());
    assert_eq!(sent_paths(&transport, 5).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn held_message_keeps_its_deadline() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().max_backlog(1));
    let accepting = client(&transport, &store).build().await.unwrap();
    let late = r#"{"tenant":"acme","vendor":"v","method":"GET","path":"/late","deadline":"1s"}"#;
    let messages = broker("orders", &[("acme", "1", "a"), ("", "2", late)]);
    let mut feeding = std::pin::pin!(accepting.outbox().feed_from(&messages));
    let full = tokio::time::timeout(Duration::from_millis(1_500), &mut feeding).await;
    assert!(full.is_err(), "it goes on");
    let working = client(&transport, &store).work().build().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), feeding).await;
    assert_eq!(ended.expect("there is room again").unwrap(), 2);
    let letters = working.outbox().dead_letters().unwrap();
    for _ in 0..1_000 {
        if letters.count().await.unwrap() > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let reasons: Vec<Reason> = letters.list(None, 10).await.unwrap().iter().map(|kept| kept.letter.reason).collect();
    assert_eq!((reasons, sent_paths(&transport, 1).await), (vec![Reason::Expired], vec!["/acme/a".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn message_for_full_lane_blocks_no_other() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().max_lane_backlog(1));
    let client = client(&transport, &store).build().await.unwrap();
    let messages = broker("orders", &[("acme", "1", "a"), ("acme", "2", "b"), ("umbra", "3", "c")]);
    let feeding = tokio::time::timeout(Duration::from_secs(2), client.outbox().feed_from(&messages)).await;
    assert!(feeding.is_err(), "one message is held");
    assert_eq!(messages.taken_ids(), ["1", "3"]);
    assert!(messages.refused.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn message_for_full_lane_is_postponed() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().max_lane_backlog(1));
    let client = client(&transport, &store).build().await.unwrap();
    let all = [("acme", "1", "a"), ("acme", "2", "b"), ("umbra", "3", "c"), ("acme", "4", "d")];
    let messages = Broker { can_postpone: true, ..broker("orders", &all) };
    assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 2);
    assert_eq!(
        (messages.taken_ids(), messages.postponed_ids()),
        (vec!["1".into(), "3".into()], vec!["2".into(), "4".into()])
    );
    assert!(messages.refused.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_message_is_refused() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let client = client(&transport, &store).work().build().await.unwrap();
    let all = [
        ("", "1", "{"),
        ("", "2", r#"{"tenant":"acme","vendor":"v","method":"POST","path":"/a","body":{"n":1}}"#),
        ("", "3", r#"{"tenant":"nobody","vendor":"v","method":"GET","path":"/b"}"#),
        ("", "4", r#"{"tenant":"acme","vendor":"v","method":"GET","path":"no slash"}"#),
        ("umbra", "5", "c"),
    ];
    let messages = broker("orders", &all);
    assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 2);
    assert_eq!(messages.taken_ids(), ["2", "5"]);
    let invalid = ErrorKind::InvalidRequest;
    let expected = [("1".into(), invalid), ("3".into(), ErrorKind::UnknownTenant), ("4".into(), invalid)];
    assert_eq!(*messages.refused.lock().unwrap(), expected);
    assert_eq!(sent_paths(&transport, 2).await, ["/a", "/umbra/c"]);
}

/// All messages of a fetch are accepted in one transaction, and not in one each.
#[tokio::test(flavor = "multi_thread")]
async fn fetched_messages_share_a_commit() {
    #[derive(Default)]
    struct CommitCounter(AtomicU32);
    impl Watch for CommitCounter {
        fn at(&self, what: &'static str, moment: Moment) -> Fault {
            if what == "commit" && matches!(moment, Moment::Before) {
                self.0.fetch_add(1, Relaxed);
            }
            Fault::None
        }
    }
    let commits = Arc::new(CommitCounter::default());
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().watched_by(commits.clone()));
    let client = client(&transport, &store).build().await.unwrap();
    let ids: Vec<&'static str> = (0..1_000).map(|number: u32| &*number.to_string().leak()).collect();
    let all: Vec<_> = ids.iter().map(|id| ("acme", *id, "a")).collect();
    let messages = broker("orders", &all);
    let before = commits.0.load(Relaxed);
    assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 1_000);
    assert_eq!(messages.taken_ids(), ids, "in their order");
    let commits = commits.0.load(Relaxed) - before;
    assert!(commits < 50, "{commits} commits for a thousand messages");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_while_the_store_is_away() {
    let down = Arc::new(UnwritableStore(AtomicBool::new(true)));
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().watched_by(down.clone()));
    let client = client(&transport, &store).build().await.unwrap();
    let messages = broker("orders", &[("acme", "1", "a"), ("umbra", "2", "b")]);
    let mut feeding = std::pin::pin!(client.outbox().feed_from(&messages));
    let away = tokio::time::timeout(Duration::from_secs(9), &mut feeding).await;
    assert!(away.is_err() && messages.taken_ids().is_empty(), "it waits");
    down.0.store(false, Relaxed);
    let ended = tokio::time::timeout(Duration::from_secs(30), feeding).await;
    assert_eq!((ended.unwrap().unwrap(), messages.taken_ids().len()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_the_hand_over() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().max_lane_backlog(1));
    let client = client(&transport, &store).build().await.unwrap();
    let all = [("acme", "1", "a"), ("acme", "2", "b")];
    let messages = Broker { never_ends: true, can_postpone: false, ..broker("orders", &all) };
    let feeding = client.outbox().feed_from(&messages);
    let stopping = async {
        while messages.taken_ids().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        client.shutdown(Duration::from_secs(5)).await;
    };
    let (fed, ()) =
        tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(feeding, stopping) }).await.unwrap();
    assert_eq!((fed.unwrap(), messages.taken_ids()), (1, vec!["1".to_owned()]), "what is held is the broker's");
    let error = client.outbox().feed_from(&messages).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shutdown);
}

/// A source with one message, which shuts the client down in the moment in which it returns the message. Without a
/// client it fails.
struct LastMessage {
    client: Option<IntegrationClient>,
    is_returned: AtomicBool,
    ended: AtomicU32,
}

impl LastMessage {
    fn of(client: Option<IntegrationClient>) -> LastMessage {
        LastMessage { client, is_returned: AtomicBool::new(false), ended: AtomicU32::new(0) }
    }
}

impl IntakeSource for LastMessage {
    fn name(&self) -> &str {
        "orders"
    }

    fn fetch(&self, _: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        Box::pin(async move {
            let client = self.client.as_ref().ok_or("it fails")?;
            if self.is_returned.swap(true, Relaxed) {
                std::future::pending::<()>().await;
            }
            // A shutdown begins with the first poll.
            let mut shutdown = Box::pin(client.shutdown(Duration::ZERO));
            std::future::poll_fn(|context| {
                let _ = shutdown.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
            Ok(vec![Intake::new("1", "acme", Priority::Normal, Request::post("v", "/acme"))])
        })
    }

    fn taken<'a>(&'a self, _: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { Ok(()) })
    }

    fn refused<'a>(&'a self, _: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { Ok(()) })
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        self.ended.fetch_add(1, Relaxed);
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_during_fetch_ends_the_hand_over() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let client = client(&transport, &store).build().await.unwrap();
    let source = LastMessage::of(Some(client.clone()));
    let fed = tokio::time::timeout(Duration::from_secs(20), client.outbox().feed_from(&source)).await;
    assert_eq!((fed.expect("it ends").unwrap(), source.ended.load(Relaxed)), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_source_is_told_of_the_end() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let client = client(&transport, &store).build().await.unwrap();
    let source = LastMessage::of(None);
    let error = client.outbox().feed_from(&source).await.unwrap_err();
    assert_eq!((error.kind(), source.ended.load(Relaxed)), (ErrorKind::Store, 1));
}

/// Such a source may have lost what was fetched, as when its stream was deleted.
#[tokio::test(flavor = "multi_thread")]
async fn failed_source_loses_no_fetched_message() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().max_lane_backlog(1));
    let client = client(&transport, &store).build().await.unwrap();
    let all = [("acme", "1", "a"), ("acme", "2", "b"), ("umbra", "3", "c")];
    let messages = Broker { fails: true, ..broker("orders", &all) };
    let fed = tokio::time::timeout(Duration::from_secs(20), client.outbox().feed_from(&messages)).await;
    let error = fed.expect("it does not wait for room").unwrap_err();
    assert_eq!((error.kind(), messages.taken_ids()), (ErrorKind::Store, vec!["1".to_owned(), "3".to_owned()]));
}

#[tokio::test]
async fn asking_senders_get_replies() {
    let transport = FakeTransport::new(|call| match call.path() {
        "/bad" => FakeAnswer::status(422).body("no"),
        _ => FakeAnswer::status(201).header("x-id", "7").body("{\"made\":7}"),
    });
    let store = store();
    let client = client(&transport, &store).work().build().await.unwrap();
    let good =
        r#"{"tenant":"acme","vendor":"v","method":"POST","path":"/good","reply":true,"metadata":{"order":"17"}}"#;
    let bad = r#"{"tenant":"acme","vendor":"v","method":"POST","path":"/bad","reply":true}"#;
    let quiet = r#"{"tenant":"acme","vendor":"v","method":"POST","path":"/good"}"#;
    let broker = broker("replies", &[("", "1", good), ("", "2", bad), ("", "3", quiet)]);
    assert_eq!(client.outbox().feed_from(&broker).await.unwrap(), 3);
    let mut replies = Vec::new();
    for _ in 0..500 {
        replies = client.outbox().replies(10).await.unwrap();
        if replies.len() == 2 && transport.calls().len() == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let shown: Vec<serde_json::Value> =
        replies.iter().map(|reply| serde_json::from_str(&reply.json).unwrap()).collect();
    let of = |outcome: &str| shown.iter().find(|shown| shown["outcome"] == outcome).unwrap();
    let good = of("done");
    assert_eq!(
        (&good["status"], &good["metadata"]["order"], &good["body"], &good["tenant"]),
        (&201.into(), &"17".into(), &"{\"made\":7}".into(), &"acme".into())
    );
    assert_eq!(good["headers"].as_array().unwrap().iter().find(|pair| pair[0] == "x-id").unwrap()[1], "7");
    let bad = of("dead");
    assert_eq!((&bad["status"], &bad["reason"]), (&422.into(), &"rejected".into()));
    // Replies stay in the store until they are taken, even if the process restarts.
    client.shutdown(Duration::from_secs(5)).await;
    let client = self::client(&transport, &store).build().await.unwrap();
    assert_eq!(client.outbox().replies(10).await.unwrap(), replies);
    client.outbox().replies_taken(&replies[..1]).await.unwrap();
    assert_eq!(client.outbox().replies(10).await.unwrap(), replies[1..]);
}
