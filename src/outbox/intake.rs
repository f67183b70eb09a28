//! Brokers that feed the outbox.

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
/// The client takes a message over when it is on the disk, and only then tells the broker. A message is known again by the
/// [name](Self::name) of its source, its tenant and vendor, and its id: delivered again, it is the same job. Another request
/// with the id of a message of the last day, or of one whose job has not ended, is [refused](Self::refused) with
/// [`ErrorKind::KeyReused`]; after that it is a job of its own.
pub trait IntakeSource: Send + Sync {
    /// The name of the source, under which its messages have their ids: a queue's or a topic's with the broker's, for example.
    /// It must be the same in every process and at every start. Two sources with one name must not have the same ids.
    fn name(&self) -> &str;

    /// The next messages, `most` at most. Waits for one; an empty answer means that there will be no more.
    ///
    /// # Errors
    /// [`Outbox::feed_from`] ends with it.
    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>>;

    /// The message is in the store: the broker may forget it.
    ///
    /// # Errors
    /// [`Outbox::feed_from`] ends with it. The message may come again.
    fn taken<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), BoxError>>;

    /// The message cannot be taken over, now or later, and why: it is the broker's to keep or to throw away. A full outbox
    /// is no reason: the message is held until there is room.
    ///
    /// # Errors
    /// As for [`taken`](Self::taken).
    fn refused<'a>(&'a self, id: &'a str, why: &'a Error) -> BoxFuture<'a, Result<(), BoxError>>;
}

/// Messages that were fetched and are not in the store yet, at most.
const TOGETHER: usize = 100;
/// Until it is looked again whether a full outbox has room.
const FULL: Duration = Duration::from_millis(500);

/// A message that was found good.
struct Good {
    id: String,
    job: NewJob,
}

impl Outbox {
    /// Takes messages over from a broker, until it has no more. Runs in the caller's own task. Returns how many jobs were
    /// accepted: a message that was delivered again is none.
    ///
    /// While the outbox is full, or a tenant's part of it, messages for it are held, a hundred of all at most; others go on. A
    /// tenant's messages for a vendor are taken over in the order in which they came. Dropping the future loses none: what is
    /// held was not acknowledged, and the broker delivers it again.
    ///
    /// # Errors
    /// What the source fails with, as [`ErrorKind::Store`], a store that cannot be written, and
    /// [`ErrorKind::Shutdown`] after [`shutdown`](crate::IntegrationClient::shutdown).
    pub async fn feed_from(self, source: &dyn IntakeSource) -> Result<u64, Error> {
        let broken = |error: BoxError| Error::not_sent(ErrorKind::Store, "the intake source failed").with_source(error);
        let outbox = self.state()?;
        let (mut new, mut held, mut is_over) = (0, VecDeque::new(), false);
        // Kept while others are tried again: what a source has handed over must not be dropped on the way.
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
