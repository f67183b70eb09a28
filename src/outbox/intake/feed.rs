//! The hand-over from a source: fetched messages are checked and written together, and acknowledged when they are on the
//! disk.
//!
//! Three calls overlap: the next fetch, the write of what was fetched before, and the acknowledgements of what was
//! written before that. There is one of each at most, so that a tenant's messages keep their order. A write takes all
//! that has been fetched since the last one, many messages in one transaction: a sync to the disk costs milliseconds,
//! however much is written.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::deliveries::DeliveryBound;
use super::room::{Room, place};
use super::source::{Content, Intake, IntakeSource, MessageRef};
use crate::clock::{Clock, Time};
use crate::error::{Delivery, Error, ErrorKind};
use crate::outbox::accept::Origin;
use crate::outbox::{Outbox, OutboxState, intake::line::Line};
use crate::store::intake;
use crate::store::is_down;
use crate::store::jobs::{Accepted, NewJob};
use crate::store::problems::Work;
use crate::{BoxError, BoxFuture};

/// The most messages that are fetched and not yet acknowledged: those of one write, and those that are fetched meanwhile.
const IN_HAND: usize = 2 * TOGETHER;
/// No more messages are fetched while those that are not in the store yet take this many bytes.
const BYTES_IN_HAND: usize = 16 << 20;
/// The most bytes of one transaction, which must end in time: other writes of the process wait for it.
const BYTES_TOGETHER: usize = 8 << 20;
/// The assumed size of a message before any was fetched.
const FIRST_SIZE: usize = 64 << 10;
/// The most messages of one fetch, and of one transaction. A sync to the disk takes as long as the writing of several hundred.
const TOGETHER: usize = 1024;
/// The wait before the client checks again whether a full outbox has room, or a store can be written.
const FULL: Duration = Duration::from_millis(500);
/// How long a message for a full lane is postponed, if its source can do so.
const POSTPONE: Duration = Duration::from_secs(5);
/// How often a job is written by itself before its message is refused because the database rejects it.
const ALONE: u32 = 2;

/// A message that has passed all checks.
struct CheckedMessage {
    message: MessageRef,
    job: NewJob,
    /// As [`Intake::deliveries`]; 0 once they do not count.
    deliveries: u64,
}

/// The results to report to the source.
#[derive(Default)]
struct SourceReport {
    taken: Vec<MessageRef>,
    refused: Vec<(MessageRef, Error)>,
    /// Messages without room in the outbox: the source delivers them again after [`POSTPONE`].
    later: Vec<MessageRef>,
    /// Messages returned because the hand-over ends: another process may take them at once.
    back: Vec<MessageRef>,
}

impl SourceReport {
    fn len(&self) -> usize {
        self.taken.len() + self.refused.len() + self.later.len() + self.back.len()
    }

    async fn tell(self, source: &dyn IntakeSource) -> Result<(), BoxError> {
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

/// A write in progress.
struct Write<'a> {
    count: usize,
    bytes: usize,
    done: BoxFuture<'a, Result<Written, Error>>,
}

fn bytes_of(messages: &VecDeque<CheckedMessage>) -> usize {
    messages.iter().map(|good| good.job.request.len()).sum()
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

/// The result of a write.
#[derive(Default)]
struct Written {
    told: SourceReport,
    /// Messages without room, in their order, and when to check again.
    held: VecDeque<CheckedMessage>,
    again_at: Option<Time>,
    /// Messages that became jobs.
    new: u64,
}

fn broken(error: BoxError) -> Error {
    Error::not_sent(ErrorKind::Store, "the intake source failed").with_source(error)
}

/// Fetches messages, and refuses those that were delivered too often.
async fn fetch_from(source: &dyn IntakeSource, most: usize, bound: DeliveryBound<'_>) -> Result<Vec<Intake>, Error> {
    let mut messages = source.fetch(most).await.map_err(broken)?;
    bound.judge(&mut messages).await?;
    Ok(messages)
}

impl Outbox {
    /// Accepts messages from a source until it has no more, or until
    /// [`shutdown`](crate::IntegrationClient::shutdown). Runs in the caller's own task. Returns how many jobs were accepted;
    /// a redelivered message is not counted.
    ///
    /// While the outbox, or a tenant's part of it, is full, and while the store cannot be written, messages are held, at most
    /// two thousand in total; messages for other tenants are accepted. A tenant's messages for a vendor are accepted in the
    /// order in which they came, except those that the source [postponed](IntakeSource::can_postpone). Dropping the future
    /// loses no message: a message that is not in the store was not acknowledged, and the broker redelivers it.
    ///
    /// A message is refused if the database rejects its job and accepts others at the same time, and if it was delivered
    /// more often than the source [allows](IntakeSource::max_deliveries).
    ///
    /// # Errors
    /// The source's own error, as [`ErrorKind::Store`]; an error of the store that is not temporary; and
    /// [`ErrorKind::Shutdown`] if the client had been shut down before.
    pub async fn feed_from(self, source: &dyn IntakeSource) -> Result<u64, Error> {
        let outbox = self.state()?;
        outbox.check_open()?;
        let (clock, mut stop) = (outbox.clock, outbox.stop.subscribe());
        let (can_postpone, bound) = (source.can_postpone(), DeliveryBound::of(source, outbox));
        let (mut new, mut is_over) = (0, false);
        let (mut held, mut told, mut telling) = (VecDeque::new(), SourceReport::default(), 0);
        let mut again_at: Option<Time> = None;
        // The mean size of the messages that were fetched last.
        let mut size = FIRST_SIZE;
        // These futures are kept from one turn of the loop to the next: a dropped fetch could lose messages that the source
        // has already handed over.
        let mut fetch: Option<BoxFuture<'_, Result<Vec<Intake>, Error>>> = None;
        let mut write: Option<Write<'_>> = None;
        let mut tell: Option<BoxFuture<'_, Result<(), BoxError>>> = None;
        loop {
            let (writing, bytes) = write.as_ref().map_or((0, 0), |write| (write.count, write.bytes));
            let in_hand = held.len() + writing + told.len() + telling;
            let bytes_left = BYTES_IN_HAND.saturating_sub(bytes + bytes_of(&held));
            if fetch.is_none() && !is_over && in_hand < IN_HAND && bytes_left > 0 {
                let most = (bytes_left / size).clamp(1, TOGETHER);
                fetch = Some(Box::pin(fetch_from(source, most.min(IN_HAND - in_hand), bound)));
            }
            let is_stopped = *stop.borrow();
            if is_stopped && write.is_none() && can_postpone {
                told.back.extend(held.drain(..).map(|CheckedMessage { message, .. }| message));
            }
            if write.is_none() && !held.is_empty() && !is_stopped && again_at.is_none() {
                let batch = std::mem::take(&mut held);
                let (count, bytes) = (batch.len(), bytes_of(&batch));
                write = Some(Write { count, bytes, done: Box::pin(write_all(outbox, batch, can_postpone, bound)) });
            }
            if tell.is_none() && told.len() > 0 {
                telling = told.len();
                tell = Some(Box::pin(std::mem::take(&mut told).tell(source)));
            }
            let has_work = fetch.is_some() || write.is_some() || tell.is_some();
            if !has_work && (held.is_empty() || is_stopped) {
                return Ok(new);
            }
            let wait = async {
                match again_at {
                    Some(at) => tokio::time::sleep_until(clock.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                stopped = stop.wait_for(|stop| *stop), if !is_stopped => {
                    drop(stopped);
                    (is_over, fetch) = (true, None);
                }
                Some(result) = async { Some(tell.as_mut()?.await) }, if tell.is_some() => {
                    (tell, telling) = (None, 0);
                    result.map_err(broken)?;
                }
                Some(result) = async { Some(write.as_mut()?.done.as_mut().await) }, if write.is_some() => {
                    write = None;
                    let mut written = result?;
                    new += written.new;
                    again_at = written.again_at;
                    // Messages fetched in the meantime are newer, so they go behind.
                    written.held.append(&mut held);
                    held = written.held;
                    told.taken.append(&mut written.told.taken);
                    told.refused.append(&mut written.told.refused);
                    told.later.append(&mut written.told.later);
                }
                Some(fetched) = async { Some(fetch.as_mut()?.await) }, if fetch.is_some() => {
                    // Check the held messages again now, together with the new ones: some of these may have room.
                    (fetch, again_at) = (None, None);
                    let messages = fetched?;
                    is_over = messages.is_empty();
                    let (count, bytes) = (held.len(), bytes_of(&held));
                    for intake in messages {
                        self.check(source, intake, &mut held, &mut told, clock)?;
                    }
                    if held.len() > count {
                        size = ((bytes_of(&held) - bytes) / (held.len() - count)).max(1);
                    }
                }
                () = wait, if !is_stopped => again_at = None,
            }
        }
    }

    /// Turns a message into a job, refuses the message, or gives it back because the client has been shut down.
    fn check(
        &self,
        source: &dyn IntakeSource,
        intake: Intake,
        good: &mut VecDeque<CheckedMessage>,
        told: &mut SourceReport,
        clock: Clock,
    ) -> Result<(), Error> {
        let Intake { message, content, sent_at, reply_to, deliveries } = intake;
        let wall = clock.wall();
        let line = match content {
            Content::Request(line) => Ok(*line),
            Content::Json(text) => Line::parse(&text, wall),
            Content::Invalid(why) => Err(Error::not_sent(ErrorKind::InvalidRequest, why)),
        };
        let origin = Origin::Message { source: source.name(), id: &message.id };
        let line = line.map(|line| match reply_to {
            Some(reply_to) => Line { request: reply_to.onto(line.request), ..line },
            None => line,
        });
        let job = line.and_then(|Line { tenant, priority, request }| self.job(&tenant, priority, request, origin));
        match job {
            Ok((outbox, job)) => {
                outbox.measured.intake.behind(sent_at.and_then(|at| wall.duration_since(at).ok()));
                good.push_back(CheckedMessage { message, job, deliveries });
            }
            // What was fetched before must still be written and acknowledged.
            Err(error) if error.kind() == ErrorKind::Shutdown => {
                if source.can_postpone() {
                    told.back.push(message);
                }
            }
            Err(error) if error.kind() == ErrorKind::Store => return Err(error),
            Err(error) => {
                self.state()?.measured.intake.refused(1);
                told.refused.push((message, error));
            }
        }
        Ok(())
    }
}

/// Writes the messages for which there is room.
async fn write_all(
    outbox: &Arc<OutboxState>,
    batch: VecDeque<CheckedMessage>,
    can_postpone: bool,
    bound: DeliveryBound<'_>,
) -> Result<Written, Error> {
    let mut written = Written::default();
    let (mut room, mut messages, mut jobs) = (Room::default(), Vec::new(), Vec::new());
    let (mut batch, mut harmless) = (batch.into_iter(), Vec::new());
    for mut good in batch.by_ref() {
        match place(outbox, &mut room, &good.job.lane).await {
            Ok(true) => {
                messages.push(good.message);
                jobs.push(good.job);
            }
            Ok(false) => {
                if let Some(record) = bound.harmless(&good.message.id, good.deliveries) {
                    harmless.push(record);
                    good.deliveries = 0;
                }
                match can_postpone && room.is_open() {
                    true => written.told.later.push(good.message),
                    false => written.held.push_back(good),
                }
            }
            Err(error) if is_down(&error) => {
                // The store does not respond, and each further check would wait as long as this one.
                written.held.push_back(good);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    written.held.extend(batch);
    bound.keep(harmless).await?;
    let jobs = Arc::new(jobs);
    // What is written in one transaction each, and how often that failed.
    let (mut parts, mut rejected) = (VecDeque::new(), Vec::new());
    let (mut from, mut has_accepted) = (0, false);
    while from < jobs.len() {
        let end = end_of_step(&jobs, from);
        parts.push_back((from..end, 0));
        from = end;
    }
    while let Some((part, failures)) = parts.pop_front() {
        let accepted = match outbox.store.write_as(Work::Accept, (jobs.clone(), part.clone()), intake::take).await {
            Ok(accepted) => accepted,
            Err(error) if is_down(&error) => {
                // Messages that may have been written already are recognised when they are written again.
                parts.push_front((part, failures));
                let rest: VecDeque<CheckedMessage> = numbers(parts)
                    .map(|number| CheckedMessage {
                        message: messages[number].clone(),
                        job: jobs[number].clone(),
                        deliveries: 0,
                    })
                    .collect();
                rest.iter().for_each(|good| outbox.count_out(&good.job.lane));
                let behind = std::mem::replace(&mut written.held, rest);
                written.held.extend(behind);
                break;
            }
            // One of the jobs may be the cause: each is written by itself.
            Err(error) if intake::is_rejection(&error) && part.len() > 1 => {
                part.rev().for_each(|number| parts.push_front((number..number + 1, 0)));
                continue;
            }
            Err(error) if intake::is_rejection(&error) && failures + 1 < ALONE => {
                parts.push_back((part, failures + 1));
                continue;
            }
            Err(error) if intake::is_rejection(&error) => {
                rejected.push((part.start, error));
                continue;
            }
            Err(error) => return Err(error),
        };
        has_accepted = true;
        for (number, accepted) in part.zip(accepted) {
            let (message, job) = (messages[number].clone(), &jobs[number]);
            match accepted {
                Accepted::New => {
                    outbox.lane_has_job(job.lane.clone());
                    written.new += 1;
                }
                Accepted::Before(_) | Accepted::KeyOfAnother => outbox.count_out(&job.lane),
            }
            match accepted {
                Accepted::New | Accepted::Before(_) => written.told.taken.push(message),
                Accepted::KeyOfAnother => written.told.refused.push((message, id_of_another(job))),
            }
        }
    }
    for (number, error) in rejected {
        // A database that accepts nothing is at fault, and not the message.
        if !has_accepted {
            return Err(error);
        }
        outbox.count_out(&jobs[number].lane);
        written.told.refused.push((messages[number].clone(), error));
    }
    outbox.measured.intake.taken(written.new);
    outbox.measured.intake.refused(written.told.refused.len() as u64);
    if !written.held.is_empty() {
        written.again_at = Some(outbox.clock.now() + FULL);
    }
    Ok(written)
}

/// The numbers of the jobs in all parts, in their order.
fn numbers(parts: VecDeque<(Range<usize>, u32)>) -> impl Iterator<Item = usize> {
    let mut numbers: Vec<usize> = parts.into_iter().flat_map(|(part, _)| part).collect();
    numbers.sort_unstable();
    numbers.into_iter()
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
            keep_result: false,
            request: vec![0; *size],
            key: None,
            message: None,
        };
        sizes.iter().map(job).collect()
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
