//! One write of the hand-over: many messages become jobs in few transactions.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::deliveries::DeliveryBound;
use super::parts::{BYTES_TOGETHER, Parts, Rejected};
use super::room::{Room, place};
use super::source::{IntakeSource, MessageRef};
use crate::BoxError;
use crate::clock::Time;
use crate::error::{Delivery, Error, ErrorKind};
use crate::outbox::OutboxState;
use crate::store::intake;
use crate::store::is_down;
use crate::store::jobs::{Accepted, NewJob};
use crate::store::problems::Work;

/// The most messages of one fetch, and of one transaction. A sync to the disk takes as long as the writing of several hundred.
pub(super) const TOGETHER: usize = 1024;
/// The wait before the client checks again whether a full outbox has room, or a store can be written.
const FULL: Duration = Duration::from_millis(500);
/// How long a message for a full lane is postponed, if its source can do so.
const POSTPONE: Duration = Duration::from_secs(5);

/// A message that has passed all checks.
pub(super) struct CheckedMessage {
    pub(super) message: MessageRef,
    pub(super) job: NewJob,
    /// How often the source delivered it; 0 if that does not matter.
    pub(super) deliveries: u64,
}

/// The results to report to the source.
#[derive(Default)]
pub(super) struct SourceReport {
    pub(super) taken: Vec<MessageRef>,
    pub(super) refused: Vec<(MessageRef, Error)>,
    /// Messages without room in the outbox: the source delivers them again after [`POSTPONE`].
    pub(super) later: Vec<MessageRef>,
    /// Messages returned because the hand-over ends: another process may take them at once.
    pub(super) back: Vec<MessageRef>,
}

impl SourceReport {
    pub(super) fn len(&self) -> usize {
        self.taken.len() + self.refused.len() + self.later.len() + self.back.len()
    }

    pub(super) async fn tell(self, source: &dyn IntakeSource) -> Result<(), BoxError> {
        if !self.taken.is_empty() {
            source.taken(&self.taken).await?;
        }
        for (message, why) in &self.refused {
            tracing::warn!(source = source.name(), message = message.id, %why, "a message was refused");
            source.refused(message, why).await?;
        }
        for (messages, after) in [(self.later, POSTPONE), (self.back, Duration::ZERO)] {
            if !messages.is_empty() {
                source.later(&messages, after).await?;
            }
        }
        Ok(())
    }
}

/// The result of a write.
#[derive(Default)]
pub(super) struct Written {
    pub(super) told: SourceReport,
    /// Messages without room, in their order, and when to check again.
    pub(super) held: VecDeque<CheckedMessage>,
    pub(super) again_at: Option<Time>,
    /// Messages that became jobs.
    pub(super) new: u64,
    /// An error of the store that is not temporary. The results in `told` are valid with it, too.
    pub(super) failure: Option<Error>,
}

/// The end of the transaction that begins with job `from`: it takes one job at least.
fn end_of_step(jobs: &[NewJob], from: usize) -> usize {
    let mut bytes = 0usize;
    let fits = |job: &&NewJob| {
        bytes = bytes.saturating_add(job.request.len());
        bytes <= BYTES_TOGETHER
    };
    from + jobs.iter().skip(from).take(TOGETHER).take_while(fits).count().max(1)
}

/// The transactions for all jobs.
fn transactions(jobs: &[NewJob]) -> Vec<Range<usize>> {
    let (mut ranges, mut from) = (Vec::new(), 0);
    while from < jobs.len() {
        let end = end_of_step(jobs, from);
        ranges.push(from..end);
        from = end;
    }
    ranges
}

/// The messages of a write for whose jobs there is room, with their deliveries, and the jobs in the same order.
#[derive(Default)]
struct Placed {
    checked: Vec<(MessageRef, u64)>,
    jobs: Vec<NewJob>,
}

/// Counts the jobs for which there is room in the backlogs of their lanes. The other messages are postponed, or held.
async fn place_all(
    outbox: &Arc<OutboxState>,
    batch: VecDeque<CheckedMessage>,
    can_postpone: bool,
    bound: DeliveryBound<'_>,
    written: &mut Written,
) -> Result<Placed, Error> {
    let (mut room, mut placed) = (Room::default(), Placed::default());
    let (mut batch, mut without_room) = (batch.into_iter(), Vec::new());
    for good in batch.by_ref() {
        match place(outbox, &mut room, &good.job.lane).await {
            Ok(true) => {
                placed.checked.push((good.message, good.deliveries));
                // It may have been held since it was checked.
                placed.jobs.push(good.job.aged_to(outbox.clock.now()));
            }
            Ok(false) => without_room.push((good, can_postpone && room.is_open())),
            Err(error) if is_down(&error) => {
                // The store does not respond, and each further check would wait as long as this one.
                written.held.push_back(good);
                break;
            }
            Err(error) => {
                placed.jobs.iter().for_each(|job| outbox.count_out(&job.lane));
                return Err(error);
            }
        }
    }
    let beyond = without_room.iter().filter(|(good, _)| bound.is_beyond(good.deliveries));
    let is_kept = bound.keep(beyond.map(|(good, _)| &*good.message.id).collect()).await?;
    let behind = std::mem::take(&mut written.held);
    for (mut good, may_wait_at_source) in without_room {
        // Without its record, a message that has reached the bound would be refused at its next delivery.
        match may_wait_at_source && is_kept {
            true => written.told.later.push(good.message),
            false => {
                good.deliveries = if is_kept { 0 } else { good.deliveries };
                written.held.push_back(good);
            }
        }
    }
    written.held.extend(behind.into_iter().chain(batch));
    Ok(placed)
}

/// Writes the messages for which there is room.
pub(super) async fn write_all(
    outbox: &Arc<OutboxState>,
    batch: VecDeque<CheckedMessage>,
    can_postpone: bool,
    bound: DeliveryBound<'_>,
) -> Result<Written, Error> {
    let mut written = Written::default();
    let Placed { checked, jobs } = place_all(outbox, batch, can_postpone, bound, &mut written).await?;
    let (mut parts, mut known) = (Parts::new(transactions(&jobs)), Vec::new());
    let jobs = Arc::new(jobs);
    while let Some(part) = parts.pop() {
        let bytes = jobs[part.range.clone()].iter().map(|job| job.request.len()).sum();
        let some = (jobs.clone(), part.range.clone());
        let accepted = match outbox.store.write_bulk(Work::Accept, bytes, some, intake::take).await {
            Ok(accepted) => accepted,
            // One of the jobs may be the cause.
            Err(error) if intake::is_rejection(&error) => {
                parts.reject(part, error);
                continue;
            }
            Err(error) => {
                // Messages that may have been written already are recognised when they are written again.
                let held = parts.rest(part).into_iter().map(|number| {
                    let ((message, deliveries), job) = (checked[number].clone(), jobs[number].clone());
                    outbox.count_out(&job.lane);
                    CheckedMessage { message, job, deliveries }
                });
                let behind = std::mem::take(&mut written.held);
                written.held = held.chain(behind).collect();
                written.failure = Some(error).filter(|error| !is_down(error));
                break;
            }
        };
        if accepted.contains(&Accepted::New) {
            parts.accept(&part);
        }
        for (number, accepted) in part.range.zip(accepted) {
            let ((message, deliveries), job) = (checked[number].clone(), &jobs[number]);
            match accepted {
                Accepted::New => {
                    written.new += 1;
                    outbox.lane_has_job(job.lane.clone());
                }
                Accepted::Before(_) | Accepted::KeyOfAnother => outbox.count_out(&job.lane),
            }
            match accepted {
                Accepted::New | Accepted::Before(_) => {
                    if bound.is_beyond(deliveries) {
                        known.push(message.id.clone());
                    }
                    written.told.taken.push(message);
                }
                Accepted::KeyOfAnother => written.told.refused.push((message, id_of_another(job))),
            }
        }
    }
    // A message that is in the store and cannot be acknowledged is delivered again.
    if let Err(error) = bound.keep(known.iter().map(String::as_str).collect()).await {
        written.failure = Some(error);
    }
    for Rejected { number, error, is_cause } in parts.rejected() {
        outbox.count_out(&jobs[number].lane);
        match is_cause {
            true => written.told.refused.push((checked[number].0.clone(), error)),
            // A database that accepts no other job of the transaction is at fault, and not the message.
            false => {
                let ((message, deliveries), job) = (checked[number].clone(), jobs[number].clone());
                written.held.push_back(CheckedMessage { message, job, deliveries });
                written.failure = Some(error);
            }
        }
    }
    outbox.measured.intake.taken(written.new);
    outbox.measured.intake.refused(written.told.refused.len() as u64);
    if !written.held.is_empty() {
        written.again_at = Some(outbox.clock.now() + FULL);
    }
    Ok(written)
}

fn id_of_another(job: &NewJob) -> Error {
    let why = "another request was accepted with the id of this message, or with its idempotency key; a new request needs a \
               new one";
    Error::of_tenant(&job.lane.tenant, &job.lane.vendor, ErrorKind::KeyReused, Delivery::NotSent, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Id, LaneTier};

    fn jobs(sizes: &[usize]) -> Vec<NewJob> {
        let lane = LaneTier { tenant: "acme".into(), vendor: "v".into(), tier: 1 };
        let job = |size: &usize| NewJob {
            id: Id::nil(),
            lane: lane.clone(),
            delay_ms: 0,
            expires_ms: None,
            checked_at: Time::ZERO,
            keep_result: false,
            request: vec![0; *size],
            key: None,
            message: None,
        };
        sizes.iter().map(job).collect()
    }

    #[test]
    fn held_job_expires_at_the_same_moment() {
        let after = |micros| Time::ZERO + Duration::from_micros(micros);
        let job = NewJob { expires_ms: Some(2_000), ..jobs(&[1]).remove(0) };
        let held = (1..=10).fold(job, |job, times| job.aged_to(after(150_700 * times)));
        assert_eq!(held.expires_ms, Some(493), "1.507 s of 2 s have passed, whatever the number of steps");
        assert_eq!(held.aged_to(after(9_000_000)).expires_ms, Some(0));
    }

    #[test]
    fn transaction_ends_by_number_and_by_bytes() {
        let large = jobs(&[1 << 20; 20]);
        assert_eq!((end_of_step(&large, 0), end_of_step(&large, 8), end_of_step(&large, 16)), (8, 16, 20));
        assert_eq!(end_of_step(&jobs(&[BYTES_TOGETHER + 1, 1]), 0), 1, "a job that is larger goes alone");
        let small = jobs(&[10; TOGETHER + 5]);
        assert_eq!((end_of_step(&small, 0), end_of_step(&small, TOGETHER)), (TOGETHER, TOGETHER + 5));
    }
}
