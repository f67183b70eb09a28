//! The bound of deliveries: a message that is delivered again and again may be what ends the process each time.
//!
//! A message beyond the bound is tried once more, and the store records that before. If another hand-over gets it again,
//! and nothing says that the try ended well, it is refused. A try ends well also if the message was postponed because its
//! lane was full: a broker counts the deliveries that follow from that like all others.

use std::time::Duration;

use super::source::{Content, Intake, IntakeSource};
use crate::error::Error;
use crate::outbox::OutboxState;
use crate::outbox::accept::name_of;
use crate::store::jobs::Message;
use crate::store::problems::Work;
use crate::store::{Id, intake, is_down, new_id};

/// How long the store keeps the record of a message.
const KEEP: Duration = Duration::from_secs(30 * 86_400);
/// The record of a message that was accepted, postponed or held.
const HANDLED: Id = Id::from_u128(1);

/// The bound of a source, and the store with the records.
#[derive(Clone, Copy)]
pub(crate) struct DeliveryBound<'a> {
    outbox: &'a OutboxState,
    source: &'a str,
    most: Option<u64>,
    /// The record of a message that is tried once more by this hand-over. A write whose reply was lost is repeated, and finds
    /// its own record.
    tried: Id,
}

impl<'a> DeliveryBound<'a> {
    pub(crate) fn of(source: &'a dyn IntakeSource, outbox: &'a OutboxState) -> DeliveryBound<'a> {
        DeliveryBound { outbox, source: source.name(), most: source.max_deliveries(), tried: new_id(outbox.clock) }
    }

    pub(super) fn is_beyond(&self, deliveries: u64) -> bool {
        self.most.is_some_and(|most| deliveries > most)
    }

    fn record(&self, id: &str, what: Id) -> (Message, Id) {
        (Message::new(id, name_of(&[self.source, "deliveries", id]), KEEP), what)
    }

    /// Records that the messages with these ids were handled. Returns whether that is written: it is not while the store
    /// cannot be written.
    pub(super) async fn keep(&self, ids: Vec<&str>) -> Result<bool, Error> {
        if ids.is_empty() {
            return Ok(true);
        }
        let records = ids.into_iter().map(|id| self.record(id, HANDLED)).collect::<Vec<_>>();
        match self.outbox.store.write_as(Work::Accept, records, intake::note_anew).await {
            Ok(()) => Ok(true),
            Err(error) if is_down(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Refuses those of the messages that are beyond the bound and were tried without a good end. Their records are deleted, so
    /// that they are tried again if an operator publishes them again. While the store cannot be written, none is refused.
    pub(crate) async fn judge(self, mut messages: Vec<Intake>) -> Result<Vec<Intake>, Error> {
        let beyond: Vec<&mut Intake> =
            messages.iter_mut().filter(|message| self.is_beyond(message.deliveries)).collect();
        if beyond.is_empty() {
            return Ok(messages);
        }
        let records = beyond.iter().map(|intake| self.record(&intake.message.id, self.tried)).collect::<Vec<_>>();
        let known = match self.outbox.store.write_as(Work::Accept, records, intake::note).await {
            Ok(known) => known,
            Err(error) if is_down(&error) => return Ok(messages),
            Err(error) => return Err(error),
        };
        let mut refused = Vec::new();
        for (intake, known) in beyond.into_iter().zip(known) {
            match known {
                // Its record need not be written again.
                Some(HANDLED) => intake.deliveries = 0,
                Some(tried) if tried != self.tried => {
                    refused.push(self.record(&intake.message.id, tried).0);
                    let count = intake.deliveries;
                    intake.content = Content::Invalid(format!(
                        "the message was delivered {count} times, and nothing is known of the last try; `max_deliveries` is {}, \
                         because such a message may be what ends the process",
                        self.most.unwrap_or_default()
                    ));
                }
                _ => {}
            }
        }
        if !refused.is_empty() {
            match self.outbox.store.write_as(Work::Accept, refused, intake::forget_notes).await {
                Err(error) if !is_down(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(messages)
    }
}
