//! The server, the stream and the consumer that a URL names.

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, Context, stream};
use futures_util::FutureExt;
use integration_client::BoxError;

use super::settings::check_subjects;
use crate::address::Address;
use crate::error::Error;
use crate::waits::PATIENCE;

/// The stream and the consumer that a URL names.
pub(super) struct Target {
    pub(super) address: Address,
    /// The server and the stream, as the name of the source begins.
    pub(super) place: String,
    pub(super) stream: String,
    pub(super) consumer: String,
}

impl Target {
    pub(super) fn read(url: &str) -> Result<Target, Error> {
        let address = Address::read("NATS", url, &["stream", "consumer", "max_deliveries"])?;
        let no_stream = || Error::new("NATS: the URL must name a stream: nats://HOST?stream=NAME");
        let stream = address.get("stream").ok_or_else(no_stream)?.to_owned();
        let consumer = address.get("consumer").unwrap_or("integration-client").to_owned();
        Ok(Target { place: format!("nats:{}:{stream}", address.place(4222)), address, stream, consumer })
    }
}

/// Makes a client, and connects it to the server.
pub(super) async fn connect(address: &Address) -> Result<Context, BoxError> {
    let options = ConnectOptions::new().name("integration-client").connection_timeout(PATIENCE);
    Ok(jetstream::new(options.connect(address.url.as_str()).await?))
}

/// Whether a client has ended. Such a client takes no commands, while one without a connection keeps them.
pub(super) fn has_ended(context: &Context) -> bool {
    context.client().flush().now_or_never().is_some_and(|flushed| flushed.is_err())
}

/// Connects to the server, and looks at the stream.
pub(super) async fn find_stream(address: &Address, stream: &str) -> Result<(Context, stream::Stream), BoxError> {
    let context = connect(address).await?;
    let found = context.get_stream(stream).await?;
    check_subjects(stream, &found.cached_info().config.subjects)?;
    Ok((context, found))
}
