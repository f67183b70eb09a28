//! Amazon SQS, against the server that `IC_TEST_SQS` names. `scripts/sqs.sh start` starts a server that the test may
//! pause. `IC_TEST_SQS=off` skips these tests on a machine that cannot download the server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too"
)]

mod support;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{Message, QueueAttributeName as Attribute, SendMessageBatchRequestEntry as Entry};
use integration_client::outbox::IntakeSource;
use integration_client::{Priority, Request};
use integration_client_intake::{Sqs, SqsReplies};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use support::{client, line, store_path, wait_until};

/// Messages of the test that kills workers, unless `IC_SQS_MESSAGES` states another number. Fewer than for other
/// brokers, because the server accepts about 200 messages a second.
const MESSAGES: usize = 2_000;
/// Messages in the queue at once. The number is small because the server scans all of them in every request.
const AT_ONCE: usize = 300;
const WORKER_LIFETIMES: Range<Duration> = Duration::from_millis(500)..Duration::from_secs(2);

fn server() -> String {
    std::env::var("IC_TEST_SQS")
        .expect("IC_TEST_SQS names no server: run `scripts/test.sh test`, or `eval \"$(scripts/sqs.sh start)\"` before")
}

fn url(queue: &str) -> String {
    format!("{}/123456789012/{queue}", server())
}

/// A client without retries: a retry after a lost response would send a second message.
fn sqs() -> Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(server().replace("sqs+", ""))
        .retry_config(RetryConfig::disabled())
        .build();
    Client::from_conf(config)
}

/// A queue of the test, empty at first.
struct Queue {
    client: Client,
    url: String,
}

impl Queue {
    async fn create(name: &str, attributes: &[(Attribute, &str)]) -> Queue {
        let client = sqs();
        let attributes: HashMap<_, _> =
            attributes.iter().map(|(name, value)| (name.clone(), (*value).to_owned())).collect();
        let made = client.create_queue().queue_name(name).set_attributes(Some(attributes)).send().await.unwrap();
        let queue = Queue { client, url: made.queue_url.unwrap() };
        queue.client.purge_queue().queue_url(&queue.url).send().await.unwrap();
        queue
    }

    async fn send(&self, contents: impl IntoIterator<Item = String>) {
        let is_fifo = self.url.ends_with(".fifo");
        let entries = contents.into_iter().enumerate().map(|(number, content)| {
            let entry = Entry::builder().id(number.to_string()).message_body(content);
            let entry = if is_fifo { entry.message_group_id("acme") } else { entry };
            entry.build().unwrap()
        });
        let request = self.client.send_message_batch().queue_url(&self.url);
        let told = request.set_entries(Some(entries.collect())).send().await.unwrap();
        assert!(told.failed().is_empty(), "{told:?}");
    }

    /// The messages that are not deleted: the number of visible ones, and the number of all.
    async fn message_counts(&self) -> (usize, usize) {
        let told = self.client.get_queue_attributes().queue_url(&self.url).attribute_names(Attribute::All).send().await;
        let told = told.unwrap().attributes.unwrap();
        let count = |name: Attribute| told.get(&name).map_or(0, |count| count.parse::<usize>().unwrap());
        let visible = count(Attribute::ApproximateNumberOfMessages);
        (visible, visible + count(Attribute::ApproximateNumberOfMessagesNotVisible))
    }

    async fn is_empty(&self) -> bool {
        self.message_counts().await.1 == 0
    }

    async fn receive(&self) -> Vec<Message> {
        let request = self.client.receive_message().queue_url(&self.url).max_number_of_messages(10);
        request.message_attribute_names("All").send().await.unwrap().messages.unwrap_or_default()
    }
}

/// Runs all tests one after the other, because they share the server that the last one pauses.
#[tokio::test(flavor = "multi_thread")]
async fn sqs_queues() {
    if std::env::var("IC_TEST_SQS").is_ok_and(|set| set == "off") {
        return;
    }
    missing_queues_are_said().await;
    bad_messages_are_refused_with_reason().await;
    redrive_policy_moves_refused_messages().await;
    messages_for_full_lane_come_again().await;
    deliveries_are_counted().await;
    held_messages_stay_invisible().await;
    end_gives_back_held_messages().await;
    replies_go_to_queue().await;
    keys_come_from_service_of_container().await;
    killed_workers_and_paused_broker_lose_nothing().await;
}

async fn missing_queues_are_said() {
    let error = Sqs::connect(&url("nowhere?dead=bad")).await.unwrap_err().to_string();
    assert!(error.contains("nowhere") && error.contains("make it first"), "{error}");
    Queue::create("alone", &[]).await;
    let error = Sqs::connect(&url("alone")).await.unwrap_err().to_string();
    assert!(error.contains("?dead=QUEUE"), "{error}");
    let error = Sqs::connect(&url("alone?dead=nowhere")).await.unwrap_err().to_string();
    assert!(error.contains("queue of refused messages") && error.contains("make it first"), "{error}");
    let error = Sqs::connect("sqs+http://127.0.0.1:1/1/q?dead=x").await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1/1/q"), "{error}");
}

async fn bad_messages_are_refused_with_reason() {
    let queue =
        Queue::create("bad.fifo", &[(Attribute::FifoQueue, "true"), (Attribute::ContentBasedDeduplication, "true")]);
    let refused =
        Queue::create("bad-refused.fifo", &[(Attribute::FifoQueue, "true"), (Attribute::MaximumMessageSize, "1024")]);
    let (queue, refused) = tokio::join!(queue, refused);
    let contents = ["{".to_owned(), line("acme", "/two"), line("nobody", "/three"), line("acme", "/four")];
    queue.send(contents.into_iter().chain(["x".repeat(2_000)])).await;
    let (client, transport) = client(&store_path("sqs-bad"), |store| store).await;
    let source = Sqs::connect(&url("bad.fifo?dead=bad-refused.fifo")).await.unwrap();
    let looking = async {
        wait_until(async || transport.calls().len() == 2 && queue.is_empty().await).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().feed_from(&source), looking).0.unwrap(), 2);
    let messages = refused.receive().await;
    let attribute = |number: usize, name: &str| {
        messages[number].message_attributes().unwrap().get(name).and_then(|value| value.string_value())
    };
    let why = |number: usize| attribute(number, "refused-because").unwrap();
    assert_eq!((messages.len(), messages[0].body()), (3, Some("{")));
    assert!(why(0).contains("not JSON") && why(1).contains("nobody"), "{} {}", why(0), why(1));
    // The last message is larger than the queue of refused messages takes.
    let cut = messages[2].body().unwrap();
    assert!((500..1_024).contains(&cut.len()) && why(2).contains("not JSON"), "{cut}: {}", why(2));
    assert_eq!((attribute(1, "refused-cut"), attribute(2, "refused-cut")), (None, Some("2000")));
}

async fn redrive_policy_moves_refused_messages() {
    let dead = Queue::create("moved", &[]).await;
    let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:moved","maxReceiveCount":"2"}"#;
    let queue =
        Queue::create("moving", &[(Attribute::RedrivePolicy, policy), (Attribute::VisibilityTimeout, "2")]).await;
    queue.send(["{".to_owned(), line("acme", "/good")]).await;
    let (client, transport) = client(&store_path("sqs-moved"), |store| store).await;
    let source = Sqs::connect(&url("moving")).await.unwrap();
    let looking = async {
        wait_until(async || transport.calls().len() == 1 && dead.message_counts().await.0 == 1).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().feed_from(&source), looking).0.unwrap(), 1);
}

async fn messages_for_full_lane_come_again() {
    const ROOM: usize = 12;
    Queue::create("full-refused", &[]).await;
    let queue = Queue::create("full", &[]).await;
    // More messages than one request can give back.
    let full: Vec<String> = (0..2 * ROOM).map(|number| line("acme", &format!("/{number}"))).collect();
    for some in full.chunks(10) {
        queue.send(some.iter().cloned()).await;
    }
    queue.send([line("umbra", "/other")]).await;
    let store = store_path("sqs-full");
    let accepting = support::accepting_client(&store, |store| store.max_lane_backlog(ROOM as u64)).await;
    let source = Sqs::connect(&url("full?dead=full-refused")).await.unwrap();
    let looking = async {
        wait_until(async || queue.message_counts().await.1 == ROOM).await;
        let (working, transport) = client(&store, |store| store).await;
        wait_until(async || transport.calls().len() == 2 * ROOM + 1 && queue.is_empty().await).await;
        working.shutdown(Duration::from_secs(5)).await;
        accepting.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(accepting.outbox().feed_from(&source), looking).0.unwrap(), 2 * ROOM as u64 + 1);
}

async fn deliveries_are_counted() {
    Queue::create("often-refused", &[]).await;
    // Without a visibility timeout, the message that the test receives stays in the queue.
    let queue = Queue::create("often", &[(Attribute::VisibilityTimeout, "0")]).await;
    queue.send([line("acme", "/often")]).await;
    for _ in 0..3 {
        assert_eq!(queue.receive().await.len(), 1);
    }
    let source = Sqs::connect(&url("often?dead=often-refused&max_deliveries=3")).await.unwrap();
    let fetched = format!("{:?}", source.fetch(1).await.unwrap());
    assert!(source.max_deliveries() == Some(3) && fetched.contains("deliveries: 4"), "{fetched}");
}

/// A redrive policy counts how often a message was received, so that the source must hold a message for a full lane
/// instead of giving it back.
async fn held_messages_stay_invisible() {
    let dead = Queue::create("held-moved", &[]).await;
    let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:held-moved","maxReceiveCount":"1"}"#;
    let queue = Queue::create("held", &[(Attribute::RedrivePolicy, policy), (Attribute::VisibilityTimeout, "2")]).await;
    queue.send([line("acme", "/first"), line("acme", "/second")]).await;
    let store = store_path("sqs-held");
    let accepting = support::accepting_client(&store, |store| store.max_lane_backlog(1)).await;
    let source = Sqs::connect(&url("held")).await.unwrap();
    let looking = async {
        wait_until(async || queue.message_counts().await == (0, 1)).await;
        // Waits for three times the visibility timeout.
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!((queue.message_counts().await, dead.message_counts().await), ((0, 1), (0, 0)));
        let (working, transport) = client(&store, |store| store).await;
        wait_until(async || transport.calls().len() == 2 && queue.is_empty().await).await;
        working.shutdown(Duration::from_secs(5)).await;
        accepting.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(accepting.outbox().feed_from(&source), looking).0.unwrap(), 2);
}

/// Messages that stay invisible after the end would wait for the visibility timeout, five minutes here.
async fn end_gives_back_held_messages() {
    Queue::create("ended-moved", &[]).await;
    let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:ended-moved","maxReceiveCount":"9"}"#;
    let attributes = [(Attribute::RedrivePolicy, policy), (Attribute::VisibilityTimeout, "300")];
    let queue = Queue::create("ended", &attributes).await;
    queue.send([line("acme", "/first"), line("acme", "/second")]).await;
    let accepting = support::accepting_client(&store_path("sqs-ended"), |store| store.max_lane_backlog(1)).await;
    // The source still exists, as in a program that goes on.
    let source = Sqs::connect(&url("ended")).await.unwrap();
    let looking = async {
        wait_until(async || queue.message_counts().await == (0, 1)).await;
        accepting.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(accepting.outbox().feed_from(&source), looking).0.unwrap(), 1);
    assert_eq!(queue.message_counts().await, (1, 1), "the held message is visible");
}

async fn replies_go_to_queue() {
    let missing = SqsReplies::connect(&url("no-answers")).await.unwrap_err().to_string();
    assert!(missing.contains("no-answers") && missing.contains("make it first"), "{missing}");
    let (all, mine) = tokio::join!(Queue::create("answers", &[]), Queue::create("of-mine", &[]));
    let (client, _) = client(&store_path("sqs-replies"), |store| store).await;
    for to in ["answers", "of-mine", "of-nobody", "../other"] {
        let request = Request::post("v", "/order").reply_to(to);
        client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
    }
    let target = SqsReplies::connect(&url("answers?allow=of-,../")).await.unwrap();
    let looking = async {
        wait_until(async || all.message_counts().await.0 == 3 && mine.message_counts().await.0 == 1).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().deliver_replies(&target), looking).0.unwrap(), 4);
    let message = mine.receive().await.remove(0);
    assert!(message.message_attributes().unwrap().contains_key("message-id"), "{message:?}");
    assert!(message.body().unwrap().contains(r#""reply_to":"of-mine""#), "{message:?}");
}

/// Starts a worker without keys in its environment, beside a service that gives keys as that of ECS does.
async fn keys_come_from_service_of_container() {
    const KEYS: &str =
        r#"{"AccessKeyId":"role","SecretAccessKey":"test","Token":"test","Expiration":"2100-01-01T00:00:00Z"}"#;
    let queue = Queue::create("of-a-role", &[]).await;
    Queue::create("of-a-role-refused", &[]).await;
    queue.send([line("acme", "/1")]).await;
    let service = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = service.local_addr().unwrap();
    let answering = async {
        loop {
            let (mut stream, _) = service.accept().await.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            assert!(head[..read].starts_with(b"GET /role "), "{}", String::from_utf8_lossy(&head[..read]));
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{KEYS}", KEYS.len());
            stream.write_all(head.as_bytes()).await.unwrap();
        }
    };
    let mut worker = tokio::process::Command::new(std::env::current_exe().unwrap());
    worker.args(["--exact", "worker", "--ignored", "--nocapture"]).kill_on_drop(true);
    worker
        .env("IC_INTAKE_URL", url("of-a-role?dead=of-a-role-refused"))
        .env("IC_INTAKE_STORE", store_path("of-a-role"));
    worker.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY").env_remove("AWS_SESSION_TOKEN");
    worker.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("http://{address}/role"));
    worker.env("HOME", std::env::temp_dir().join("no-profile"));
    let mut worker = worker.spawn().unwrap();
    tokio::select! {
        () = answering => {}
        ended = worker.wait() => panic!("the worker ended: {ended:?}"),
        () = wait_until(async || queue.is_empty().await) => {}
    }
}

async fn killed_workers_and_paused_broker_lose_nothing() {
    Queue::create("killed-refused", &[]).await;
    // A short visibility timeout lets the server soon redeliver the messages of a killed worker.
    let queue = Queue::create("killed", &[(Attribute::VisibilityTimeout, "2")]).await;
    let stated = std::env::var("IC_SQS_MESSAGES").ok();
    let messages = stated.map_or(MESSAGES, |stated| stated.parse().expect("IC_SQS_MESSAGES is a multiple of ten"));
    let is_published = AtomicBool::new(false);
    let publishing = async {
        for first in (0..messages).step_by(10) {
            while first.is_multiple_of(100) && queue.message_counts().await.1 > AT_ONCE {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            queue.send((first..first + 10).map(|number| line("acme", &format!("/{number}")))).await;
        }
        is_published.store(true, Ordering::Relaxed);
    };
    let is_ours = std::env::var_os("IC_TEST_SQS_DIR").is_some();
    // The server keeps its messages in memory. So the test does not kill it, but pauses it for a while.
    let set = |what: &str| support::run_script("sqs.sh", if what == "kill" { "pause" } else { "resume" });
    let broker: Option<&dyn Fn(&str)> = if is_ours { Some(&set) } else { None };
    let is_empty = async || is_published.load(Ordering::Relaxed) && queue.is_empty().await;
    let url = url("killed?dead=killed-refused");
    tokio::join!(publishing, support::kill_and_judge("sqs", &url, messages, broker, WORKER_LIFETIMES, is_empty));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of the test above, in a process of its own"]
async fn worker() {
    support::work().await;
}
