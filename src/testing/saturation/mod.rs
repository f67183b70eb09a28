//! Runs one lane that always has more to send against a vendor that judges arrivals by its own algorithm, on virtual
//! time. Measures how many requests are refused, and how much of what the vendor would have admitted is used.
//!
//! The vendor knows when requests arrive; the engine knows when it granted them and when they were answered. Nothing is
//! stored for each request, so a run may be of any length. The same seed gives the same trace.

mod bound;
mod case;
mod key;
mod sharing;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use fastrand::Rng;

pub use case::{Case, Counting, LimitScope, Travel};
pub use key::{LimitChange, Other, Reset, SharedKey, StatedHeaders, Usage};
pub use sharing::{Cell, Figures, Run as CellRun, Scene};

use super::limit::Limiter;
use crate::Error;
use crate::clock::Time;
use crate::config::Tenant;
use crate::dispatch::plan::{Plans, Policy};
use crate::engine::keys::{LaneKey, PermitKey};
use crate::engine::plan::EndpointId;
use crate::engine::throttle::Report;
use crate::engine::tier::Tier;
use crate::engine::{Answer, Ask, Attempt, Bound, Claim, Engine, Refusal, Sweep};

/// The start of the virtual clock, later than 0 so that there are earlier times.
const START: u64 = 3_600_000_000_000;
/// The number of requests that always wait.
const QUEUE: usize = 6;
/// The error of the window's end that a vendor announces, in nanoseconds.
const PHASE_ERROR: u64 = 2_000_000;
/// How long a caller waits for an answer that never comes, in nanoseconds.
const PATIENCE: u64 = 400_000_000;

/// The result of a [`Case`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that the vendor refused.
    pub refused: u64,
    /// Admitted requests, in percent of those that a client could have sent that knows the vendor's state and has no
    /// latency.
    pub share: f64,
    /// The same percentage for a client that knows the vendor's phase and the arrival of each request, but not the
    /// latency of the next request.
    pub oracle: f64,
    /// The number of the engine's decisions: whether a request may go, and how one ended.
    pub decisions: u64,
    /// A hash of all arrivals.
    pub trace: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(PermitKey),
    /// The answer is back; it may announce in how many nanoseconds the vendor's window ends.
    Answer(PermitKey, Option<u64>),
    /// The caller went away.
    Abandon(PermitKey),
    /// Nothing was sent.
    NotSent(PermitKey),
    Sweep,
    Reload,
    /// There are requests to send again.
    Resume,
}

struct Run {
    case: Case,
    seed: u64,
    engine: Engine,
    lanes: Vec<LaneKey>,
    plans: Plans,
    policy: Policy,
    /// The configuration, and a tighter one for reloads.
    tenants: [Vec<Arc<Tenant>>; 2],
    version: u64,
    limiter: Limiter,
    random: Rng,
    now: u64,
    /// How far the engine's clock is behind, in nanoseconds.
    behind: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    waiting: usize,
    /// Whether there is nothing to send for now.
    idle: bool,
    granted: u64,
    arrived: u64,
    refused: u64,
    last_arrival: u64,
    decisions: u64,
    hasher: DefaultHasher,
}

/// Runs a case until `requests` have arrived.
///
/// # Errors
/// The case's figures are not a valid configuration.
///
/// # Panics
/// When the engine violates its own rules, which is a finding.
pub fn saturate(case: &Case, requests: u64, seed: u64) -> Result<Outcome, Error> {
    let mut run = Run::new(case, seed)?;
    run.go(requests);
    let end = case.vendor_time(run.last_arrival - START, seed);
    let most = bound::greedy(case.limiter(seed), end);
    let oracle = bound::oracle(case, seed, requests.min(100_000));
    Ok(Outcome {
        requests: run.arrived,
        refused: run.refused,
        share: 100.0 * (run.arrived - run.refused) as f64 / most.max(1) as f64,
        oracle,
        decisions: run.decisions,
        trace: run.hasher.finish(),
    })
}

impl Run {
    fn new(case: &Case, seed: u64) -> Result<Run, Error> {
        let tenants = [case.tenants(case.limit, 1)?, case.tenants((case.limit / 2).max(1), 1)?];
        let mut run = Run {
            case: case.clone(),
            seed,
            engine: Engine::new(Bound::new(u32::MAX), Default::default()),
            lanes: Vec::new(),
            plans: Plans::default(),
            policy: Policy { max_waiting: u32::MAX, guard: case.guarded, ..Policy::USUAL },
            tenants,
            version: 0,
            limiter: case.limiter(seed),
            random: Rng::with_seed(seed),
            now: START,
            behind: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            waiting: 0,
            idle: false,
            granted: 0,
            arrived: 0,
            refused: 0,
            last_arrival: START,
            decisions: 0,
            hasher: DefaultHasher::new(),
        };
        run.upsert();
        if case.troubled {
            run.happens(run.now + 50_000_000, Event::Sweep);
            run.happens(run.now + 3 * case.window_ns(), Event::Reload);
        }
        Ok(run)
    }

    fn upsert(&mut self) {
        let now = self.clock();
        let tenants = &self.tenants[(self.version % 2) as usize];
        self.lanes.clear();
        for tenant in tenants {
            let plan = self.plans.of(tenant, &self.policy);
            let lane = self.engine.upsert(now, &tenant.id, &tenant.account, &plan, None);
            self.lanes.push(lane);
        }
    }

    /// The time of the engine's clock.
    fn clock(&self) -> Time {
        Time::from_nanos(self.now - self.behind)
    }

    fn happens(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn chance(&mut self, of_ten_thousand: u32) -> bool {
        self.case.troubled && self.random.u32(0..10_000) < of_ten_thousand
    }

    fn go(&mut self, requests: u64) {
        while self.arrived < requests {
            self.fill();
            self.pick_up();
            let timer = self.engine.poll_timeout().map_or(u64::MAX, |at| at.as_nanos().saturating_add(self.behind));
            let event = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            assert!(timer.min(event) < u64::MAX, "nothing will ever happen again: {:?}", self.case);
            if timer < event {
                self.now = self.now.max(timer);
                self.decisions += 1;
                self.engine.poll(self.clock());
            } else if let Some(Reverse((at, _, event))) = self.events.pop() {
                self.now = self.now.max(at);
                self.happen(event);
            }
        }
    }

    /// Submits requests so that some always wait.
    fn fill(&mut self) {
        while self.waiting < QUEUE && !self.idle {
            let tier = self.case.tier.unwrap_or(Tier::ALL[(self.granted % 3) as usize]);
            let ask = unhurried(tier, self.case.endpoint());
            let lane = self.lanes[(self.granted as usize + self.waiting) % self.lanes.len()];
            self.decisions += 1;
            match self.engine.submit(self.clock(), lane, &ask) {
                Answer::Granted(permit) => self.start(permit),
                Answer::Wait { .. } => self.waiting += 1,
                Answer::Refused(refusal) => {
                    assert!(matches!(refusal, Refusal::NoLane), "there is room in the queues: {refusal:?}");
                    self.upsert();
                }
            }
        }
    }

    fn pick_up(&mut self) {
        while !self.engine.is_quiet() {
            for waiter in self.engine.woken().collect::<Vec<_>>() {
                self.decisions += 1;
                match self.engine.claim(self.clock(), waiter) {
                    Claim::Started(permit, _) => {
                        self.waiting -= 1;
                        self.start(permit);
                    }
                    Claim::Waiting => {}
                    // The lane is gone, so the request is submitted again.
                    Claim::Refused(_) => self.waiting -= 1,
                }
            }
        }
    }

    fn start(&mut self, permit: PermitKey) {
        self.granted += 1;
        if self.chance(20) {
            return self.happens(self.now + 1_000_000, Event::NotSent(permit));
        }
        let to_vendor = self.case.travel.there(&mut self.random, self.now - START);
        if self.chance(20) {
            let gone = self.random.u64(0..=to_vendor);
            self.happens(self.now + gone, Event::Abandon(permit));
        }
        self.happens(self.now + to_vendor, Event::Arrive(permit));
        if self.chance(5) {
            // The machine's clock is set back, or stands still.
            self.behind += self.random.u64(0..20_000_000);
        }
        if self.chance(2) {
            self.idle = true;
            self.happens(self.now + 3 * self.case.window_ns(), Event::Resume);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(permit) => self.arrive(permit),
            Event::Answer(permit, window_ends) => {
                self.decisions += 1;
                let now = self.clock();
                if window_ends.is_some() {
                    let report = Report { limit: self.case.limit.into(), reset_ns: window_ends, ..Report::default() };
                    self.engine.window_ends(now, permit, &report, PHASE_ERROR);
                }
                self.engine.answered(now, permit);
                self.engine.finished(now, permit);
            }
            Event::Abandon(permit) => {
                self.decisions += 1;
                self.engine.abandoned(self.clock(), permit);
            }
            Event::NotSent(permit) => {
                self.decisions += 1;
                self.engine.not_sent(self.clock(), permit);
            }
            Event::Sweep => {
                let now = self.clock();
                std::iter::successors(Some(Sweep::START), |from| self.engine.sweep(now, *from, 3, true)).last();
                self.happens(self.now + 50_000_000, Event::Sweep);
            }
            Event::Reload => {
                self.version += 1;
                self.upsert();
                self.happens(self.now + 3 * self.case.window_ns(), Event::Reload);
            }
            Event::Resume => self.idle = false,
        }
    }

    fn arrive(&mut self, permit: PermitKey) {
        let at = self.case.vendor_time(self.now - START, self.seed);
        let admitted = self.limiter.arrive(at, 1);
        self.arrived += 1;
        self.refused += u64::from(!admitted);
        self.last_arrival = self.now;
        (self.now, admitted).hash(&mut self.hasher);
        let ends = self.case.counting.tells_phase().then(|| self.limiter.reading(at).reset_at_ns.saturating_sub(at));
        let back = self.case.travel.back(&mut self.random);
        if self.chance(20) {
            self.happens(self.now + PATIENCE, Event::Abandon(permit));
        } else {
            self.happens(self.now + back, Event::Answer(permit, ends));
        }
    }
}

/// A request of one unit whose caller waits for ever.
fn unhurried(tier: Tier, endpoint: EndpointId) -> Ask {
    Ask::new(tier, endpoint, 1, Attempt::within(30_000_000_000))
}
