//! Message brokers that feed the outbox.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::Outbox;
use super::accept::Origin;
use crate::BoxError;
use crate::BoxFuture;
use crate::Priority;
use crate::error::{Error, ErrorKind};
use crate::request::Request;
use crate::store::jobs::NewJob;

/// One message of a broker.
#[derive(Debug)]
pub struct Intake {
    /// The broker's id of the message. A redelivery has the same id.
    pub id: String,
    /// The tenant on whose behalf the request is sent.
    pub tenant: String,
    /// The priority of the job.
    pub priority: Priority,
    /// The request.
    pub request: Request,
}

/// A broker, or any other source that hands over requests and must get an acknowledgement when they are safe.
///
/// The client acknowledges a message only after the message is on the disk. It recognises a redelivered message by the
/// [name](Self::name) of its source, its tenant and vendor, and its id, and creates no second job for it. A different
/// request with the id of a message of the last day, or of one whose job has not ended, is [refused](Self::refused)
/// with [`ErrorKind::KeyReused`]; after that it is a job of its own.
pub trait IntakeSource: Send + Sync {
    /// The name of the source, in which message ids are unique: for example the name of the broker and of the queue or
    /// topic. The name must be the same in every process and at every start. Two sources with the same name must not
    /// use the same ids.
    fn name(&self) -> &str;

    /// Returns the next messages, `most` at most. Waits for one; an empty answer means that the source has ended.
    ///
    /// # Errors
    /// [`Outbox::feed_from`] ends with this error.
    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>>;

    /// The message is in the store: acknowledge it to the broker.
    ///
    /// # Errors
    /// [`Outbox::feed_from`] ends with this error. The broker may redeliver the message.
    fn taken<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), BoxError>>;

    /// The message can never be accepted, for the reason `why`: the source decides whether to keep or to discard it. A
    /// full outbox is no such reason: the client holds the message until there is room.
    ///
    /// # Errors
    /// As for [`taken`](Self::taken).
    fn refused<'a>(&'a self, id: &'a str, why: &'a Error) -> BoxFuture<'a, Result<(), BoxError>>;
}

/// The most messages that are fetched and not yet in the store.
const TOGETHER: usize = 100;
/// The wait before the client looks again whether a full outbox has room.
const FULL: Duration = Duration::from_millis(500);

/// A message that has passed all checks.
struct Good {
    id: String,
    job: NewJob,
}

impl Outbox {
    /// Accepts messages from a broker until it has no more. Runs in the caller's own task. Returns how many jobs were
    /// accepted; a redelivered message is not counted.
    ///
    /// While the outbox, or a tenant's part of it, is full, messages for it are held, at most a hundred in total; other
    /// messages are accepted. A tenant's messages for a vendor are accepted in the order in which they came. Dropping
    /// the future loses no message: a held message was not acknowledged, and the broker redelivers it.
    ///
    /// # Errors
    /// The source's own error, as [`ErrorKind::Store`]; a store that cannot be written; and [`ErrorKind::Shutdown`]
    /// after [`shutdown`](crate::IntegrationClient::shutdown).
    pub async fn feed_from(self, source: &dyn IntakeSource) -> Result<u64, Error> {
        let broken = |error: BoxError| Error::not_sent(ErrorKind::Store, "the intake source failed").with_source(error);
        let outbox = self.state()?;
        let (mut new, mut held, mut is_over) = (0, VecDeque::new(), false);
        // The future is kept while held messages are retried: dropping it could lose messages that the source has
        // already handed over.
        let mut fetch: Option<BoxFuture<'_, Result<Vec<Intake>, BoxError>>> = None;
        loop {
            if fetch.is_none() && !is_over && held.len() < TOGETHER {
                fetch = Some(source.fetch(TOGETHER - held.len()));
            }
            let fetched = tokio::select! {
                biased;
                fetched = async { Some(fetch.as_mut()?.await) }, if fetch.is_some() => fetched,
                () = tokio::time::sleep(FULL), if !held.is_empty() => None,
                else => return Ok(new),
            };
            if let Some(messages) = fetched {
                fetch = None;
                let messages = messages.map_err(broken)?;
                is_over = messages.is_empty();
                for Intake { id, tenant, priority, request } in messages {
                    let origin = Origin::Message { source: source.name(), id: &id };
                    match self.job(&tenant, priority, request, origin) {
                        Ok((_, job)) => held.push_back(Good { id, job }),
                        Err(error) if error.kind() == ErrorKind::Shutdown => return Err(error),
                        Err(error) => source.refused(&id, &error).await.map_err(broken)?,
                    }
                }
            }
            let mut full = HashSet::new();
            for Good { id, job } in std::mem::take(&mut held) {
                let lane = (job.lane.tenant.clone(), job.lane.vendor.clone());
                if full.contains(&lane) {
                    held.push_back(Good { id, job });
                    continue;
                }
                match outbox.check_backlog(&job.lane).await {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::QueueFull => {
                        full.insert(lane);
                        held.push_back(Good { id, job });
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                match outbox.put(job).await {
                    Ok(receipt) => {
                        source.taken(&id).await.map_err(broken)?;
                        new += u64::from(!receipt.was_accepted_before());
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::Store | ErrorKind::Shutdown) => return Err(error),
                    Err(error) => source.refused(&id, &error).await.map_err(broken)?,
                }
            }
        }
    }
}
