//! Creates the consumer before it takes the first message.

use async_nats::jetstream::consumer::DeliverPolicy;
use integration_client::BoxError;

use super::Nats;
use super::consumer::{create, find, time_of};
use super::target::{Target, find_stream};
use crate::begin::Begin;
use crate::error::Error;
use crate::waits::{self, PATIENCE};

impl Nats {
    /// Creates the durable consumer of the URL, which begins at the message that `begin` names. Returns what was created.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); the consumer exists; or the server does not create it, as one that begins
    /// elsewhere than at the first message of a work queue.
    pub async fn begin_at(url: &str, begin: Begin) -> Result<String, Error> {
        let Target { address, place, stream, consumer } = Target::read(url)?;
        let creating = async {
            let (_context, found) = find_stream(&address, &stream).await?;
            if find(&found, &stream, &consumer).await?.is_some() {
                let why = format!(
                    "the stream {stream} has the consumer {consumer} already, which knows what was accepted; to begin \
                     elsewhere, name another one in the URL (consumer=NAME)"
                );
                return Err(BoxError::from(why));
            }
            let made = found.cached_info().created;
            let (policy, at) = match begin {
                Begin::First => (DeliverPolicy::All, "the first message".to_owned()),
                Begin::New => (DeliverPolicy::New, "the next new message".to_owned()),
                Begin::Last(back) => {
                    // No message is older than its stream.
                    let age = time_of(made.unix_timestamp_nanos());
                    let age = age.and_then(|made| waits::wall().duration_since(made).ok()).unwrap_or_default();
                    let start_time = made + age.saturating_sub(back);
                    (DeliverPolicy::ByStartTime { start_time }, format!("the first message since {start_time}"))
                }
            };
            create(&found, &stream, &consumer, policy).await?;
            Ok(format!("the consumer {consumer} begins in the stream {stream} at {at}"))
        };
        let created = tokio::time::timeout(2 * PATIENCE, creating).await;
        let created = created.unwrap_or_else(|_| Err("no answer within 20 s".into()));
        created.map_err(|error| Error::new(place).with_source(error))
    }
}
