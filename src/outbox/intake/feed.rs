//! The hand-over from a source: fetched messages are checked and written together, and acknowledged when they are on the
//! disk.
//!
//! Four calls overlap: the next fetch, the write of what was fetched before, the acknowledgements of what was written
//! before that, and the report of what is put aside. There is one of each at most, so that a tenant's messages keep their
//! order. A write takes all that has been fetched since the last one, many messages in one transaction: a sync to the
//! disk costs milliseconds, however much is written.

use std::collections::VecDeque;
use std::time::Duration;

use super::deliveries::DeliveryBound;
use super::report::{Report, SourceReport};
use super::source::{Content, Intake, IntakeSource};
use super::write::{CheckedMessage, TOGETHER, Written, write_all};
use crate::clock::{Clock, Time};
use crate::error::{Error, ErrorKind};
use crate::outbox::accept::Origin;
use crate::outbox::{Outbox, intake::line::Line};
use crate::{BoxError, BoxFuture};

/// The most messages that are fetched and not yet acknowledged: those of one write, and those that are fetched meanwhile.
const IN_HAND: usize = 2 * TOGETHER;
/// No more messages are fetched while those in hand take this many bytes. A message is in hand until the report of it has
/// ended, also after it was accepted or refused: its source keeps it until then.
const BYTES_IN_HAND: usize = 16 << 20;
/// The assumed size of a message before any was fetched.
const FIRST_SIZE: usize = 64 << 10;
/// How long a hand-over that has been shut down waits for a report to its source, whose broker may be away.
const LAST_REPORT: Duration = Duration::from_secs(10);

/// A write in progress.
struct Write<'a> {
    count: usize,
    bytes: usize,
    done: BoxFuture<'a, Result<Written, Error>>,
}

fn bytes_of(messages: &VecDeque<CheckedMessage>) -> usize {
    messages.iter().map(|good| good.progress.bytes).sum()
}

/// Waits until `time`, or for ever if there is none.
async fn until(time: Option<Time>, clock: Clock) {
    match time {
        Some(time) => tokio::time::sleep_until(clock.instant(time)).await,
        None => std::future::pending().await,
    }
}

fn broken(error: BoxError) -> Error {
    Error::not_sent(ErrorKind::Store, "the intake source failed").with_source(error)
}

impl Outbox {
    /// Accepts messages from a source until it has no more, or until
    /// [`shutdown`](crate::IntegrationClient::shutdown). Runs in the caller's own task. Returns how many jobs were accepted;
    /// a redelivered message is not counted. Returns after [`IntakeSource::ended`], by which the source gives back what
    /// is left. After a shutdown each report to the source is awaited for 10 s at most.
    ///
    /// While the outbox, or a tenant's part of it, is full, and while the store cannot be written, messages are held, at most
    /// two thousand in total, and for a [bounded time](IntakeSource::acknowledges_in_order) if the source acknowledges in
    /// order; messages for other tenants are accepted. A tenant's messages for a vendor are accepted in the
    /// order in which they came, except those that the source [postponed](IntakeSource::can_postpone) or whose job the
    /// database rejected at first. Dropping the future loses no message: a message that is not in the store was not
    /// acknowledged, and the broker redelivers it. `ended` is not called then, so drop the source, too.
    ///
    /// A message is refused if the database rejects its job and accepts others of the same transaction, and if it comes
    /// again after it was delivered more often than the source [allows](IntakeSource::max_deliveries).
    ///
    /// # Errors
    /// The source's own error, as [`ErrorKind::Store`] (if it could not fetch, what was fetched before and has room is
    /// written first); an error of the store that is not temporary; [`ErrorKind::QueueFull`] if a message was held for
    /// too long and the source [acknowledges in order](IntakeSource::acknowledges_in_order); and [`ErrorKind::Shutdown`] if the client had been shut down before.
    pub async fn feed_from(self, source: &dyn IntakeSource) -> Result<u64, Error> {
        self.state()?.check_open()?;
        let fed = self.hand_over(source).await;
        source.ended().await;
        fed
    }

    async fn hand_over(&self, source: &dyn IntakeSource) -> Result<u64, Error> {
        let outbox = self.state()?;
        let (clock, mut stop) = (outbox.clock, outbox.stop.subscribe());
        let (can_postpone, bound) = (source.can_postpone(), DeliveryBound::of(source, outbox));
        source.begin(outbox.store.limits.keep_seen);
        let (mut new, mut is_over) = (0, false);
        let (mut held, mut told) = (VecDeque::new(), SourceReport::default());
        // The messages beyond the bound of deliveries that are given back.
        let mut handled = Vec::new();
        // The error with which the hand-over ends, when what is in the store has been acknowledged.
        let mut failure: Option<Error> = None;
        // The error of a source that failed. What was fetched before is written first: the source may have lost it.
        let mut lost: Option<Error> = None;
        let mut again_at: Option<Time> = None;
        // The mean size of the messages that were fetched last.
        let mut size = FIRST_SIZE;
        // These futures are kept from one turn of the loop to the next: a dropped fetch could lose messages that the source
        // has already handed over.
        let mut fetch: Option<BoxFuture<'_, Result<Vec<Intake>, BoxError>>> = None;
        let mut judge: Option<BoxFuture<'_, Result<Vec<Intake>, Error>>> = None;
        let mut write: Option<Write<'_>> = None;
        // The acknowledgements, and what is put aside.
        let (mut acknowledge, mut aside): (Option<Report<'_>>, Option<Report<'_>>) = (None, None);
        // Whether a report has taken too long.
        let mut is_silent = false;
        loop {
            let (writing, bytes) = write.as_ref().map_or((0, 0), |write| (write.count, write.bytes));
            let telling: usize = acknowledge.iter().chain(&aside).map(|report| report.count).sum();
            let bytes_telling: usize = acknowledge.iter().chain(&aside).map(|report| report.bytes).sum();
            let in_hand = held.len() + writing + told.len() + telling;
            let bytes_in_hand = bytes_of(&held) + bytes + told.bytes() + bytes_telling;
            let bytes_left = BYTES_IN_HAND.saturating_sub(bytes_in_hand);
            if fetch.is_none() && judge.is_none() && !is_over && in_hand < IN_HAND && bytes_left > 0 {
                let most = (bytes_left / size).clamp(1, TOGETHER);
                fetch = Some(source.fetch(most.min(IN_HAND - in_hand)));
            }
            let is_stopped = *stop.borrow();
            let is_ending = is_stopped || failure.is_some() || (lost.is_some() && again_at.is_some());
            if is_ending && write.is_none() && !held.is_empty() {
                let beyond = held.iter().filter(|good: &&CheckedMessage| bound.is_beyond(good.progress.deliveries));
                handled.extend(beyond.map(|good| good.progress.message.id.clone()));
                let left = held.drain(..).map(|good| good.progress);
                match can_postpone {
                    true => left.for_each(|progress| told.back.push(progress.message, progress.bytes)),
                    false => drop(left),
                }
            }
            if write.is_none() && !held.is_empty() && !is_ending && again_at.is_none() {
                let batch = std::mem::take(&mut held);
                let (count, bytes) = (batch.len(), bytes_of(&batch));
                write = Some(Write { count, bytes, done: Box::pin(write_all(outbox, batch, source, bound)) });
            }
            // Before they are given back, because another process may have them at once.
            bound.keep(std::mem::take(&mut handled).iter().map(String::as_str).collect()).await?;
            // After a report that took too long only acknowledgements are tried. What is not told is delivered again, and
            // recognised if it is in the store.
            if is_silent {
                told = told.acknowledgements();
            }
            if acknowledge.is_none() {
                acknowledge = Report::begin(told.acknowledgements(), source);
            }
            if aside.is_none() {
                // Acknowledgements that wait for those under way are no part of it.
                let waiting = told.acknowledgements();
                aside = Report::begin(std::mem::replace(&mut told, waiting), source);
            }
            if is_stopped {
                for report in acknowledge.iter_mut().chain(&mut aside) {
                    report.until.get_or_insert_with(|| clock.now() + LAST_REPORT);
                }
            }
            let is_telling = acknowledge.is_some() || aside.is_some();
            let earliest = acknowledge.iter().chain(&aside).filter_map(|report| report.until).min();
            let has_work = fetch.is_some() || judge.is_some() || write.is_some() || is_telling;
            if !has_work && (held.is_empty() || is_ending) {
                return failure.or(lost).map_or(Ok(new), Err);
            }
            tokio::select! {
                biased;
                // The client may have been shut down since the last look, and then a fetch is under way nevertheless.
                stopped = stop.wait_for(|stop| *stop), if !is_stopped || !is_over => {
                    drop(stopped);
                    (is_over, fetch) = (true, None);
                }
                Some(result) = async { Some(acknowledge.as_mut()?.done.as_mut().await) }, if acknowledge.is_some() => {
                    acknowledge = None;
                    result.map_err(broken)?;
                }
                Some(result) = async { Some(aside.as_mut()?.done.as_mut().await) }, if aside.is_some() => {
                    aside = None;
                    result.map_err(broken)?;
                }
                () = until(earliest, clock) => {
                    let is_late = |report: &mut Report<'_>| report.until.is_some() && report.until <= earliest;
                    let late = [acknowledge.take_if(is_late), aside.take_if(is_late)];
                    tracing::warn!(
                        source = source.name(),
                        messages = late.iter().flatten().map(|report| report.count).sum::<usize>(),
                        "the source does not take the last report; its messages are delivered again"
                    );
                    is_silent = true;
                }
                Some(result) = async { Some(write.as_mut()?.done.as_mut().await) }, if write.is_some() => {
                    write = None;
                    let failed = |error| Written { failure: Some(error), ..Written::default() };
                    let mut written = result.unwrap_or_else(failed);
                    if let Some(error) = written.failure.take() {
                        (is_over, fetch, failure) = (true, None, Some(error));
                    }
                    new += written.new;
                    // What was fetched in the meantime is tried once, also if the source failed after that.
                    again_at = written.again_at.filter(|_| lost.is_none() || held.is_empty());
                    // Messages fetched in the meantime are newer, so they go behind.
                    written.held.append(&mut held);
                    held = written.held;
                    told.taken.append(&mut written.told.taken);
                    told.refused.append(&mut written.told.refused);
                    told.later.append(&mut written.told.later);
                }
                Some(fetched) = async { Some(fetch.as_mut()?.await) }, if fetch.is_some() => {
                    fetch = None;
                    match fetched {
                        Ok(messages) => {
                            is_over = messages.is_empty();
                            judge = Some(Box::pin(bound.judge(messages)));
                        }
                        Err(error) => (is_over, lost, again_at) = (true, Some(broken(error)), None),
                    }
                }
                Some(judged) = async { Some(judge.as_mut()?.await) }, if judge.is_some() => {
                    // Check the held messages again now, together with the new ones: some of these may have room.
                    (judge, again_at) = (None, None);
                    let messages = judged?;
                    let is_refused = |intake: &Intake| matches!(intake.content, Content::Invalid(_));
                    let beyond = messages.iter().filter(|intake| bound.is_beyond(intake.deliveries) && !is_refused(intake));
                    let beyond: Vec<String> = beyond.map(|intake| intake.message.id.clone()).collect();
                    // The refused ones count in the mean size, too.
                    let (count, bytes) = (messages.len(), bytes_of(&held) + told.bytes());
                    for intake in messages {
                        self.check(source, intake, &mut held, &mut told, clock)?;
                    }
                    let is_stopped = *outbox.stop.borrow();
                    if is_stopped {
                        handled = beyond;
                    }
                    if let Some(mean) = (bytes_of(&held) + told.bytes() - bytes).checked_div(count) {
                        size = mean.max(1);
                    }
                }
                () = until(again_at, clock), if !is_ending => again_at = None,
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
        let Intake { message, content, length, sent_at, reply_to, deliveries } = intake;
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
                good.push_back(CheckedMessage::new(message, length, deliveries, job));
            }
            // What was fetched before must still be written and acknowledged.
            Err(error) if error.kind() == ErrorKind::Shutdown => {
                if source.can_postpone() {
                    told.back.push(message, length);
                }
            }
            Err(error) if error.kind() == ErrorKind::Store => return Err(error),
            Err(error) => {
                self.state()?.measured.intake.refused(1);
                told.refused.push((message, error), length);
            }
        }
        Ok(())
    }
}
