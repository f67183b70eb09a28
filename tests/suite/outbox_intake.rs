//! Messages of brokers, each a job once, whatever else has the same id and whatever is full.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use integration_client::BoxError;
use integration_client::BoxFuture;
use integration_client::config::TenantEntry;
use integration_client::outbox::{Intake, IntakeSource};
use integration_client::store::Store;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{Error, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request};

fn store() -> Store {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("ic-intake-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let folder: PathBuf = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    Store::sqlite(folder.join("s.db"))
}

fn client(transport: &FakeTransport, store: &Store) -> IntegrationClientBuilder {
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    builder.tenant(TenantEntry::new("acme", "v")).tenant(TenantEntry::new("umbra", "v")).store(store.clone())
}

/// Hands over a few messages, each a tenant, an id and a body, and has no more.
struct Broker {
    name: &'static str,
    messages: Mutex<Vec<(&'static str, &'static str, &'static str)>>,
    taken: Mutex<Vec<String>>,
    refused: Mutex<Vec<(String, ErrorKind)>>,
}

fn broker(name: &'static str, messages: &[(&'static str, &'static str, &'static str)]) -> Broker {
    Broker { name, messages: Mutex::new(messages.to_vec()), taken: Mutex::default(), refused: Mutex::default() }
}

impl Broker {
    fn taken(&self) -> Vec<String> {
        self.taken.lock().unwrap().clone()
    }
}

impl IntakeSource for Broker {
    fn name(&self) -> &str {
        self.name
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        let mut messages = self.messages.lock().unwrap();
        let most = most.min(messages.len());
        let intake = |(tenant, id, body): (&str, &str, &str)| Intake {
            id: id.to_owned(),
            tenant: tenant.to_owned(),
            priority: Priority::Normal,
            request: Request::post("v", format!("/{tenant}/{body}")).body(body.to_owned()),
        };
        let messages: Vec<Intake> = messages.drain(..most).map(intake).collect();
        Box::pin(async { Ok(messages) })
    }

    fn taken<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        self.taken.lock().unwrap().push(id.to_owned());
        Box::pin(async { Ok(()) })
    }

    fn refused<'a>(&'a self, id: &'a str, why: &'a Error) -> BoxFuture<'a, Result<(), BoxError>> {
        self.refused.lock().unwrap().push((id.to_owned(), why.kind()));
        Box::pin(async { Ok(()) })
    }
}

async fn sent(transport: &FakeTransport, count: usize) -> Vec<String> {
    for _ in 0..1_000 {
        if transport.calls().len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Nothing comes after them.
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
    assert_eq!(messages.taken(), ["1", "2", "1"]);
    assert_eq!(sent(&transport, 2).await, ["/acme/a", "/acme/b"]);
    // They are done by now.
    let again = broker("orders", &[("acme", "2", "b")]);
    assert_eq!((client.outbox().feed_from(&again).await.unwrap(), again.taken().len()), (0, 1));
    assert_eq!(sent(&transport, 2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_ids_are_separate_by_source() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let client = client(&transport, &store).work().build().await.unwrap();
    for (source, body) in [("orders", "a"), ("returns", "b")] {
        let messages = broker(source, &[("acme", "1", body), ("umbra", "1", body)]);
        assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 2, "{source}");
    }
    assert_eq!(sent(&transport, 4).await, ["/acme/a", "/acme/b", "/umbra/a", "/umbra/b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reused_message_id_is_refused_not_lost() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let client = client(&transport, &store).work().build().await.unwrap();
    let messages = broker("orders", &[("acme", "1", "a"), ("acme", "1", "other"), ("acme", "2", "b")]);
    assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 2);
    assert_eq!(messages.taken(), ["1", "2"]);
    assert_eq!(*messages.refused.lock().unwrap(), [("1".to_owned(), ErrorKind::KeyReused)]);
    assert_eq!(sent(&transport, 2).await, ["/acme/a", "/acme/b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_for_a_full_outbox_waits_for_room() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().max_backlog(3));
    let accepting = client(&transport, &store).build().await.unwrap();
    let all = [("acme", "1", "a"), ("acme", "2", "b"), ("acme", "3", "c"), ("acme", "4", "d"), ("acme", "5", "e")];
    let messages = broker("orders", &all);
    let mut feeding = std::pin::pin!(accepting.outbox().feed_from(&messages));
    let full = tokio::time::timeout(Duration::from_millis(1_500), &mut feeding).await;
    assert!(full.is_err(), "it goes on");
    assert_eq!(messages.taken(), ["1", "2", "3"]);
    let _working = client(&transport, &store).work().build().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), feeding).await;
    assert_eq!(ended.expect("there is room again").unwrap(), 5);
    assert_eq!(messages.taken(), ["1", "2", "3", "4", "5"], "in their order");
    assert!(messages.refused.lock().unwrap().is_empty());
    assert_eq!(sent(&transport, 5).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_for_a_full_lane_holds_up_no_other() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().max_lane_backlog(1));
    let client = client(&transport, &store).build().await.unwrap();
    let messages = broker("orders", &[("acme", "1", "a"), ("acme", "2", "b"), ("umbra", "3", "c")]);
    let feeding = tokio::time::timeout(Duration::from_secs(2), client.outbox().feed_from(&messages)).await;
    assert!(feeding.is_err(), "one message is held");
    assert_eq!(messages.taken(), ["1", "3"]);
    assert!(messages.refused.lock().unwrap().is_empty());
}
