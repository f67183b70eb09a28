//! Sends a stored job. The store records every exchange before it begins; between attempts the job returns to the store
//! instead of sleeping; and its end is a value that the store writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::Instrument;

use super::attempt_end::{AttemptEnd, Cause, NotSent, excerpt};
use super::events::End;
use super::exchange_record::{RecordExchange, Recorded, StoreTime, StoredJob};
use super::history::History;
use super::outlook::{HOLD, blocks, outlook};
use super::unfit::Unfit;
use super::{Caller, Outage, Outgoing, letter};
use crate::Priority;
use crate::config::OnAmbiguous;
use crate::core::{Core, Used};
use crate::dead_letter::{AttemptRecord, DeadLetter, KeptHeaders, Phase, Reason};
use crate::engine::Refusal;
use crate::error::{Delivery, Error, ErrorKind};
use crate::request::Request;
use crate::retry::{self, FailedEnd, failed_end};
use crate::route::Authorization;
use crate::send::response::Response;
use crate::transport::TransportError;

/// How a claim of a job ends, for the store.
pub(crate) enum ClaimEnd {
    /// The vendor accepted the request. With the headers that are kept of its response.
    Delivered(Box<(Response, KeptHeaders)>),
    /// The job was given up and becomes a dead letter.
    Dead(Box<DeadLetter>),
    /// The job is due again after `wait`.
    Later { wait: Duration, history: History },
    /// The job was not tried and is due at once, for any process with room for it.
    Back,
    /// As `Back`, because the lane's limits allow nothing for longer than a claim waits. A job that was tried before is
    /// due later instead: its record leaves the wait out of the time for which it has failed.
    Blocked,
    /// The configuration has lacked for long what the job needs. Its letter is made from what the store has.
    NotConfigured { history: History },
    /// Another process has taken over the job.
    Gone,
}

/// A claimed job, as it is handed to [`send_stored`].
pub(crate) struct Sending {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) priority: Priority,
    pub(crate) request: Request,
    pub(crate) history: History,
    /// The store's time when the job was claimed.
    pub(crate) clock: StoreTime,
    pub(crate) records: Arc<dyn RecordExchange>,
    /// Set when the record of the job's exchange is being written.
    pub(crate) begun: Arc<AtomicBool>,
    /// Whether the program gets the response: by its handler, or because the request asked for the response to be kept or
    /// for a reply.
    pub(crate) has_reader: bool,
    /// Whether another process, or a configuration without its present problem, may know what this one lacks.
    pub(crate) may_be_known: bool,
}

/// The wait of a job that the store or the limits cannot take now, if they state none.
const SOON: Duration = Duration::from_secs(1);
/// The longest wait of a job at a limit that does not stop its whole lane, such as one of its endpoint, or an eighth of what
/// the limit states: a reload, a resumed lane or another process may have room earlier.
const ASK_AGAIN: Duration = Duration::from_secs(900);
/// The wait of a job of a removed tenant.
const REMOVED: Duration = Duration::from_secs(10);
/// The wait of a job that a change of the configuration no longer fits, or whose endpoint it removed: the next claim
/// sees what has become of it.
const UNKNOWN: Duration = Duration::from_secs(30);

/// What follows for a job that was not sent.
enum Next {
    Nothing,
    Back,
    Later(Duration),
    /// Due after a wait that grows, because a limit may be raised again that holds less than the job costs.
    WhenItFits(Refusal),
    /// Due after the wait that the limits state.
    AsStated,
    /// Due when this or another process has room in the lane's limits.
    Blocked,
    /// Due after the backoff of a connection that fails.
    WhenMended,
    /// Due when the host may be connected to, or the token URL may be asked again.
    WhenReachable,
    Rejected,
    Ambiguous,
}

/// Sends a job once, as `send` would.
pub(crate) async fn send_stored(core: &Core, send: Sending, expires: Option<Duration>) -> ClaimEnd {
    let Sending { id, tenant, priority, mut request, mut history, clock, records, begun, has_reader, may_be_known } =
        send;
    let unfit = history.unfit.take().inspect(|_| core.telemetry.costly.claimed(&id)).unwrap_or_default();
    let vendor = request.vendor().map(str::to_owned).unwrap_or_default();
    let attempt = request.parts.attempt_timeout.or_else(|| {
        let known = core.registry.route(&tenant, &vendor).ok()?;
        Some(known.vendor.attempt_timeout)
    });
    let most = HOLD.saturating_add(attempt.unwrap_or(HOLD));
    request.parts.deadline = Some(expires.map_or(most, |left| left.min(most)));
    // A job's time begins with its claim, and a longest wait only with the first ask for a permit.
    request.parts.max_wait = None;
    let mut outgoing = match Outgoing::new(core, Caller::Tenant(&tenant), priority, request, false) {
        Ok(outgoing) => outgoing,
        Err(error) => return never_began(core, &error, history, (unfit, !may_be_known)),
    };
    // No caller waits for the outcome, so an ambiguous request that may not be sent again is kept as a dead letter.
    let policy = outgoing.on_ambiguous.unwrap_or(outgoing.route.vendor.retry.on_ambiguous);
    outgoing.on_ambiguous = Some(if policy == OnAmbiguous::Resend { policy } else { OnAmbiguous::Park });
    outgoing.give_up = outgoing.deadline.min(outgoing.began + HOLD);
    outgoing.tries = history.exchanges;
    outgoing.past = history.into_past(core, clock);
    let job = StoredJob { id, clock, records, begun, has_reader, unfit, recorded: None, authorization: None };
    outgoing.stored = Some(Box::new(job));
    outgoing.open_span();
    let (end, noted) = match outgoing.span.as_deref().cloned() {
        None => Box::pin(outgoing.attempt_once(core)).await,
        Some(span) => Box::pin(outgoing.attempt_once(core).instrument(span)).await,
    };
    let (ending, told) = outgoing.ending(core, end, noted).await;
    outgoing.ended(core, told);
    ending
}

/// Ends a claim whose job does not fit the configuration: it is tried again later, because the configuration may be
/// corrected. Of a missing tenant the worker knows for how long it has been missing.
fn never_began(core: &Core, error: &Error, mut history: History, unfit: (Unfit, bool)) -> ClaimEnd {
    let (mut unfit, is_alone) = unfit;
    let mut record = AttemptRecord::new(letter::timestamp(core.clock, Duration::ZERO), Phase::NotSent, 0);
    record.error = Some(error.to_string());
    history.note_once(record);
    let wait = match error.kind() {
        ErrorKind::UnknownTenant | ErrorKind::UnknownVendor => UNKNOWN,
        _ => match unfit.wait(is_alone, &mut fastrand::Rng::new()) {
            Some(wait) => wait,
            None => return ClaimEnd::NotConfigured { history },
        },
    };
    history.unfit = Some(unfit).filter(|unfit| *unfit != Unfit::default());
    history.leave_out(wait, false);
    // The next claim leaves out the time since `due`. Without this it would leave out the wait a second time.
    history.due = history.due.and_then(|due| due.checked_add(wait).ok());
    ClaimEnd::Later { wait, history }
}

impl Outgoing {
    /// Attempts the job until an attempt ends in something that the store has to know. Returns that end, and the number
    /// of records before that attempt.
    async fn attempt_once(&mut self, core: &Core) -> (Result<AttemptEnd, NotSent>, usize) {
        loop {
            let noted = self.past.as_ref().map_or(0, |past| past.records.len());
            match self.attempt(core).await {
                Ok(AttemptEnd::AtOnce) => drop(self.take_authorization()),
                end => return (end, noted),
            }
        }
    }

    /// Records the exchange in the store before it begins.
    pub(super) async fn write_start(&mut self, core: &Core, again: bool) -> Result<(), NotSent> {
        let remembers = self.remembers(core);
        let Some(stored) = &mut self.stored else { return Ok(()) };
        stored.begun.store(true, Ordering::Release);
        let (route, points) = (&self.route, self.points[0]);
        let endpoint = route.vendor.endpoint_name(self.endpoint.place()).unwrap_or_default();
        if !stored.records.start(endpoint, points, again).await.map_err(NotSent::Store)? {
            return Err(NotSent::Taken);
        }
        let (used, at) = (Used::in_the_record(points), core.clock.now());
        // This drops the record before, which may be of the same exchange.
        stored.recorded =
            remembers.map(|remembers| Recorded { remembers, route: route.clone(), used, at, has_left: false });
        Ok(())
    }

    /// Whether no attempt of the job, in this claim or an earlier one, has to be remembered.
    fn is_untried(&self) -> bool {
        self.past.is_none() && !self.has_begun()
    }

    pub(super) fn take_authorization(&mut self) -> Option<Arc<Authorization>> {
        self.stored.as_mut().and_then(|stored| stored.authorization.take())
    }

    pub(super) fn has_begun(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.begun.load(Ordering::Acquire))
    }

    /// Converts the end of an attempt into the end of the claim for the store, and the end for metrics, spans and
    /// events. `noted`: the number of records before the attempt.
    async fn ending(&mut self, core: &Core, end: Result<AttemptEnd, NotSent>, noted: usize) -> (ClaimEnd, End) {
        let end = match end {
            Ok(end) => end,
            Err(why) => return self.ending_unsent(core, why),
        };
        match end.unprocessed() {
            Some(failure) if self.is_outage(failure) && self.outlasts_outages() => {
                let ending = self.unreachable(core, Duration::ZERO);
                let is_later = matches!(ending, ClaimEnd::Later { .. });
                let kind = if is_later { ErrorKind::RetryLater } else { ErrorKind::Exhausted };
                return (ending, Err((kind, failure.sent().delivery())));
            }
            Some(_) => {}
            // The vendor was reached.
            None => self.past.iter_mut().for_each(|past| past.unreachable = None),
        }
        match end {
            AttemptEnd::Done(response) => {
                let told = Ok(response.status());
                (self.answered(core, response, noted).await, told)
            }
            AttemptEnd::AtOnce => (ClaimEnd::Back, Err((ErrorKind::RetryLater, Delivery::NotSent))),
            AttemptEnd::Again(again) => {
                if again.takes_budget {
                    // A stored job can wait, so the budget never ends it. Its retries are counted, because they are
                    // load like those of callers.
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
                let told = Err((cause.kind(), Delivery::Ambiguous));
                self.note_answer(*cause).await;
                (self.bury(core, Reason::Ambiguous), told)
            }
            AttemptEnd::Failed(failure) => {
                let (sent, kind) = (failure.sent(), failure.kind());
                let ending = match failed_end(sent, kind, self.is_idempotent(core.clock.moment())) {
                    FailedEnd::Invalid => self.bury_unsent(core, self.unless_in_doubt(), failure.to_string()),
                    FailedEnd::NotPossibleNow => self.not_possible_now(core, failure.to_string(), None),
                    FailedEnd::Rejected => self.bury(core, self.unless_in_doubt()),
                    FailedEnd::Exhausted => self.bury(core, Reason::Exhausted),
                    FailedEnd::Ambiguous => self.bury(core, Reason::Ambiguous),
                };
                (ending, Err((kind, sent.delivery())))
            }
        }
    }

    fn ending_unsent(&mut self, core: &Core, why: NotSent) -> (ClaimEnd, End) {
        let next = match &why {
            NotSent::Taken => Next::Nothing,
            // The store has a record of the exchange, which did not begin: `Later` clears it, so that the outcome is
            // not taken for unknown.
            NotSent::Stopped | NotSent::Refused(Refusal::Shutdown) if self.has_begun() => Next::Later(Duration::ZERO),
            NotSent::Stopped | NotSent::Refused(Refusal::Shutdown) => Next::Back,
            NotSent::Store(_) => Next::Later(SOON),
            NotSent::Refused(Refusal::Retired | Refusal::NoLane) => Next::Later(REMOVED),
            // The next claim looks for the endpoint anew, and checks the request against the configuration of then.
            NotSent::Refused(Refusal::UnknownEndpoint) | NotSent::NoLongerFits(_) => Next::Later(UNKNOWN),
            NotSent::Refused(refusal @ Refusal::TooExpensive { .. }) => Next::WhenItFits(refusal.clone()),
            NotSent::Invalid(_) => Next::Rejected,
            NotSent::KeyForgotten => Next::Ambiguous,
            NotSent::Refused(refusal)
                if self.is_untried() && blocks(refusal, || outlook(core, self.route.tenant(), self.priority)) =>
            {
                Next::Blocked
            }
            NotSent::Refused(_) => Next::AsStated,
            NotSent::HostShut { .. } | NotSent::NoTokenNow(_) if self.outlasts_outages() => Next::WhenReachable,
            NotSent::HostShut { .. } | NotSent::NoTokenNow(_) | NotSent::Credential(_) => Next::WhenMended,
        };
        let error = self.not_sent_error(core, why);
        let (told, wait) = (Err((error.kind(), error.delivery())), error.retry_after());
        let (is_outage, is_failure) = (matches!(next, Next::WhenReachable), matches!(next, Next::WhenMended));
        let mut ending = match next {
            Next::Nothing => ClaimEnd::Gone,
            Next::Back => ClaimEnd::Back,
            Next::Later(wait) => self.later(core, wait),
            Next::AsStated => {
                let stated = wait.unwrap_or(SOON);
                self.later(core, stated.min(ASK_AGAIN.max(stated / 8)))
            }
            Next::WhenItFits(refusal) => self.too_expensive(core, &refusal, &error),
            Next::Blocked => ClaimEnd::Blocked,
            Next::WhenMended => self.not_possible_now(core, error.to_string(), wait.map(|wait| wait.min(ASK_AGAIN))),
            Next::WhenReachable => {
                self.note_unsent(core, error.to_string());
                // A token URL may state days. Another look in that time costs it nothing, and sees what was corrected.
                self.unreachable(core, wait.unwrap_or(SOON).min(ASK_AGAIN))
            }
            Next::Rejected => self.bury_unsent(core, self.unless_in_doubt(), error.to_string()),
            Next::Ambiguous => self.bury_unsent(core, Reason::Ambiguous, error.to_string()),
        };
        if !is_outage && let ClaimEnd::Later { wait, history } = &mut ending {
            history.leave_out(core.clock.now().since(self.began).saturating_add(*wait), is_failure);
        }
        (ending, told)
    }

    /// Makes the dead letter of the job, which the store writes together with the job's end.
    fn bury(&mut self, core: &Core, reason: Reason) -> ClaimEnd {
        let letter = self.letter(core, reason);
        self.dead_lettered(core, &letter);
        ClaimEnd::Dead(Box::new(letter))
    }

    fn bury_unsent(&mut self, core: &Core, reason: Reason, why: String) -> ClaimEnd {
        self.note(core, Phase::NotSent, None, Some(why));
        self.bury(core, reason)
    }

    fn note(&mut self, core: &Core, phase: Phase, status: Option<u16>, error: Option<String>) {
        let mut record = AttemptRecord::new(letter::timestamp(core.clock, Duration::ZERO), phase, 0);
        (record.status, record.error) = (status, error);
        self.past().records.push(record);
    }

    /// Records what the letter keeps of the response.
    async fn note_answer(&mut self, cause: Cause) {
        let Some(answer) = cause.drain().await else { return };
        self.note_response(answer.status().as_u16(), answer.headers(), answer.body());
    }

    /// Records why the job was not sent, unless the latest record already says why.
    fn note_unsent(&mut self, core: &Core, why: String) {
        if self.past().records.last().is_none_or(|last| last.error.is_none()) {
            self.note(core, Phase::NotSent, None, Some(why));
        }
    }

    /// Whether the job is tried again for days while no connection can be made, and not for the five minutes that other
    /// requests have. A job on which the vendor may have acted is not: a repetition that comes days later may undo what
    /// was done since, unless the request changes nothing.
    fn outlasts_outages(&self) -> bool {
        self.stored.is_some() && (self.prepared.method().is_safe() || !self.may_have_acted())
    }

    /// Whether a failed exchange is a part of an outage. A failed connection begins one. From then on a certificate
    /// that is not valid, or a stream that the vendor does not process, is a part of it too: a host with two addresses
    /// may fail in both ways in turn, and two separate times would begin anew each time and never end the job.
    fn is_outage(&self, failure: &TransportError) -> bool {
        let is_under_way = self.past.as_ref().is_some_and(|past| past.unreachable.is_some());
        let may_pass = || failed_end(failure.sent(), failure.kind(), false) == FailedEnd::NotPossibleNow;
        failure.is_connect() || (is_under_way && may_pass())
    }

    /// Ends a claim in an outage of its host, for a job that outlasts outages. The job is due again after `at_least`,
    /// or later where the outage has lasted for long. The outage is not counted as one of the failures that end other
    /// requests, so that a failure of another kind does not end the job.
    fn unreachable(&mut self, core: &Core, at_least: Duration) -> ClaimEnd {
        let (now, max_age) = (core.clock.now(), self.route.vendor.retry.max_age);
        let past = self.past();
        past.tried.failing_since = None;
        let Outage { since, tried_since } = *past.unreachable.get_or_insert(Outage { since: now, tried_since: now });
        let mut random = fastrand::Rng::new();
        let backoff = at_least.max(retry::reconnect(past.connects, &mut random));
        match retry::outage(now.since(since), now.since(tried_since), max_age, &mut random) {
            Some(wait) => self.later(core, wait.max(backoff)),
            None => self.bury(core, Reason::Exhausted),
        }
    }

    /// A failing credential, certificate or host may be repaired: the job is tried again for `max_age`, like a failing
    /// connection.
    fn not_possible_now(&mut self, core: &Core, why: String, wait: Option<Duration>) -> ClaimEnd {
        let (now, max_age) = (core.clock.now(), self.route.vendor.retry.age());
        let past = self.past();
        let since = *past.tried.failing_since.get_or_insert(now);
        past.connects += 1;
        let backoff = retry::reconnect(past.connects, &mut fastrand::Rng::new());
        self.note_unsent(core, why);
        if now.since(since) >= max_age {
            return self.bury(core, Reason::Exhausted);
        }
        let wait = wait.unwrap_or(backoff).max(SOON);
        self.later(core, wait)
    }

    /// A figure may be lowered for a moment: by a change-over to other processes, or by a mistake. So a job that costs
    /// more than a limit holds waits for as long as an outage may last.
    fn too_expensive(&mut self, core: &Core, refusal: &Refusal, error: &Error) -> ClaimEnd {
        let why = error.to_string();
        let mut unfit = self.stored.as_ref().map(|stored| stored.unfit).unwrap_or_default();
        let begins = unfit == Unfit::default();
        let Some(wait) = unfit.wait(false, &mut fastrand::Rng::new()) else {
            return self.bury_unsent(core, self.unless_in_doubt(), why);
        };
        self.costs_too_much(core, refusal, &why, begins, wait);
        let mut ending = self.later(core, wait);
        if let ClaimEnd::Later { history, .. } = &mut ending {
            let mut record = AttemptRecord::new(letter::timestamp(core.clock, Duration::ZERO), Phase::NotSent, 0);
            record.error = Some(why);
            history.note_once(record);
            history.unfit = Some(unfit);
        }
        ending
    }

    fn later(&mut self, core: &Core, wait: Duration) -> ClaimEnd {
        let clock = self.stored.as_ref().map(|stored| stored.clock);
        let mut history = History::of(self.past.take(), core, clock);
        let since = history.failing_since.or(history.unreachable_since);
        history.due = since.and(letter::timestamp(core.clock, Duration::ZERO).checked_add(wait).ok());
        ClaimEnd::Later { wait, history }
    }

    /// The end after a response that is not retried: accepted, or refused for good. `noted`: the number of records
    /// before the attempt.
    async fn answered(&mut self, core: &Core, response: Response, noted: usize) -> ClaimEnd {
        let status = response.status();
        let class = core.egress.class_of(&self.route, status, response.headers());
        if retry::is_delivery(status.as_u16(), class) {
            let headers = self.kept_of_delivery(response.headers());
            return ClaimEnd::Delivered(Box::new((response, headers)));
        }
        // Only a response that had to be classified has a record already.
        if self.past().records.len() == noted {
            self.note(core, Phase::Answered, Some(status.as_u16()), None);
        }
        let headers = response.headers().clone();
        self.note_response(status.as_u16(), &headers, &excerpt(response).await);
        if retry::is_about_content(status.as_u16()) {
            self.end_answered_doubts(core.clock.moment());
        }
        self.bury(core, self.unless_in_doubt())
    }
}
