//! Replies reach their target at least once and under the same id each time, even if the target fails or the process is
//! killed. Jobs do not wait for that.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::outbox::{Intake, IntakeSource, Line, MessageRef, Reply, ReplyTarget};
use integration_client::store::Store;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{BoxError, BoxFuture, Error, ErrorKind, IntegrationClient};

use crate::support::folder;

/// A target whose first calls fail, or that never answers.
#[derive(Default)]
struct Target {
    failing: AtomicU32,
    hangs: bool,
    /// The ids of the replies that each call passed.
    calls: Mutex<Vec<Vec<String>>>,
    /// The replies that the target has accepted.
    accepted: Mutex<Vec<Reply>>,
}

impl Target {
    fn accepted_count(&self) -> usize {
        self.accepted.lock().unwrap().len()
    }

    fn ids_by_call(&self) -> Vec<Vec<String>> {
        self.calls.lock().unwrap().clone()
    }
}

impl ReplyTarget for Target {
    fn name(&self) -> &str {
        "test"
    }

    fn deliver<'a>(&'a self, replies: &'a [Reply]) -> BoxFuture<'a, Vec<Result<(), BoxError>>> {
        self.calls.lock().unwrap().push(replies.iter().map(Reply::message_id).collect());
        let fails = self.failing.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if !fails {
            self.accepted.lock().unwrap().extend(replies.iter().cloned());
        }
        Box::pin(async move {
            match (self.hangs, fails) {
                (true, _) => std::future::pending().await,
                (false, true) => vec![Err("away".into())],
                (false, false) => replies.iter().map(|_| Ok(())).collect(),
            }
        })
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(2)
    }
}

async fn client(store: &Path) -> (IntegrationClient, FakeTransport) {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).body("{\"made\":7}"));
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    let builder = builder.tenant(TenantEntry::new("acme", "v")).store(Store::sqlite(store)).work();
    (builder.build().await.unwrap(), transport)
}

async fn enqueue(client: &IntegrationClient, count: usize) {
    for number in 0..count {
        let text = format!(r#"{{"tenant":"acme","vendor":"v","method":"POST","path":"/{number}","reply":true}}"#);
        #[expect(clippy::disallowed_methods, reason = "a test's own")]
        let line = Line::parse(text.as_bytes(), std::time::SystemTime::now()).unwrap();
        client.outbox().enqueue(&line.tenant, line.priority, line.request).await.unwrap();
    }
}

/// Waits until `holds` returns true, and fails after 30 s.
async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 30 s: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_target_gets_replies_later() {
    let (client, transport) = client(&folder("replies-away").join("s.db")).await;
    enqueue(&client, 3).await;
    wait_until("the jobs end", || transport.calls().len() == 3).await;
    let target = Target { failing: 2.into(), ..Target::default() };
    let looking = async {
        wait_until("it has failed", || !target.ids_by_call().is_empty()).await;
        enqueue(&client, 2).await;
        wait_until("jobs go on", || transport.calls().len() == 5).await;
        wait_until("all are there", || target.accepted_count() == 5).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    let (delivered, ()) = tokio::join!(client.outbox().deliver_replies(&target), looking);
    assert_eq!(delivered.unwrap(), 5);
    let mut ids: Vec<String> = target.accepted.lock().unwrap().iter().map(Reply::message_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5, "each once, for each try said how it ended");
    // Each try has the same ids.
    assert!(
        target.ids_by_call().len() >= 3 && target.ids_by_call()[0].iter().all(|id| ids.contains(id)),
        "{:?}",
        target.ids_by_call()
    );
    let error = client.outbox().deliver_replies(&target).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shutdown);
}

/// The process ends after the target has accepted the replies and before the store records that.
#[tokio::test(flavor = "multi_thread")]
async fn replies_keep_ids_after_a_kill() {
    let store = folder("replies-killed").join("s.db");
    let (client, transport) = client(&store).await;
    enqueue(&client, 3).await;
    wait_until("the jobs end", || transport.calls().len() == 3).await;
    // The target gets what has been written when it asks.
    while client.outbox().replies(10).await.unwrap().len() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let killed = Target { hangs: true, ..Target::default() };
    {
        let delivering = client.outbox().deliver_replies(&killed);
        let all = wait_until("it has all of them", || killed.accepted_count() == 3);
        tokio::select! {
            _ = delivering => panic!("it hangs"),
            () = all => {}
        }
    }
    let next = Target::default();
    let looking = async {
        wait_until("all come again", || next.accepted_count() == 3).await;
        // By then the delivered replies are deleted.
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(client.outbox().replies(10).await.unwrap().is_empty());
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().deliver_replies(&next), looking).0.unwrap(), 3);
    let ids = |target: &Target| {
        let mut ids: Vec<String> = target.accepted.lock().unwrap().iter().map(Reply::message_id).collect();
        ids.sort();
        ids
    };
    let (before, after) = (ids(&killed), ids(&next));
    assert!(after.iter().all(|id| before.contains(id)) && after.len() == 3, "{before:?} {after:?}");
}

/// A broker with messages that name the sender's queue in a property.
struct Broker(Mutex<Vec<Intake>>);

impl IntakeSource for Broker {
    fn name(&self) -> &str {
        "broker"
    }

    fn fetch(&self, _: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        let messages = std::mem::take(&mut *self.0.lock().unwrap());
        Box::pin(async { Ok(messages) })
    }

    fn taken<'a>(&'a self, _: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { Ok(()) })
    }

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>> {
        panic!("{messages:?}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_say_where_they_go() {
    let (client, _) = client(&folder("replies-to").join("s.db")).await;
    let line = |rest: &str| format!(r#"{{"tenant":"acme","vendor":"v","method":"GET","path":"/"{rest}}}"#);
    let back = |intake: Intake| intake.reply_to("of-property", Some("c-1".to_owned()));
    let messages = vec![
        back(Intake::json("1", line(r#","metadata":{"n":"1"}"#))),
        back(Intake::json("2", line(r#","reply":"of-content","metadata":{"n":"2","correlation_id":"own"}"#))),
        Intake::json("3", line(r#","reply":true,"metadata":{"n":"3"}"#)),
        Intake::json("4", line(r#","reply":false"#)),
    ];
    assert_eq!(client.outbox().feed_from(&Broker(Mutex::new(messages))).await.unwrap(), 4);
    let target = Target::default();
    let looking = async {
        wait_until("all are there", || target.accepted_count() == 3).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    tokio::join!(client.outbox().deliver_replies(&target), looking).0.unwrap();
    let mut found: Vec<_> = target
        .accepted
        .lock()
        .unwrap()
        .iter()
        .map(|reply| (reply.metadata("n").unwrap(), reply.reply_to(), reply.metadata("correlation_id")))
        .collect();
    found.sort();
    let text = |text: &str| Some(text.to_owned());
    let expected = [
        ("1".to_owned(), text("of-property"), text("c-1")),
        ("2".to_owned(), text("of-content"), text("own")),
        ("3".to_owned(), None, None),
    ];
    assert_eq!(found, expected);
}
