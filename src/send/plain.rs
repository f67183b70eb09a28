//! Sends a request for a caller who waits: repeats attempts until there is a response, an error or a dead letter.

use std::time::Duration;

use tracing::Instrument;

use super::attempt_end::{Again, AttemptEnd, Cause, NotSent};
use super::{AttemptLog, Outgoing};
use crate::clock::Time;
use crate::core::Core;
use crate::dead_letter::Reason;
use crate::engine::Refusal;
use crate::error::{Delivery, Error, ErrorKind};
use crate::retry::GiveUpReason;
use crate::send::response::Response;

/// The future of a send. It runs `outgoing` in place: moved into the future, it would be stored twice.
pub(crate) fn send(
    core: &Core,
    outgoing: Result<Outgoing, Error>,
) -> impl Future<Output = Result<Response, Error>> + Send + use<'_> {
    let mut outgoing = outgoing;
    async move {
        match outgoing {
            Ok(ref mut outgoing) => {
                outgoing.open_span();
                let under_way = core.sends.begin();
                let result = match (&under_way, outgoing.span.as_deref().cloned()) {
                    (None, _) => Err(outgoing.not_sent(core, Refusal::Shutdown.into())),
                    (Some(_), None) => outgoing.run(core).await,
                    (Some(_), Some(span)) => Box::pin(outgoing.run(core).instrument(span)).await,
                };
                let result = result.map_err(|error| outgoing.of_all_attempts(error));
                if let Err(error) = &result {
                    outgoing.log_failure(core, error);
                }
                let end = result.as_ref().map(Response::status).map_err(|error| (error.kind(), error.delivery()));
                outgoing.ended(core, end);
                let (tenant, vendor) = (&outgoing.route.id, &outgoing.route.vendor.name);
                result.map_err(|error| {
                    error.named(tenant, Some(vendor)).after_attempts(outgoing.tries).of_request(outgoing.id)
                })
            }
            Err(error) => Err(error),
        }
    }
}

impl Outgoing {
    async fn run(&mut self, core: &Core) -> Result<Response, Error> {
        loop {
            match self.attempt(core).await {
                Ok(AttemptEnd::Done(response)) => return Ok(response),
                Ok(AttemptEnd::AtOnce) => self.clear_begun_if_unacted(),
                Ok(AttemptEnd::Again(again)) => {
                    self.clear_begun_if_unacted();
                    Box::pin(self.wait_for_next(core, *again)).await?;
                }
                Ok(AttemptEnd::GaveUp(why, cause)) => return Err(Box::pin(self.give_up(core, why, *cause)).await),
                Ok(AttemptEnd::Ambiguous { park, cause }) => {
                    return Err(Box::pin(self.ambiguous(core, park, *cause)).await);
                }
                Ok(AttemptEnd::Failed(failure)) => return Err(failure.into_error(&self.route)),
                Err(why) => return Err(self.not_sent(core, why)),
            }
        }
    }

    /// Sleeps until the next attempt, if the retry budget and the deadline allow one.
    async fn wait_for_next(&mut self, core: &Core, again: Again) -> Result<(), Error> {
        let now = core.clock.now();
        if again.takes_budget && !self.spend_budget(core, now) {
            return Err(self.give_up(core, GiveUpReason::Budget, again.cause).await);
        }
        if !self.may_wait(now, again.earliest, again.is_stated) {
            return Err(self.too_late(core, again.earliest.since(now), again.cause).await);
        }
        let failure = match again.cause {
            Cause::Failure(failure) => Some(failure),
            answer => {
                answer.drain().await;
                None
            }
        };
        if let Err(shutdown) = core.sends.wait(tokio::time::sleep(again.wait)).await {
            return Err(self.not_sent(core, shutdown.into()));
        }
        // A busy machine wakes the request late. The failure says more than that the time is over.
        match failure.filter(|_| self.patience_ns == 0 && core.clock.now() >= self.deadline) {
            Some(failure) => Err(self.or_expired(core, failure.into_error(&self.route))),
            None => Ok(()),
        }
    }

    /// Whether the request may wait for its next attempt at `earliest`: until its deadline, or, if the caller stated
    /// none, for as long as the vendor's entry allows a stated wait to be.
    fn may_wait(&mut self, now: Time, earliest: Time, is_stated: bool) -> bool {
        self.past().again = true;
        if self.patience_ns == 0 {
            return earliest <= self.deadline;
        }
        let is_short = !is_stated || earliest.since(now) <= self.route.vendor.retry.max_hold;
        if is_short {
            // What the last exchange left of a long `attempt_timeout` does not prolong the wait for the next permit.
            self.deadline = earliest.plus_nanos(self.patience_ns);
        }
        is_short
    }

    /// Makes the error of a request whose next attempt would be after the deadline. After a failed exchange, that
    /// failure is the error.
    async fn too_late(&mut self, core: &Core, wait: Duration, cause: Cause) -> Error {
        let error = match cause {
            Cause::Failure(failure) => return self.or_expired(core, failure.into_error(&self.route)),
            Cause::Answer { .. } => {
                let bound = match self.patience_ns {
                    0 => "after the request's deadline".to_owned(),
                    _ => {
                        let max_hold = rounded_up(self.route.vendor.retry.max_hold);
                        format!("longer than the {max_hold} for which the vendor's `max_hold` lets a request wait")
                    }
                };
                let why = format!(
                    "{}, and the next attempt is due in {}, which is {bound}; send it again after that time",
                    cause.text(),
                    rounded_up(wait)
                );
                self.route.error(ErrorKind::RetryLater, cause.delivery(), why).with_retry_after(wait)
            }
        };
        let error = self.or_expired(core, error);
        cause.add_to(error).await
    }

    fn not_sent(&mut self, core: &Core, why: NotSent) -> Error {
        let (may_be_sent_later, is_ambiguous) = (why.may_be_sent_later(), matches!(why, NotSent::KeyForgotten));
        let is_shutdown = matches!(why, NotSent::Refused(Refusal::Shutdown));
        let error = self.not_sent_error(core, why);
        match () {
            () if is_shutdown && self.was_to_go_again() => self.dead_letter(core, Reason::Expired, error),
            () if may_be_sent_later => self.or_expired(core, error),
            () if is_ambiguous && self.is_parked() => self.dead_letter(core, Reason::Ambiguous, error),
            () => error,
        }
    }

    /// Writes a dead letter for a request that ran out of time although its caller stated no deadline, if its next
    /// attempt was due: a caller that only logs the error would lose the request otherwise.
    fn or_expired(&mut self, core: &Core, error: Error) -> Error {
        let is_expired = self.patience_ns > 0 && self.was_to_go_again();
        if is_expired { self.dead_letter(core, Reason::Expired, error) } else { error }
    }

    fn was_to_go_again(&self) -> bool {
        self.past.as_ref().is_some_and(|past| past.again)
    }

    /// Writes the dead letter before it reads the response body, so that the letter exists even if the caller goes
    /// away.
    async fn give_up(&mut self, core: &Core, why: GiveUpReason, cause: Cause) -> Error {
        let tries = self.past.as_ref().map_or(0, |past| past.records.len());
        let why = match why {
            GiveUpReason::Retries => "all retries are used",
            GiveUpReason::Age => "for `max_age` no connection could be made, or the vendor processed nothing",
            GiveUpReason::Body => "its body cannot be sent again",
            GiveUpReason::Budget => "retries are too large a share of the load already",
        };
        let why = format!("given up after {tries} attempts, because {why}; the last: {}", cause.text());
        let error = self.route.error(ErrorKind::Exhausted, cause.delivery(), why);
        let error = self.dead_letter(core, Reason::Exhausted, error);
        cause.add_to(error).await
    }

    async fn ambiguous(&mut self, core: &Core, park: bool, cause: Cause) -> Error {
        let (error, answer) = match cause {
            Cause::Failure(failure) => (failure.into_error(&self.route), None),
            Cause::Answer { .. } => {
                let when = match cause.delivery() {
                    Delivery::Ambiguous => "all the same",
                    _ => "on an earlier attempt, whose key it may forget before the next one",
                };
                let why = format!("{}, and may have acted {when}; look before you send it again", cause.text());
                (self.route.error(ErrorKind::Status, Delivery::Ambiguous, why), Some(cause))
            }
        };
        let error = if park { self.dead_letter(core, Reason::Ambiguous, error) } else { error };
        match answer {
            Some(answer) => answer.add_to(error).await,
            None => error,
        }
    }

    /// Hands a dead letter of the request to the sink, and names it in the error.
    fn dead_letter(&mut self, core: &Core, reason: Reason, error: Error) -> Error {
        let letter = self.letter(core, reason);
        self.dead_lettered(core, &letter);
        let id = letter.id.clone();
        // A letter that is named will be in the sink, so that the caller need not send the request again.
        if core.telemetry.dead_letters.offer(letter) { error.with_letter(&id) } else { error }
    }

    /// Whether the vendor may have acted on one of the attempts so far.
    pub(super) fn may_have_acted(&self) -> bool {
        self.past.as_ref().is_some_and(|past| past.may_have_acted.is_some())
    }

    /// A caller that goes away while the request waits for its next attempt may send it again itself, if the vendor
    /// refused all attempts so far.
    fn clear_begun_if_unacted(&self) {
        if !self.may_have_acted() {
            self.prepared.clear_begun();
        }
    }

    /// Makes the error's delivery cover all attempts: the last one may not have been sent although the vendor acted on
    /// an earlier one.
    pub(super) fn of_all_attempts(&self, error: Error) -> Error {
        let is_sure = matches!(error.delivery(), Delivery::NotSent | Delivery::Rejected);
        if is_sure && self.may_have_acted() { error.with_delivery(Delivery::Ambiguous) } else { error }
    }

    pub(super) fn past(&mut self) -> &mut AttemptLog {
        self.past.get_or_insert_default()
    }

    /// Whether the retry budget of the lane allows another retry. Counts it if so.
    pub(super) fn spend_budget(&self, core: &Core, now: Time) -> bool {
        core.egress.budgets.try_retry(core.registry.dispatch.hash(&self.route.id, &self.route.vendor.name), now)
    }
}

/// A wait for a person to read, in whole seconds, minutes or hours: never shorter than the wait itself.
fn rounded_up(wait: Duration) -> String {
    let seconds = wait.as_millis().div_ceil(1_000);
    let (number, unit) = match seconds {
        0..=120 => (seconds, "second"),
        121..=7_200 => (seconds.div_ceil(60), "minute"),
        _ => (seconds.div_ceil(3_600), "hour"),
    };
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}
