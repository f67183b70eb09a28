//! RabbitMQ, against the server that `IC_TEST_RABBITMQ` names. `scripts/rabbitmq.sh start` starts a server that the
//! test may kill.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too"
)]

mod support;
#[path = "rabbitmq/unreadable.rs"]
mod unreadable;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use integration_client::outbox::IntakeSource;
use integration_client_intake::{RabbitMq, RabbitMqReplies};
use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, BasicRejectOptions, ConfirmSelectOptions,
    QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use support::{client, line, store_path, wait_until};

fn url() -> String {
    std::env::var("IC_TEST_RABBITMQ").expect(
        "IC_TEST_RABBITMQ names no server: run `scripts/test.sh test`, or `eval \"$(scripts/rabbitmq.sh start)\"` before",
    )
}

struct Server {
    connection: Connection,
    channel: Channel,
}

impl Server {
    async fn connect() -> Server {
        let connection = Connection::connect(&url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Server { connection, channel }
    }

    async fn empty_queue(&self, name: &str) {
        let durable = QueueDeclareOptions::durable();
        self.channel.queue_declare(name.into(), durable, FieldTable::default()).await.unwrap();
        self.channel.queue_purge(name.into(), QueuePurgeOptions::default()).await.unwrap();
    }

    /// The number of waiting messages; 0 if the queue does not exist yet.
    async fn waiting_messages(&self, name: &str) -> u32 {
        self.try_waiting_messages(name).await.unwrap_or(0)
    }

    /// The number of waiting messages; `None` if the server does not say, as while it restores a queue after a kill.
    async fn try_waiting_messages(&self, name: &str) -> Option<u32> {
        let look = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        // Uses a new channel, because the server closes a channel that asks for a queue that does not exist yet.
        let channel = self.connection.create_channel().await.unwrap();
        let found = channel.queue_declare(name.into(), look, FieldTable::default()).await;
        found.ok().map(|queue| queue.message_count())
    }

    async fn publish(&self, queue: &str, messages: impl Iterator<Item = (Option<String>, String)>) {
        let mut confirms = Vec::new();
        for (id, content) in messages {
            let properties = BasicProperties::default().with_delivery_mode(2);
            let properties = id.into_iter().fold(properties, |properties, id| properties.with_message_id(id.into()));
            let publish = BasicPublishOptions::default();
            let sent = self.channel.basic_publish("".into(), queue.into(), publish, content.as_bytes(), properties);
            confirms.push(sent.await.unwrap());
        }
        for confirm in confirms {
            assert!(confirm.await.unwrap().is_ack());
        }
    }

    /// Takes the next message, and returns its content and the reason if it was refused.
    async fn next(&self, queue: &str) -> Option<(String, String)> {
        let message = self.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()?;
        message.ack(BasicAckOptions::default()).await.unwrap();
        let headers = message.properties.headers().clone().unwrap_or_default();
        let why = headers.inner().get("x-refused-because");
        let why = why.and_then(|why| why.as_long_string()).map(ToString::to_string).unwrap_or_default();
        Some((String::from_utf8(message.delivery.data).unwrap(), why))
    }
}

/// Runs all tests one after the other, because they share the server that two of them kill.
#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq() {
    missing_queue_is_said_without_password().await;
    bad_messages_are_refused_with_reason().await;
    refused_copy_goes_to_one_queue().await;
    message_for_full_lane_goes_back().await;
    messages_go_aside_together().await;
    postponed_messages_outlast_full_queue().await;
    message_that_cannot_go_aside_is_kept().await;
    deliveries_are_counted().await;
    end_gives_back_what_nobody_fetched().await;
    unreadable::unreadable_message_holds_up_no_other().await;
    replies_go_to_queue_of_sender().await;
    killed_workers_lose_no_reply().await;
    killed_workers_and_broker_lose_nothing().await;
}

async fn missing_queue_is_said_without_password() {
    let error = RabbitMq::connect(&format!("{}?queue=nowhere", url())).await.unwrap_err().to_string();
    assert!(error.contains("nowhere") && error.contains("NOT_FOUND") && !error.contains("guest:guest"), "{error}");
    let error = RabbitMq::connect(&url()).await.unwrap_err().to_string();
    assert!(error.contains("queue=NAME"), "{error}");
    let error = RabbitMq::connect("amqp://u:hunter2@127.0.0.1:1/%2f?queue=q").await.unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
}

async fn bad_messages_are_refused_with_reason() {
    let (server, queue) = (Server::connect().await, "bad");
    server.empty_queue(queue).await;
    let id = |id: &str| Some(id.to_owned());
    let keyed = r#"{"tenant":"acme","vendor":"v","method":"POST","path":"/keyed","idempotency_key":"k"}"#;
    let messages = [
        (id("1"), "{".to_owned()),
        (id("2"), line("acme", "/two")),
        // The same message once more, and a different message with the same id.
        (id("2"), line("acme", "/two")),
        (id("2"), line("acme", "/other")),
        (None, line("acme", "/without")),
        (None, keyed.to_owned()),
        (id("3"), line("nobody", "/three")),
        (id("4"), line("acme", "/four")),
    ];
    server.publish(queue, messages.into_iter()).await;
    let store = store_path("bad");
    let (client, transport) = client(&store, |store| store).await;
    let source = RabbitMq::connect(&format!("{}?queue={queue}", url())).await.unwrap();
    assert!(source.name().starts_with("rabbitmq:127.0.0.1:"), "{}", source.name());
    let feeding = client.outbox().feed_from(&source);
    let looking = async {
        wait_until(async || transport.calls().len() == 3).await;
        wait_until(async || server.waiting_messages("bad.refused").await == 4).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(feeding, looking).0.unwrap(), 3);
    drop(source);
    assert_eq!(server.waiting_messages(queue).await, 0);
    let mut refused = Vec::new();
    while let Some(message) = server.next("bad.refused").await {
        refused.push(message);
    }
    refused.sort();
    let has = |number: usize, content: &str, why: &str| {
        let (found, said) = &refused[number];
        assert!(found.contains(content) && said.contains(why), "{refused:?}");
    };
    has(0, "{", "not JSON");
    has(1, "/other", "another request was accepted with the id");
    has(2, "/without", "message_id");
    has(3, "nobody", "nobody");
}

/// The broker routes a message to the queues in its header `CC` too. The copy of a refused message has no such header.
async fn refused_copy_goes_to_one_queue() {
    let server = Server::connect().await;
    for queue in ["named", "named.refused", "other"] {
        server.empty_queue(queue).await;
    }
    let named = AMQPValue::FieldArray(vec![AMQPValue::LongString("named".into())].into());
    let mut headers = FieldTable::default();
    headers.insert("CC".into(), named);
    let properties = BasicProperties::default().with_message_id("1".into()).with_headers(headers);
    let publish = BasicPublishOptions::default();
    let sent = server.channel.basic_publish("".into(), "other".into(), publish, b"{", properties);
    assert!(sent.await.unwrap().await.unwrap().is_ack());
    let (client, _) = client(&store_path("named"), |store| store).await;
    let source = RabbitMq::connect(&format!("{}?queue=named", url())).await.unwrap();
    let looking = async {
        wait_until(async || server.waiting_messages("named.refused").await > 0).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().feed_from(&source), looking).0.unwrap(), 0);
    drop(source);
    for (queue, messages) in [("named.refused", 1), ("named", 0), ("other", 1)] {
        assert_eq!(server.waiting_messages(queue).await, messages, "{queue}");
    }
}

async fn message_for_full_lane_goes_back() {
    let (server, queue) = (Server::connect().await, "full");
    server.empty_queue(queue).await;
    let lines = ["acme", "acme", "umbra"].into_iter().enumerate();
    let messages = lines.map(|(number, tenant)| (Some(number.to_string()), line(tenant, &format!("/{number}"))));
    server.publish(queue, messages).await;
    let store = store_path("full");
    // This client sends nothing, so that the first request fills the tenant's part of the outbox.
    let accepting = support::accepting_client(&store, |store| store.max_lane_backlog(1)).await;
    let source = RabbitMq::connect(&format!("{}?queue={queue}", url())).await.unwrap();
    let feeding = accepting.outbox().feed_from(&source);
    let looking = async {
        wait_until(async || server.waiting_messages("full.postponed").await == 1).await;
        let (working, transport) = client(&store, |store| store).await;
        // The broker puts the postponed message back into the queue, and it is accepted now that there is room.
        wait_until(async || transport.calls().len() == 3).await;
        working.shutdown(Duration::from_secs(5)).await;
        accepting.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(feeding, looking).0.unwrap(), 3);
    assert_eq!(server.waiting_messages(queue).await, 0);
}

/// A confirmation takes a round trip and a sync to the disk. Those of many messages are awaited together.
async fn messages_go_aside_together() {
    const MESSAGES: usize = 256;
    let (server, queue, aside) = (Server::connect().await, "many", "many.postponed");
    server.empty_queue(queue).await;
    server.channel.queue_delete(aside.into(), QueueDeleteOptions::default()).await.unwrap();
    let message = |number: usize| (Some(number.to_string()), line("acme", &format!("/{number}")));
    server.publish(queue, (0..2 * MESSAGES).map(message)).await;
    let source = RabbitMq::connect(&format!("{}?queue={queue}", url())).await.unwrap();
    let mut fetched = Vec::new();
    while fetched.len() < 2 * MESSAGES {
        let some = source.fetch(2 * MESSAGES - fetched.len()).await.unwrap();
        fetched.extend(some.iter().map(|message| message.message().clone()));
    }
    let (singly, together) = fetched.split_at(MESSAGES);
    let after = Duration::from_secs(120);
    #[expect(clippy::disallowed_methods, reason = "a test measures")]
    let began = Instant::now();
    for message in singly {
        source.later(std::slice::from_ref(message), after).await.unwrap();
    }
    let took_singly = began.elapsed();
    source.later(together, after).await.unwrap();
    let took_together = began.elapsed() - took_singly;
    assert!(2 * took_together < took_singly, "{took_together:?}, and one by one {took_singly:?}");
    wait_until(async || server.waiting_messages(aside).await == 2 * MESSAGES as u32).await;
    drop(source);
    assert_eq!(server.waiting_messages(queue).await, 0);
}

/// Postponed messages return to a queue that is full and refuses them. The broker keeps them, and tries again after
/// three minutes and when it starts.
async fn postponed_messages_outlast_full_queue() {
    if std::env::var_os("IC_TEST_RABBITMQ_DIR").is_none() {
        return;
    }
    let (server, queue) = (Server::connect().await, "narrow");
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(2));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    server.channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
    server.channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await.unwrap();
    let message = |number: usize| (Some(number.to_string()), line("acme", &format!("/{number}")));
    server.publish(queue, (0..2).map(message)).await;
    let source = RabbitMq::connect(&format!("{}?queue={queue}", url())).await.unwrap();
    let mut postponed = Vec::new();
    while postponed.len() < 2 {
        postponed.extend(source.fetch(2).await.unwrap().iter().map(|message| message.message().clone()));
    }
    source.later(&postponed, Duration::from_secs(5)).await.unwrap();
    drop(source);
    assert_eq!(server.waiting_messages("narrow.postponed").await, 2);
    server.publish(queue, (2..4).map(message)).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(server.waiting_messages("narrow.postponed").await, 0);
    for number in 2..4 {
        assert_eq!(server.next(queue).await.unwrap().0, message(number).1);
    }
    assert_eq!(server.next(queue).await, None);
    // RabbitMQ does not write acknowledgements to the disk at once. With those lost, the queue would be full again.
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(server);
    support::run_script("rabbitmq.sh", "kill");
    support::run_script("rabbitmq.sh", "serve");
    wait_until(async || Connection::connect(&url(), ConnectionProperties::default()).await.is_ok()).await;
    let server = Server::connect().await;
    wait_until(async || server.try_waiting_messages(queue).await == Some(2)).await;
    let mut returned = Vec::new();
    while let Some((content, _)) = server.next(queue).await {
        returned.push(content);
    }
    returned.sort();
    assert_eq!(returned, [message(0).1, message(1).1]);
}

/// The queue for postponed messages exists with other arguments. A source that connected anew for each attempt would
/// drive the messages into the limit of deliveries, at which the broker deletes them.
async fn message_that_cannot_go_aside_is_kept() {
    let (server, queue, aside) = (Server::connect().await, "limited", "limited.postponed");
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(5));
    server.channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
    server.channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await.unwrap();
    server.channel.queue_delete(aside.into(), QueueDeleteOptions::default()).await.unwrap();
    server.empty_queue(aside).await;
    let message = |number: usize| (Some(number.to_string()), line("acme", &format!("/{number}")));
    server.publish(queue, (0..3).map(message)).await;
    let store = store_path("limited");
    let accepting = support::accepting_client(&store, |store| store.max_lane_backlog(1)).await;
    let source = RabbitMq::connect(&format!("{}?queue={queue}", url())).await.unwrap();
    let looking = async {
        // Six attempts take 6.3 s.
        tokio::time::sleep(Duration::from_secs(10)).await;
        server.channel.queue_delete(aside.into(), QueueDeleteOptions::default()).await.unwrap();
        let (working, transport) = client(&store, |store| store).await;
        wait_until(async || transport.calls().len() == 3).await;
        working.shutdown(Duration::from_secs(5)).await;
        accepting.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(accepting.outbox().feed_from(&source), looking).0.unwrap(), 3);
    drop(source);
    assert_eq!((server.waiting_messages(queue).await, server.waiting_messages(aside).await), (0, 0));
}

/// A quorum queue counts how often a message was delivered and not acknowledged.
async fn deliveries_are_counted() {
    let (server, queue) = (Server::connect().await, "often");
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    server.channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
    server.channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await.unwrap();
    server.publish(queue, std::iter::once((Some("1".to_owned()), line("acme", "/often")))).await;
    for _ in 0..3 {
        let message = loop {
            match server.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap() {
                Some(message) => break message,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        message.reject(BasicRejectOptions { requeue: true }).await.unwrap();
    }
    let source = RabbitMq::connect(&format!("{}?queue={queue}&max_deliveries=3", url())).await.unwrap();
    let fetched = format!("{:?}", source.fetch(1).await.unwrap());
    assert!(source.max_deliveries() == Some(3) && fetched.contains("deliveries: 4"), "{fetched}");
}

/// A hand-over ends after its first fetch. The broker has sent more messages than that.
async fn end_gives_back_what_nobody_fetched() {
    let (server, queue) = (Server::connect().await, "short");
    server.empty_queue(queue).await;
    let message = |number: usize| (Some(number.to_string()), line("acme", &format!("/{number}")));
    server.publish(queue, (0..5).map(message)).await;
    // The source still exists, as in a program that goes on.
    let source = RabbitMq::connect(&format!("{}?queue={queue}", url())).await.unwrap();
    let first = source.fetch(1).await.unwrap();
    source.taken(&[first[0].message().clone()]).await.unwrap();
    source.ended().await;
    let is_back = wait_until(async || server.waiting_messages(queue).await == 4);
    tokio::time::timeout(Duration::from_secs(10), is_back).await.expect("the others are in the queue again");
    assert_eq!(source.fetch(1).await.unwrap().len(), 1, "it connects again");
}

/// Many replies under way at once, so that the broker returns some while the confirmations of others are missing.
async fn replies_go_to_queue_of_sender() {
    const REPLIES: usize = 256;
    let server = Server::connect().await;
    for queue in ["asking", "replies"] {
        server.empty_queue(queue).await;
    }
    // The queue of a sender that waits for its replies. The broker confirms its messages at once, and those of a
    // durable queue later.
    let own = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    server.channel.queue_declare("amq-own".into(), own, FieldTable::default()).await.unwrap();
    let missing = RabbitMqReplies::connect(&format!("{}?queue=no-replies", url())).await.unwrap_err().to_string();
    assert!(missing.contains("no-replies") && missing.contains("NOT_FOUND"), "{missing}");
    // The replies are for a queue that is allowed, one that is not, one that does not exist, and for no named queue.
    let places = [Some("amq-own"), Some("asking"), Some("amq-gone"), None];
    for (number, to) in places.into_iter().cycle().take(REPLIES).enumerate() {
        let properties = BasicProperties::default().with_message_id(format!("r{number}").into());
        let correlation_id = format!("c{number:03}");
        let asks = format!(r#"}},"reply":true,"metadata":{{"correlation_id":"{correlation_id}"}}}}"#);
        let (properties, content) = match to {
            Some(to) => {
                (properties.with_correlation_id(correlation_id.into()).with_reply_to(to.into()), line("acme", "/"))
            }
            None => (properties, line("acme", "/").replace("}}", &asks)),
        };
        let publish = BasicPublishOptions::default();
        let sent = server.channel.basic_publish("".into(), "asking".into(), publish, content.as_bytes(), properties);
        assert!(sent.await.unwrap().await.unwrap().is_ack());
    }
    let (client, _) = client(&store_path("replies"), |store| store).await;
    let source = RabbitMq::connect(&format!("{}?queue=asking", url())).await.unwrap();
    let target = RabbitMqReplies::connect(&format!("{}?queue=replies&allow=amq-", url())).await.unwrap();
    let delivering = async {
        // They are delivered in few calls.
        wait_until(async || client.outbox().replies(REPLIES).await.unwrap().len() == REPLIES).await;
        let looking = async {
            wait_until(async || client.outbox().replies(1).await.unwrap().is_empty()).await;
            client.shutdown(Duration::from_secs(5)).await;
        };
        tokio::join!(client.outbox().deliver_replies(&target), looking).0
    };
    let (fed, delivered) = tokio::join!(client.outbox().feed_from(&source), delivering);
    assert_eq!((fed.unwrap(), delivered.unwrap()), (REPLIES as u64, REPLIES as u64));
    let (mut message_ids, mut found) = (HashSet::new(), [Vec::new(), Vec::new()]);
    for (queue, found) in ["amq-own", "replies"].into_iter().zip(&mut found) {
        while let Some(message) = server.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap() {
            message.ack(BasicAckOptions::default()).await.unwrap();
            let properties = &message.properties;
            assert_eq!(*properties.delivery_mode(), Some(2), "{properties:?}");
            assert!(message_ids.insert(properties.message_id().as_ref().unwrap().to_string()), "{properties:?}");
            let content = String::from_utf8(message.delivery.data.clone()).unwrap();
            assert!(content.contains(r#""status":200"#), "{content}");
            assert!(queue == "replies" || content.contains(r#""reply_to":"amq-own""#), "{content}");
            found.push(properties.correlation_id().as_ref().unwrap().to_string());
        }
        found.sort();
    }
    let (to_sender, to_all): (Vec<usize>, Vec<usize>) =
        (0..REPLIES).partition(|number| number.is_multiple_of(places.len()));
    let ids = |numbers: Vec<usize>| numbers.iter().map(|number| format!("c{number:03}")).collect::<Vec<_>>();
    assert_eq!(found, [ids(to_sender), ids(to_all)]);
    assert_eq!(server.waiting_messages("asking").await, 0);
}

async fn killed_workers_lose_no_reply() {
    const MESSAGES: usize = 3_000;
    let server = Server::connect().await;
    for queue in ["asked", "answered"] {
        server.empty_queue(queue).await;
    }
    let content = |number: usize| line("acme", &format!("/{number}")).replace("}}", r#"},"reply":true}"#);
    server.publish("asked", (0..MESSAGES).map(|number| (Some(format!("a{number}")), content(number)))).await;
    let (asked, answered) = (format!("{}?queue=asked", url()), format!("{}?queue=answered", url()));
    let ids = async || {
        let mut ids = Vec::new();
        while let Some(message) = server.channel.basic_get("answered".into(), BasicGetOptions::default()).await.unwrap()
        {
            message.ack(BasicAckOptions::default()).await.unwrap();
            ids.push(message.properties.message_id().as_ref().unwrap().to_string());
        }
        ids
    };
    support::kill_while_replying("rabbitmq", &asked, &answered, MESSAGES, ids).await;
}

async fn killed_workers_and_broker_lose_nothing() {
    let queue = "killed";
    {
        let server = Server::connect().await;
        server.empty_queue(queue).await;
        let messages =
            (0..support::MESSAGES).map(|number| (Some(format!("m{number}")), line("acme", &format!("/{number}"))));
        server.publish(queue, messages).await;
    }
    let is_ours = std::env::var_os("IC_TEST_RABBITMQ_DIR").is_some();
    let set = |what: &str| support::run_script("rabbitmq.sh", what);
    let broker: Option<&dyn Fn(&str)> = if is_ours { Some(&set) } else { None };
    let is_empty = async || Server::connect().await.try_waiting_messages(queue).await == Some(0);
    support::kill_and_judge(
        "rabbitmq",
        &format!("{}?queue={queue}", url()),
        support::MESSAGES,
        broker,
        support::WORKER_LIFETIMES,
        is_empty,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of the test above, in a process of its own"]
async fn worker() {
    support::work().await;
}
