//! One send, from a request to the vendor's response.
//!
//! Steps that need no waiting run when `send` is called, so that its future holds the request once, in the form in
//! which it is sent. Thousands of these futures may wait at once, and their size decides whether they stay in the
//! processor's cache: it is the largest cost of a send. So the handling of responses that are not simply returned is
//! boxed.
//!
//! A send goes through these files, from the top down. `client/mod.rs` is above them; below them are
//! `core/registry.rs` (the route and the lane), `dispatch/` and the engine (the permit), and of `transport/`
//! `credentials.rs`, `auth.rs` and `reqwest.rs` (the socket).
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | [`Outgoing`]: one request on its way, and the steps of an attempt: permit, exchange |
//! | `acceptable.rs`, `prepared.rs`, `credential_headers.rs`, `key/` | check a request, and turn it into what is sent; its idempotency key |
//! | `plain.rs`, `durable.rs` | the two drivers, which repeat attempts: for a caller that waits, and for a stored job |
//! | `attempt.rs`, `attempt_end.rs` | one attempt, in the order of its steps, and how it ended |
//! | `host_pass.rs`, `stored_permit.rs`, `exchange_record.rs` | waits before an exchange: for a host that failed, and for the record of a stored job's exchange |
//! | `classify.rs` | decides what an exchange means for the request: return it, repeat it and after which backoff, give up |
//! | `feedback.rs`, `window_limit.rs` | decide what it means for the limits: which pause, also for a refusal that states no wait, and what was reported, of which limit |
//! | `response.rs` | what the caller gets: the response, which holds the permit until its body has been read |
//! | `letter.rs`, `kept_headers.rs`, `history.rs`, `unfit.rs` | dead letters; the headers that are kept of a response; the attempts of earlier claims, and for how long a job waits that does not fit the configuration |
//! | `events.rs`, `notices.rs`, `spans.rs` | report what happens |
//! | `callers_exchange.rs` | the same feedback for an exchange that the program made itself with a [`Permit`](crate::Permit) |

pub(crate) mod acceptable;
mod attempt;
mod attempt_end;
mod callers_exchange;
mod classify;
mod credential_headers;
pub(crate) mod durable;
pub(crate) mod events;
pub(crate) mod exchange_record;
mod feedback;
pub(crate) mod history;
mod host_pass;
mod kept_headers;
pub(crate) mod key;
mod letter;
mod notices;
pub(crate) mod outlook;
mod plain;
pub(crate) mod prepared;
pub(crate) mod response;
mod spans;
mod stored_permit;
pub(crate) mod unfit;
mod window_limit;

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use crate::Priority;
use crate::clock::{Moment, Time, nanos};
use crate::config::{MAX_COSTS, OnAmbiguous, Tenant};
use crate::core::refusal;
use crate::core::{Core, Egress, HostPass, Remembers, Used};
use crate::dead_letter::AttemptRecord;
use crate::dispatch::{Grant, PermitGuard, plan};
use crate::engine::cost::Cost;
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::engine::{Ask, Refusal};
use crate::error::{Error, ErrorKind};
use crate::request::{Headroom, WaitReason};
use crate::request::{Notes, Request, Target};
use crate::retry::{RetryHistory, Since};
use crate::route::{Authorization, Route};
use crate::send::response::{Response, ResponseBody, Settling};
use crate::signals::meter::Meter;
use crate::signals::{POINTS, Signals};
use crate::telemetry::events::{Event, EventKind};
use crate::telemetry::metrics::{Running, Series};
use crate::transport::{Answer, Exchange, target};

use attempt_end::NotSent;
pub use callers_exchange::PermitFeedback;
pub(crate) use callers_exchange::{PermitUsage, permit_answered};
pub(crate) use notices::{tell, tell_forgotten};
pub(crate) use plain::send;
use prepared::{Attempt, Prepared};

/// The tenant or lane for which a request is sent.
#[derive(Clone, Copy)]
pub(crate) enum Caller<'a> {
    /// A tenant, by its id.
    Tenant(&'a str),
    /// The holder of a lane handle, whose route needs no look-up while it is current.
    Lane(&'a Arc<Route>),
}

impl<'a> Caller<'a> {
    fn tenant(self) -> &'a str {
        match self {
            Caller::Tenant(id) => id,
            Caller::Lane(route) => &route.id,
        }
    }
}

fn is_below(route: &Route, url: &Url) -> bool {
    route.base().is_ok_and(|base| target::relative(&base, url).is_ok())
}

/// A validated request, with its route, limits and deadlines.
pub(crate) struct Outgoing {
    /// The send's number.
    id: u64,
    began: Time,
    /// The number of attempts so far, including those that could not connect.
    tries: u32,
    /// Open while a subscriber wants spans.
    span: Option<Box<tracing::Span>>,
    running: Running,
    prepared: Prepared,
    route: Arc<Route>,
    priority: Priority,
    endpoint: EndpointId,
    /// Points of each kind.
    points: [u32; MAX_COSTS],
    /// The request is sent now or refused; it never waits.
    immediate: bool,
    /// It carries an idempotency key that the vendor reads.
    has_key: bool,
    /// It has given a permit back because its access token expired in the wait, and no exchange has followed yet.
    token_expired: bool,
    on_ambiguous: Option<OnAmbiguous>,
    /// The moment by which the request must have ended.
    deadline: Time,
    /// The moment by which the first exchange must have begun, or any exchange of a stored job. Of other requests it
    /// equals `deadline` until the first permit is asked for, when the time of `Request::max_wait` begins.
    give_up: Time,
    /// The time for each attempt in nanoseconds, if the caller stated no deadline; waits that the vendor or the retry
    /// policy asks for do not count. 0 if the deadline covers all attempts together.
    patience_ns: u64,
    attempt_timeout: Duration,
    notes: Option<Box<Notes>>,
    /// Earlier attempts, if there were any.
    past: Option<Box<AttemptLog>>,
    /// Set for a job of the outbox.
    stored: Option<Box<exchange_record::StoredJob>>,
    /// The breaker's pass for the next exchange or the one in flight, if the host has failed lately. It is kept here,
    /// because a local variable would enlarge the future of every send.
    host_pass: Option<Box<HostPass>>,
}

/// A time in which the vendor was not reached for a stored job, from a connection that failed on, or from a token URL
/// that gave no token for now, without waits for anything else.
#[derive(Clone, Copy)]
struct Outage {
    since: Time,
    /// As `since`, without times in which the job was due and no worker tried it.
    tried_since: Time,
}

/// The earlier attempts of a request.
#[derive(Default)]
struct AttemptLog {
    tried: RetryHistory,
    /// Exchanges that were not sent, or that the vendor said it did not process.
    connects: u32,
    /// Exchanges that were sent and followed by another attempt.
    exchanges: u32,
    records: Vec<AttemptRecord>,
    /// Since when the vendor may have acted: the first exchange that left this open.
    may_have_acted: Option<Since>,
    /// The same of the attempts before a person sent the job's ambiguous letter again: it holds no attempt back, and counts
    /// in the next letter.
    overruled: Option<Since>,
    /// The outage of the host, for a stored job that outlasts it.
    unreachable: Option<Outage>,
    /// Another attempt is due and has not begun.
    again: bool,
}

impl Outgoing {
    /// Validates a request and looks up its route: everything about a send that needs no waiting.
    pub(crate) fn new(
        core: &Core,
        caller: Caller<'_>,
        priority: Priority,
        request: Request,
        immediate: bool,
    ) -> Result<Outgoing, Error> {
        let id = core.telemetry.feed.next_id();
        let tenant = caller.tenant();
        let heard = core.telemetry.feed.is_heard().then(|| (tenant.into(), request.vendor().map(Into::into)));
        let vendor = request.vendor_name();
        // The route whose limits the request counts in.
        let found = match &request.parts.target {
            Target::Path { vendor, .. } => match caller {
                Caller::Lane(route) if route.is_current() && *route.vendor.name == **vendor => Ok(route.clone()),
                _ => core.registry.route(tenant, vendor),
            },
            Target::Url(url) => match caller {
                // If two vendors of a tenant have the same base URL, the lane decides which one is meant.
                Caller::Lane(route) if route.is_current() && is_below(route, url) => Ok(route.clone()),
                _ => core.registry.route_for_url(tenant, url),
            },
        };
        let series = |tenant: &Tenant| core.telemetry.metrics.series(&tenant.id, &tenant.vendor.name);
        let series = found.as_ref().map_or_else(|_| core.telemetry.metrics.unknown(), |route| series(route));
        let outgoing =
            found.and_then(|route| Outgoing::prepare(core, id, route, priority, request, immediate, &series));
        outgoing.map_err(|error| {
            Running::new(series, priority).ended(Some(error.kind()));
            core.telemetry.refused_at_once(core.clock.now(), &error);
            if let Some((tenant, vendor)) = heard {
                let (kind, delivery) = (error.kind(), error.delivery());
                let kind = EventKind::Failed { kind, delivery, attempts: 0, elapsed: Duration::ZERO };
                core.telemetry.feed.say(Event { request_id: Some(id), tenant: Some(tenant), vendor, kind });
            }
            error.named(tenant, vendor.as_deref()).of_request(id)
        })
    }

    fn prepare(
        core: &Core,
        id: u64,
        route: Arc<Route>,
        priority: Priority,
        mut request: Request,
        immediate: bool,
        series: &Series,
    ) -> Result<Outgoing, Error> {
        let now = core.clock.now();
        let deadline = now + request.parts.deadline.unwrap_or(core.egress.default_deadline);
        // A request that may not wait at all goes at once or never, as with `try_send`.
        let immediate = immediate || request.parts.max_wait == Some(Duration::ZERO);
        let is_patient = core.egress.is_patient && request.parts.deadline.is_none();
        let patience_ns = if is_patient { nanos(core.egress.default_deadline) } else { 0 };

        let vendor = &route.vendor;
        let attempt_timeout = request.parts.attempt_timeout.unwrap_or(vendor.attempt_timeout);
        let base = route.base()?;
        let endpoint = match &request.parts.endpoint {
            Some(name) => Some(vendor.endpoint(name)?),
            None if vendor.endpoints.is_empty() => None,
            None => vendor.match_endpoint(request.parts.method.as_str(), request.path_below(&base)?),
        };
        let stated = || request.parts.costs.iter().map(|(kind, units)| (&**kind, *units));
        let counts = |kind: &str| vendor.counts(kind, endpoint.map(|(_, endpoint)| endpoint));
        // A cost of one point is the default of every request, so it is no mistake.
        let mut ignored = stated().filter(|(kind, units)| !counts(kind) && (*units > 1 || *kind != POINTS));
        if let Some((kind, units)) = ignored.next()
            && route.may_log_cost()
        {
            core.telemetry.cost_ignored(id, &route, kind, units);
        }
        let points = endpoint.map_or(&vendor.costs, |(_, endpoint)| &endpoint.costs).of(stated());
        let endpoint = endpoint.map_or(NO_ENDPOINT, |(number, _)| EndpointId::at(number));
        let mut notes = request.parts.notes.take();
        prepared::check_replaced(notes.as_deref(), &route)?;
        if vendor.counts_bytes
            && request.parts.body.bytes().is_none()
            && notes.as_ref().is_none_or(|notes| notes.bytes.is_none())
        {
            return Err(refusal::unknown_size(vendor));
        }
        let has_key = key::add_key(&mut request, &mut notes, &route, &base)?;
        prepared::note_replaced(&request.parts.headers, &route, &mut notes);
        let on_ambiguous = request.parts.on_ambiguous;
        let prepared = Prepared::new(request, &route, &base)?;
        drop(base);
        let running = Running::new(series.clone(), priority);
        core.egress.budgets.request(|| core.registry.dispatch.hash(&route.id, &route.vendor.name), now);
        Ok(Outgoing {
            id,
            began: now,
            tries: 0,
            span: None,
            running,
            prepared,
            route,
            priority,
            endpoint,
            points,
            immediate,
            has_key,
            token_expired: false,
            on_ambiguous,
            deadline,
            give_up: deadline,
            patience_ns,
            attempt_timeout,
            notes,
            past: None,
            stored: None,
            host_pass: None,
        })
    }

    /// Makes the caller's response.
    fn respond(
        &self,
        core: &Core,
        answer: Answer,
        held: Option<PermitGuard>,
        waited: Duration,
        reason: Option<WaitReason>,
        headroom: Option<Headroom>,
    ) -> Response {
        let is_open = held.is_some() && self.route.vendor.settles_by_body();
        let settling = is_open.then(|| Settling {
            meter: Meter::new(&self.route.vendor.dialect, &answer.headers),
            remembers: self.remembers(core),
        });
        let attempts = self.past.as_ref().map_or(0, |past| past.exchanges) + 1;
        Response::new(response::Parts {
            status: answer.status,
            version: answer.version,
            headers: answer.headers,
            body: ResponseBody::new(answer.body, held, self.route.clone(), self.id, attempts).settling(settling),
            waited,
            reason,
            headroom,
            may_have_acted: self.may_have_acted(),
        })
    }

    fn remembers(&self, core: &Core) -> Option<Remembers> {
        core.registry.remembers(&self.route, self.endpoint, self.priority == Priority::High)
    }

    /// Records the units that the exchange takes, or returns them if it did not leave. For a job, the store has
    /// recorded its request and points already, and they are returned when that record is dropped.
    fn remember(&mut self, core: &Core, leaves: bool) {
        if let Some(record) = self.stored.as_mut().and_then(|stored| stored.recorded.as_mut()) {
            record.has_left = leaves;
        }
        if let Some(remembers) = self.remembers(core) {
            let cost = self.whole_cost();
            let used = if self.stored.is_some() { Used::beside_the_record(cost) } else { Used::by_request(cost) };
            remembers.used(&self.route, &if leaves { used } else { used.given_back() });
        }
    }

    /// Corrects the cost of the request to what the response states.
    fn settle(&self, core: &Core, held: &PermitGuard, signals: &Signals) {
        let corrected = held.settled(&plan::settled(&self.route.vendor, &signals.costs, signals.cost));
        if let (Some(corrected), Some(remembers)) = (corrected, self.remembers(core)) {
            remembers.corrected(&self.route, corrected);
        }
    }

    /// Updates the job to the tenant's current configuration before a further attempt, so that URL, credential and
    /// connection settings are of one version. A removed tenant keeps its last one. Returns whether anything has
    /// changed.
    fn renew(&mut self, core: &Core) -> Result<bool, NotSent> {
        let Ok(now) = core.registry.route(&self.route.id, &self.route.vendor.name) else { return Ok(false) };
        if Arc::ptr_eq(&now, &self.route) {
            return Ok(false);
        }
        let has_changed = now.tenant() != self.route.tenant();
        if has_changed {
            let fits = self.prepared.retarget(&self.route, &now, &mut self.notes);
            fits.map_err(|why| self.no_longer_valid(&why))?;
            // A reload may have renumbered the endpoints.
            let known =
                self.route.vendor.endpoint_name(self.endpoint.place()).and_then(|name| now.vendor.endpoint(name).ok());
            let path = self.prepared.path_below_base(&now);
            let found = known.or_else(|| now.vendor.match_endpoint(self.prepared.method().as_str(), &path));
            self.endpoint = found.map_or(NO_ENDPOINT, |(number, _)| EndpointId::at(number));
            // The key stays where it was put. The vendor reads it only if the new entry names that place too.
            let (how, before) = (&now.vendor.idempotency, &self.route.vendor.idempotency);
            let reads_key = how.carrier == before.carrier && self.prepared.takes_key(&now);
            // The key of an exchange that may have taken effect is known only where that exchange went.
            let knows_key = !self.may_have_acted() || key::are_kept_together(&self.route, &now);
            self.has_key &= reads_key && knows_key;
        }
        self.route = now;
        Ok(has_changed)
    }

    /// The error of a request whose path or headers do not fit its tenant's present configuration.
    fn no_longer_valid(&self, why: &str) -> NotSent {
        let why = format_args!("the configuration has changed while the request waited: {why}");
        NotSent::NoLongerFits(self.route.not_sent(ErrorKind::InvalidRequest, why))
    }

    fn permit<'a>(&'a self, core: &'a Core, now: Time) -> impl Future<Output = Result<Grant, Refusal>> + Send + 'a {
        core.registry.acquire(&self.route, None, self.ask(), now, self.running.series())
    }

    #[inline]
    fn ask(&self) -> Ask {
        let retry = self.past.is_some();
        // `max_wait` applies to the first exchange only. What is left after a stored job's `give_up` is for its
        // exchange.
        let give_up = if retry && self.stored.is_none() { self.deadline } else { self.give_up };
        let ask = Egress::ask(self.priority, self.endpoint, self.whole_cost(), give_up, self.attempt_timeout);
        // `max_wait` is a hard bound: pauses do not extend it. An immediate request waits for no pause.
        let waits_for_pauses = !self.immediate && (retry || self.give_up == self.deadline);
        let patience_ns = if waits_for_pauses { self.patience_ns } else { 0 };
        // Jobs that have not begun go back into the store at a shutdown.
        let admitted = retry || self.stored.is_none();
        Ask { immediate: self.immediate, admitted, retry, patience_ns, ..ask }
    }

    fn whole_cost(&self) -> Cost {
        let vendor = &self.route.vendor;
        if !vendor.counts_bytes {
            return Cost::of(self.points);
        }
        let said = self.notes.as_ref().and_then(|notes| notes.bytes);
        let sent = self.prepared.body_bytes().map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        let sent = sent.or(said.map(|(request, _)| request)).unwrap_or(0);
        let received = self.route.expected_answer(sent, said.map(|(_, response)| response));
        Cost::of(self.points).with_bytes(sent, received)
    }

    fn exchange(
        &mut self,
        core: &Core,
        authorization: Option<&Authorization>,
        began: Moment,
    ) -> Result<Exchange, NotSent> {
        if began.at >= self.deadline {
            // The permit was granted in time, but its future was polled too late.
            return Err(Refusal::Deadline.into());
        }
        if !self.may_begin(began) {
            return Err(NotSent::KeyForgotten);
        }
        let ends = self.deadline.min(began.at + self.attempt_timeout);
        let signer = core.egress.signers.get(&*self.route.vendor.name).map(|signer| &**signer);
        let attempt = Attempt { authorization, signer, wall: began.wall, deadline: core.clock.instant(ends) };
        let as_not_sent = |error: Error| match error.kind() {
            ErrorKind::Credential => NotSent::Credential(error),
            _ => NotSent::Invalid(error),
        };
        self.prepared.exchange(&self.route, attempt).map_err(as_not_sent)
    }

    /// Whether the signer took longer than the limits allow for transit after the connect (`max_transit`). They would
    /// no longer count the request when it arrives, so it needs a new permit and a new signature.
    fn was_signed_late(&self, core: &Core, began: Time) -> bool {
        let vendor = &self.route.vendor;
        let longest = vendor.max_transit.saturating_sub(vendor.connect_timeout).max(SIGNING);
        core.egress.signers.contains_key(&*vendor.name) && core.clock.now().since(began) > longest
    }
}

/// The time that a signer may take under any configuration.
const SIGNING: Duration = Duration::from_millis(100);
