//! Messages whose hand-over fails each time: the database rejects their jobs, or they were delivered too often.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::config::TenantEntry;
use crate::outbox::intake::deliveries::DeliveryBound;
use crate::outbox::{Intake, IntakeSource, MessageRef};
use crate::store::Store;
use crate::store::actor::Step;
use crate::store::driver::Dialect;
use crate::store::faults::{Fault, Moment, Watch};
use crate::testing::{FakeAnswer, FakeTransport};
use crate::{BoxError, BoxFuture, Error, ErrorKind, IntegrationClient, Priority, Request};

const VENDORS: &str =
    "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
const MOST: u64 = 4;

/// Makes the database reject the jobs of tenant `umbra`.
pub(super) const REJECT: Step<(), u64> = |(), db, _| {
    let sql = match db.dialect() {
        Dialect::Sqlite => {
            "CREATE TRIGGER rejects BEFORE INSERT ON ic_job WHEN NEW.tenant = 'umbra' \
             BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        }
        Dialect::Postgres => {
            "CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql \
             AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$; \
             CREATE TRIGGER rejects BEFORE INSERT ON ic_job FOR EACH ROW WHEN (NEW.tenant = 'umbra') \
             EXECUTE FUNCTION reject()"
        }
    };
    Box::pin(db.execute(sql, Vec::new()))
};

/// A source with a few messages, which it delivers once.
#[derive(Default)]
struct Messages {
    left: Mutex<Vec<Intake>>,
    taken: Mutex<Vec<String>>,
    refused: Mutex<Vec<(String, ErrorKind, String)>>,
    postponed: Mutex<Vec<String>>,
}

impl Messages {
    /// Each message is a tenant and the number of its deliveries. Its id is its place.
    fn new(messages: &[(&str, u64)]) -> Messages {
        let intake = |(place, (tenant, deliveries)): (usize, &(&str, u64))| {
            let content = format!(r#"{{"tenant":"{tenant}","vendor":"v","method":"POST","path":"/{place}"}}"#);
            Intake::json(place.to_string(), content).deliveries(*deliveries)
        };
        Messages { left: Mutex::new(messages.iter().enumerate().map(intake).collect()), ..Messages::default() }
    }

    fn taken_ids(&self) -> Vec<String> {
        self.taken.lock().unwrap().clone()
    }

    fn postponed_ids(&self) -> Vec<String> {
        self.postponed.lock().unwrap().clone()
    }

    fn refusals(&self) -> Vec<(String, ErrorKind, String)> {
        self.refused.lock().unwrap().clone()
    }
}

impl IntakeSource for Messages {
    fn name(&self) -> &str {
        "orders"
    }

    fn fetch(&self, _: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        let messages = std::mem::take(&mut *self.left.lock().unwrap());
        Box::pin(async move { Ok(messages) })
    }

    fn taken<'a>(&'a self, messages: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        self.taken.lock().unwrap().extend(messages.iter().map(|message| message.id.clone()));
        Box::pin(async { Ok(()) })
    }

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>> {
        let told = messages.iter().map(|(message, why)| (message.id.clone(), why.kind(), why.to_string()));
        self.refused.lock().unwrap().extend(told);
        Box::pin(async { Ok(()) })
    }

    fn can_postpone(&self) -> bool {
        true
    }

    fn later<'a>(&'a self, messages: &'a [MessageRef], _: Duration) -> BoxFuture<'a, Result<(), BoxError>> {
        self.postponed.lock().unwrap().extend(messages.iter().map(|message| message.id.clone()));
        Box::pin(async { Ok(()) })
    }

    fn max_deliveries(&self) -> Option<u64> {
        Some(MOST)
    }
}

/// A client that accepts requests and sends none.
async fn client(store: Store) -> IntegrationClient {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDORS).transport(transport);
    let builder = builder.tenant(TenantEntry::new("acme", "v")).tenant(TenantEntry::new("umbra", "v"));
    builder.store(store).build().await.unwrap()
}

fn store() -> Store {
    Store::sqlite(super::folder().join("store.db"))
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_message_is_refused_among_accepted_ones() {
    let client = client(store()).await;
    let outbox = client.outbox();
    outbox.state().unwrap().store.write((), REJECT).await.unwrap();
    let messages = Messages::new(&[("acme", 1), ("umbra", 1), ("acme", 1)]);
    assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 2);
    assert_eq!(messages.taken_ids(), ["0", "2"]);
    let refusals = messages.refusals();
    assert_eq!((refusals.len(), &*refusals[0].0, refusals[0].1), (1, "1", ErrorKind::Store));
    assert!(refusals[0].2.contains("not this one"), "{refusals:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn store_that_rejects_all_ends_hand_over() {
    let client = client(store()).await;
    let outbox = client.outbox();
    outbox.state().unwrap().store.write((), REJECT).await.unwrap();
    let messages = Messages::new(&[("umbra", 1), ("umbra", 1)]);
    let error = client.outbox().feed_from(&messages).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Store && error.to_string().contains("not this one"), "{error}");
    assert!(messages.taken_ids().is_empty() && messages.refusals().is_empty());
}

/// A supervisor starts the program again and again, and the broker counts each delivery.
#[tokio::test(flavor = "multi_thread")]
async fn store_that_rejects_all_refuses_no_message() {
    let client = client(store()).await;
    let outbox = client.outbox();
    outbox.state().unwrap().store.write((), REJECT).await.unwrap();
    for deliveries in 1..4 * MOST {
        let messages = Messages::new(&[("umbra", deliveries)]);
        let error = client.outbox().feed_from(&messages).await.unwrap_err();
        assert!(error.to_string().contains("not this one"), "{error}");
        assert!(messages.refusals().is_empty(), "{deliveries}: {:?}", messages.refusals());
        assert_eq!(messages.postponed_ids(), ["0"], "{deliveries}: it is given back");
    }
}

/// The hand-over of a message ends before it was handled, as when the process is killed.
async fn hand_over_and_die(client: &IntegrationClient, messages: &Messages) {
    let outbox = client.outbox();
    let bound = DeliveryBound::of(messages, outbox.state().unwrap());
    bound.judge(messages.fetch(10).await.unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn message_delivered_too_often_is_refused() {
    let client = client(store()).await;
    hand_over_and_die(&client, &Messages::new(&[("acme", MOST + 1), ("acme", MOST)])).await;
    let messages = Messages::new(&[("acme", MOST + 2), ("acme", MOST), ("acme", MOST + 1), ("acme", 0)]);
    client.outbox().feed_from(&messages).await.unwrap();
    assert_eq!(messages.taken_ids(), ["1", "2", "3"]);
    let refusals = messages.refusals();
    assert_eq!((refusals.len(), &*refusals[0].0, refusals[0].1), (1, "0", ErrorKind::InvalidRequest));
    assert!(refusals[0].2.contains("delivered 6 times"), "{refusals:?}");
    // Published again, it has a try again.
    let messages = Messages::new(&[("acme", MOST + 1)]);
    client.outbox().feed_from(&messages).await.unwrap();
    assert_eq!(messages.taken_ids(), ["0"]);
}

/// Loses the reply to the first commit of what is accepted.
#[derive(Default)]
struct LostReply(AtomicBool);

impl Watch for LostReply {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        let is_it = what == "accept" && moment == Moment::Committed;
        if is_it && !self.0.swap(true, Ordering::Relaxed) { Fault::Broken } else { Fault::None }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_reply_refuses_no_message() {
    let client = client(store().watched_by(Arc::new(LostReply::default()))).await;
    // The commit of the record that the message is tried is the first.
    let messages = Messages::new(&[("acme", MOST + 1), ("umbra", MOST + 1)]);
    client.outbox().feed_from(&messages).await.unwrap();
    assert_eq!((messages.taken_ids(), messages.refusals().len()), (vec!["0".to_owned(), "1".to_owned()], 0));
}

/// The source cannot acknowledge what is in the store, and delivers it again for ever.
#[tokio::test(flavor = "multi_thread")]
async fn accepted_message_is_never_delivered_too_often() {
    let client = client(store()).await;
    for deliveries in 1..4 * MOST {
        let messages = Messages::new(&[("acme", deliveries)]);
        let accepted = client.outbox().feed_from(&messages).await.unwrap();
        assert_eq!((accepted, messages.taken_ids().len()), (u64::from(deliveries == 1), 1), "{deliveries}");
    }
}

/// A broker counts also those deliveries after which the message was postponed because its lane was full.
#[tokio::test(flavor = "multi_thread")]
async fn postponed_message_is_never_delivered_too_often() {
    let client = client(store().max_lane_backlog(1)).await;
    client.outbox().enqueue("acme", Priority::Normal, Request::post("v", "/first")).await.unwrap();
    for deliveries in 1..4 * MOST {
        let messages = Messages::new(&[("acme", deliveries)]);
        client.outbox().feed_from(&messages).await.unwrap();
        assert!(messages.refusals().is_empty(), "{deliveries}: {:?}", messages.refusals());
        assert_eq!(messages.postponed_ids(), ["0"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redelivered_message_proves_no_working_database() {
    let client = client(store()).await;
    client.outbox().feed_from(&Messages::new(&[("acme", 1)])).await.unwrap();
    let outbox = client.outbox();
    outbox.state().unwrap().store.write((), REJECT).await.unwrap();
    // The first message is in the store already, and needs no row.
    let messages = Messages::new(&[("acme", 2), ("umbra", 1), ("umbra", 1)]);
    let error = client.outbox().feed_from(&messages).await.unwrap_err();
    assert!(error.to_string().contains("not this one") && messages.refusals().is_empty(), "{error}");
    assert_eq!(messages.taken_ids(), ["0"], "what is in the store is acknowledged before the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_messages_are_found_among_many() {
    let client = client(store()).await;
    let outbox = client.outbox();
    outbox.state().unwrap().store.write((), REJECT).await.unwrap();
    let all: Vec<(&str, u64)> = (0..100).map(|place| (if place % 40 == 7 { "umbra" } else { "acme" }, 1)).collect();
    let messages = Messages::new(&all);
    assert_eq!(client.outbox().feed_from(&messages).await.unwrap(), 97);
    let refused: Vec<String> = messages.refusals().into_iter().map(|(id, ..)| id).collect();
    assert_eq!(refused, ["7", "47", "87"]);
    let others: Vec<String> = (0..100).filter(|place| place % 40 != 7).map(|place| place.to_string()).collect();
    assert_eq!(messages.taken_ids(), others, "in their order");
}
