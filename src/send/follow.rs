//! What follows an answer that is not simply handed on, or a failure: again, an error, a dead letter.

use std::time::Duration;

use super::{Answered, Job, Past, heard, letter};
use crate::client::Inner;
use crate::clock::{Time, nanos};
use crate::config::RetryPolicy;
use crate::dead_letter::{AttemptRecord, Phase, Reason};
use crate::dispatch::Held;
use crate::engine::throttle::Wait;
use crate::engine::{Whose, Word};
use crate::error::{Delivery, Error, ErrorKind, LastResponse};
use crate::response::Response;
use crate::retry::{self, Class, Outcome, Traits, Verdict, Why};
use crate::signals::{self, Scope};
use crate::transport::{Sent, TransportError};

/// What to do next.
pub(super) enum Step {
    Again,
    End(Result<Response, Error>),
}

impl Job {
    fn past(&mut self) -> &mut Past {
        self.past.get_or_insert_default()
    }

    fn judge(&self, outcome: &Outcome, now: Time, had_credential: bool) -> Verdict {
        let policy = &self.tenant.vendor.retry;
        // Now or not at all: a later moment is not asked for.
        let once = self.immediate.then(|| RetryPolicy { max_retries: 0, ..policy.clone() });
        let policy = once.as_ref().unwrap_or(policy);
        let replayable = self.prepared.body_bytes().is_some_and(|bytes| bytes <= policy.max_replay_bytes);
        let traits =
            Traits { idempotent: self.idempotent, replayable, had_credential, on_ambiguous: self.on_ambiguous };
        let tried = self.past.as_ref().map(|past| past.tried).unwrap_or_default();
        retry::decide(outcome, &traits, &tried, policy, now)
    }

    pub(super) async fn after_answer(&mut self, inner: &Inner, mut answered: Answered) -> Step {
        let (now, wall) = (inner.clock.now(), inner.clock.wall());
        let status = answered.answer.status;
        let signals = self.signals(&mut answered.answer, wall).await;
        answered.held.cost(signals.cost);
        let headers = &answered.answer.headers;
        let class = inner.classifier(&self.tenant).and_then(|classifier| classifier.classify(status, headers));
        let class = class.or(match signals.throttled {
            true => Some(Class::RateLimited),
            // The vendor's dialect says that this one is no refusal for limits: to come again would not help.
            false if signals::is_refusal(status) => Some(Class::Rejected),
            false => None,
        });
        let stated = signals.wait();
        let outcome = Outcome::Answered { status: status.as_u16(), class, retry_after: signals.retry_after.is_some() };
        let verdict = self.judge(&outcome, now, answered.authorization.is_some());
        let took = now.since(answered.began);
        let mut record = AttemptRecord::new(letter::timestamp(inner.clock, took), Phase::Answered, millis(took));
        record.status = Some(status.as_u16());
        record.retry_after_ms = stated.map(millis);
        let past = self.past();
        past.records.push(record);
        past.again = false;
        past.tried.failing_since = None;
        let retries = past.tried.retries;

        let policy = &self.tenant.vendor.retry;
        let backoff = retry::backoff(policy, retries + 1, &mut fastrand::Rng::new());
        let is_refusal = class == Some(Class::RateLimited);
        let told = stated.or(policy.default_wait.filter(|_| is_refusal));
        let told = told.map(|wait| retry::later(wait, &mut fastrand::Rng::new()));
        let is_final = matches!(class, Some(Class::Success | Class::Rejected));
        let reports = self.reports(inner, &signals);
        let (report, besides) = heard::foremost(&reports);
        let wait = told.map_or(Wait::Guess { most: nanos(backoff) }, |told| Wait::Told(nanos(told)));
        let whose = signals.scope.map(|scope| match scope {
            Scope::Endpoint => Whose::Endpoint,
            Scope::Tenant => Whose::Lane,
            Scope::Account => Whose::Account,
            Scope::Vendor => Whose::Vendor,
        });
        let word = match (is_refusal, whose) {
            (true, Some(whose)) => Word::RefusedFor(whose, wait, report),
            (true, None) => Word::Refused(wait, report),
            // A failure with a wait is a wish to be left alone all the same.
            (false, _) if signals.retry_after.is_some() && !is_final && status.is_server_error() => {
                Word::Refused(Wait::Told(nanos(told.unwrap_or(backoff))), report)
            }
            (false, _) if status.is_server_error() && !is_final => Word::Failed,
            (false, _) => self.passed(status, &signals, report),
        };
        if is_refusal {
            self.refused(inner, stated, true);
        }
        let headroom = self.heard(inner, answered.held.hear(now, word, besides));
        if is_refusal {
            self.spread(inner, &signals, now, told);
        }

        match verdict {
            Verdict::Refresh => {
                let past = self.past();
                past.tried.refreshed = true;
                past.exchanges += 1;
                if let Some(stale) = answered.authorization.as_ref().map(|known| &known.secret) {
                    inner.credentials.invalidate(&self.tenant, stale).await;
                    // The next attempt takes the tenant as it is now, beside which the same secret may be kept.
                    if let Ok(now) = inner.tenant(&self.tenant.id, &self.tenant.vendor.name) {
                        inner.credentials.invalidate(&now, stale).await;
                    }
                }
                answered.held.finish();
                Step::Again
            }
            Verdict::Refused | Verdict::Again => {
                // What is kept outside can wait for better times, and does not come back at once.
                let within_budget = verdict == Verdict::Refused || self.spend_budget(inner, now) || self.kept.is_some();
                if !within_budget {
                    return self.give_up(inner, Why::Budget, answered, Delivery::Ambiguous).await;
                }
                // The pause of the lane holds a refused request back. Its own wait comes first where nobody stated one,
                // so that many who were refused together do not come back together.
                let wait = match (verdict, told) {
                    (Verdict::Refused, Some(_)) => Duration::ZERO,
                    (_, Some(told)) => told,
                    (_, None) => backoff,
                };
                let delivery = if is_refusal { Delivery::Rejected } else { Delivery::Ambiguous };
                let earliest = now + told.unwrap_or(wait);
                if self.kept.is_some() {
                    self.count_retry();
                    let error = self.put_off(earliest.since(now), delivery);
                    return Step::End(Err(error.with_response(last_response(answered).await)));
                }
                if !self.may_wait(now, earliest, told) {
                    let error = self.too_late(earliest.since(now), delivery);
                    return Step::End(Err(error.with_response(last_response(answered).await)));
                }
                self.count_retry();
                // Read away, so that its connection can be used again.
                last_response(answered).await;
                tokio::time::sleep(wait).await;
                Step::Again
            }
            Verdict::Ambiguous | Verdict::Park => {
                let why = format!(
                    "the vendor answered {status}, and may have acted all the same; look before you send it again"
                );
                let error = self.tenant.error(ErrorKind::Status, Delivery::Ambiguous, why);
                // Before the body is read: a caller that goes away meanwhile has its letter.
                let error = if verdict == Verdict::Park { self.park(inner, error) } else { error };
                Step::End(Err(error.with_response(last_response(answered).await)))
            }
            // Or a body that cannot be sent again: the answer is all there is.
            Verdict::Done | Verdict::AgainFree | Verdict::GiveUp(Why::Body) => {
                let Answered { answer, held, waited, reason, .. } = answered;
                Step::End(Ok(self.respond(answer, Some(held), waited, reason, headroom)))
            }
            Verdict::GiveUp(why) => {
                let delivery = if is_refusal { Delivery::Rejected } else { Delivery::Ambiguous };
                self.give_up(inner, why, answered, delivery).await
            }
        }
    }

    pub(super) async fn after_failure(
        &mut self,
        inner: &Inner,
        error: TransportError,
        held: Held,
        began: Time,
        had_credential: bool,
    ) -> Step {
        let now = inner.clock.now();
        let word = (error.sent() == Sent::Unprocessed).then(|| self.unprocessed(inner, error.is_closing()));
        let error = if self.tenant.vendor.retry.unprocessed_is_safe { error } else { error.doubted() };
        let outcome = Outcome::Failed { sent: error.sent(), kind: error.kind() };
        let verdict = self.judge(&outcome, now, had_credential);
        match (error.sent(), error.kind()) {
            (Sent::NotSent, _) => held.not_sent(),
            _ if word.is_some() => {
                // The vendor has seen it: the permit stays spent.
                self.heard(inner, held.hear(now, word.unwrap_or(Word::Disowned), &[]));
                held.finish();
            }
            // The request may still be on its way: it counts until the vendor must have had it.
            (_, ErrorKind::Timeout) => drop(held),
            _ => held.finish(),
        }
        let took = now.since(began);
        let phase = match error.sent() {
            Sent::NotSent => Phase::NotSent,
            Sent::Unprocessed => Phase::Unprocessed,
            Sent::MaybeSent => Phase::MaybeSent,
            Sent::Answered => Phase::Answered,
        };
        let mut record = AttemptRecord::new(letter::timestamp(inner.clock, took), phase, millis(took));
        record.error = Some(error.to_string());
        let replays = verdict != Verdict::Done;
        let past = self.past();
        past.records.push(record);
        past.again = false;
        if matches!(error.sent(), Sent::NotSent | Sent::Unprocessed) {
            past.tried.failing_since.get_or_insert(began);
            past.connects += 1;
        } else {
            past.tried.failing_since = None;
        }
        past.exchanges += u32::from(error.sent() != Sent::NotSent);
        let (retries, connects) = (past.tried.retries, past.connects);
        if !replays {
            return Step::End(Err(error.into_error(&self.tenant)));
        }
        let mut random = fastrand::Rng::new();
        let policy = &self.tenant.vendor.retry;
        let (wait, counts) = match verdict {
            Verdict::AgainFree => (retry::reconnect(connects, &mut random), false),
            _ => (retry::backoff(policy, retries + 1, &mut random), true),
        };
        match verdict {
            Verdict::Again | Verdict::AgainFree | Verdict::Refused => {
                if counts && !self.spend_budget(inner, now) && self.kept.is_none() {
                    return self.give_up_on(inner, Why::Budget, error);
                }
                if self.kept.is_some() {
                    self.past().tried.retries += u32::from(counts);
                    return Step::End(Err(self.put_off(wait, error.sent().delivery())));
                }
                // No time is left for another: what failed is what the caller hears.
                if !self.may_wait(now, now + wait, None) {
                    return Step::End(Err(error.into_error(&self.tenant)));
                }
                self.past().tried.retries += u32::from(counts);
                tokio::time::sleep(wait).await;
                Step::Again
            }
            Verdict::GiveUp(why @ (Why::Retries | Why::Age | Why::Budget)) => self.give_up_on(inner, why, error),
            Verdict::Park => {
                let error = error.into_error(&self.tenant);
                Step::End(Err(self.park(inner, error)))
            }
            _ => Step::End(Err(error.into_error(&self.tenant))),
        }
    }

    /// What the lane is to hear of an exchange that the vendor did not process. A refused stream says that the vendor has
    /// too much to do, as a 429 without a wait does. One that was on a connection which the vendor closes does not: many
    /// vendors close a connection after so many requests.
    fn unprocessed(&self, inner: &Inner, closing: bool) -> Word {
        if closing {
            return Word::Disowned;
        }
        self.refused(inner, None, false);
        if let Some(wait) = self.tenant.vendor.retry.default_wait {
            return Word::Refused(Wait::Told(nanos(retry::later(wait, &mut fastrand::Rng::new()))), None);
        }
        let tries = self.past.as_ref().map_or(0, |past| past.connects) + 1;
        let most = retry::backoff(&self.tenant.vendor.retry, tries, &mut fastrand::Rng::new());
        Word::Refused(Wait::Guess { most: nanos(most) }, None)
    }

    /// The error that ends the request, with what is known of all its attempts: the last one may not have left, and the
    /// vendor may have acted on an earlier one all the same.
    #[cold]
    pub(super) fn of_all_attempts(&self, error: Error) -> Error {
        let may_have_acted = |record: &AttemptRecord| match record.phase {
            Phase::NotSent | Phase::Unprocessed => false,
            Phase::MaybeSent => true,
            Phase::Answered => record.status.is_none_or(|status| status >= 500),
        };
        let is_sure = matches!(error.delivery(), Delivery::NotSent | Delivery::Rejected);
        match &self.past {
            Some(past) if is_sure && past.records.iter().any(may_have_acted) => {
                error.with_delivery(Delivery::Ambiguous)
            }
            _ => error,
        }
    }

    fn spend_budget(&self, inner: &Inner, now: Time) -> bool {
        inner.budgets.try_retry(inner.dispatch.hash(&self.tenant.id, &self.tenant.vendor.name), now)
    }

    fn count_retry(&mut self) {
        let past = self.past();
        past.tried.retries += 1;
        past.exchanges += 1;
    }

    /// Whether the request may wait until `earliest`, before which it does not go again: until its deadline, or where
    /// nobody stated one, for as long as anybody is kept waiting for what the vendor `told`.
    fn may_wait(&mut self, now: Time, earliest: Time, told: Option<Duration>) -> bool {
        self.past().again = true;
        if self.patience_ns == 0 {
            return earliest <= self.deadline;
        }
        let is_short = told.is_none_or(|_| earliest.since(now) <= self.tenant.vendor.retry.max_hold);
        if is_short {
            self.deadline = self.deadline.max(earliest.plus_nanos(self.patience_ns));
        }
        is_short
    }

    /// A request that was to go again and cannot, though nobody stated a deadline, becomes a dead letter: whoever sends and
    /// looks no further would lose it otherwise.
    #[cold]
    pub(super) fn unless_letter(&mut self, inner: &Inner, error: Error) -> Error {
        let is_over = matches!(
            error.kind(),
            ErrorKind::RetryLater
                | ErrorKind::Deadline
                | ErrorKind::QueueFull
                | ErrorKind::Connect
                | ErrorKind::Credential
        );
        let was_to_go = self.patience_ns > 0 && self.past.as_ref().is_some_and(|past| past.again);
        if !is_over || !was_to_go {
            return error;
        }
        let letter = self.letter(inner, Reason::Expired);
        let error = error.with_letter(&letter.id);
        self.hand_over(inner, letter);
        error
    }

    fn too_late(&self, wait: Duration, delivery: Delivery) -> Error {
        let why = format_args!(
            "the vendor refused, and the next try is {} ms away, after the request's deadline or too far off to wait \
             for; send it again then",
            wait.as_millis()
        );
        self.tenant.error(ErrorKind::RetryLater, delivery, why).with_retry_after(wait)
    }

    async fn give_up(&mut self, inner: &Inner, why: Why, answered: Answered, delivery: Delivery) -> Step {
        let status = answered.answer.status;
        let error = self.exhausted(inner, why, delivery, &format!("the vendor answered {status}"));
        Step::End(Err(error.with_response(last_response(answered).await)))
    }

    fn give_up_on(&mut self, inner: &Inner, why: Why, failed: TransportError) -> Step {
        let error = self.exhausted(inner, why, failed.sent().delivery(), &failed.to_string());
        Step::End(Err(error.with_source(failed)))
    }

    /// Writes the dead letter of a request of which nobody knows what came of it.
    fn park(&mut self, inner: &Inner, error: Error) -> Error {
        let letter = self.letter(inner, Reason::Ambiguous);
        let error = error.with_letter(&letter.id);
        self.hand_over(inner, letter);
        error
    }

    /// Writes the dead letter and says so.
    fn exhausted(&mut self, inner: &Inner, why: Why, delivery: Delivery, last: &str) -> Error {
        let letter = self.letter(inner, Reason::Exhausted);
        let tries = letter.attempts.len();
        let why = match why {
            Why::Retries => "all retries are used",
            Why::Age => "for too long no connection could be made, or the vendor processed nothing",
            Why::Body => "its body cannot be sent again",
            Why::Budget => "retries make up too much of the load already",
        };
        let why = format_args!("given up after {tries} attempts, because {why}; at last {last}");
        let error = self.tenant.error(ErrorKind::Exhausted, delivery, why).with_letter(&letter.id);
        self.hand_over(inner, letter);
        error
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The most of an answer's body that is kept or read away.
pub(super) const EXCERPT: usize = 16 * 1024;

/// What is kept of an answer that is not handed on. Its body is read, unless it is long or long in coming.
async fn last_response(answered: Answered) -> LastResponse {
    let Answered { answer, held, .. } = answered;
    let mut body = answer.body;
    let mut excerpt = Vec::new();
    let read = async {
        while let Ok(Some(data)) = body.data().await {
            let room = EXCERPT - excerpt.len();
            excerpt.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                break;
            }
        }
    };
    // A refusal's body is short and comes with its headers. Nothing waits for one that does not.
    let _ = tokio::time::timeout(Duration::from_secs(1), read).await;
    held.finish();
    LastResponse::new(answer.status, answer.headers, excerpt.into())
}
