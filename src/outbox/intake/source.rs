//! The trait that connects a message broker, or any other source of requests.

use std::time::{Duration, SystemTime};

use super::line::Line;
use crate::error::Error;
use crate::request::Request;
use crate::{BoxError, BoxFuture, Priority};

/// One message of a source.
#[derive(Debug)]
#[must_use = "a message does nothing before it is handed over"]
pub struct Intake {
    pub(super) message: MessageRef,
    pub(super) content: Content,
    /// The length of the content as it was fetched, or of the request's body.
    pub(super) length: usize,
    pub(super) sent_at: Option<SystemTime>,
    pub(super) reply_to: Option<ReplyTo>,
    pub(super) deliveries: u64,
}

/// The reply that the broker's own message properties ask for.
#[derive(Debug)]
pub(super) struct ReplyTo {
    name: String,
    correlation_id: Option<String>,
}

impl ReplyTo {
    /// Adds the reply to `request`, unless the content of the message states its own.
    pub(super) fn onto(self, request: Request) -> Request {
        let notes = request.parts.notes.as_deref();
        let is_named = notes.is_some_and(|notes| notes.reply_to.is_some());
        let has_id = notes.is_some_and(|notes| notes.metadata.contains_key(CORRELATION_ID));
        let request = if is_named { request } else { request.reply_to(self.name) };
        match self.correlation_id {
            Some(id) if !has_id => request.metadata(CORRELATION_ID, id),
            _ => request,
        }
    }
}

/// The metadata by which the sender of a message knows the reply again.
const CORRELATION_ID: &str = "correlation_id";

#[derive(Debug)]
pub(super) enum Content {
    Request(Box<Line>),
    /// JSON that is not parsed yet.
    Json(Vec<u8>),
    /// The message holds no request, for this reason.
    Invalid(String),
}

impl Content {
    fn length(&self) -> usize {
        match self {
            Content::Request(line) => line.request.parts.body.as_bytes().map_or(0, <[u8]>::len),
            Content::Json(text) => text.len(),
            Content::Invalid(why) => why.len(),
        }
    }
}

/// Identifies a message in reports to its source.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct MessageRef {
    /// The source's id of the message.
    pub id: String,
    /// The number of the delivery, as [`Intake::delivery`] gave it; 0 where it gave none.
    pub delivery: u64,
}

impl Intake {
    fn with(id: impl Into<String>, content: Content) -> Intake {
        let message = MessageRef { id: id.into(), delivery: 0 };
        Intake { message, length: content.length(), content, sent_at: None, reply_to: None, deliveries: 0 }
    }

    /// A request on behalf of `tenant`, in a message with this id. A redelivery of the message has the same id.
    pub fn new(id: impl Into<String>, tenant: impl Into<String>, priority: Priority, request: Request) -> Intake {
        Intake::with(id, Content::Request(Box::new(Line { tenant: tenant.into(), priority, request })))
    }

    /// A message whose content is a JSON object, as [`Line`] describes. If the content is invalid, the message is
    /// [refused](IntakeSource::refused) with [`ErrorKind::InvalidRequest`](crate::ErrorKind::InvalidRequest) when it
    /// is handed over.
    pub fn json(id: impl Into<String>, content: impl Into<Vec<u8>>) -> Intake {
        Intake::with(id, Content::Json(content.into()))
    }

    /// A message from which the source can make no request, for the reason `why`. It is
    /// [refused](IntakeSource::refused) with [`ErrorKind::InvalidRequest`](crate::ErrorKind::InvalidRequest) when it
    /// is handed over. The client does not know its length, and bounds only the number of such messages in memory.
    pub fn invalid(id: impl Into<String>, why: impl Into<String>) -> Intake {
        Intake::with(id, Content::Invalid(why.into()))
    }

    /// A number that distinguishes this delivery of the message from others, for sources that must acknowledge each
    /// delivery.
    pub fn delivery(mut self, number: u64) -> Intake {
        self.message.delivery = number;
        self
    }

    /// How often the broker has delivered the message, this delivery included, if the broker counts that: see
    /// [`IntakeSource::max_deliveries`].
    pub fn deliveries(mut self, count: u64) -> Intake {
        self.deliveries = count;
        self
    }

    /// When the message was put into the source; the metric `integration_client_intake_lag_seconds` is computed from
    /// it.
    pub fn sent_at(mut self, time: SystemTime) -> Intake {
        self.sent_at = Some(time);
        self
    }

    /// Asks for a reply, because the message's own properties do: as [`reply`](Line) in its content would. The
    /// correlation id becomes the metadata `correlation_id`.
    pub fn reply_to(mut self, name: impl Into<String>, correlation_id: Option<String>) -> Intake {
        self.reply_to = Some(ReplyTo { name: name.into(), correlation_id });
        self
    }

    /// The message, as the client names it when it reports what became of it.
    pub fn message(&self) -> &MessageRef {
        &self.message
    }
}

/// A broker, or any other source that hands over requests and must get an acknowledgement when they are safe.
///
/// The client acknowledges a message only after the message is on the disk. It recognises a redelivered message by the
/// [name](Self::name) of its source, its tenant and vendor, and its id, and creates no second job for it, for as long as
/// [`Store::keep_seen`](crate::store::Store::keep_seen) says. A different request with the id of such a message is
/// [refused](Self::refused) with [`ErrorKind::KeyReused`](crate::ErrorKind::KeyReused).
///
/// One call of each method is under way at a time. A call of [`fetch`](Self::fetch), one of [`taken`](Self::taken), and
/// one of [`refused`](Self::refused) or [`later`](Self::later) overlap, so that acknowledgements do not wait for messages
/// that are put aside. No call overlaps with [`ended`](Self::ended).
pub trait IntakeSource: Send + Sync {
    /// The name of the source, in which message ids are unique: for example the name of the broker and of the queue or
    /// topic. The name must be the same in every process and at every start. Two sources with the same name must not
    /// use the same ids.
    fn name(&self) -> &str;

    /// The client calls this before the first fetch of a hand-over. It recognises a message that it accepted no longer
    /// than `keep_seen` ago ([`Store::keep_seen`](crate::store::Store::keep_seen)). If the broker has lost the record
    /// of what was acknowledged, the source must not begin at older messages by itself, because those that were
    /// accepted would be sent again: [`fetch`](Self::fetch) then returns an error. Does nothing unless implemented.
    ///
    /// A source that wraps another one must forward this call, as all others. The sources of `integration-client-intake`
    /// take nothing as recognised before it.
    fn begin(&self, _keep_seen: Duration) {}

    /// Returns the next messages, `most` at most. Waits until there is one; an empty answer means that the source has
    /// ended. While its broker is unreachable, the source itself must wait: an error ends the hand-over.
    ///
    /// # Errors
    /// [`Outbox::feed_from`](crate::outbox::Outbox::feed_from) ends with this error.
    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>>;

    /// The client calls this when the messages are in the store: acknowledge them to the broker. A lost
    /// acknowledgement does no harm: the broker redelivers the message, and the client recognises it.
    ///
    /// # Errors
    /// [`Outbox::feed_from`](crate::outbox::Outbox::feed_from) ends with this error.
    fn taken<'a>(&'a self, messages: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>>;

    /// The client calls this for messages that can never be accepted, each with the reason. The source should put them
    /// where somebody will look, for example into the broker's queue of dead letters. A full outbox is no such reason.
    ///
    /// # Errors
    /// As for [`taken`](Self::taken).
    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>>;

    /// Whether the source can postpone a message with [`later`](Self::later). `false` unless implemented.
    ///
    /// If it cannot, the client holds messages for a tenant whose part of the outbox is full; when it holds as many as
    /// it may, the source's other messages wait behind them.
    fn can_postpone(&self) -> bool {
        false
    }

    /// Whether the broker keeps one position and no acknowledgement of single messages, so that it delivers the messages
    /// behind an unsettled one again when the hand-over begins anew. `false` unless implemented.
    ///
    /// If so, a message without room ends the hand-over with
    /// [`ErrorKind::QueueFull`](crate::ErrorKind::QueueFull) when half of
    /// [`Store::keep_seen`](crate::store::Store::keep_seen) has passed since a message behind it was settled first: that
    /// message must be recognised when it is delivered again.
    fn acknowledges_in_order(&self) -> bool {
        false
    }

    /// The client calls this for messages without room in the outbox: the source delivers them again after about
    /// `after`, and other messages meanwhile. Called only if [`can_postpone`](Self::can_postpone) returns `true`. The
    /// source decides the order among a tenant's postponed messages. If `after` is zero, the hand-over ends, and another
    /// process may have the messages at once.
    ///
    /// # Errors
    /// As for [`taken`](Self::taken).
    fn later<'a>(&'a self, _messages: &'a [MessageRef], _after: Duration) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { Ok(()) })
    }

    /// The client calls this when the hand-over has ended, also with an error: give back to the broker the messages
    /// that the source has received and the client has not reported on. Those for which it called [`later`](Self::later)
    /// without a wait are given back already. Does nothing unless implemented.
    ///
    /// No other call is under way: a fetch that was, and any other call, has ended or was dropped.
    /// [`Outbox::feed_from`](crate::outbox::Outbox::feed_from) returns after this, so it must end while the broker is
    /// away, too. It is not called if the future of `feed_from` is dropped.
    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// The most [deliveries](Intake::deliveries) of one message. `None`, which is no bound, unless implemented.
    ///
    /// A message that was delivered more often is tried once more. If it comes again after that, and was neither
    /// accepted nor postponed nor held for want of room, it is [refused](Self::refused), because it may be what ends the
    /// process each time.
    fn max_deliveries(&self) -> Option<u64> {
        None
    }
}
