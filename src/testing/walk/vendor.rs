//! The simulated vendor of a case, and a [`Transport`] to it on virtual time.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use http::HeaderMap;
use parking_lot::Mutex;

use super::announce::{self, Announced, AnswerParts, Refusal, Shown, Truth};
use super::case::{Case, shares};
use super::plan::{Timeline, WAY};
use crate::BoxFuture;
use crate::ErrorKind;
use crate::clock::{Clock, Time, nanos};
use crate::config::Scope;
use crate::testing::{Call, ScriptedVendor};
use crate::transport::{Answer, AnswerBody, Exchange, Sent, Transport, TransportError};

/// The header that names the class of a request.
pub(super) const MARK: &str = "x-walk";
/// The tenant of the other user, which no client has.
const OTHER: u32 = 1_000;

/// A request that left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    pub(super) at: u64,
    pub(super) call: Call,
    /// Whether the request was admitted when it arrived.
    pub(super) admitted: bool,
}

/// What an answer announced about the walked limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedState {
    /// When the client got the answer.
    pub(super) at: u64,
    pub(super) call: Call,
    pub(super) remaining: u64,
    pub(super) limit: u64,
    /// When a further unit would be free, by the vendor's knowledge.
    pub(super) regains_at: u64,
    pub(super) resets_at: u64,
}

/// A refusal that stops the client: the accident, which its own count does not explain, or one by the walked limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accident {
    pub(super) heard_at: u64,
    pub(super) call: Call,
    /// How long the vendor asks to wait, in nanoseconds.
    pub(super) asks: Option<u64>,
}

/// The record of a case.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) departures: Vec<Departure>,
    pub(super) reports: Vec<ReportedState>,
    /// The refusals other than the accident: the time, and the index of the limit that refused.
    pub(super) refusals: Vec<(u64, usize)>,
    pub(super) accident: Option<Accident>,
    /// The refusals by the walked limit, from when they left the vendor.
    pub(super) stops: Vec<Accident>,
}

pub(super) struct State {
    vendor: ScriptedVendor,
    announced: &'static Announced,
    names: Vec<Arc<str>>,
    walked: Option<usize>,
    /// The endpoint and the scope of the walked limit.
    place: (u32, Scope),
    timeline: Timeline,
    next_other: u64,
    other: Call,
    random: Rng,
    has_slots: bool,
    endpoints: Vec<Arc<str>>,
    calls: Vec<Call>,
    /// The endpoints whose requests may meet the accident: those with the fewest other limits of their own, so that it
    /// is clear which limit the accident is about.
    plain: Vec<u32>,
    pub(super) record: Record,
}

/// The transport. Clones share the vendor.
#[derive(Clone)]
pub(super) struct Road {
    pub(super) state: Arc<Mutex<State>>,
    clock: Clock,
    began: Time,
    service: u64,
}

impl Road {
    /// Makes the vendor of `case`. `calls` holds the call of each class of requests. The number of an endpoint is its
    /// index in the entry, from 1.
    pub(super) fn new(case: &Case, timeline: Timeline, calls: Vec<Call>) -> Road {
        let mut vendor = ScriptedVendor::new([]);
        let endpoints: Vec<Arc<str>> = case.vendor.endpoints.iter().map(|endpoint| endpoint.name.clone()).collect();
        for name in &endpoints {
            vendor.endpoint(name);
        }
        case.enforced().into_iter().for_each(|limit| vendor.add(limit));
        let limit = case.limit();
        let endpoint = case.of.and_then(|(endpoint, _)| endpoint).map_or(0, |at| at as u32 + 1);
        let names = vendor.limits().map(|limit| limit.name.clone().unwrap_or_else(|| "".into())).collect();
        let has_slots = case.limits().any(|(_, limit)| super::case::rate(limit).is_none());
        let first = calls.first().copied().unwrap_or(Call { tenant: 0, account: 0, endpoint: 0, cost: 1 });
        let scope = limit.map_or(Scope::Tenant, |limit| limit.scope);
        // If the limit is a tenant's, the other user must be the same tenant to count in it.
        let tenant = if matches!(scope, Scope::Tenant | Scope::Endpoint) { first.tenant } else { OTHER };
        let state = State {
            vendor,
            announced: announce::of(&case.vendor.name),
            names,
            walked: case.number(),
            place: (endpoint, scope),
            next_other: timeline.other_from,
            other: Call { tenant, cost: 1, ..first },
            timeline,
            random: Rng::with_seed(7),
            has_slots,
            endpoints,
            plain: plain(case, &calls),
            calls,
            record: Record::default(),
        };
        let clock = Clock::system();
        Road { state: Arc::new(Mutex::new(state)), clock, began: clock.now(), service: timeline.service_ns }
    }

    /// Nanoseconds since the start of the walk.
    pub(super) fn now(&self) -> u64 {
        nanos(self.clock.now().since(self.began))
    }

    async fn exchange(self, exchange: Exchange) -> Result<Answer, TransportError> {
        let unknown = || TransportError::new(Sent::NotSent, ErrorKind::Protocol, "a request without a class");
        let class = class_of(&exchange.headers).ok_or_else(unknown)?;
        let (number, there, service, back) = {
            let mut state = self.state.lock();
            let call = state.calls.get(class).copied().ok_or_else(unknown)?;
            let at = self.now();
            state.record.departures.push(Departure { at, call, admitted: false });
            let mut some = |mean: u64| state.random.u64(mean / 2..=mean + mean / 2);
            let (there, service, back) = (some(WAY), some(self.service), some(WAY));
            (state.record.departures.len() - 1, there, service, back)
        };
        sleep(there).await;
        let (answer, call, admitted) = self.state.lock().arrive(self.now(), number);
        if self.state.lock().has_slots {
            sleep(service).await;
            if let Some(call) = admitted {
                self.state.lock().vendor.finish(self.now(), call);
            }
            sleep(back).await;
        } else {
            sleep(service + back).await;
        }
        self.state.lock().record_report(self.now(), call, &answer);
        let SentAnswer { parts, .. } = answer;
        let body = AnswerBody::from_bytes(parts.body, u64::MAX, exchange.deadline);
        Ok(Answer::new(parts.status, parts.headers, body))
    }
}

impl Transport for Road {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        Box::pin(self.clone().exchange(exchange))
    }
}

/// Computes [`State::plain`].
fn plain(case: &Case, calls: &[Call]) -> Vec<u32> {
    let walked = case.of.and_then(|(endpoint, _)| endpoint).map(|at| at as u32 + 1);
    let counts = |call: &&Call| walked.is_none_or(|endpoint| call.endpoint == endpoint);
    let mut endpoints: Vec<u32> = calls.iter().filter(counts).map(|call| call.endpoint).collect();
    let own = |endpoint: u32| {
        let limits = case.limits().zip(0..).filter(|((of, _), number)| of.is_some() && case.number() != Some(*number));
        limits.filter(|((of, _), _)| of.map(|at| at as u32 + 1) == Some(endpoint)).count()
    };
    let fewest = endpoints.iter().map(|endpoint| own(*endpoint)).min();
    endpoints.retain(|endpoint| Some(own(*endpoint)) == fewest);
    endpoints
}

async fn sleep(ns: u64) {
    tokio::time::sleep(Duration::from_nanos(ns)).await;
}

fn class_of(headers: &HeaderMap) -> Option<usize> {
    headers.get(MARK)?.to_str().ok()?.parse().ok()
}

/// An answer, and what it says about the walked limit.
struct SentAnswer {
    parts: AnswerParts,
    of_walked: Option<Shown>,
    is_accident: bool,
}

impl State {
    /// Whether the walked limit counts the call.
    pub(super) fn counts(&self, call: &Call) -> bool {
        self.walked.is_some() && (self.place.0 == 0 || self.place.0 == call.endpoint)
    }

    /// Whether the walked limit counts two calls together.
    pub(super) fn counts_with(&self, call: &Call, other: &Call) -> bool {
        let both = [call, other].map(|call| (call.tenant, call.account));
        let same_endpoint = self.place.1 != Scope::Endpoint || call.endpoint == other.endpoint;
        self.counts(call) && self.counts(other) && same_endpoint && shares(self.place.1, both[0], both[1])
    }

    /// A call of the other user.
    pub(super) fn other(&self) -> Call {
        self.other
    }

    /// Makes the other user's calls up to now.
    fn others(&mut self, now: u64) {
        while self.next_other <= now && self.next_other < self.timeline.other_until && self.timeline.other_every > 0 {
            let verdict = self.vendor.arrive(self.next_other, &self.other);
            self.vendor.finish(self.next_other, verdict.call);
            self.next_other += self.timeline.other_every;
        }
    }

    fn arrive(&mut self, now: u64, number: usize) -> (SentAnswer, Call, Option<u64>) {
        self.others(now);
        let call = self.record.departures[number].call;
        let is_accident = self.record.accident.is_none()
            && now >= self.timeline.accident_at
            && (self.counts(&call) || self.walked.is_none())
            && self.plain.contains(&call.endpoint);
        if is_accident {
            self.record.accident = Some(Accident { heard_at: u64::MAX, call, asks: None });
            let until = now + self.timeline.asks_ns;
            let limit = self.walked.and_then(|at| self.names.get(at)).cloned().unwrap_or_else(|| "".into());
            let refusal = Refusal { limit: &limit, until, accident: true };
            return (self.compose_answer(now, &call, Some(refusal), true), call, None);
        }
        let verdict = self.vendor.arrive(now, &call);
        self.record.departures[number].admitted = verdict.admitted;
        if verdict.admitted {
            return (self.compose_answer(now, &call, None, false), call, Some(verdict.call));
        }
        let by = verdict.refused_by.unwrap_or_default();
        self.record.refusals.push((now, by));
        let limit = self.names.get(by).cloned().unwrap_or_else(|| "".into());
        // A slot is free when another request ends, which is unknown; a second is a guess.
        let until = verdict.retry_at_ns.unwrap_or(now + 1_000_000_000);
        let refusal = Refusal { limit: &limit, until, accident: false };
        let spoken = self.compose_answer(now, &call, Some(refusal), false);
        if self.walked == Some(by) {
            self.record.stops.push(Accident { heard_at: now, call, asks: spoken.parts.asks });
        }
        (spoken, call, None)
    }

    fn compose_answer(&mut self, now: u64, call: &Call, refusal: Option<Refusal<'_>>, is_accident: bool) -> SentAnswer {
        let shown: Vec<Shown> = self.vendor.stated(now, call).into_iter().map(Shown::from).collect();
        let endpoint = (call.endpoint as usize).checked_sub(1).and_then(|at| self.endpoints.get(at));
        let truth = Truth { at: now, cost: call.cost, endpoint: endpoint.map(|name| &**name), limits: &shown, refusal };
        let parts = self.announced.compose(&truth);
        let walked = self.walked.and_then(|at| self.names.get(at));
        let reported = parts.reported.iter().filter_map(|at| shown.get(*at));
        let of_walked = reported.into_iter().find(|shown| Some(&shown.name) == walked).cloned();
        SentAnswer { parts, of_walked, is_accident }
    }

    /// Records that the client has the answer.
    fn record_report(&mut self, now: u64, call: Call, spoken: &SentAnswer) {
        if spoken.is_accident
            && let Some(accident) = &mut self.record.accident
        {
            (accident.heard_at, accident.asks) = (now, spoken.parts.asks);
        }
        if let Some(shown) = &spoken.of_walked {
            let Shown { limit, remaining, oldest_at, reset_at, .. } = *shown;
            let (regains_at, resets_at) = (oldest_at, reset_at);
            self.record.reports.push(ReportedState { at: now, call, remaining, limit, regains_at, resets_at });
        }
    }
}
