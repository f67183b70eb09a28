//! Sets the positions of a group before it takes the first message.

use std::time::SystemTime;

use integration_client::BoxError;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::util::Timeout;
use rdkafka::{Offset, TopicPartitionList};

use super::options::{Target, consumers, without_value};
use super::{Context, Kafka};
use crate::begin::Begin;
use crate::error::Error;
use crate::waits::{self, PATIENCE};

impl Kafka {
    /// Sets the position of the URL's group in each partition in which it has none. Returns what was set. The group must
    /// have no member.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); the group has a position in each partition; or the brokers do not take the
    /// positions, as while the group has a member.
    pub async fn begin_at(url: &str, begin: Begin) -> Result<String, Error> {
        let target = Target::read(url)?;
        let what = format!("kafka:{}:{}", target.place, target.topic);
        let setting = tokio::task::spawn_blocking(move || set(&target, begin));
        let set = match setting.await {
            Ok(set) => set,
            Err(error) => Err(error.into()),
        };
        set.map_err(|error| Error::new(what).with_source(error))
    }
}

/// Sets the positions. The calls block.
fn set(Target { address, place, topic, group }: &Target, begin: Begin) -> Result<String, BoxError> {
    let within = Timeout::After(PATIENCE);
    let settings = consumers(address, place, group);
    let consumer: BaseConsumer<Context> = settings.create_with_context(Context::default()).map_err(without_value)?;
    let known = consumer.fetch_metadata(Some(topic), within)?;
    let partitions = known.topics().iter().filter(|known| known.name() == topic.as_str());
    let partitions: Vec<i32> = partitions.flat_map(|known| known.partitions()).map(|known| known.id()).collect();
    if partitions.is_empty() {
        return Err(format!("there is no topic {topic:?}; make it first, or correct the URL").into());
    }
    let mut asked = TopicPartitionList::new();
    for partition in partitions {
        asked.add_partition(topic, partition);
    }
    let stored = consumer.committed_offsets(asked, within)?;
    let mut missing = Vec::new();
    for stored in stored.elements() {
        stored.error()?;
        if !matches!(stored.offset(), Offset::Offset(_)) {
            missing.push(stored.partition());
        }
    }
    if missing.is_empty() {
        let why = format!(
            "the group {group} has a position in each partition of the topic {topic}; to begin elsewhere, delete the group \
             or name another one in the URL (group=NAME)"
        );
        return Err(why.into());
    }
    let mut at = TopicPartitionList::new();
    let mut text = Vec::new();
    for partition in missing {
        let offset = offset(&consumer, topic, partition, begin)?;
        at.add_partition_offset(topic, partition, Offset::Offset(offset))?;
        text.push(format!("{partition} at offset {offset}"));
    }
    let with_advice = |error: KafkaError| format!("{error}: end all processes of the group {group} first");
    consumer.commit(&at, CommitMode::Sync).map_err(with_advice)?;
    Ok(format!("the group {group} begins in the topic {topic}, by partition: {}", text.join(", ")))
}

/// The offset of the first message that is to be taken from a partition.
fn offset(consumer: &BaseConsumer<Context>, topic: &str, partition: i32, begin: Begin) -> Result<i64, BoxError> {
    let within = Timeout::After(PATIENCE);
    let (first, end) = consumer.fetch_watermarks(topic, partition, within)?;
    let back = match begin {
        Begin::First => return Ok(first),
        Begin::New => return Ok(end),
        Begin::Last(back) => back,
    };
    let from = waits::wall().checked_sub(back).and_then(|from| from.duration_since(SystemTime::UNIX_EPOCH).ok());
    let from_ms = from.and_then(|from| i64::try_from(from.as_millis()).ok()).unwrap_or_default();
    let mut times = TopicPartitionList::new();
    times.add_partition_offset(topic, partition, Offset::Offset(from_ms))?;
    let found = consumer.offsets_for_times(times, within)?;
    let Some(found) = found.find_partition(topic, partition) else { return Ok(end) };
    found.error()?;
    // There is no message from that time on.
    let Offset::Offset(found) = found.offset() else { return Ok(end) };
    Ok(found)
}
