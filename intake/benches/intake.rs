//! Measures how many messages a second each source turns into stored requests, and compares that with plain `enqueue`
//! calls in the same run.
//!
//! ```text
//! eval "$(scripts/rabbitmq.sh start)"; eval "$(scripts/nats.sh start)"; eval "$(scripts/postgres.sh start)"
//! cargo bench -p integration-client-intake --all-features --bench intake -- [MESSAGES]
//! ```
//!
//! The stores are SQLite in a temporary folder, and PostgreSQL if `IC_TEST_POSTGRES` names one. The brokers are those
//! that `IC_TEST_RABBITMQ` and `IC_TEST_NATS` name. The last line for each store is `intake: store= messages= enqueue=
//! memory= rabbitmq= nats=`; in brackets the share of `enqueue`, and of what the broker delivers if nothing is done with
//! its messages. Requests are accepted and not sent. Every source adds rows to the store, so later sources run against a
//! slightly larger store.
#![expect(clippy::disallowed_methods, reason = "a bench reads the time itself")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for the command line")]

use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, stream};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use integration_client::config::TenantEntry;
use integration_client::outbox::{Intake, IntakeSource, MessageRef};
use integration_client::store::Store;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{BoxError, BoxFuture, Error, IntegrationClient, Priority, Request};
use lapin::options::{BasicPublishOptions, QueueDeclareOptions, QueuePurgeOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Connection, ConnectionProperties};

/// Calls of `enqueue` under way at once, as many as the messages that the outbox takes from a source at once.
const AT_ONCE: usize = 1024;

fn content(number: usize) -> String {
    format!(r#"{{"tenant":"acme","vendor":"v","method":"POST","path":"/orders/{number}","body":{{"order":{number}}}}}"#)
}

/// Wraps a source, and ends when at least `left` of its messages were fetched.
struct BoundedSource<'a> {
    source: &'a dyn IntakeSource,
    left: Mutex<usize>,
}

impl IntakeSource for BoundedSource<'_> {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn begin(&self, keep_seen: Duration) {
        self.source.begin(keep_seen);
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        Box::pin(async move {
            if *self.left.lock().unwrap() == 0 {
                return Ok(Vec::new());
            }
            let fetched = self.source.fetch(most).await?;
            let mut left = self.left.lock().unwrap();
            *left = left.saturating_sub(fetched.len());
            Ok(fetched)
        })
    }

    fn taken<'a>(&'a self, messages: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        self.source.taken(messages)
    }

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>> {
        self.source.refused(messages)
    }
}

/// A source in memory with this number of messages left, which it returns without delay.
struct MemorySource(Mutex<usize>);

impl IntakeSource for MemorySource {
    fn name(&self) -> &str {
        "memory"
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        let mut next = self.0.lock().unwrap();
        let numbers = *next..*next + most;
        *next += most;
        Box::pin(async move {
            // A store that an earlier run used does not know the messages.
            let id = |number| format!("{}-{number}", std::process::id());
            Ok(numbers.map(|number| Intake::json(id(number), content(number))).collect())
        })
    }

    fn taken<'a>(&'a self, _: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { Ok(()) })
    }

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move { Err(format!("{messages:?}").into()) })
    }
}

async fn client(store: Store) -> IntegrationClient {
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
    let builder =
        IntegrationClient::builder().without_catalogue().vendors_toml(text).tenant(TenantEntry::new("acme", "v"));
    builder.transport(FakeTransport::new(|_| FakeAnswer::status(200))).store(store).build().await.unwrap()
}

async fn enqueue(client: &IntegrationClient, messages: usize) -> f64 {
    let began = Instant::now();
    let mut under_way = FuturesUnordered::new();
    for number in 0..messages {
        if under_way.len() == AT_ONCE {
            under_way.next().await;
        }
        let outbox = client.outbox();
        under_way.push(async move {
            let request = Request::post("v", format!("/orders/{number}")).json(&["order"]);
            outbox.enqueue("acme", Priority::Normal, request).await.unwrap();
        });
    }
    while under_way.next().await.is_some() {}
    messages as f64 / began.elapsed().as_secs_f64()
}

async fn feed(client: &IntegrationClient, source: &dyn IntakeSource, messages: usize) -> f64 {
    let began = Instant::now();
    let source = BoundedSource { source, left: Mutex::new(messages) };
    client.outbox().feed_from(&source).await.unwrap();
    messages as f64 / began.elapsed().as_secs_f64()
}

/// Messages a second that the source delivers and has acknowledged if nothing is done with them: the broker's own speed.
async fn source_rate(source: &dyn IntakeSource, messages: usize) -> f64 {
    source.begin(Duration::from_secs(3600));
    let (began, mut taken) = (Instant::now(), 0);
    while taken < messages {
        let fetched = source.fetch(AT_ONCE).await.unwrap();
        let fetched: Vec<MessageRef> = fetched.into_iter().map(|intake| intake.message().clone()).collect();
        source.taken(&fetched).await.unwrap();
        taken += fetched.len();
    }
    messages as f64 / began.elapsed().as_secs_f64()
}

async fn rabbitmq(url: &str, name: &str, messages: usize) -> Box<dyn IntakeSource> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.queue_declare(name.into(), QueueDeclareOptions::durable(), FieldTable::default()).await.unwrap();
    channel.queue_purge(name.into(), QueuePurgeOptions::default()).await.unwrap();
    for number in 0..messages {
        let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(number.to_string().into());
        let (publish, content) = (BasicPublishOptions::default(), content(number));
        channel
            .basic_publish("".into(), name.into(), publish, content.as_bytes(), properties)
            .await
            .unwrap()
            .await
            .unwrap();
    }
    integration_client_intake::open(&format!("{url}?queue={name}")).await.unwrap()
}

async fn nats(url: &str, name: &str, messages: usize) -> Box<dyn IntakeSource> {
    let context = jetstream::new(async_nats::connect(url).await.unwrap());
    let _ = context.delete_stream(name).await;
    let config = stream::Config { name: name.to_owned(), subjects: vec![name.to_owned()], ..stream::Config::default() };
    context.create_stream(config).await.unwrap();
    let mut published = Vec::new();
    for number in 0..messages {
        published.push(context.publish(name.to_owned(), content(number).into()).await.unwrap());
        // The NATS client blocks further publishes when 5,000 are not confirmed.
        if published.len() == 1_000 || number + 1 == messages {
            for published in published.drain(..) {
                published.await.unwrap();
            }
        }
    }
    integration_client_intake::open(&format!("{url}?stream={name}")).await.unwrap()
}

async fn run(label: &str, store: Store, messages: usize) {
    let client = client(store.max_backlog(u64::MAX)).await;
    let plain = enqueue(&client, messages).await;
    let mut line = format!("intake: store={label} messages={messages} enqueue={plain:.0}");
    let memory = feed(&client, &MemorySource(Mutex::new(0)), messages).await;
    line += &format!(" memory={memory:.0} ({:.2})", memory / plain);
    let mut brokers = Vec::new();
    if let Ok(url) = std::env::var("IC_TEST_RABBITMQ") {
        let name = format!("bench-{label}-{}", std::process::id());
        let idle = rabbitmq(&url, &format!("{name}-alone"), messages).await;
        brokers.push(("rabbitmq", idle, rabbitmq(&url, &name, messages).await));
    }
    if let Ok(url) = std::env::var("IC_TEST_NATS") {
        let name = format!("BENCH-{label}-{}", std::process::id());
        let idle = nats(&url, &format!("{name}-ALONE"), messages).await;
        brokers.push(("nats", idle, nats(&url, &name, messages).await));
    }
    for (name, idle, source) in brokers {
        let most = source_rate(&*idle, messages).await;
        let per_s = feed(&client, &*source, messages).await;
        line += &format!(" {name}={per_s:.0} ({:.2}; {:.2} of the broker's {most:.0})", per_s / plain, per_s / most);
    }
    println!("{line}");
}

#[tokio::main]
async fn main() {
    let messages = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(50_000);
    let folder = std::env::temp_dir().join(format!("ic-bench-intake-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    run("sqlite", Store::sqlite(folder.join("s.db")), messages).await;
    if let Ok(url) = std::env::var("IC_TEST_POSTGRES") {
        run("postgres", Store::postgres(url), messages).await;
    }
    let _ = std::fs::remove_dir_all(folder);
}
