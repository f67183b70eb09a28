//! The send of a job that is kept in a store: nothing leaves before the store knows of it, it does not sleep between
//! attempts but goes back, and what it ends in is for the store to write down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::follow::EXCERPT;
use super::{Job, Past, letter};
use crate::BoxFuture;
use crate::Priority;
use crate::client::Inner;
use crate::config::{AtRest, Keep, OnAmbiguous, Tenant};
use crate::dead_letter::{AttemptRecord, DeadLetter, LetterRequest, Phase, Reason};
use crate::error::{Delivery, Error, ErrorKind};
use crate::events::EventKind;
use crate::request::{Notes, Request, Target};
use crate::response::Response;
use crate::retry::{Class, Tried};
use crate::transport::exchange::Prepared;

/// Writes down that an exchange is about to leave.
pub(crate) trait Ledger: Send + Sync {
    /// Returns when it is on the disk. False where the job is another process's by now. With `again` the record of this
    /// exchange is there already, and is brought up to date.
    fn start<'a>(&'a self, endpoint: &'a str, cost: u32, again: bool) -> BoxFuture<'a, Result<bool, Error>>;

    /// How long after its record was asked for an exchange may leave. The store counts it from its record and for so much
    /// longer.
    fn latest(&self) -> Duration;

    /// While the store does not get on with writing records: a future that ends when it does.
    fn stall(&self) -> Option<BoxFuture<'_, ()>>;

    /// Ends when the process is to stop.
    fn stopped(&self) -> BoxFuture<'_, ()>;
}

/// What a send knows of being kept.
pub(crate) struct Kept {
    /// The job's id, and that of the letter it may become.
    pub(crate) id: String,
    pub(super) ledger: Arc<dyn Ledger>,
    /// Its exchange is being written down: from now on the job goes to its end.
    begun: Arc<AtomicBool>,
    gone: bool,
    letter: Option<Box<DeadLetter>>,
}

/// What was tried in earlier claims: kept with the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct History {
    pub(crate) retries: u32,
    pub(crate) connects: u32,
    pub(crate) exchanges: u32,
    /// Since when nothing could be sent, by the wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failing_since: Option<Timestamp>,
    /// When it was to be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<Timestamp>,
    pub(crate) attempts: Vec<AttemptRecord>,
}

/// Attempts that are remembered: the first and the latest. Each retry is one, and tries to connect go on for minutes.
const REMEMBERED: usize = 100;

impl History {
    pub(crate) fn note(&mut self, record: AttemptRecord) {
        if self.attempts.len() >= REMEMBERED {
            self.attempts.remove(REMEMBERED / 2);
        }
        self.attempts.push(record);
    }

    fn into_past(self, inner: &Inner) -> Option<Box<Past>> {
        if self == History::default() {
            return None;
        }
        let now = inner.clock.now();
        let wall = letter::timestamp(inner.clock, Duration::ZERO);
        let failing_since = self.failing_since.map(|since| {
            let failing = failing_for(since, self.due, wall);
            now.minus_nanos(u64::try_from(failing.as_nanos()).unwrap_or(u64::MAX))
        });
        let tried = Tried { retries: self.retries, refreshed: false, failing_since };
        let (connects, exchanges, records) = (self.connects, self.exchanges, self.attempts);
        Some(Box::new(Past { tried, connects, exchanges, records, again: false }))
    }

    fn of(past: Option<Box<Past>>, inner: &Inner) -> History {
        let Some(past) = past else { return History::default() };
        let since = |at| letter::timestamp(inner.clock, inner.clock.now().since(at));
        let mut history = History {
            retries: past.tried.retries,
            connects: past.connects,
            exchanges: past.exchanges,
            failing_since: past.tried.failing_since.map(since),
            due: None,
            attempts: Vec::new(),
        };
        for record in past.records {
            history.note(record);
        }
        history
    }
}

/// For how long it has been tried in vain. The time for which nobody tried when it was due does not count: the process may
/// have been stopped over night, and the first failure after that is no reason to give up.
fn failing_for(since: Timestamp, due: Option<Timestamp>, now: Timestamp) -> Duration {
    let idle = due.map_or(Duration::ZERO, |due| Duration::try_from(now.duration_since(due)).unwrap_or_default());
    Duration::try_from(now.duration_since(since)).unwrap_or_default().saturating_sub(idle)
}

/// How a claim of a job ends.
pub(crate) enum Ending {
    /// The vendor took it.
    Delivered(Box<Response>),
    /// Given up.
    Dead(Box<DeadLetter>),
    /// Again after a while.
    Later { wait: Duration, history: History },
    /// At once, by whoever has room: nothing was tried.
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

/// Sends a job once, as `send` would.
pub(crate) async fn send_kept(inner: &Inner, send: Sending, expires: Option<Duration>) -> Ending {
    let Sending { id, tenant, priority, mut request, history, ledger, begun } = send;
    let vendor = request.vendor().map(str::to_owned).unwrap_or_default();
    let attempt = request.parts.attempt_timeout.or_else(|| {
        let known = inner.tenant(&tenant, &vendor).ok()?;
        Some(known.vendor.attempt_timeout)
    });
    let most = HOLD.saturating_add(attempt.unwrap_or(HOLD));
    request.parts.deadline = Some(expires.map_or(most, |left| left.min(most)));
    request.parts.max_wait = Some(HOLD);
    let mut job = match Job::new(inner, &tenant, priority, request, false) {
        Ok(job) => job,
        Err(error) => return never_began(inner, error, history),
    };
    // Nobody stands by to decide: what is not sent again is kept.
    let policy = job.on_ambiguous.unwrap_or(job.tenant.vendor.retry.on_ambiguous);
    job.on_ambiguous = Some(if policy == OnAmbiguous::Resend { policy } else { OnAmbiguous::Park });
    job.past = history.into_past(inner);
    job.kept = Some(Box::new(Kept { id, ledger, begun, gone: false, letter: None }));
    job.open_span();
    let result = match job.span.is_some() {
        false => Box::pin(job.run(inner)).await,
        true => job.run_in_span(inner).await,
    };
    job.ended(inner, &result);
    job.ending(inner, result).await
}

/// An error before there was a job to speak of.
fn never_began(inner: &Inner, error: Error, mut history: History) -> Ending {
    let wait = match error.kind() {
        ErrorKind::Shutdown => return Ending::Back,
        _ => Duration::from_secs(30),
    };
    let now = letter::timestamp(inner.clock, Duration::ZERO);
    history.failing_since.get_or_insert(now);
    let mut record = AttemptRecord::new(now, Phase::NotSent, 0);
    record.error = Some(error.to_string());
    // Once, and not at each look.
    if history.attempts.last().and_then(|last| last.error.as_ref()) != record.error.as_ref() {
        history.note(record);
    }
    Ending::Later { wait, history }
}

impl Job {
    /// The store hears of an exchange before the vendor can.
    pub(super) async fn write_start(&mut self, again: bool) -> Result<(), Error> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        kept.begun.store(true, Ordering::Release);
        let endpoint = super::events::name(&self.tenant, self.endpoint).unwrap_or_default();
        let started = kept.ledger.start(endpoint, self.cost, again).await;
        let problem = match started {
            Ok(true) => return Ok(()),
            Ok(false) => "the job is another process's by now",
            Err(error) => return Err(error),
        };
        kept.gone = true;
        Err(self.tenant.not_sent(ErrorKind::Store, problem))
    }

    /// The letter goes to the sink, or with the job into the store.
    pub(super) fn hand_over(&mut self, inner: &Inner, letter: DeadLetter) {
        self.dead_lettered(inner, &letter);
        match &mut self.kept {
            Some(kept) => kept.letter = Some(Box::new(letter)),
            None => inner.dead_letters.offer(letter),
        }
    }

    /// It goes again, but from the store.
    pub(super) fn put_off(&self, wait: Duration, delivery: Delivery) -> Error {
        let why = format_args!("the next try is {} ms away, and the job waits in the store", wait.as_millis());
        self.tenant.error(ErrorKind::RetryLater, delivery, why).with_retry_after(wait)
    }

    fn has_begun(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.begun.load(Ordering::Acquire))
    }

    fn bury(&mut self, inner: &Inner, reason: Reason) -> Ending {
        let letter = self.letter(inner, reason);
        self.hand_over(inner, letter);
        let letter = self.kept.as_mut().and_then(|kept| kept.letter.take());
        letter.map_or(Ending::Gone, Ending::Dead)
    }

    fn note(&mut self, inner: &Inner, phase: Phase, status: Option<u16>, error: Option<String>) {
        let mut record = AttemptRecord::new(letter::timestamp(inner.clock, Duration::ZERO), phase, 0);
        (record.status, record.error) = (status, error);
        self.past.get_or_insert_default().records.push(record);
    }

    async fn ending(mut self, inner: &Inner, result: Result<Response, Error>) -> Ending {
        if self.kept.as_ref().is_some_and(|kept| kept.gone) {
            return Ending::Gone;
        }
        if let Some(mut letter) = self.kept.as_mut().and_then(|kept| kept.letter.take()) {
            let answer = result.as_ref().err().and_then(Error::response);
            if let (Some(answer), Some(last)) = (answer, letter.attempts.last_mut()) {
                last.answer = last.status.and_then(|status| self.words(status, answer.body()));
            }
            return Ending::Dead(letter);
        }
        let error = match result {
            Ok(response) => return self.answered(inner, response).await,
            Err(error) => error,
        };
        let wait = error.retry_after();
        match (error.kind(), error.delivery()) {
            // What was answered and was to go once more did not act: it is no exchange of which nobody knows the outcome.
            (ErrorKind::Shutdown, _) if self.has_begun() => self.later(inner, Duration::ZERO),
            (ErrorKind::Shutdown, _) => Ending::Back,
            (ErrorKind::Store, _) => self.later(inner, Duration::from_secs(1)),
            (ErrorKind::RetryLater | ErrorKind::Deadline | ErrorKind::QueueFull | ErrorKind::NotNow, _) => {
                // Of what was refused a moment ago nobody knows better.
                self.later(inner, wait.unwrap_or(Duration::from_secs(1)))
            }
            (ErrorKind::Retired | ErrorKind::UnknownTenant | ErrorKind::UnknownVendor, _) => {
                self.later(inner, Duration::from_secs(10))
            }
            (ErrorKind::InvalidRequest | ErrorKind::CostAboveCapacity | ErrorKind::UnknownEndpoint, _) => {
                self.note(inner, Phase::NotSent, None, Some(error.to_string()));
                self.bury(inner, Reason::Rejected)
            }
            // Protocol: HTTP/2 streams that the vendor did not process.
            (_, Delivery::NotSent) | (ErrorKind::Protocol, Delivery::Rejected) => self.not_sent(inner, error, wait),
            (_, Delivery::Rejected) => self.bury(inner, Reason::Rejected),
            (_, Delivery::Ambiguous) if self.idempotent => self.bury(inner, Reason::Exhausted),
            _ => self.bury(inner, Reason::Ambiguous),
        }
    }

    /// A credential, a certificate or a host that fails may be mended; for as long as connections are tried again.
    fn not_sent(mut self, inner: &Inner, error: Error, wait: Option<Duration>) -> Ending {
        let (now, max_age) = (inner.clock.now(), self.tenant.vendor.retry.max_age);
        let past = self.past.get_or_insert_default();
        let since = *past.tried.failing_since.get_or_insert(now);
        past.connects += 1;
        let backoff = crate::retry::reconnect(past.connects, &mut fastrand::Rng::new());
        if past.records.last().is_none_or(|last| last.error.is_none()) {
            self.note(inner, Phase::NotSent, None, Some(error.to_string()));
        }
        if now.since(since) >= max_age {
            return self.bury(inner, Reason::Exhausted);
        }
        let wait = wait.unwrap_or(backoff).max(Duration::from_secs(1));
        self.later(inner, wait)
    }

    fn later(mut self, inner: &Inner, wait: Duration) -> Ending {
        let mut history = History::of(self.past.take(), inner);
        history.due = history.failing_since.and(letter::timestamp(inner.clock, Duration::ZERO).checked_add(wait).ok());
        Ending::Later { wait, history }
    }

    /// An answer that was not retried: taken, or refused for good.
    async fn answered(mut self, inner: &Inner, response: Response) -> Ending {
        let status = response.status();
        let class = inner.classifier(&self.tenant);
        let class = class.and_then(|classifier| classifier.classify(status, response.headers()));
        if class == Some(Class::Success) || (class.is_none() && status.is_success()) {
            return Ending::Delivered(Box::new(response));
        }
        let noted = self
            .past
            .as_ref()
            .map_or(0, |past| past.records.iter().filter(|record| record.phase != Phase::NotSent).count());
        if noted < response.attempts() as usize {
            self.note(inner, Phase::Answered, Some(status.as_u16()), None);
        }
        let body = excerpt(response).await;
        let words = self.words(status.as_u16(), &body);
        if let Some(last) = self.past.as_mut().and_then(|past| past.records.last_mut()) {
            last.answer = words;
        }
        self.bury(inner, Reason::Rejected)
    }

    /// What the letter keeps of an answer: why the vendor refused, usually.
    fn words(&self, status: u16, body: &[u8]) -> Option<String> {
        let vendor = &self.tenant.vendor;
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

/// A request that was found good, in the form in which it is kept.
pub(crate) struct Acceptable {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) request: LetterRequest,
    pub(crate) endpoint: Option<String>,
    pub(crate) cost: Option<u32>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) on_ambiguous: Option<OnAmbiguous>,
    pub(crate) notes: Notes,
    /// The caller gave the key itself.
    pub(crate) own_key: bool,
}

/// Checks everything that can be checked before a request is sent, and makes its idempotency key.
pub(crate) fn acceptable(inner: &Inner, tenant: &str, mut request: Request) -> Result<Acceptable, Error> {
    let tenant = match &request.parts.target {
        Target::Path { vendor, .. } => inner.tenant(tenant, vendor),
        Target::Url(url) => inner.tenant_for_url(tenant, url),
    }?;
    let vendor = &tenant.vendor;
    let base = tenant.base()?;
    if let Some(name) = &request.parts.endpoint {
        vendor.endpoint(name)?;
    }
    let (endpoint, cost) = (request.parts.endpoint.take().map(String::from), request.parts.cost);
    let (attempt_timeout, deadline) = (request.parts.attempt_timeout, request.parts.deadline);
    let on_ambiguous = request.parts.on_ambiguous;
    let mut notes = request.parts.notes.take();
    let own_key = notes.as_ref().is_some_and(|notes| notes.idempotency_key.is_some());
    letter::add_key(&mut request, &mut notes, vendor);
    let prepared = Prepared::new(request, &tenant, &base)?;
    drop(base);
    let refuse = |why: &str| Err(tenant.not_sent(ErrorKind::InvalidRequest, why));
    for name in [http::header::AUTHORIZATION, http::header::COOKIE] {
        if prepared.headers().contains_key(&name) {
            return refuse("a request with a credential of its own is not stored; state the vendor's `auth` instead");
        }
    }
    let path = prepared.path_below_base(&tenant);
    if let crate::config::AuthScheme::Query { name } = &vendor.auth {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        if query.split('&').any(|pair| pair.split('=').next() == Some(name)) {
            return refuse("a request with a credential in its query is not stored; it is added to each attempt");
        }
    }
    let Some(body) = prepared.body() else {
        return refuse("a streaming body cannot be stored; give it as bytes");
    };
    let request = LetterRequest::whole(prepared.method(), &path, prepared.headers(), body.clone());
    let notes = notes.map(|notes| *notes).unwrap_or_default();
    Ok(Acceptable { request, endpoint, cost, attempt_timeout, deadline, on_ambiguous, notes, own_key, tenant })
}

impl Inner {
    /// A job was given up that was not sent this time.
    pub(crate) fn tell_dead(&self, letter: &DeadLetter) {
        self.metrics.series(&letter.tenant, &letter.vendor).dead_lettered(letter.reason);
        self.feed.tell_of(&letter.tenant, &letter.vendor, || EventKind::DeadLettered {
            id: (*letter.id).into(),
            attempts: u32::try_from(letter.attempts.len()).unwrap_or(u32::MAX),
            reason: letter.reason,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_nobody_tried_does_not_count() {
        let at = |second| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let failing = |due: Option<i64>, now| failing_for(at(0), due.map(at), at(now)).as_secs();
        assert_eq!(failing(None, 100), 100);
        assert_eq!(failing(Some(90), 95), 90);
        // Stopped for eight hours, 90 seconds after the first failure.
        assert_eq!(failing(Some(90), 8 * 3600), 90);
        // It is early, or the clock was set back.
        assert_eq!(failing(Some(90), 80), 80);
        assert_eq!(failing(Some(90), -50), 0);
    }
}
