//! Turns a request into a job in the store.

use super::intake::fingerprint;
use super::{Outbox, OutboxState, Receipt, sealing, stored::Stored};
use crate::Priority;
use crate::config::AtRest;
use crate::error::{Delivery, Error, ErrorKind};
use crate::request::Request;
use crate::send::acceptable::acceptable;
use crate::store::jobs::{self, Accepted, Message, NewJob};
use crate::store::{CallersConnection, Id, LaneTier, failed, id_with_content, millis_of, new_id};
use std::sync::Arc;

/// Where a request comes from, which decides how a repetition of it is recognised.
pub(super) enum Origin<'a> {
    Caller,
    /// A batch, which numbers its requests.
    Batch(Id),
    /// A message of a source, which may deliver it more than once.
    Message {
        source: &'a str,
        id: &'a str,
    },
}

/// An id derived from names of any length and content.
pub(super) fn name_of(parts: &[&str]) -> Id {
    let mut text = Vec::new();
    for part in parts {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part.as_bytes());
    }
    Id::new_v5(&Id::NAMESPACE_URL, &text)
}

impl Outbox {
    /// Accepts a request on behalf of a tenant, to be sent when the limits allow, even if this process ends. Returns
    /// when the request is on the disk.
    ///
    /// All checks that are possible before the exchange are made now. [`Request::deadline`] is how long the job is
    /// useful: after that it becomes a dead letter with the reason `expired`. Without a deadline the job waits for the
    /// limits for as long as it takes, and for four days while no connection to the vendor can be made; other failures
    /// end it as the vendor's [retry policy](crate::config::RetryPolicy) says. [`Request::max_wait`] is ignored. With
    /// [`Request::idempotency_key`] a repeated request is accepted once: the second call returns the receipt of the
    /// first.
    ///
    /// Dropping the future does not undo what it has begun. If the store does not answer, the call fails after twelve
    /// seconds at most, and after as long again if the backlog had to be counted, which is due every few seconds; with
    /// [`max_lane_backlog`](crate::store::Store::max_lane_backlog) that may be two counts. While a backlog cannot be counted,
    /// the last count decides. Only a lane that this process has never counted is then refused, with the error of the store.
    ///
    /// # Errors
    /// [`ErrorKind::Store`]: the client has no store, or the store cannot be written. [`Delivery::NotSent`] then says that
    /// the job was not accepted, and [`Delivery::Ambiguous`] that it is unknown whether the commit took effect, so that the
    /// job may be accepted and sent: [`Error::job_id`] is its id, which [`receipt`](Self::receipt) takes.
    /// [`ErrorKind::QueueFull`]: the outbox is full.
    /// [`ErrorKind::Shutdown`]: after [`shutdown`](crate::IntegrationClient::shutdown).
    /// [`ErrorKind::KeyReused`]: another request was accepted with this key in the last day.
    /// [`ErrorKind::InvalidRequest`]: the body is a stream or too large, or the request carries a credential in a header
    /// that is known for credentials (`Authorization`, `Cookie`, `x-api-key` and the like).
    /// Also the errors that [`send`](crate::IntegrationClient::send) returns before the exchange.
    pub async fn enqueue(
        self,
        tenant: &str,
        priority: Priority,
        request: impl Into<Request>,
    ) -> Result<Receipt, Error> {
        let (outbox, job) = self.job(tenant, priority, request.into(), Origin::Caller)?;
        outbox.check_backlog(&job.lane).await?;
        outbox.put(job).await
    }

    /// Accepts a request inside a transaction of the caller's own, in the store's database: the request is accepted if
    /// and when the caller commits. The connection is `&mut *tx` of a sqlx transaction.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue); roll the transaction back then.
    pub async fn enqueue_in<C: CallersConnection>(
        self,
        connection: &mut C,
        tenant: &str,
        priority: Priority,
        request: impl Into<Request>,
    ) -> Result<Receipt, Error> {
        let (outbox, job) = self.job(tenant, priority, request.into(), Origin::Caller)?;
        outbox.check_backlog(&job.lane).await?;
        let now = connection.now().await.map_err(failed)?;
        let job = job.aged_to(outbox.clock.now());
        let accepted = jobs::insert(&job, connection, now).await.map_err(failed)?;
        outbox.receipt(job.id, job.lane, accepted)
    }

    /// The receipt of a request that was accepted earlier, by its id.
    ///
    /// # Errors
    /// The client has no store, or the text is not an id.
    pub fn receipt(self, id: &str) -> Result<Receipt, Error> {
        Ok(Receipt::new(id_of(id)?, self.state()?.clone(), false))
    }

    /// The receipt of a request of this lane that another client accepted. A client that
    /// [sends only its own requests](crate::IntegrationClientBuilder::work_on_own) sends this one too.
    ///
    /// # Errors
    /// As [`receipt`](Self::receipt).
    #[doc(hidden)]
    pub fn adopt(self, id: &str, tenant: &str, vendor: &str, priority: Priority) -> Result<Receipt, Error> {
        let (id, outbox) = (id_of(id)?, self.state()?);
        let tier = i64::from(priority.rank());
        outbox.add_own(id, &LaneTier { tenant: tenant.to_owned(), vendor: vendor.to_owned(), tier });
        Ok(Receipt::new(id, outbox.clone(), false))
    }
}

fn id_of(text: &str) -> Result<Id, Error> {
    let why = "the id of a receipt has 32 hex digits, as `Receipt::id` returns it";
    Id::try_parse(text).map_err(|_| Error::not_sent(ErrorKind::InvalidRequest, why))
}

impl Outbox {
    pub(super) fn job(
        &self,
        tenant: &str,
        priority: Priority,
        request: Request,
        origin: Origin<'_>,
    ) -> Result<(&Arc<OutboxState>, NewJob), Error> {
        let outbox = self.state()?;
        outbox.check_open()?;
        let checked_at = outbox.clock.now();
        let print = matches!(origin, Origin::Message { .. }).then(|| fingerprint(&request));
        let acceptable = acceptable(&self.core, tenant, priority, request)?;
        let (tenant, deadline) = (acceptable.tenant.clone(), acceptable.deadline);
        let (keep_result, own_key) = (acceptable.notes.keep_response, acceptable.own_key.clone());
        let stored = Stored::of(acceptable);
        let refuse = |why: String| tenant.not_sent(ErrorKind::InvalidRequest, why);
        // Serialization cannot fail: all map keys are strings.
        let request = serde_json::to_vec(&stored).map_err(|_| refuse("the request cannot be stored".to_owned()))?;
        let (id, message) = match origin {
            Origin::Caller => (new_id(self.core.clock), None),
            Origin::Batch(id) => (id, None),
            Origin::Message { source, id } => {
                let vendor = &*tenant.vendor.name;
                let content = name_of(&[source, &tenant.id, vendor, id, &print.unwrap_or_default()]);
                let job = id_with_content(self.core.clock.wall(), content);
                let hash = name_of(&[source, &tenant.id, vendor, id]);
                (job, Some(Message::new(id, hash, outbox.store.limits.keep_seen)))
            }
        };
        let request = match tenant.vendor.at_rest {
            AtRest::Sealed => outbox.store.seal(&id, request).ok_or_else(|| {
                refuse("the request must be sealed (`at_rest`), and the store has no key: `Store::seal_key`".to_owned())
            })?,
            _ => request,
        };
        let (size, most) = (request.len(), outbox.store.limits.max_payload);
        if size > most {
            let why = format!(
                "the request takes {size} bytes in the store, and at most {most} may be stored (`max_payload_bytes`)"
            );
            return Err(refuse(why));
        }
        let plain = own_key.map(|key| (String::from(key), stored.fingerprint()));
        let seals = tenant.vendor.at_rest == AtRest::Sealed;
        let (key, other_key) = sealing::keys(&outbox.store, &tenant.id, &tenant.vendor.name, plain, seals);
        let lane = LaneTier {
            tenant: tenant.id.to_string(),
            vendor: tenant.vendor.name.to_string(),
            tier: i64::from(priority.rank()),
        };
        let expires_ms = deadline.map(millis_of);
        let delay_ms = 0;
        let job = NewJob { id, lane, delay_ms, expires_ms, checked_at, keep_result, request, key, other_key, message };
        Ok((outbox, job))
    }
}

impl OutboxState {
    /// Refuses a job after a shutdown, as `send` does: this process would never send it.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        if !*self.stop.borrow() {
            return Ok(());
        }
        Err(Error::not_sent(ErrorKind::Shutdown, "the client has been shut down, and accepts nothing more"))
    }

    /// Writes a job, unless it was already accepted.
    pub(super) async fn put(self: &Arc<Self>, job: NewJob) -> Result<Receipt, Error> {
        let (id, lane) = (job.id, job.lane.clone());
        match self.store.insert(job.aged_to(self.clock.now())).await {
            Ok(accepted) => self.receipt(id, lane, accepted),
            Err(error) if error.delivery() == Delivery::Ambiguous => {
                // The job may have been accepted: tell the worker, so that it need not search for the job.
                self.lane_has_job(lane);
                Err(error.with_job(id.simple().to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn receipt(self: &Arc<Self>, id: Id, lane: LaneTier, accepted: Accepted) -> Result<Receipt, Error> {
        match accepted {
            Accepted::New => {
                self.count_in(&lane);
                self.add_own(id, &lane);
                self.lane_has_job(lane);
                Ok(Receipt::new(id, self.clone(), false))
            }
            Accepted::Before(id) => {
                self.add_own(id, &lane);
                Ok(Receipt::new(id, self.clone(), true))
            }
            Accepted::KeyOfAnother => {
                let LaneTier { tenant, vendor, .. } = lane;
                let why = "another request was accepted with this idempotency key; a new request needs a new key";
                Err(Error::of_tenant(&tenant, &vendor, ErrorKind::KeyReused, Delivery::NotSent, why))
            }
        }
    }
}
