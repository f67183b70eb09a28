//! The send of a job that is kept in a store: nothing leaves before the store knows of it, it does not sleep between
//! attempts but goes back, and what it ends in is for the store to write down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::Instrument;

use super::end::EXCERPT;
use super::end::{AttemptEnd, Cause, NotSent};
use super::events::End;
use super::history::History;
use super::ledger::{Ledger, StoredJob};
use super::{Caller, Job, letter};
use crate::Priority;
use crate::config::{AtRest, Keep, OnAmbiguous};
use crate::core::Core;
use crate::dead_letter::{AttemptRecord, DeadLetter, Phase, Reason};
use crate::engine::Refusal;
use crate::error::{Delivery, Error, ErrorKind};
use crate::request::Request;
use crate::request::response::Response;
use crate::retry::Class;
use crate::transport::Sent;

/// How a claim of a job ends, for the store.
pub(crate) enum Ending {
    /// The vendor took it.
    Delivered(Box<Response>),
    /// Given up.
    Dead(Box<DeadLetter>),
    /// Again after a while.
    Later { wait: Duration, history: History },
    /// The job was not tried and can go at once, from any process with room for it.
    Back,
    /// It is another process's by now.
    Gone,
}

/// What one claim of a job is sent with.
pub(crate) struct Sending {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) priority: Priority,
    pub(crate) request: Request,
    pub(crate) history: History,
    pub(crate) ledger: Arc<dyn Ledger>,
    /// Set when its exchange is being written down.
    pub(crate) begun: Arc<AtomicBool>,
}

/// How long a job waits in memory for its permit, before it waits in the store.
const HOLD: Duration = Duration::from_secs(60);
/// The wait of a job that the store or the limits could not take now.
const SOON: Duration = Duration::from_secs(1);
/// The wait of a job of a removed tenant.
const REMOVED: Duration = Duration::from_secs(10);
/// The wait of a job that does not fit the configuration.
const UNKNOWN: Duration = Duration::from_secs(30);

/// What becomes of a job that was not sent.
enum Next {
    Nothing,
    Back,
    Later(Duration),
    /// After the wait that the limits state.
    AsStated,
    /// As for a connection that fails.
    WhenMended,
    Rejected,
}

/// Sends a job once, as `send` would.
pub(crate) async fn send_stored(core: &Core, send: Sending, expires: Option<Duration>) -> Ending {
    let Sending { id, tenant, priority, mut request, history, ledger, begun } = send;
    let vendor = request.vendor().map(str::to_owned).unwrap_or_default();
    let attempt = request.parts.attempt_timeout.or_else(|| {
        let known = core.registry.route(&tenant, &vendor).ok()?;
        Some(known.vendor.attempt_timeout)
    });
    let most = HOLD.saturating_add(attempt.unwrap_or(HOLD));
    request.parts.deadline = Some(expires.map_or(most, |left| left.min(most)));
    request.parts.max_wait = Some(HOLD);
    let mut job = match Job::new(core, Caller::Tenant(&tenant), priority, request, false) {
        Ok(job) => job,
        Err(error) => return never_began(core, error, history),
    };
    // No caller waits who could decide, so a request that is not sent again is kept as a dead letter.
    let policy = job.on_ambiguous.unwrap_or(job.route.vendor.retry.on_ambiguous);
    job.on_ambiguous = Some(if policy == OnAmbiguous::Resend { policy } else { OnAmbiguous::Park });
    job.past = history.into_past(core);
    job.stored = Some(Box::new(StoredJob { id, ledger, begun }));
    job.open_span();
    let end = match job.span.as_deref().cloned() {
        None => Box::pin(job.attempt_once(core)).await,
        Some(span) => Box::pin(job.attempt_once(core).instrument(span)).await,
    };
    let (ending, told) = job.ending(core, end).await;
    job.ended(core, told);
    ending
}

/// The job does not fit the configuration, which may be mended: it is tried again later.
fn never_began(core: &Core, error: Error, mut history: History) -> Ending {
    let now = letter::timestamp(core.clock, Duration::ZERO);
    history.failing_since.get_or_insert(now);
    let mut record = AttemptRecord::new(now, Phase::NotSent, 0);
    record.error = Some(error.to_string());
    // Once, and not at each look.
    if history.attempts.last().and_then(|last| last.error.as_ref()) != record.error.as_ref() {
        history.note(record);
    }
    Ending::Later { wait: UNKNOWN, history }
}

impl Job {
    /// Attempts the job until an attempt ends in something that the store has to know.
    async fn attempt_once(&mut self, core: &Core) -> Result<AttemptEnd, NotSent> {
        loop {
            match self.attempt(core).await {
                Ok(AttemptEnd::AtOnce) => {}
                end => return end,
            }
        }
    }

    /// The store hears of an exchange before the vendor can.
    pub(super) async fn write_start(&mut self, again: bool) -> Result<(), NotSent> {
        let Some(stored) = &mut self.stored else { return Ok(()) };
        stored.begun.store(true, Ordering::Release);
        let endpoint = self.route.vendor.endpoint_name(self.endpoint.place()).unwrap_or_default();
        match stored.ledger.start(endpoint, self.cost, again).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(NotSent::Taken),
            Err(error) => Err(NotSent::Store(error)),
        }
    }

    fn has_begun(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.begun.load(Ordering::Acquire))
    }

    /// What becomes of the job in the store, and what metrics, spans and events are told.
    async fn ending(&mut self, core: &Core, end: Result<AttemptEnd, NotSent>) -> (Ending, End) {
        let end = match end {
            Ok(end) => end,
            Err(why) => return self.ending_unsent(core, why),
        };
        match end {
            AttemptEnd::Done(response) => {
                let told = Ok(response.status());
                (self.answered(core, response).await, told)
            }
            AttemptEnd::AtOnce => (Ending::Back, Err((ErrorKind::RetryLater, Delivery::NotSent))),
            AttemptEnd::Again(again) => {
                if again.takes_budget {
                    // A stored job can wait for better times, so the budget never ends it. Its retries are load all the
                    // same, and leave less for those of callers.
                    self.spend_budget(core, core.clock.now());
                }
                let told = Err((ErrorKind::RetryLater, again.cause.delivery()));
                again.cause.drain().await;
                (self.later(core, again.earliest.since(core.clock.now())), told)
            }
            AttemptEnd::GaveUp(_, cause) => {
                let told = Err((ErrorKind::Exhausted, cause.delivery()));
                self.note_answer(*cause).await;
                (self.bury(core, Reason::Exhausted), told)
            }
            AttemptEnd::Ambiguous { cause, .. } => {
                let told = Err((cause.kind(), cause.delivery()));
                self.note_answer(*cause).await;
                (self.bury(core, Reason::Ambiguous), told)
            }
            AttemptEnd::Failed(failure) => {
                let (sent, kind) = (failure.sent(), failure.kind());
                let ending = match (kind, sent) {
                    (ErrorKind::InvalidRequest, _) => self.rejected(core, failure.to_string()),
                    // Protocol: an HTTP/2 stream that the vendor did not process.
                    (_, Sent::NotSent) | (ErrorKind::Protocol, Sent::Unprocessed) => {
                        self.not_possible_now(core, failure.to_string(), None)
                    }
                    (_, Sent::Unprocessed) => self.bury(core, Reason::Rejected),
                    (_, Sent::MaybeSent) if self.idempotent => self.bury(core, Reason::Exhausted),
                    (_, Sent::MaybeSent | Sent::Answered) => self.bury(core, Reason::Ambiguous),
                };
                (ending, Err((kind, sent.delivery())))
            }
        }
    }

    fn ending_unsent(&mut self, core: &Core, why: NotSent) -> (Ending, End) {
        let next = match &why {
            NotSent::Taken => Next::Nothing,
            // What the store knows to have begun has not left all the same: it is no exchange of unknown outcome.
            NotSent::Stopped | NotSent::Refused(Refusal::Shutdown) if self.has_begun() => Next::Later(Duration::ZERO),
            NotSent::Stopped | NotSent::Refused(Refusal::Shutdown) => Next::Back,
            NotSent::Store(_) => Next::Later(SOON),
            NotSent::Refused(Refusal::Retired | Refusal::NoLane) => Next::Later(REMOVED),
            NotSent::Refused(Refusal::TooExpensive { .. } | Refusal::UnknownEndpoint) | NotSent::Invalid(_) => {
                Next::Rejected
            }
            NotSent::Refused(_) => Next::AsStated,
            NotSent::HostShut { .. } | NotSent::Credential(_) => Next::WhenMended,
        };
        let error = self.not_sent_error(core, why);
        let (told, wait) = (Err((error.kind(), error.delivery())), error.retry_after());
        let ending = match next {
            Next::Nothing => Ending::Gone,
            Next::Back => Ending::Back,
            Next::Later(wait) => self.later(core, wait),
            Next::AsStated => self.later(core, wait.unwrap_or(SOON)),
            Next::WhenMended => self.not_possible_now(core, error.to_string(), wait),
            Next::Rejected => self.rejected(core, error.to_string()),
        };
        (ending, told)
    }

    /// The dead letter of the job. The store takes it together with the job's end.
    fn bury(&mut self, core: &Core, reason: Reason) -> Ending {
        let letter = self.letter(core, reason);
        self.dead_lettered(core, &letter);
        Ending::Dead(Box::new(letter))
    }

    fn rejected(&mut self, core: &Core, why: String) -> Ending {
        self.note(core, Phase::NotSent, None, Some(why));
        self.bury(core, Reason::Rejected)
    }

    fn note(&mut self, core: &Core, phase: Phase, status: Option<u16>, error: Option<String>) {
        let mut record = AttemptRecord::new(letter::timestamp(core.clock, Duration::ZERO), phase, 0);
        (record.status, record.error) = (status, error);
        self.past().records.push(record);
    }

    /// The letter keeps why the vendor refused.
    async fn note_answer(&mut self, cause: Cause) {
        let Some(answer) = cause.drain().await else { return };
        let words = self.words(answer.status().as_u16(), answer.body());
        if let Some(last) = self.past.as_mut().and_then(|past| past.records.last_mut()) {
            last.answer = words;
        }
    }

    /// A credential, a certificate or a host that fails may be mended: the job is tried again for `max_age`, as a
    /// connection is.
    fn not_possible_now(&mut self, core: &Core, why: String, wait: Option<Duration>) -> Ending {
        let (now, max_age) = (core.clock.now(), self.route.vendor.retry.max_age);
        let past = self.past();
        let since = *past.tried.failing_since.get_or_insert(now);
        past.connects += 1;
        let backoff = crate::retry::reconnect(past.connects, &mut fastrand::Rng::new());
        if past.records.last().is_none_or(|last| last.error.is_none()) {
            self.note(core, Phase::NotSent, None, Some(why));
        }
        if now.since(since) >= max_age {
            return self.bury(core, Reason::Exhausted);
        }
        let wait = wait.unwrap_or(backoff).max(SOON);
        self.later(core, wait)
    }

    fn later(&mut self, core: &Core, wait: Duration) -> Ending {
        let mut history = History::of(self.past.take(), core);
        history.due = history.failing_since.and(letter::timestamp(core.clock, Duration::ZERO).checked_add(wait).ok());
        Ending::Later { wait, history }
    }

    /// An answer that was not retried: taken, or refused for good.
    async fn answered(&mut self, core: &Core, response: Response) -> Ending {
        let status = response.status();
        let class = core.egress.classifier(&self.route);
        let class = class.and_then(|classifier| classifier.classify(status, response.headers()));
        if class == Some(Class::Success) || (class.is_none() && status.is_success()) {
            return Ending::Delivered(Box::new(response));
        }
        let noted = self
            .past
            .as_ref()
            .map_or(0, |past| past.records.iter().filter(|record| record.phase != Phase::NotSent).count());
        if noted < response.attempts() as usize {
            self.note(core, Phase::Answered, Some(status.as_u16()), None);
        }
        let body = excerpt(response).await;
        let words = self.words(status.as_u16(), &body);
        if let Some(last) = self.past.as_mut().and_then(|past| past.records.last_mut()) {
            last.answer = words;
        }
        self.bury(core, Reason::Rejected)
    }

    /// What the letter keeps of an answer: why the vendor refused, usually.
    fn words(&self, status: u16, body: &[u8]) -> Option<String> {
        let vendor = &self.route.vendor;
        let most = match vendor.dead_letters {
            Keep::Whole => EXCERPT,
            // An answer about a credential may repeat it.
            Keep::Redacted if matches!(status, 401 | 403 | 407) => return None,
            Keep::Redacted => WORDS,
            Keep::NoAnswer => return None,
        };
        if vendor.at_rest == AtRest::Redacted {
            return None;
        }
        // What was cut in the middle of a character is text all the same.
        let text = body.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let is_text = body.len() - text.len() < 4;
        let plain = |c: char| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
        let text: String = text.trim().chars().take(most).map(plain).collect();
        (is_text && !text.is_empty()).then_some(text)
    }
}

/// Characters of an answer that a redacted letter keeps.
const WORDS: usize = 200;
/// Nothing waits longer for a body that only says why.
const READ: Duration = Duration::from_secs(1);

/// The beginning of an answer's body.
async fn excerpt(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(data)) = response.chunk().await {
            let room = EXCERPT - body.len();
            body.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() >= room {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(READ, read).await;
    body
}
