//! NATS JetStream, against the server that `IC_TEST_NATS` names. `scripts/nats.sh start` starts a server that the test
//! may kill.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too"
)]

#[path = "nats/begin.rs"]
mod begin;
#[path = "nats/restart.rs"]
mod restart;
mod support;
#[path = "nats/unreadable.rs"]
mod unreadable;

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::{self, Context, stream};
use futures_util::StreamExt;
use integration_client::BoxError;
use integration_client::outbox::IntakeSource;
use integration_client_intake::{Nats, NatsReplies};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use support::{client, line, store_path, wait_until};

fn url() -> String {
    std::env::var("IC_TEST_NATS").expect(
        "IC_TEST_NATS names no server: run `scripts/test.sh test`, or `eval \"$(scripts/nats.sh start)\"` before",
    )
}

async fn context() -> Context {
    jetstream::new(async_nats::connect(url()).await.unwrap())
}

/// Messages that are published and not confirmed yet. At 5,000 the NATS client would block further ones.
const IN_FLIGHT: usize = 1_000;

async fn await_confirmations(published: &mut Vec<PublishAckFuture>) {
    for published in published.drain(..) {
        published.await.unwrap();
    }
}

/// Creates a stream that holds these messages only. Each message is an id and a content.
async fn publish(name: &str, messages: impl Iterator<Item = (Option<String>, String)>) -> Context {
    let context = context().await;
    for old in [name.to_owned(), format!("{name}_REFUSED")] {
        let _ = context.delete_stream(old).await;
    }
    let config = stream::Config { name: name.to_owned(), subjects: vec![name.to_owned()], ..stream::Config::default() };
    let config = stream::Config { duplicate_window: Duration::from_millis(100), ..config };
    context.create_stream(config).await.unwrap();
    let mut published = Vec::new();
    for (id, content) in messages {
        let mut headers = HeaderMap::new();
        id.into_iter().for_each(|id| headers.insert("Nats-Msg-Id", id.as_str()));
        published.push(context.publish_with_headers(name.to_owned(), headers, content.into()).await.unwrap());
        if published.len() == IN_FLIGHT {
            await_confirmations(&mut published).await;
        }
    }
    await_confirmations(&mut published).await;
    context
}

/// Creates the consumer of the source.
async fn add_consumer(context: &Context, stream: &str, ack_wait: Duration) -> PullConsumer {
    let durable_name = Some("integration-client".to_owned());
    let config = pull::Config { durable_name, ack_wait, ..pull::Config::default() };
    context.get_stream(stream).await.unwrap().create_consumer(config).await.unwrap()
}

/// The number of messages of the stream that the consumer has not settled. Without a consumer these are all.
async fn unsettled_messages(context: &Context, name: &str) -> u64 {
    let stream = context.get_stream(name).await.unwrap();
    match stream.consumer_info("integration-client").await {
        Ok(info) => info.num_pending + info.num_ack_pending as u64,
        Err(_) => stream.cached_info().state.messages,
    }
}

/// The error of a source, with which a hand-over or a fetch has ended.
fn why<T: std::fmt::Debug>(ended: Result<T, impl Into<BoxError>>) -> String {
    let error: BoxError = ended.unwrap_err().into();
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Runs all tests one after the other, because they share the server that the last two kill.
#[tokio::test(flavor = "multi_thread")]
async fn nats() {
    missing_stream_is_said().await;
    stream_of_refused_subject_is_an_error().await;
    limits_of_existing_consumer_are_read().await;
    bad_messages_are_refused_with_reason().await;
    refused_message_fits_its_stream().await;
    message_for_full_lane_comes_again().await;
    full_lane_stops_no_other().await;
    deliveries_are_counted().await;
    held_message_is_not_redelivered().await;
    end_gives_back_what_nobody_fetched().await;
    end_gives_back_what_is_under_way().await;
    stream_made_anew_ends_hand_over().await;
    lost_consumer_ends_hand_over().await;
    begin::beginning_is_set_before_first_start().await;
    unreadable::malformed_header_starves_no_other().await;
    unreadable::client_that_ended_is_replaced().await;
    replies_go_to_subject_of_stream().await;
    restart::restart_ends_no_hand_over().await;
    killed_workers_and_broker_lose_nothing().await;
}

async fn missing_stream_is_said() {
    let error = Nats::connect(&format!("{}?stream=NOWHERE", url())).await.unwrap_err().to_string();
    assert!(error.contains("NOWHERE") && error.contains("not found"), "{error}");
    let error = Nats::connect(&url()).await.unwrap_err().to_string();
    assert!(error.contains("stream=NAME"), "{error}");
    let error = Nats::connect("nats://u:hunter2@127.0.0.1:1?stream=Q").await.unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
}

async fn stream_of_refused_subject_is_an_error() {
    let context = context().await;
    let _ = context.delete_stream("BROAD").await;
    let subjects = vec!["BROAD".to_owned(), "BROAD_REFUSED".to_owned()];
    let config = stream::Config { name: "BROAD".to_owned(), subjects, ..stream::Config::default() };
    context.create_stream(config).await.unwrap();
    let error = Nats::connect(&format!("{}?stream=BROAD", url())).await.unwrap_err().to_string();
    assert!(error.contains("BROAD_REFUSED") && error.contains("nats stream edit BROAD --subjects"), "{error}");
}

async fn limits_of_existing_consumer_are_read() {
    let messages = (0..20).map(|number| (None, line("acme", &format!("/{number}"))));
    let context = publish("LIMITED", messages).await;
    let stream = context.get_stream("LIMITED").await.unwrap();
    let config = |name: &str, max_deliver, max_batch| pull::Config {
        durable_name: Some(name.to_owned()),
        max_deliver,
        max_batch,
        ..pull::Config::default()
    };
    stream.create_consumer(config("forgetful", 3, 0)).await.unwrap();
    let error = Nats::connect(&format!("{}?stream=LIMITED&consumer=forgetful", url())).await.unwrap_err().to_string();
    assert!(error.contains("nats consumer edit LIMITED forgetful --max-deliver=-1"), "{error}");
    stream.create_consumer(config("integration-client", -1, 4)).await.unwrap();
    let (client, transport) = client(&store_path("nats-limited"), |store| store).await;
    let source = Nats::connect(&format!("{}?stream=LIMITED", url())).await.unwrap();
    let looking = async {
        wait_until(async || transport.calls().len() == 20 && unsettled_messages(&context, "LIMITED").await == 0).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().feed_from(&source), looking).0.unwrap(), 20);
}

async fn bad_messages_are_refused_with_reason() {
    let messages = [
        (Some("1".to_owned()), "{".to_owned()),
        (Some("2".to_owned()), line("acme", "/two")),
        (None, line("nobody", "/three")),
        (None, line("acme", "/four")),
    ];
    let context = publish("BAD", messages.into_iter()).await;
    // Waits until the duplicate window (100 ms) is over, in which the server itself would drop a message with the same
    // id.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", "2");
    context.publish_with_headers("BAD", headers.clone(), line("acme", "/two").into()).await.unwrap().await.unwrap();
    // A different message with the id of the first: both are refused, and both are kept.
    headers.insert("Nats-Msg-Id", "1");
    context.publish_with_headers("BAD", headers, "[".into()).await.unwrap().await.unwrap();
    let (client, transport) = client(&store_path("nats-bad"), |store| store).await;
    let source = Nats::connect(&format!("{}?stream=BAD", url())).await.unwrap();
    let looking = async {
        wait_until(async || transport.calls().len() == 2 && unsettled_messages(&context, "BAD").await == 0).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().feed_from(&source), looking).0.unwrap(), 2);
    let stream = context.get_stream("BAD_REFUSED").await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 3);
    let consumer = stream.create_consumer(pull::Config::default()).await.unwrap();
    let refused: Vec<_> = consumer.fetch().max_messages(3).messages().await.unwrap().collect().await;
    let of = |content: &str| {
        let is_it = |message: &&jetstream::Message| match content.len() {
            1 => message.payload == content.as_bytes(),
            _ => message.payload.starts_with(content.as_bytes()),
        };
        let message = refused.iter().map(|message| message.as_ref().unwrap()).find(is_it).unwrap();
        let header = |name: &str| message.headers.as_ref().unwrap().get(name).map(ToString::to_string);
        (header("X-Refused-Because").unwrap(), header("X-Refused-Id"))
    };
    for content in ["{", "["] {
        let (why, id) = of(content);
        assert!(why.starts_with("not ") && (content == "[" || why.contains("JSON")), "{why}");
        assert_eq!(id.as_deref(), Some("1"));
    }
    assert!(of("{\"tenant\":\"nobody").0.contains("nobody"));
}

/// One message has headers by which the server would refuse its copy, and another leaves no room for the reason.
async fn refused_message_fits_its_stream() {
    let context = publish("BULKY", std::iter::empty()).await;
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Stream", "BULKY");
    headers.insert("Own", "1");
    context.publish_with_headers("BULKY", headers, "{".into()).await.unwrap().await.unwrap();
    let length = context.client().max_payload() - 100;
    context.publish("BULKY", "x".repeat(length).into()).await.unwrap().await.unwrap();
    let (client, _) = client(&store_path("nats-bulky"), |store| store).await;
    let source = Nats::connect(&format!("{}?stream=BULKY", url())).await.unwrap();
    let looking = async {
        wait_until(async || unsettled_messages(&context, "BULKY").await == 0).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().feed_from(&source), looking).0.unwrap(), 0);
    let stream = context.get_stream("BULKY_REFUSED").await.unwrap();
    let consumer = stream.create_consumer(pull::Config::default()).await.unwrap();
    let refused = consumer.fetch().max_messages(2).messages().await.unwrap();
    let mut refused: Vec<jetstream::Message> = refused.map(|message| message.unwrap()).collect().await;
    refused.sort_by_key(|message| message.payload.len());
    let [small, large] = &refused[..] else { panic!("{} messages", refused.len()) };
    let header =
        |message: &jetstream::Message, name: &str| message.headers.as_ref().unwrap().get(name).map(ToString::to_string);
    assert!(header(small, "X-Refused-Because").is_some_and(|why| why.contains("not JSON")), "{small:?}");
    assert_eq!(&small.payload[..], b"{");
    assert_eq!((header(small, "Own").as_deref(), header(small, "Nats-Expected-Stream")), (Some("1"), None));
    assert!(header(large, "X-Refused-Because").is_some_and(|why| why.contains("not JSON")));
    assert_eq!(header(large, "X-Refused-Cut"), Some(length.to_string()));
    assert!((length - 1_000..length).contains(&large.payload.len()), "{}", large.payload.len());
}

async fn message_for_full_lane_comes_again() {
    let lines = ["acme", "acme", "umbra"].into_iter().enumerate();
    let context = publish("FULL", lines.map(|(number, tenant)| (None, line(tenant, &format!("/{number}"))))).await;
    let store = store_path("nats-full");
    let accepting = support::accepting_client(&store, |store| store.max_lane_backlog(1)).await;
    let source = Nats::connect(&format!("{}?stream=FULL", url())).await.unwrap();
    let looking = async {
        wait_until(async || unsettled_messages(&context, "FULL").await == 1).await;
        let (working, transport) = client(&store, |store| store).await;
        wait_until(async || transport.calls().len() == 3 && unsettled_messages(&context, "FULL").await == 0).await;
        working.shutdown(Duration::from_secs(5)).await;
        accepting.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(accepting.outbox().feed_from(&source), looking).0.unwrap(), 3);
}

/// More messages than a consumer allows by default to be unacknowledged are postponed, and a message behind them is accepted.
async fn full_lane_stops_no_other() {
    const OF_FULL_LANE: usize = 5_000;
    let full = (0..OF_FULL_LANE).map(|number| (None, line("acme", &format!("/{number}"))));
    let context = publish("LONG", full.chain([(None, line("umbra", "/other"))])).await;
    let store = store_path("nats-long");
    let accepting = support::accepting_client(&store, |store| store.max_lane_backlog(1)).await;
    let source = Nats::connect(&format!("{}?stream=LONG", url())).await.unwrap();
    let looking = async {
        wait_until(async || unsettled_messages(&context, "LONG").await == OF_FULL_LANE as u64 - 1).await;
        accepting.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(accepting.outbox().feed_from(&source), looking).0.unwrap(), 2);
}

async fn deliveries_are_counted() {
    let context = publish("OFTEN", std::iter::once((None, line("acme", "/often")))).await;
    let consumer = add_consumer(&context, "OFTEN", Duration::from_secs(30)).await;
    for _ in 0..3 {
        let mut fetched = consumer.batch().max_messages(1).expires(Duration::from_secs(10)).messages().await.unwrap();
        let message = fetched.next().await.unwrap().unwrap();
        message.ack_with(jetstream::AckKind::Nak(None)).await.unwrap();
    }
    let source = Nats::connect(&format!("{}?stream=OFTEN&max_deliveries=3", url())).await.unwrap();
    let fetched = format!("{:?}", source.fetch(1).await.unwrap());
    assert!(source.max_deliveries() == Some(3) && fetched.contains("deliveries: 4"), "{fetched}");
}

/// A message is held for longer than the server waits for acknowledgements.
async fn held_message_is_not_redelivered() {
    let lines = (0..2).map(|number| (None, line("acme", &format!("/{number}"))));
    let context = publish("HELD", lines).await;
    let mut consumer = add_consumer(&context, "HELD", Duration::from_secs(1)).await;
    let accepting = support::accepting_client(&store_path("nats-held"), |store| store.max_backlog(1)).await;
    let source = Nats::connect(&format!("{}?stream=HELD", url())).await.unwrap();
    let looking = async {
        wait_until(async || unsettled_messages(&context, "HELD").await == 1).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        let delivered = consumer.info().await.unwrap().delivered.consumer_sequence;
        accepting.shutdown(Duration::from_secs(5)).await;
        delivered
    };
    let (fed, delivered) = tokio::join!(accepting.outbox().feed_from(&source), looking);
    assert_eq!((fed.unwrap(), delivered), (1, 2));
}

/// A hand-over ends after its first fetch. The server has sent more messages than that, which it would deliver again only
/// after five minutes.
async fn end_gives_back_what_nobody_fetched() {
    const MESSAGES: usize = 2_000;
    let messages = (0..MESSAGES).map(|number| (None, line("acme", &format!("/{number}"))));
    let context = publish("SHORT", messages).await;
    let url = format!("{}?stream=SHORT", url());
    let first = Nats::connect(&url).await.unwrap();
    first.begin(Duration::from_secs(3600));
    assert!(!first.fetch(1_000).await.unwrap().is_empty());
    first.ended().await;
    // The first source still exists, as in a program that goes on.
    let next = Nats::connect(&url).await.unwrap();
    let accepting = support::accepting_client(&store_path("nats-short"), |store| store).await;
    let looking = async {
        let all_taken = wait_until(async || unsettled_messages(&context, "SHORT").await == 0);
        let in_time = tokio::time::timeout(Duration::from_secs(10), all_taken).await.is_ok();
        accepting.shutdown(Duration::from_secs(5)).await;
        in_time
    };
    let (accepted, in_time) = tokio::join!(accepting.outbox().feed_from(&next), looking);
    assert_eq!((accepted.unwrap(), in_time), (MESSAGES as u64, true));
}

/// A way to the server on which each of its answers takes a second. Returns the URL.
#[expect(clippy::disallowed_methods, reason = "a test's own")]
async fn slow_link() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = format!("nats://{}", listener.local_addr().unwrap());
    let server = url().rsplit(['/', '@']).next().unwrap().to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = TcpStream::connect(&server).await.unwrap().into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
            tokio::spawn(async move {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
                    let _ = sender.send((Instant::now() + Duration::from_secs(1), bytes[..count].to_vec()));
                }
            });
            tokio::spawn(async move {
                while let Some((at, bytes)) = receiver.recv().await {
                    tokio::time::sleep_until(at).await;
                    let _ = to_client.write_all(&bytes).await;
                }
            });
        }
    });
    slow
}

/// A fetch is dropped when its request has just been sent, and the messages are under way.
async fn end_gives_back_what_is_under_way() {
    const MESSAGES: usize = 10;
    let context = publish("SLOW", (0..MESSAGES).map(|number| (None, line("acme", &format!("/{number}"))))).await;
    add_consumer(&context, "SLOW", Duration::from_secs(30)).await;
    let source = Nats::connect(&format!("{}?stream=SLOW", slow_link().await)).await.unwrap();
    // The looks at the stream and at the consumer take a second each.
    let fetched = tokio::time::timeout(Duration::from_millis(2_300), source.fetch(MESSAGES)).await;
    assert!(fetched.is_err(), "{fetched:?}");
    source.ended().await;
    let next = Nats::connect(&format!("{}?stream=SLOW", url())).await.unwrap();
    let accepting = support::accepting_client(&store_path("nats-slow"), |store| store).await;
    let looking = async {
        let all_taken = wait_until(async || unsettled_messages(&context, "SLOW").await == 0);
        let in_time = tokio::time::timeout(Duration::from_secs(10), all_taken).await.is_ok();
        accepting.shutdown(Duration::from_secs(5)).await;
        in_time
    };
    let (accepted, in_time) = tokio::join!(accepting.outbox().feed_from(&next), looking);
    assert_eq!((accepted.unwrap(), in_time), (MESSAGES as u64, true));
}

/// A stream that was deleted and created again numbers its messages from one again, as those of the old stream.
async fn stream_made_anew_ends_hand_over() {
    let messages = || (0..3).map(|number| (None, line("acme", &format!("/{number}"))));
    publish("ANEW", messages()).await;
    let (client, transport) = client(&store_path("nats-anew"), |store| store).await;
    let source = Nats::connect(&format!("{}?stream=ANEW", url())).await.unwrap();
    let replacing = async {
        wait_until(async || transport.calls().len() == 3).await;
        // The creation time counts in whole seconds.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        publish("ANEW", messages()).await
    };
    let (fed, context) = tokio::join!(client.outbox().feed_from(&source), replacing);
    let why = why(fed);
    assert!(why.contains("the stream ANEW was deleted and created again"), "{why}");
    let source = Nats::connect(&format!("{}?stream=ANEW", url())).await.unwrap();
    let looking = async {
        wait_until(async || transport.calls().len() == 6 && unsettled_messages(&context, "ANEW").await == 0).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().feed_from(&source), looking).0.unwrap(), 3);
}

/// A new consumer delivers all messages of the stream again. Those that are older than the ids in the store would be
/// sent again.
async fn lost_consumer_ends_hand_over() {
    let messages = || (0..3).map(|number| (None, line("acme", &format!("/{number}"))));
    let context = publish("LOST", messages()).await;
    let (client, transport) = client(&store_path("nats-lost"), |store| store).await;
    let connect = async || Nats::connect(&format!("{}?stream=LOST", url())).await.unwrap();
    add_consumer(&context, "LOST", Duration::from_secs(30)).await;
    let source = connect().await;
    let deleting = async {
        wait_until(async || transport.calls().len() == 3 && unsettled_messages(&context, "LOST").await == 0).await;
        context.get_stream("LOST").await.unwrap().delete_consumer("integration-client").await.unwrap();
    };
    let why_deleted = why(tokio::join!(client.outbox().feed_from(&source), deleting).0);
    assert!(why_deleted.contains("the consumer integration-client of the stream LOST was deleted"), "{why_deleted}");
    // The ids of the messages may be forgotten.
    let source = connect().await;
    source.begin(Duration::ZERO);
    let why_missing = why(source.fetch(10).await);
    assert!(why_missing.contains("nats consumer add LOST integration-client"), "{why_missing}");
    // The ids are known: the messages come again, and none is sent.
    let source = connect().await;
    let looking = async {
        wait_until(async || unsettled_messages(&context, "LOST").await == 0).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().feed_from(&source), looking).0.unwrap(), 0);
    assert_eq!(transport.calls().len(), 3);
    // A work queue holds only messages that were not acknowledged.
    context.delete_stream("LOST").await.unwrap();
    let config = stream::Config { name: "LOST".to_owned(), ..stream::Config::default() };
    context.create_stream(stream::Config { retention: stream::RetentionPolicy::WorkQueue, ..config }).await.unwrap();
    context.publish("LOST", line("acme", "/3").into()).await.unwrap().await.unwrap();
    let source = connect().await;
    source.begin(Duration::ZERO);
    assert_eq!(source.fetch(10).await.unwrap().len(), 1);
}

async fn replies_go_to_subject_of_stream() {
    let replied = |line: String, to: &str| line.replace("}}", &format!(r#"}},"reply":{to}}}"#));
    let lines = ["true", "\"ANSWERS.mine\"", "\"ANSWERS\"", "\"OTHER.nobody\""].into_iter();
    publish("ASKING", lines.map(|to| (None, replied(line("acme", "/"), to)))).await;
    let context = context().await;
    let _ = context.delete_stream("ANSWERS").await;
    let missing = NatsReplies::connect(&format!("{}?subject=ANSWERS.all", url())).await.unwrap_err().to_string();
    assert!(missing.contains("ANSWERS.all"), "{missing}");
    let subjects = vec!["ANSWERS.>".to_owned()];
    let stream = stream::Config { name: "ANSWERS".to_owned(), subjects, ..stream::Config::default() };
    let mut stream = context.create_stream(stream).await.unwrap();
    let (client, _) = client(&store_path("nats-replies"), |store| store).await;
    let source = Nats::connect(&format!("{}?stream=ASKING", url())).await.unwrap();
    let target = NatsReplies::connect(&format!("{}?subject=ANSWERS.all&allow=ANSWERS.,OTHER.", url())).await.unwrap();
    let looking = async {
        wait_until(async || context.get_stream("ANSWERS").await.unwrap().cached_info().state.messages == 4).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    let outbox = client.outbox();
    let (fed, delivered, ()) =
        tokio::join!(outbox.clone().feed_from(&source), outbox.deliver_replies(&target), looking);
    assert_eq!((fed.unwrap(), delivered.unwrap()), (4, 4));
    let messages = stream.info().await.unwrap().state.messages;
    let mut mine = 0;
    for number in 1..=messages {
        let message = stream.get_raw_message(number).await.unwrap();
        assert!(message.headers.get("Nats-Msg-Id").is_some(), "{message:?}");
        mine += u32::from(message.subject.as_str() == "ANSWERS.mine");
    }
    assert_eq!(mine, 1, "what no stream keeps, or may not be named, goes where all others go");
}

async fn killed_workers_and_broker_lose_nothing() {
    let messages = (0..support::MESSAGES).map(|number| (None, line("acme", &format!("/{number}"))));
    let made = publish("KILLED", messages).await;
    // The test creates the consumer with a short `ack_wait`, so that the server soon redelivers the messages of a
    // killed worker.
    add_consumer(&made, "KILLED", Duration::from_secs(1)).await;
    let is_ours = std::env::var_os("IC_TEST_NATS_DIR").is_some();
    let set = |what: &str| support::run_script("nats.sh", what);
    let broker: Option<&dyn Fn(&str)> = if is_ours { Some(&set) } else { None };
    let is_empty = async || unsettled_messages(&context().await, "KILLED").await == 0;
    support::kill_and_judge(
        "nats",
        &format!("{}?stream=KILLED", url()),
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
