//! Kafka, against librdkafka's mock cluster: three brokers over TCP, in the process of the test. The cluster keeps its
//! data in memory, so the test takes its brokers offline and back instead of killing them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too"
)]

mod support;

use std::time::Duration;

use integration_client::outbox::IntakeSource as _;
use integration_client::store::Store;
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};
use integration_client_intake::{Begin, Kafka, KafkaReplies, begin_at};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};

use tokio::task::JoinHandle;

use support::{client, line, store_path, wait_until};

const BROKERS: i32 = 3;
const PARTITIONS: i32 = 4;
/// The cluster removes a killed worker from its group after this session timeout. It waits three seconds for further
/// members before it assigns a group's partitions, and removes members whose session is shorter meanwhile.
const SESSION: &str = "session.timeout.ms=4000&heartbeat.interval.ms=500";

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn url(cluster: &Cluster, topic: &str) -> String {
    let servers = cluster.bootstrap_servers();
    let (first, more) = servers.split_once(',').unwrap();
    format!("kafka://{first}?servers={more}&topic={topic}&{SESSION}")
}

fn settings(cluster: &Cluster) -> ClientConfig {
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", cluster.bootstrap_servers());
    settings
}

/// Creates a topic and publishes the messages: `per_second` of them at once, and as many in each further second.
async fn publish(cluster: &Cluster, topic: &str, messages: Vec<String>, per_second: usize) -> JoinHandle<()> {
    for name in [topic.to_owned(), format!("{topic}.refused")] {
        cluster.create_topic(&name, PARTITIONS, BROKERS).unwrap();
    }
    let producer: FutureProducer = settings(cluster).create().unwrap();
    let topic = topic.to_owned();
    let (there, mut all_there) = tokio::sync::watch::channel(false);
    let publishing = async move {
        for (second, some) in messages.chunks(per_second).enumerate() {
            let mut sent = Vec::new();
            for (number, content) in some.iter().enumerate() {
                let record: FutureRecord<'_, (), String> = FutureRecord::to(&topic).payload(content);
                let record = record.partition(i32::try_from(number).unwrap() % PARTITIONS);
                sent.push(producer.send_result(record).map_err(|(error, _)| error).unwrap());
            }
            for one in sent {
                one.await.unwrap().unwrap();
            }
            there.send_replace(true);
            if (second + 1) * per_second < messages.len() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    };
    #[expect(clippy::disallowed_methods, reason = "a test's own")]
    let publishing = tokio::spawn(publishing);
    all_there.wait_for(|there| *there).await.unwrap();
    publishing
}

/// The number of messages of a topic that follow the committed offsets of the group.
fn unread_messages(cluster: &Cluster, topic: &str) -> i64 {
    let within = Duration::from_secs(10);
    let mut asked = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        asked.add_partition(topic, partition);
    }
    tokio::task::block_in_place(|| {
        let group: BaseConsumer = settings(cluster).set("group.id", "integration-client").create().unwrap();
        let stored = group.committed_offsets(asked, within).unwrap();
        let left = |partition| {
            let (low, high) = group.fetch_watermarks(topic, partition, within).unwrap();
            match stored.find_partition(topic, partition).unwrap().offset() {
                Offset::Offset(stored) => high - stored,
                _ => high - low,
            }
        };
        (0..PARTITIONS).map(left).sum()
    })
}

/// The group's position in the first partition of a topic.
fn position(cluster: &Cluster, group: &str, topic: &str) -> Option<i64> {
    let group: BaseConsumer = settings(cluster).set("group.id", group).create().unwrap();
    let mut asked = TopicPartitionList::new();
    asked.add_partition(topic, 0);
    let told = tokio::task::block_in_place(|| group.committed_offsets(asked, Duration::from_secs(10))).unwrap();
    match told.find_partition(topic, 0).unwrap().offset() {
        Offset::Offset(position) => Some(position),
        _ => None,
    }
}

/// Runs the hand-over in a task of its own, because the test's queries to the cluster block the test's thread.
fn feed(client: &IntegrationClient, source: Kafka) -> JoinHandle<u64> {
    let outbox = client.outbox();
    #[expect(clippy::disallowed_methods, reason = "a test's own")]
    tokio::spawn(async move { outbox.feed_from(&source).await.unwrap() })
}

/// Runs all tests one after the other, because they share the brokers that the last one takes offline.
#[tokio::test(flavor = "multi_thread")]
async fn kafka() {
    let cluster = MockCluster::new(BROKERS).unwrap();
    missing_topic_is_said(&cluster).await;
    bad_messages_are_refused_with_reason(&cluster).await;
    message_for_full_lane_holds_position(&cluster).await;
    partition_has_position_while_first_message_is_held(&cluster).await;
    held_message_comes_again(&cluster).await;
    rebalances_add_no_held_messages(&cluster).await;
    refused_message_waits_and_stops_no_other(&cluster).await;
    lost_position_ends_hand_over(&cluster).await;
    replies_go_to_topic(&cluster).await;
    killed_workers_and_gone_brokers_lose_nothing(&cluster).await;
}

async fn missing_topic_is_said(cluster: &Cluster) {
    let servers = cluster.bootstrap_servers();
    let error = Kafka::connect(&format!("kafka://{}", &servers)).await.unwrap_err().to_string();
    assert!(error.contains("cannot be read") || error.contains("topic=NAME"), "{error}");
    let error = Kafka::connect("kafka://127.0.0.1:1").await.unwrap_err().to_string();
    assert!(error.contains("topic=NAME"), "{error}");
    let error = Kafka::connect("kafka://127.0.0.1:1?topic=a&no.such.setting=1").await.unwrap_err().to_string();
    assert!(error.contains("no.such.setting"), "{error}");
    let error = Kafka::connect("kafka://127.0.0.1:1?topic=a&sasl.pasword=hunter2").await.unwrap_err().to_string();
    assert!(error.contains("sasl.pasword") && !error.contains("hunter2"), "{error}");
    let error = Kafka::connect("kafka://u:hunter2@127.0.0.1:1?topic=a").await.unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
}

async fn bad_messages_are_refused_with_reason(cluster: &Cluster) {
    let messages = ["{".to_owned(), line("acme", "/two"), line("nobody", "/three"), line("acme", "/four")];
    publish(cluster, "bad", messages.to_vec(), 4).await.await.unwrap();
    let (client, transport) = client(&store_path("kafka-bad"), |store| store).await;
    let source = Kafka::connect(&url(cluster, "bad")).await.unwrap();
    assert!(source.name().starts_with("kafka:") && source.name().ends_with(":bad"), "{}", source.name());
    let feeding = feed(&client, source);
    wait_until(async || transport.calls().len() == 2 && unread_messages(cluster, "bad") == 0).await;
    client.shutdown(Duration::from_secs(5)).await;
    assert_eq!(feeding.await.unwrap(), 2);
    let reader: BaseConsumer =
        settings(cluster).set("group.id", "reader").set("auto.offset.reset", "earliest").create().unwrap();
    let mut all = TopicPartitionList::new();
    (0..PARTITIONS).for_each(|partition| {
        all.add_partition_offset("bad.refused", partition, Offset::Beginning).unwrap();
    });
    reader.assign(&all).unwrap();
    let mut refused = tokio::task::block_in_place(|| {
        let next = || {
            let message = reader.poll(Duration::from_secs(10)).unwrap().unwrap();
            let header = message.headers().unwrap().iter().find(|header| header.key == "refused-because").unwrap();
            let content = String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
            (content, String::from_utf8(header.value.unwrap().to_vec()).unwrap())
        };
        [next(), next()]
    });
    refused.sort();
    let [unread, unknown] = refused;
    let [(unread, why), (unknown, unknown_why)] = if unread.0 == "{" { [unread, unknown] } else { [unknown, unread] };
    assert!(unread == "{" && why.contains("not JSON"), "{unread}: {why}");
    assert!(unknown.contains("/three") && unknown_why.contains("nobody"), "{unknown}: {unknown_why}");
}

async fn message_for_full_lane_holds_position(cluster: &Cluster) {
    // All three messages are in one partition: the second waits for room, and the third is accepted all the same.
    cluster.create_topic("full", 1, BROKERS).unwrap();
    let producer: FutureProducer = settings(cluster).create().unwrap();
    for (number, tenant) in ["acme", "acme", "umbra"].into_iter().enumerate() {
        let content = line(tenant, &format!("/{number}"));
        let record: FutureRecord<'_, (), String> = FutureRecord::to("full").payload(&content).partition(0);
        producer.send(record, Duration::from_secs(10)).await.unwrap();
    }
    let store = store_path("kafka-full");
    let accepting = support::accepting_client(&store, |store| store.max_lane_backlog(1)).await;
    let source = Kafka::connect(&url(cluster, "full")).await.unwrap();
    let feeding = feed(&accepting, source);
    let looking = async {
        wait_until(async || accepting.outbox().queues(10).await.is_ok_and(|queues| queues.len() == 2)).await;
        let stored = || position(cluster, "integration-client", "full");
        wait_until(async || stored() == Some(1)).await;
        // Offsets are committed once a second: a wrong commit past the second message would show within 1.5 s.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(stored(), Some(1));
        let (working, transport) = client(&store, |store| store).await;
        wait_until(async || transport.calls().len() == 3).await;
        working.shutdown(Duration::from_secs(5)).await;
        accepting.shutdown(Duration::from_secs(5)).await;
    };
    looking.await;
    assert_eq!(feeding.await.unwrap(), 3);
}

/// The lane is full before the first message of the partition comes, so nothing of the partition is settled.
async fn partition_has_position_while_first_message_is_held(cluster: &Cluster) {
    cluster.create_topic("unsettled", 1, BROKERS).unwrap();
    let producer: FutureProducer = settings(cluster).create().unwrap();
    let content = line("acme", "/1");
    let record: FutureRecord<'_, (), String> = FutureRecord::to("unsettled").payload(&content).partition(0);
    producer.send(record, Duration::from_secs(10)).await.unwrap();
    let store = store_path("kafka-unsettled");
    let accepting = support::accepting_client(&store, |store| store.max_lane_backlog(1)).await;
    accepting.outbox().enqueue("acme", Priority::Normal, Request::post("v", "/0")).await.unwrap();
    let feeding = feed(&accepting, Kafka::connect(&url(cluster, "unsettled")).await.unwrap());
    wait_until(async || position(cluster, "integration-client", "unsettled") == Some(0)).await;
    accepting.shutdown(Duration::from_secs(5)).await;
    assert_eq!(feeding.await.unwrap(), 0);
}

/// The next hand-over of the same source begins at the message that ended the one before.
async fn held_message_comes_again(cluster: &Cluster) {
    cluster.create_topic("held", 1, BROKERS).unwrap();
    let producer: FutureProducer = settings(cluster).create().unwrap();
    for (number, tenant) in ["acme", "acme", "umbra"].into_iter().enumerate() {
        let content = line(tenant, &format!("/{number}"));
        let record: FutureRecord<'_, (), String> = FutureRecord::to("held").payload(&content).partition(0);
        producer.send(record, Duration::from_secs(10)).await.unwrap();
    }
    let store = store_path("kafka-held");
    // Half of it is longer than the time until a consumer gets its partition.
    let limits = |store: Store| store.keep_seen(Duration::from_secs(20));
    let accepting = support::accepting_client(&store, |store| limits(store).max_lane_backlog(1)).await;
    let source = Kafka::connect(&url(cluster, "held")).await.unwrap();
    let fed = tokio::time::timeout(Duration::from_secs(60), accepting.outbox().feed_from(&source)).await;
    let error = fed.unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::QueueFull && error.to_string().contains("0:1 had no room"), "{error}");
    let (working, transport) = client(&store, limits).await;
    let looking = async {
        wait_until(async || transport.calls().len() == 3).await;
        working.shutdown(Duration::from_secs(5)).await;
        accepting.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(accepting.outbox().feed_from(&source), looking).0.unwrap(), 1);
    let mut paths: Vec<String> = transport.calls().iter().map(|call| call.path().to_owned()).collect();
    paths.sort();
    assert_eq!(paths, ["/0", "/1", "/2"]);
}

/// Joins the group of the same name that reads a topic, until it has half of the partitions, and leaves it. Commits
/// nothing.
fn join_and_leave(cluster: &Cluster, topic: &str) {
    let mut settings = settings(cluster);
    settings.set("group.id", topic).set("enable.auto.commit", "false");
    settings.set("session.timeout.ms", "4000").set("heartbeat.interval.ms", "500");
    let member: BaseConsumer = settings.create().unwrap();
    member.subscribe(&[topic]).unwrap();
    let half = usize::try_from(PARTITIONS / 2).unwrap();
    let has_half = |_: u32| {
        while member.poll(Duration::from_millis(100)).is_some() {}
        member.assignment().unwrap().count() == half
    };
    assert!((0..600).any(has_half), "the other member did not rejoin the group within a minute");
}

/// The process may hold 2,048 messages. Each time a partition comes back, Kafka delivers those of it again.
async fn rebalances_add_no_held_messages(cluster: &Cluster) {
    let topic = "rejoined";
    let messages = (0..2_000).map(|number| line("acme", &format!("/{number}"))).collect();
    publish(cluster, topic, messages, 2_000).await.await.unwrap();
    let accepting = support::accepting_client(&store_path("kafka-rejoined"), |store| store.max_lane_backlog(1)).await;
    let source = Kafka::connect(&format!("{}&group={topic}", url(cluster, topic))).await.unwrap();
    let feeding = feed(&accepting, source);
    let has_lanes = async |lanes: usize| accepting.outbox().queues(10).await.is_ok_and(|queues| queues.len() == lanes);
    wait_until(async || has_lanes(1).await).await;
    for _ in 0..2 {
        tokio::task::block_in_place(|| join_and_leave(cluster, topic));
    }
    let producer: FutureProducer = settings(cluster).create().unwrap();
    let content = line("umbra", "/behind");
    let record: FutureRecord<'_, (), String> = FutureRecord::to(topic).payload(&content).partition(0);
    producer.send(record, Duration::from_secs(10)).await.unwrap();
    wait_until(async || has_lanes(2).await).await;
    accepting.shutdown(Duration::from_secs(5)).await;
    assert_eq!(feeding.await.unwrap(), 2);
}

/// While the topic of refused messages has no leader, a refused message waits for some time, and others are accepted.
async fn refused_message_waits_and_stops_no_other(cluster: &Cluster) {
    for topic in ["waits", "waits.refused"] {
        cluster.create_topic(topic, 1, BROKERS).unwrap();
    }
    cluster.partition_leader("waits.refused", 0, None).unwrap();
    let producer: FutureProducer = settings(cluster).create().unwrap();
    let send = async |content: &str| {
        let record: FutureRecord<'_, (), str> = FutureRecord::to("waits").payload(content).partition(0);
        producer.send(record, Duration::from_secs(10)).await.unwrap();
    };
    send("{").await;
    // The refused message may wait for a quarter of it.
    let limits = |store: Store| store.keep_seen(Duration::from_secs(80));
    let (client, transport) = client(&store_path("kafka-waits"), limits).await;
    let (outbox, source) = (client.outbox(), Kafka::connect(&url(cluster, "waits")).await.unwrap());
    let feeding = async move {
        let fed = outbox.feed_from(&source).await;
        (source, fed)
    };
    #[expect(clippy::disallowed_methods, reason = "a test's own")]
    let feeding = tokio::spawn(feeding);
    let stored = || position(cluster, "integration-client", "waits");
    wait_until(async || stored() == Some(0)).await;
    // The first attempt takes ten seconds.
    tokio::time::sleep(Duration::from_secs(12)).await;
    send(&line("acme", "/1")).await;
    wait_until(async || transport.calls().len() == 1).await;
    let (source, fed) = tokio::time::timeout(Duration::from_secs(60), feeding).await.unwrap().unwrap();
    let why = std::error::Error::source(&fed.unwrap_err()).unwrap().to_string();
    assert!(why.contains("0:0 was refused") && why.contains("waits.refused has not taken it for 20 s"), "{why}");
    assert_eq!(stored(), Some(0));
    cluster.partition_leader("waits.refused", 0, Some(1)).unwrap();
    let feeding = feed(&client, source);
    wait_until(async || stored() == Some(2)).await;
    client.shutdown(Duration::from_secs(5)).await;
    assert_eq!(feeding.await.unwrap(), 0, "the other message is recognised");
    assert_eq!(transport.calls().len(), 1);
}

/// The client library begins at the first message without a position, and with one that the brokers do not have.
async fn lost_position_ends_hand_over(cluster: &Cluster) {
    cluster.create_topic("lost", 1, BROKERS).unwrap();
    let producer: FutureProducer = settings(cluster).create().unwrap();
    // Years older than the ids of messages in any store.
    let old = 1_500_000_000_000;
    for (number, at) in [Some(old), None].into_iter().enumerate() {
        let content = line("acme", &format!("/{number}"));
        let record: FutureRecord<'_, (), String> = FutureRecord::to("lost").payload(&content).partition(0);
        let record = at.into_iter().fold(record, FutureRecord::timestamp);
        producer.send(record, Duration::from_secs(10)).await.unwrap();
    }
    let set = |group: &str, position: i64| {
        let group: BaseConsumer = settings(cluster).set("group.id", group).create().unwrap();
        let mut at = TopicPartitionList::new();
        at.add_partition_offset("lost", 0, Offset::Offset(position)).unwrap();
        tokio::task::block_in_place(|| group.commit(&at, CommitMode::Sync)).unwrap();
    };
    let (client, transport) = client(&store_path("kafka-lost"), |store| store).await;
    let connect = async |group: &str| Kafka::connect(&format!("{}&group={group}", url(cluster, "lost"))).await.unwrap();
    let why = async |source: &Kafka| {
        let fed = tokio::time::timeout(Duration::from_secs(60), client.outbox().feed_from(source)).await;
        std::error::Error::source(&fed.unwrap().unwrap_err()).unwrap().to_string()
    };
    // The next hand-over of the same source begins there again, and does not skip the message.
    let source = connect("without").await;
    let without = why(&source).await;
    assert!(without.contains("--begin-at first") && without.contains("--group without --topic lost:0"), "{without}");
    assert_eq!(why(&source).await, without);
    drop(source);
    assert_eq!(position(cluster, "without", "lost"), None);
    set("beyond", 9);
    let beyond = why(&connect("beyond").await).await;
    assert!(beyond.contains("goes on at offset 0, and the position was 9"), "{beyond}");
    assert!(transport.calls().is_empty());
    // Where the beginning is set, old messages are accepted.
    let begun = format!("{}&group=begun", url(cluster, "lost"));
    let set = begin_at(&begun, Begin::First).await.unwrap();
    assert!(set.contains("the group begun begins in the topic lost, by partition: 0 at offset 0"), "{set}");
    assert_eq!(position(cluster, "begun", "lost"), Some(0));
    let again = begin_at(&begun, Begin::New).await.unwrap_err().to_string();
    assert!(again.contains("the group begun has a position in each partition"), "{again}");
    let feeding = feed(&client, connect("begun").await);
    wait_until(async || transport.calls().len() == 2).await;
    client.shutdown(Duration::from_secs(5)).await;
    assert_eq!(feeding.await.unwrap(), 2);
}

async fn replies_go_to_topic(cluster: &Cluster) {
    for topic in ["answers", "of-mine"] {
        cluster.create_topic(topic, 1, BROKERS).unwrap();
    }
    let (client, _) = client(&store_path("kafka-replies"), |store| store).await;
    for to in ["answers", "of-mine", "not-allowed"] {
        let request = Request::post("v", "/order").reply_to(to);
        client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
    }
    let servers = cluster.bootstrap_servers();
    let (first, more) = servers.split_once(',').unwrap();
    let url = format!("kafka://{first}?servers={more}&topic=answers&allow=of-");
    let target = KafkaReplies::connect(&url).await.unwrap();
    let there = |topic: &str| {
        let reader: BaseConsumer = settings(cluster).set("group.id", "reader").create().unwrap();
        reader.fetch_watermarks(topic, 0, Duration::from_secs(10)).unwrap().1
    };
    let outbox = client.outbox();
    #[expect(clippy::disallowed_methods, reason = "a test's own")]
    let delivering = tokio::spawn(async move { outbox.deliver_replies(&target).await.unwrap() });
    wait_until(async || tokio::task::block_in_place(|| there("answers") == 2 && there("of-mine") == 1)).await;
    client.shutdown(Duration::from_secs(5)).await;
    assert_eq!(delivering.await.unwrap(), 3);
}

async fn killed_workers_and_gone_brokers_lose_nothing(cluster: &Cluster) {
    let messages = (0..support::MESSAGES).map(|number| line("acme", &format!("/{number}"))).collect();
    // 250 messages a second last long enough that every worker gets some.
    let publishing = publish(cluster, "killed", messages, 250).await;
    let set = |what: &str| {
        for broker in 1..=BROKERS {
            match what {
                "kill" => cluster.broker_down(broker).unwrap(),
                _ => cluster.broker_up(broker).unwrap(),
            }
        }
    };
    let is_empty = async || publishing.is_finished() && unread_messages(cluster, "killed") == 0;
    // A worker gets its partitions some seconds after its start: the cluster waits for further members, and until the
    // session of the killed worker has timed out.
    let lives = Duration::from_millis(5_000)..Duration::from_millis(6_500);
    support::kill_and_judge("kafka", &url(cluster, "killed"), support::MESSAGES, Some(&set), lives, is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of the test above, in a process of its own"]
async fn worker() {
    support::work().await;
}
