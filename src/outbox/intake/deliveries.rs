//! The bound of deliveries: a message that was delivered again and again and never accepted is refused, because it may be
//! what ends the process each time.
//!
//! A broker that counts deliveries also counts those after which this client postponed the message because its lane was
//! full. So the store records a message that had no room shortly before it reaches the bound: it was handled without harm.
//! A message beyond the bound without such a record has ended no hand-over well.

use std::time::Duration;

use super::source::{Content, Intake, IntakeSource};
use crate::error::Error;
use crate::outbox::OutboxState;
use crate::outbox::accept::name_of;
use crate::store::jobs::Message;
use crate::store::problems::Work;
use crate::store::{Id, intake, is_down, millis_of};

/// How long the store keeps the record of a message.
const KEEP: Duration = Duration::from_secs(30 * 86_400);
/// The record of a message that was handled, and postponed or held.
const HARMLESS: Id = Id::from_u128(1);
/// The record of a message that was refused for its deliveries.
const REFUSED: Id = Id::from_u128(2);

/// The bound of a source, and the store with the records.
#[derive(Clone, Copy)]
pub(super) struct DeliveryBound<'a> {
    outbox: &'a OutboxState,
    source: &'a str,
    most: Option<u64>,
}

impl<'a> DeliveryBound<'a> {
    pub(super) fn of(source: &'a dyn IntakeSource, outbox: &'a OutboxState) -> DeliveryBound<'a> {
        DeliveryBound { outbox, source: source.name(), most: source.max_deliveries() }
    }

    fn record(&self, id: &str) -> Message {
        Message { id: name_of(&[self.source, "deliveries", id]), keep_ms: millis_of(KEEP) }
    }

    /// The record to make of a message without room, if its deliveries come near the bound.
    pub(super) fn harmless(&self, id: &str, deliveries: u64) -> Option<(Message, Id)> {
        is_near(self.most?, deliveries).then(|| (self.record(id), HARMLESS))
    }

    /// Writes records of messages without room. While the store is away, none is written.
    pub(super) async fn keep(&self, records: Vec<(Message, Id)>) -> Result<(), Error> {
        if records.is_empty() {
            return Ok(());
        }
        match self.outbox.store.write_as(Work::Accept, records, intake::note).await {
            Err(error) if !is_down(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Refuses those of the messages that are beyond the bound and are not known to be harmless. While the store cannot be
    /// written, none is refused.
    pub(super) async fn judge(&self, messages: &mut [Intake]) -> Result<(), Error> {
        let Some(most) = self.most else { return Ok(()) };
        let beyond: Vec<&mut Intake> = messages.iter_mut().filter(|message| message.deliveries > most).collect();
        if beyond.is_empty() {
            return Ok(());
        }
        let records = beyond.iter().map(|intake| (self.record(&intake.message.id), REFUSED)).collect::<Vec<_>>();
        let known = match self.outbox.store.write_as(Work::Accept, records, intake::note).await {
            Ok(known) => known,
            Err(error) if is_down(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        for (intake, known) in beyond.into_iter().zip(known) {
            if known != Some(HARMLESS) {
                let count = intake.deliveries;
                intake.content = Content::Invalid(format!(
                    "the message was delivered {count} times and never accepted, and `max_deliveries` is {most}: it may \
                     be what ends the process"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a message was delivered about as often as the bound allows. The record is made in the second half, so that few
/// messages have one.
fn is_near(most: u64, deliveries: u64) -> bool {
    most / 2 < deliveries && deliveries <= most
}

#[cfg(test)]
mod tests {
    use super::is_near;

    #[test]
    fn deliveries_are_near_in_the_second_half() {
        let near = |most| (0..=most + 1).filter(|deliveries| is_near(most, *deliveries)).collect::<Vec<u64>>();
        assert_eq!((near(1), near(2), near(5)), (vec![1], vec![2], vec![3, 4, 5]));
    }
}
