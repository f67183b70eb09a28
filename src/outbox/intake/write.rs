//! One write of the hand-over: many messages become jobs in few transactions.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::deliveries::DeliveryBound;
use super::parts::{BYTES_TOGETHER, Parts, Rejected};
use super::report::SourceReport;
use super::room::{Room, place};
use super::source::{IntakeSource, MessageRef};
use crate::clock::Time;
use crate::error::{Delivery, Error, ErrorKind};
use crate::outbox::OutboxState;
use crate::store::jobs::{Accepted, NewJob};
use crate::store::problems::Work;
use crate::store::{Size, intake, is_down};

/// The most messages of one fetch, and of one transaction. A sync to the disk takes as long as the writing of several hundred.
pub(super) const TOGETHER: usize = 1024;
/// The wait before the client checks again whether a full outbox has room, or a store can be written.
const FULL: Duration = Duration::from_millis(500);

/// A message that has passed all checks.
pub(super) struct CheckedMessage {
    pub(super) progress: Progress,
    pub(super) job: NewJob,
}

/// How far a message has come.
#[derive(Clone)]
pub(super) struct Progress {
    pub(super) message: MessageRef,
    /// How often the source delivered it; 0 if that does not matter.
    pub(super) deliveries: u64,
    /// The bytes that it takes in memory: those of its content, or of its stored request if these are more.
    pub(super) bytes: usize,
    /// Whether the store was asked for the message, and does not know it. A message without room is asked for once.
    is_unknown: bool,
    /// Its place in the order of the messages of this write.
    place: usize,
    /// When a message behind it was settled first, while this one was held.
    overtaken_at: Option<Time>,
}

impl CheckedMessage {
    /// A message with this length of its content, of which `job` was made.
    pub(super) fn new(message: MessageRef, length: usize, deliveries: u64, job: NewJob) -> CheckedMessage {
        let bytes = length.max(job.request.len());
        let progress = Progress { message, deliveries, bytes, is_unknown: false, place: 0, overtaken_at: None };
        CheckedMessage { progress, job }
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
    /// An error of the store that is not temporary, or of a message that was held for too long. The results in `told`
    /// are valid with it, too.
    pub(super) failure: Option<Error>,
}

/// The end of the transaction that begins with job `from`: it takes one job at least. It may be cut when it is written.
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

/// The messages of a write for whose jobs there is room, and the jobs in the same order.
#[derive(Default)]
struct Placed {
    checked: Vec<Progress>,
    jobs: Vec<NewJob>,
    /// The place of the last message that is settled, though there is no room for its job.
    settled: Option<usize>,
}

/// A message without room, and whether the outbox as a whole has room.
type WithoutRoom = (CheckedMessage, bool);

/// Counts the jobs for which there is room in the backlogs of their lanes. Of the other messages, those that were accepted
/// before are settled, and the rest is postponed, or held.
async fn place_all(
    outbox: &Arc<OutboxState>,
    batch: VecDeque<CheckedMessage>,
    source: &dyn IntakeSource,
    bound: DeliveryBound<'_>,
    written: &mut Written,
) -> Result<Placed, Error> {
    let (mut room, mut placed) = (Room::default(), Placed::default());
    let (mut batch, mut without_room) = (batch.into_iter(), Vec::<WithoutRoom>::new());
    for good in batch.by_ref() {
        match place(outbox, &mut room, &good.job.lane).await {
            Ok(true) => {
                placed.checked.push(good.progress);
                // It may have been held since it was checked.
                placed.jobs.push(good.job.aged_to(outbox.clock.now()));
            }
            Ok(false) => without_room.push((good, room.is_open())),
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
    let behind = std::mem::take(&mut written.held);
    match settle_known(outbox, without_room, source.can_postpone(), bound, written).await {
        Ok(settled) => placed.settled = settled,
        Err(error) => {
            placed.jobs.iter().for_each(|job| outbox.count_out(&job.lane));
            return Err(error);
        }
    }
    written.held.extend(behind.into_iter().chain(batch));
    Ok(placed)
}

/// Settles the messages without room that were accepted before: if they waited for room, their ids could be forgotten
/// meanwhile, and the requests would be sent again. The other messages are postponed, or held. Returns the place of the
/// last message that was settled.
async fn settle_known(
    outbox: &Arc<OutboxState>,
    mut without_room: Vec<WithoutRoom>,
    can_postpone: bool,
    bound: DeliveryBound<'_>,
    written: &mut Written,
) -> Result<Option<usize>, Error> {
    let mut known = recognise(outbox, &mut without_room).await?;
    let beyond = without_room.iter().map(|(good, _)| &good.progress);
    let beyond = beyond.filter(|progress| bound.is_beyond(progress.deliveries));
    let is_kept = bound.keep(beyond.map(|progress| &*progress.message.id).collect()).await?;
    let mut settled = None;
    for (mut good, is_open) in without_room {
        let Progress { place, bytes, .. } = good.progress;
        match known.remove(&place) {
            Some(Accepted::KeyOfAnother) => {
                let why = id_of_another(&good.job);
                written.told.refused.push((good.progress.message, why), bytes);
                settled = Some(place);
            }
            Some(Accepted::Before(_) | Accepted::New) => {
                written.told.taken.push(good.progress.message, bytes);
                settled = Some(place);
            }
            // Without its record, a message that has reached the bound would be refused at its next delivery.
            None if can_postpone && is_open && is_kept => written.told.later.push(good.progress.message, bytes),
            None => {
                if is_kept {
                    good.progress.deliveries = 0;
                }
                let late = || held_too_long(&good, is_open, outbox.clock.now(), outbox.store.limits.keep_seen);
                written.failure = written.failure.take().or_else(late);
                written.held.push_back(good);
            }
        }
    }
    Ok(settled)
}

/// What the store knows of the messages without room that it was not asked for yet, by their places. Nothing while the
/// store cannot be written; it is asked again then.
async fn recognise(
    outbox: &Arc<OutboxState>,
    without_room: &mut [WithoutRoom],
) -> Result<HashMap<usize, Accepted>, Error> {
    let mut asked: Vec<&mut CheckedMessage> = without_room.iter_mut().map(|(good, _)| good).collect();
    asked.retain(|good| !good.progress.is_unknown && good.job.message.is_some());
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    let messages: Vec<_> = asked.iter().filter_map(|good| Some((good.job.message?, good.job.id))).collect();
    let found = match outbox.store.write_as(Work::Accept, messages, intake::recognise).await {
        Ok(found) => found,
        Err(error) if is_down(&error) => return Ok(HashMap::new()),
        Err(error) => return Err(error),
    };
    let mut known = HashMap::new();
    for (good, found) in asked.into_iter().zip(found) {
        good.progress.is_unknown = found.is_none();
        known.extend(found.map(|accepted| (good.progress.place, accepted)));
    }
    Ok(known)
}

/// Writes the messages for which there is room.
pub(super) async fn write_all(
    outbox: &Arc<OutboxState>,
    mut batch: VecDeque<CheckedMessage>,
    source: &dyn IntakeSource,
    bound: DeliveryBound<'_>,
) -> Result<Written, Error> {
    let mut written = Written::default();
    batch.iter_mut().enumerate().for_each(|(place, good)| good.progress.place = place);
    let Placed { checked, jobs, mut settled } = place_all(outbox, batch, source, bound, &mut written).await?;
    let (mut parts, mut known) = (Parts::new(transactions(&jobs)), Vec::new());
    let jobs = Arc::new(jobs);
    let next = |parts: &mut Parts| {
        let most = outbox.intake_bound.lock().most();
        parts.pop(most, |job| intake::statements(&jobs[job]))
    };
    while let Some(part) = next(&mut parts) {
        let which = part.range.clone();
        let size = Size {
            bytes: jobs[which.clone()].iter().map(|job| job.request.len()).sum(),
            statements: jobs[which.clone()].iter().map(intake::statements).sum(),
        };
        let accepted = match outbox.store.write_bulk(Work::Accept, size, (jobs.clone(), which), intake::take).await {
            Ok(accepted) => {
                outbox.intake_bound.lock().written(part.range.len(), outbox.clock.now());
                accepted
            }
            // One of the jobs may be the cause.
            Err(error) if intake::is_rejection(&error) => {
                parts.reject(part, error);
                continue;
            }
            Err(error) => {
                outbox.intake_bound.lock().failed(part.range.len(), outbox.clock.now());
                // Messages that may have been written already are recognised when they are written again.
                let held = parts.rest(part).into_iter().map(|number| {
                    let (progress, job) = (checked[number].clone(), jobs[number].clone());
                    outbox.count_out(&job.lane);
                    CheckedMessage { progress, job }
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
            let (Progress { message, deliveries, bytes, place, .. }, job) = (checked[number].clone(), &jobs[number]);
            settled = settled.max(Some(place));
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
                    written.told.taken.push(message, bytes);
                }
                Accepted::KeyOfAnother => written.told.refused.push((message, id_of_another(job)), bytes),
            }
        }
    }
    // A message that is in the store and cannot be acknowledged is delivered again.
    if let Err(error) = bound.keep(known.iter().map(String::as_str).collect()).await {
        written.failure = Some(error);
    }
    for Rejected { number, error, is_cause } in parts.rejected() {
        outbox.count_out(&jobs[number].lane);
        let Progress { message, bytes, .. } = &checked[number];
        match is_cause {
            true => written.told.refused.push((message.clone(), error), *bytes),
            // A database that accepts no other job of the transaction is at fault, and not the message.
            false => {
                let (progress, job) = (checked[number].clone(), jobs[number].clone());
                written.held.push_back(CheckedMessage { progress, job });
                written.failure = Some(error);
            }
        }
    }
    outbox.measured.intake.taken(written.new);
    outbox.measured.intake.refused(written.told.refused.len() as u64);
    if !written.held.is_empty() {
        written.again_at = Some(outbox.clock.now() + FULL);
    }
    if source.acknowledges_in_order() {
        mark_overtaken(&mut written.held, settled, outbox.clock.now());
    }
    Ok(written)
}

/// Notes the first time at which a message was settled behind held ones. `settled` is the place of the last message that
/// was settled by this write.
fn mark_overtaken(held: &mut VecDeque<CheckedMessage>, settled: Option<usize>, now: Time) {
    for CheckedMessage { progress, .. } in held {
        if settled.is_some_and(|settled| progress.place < settled) {
            progress.overtaken_at.get_or_insert(now);
        }
    }
}

/// The error of a held message, if messages behind it were accepted more than half of the time ago for which ids of
/// messages are kept. Its source acknowledges in order, so it delivers those messages again when the hand-over begins
/// anew, and they must be recognised then. The other half of the time is left for that, and the redelivery renews their
/// ids. Nothing is at risk before such a message was accepted.
fn held_too_long(good: &CheckedMessage, is_open: bool, now: Time, keep_seen: Duration) -> Option<Error> {
    let CheckedMessage { progress, job } = good;
    progress.overtaken_at.filter(|at| now.since(*at) > keep_seen / 2)?;
    let full = match is_open {
        true => "the backlog of its lane (`max_lane_backlog`) is full",
        false => "the outbox (`max_backlog`) is full",
    };
    let why = format!(
        "the message {} had no room, and messages behind it were accepted {} s ago, half of the time for which ids of \
         messages are kept (`keep_seen`): {full}, the source acknowledges in order, and the messages behind this one \
         would be sent again if they came after that time. Make room, and begin the hand-over again soon. A longer \
         `keep_seen` keeps only the ids of messages that are accepted or come again from then on",
        progress.message.id,
        (keep_seen / 2).as_secs()
    );
    Some(Error::of_tenant(&job.lane.tenant, &job.lane.vendor, ErrorKind::QueueFull, Delivery::NotSent, why))
}

fn id_of_another(job: &NewJob) -> Error {
    let why = "another request was accepted with the id of this message, or with its idempotency key; a new request needs a \
               new one";
    Error::of_tenant(&job.lane.tenant, &job.lane.vendor, ErrorKind::KeyReused, Delivery::NotSent, why)
}

#[cfg(test)]
mod tests;
