//! Brokers that feed the outbox.

use super::Receipt;
use crate::Priority;
use crate::client::IntegrationClient;
use crate::dead_letter::BoxError;
use crate::error::{Error, ErrorKind};
use crate::request::Request;
use crate::store::Id;
use crate::transport::BoxFuture;

/// One message of a broker.
#[derive(Debug)]
pub struct Intake {
    /// What the broker knows the message by: the same again when it delivers it again.
    pub id: String,
    /// On whose behalf.
    pub tenant: String,
    /// The tier that it is to wait in.
    pub priority: Priority,
    /// What is to be sent.
    pub request: Request,
}

/// A broker, or anything else that hands over requests and must be told that they are safe.
///
/// The client takes a message over when it is on the disk, and only then tells the broker. A message that the broker
/// delivers again is the same job: its id is made from the broker's.
pub trait IntakeSource: Send + Sync {
    /// The next messages, `most` at most. Waits for one; an empty answer means that there will be no more.
    ///
    /// # Errors
    /// [`IntegrationClient::feed_from`] ends with it.
    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>>;

    /// The message is in the store: the broker may forget it.
    ///
    /// # Errors
    /// [`IntegrationClient::feed_from`] ends with it. The message may come again.
    fn taken<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), BoxError>>;

    /// The message cannot be taken over, and why: it is the broker's to keep or to throw away.
    ///
    /// # Errors
    /// As for [`taken`](Self::taken).
    fn refused<'a>(&'a self, id: &'a str, why: &'a Error) -> BoxFuture<'a, Result<(), BoxError>>;
}

/// Messages under way from a broker into the store.
const TOGETHER: usize = 100;
/// While the outbox is full the broker keeps what it has.
const FULL: std::time::Duration = std::time::Duration::from_millis(500);

impl IntegrationClient {
    /// Takes messages over from a broker, until it has no more. Runs in the caller's own task.
    ///
    /// # Errors
    /// What the source fails with, as [`ErrorKind::Store`], and a store that cannot be written.
    pub async fn feed_from(&self, source: &dyn IntakeSource) -> Result<u64, Error> {
        let broken = |error: BoxError| Error::not_sent(ErrorKind::Store, "the intake source failed").with_source(error);
        let mut taken = 0;
        loop {
            let messages = source.fetch(TOGETHER).await.map_err(broken)?;
            if messages.is_empty() {
                return Ok(taken);
            }
            for Intake { id, tenant, priority, request } in messages {
                match self.take_over(&id, &tenant, priority, request).await {
                    Ok(_) => {
                        source.taken(&id).await.map_err(broken)?;
                        taken += 1;
                    }
                    Err(error) if error.kind() == ErrorKind::Store => return Err(error),
                    Err(error) => {
                        source.refused(&id, &error).await.map_err(broken)?;
                        if error.kind() == ErrorKind::QueueFull {
                            tokio::time::sleep(FULL).await;
                        }
                    }
                }
            }
        }
    }

    async fn take_over(&self, id: &str, tenant: &str, priority: Priority, request: Request) -> Result<Receipt, Error> {
        let name = [tenant.as_bytes(), &[0], id.as_bytes()].concat();
        let id = Id::new_v5(&Id::NAMESPACE_URL, &name);
        self.inner().accept(tenant, priority, request, Some(id)).await
    }
}
