//! The state that the vendor's connections share: limits, log, faults and randomness, behind one lock that is held
//! briefly.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::fault::is_below;
use super::log::{Arrival, Fate, Log, Names, Record};
use super::reply::{Delay, Reply};
use super::{FakeVendorBuilder, Fault, HeaderStyle, When};
use crate::clock::{Clock, Time, nanos};
use crate::testing::{Call, Outage, Refusal, ScriptedVendor, VendorLimit, Verdict};

/// The most distinct paths, and the most idempotency keys, in the log. Paths may hold ids, and must not grow the log
/// without bound.
const MAX_PATHS: usize = 65_536;

/// Counts since the start, or since the log was reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests that a limit or a block refused with 429.
    pub refused: u64,
    /// Requests that met an outage.
    pub unavailable: u64,
    /// Requests to a poisoned endpoint.
    pub poisoned: u64,
    /// Calls of other clients, which are in no other count except `foreign_refused` and `not_logged`.
    pub foreign: u64,
    /// Calls of other clients that a limit or a block refused.
    pub foreign_refused: u64,
    /// Admitted requests that met a fault.
    pub faults: u64,
    /// Admitted requests that have ended at the vendor.
    pub finished: u64,
    /// Arrivals that the full log dropped.
    pub not_logged: u64,
}

pub(super) struct Shared {
    pub(super) limits: Vec<VendorLimit>,
    pub(super) endpoints: Vec<(String, String)>,
    accounts: HashMap<String, String>,
    replies: Vec<(String, Reply)>,
    reply: Reply,
    headers: HeaderStyle,
    /// Path prefix and status.
    poisoned: Vec<(String, u16)>,
    arrival: Delay,
    service: Delay,
    departure: Delay,
    clock: Clock,
    started: Time,
    state: Mutex<State>,
    /// Notified when an outage is switched on or off.
    switched: Notify,
}

struct State {
    vendor: ScriptedVendor,
    keys: Names,
    accounts: Names,
    paths: Names,
    idempotency_keys: Names,
    log: Log,
    faults: Vec<(When, Fault)>,
    summary: Summary,
    random: fastrand::Rng,
}

/// The decision about a request.
pub(super) struct Decision {
    call: Call,
    pub(super) verdict: Verdict,
    pub(super) fault: Option<Fault>,
    pub(super) service: Duration,
    /// Ends the request at the vendor when dropped; `None` if the request was not admitted.
    pub(super) under_way: Option<UnderWay>,
}

/// An admitted request that is in flight at the vendor. Dropping it frees its slots, whatever happened to the
/// connection.
pub(super) struct UnderWay {
    shared: Arc<Shared>,
    call: u64,
    record: Option<u64>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let at = self.shared.now();
        state.vendor.finish(at, self.call);
        state.log_foreign();
        state.summary.finished += 1;
        if let Some(record) = self.record {
            state.log.finish(record, at);
        }
    }
}

impl State {
    /// Logs the calls that other clients have made since the last time. Must run after every step of the vendor and
    /// before the request that caused the step is logged, so that the log is in order.
    fn log_foreign(&mut self) {
        let State { vendor, log, summary, paths, idempotency_keys, .. } = self;
        for foreign in vendor.drain_foreign() {
            let fate = Fate::from(&foreign.verdict);
            summary.foreign += 1;
            summary.foreign_refused += u64::from(fate == Fate::Refused);
            log.push(Record {
                at: foreign.at_ns,
                finished: foreign.at_ns,
                key: foreign.call.tenant,
                account: foreign.call.account,
                path: paths.number(""),
                idempotency_key: idempotency_keys.number(""),
                endpoint: foreign.call.endpoint,
                cost: foreign.call.cost,
                status: foreign.verdict.status(),
                fate,
                foreign: true,
            });
        }
    }
}

impl Shared {
    pub(super) fn new(builder: FakeVendorBuilder) -> Shared {
        let mut vendor = ScriptedVendor::new([]).penalty(builder.penalty);
        let longest_first = |a: &str, b: &str| b.len().cmp(&a.len());
        let mut endpoints = builder.endpoints;
        endpoints.sort_by(|a, b| longest_first(&a.1, &b.1));
        let mut replies = builder.replies;
        replies.sort_by(|a, b| longest_first(&a.0, &b.0));
        // Adds the endpoints before the limits, so that an endpoint's number is its index plus one.
        for (name, _) in &endpoints {
            vendor.endpoint(name);
        }
        builder.limits.iter().cloned().for_each(|limit| vendor.add(limit));
        let mut poisoned = builder.poisoned;
        poisoned.sort_by(|a, b| longest_first(&a.0, &b.0));
        let claims: HashMap<String, String> = builder.accounts.into_iter().collect();
        let (mut keys, mut accounts) = (Names::default(), Names::default());
        for (key, per_second, from, until) in builder.others {
            let account = accounts.number(claims.get(&key).unwrap_or(&key));
            let call = Call { tenant: keys.number(&key), account, endpoint: 0, cost: 1 };
            vendor = vendor.other_traffic(call, per_second, from, until);
        }
        for (from, until, outage) in builder.outages {
            vendor = vendor.outage(from, until, outage);
        }
        let clock = Clock::system();
        Shared {
            limits: builder.limits,
            endpoints,
            accounts: claims,
            poisoned,
            switched: Notify::new(),
            replies,
            reply: builder.reply,
            headers: builder.headers,
            arrival: builder.arrival,
            service: builder.service,
            departure: builder.departure,
            clock,
            started: clock.now(),
            state: Mutex::new(State {
                vendor,
                keys,
                accounts,
                paths: Names::default(),
                idempotency_keys: Names::default(),
                log: Log::new(builder.log_cap),
                faults: builder.faults,
                summary: Summary::default(),
                random: fastrand::Rng::with_seed(builder.seed),
            }),
        }
    }

    /// Nanoseconds since the server's start.
    fn now(&self) -> u64 {
        nanos(self.clock.now().since(self.started))
    }

    fn draw(&self, delay: Delay) -> Duration {
        if delay.jitter.is_zero() { delay.fixed } else { draw(delay, &mut self.state.lock().random) }
    }

    pub(super) fn arrival_delay(&self) -> Duration {
        self.draw(self.arrival)
    }

    pub(super) fn return_delay(&self) -> Duration {
        self.draw(self.departure)
    }

    pub(super) fn reply_to(&self, path: &str) -> &Reply {
        self.replies.iter().find(|(prefix, _)| is_below(path, prefix)).map_or(&self.reply, |(_, reply)| reply)
    }

    /// Decides about a request that has arrived, and logs it.
    pub(super) fn decide(self: &Arc<Self>, key: &str, path: &str, idempotency_key: &str, cost: u32) -> Decision {
        let account = self.accounts.get(key).map_or(key, |account| account);
        let endpoint = self.endpoints.iter().position(|(_, prefix)| is_below(path, prefix));
        let endpoint = endpoint.map_or(0, |place| place as u32 + 1);
        let mut state = self.state.lock();
        let state = &mut *state;
        // Reads the time under the lock, so that the log is in order.
        let at = self.now();
        let call = Call { tenant: state.keys.number(key), account: state.accounts.number(account), endpoint, cost };
        let poisoned = self.poisoned.iter().find(|(prefix, _)| is_below(path, prefix));
        let verdict = state.vendor.arrive_at(at, &call, poisoned.map(|&(_, status)| status));
        state.log_foreign();
        let mut fault = None;
        if verdict.admitted {
            // Every fault counts the request, not only the first one that applies.
            for (when, candidate) in &mut state.faults {
                if when.strikes(path) {
                    fault = fault.or(Some(*candidate));
                }
            }
        }
        let status = match fault {
            _ if !verdict.admitted => verdict.status(),
            None => self.reply_to(path).status.as_u16(),
            Some(Fault::Status(status)) => status,
            Some(Fault::Stall | Fault::Reset) => 0,
            Some(Fault::SlowBody { .. } | Fault::HalfBody) => 200,
        };
        let record = state.log.push(Record {
            at,
            finished: if verdict.admitted { u64::MAX } else { at },
            key: call.tenant,
            account: call.account,
            path: state.paths.number_within(MAX_PATHS, path),
            idempotency_key: state.idempotency_keys.number_within(MAX_PATHS, idempotency_key),
            endpoint,
            cost,
            status,
            fate: Fate::from(&verdict),
            foreign: false,
        });
        state.summary.arrived += 1;
        match verdict.refusal {
            None => state.summary.admitted += 1,
            Some(Refusal::Limit | Refusal::Blocked) => state.summary.refused += 1,
            Some(Refusal::Poisoned(_)) => state.summary.poisoned += 1,
            Some(Refusal::Outage(_)) => state.summary.unavailable += 1,
        }
        state.summary.faults += u64::from(fault.is_some());
        let service = if verdict.admitted { draw(self.service, &mut state.random) } else { Duration::ZERO };
        let under_way = verdict.admitted.then(|| UnderWay { shared: self.clone(), call: verdict.call, record });
        Decision { call, verdict, fault, service, under_way }
    }

    /// The headers of the answer to a request if it leaves now.
    pub(super) fn headers(&self, decision: &Decision) -> HeaderMap {
        // An outage may set headers even in the silent style.
        if self.headers == HeaderStyle::Silent && decision.verdict.admitted {
            return HeaderMap::new();
        }
        let mut state = self.state.lock();
        let notice = state.vendor.notice(self.now(), &decision.call, &decision.verdict);
        state.log_foreign();
        drop(state);
        // Reads the wall clock after the other clock, so that a date is late rather than early.
        self.headers.headers(&notice, self.clock.wall())
    }

    pub(super) fn set_outage(&self, outage: Option<Outage>) {
        self.state.lock().vendor.set_outage(outage);
        // `Notify` keeps the notification until a task waits for it.
        self.switched.notify_one();
    }

    /// Whether connections are refused now.
    pub(super) fn refuses(&self) -> bool {
        self.state.lock().vendor.outage_at(self.now()) == Some(Outage::Refuse)
    }

    /// Waits until an outage may have begun or ended. Only one task may call this.
    pub(super) async fn outage_changes(&self) {
        let next = self.state.lock().vendor.next_outage_change(self.now());
        let clock = self.clock;
        let began_or_ended = async {
            match next {
                Some(at) => tokio::time::sleep_until(clock.instant(self.started.plus_nanos(at))).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.switched.notified() => {}
            () = began_or_ended => {}
        }
    }

    /// The state as of now, with all calls that other clients have made by now.
    fn caught_up(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.vendor.advance(self.now());
        state.log_foreign();
        state
    }

    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        let state = self.caught_up();
        let mut endpoints: Vec<Arc<str>> = vec!["".into()];
        endpoints.extend(self.endpoints.iter().map(|(name, _)| Arc::from(&**name)));
        let arrival = |record: &Record| Arrival {
            at: Time::from_nanos(record.at),
            key: state.keys.text(record.key),
            account: state.accounts.text(record.account),
            path: state.paths.text(record.path),
            idempotency_key: state.idempotency_keys.text(record.idempotency_key),
            endpoint: endpoints.get(record.endpoint as usize).cloned().unwrap_or_default(),
            cost: record.cost,
            admitted: record.fate == Fate::Admitted,
            judged: record.fate != Fate::NotJudged,
            foreign: record.foreign,
            status: record.status,
            finished_at: (record.finished != u64::MAX).then_some(Time::from_nanos(record.finished)),
        };
        state.log.records().iter().map(arrival).collect()
    }

    pub(super) fn summary(&self) -> Summary {
        let state = self.caught_up();
        Summary { not_logged: state.log.dropped(), ..state.summary }
    }

    pub(super) fn reset_log(&self) {
        let mut state = self.caught_up();
        state.log.reset();
        state.summary = Summary::default();
    }

    pub(super) fn add_fault(&self, when: When, fault: Fault) {
        self.state.lock().faults.push((when, fault));
    }

    pub(super) fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }
}

fn draw(delay: Delay, random: &mut fastrand::Rng) -> Duration {
    let jitter = nanos(delay.jitter);
    let extra = if jitter == 0 { 0 } else { random.u64(0..=jitter) };
    delay.fixed.saturating_add(Duration::from_nanos(extra))
}
