//! Decides what one exchange means for its request, and so how the attempt ends. `feedback.rs` decides what it means for
//! the limits.

use std::time::Duration;

use super::attempt_end::{Again, Answered, AttemptEnd, Cause};
use super::feedback::Reading;
use super::{Outgoing, letter};
use crate::clock::{Moment, millis, nanos};
use crate::config::{OnAmbiguous, RetryPolicy};
use crate::core::Core;
use crate::dead_letter::{AttemptRecord, Phase, Reason};
use crate::dispatch::PermitGuard;
use crate::engine::Feedback;
use crate::engine::throttle::Wait;
use crate::error::ErrorKind;
use crate::retry::{self, GiveUpReason, Outcome, RetryInput, Since, Verdict};
use crate::transport::{Sent, TransportError};

impl Outgoing {
    /// Whether an execution that begins at `at` has no further effect, if the vendor has acted before: by the request's
    /// method, or because the vendor still knows its key.
    pub(super) fn is_idempotent(&self, at: Moment) -> bool {
        self.is_idempotent_since(self.past.as_ref().and_then(|past| past.may_have_acted), at)
    }

    /// The same, if the vendor may first have acted at `since`.
    fn is_idempotent_since(&self, since: Option<Since>, at: Moment) -> bool {
        let age = || since.map_or(Duration::ZERO, |since| since.age(at));
        let knows_key = || retry::knows_key(self.route.vendor.idempotency.keeps, age(), self.attempt_timeout);
        let takes_key = || self.prepared.takes_key(&self.route);
        retry::idempotent(self.prepared.method(), takes_key, self.has_key && knows_key())
    }

    /// Whether another exchange may begin at `at`: certainly no earlier one had an effect, or a repetition does no harm.
    pub(super) fn may_begin(&self, at: Moment) -> bool {
        let resend = self.on_ambiguous.map(|choice| choice == OnAmbiguous::Resend);
        !self.may_have_acted() || retry::may_resend(self.is_idempotent(at), resend, &self.route.vendor.retry)
    }

    /// Since when the vendor may have acted, also on an attempt from before a person sent the job's letter again.
    pub(super) fn in_doubt(&self) -> Option<Since> {
        self.past.as_ref().and_then(|past| past.overruled.or(past.may_have_acted))
    }

    /// Ends the doubts that a refusal of what the request says answers: those about attempts with a key that the vendor
    /// still knows. Without a key it may refuse a repetition of what it has acted on. A letter that held such a doubt would
    /// not be sent where the vendor has forgotten the key.
    pub(super) fn end_answered_doubts(&mut self, at: Moment) {
        let Some(past) = &self.past else { return };
        let (latest, earlier) = (past.may_have_acted, past.overruled);
        let is_open = |since: &Since| !self.is_idempotent_since(Some(*since), at);
        let (latest, earlier) = (latest.filter(is_open), earlier.filter(is_open));
        let past = self.past();
        (past.may_have_acted, past.overruled) = (latest, earlier);
    }

    /// The reason of the letter of a job that is given up for good: `rejected`, unless the vendor may have acted on an
    /// earlier attempt and an operator who sends the letter again could make it act twice. The request's key does not
    /// prevent that, because the vendor may have forgotten it by then.
    pub(super) fn unless_in_doubt(&self) -> Reason {
        let resend = self.on_ambiguous.map(|choice| choice == OnAmbiguous::Resend);
        let is_repeatable = retry::idempotent(self.prepared.method(), || self.prepared.takes_key(&self.route), false);
        let is_safe = retry::may_resend(is_repeatable, resend, &self.route.vendor.retry);
        if self.in_doubt().is_some() && !is_safe { Reason::Ambiguous } else { Reason::Rejected }
    }

    /// Whether the request becomes a dead letter if it is not sent again because the vendor may have acted.
    pub(super) fn is_parked(&self) -> bool {
        self.on_ambiguous.unwrap_or(self.route.vendor.retry.on_ambiguous) == OnAmbiguous::Park
    }

    /// The end of an attempt after which the policy allows another one. If the vendor may have acted, and may have
    /// forgotten the request's key by then, there is none.
    fn again(&self, now: Moment, again: Again) -> AttemptEnd {
        match self.may_begin(now.after(again.earliest.since(now.at))) {
            true => AttemptEnd::Again(Box::new(again)),
            false => AttemptEnd::Ambiguous { park: self.is_parked(), cause: Box::new(again.cause) },
        }
    }

    /// Remembers that an exchange that began at `began` left open whether the vendor acted.
    fn left_open(&mut self, began: Moment) {
        self.past().may_have_acted.get_or_insert(Since::new(Duration::ZERO, began));
    }

    fn judge(&self, outcome: &Outcome, now: Moment, had_credential: bool) -> Verdict {
        let policy = &self.route.vendor.retry;
        // An immediate request is never retried. `classify_answer` leaves out the attempt after a refresh, which
        // `max_retries` does not cover.
        let once = self.immediate.then(|| RetryPolicy { max_retries: 0, ..policy.clone() });
        let policy = once.as_ref().unwrap_or(policy);
        let is_stored = self.stored.is_some();
        // The store holds the body of a stored job between its attempts, whatever the body's size.
        let fits = || self.prepared.body_bytes().is_some_and(|bytes| bytes <= policy.max_replay_bytes);
        let replayable = is_stored || fits();
        let idempotent = self.is_idempotent(now);
        let traits = RetryInput { idempotent, replayable, had_credential, on_ambiguous: self.on_ambiguous };
        let tried = self.past.as_ref().map(|past| past.tried).unwrap_or_default();
        match (retry::decide(outcome, &traits, &tried, policy, now.at), *outcome) {
            // Without retries a caller reads in the response that the vendor did not act. A stored job has no such
            // caller, so the job is given up: the status alone may look like a success.
            (Verdict::Done, Outcome::Answered { status, class, .. }) if is_stored && retry::may_pass(status, class) => {
                Verdict::GiveUp(GiveUpReason::Retries)
            }
            (verdict, _) => verdict,
        }
    }

    /// Classifies a response that is not simply returned to the caller: reports it to the limits, and decides what
    /// follows.
    pub(super) async fn classify_answer(&mut self, core: &Core, mut answered: Answered) -> AttemptEnd {
        let ended = core.clock.moment();
        let (now, wall) = (ended.at, ended.wall);
        let status = answered.answer.status;
        let signals = self.signals(core, &mut answered.answer, &answered.held, wall).await;
        self.settle(core, &answered.held, &signals);
        let headers = &answered.answer.headers;
        let class = self.reader(core).class(status, headers, &signals);
        let stated = signals.wait();
        let outcome = Outcome::Answered { status: status.as_u16(), class, retry_after: signals.retry_after.is_some() };
        // A program that gets the response finds in it which parts of a batch were refused. If it does not get the
        // response, a person has to decide, unless the program's classifier has decided.
        let is_unread = self.stored.as_ref().is_some_and(|stored| !stored.has_reader);
        let is_for_a_person = signals.refused_in_part && class.is_none() && is_unread;
        let is_ambiguous = is_for_a_person || retry::is_ambiguous(&outcome, &self.route.vendor.retry);
        if is_ambiguous {
            self.left_open(answered.began);
        }
        let verdict = match is_for_a_person {
            true => Verdict::Park,
            false => self.judge(&outcome, ended, answered.authorization.is_some()),
        };
        let took = now.since(answered.began.at);
        let mut record = AttemptRecord::new(letter::timestamp(core.clock, took), Phase::Answered, millis(took));
        record.status = Some(status.as_u16());
        record.retry_after_ms = stated.map(millis);
        let past = self.past();
        past.records.push(record);
        past.again = false;
        past.tried.failing_since = None;
        let retries = past.tried.retries;

        let policy = &self.route.vendor.retry;
        let backoff = retry::backoff(policy, retries + 1, &mut fastrand::Rng::new());
        let Reading { feedback, besides, is_refusal, told } = self.reader(core).read(status, &signals, class, backoff);
        if is_refusal {
            self.refused(core, stated, Some(status.as_u16()));
        }
        let headroom = self.reader(core).effect(now, answered.held.on_response(now, feedback, &besides));
        if is_refusal {
            self.reader(core).spread(&signals, now, told);
        }

        match verdict {
            Verdict::Refresh => {
                let mut is_replaced = true;
                if let Some(stale) = answered.authorization.as_ref().map(|known| &known.secrets) {
                    is_replaced = core.egress.credentials.invalidate_all(&self.route, stale).await;
                    // The next attempt uses the current route, which may cache the same secret.
                    if let Ok(now) = core.registry.route(&self.route.id, &self.route.vendor.name) {
                        is_replaced = core.egress.credentials.invalidate_all(&now, stale).await;
                    }
                }
                // An immediate request is sent once, so its caller gets the 401. The next request reads a fresh secret.
                if self.immediate || !is_replaced {
                    let Answered { answer, held, waited, reason, .. } = answered;
                    return AttemptEnd::Done(self.respond(core, answer, Some(held), waited, reason, headroom));
                }
                let past = self.past();
                past.tried.refreshed = true;
                past.exchanges += 1;
                answered.held.finish();
                // What the exchange left of a long `attempt_timeout` does not prolong the wait for the next permit.
                if self.patience_ns > 0 {
                    self.deadline = now.plus_nanos(self.patience_ns);
                }
                AttemptEnd::AtOnce
            }
            Verdict::Refused | Verdict::Again => {
                // The pause of the lane already holds a refused request back for a stated wait. Without a stated wait,
                // each request waits for a random time of its own, so that requests that were refused together do not
                // return together.
                let wait = match (verdict, told) {
                    (Verdict::Refused, Some(_)) => Duration::ZERO,
                    (_, Some(told)) => told,
                    (_, None) => backoff,
                };
                let past = self.past();
                past.tried.retries += 1;
                past.exchanges += 1;
                let again = Again {
                    wait,
                    earliest: now + told.unwrap_or(wait),
                    is_stated: told.is_some(),
                    takes_budget: verdict == Verdict::Again,
                    cause: Cause::Answer { answered: Box::new(answered), is_ambiguous },
                };
                self.again(ended, again)
            }
            Verdict::Ambiguous | Verdict::Park => AttemptEnd::Ambiguous {
                park: verdict == Verdict::Park,
                cause: Box::new(Cause::Answer { answered: Box::new(answered), is_ambiguous }),
            },
            // Without a body to send again, the caller gets the response.
            Verdict::Done | Verdict::RetryUncounted | Verdict::GiveUp(GiveUpReason::Body) => {
                let Answered { answer, held, waited, reason, .. } = answered;
                AttemptEnd::Done(self.respond(core, answer, Some(held), waited, reason, headroom))
            }
            Verdict::GiveUp(why) => {
                let cause = Cause::Answer { answered: Box::new(answered), is_ambiguous };
                AttemptEnd::GaveUp(why, Box::new(cause))
            }
        }
    }

    /// Decides what follows an exchange that got no response.
    pub(super) fn classify_failure(
        &mut self,
        core: &Core,
        error: TransportError,
        held: PermitGuard,
        began: Moment,
        had_credential: bool,
    ) -> AttemptEnd {
        let ended = core.clock.moment();
        let now = ended.at;
        let word = (error.sent() == Sent::Unprocessed).then(|| self.unprocessed(core, error.is_closing()));
        let error = if self.route.vendor.retry.unprocessed_is_safe { error } else { error.doubted() };
        let outcome = Outcome::Failed { sent: error.sent(), kind: error.kind() };
        if retry::is_ambiguous(&outcome, &self.route.vendor.retry) {
            self.left_open(began);
        }
        let verdict = self.judge(&outcome, ended, had_credential);
        match (error.sent(), error.kind()) {
            (Sent::NotSent, _) => {
                held.not_sent();
                self.remember(core, false);
            }
            _ if word.is_some() => {
                // The vendor has seen the request, so the permit stays spent.
                self.reader(core).effect(now, held.on_response(now, word.unwrap_or(Feedback::Disowned), &[]));
                held.finish();
            }
            // The request may still be in transit, so it counts until `max_transit` has passed.
            (_, ErrorKind::Timeout) => drop(held),
            // This side has broken off the exchange, and the vendor may be busy with it until it notices.
            (Sent::MaybeSent, ErrorKind::InvalidRequest | ErrorKind::ResponseTooLarge) => drop(held),
            _ => held.finish(),
        }
        let took = now.since(began.at);
        let phase = match error.sent() {
            Sent::NotSent => Phase::NotSent,
            Sent::Unprocessed => Phase::Unprocessed,
            Sent::MaybeSent => Phase::MaybeSent,
            Sent::Answered => Phase::Answered,
        };
        let mut record = AttemptRecord::new(letter::timestamp(core.clock, took), phase, millis(took));
        record.error = Some(error.to_string());
        let past = self.past();
        past.records.push(record);
        past.again = false;
        if matches!(error.sent(), Sent::NotSent | Sent::Unprocessed) {
            past.tried.failing_since.get_or_insert(began.at);
            past.connects += 1;
        } else {
            past.tried.failing_since = None;
        }
        past.exchanges += u32::from(error.sent() != Sent::NotSent);
        let (retries, connects) = (past.tried.retries, past.connects);
        let mut random = fastrand::Rng::new();
        let (wait, counts) = match verdict {
            Verdict::RetryUncounted => (retry::reconnect(connects, &mut random), false),
            _ => (retry::backoff(&self.route.vendor.retry, retries + 1, &mut random), true),
        };
        match verdict {
            Verdict::Again | Verdict::RetryUncounted | Verdict::Refused => {
                self.past().tried.retries += u32::from(counts);
                let again = Again {
                    wait,
                    earliest: now + wait,
                    is_stated: false,
                    takes_budget: counts,
                    cause: Cause::Failure(error),
                };
                self.again(ended, again)
            }
            Verdict::GiveUp(why @ (GiveUpReason::Retries | GiveUpReason::Age | GiveUpReason::Budget)) => {
                AttemptEnd::GaveUp(why, Box::new(Cause::Failure(error)))
            }
            Verdict::Ambiguous | Verdict::Park => {
                AttemptEnd::Ambiguous { park: verdict == Verdict::Park, cause: Box::new(Cause::Failure(error)) }
            }
            Verdict::Done | Verdict::Refresh | Verdict::GiveUp(GiveUpReason::Body) => {
                AttemptEnd::Failed(Box::new(error))
            }
        }
    }

    /// The feedback for an exchange that the vendor did not process. A refused stream means overload, like a 429
    /// without a wait. A stream on a connection that the vendor closes does not: many vendors close a connection after
    /// a number of requests.
    fn unprocessed(&self, core: &Core, closing: bool) -> Feedback {
        if closing {
            return Feedback::Disowned;
        }
        self.refused(core, None, None);
        if let Some(wait) = self.route.vendor.retry.default_wait {
            return Feedback::Refused(Wait::Stated(nanos(retry::later(wait, &mut fastrand::Rng::new()))), None);
        }
        let tries = self.past.as_ref().map_or(0, |past| past.connects) + 1;
        let most = retry::backoff(&self.route.vendor.retry, tries, &mut fastrand::Rng::new());
        Feedback::Refused(Wait::Guess { most: nanos(most) }, None)
    }
}
