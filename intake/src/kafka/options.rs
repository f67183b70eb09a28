//! The settings of the client library that follow from a URL. Pure.

use integration_client::BoxError;
use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;

use crate::address::Address;
use crate::error::Error;

/// KiB of messages that the client library fetches ahead, for all partitions together.
const AHEAD_KIB: &str = "16384";

/// The settings that consumers and producers share: brokers, client id, user and password.
pub(crate) fn settings(address: &Address, place: &str) -> ClientConfig {
    let mut common = ClientConfig::new();
    let servers = address.get("servers").into_iter().fold(place.to_owned(), |all, more| format!("{all},{more}"));
    common.set("bootstrap.servers", servers).set("client.id", "integration-client");
    let text = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    if !address.url.username().is_empty() {
        common.set("sasl.username", text(address.url.username()));
        common.set("sasl.password", text(address.url.password().unwrap_or_default()));
    }
    common
}

/// The topic and the group that a URL names.
pub(super) struct Target {
    pub(super) address: Address,
    /// The first broker, as `HOST:PORT`.
    pub(super) place: String,
    pub(super) topic: String,
    pub(super) group: String,
}

impl Target {
    pub(super) fn read(url: &str) -> Result<Target, Error> {
        let address = Address::read("Kafka", url, &["topic", "group", "servers"])?;
        let no_topic = || Error::new("Kafka: the URL must name a topic: kafka://HOST?topic=NAME");
        let topic = address.get("topic").ok_or_else(no_topic)?.to_owned();
        let group = address.get("group").unwrap_or("integration-client").to_owned();
        Ok(Target { place: address.place(9092), address, topic, group })
    }
}

/// The settings of the consumers of a group.
pub(super) fn consumers(address: &Address, place: &str, group: &str) -> ClientConfig {
    let mut consumers = settings(address, place);
    consumers.set("group.id", group);
    consumers.set("auto.offset.reset", "earliest").set("queued.max.messages.kbytes", AHEAD_KIB);
    for (name, value) in address.url.query_pairs() {
        consumers.set(&*name, &*value);
    }
    // The source stores an offset in the library when messages are settled. The library commits the stored offsets once
    // a second and when it is closed.
    consumers.set("enable.auto.offset.store", "false").set("enable.auto.commit", "true");
    consumers.set("auto.commit.interval.ms", "1000");
    consumers
}

/// Converts an error. An error about a setting loses the setting's value, which may be a password.
pub(crate) fn without_value(error: KafkaError) -> BoxError {
    match error {
        KafkaError::ClientConfig(_, why, setting, _) => format!("{why} (setting {setting})").into(),
        error => error.into(),
    }
}

/// Whether a setting applies to consumers only; a producer would reject it.
pub(super) fn is_of_consumers(name: &str) -> bool {
    [
        "session.",
        "heartbeat.",
        "group.",
        "partition.assignment",
        "max.poll",
        "fetch.",
        "queued.",
        "auto.offset",
        "isolation.",
    ]
    .iter()
    .any(|of_consumers| name.starts_with(of_consumers))
}
