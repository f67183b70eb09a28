//! A simulation around the engine: vendors that judge arrivals, a network with delays and losses, callers that cancel,
//! and time that advances to the next event. Thousands of hours take seconds; the same seed gives the same trace.
//!
//! The engine is the one that a client runs, with plans compiled from the same configuration. It learns only what a
//! client learns: its own grants, and the answers when they are back. The vendor learns only arrivals.

mod results;
mod story;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

pub use self::story::{Arrival, End, Granted, Job, Network};
use super::checker::Event as Arrived;
use super::{Call, ScriptedVendor};
use crate::Error;
use crate::clock::{Time, nanos};
use crate::config::{Config, Sources, Tenant};
use crate::dispatch::plan::{Plans, Policy};
use crate::engine::keys::{LaneKey, PermitKey, WaiterKey};
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::engine::slab::Key;
use crate::engine::{Answer, Ask, Attempt, Bound, Claim, Engine, Sweep, Until};

/// The start of the virtual clock, later than 0 so that there are earlier times.
const START: Time = Time::from_nanos(3_600_000_000_000);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Happening {
    PickUp(usize),
    Cancel(usize),
    Arrive(usize),
    Serve { arrival: usize, call: u64 },
    Answer(usize),
    Abandon(usize),
    Fail(usize),
    Reload(usize),
    Sweep,
}

#[derive(Debug)]
struct State {
    job: Job,
    waiter: Option<WaiterKey>,
    permit: Option<PermitKey>,
    end: Option<End>,
    /// The time that the engine promised when the job began to wait.
    promised: Option<Until>,
}

/// The engine, a vendor, and all that is between them.
pub struct World {
    engine: Engine,
    vendor: ScriptedVendor,
    config: Config,
    plans: Plans,
    policy: Policy,
    tenants: Vec<Arc<Tenant>>,
    accounts: Vec<u32>,
    lanes: Vec<LaneKey>,
    network: Network,
    rng: Rng,
    now: Time,
    /// Jobs to be submitted, sorted by time from `submitted` on; a heap of all of them would take most of the time of a
    /// long simulation.
    submissions: Vec<(Time, usize)>,
    submitted: usize,
    happenings: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    sequence: u64,
    jobs: Vec<State>,
    woken: Vec<WaiterKey>,
    /// The job of each waiter, by the waiter's index.
    waiting: Vec<usize>,
    sources: Vec<Sources>,
    sweep_every: Option<Duration>,
    grants: Vec<Granted>,
    arrivals: Vec<Arrival>,
    decisions: u64,
    early: usize,
}

impl World {
    /// A world with the tenants of a configuration. The vendor's limits are given separately: they are the truth, and
    /// the configuration is what the client believes.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(sources: Sources, vendor: ScriptedVendor, seed: u64) -> Result<World, Error> {
        let config = Config::load(&sources, 1)?;
        let mut world = World {
            engine: Engine::new(Bound::new(u32::MAX), Default::default()),
            vendor,
            config,
            plans: Plans::default(),
            policy: Policy { max_waiting: u32::MAX, ..Policy::USUAL },
            tenants: Vec::new(),
            accounts: Vec::new(),
            lanes: Vec::new(),
            network: Network::default(),
            rng: Rng::with_seed(seed),
            now: START,
            submissions: Vec::new(),
            submitted: 0,
            happenings: BinaryHeap::new(),
            sequence: 0,
            jobs: Vec::new(),
            woken: Vec::new(),
            waiting: Vec::new(),
            sources: Vec::new(),
            sweep_every: None,
            grants: Vec::new(),
            arrivals: Vec::new(),
            decisions: 0,
            early: 0,
        };
        world.settle_tenants();
        Ok(world)
    }

    /// The network between client and vendor.
    #[must_use]
    pub fn network(mut self, network: Network) -> World {
        self.network = network;
        self
    }

    /// Switches the guards off, to check that the checker then finds the violations that they prevent.
    #[must_use]
    pub fn without_guard(mut self) -> World {
        self.policy.guard = false;
        self.plans = Plans::default();
        self.settle_tenants();
        self
    }

    /// Drops idle lanes at this interval.
    #[must_use]
    pub fn evicting_every(mut self, interval: Duration) -> World {
        self.sweep_every = Some(interval);
        self.happens(START + interval, Happening::Sweep);
        self
    }

    /// The tenants, sorted by id.
    pub fn tenants(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tenants.iter().map(|tenant| &*tenant.id)
    }

    fn settle_tenants(&mut self) {
        self.tenants = self.config.tenants().cloned().collect();
        self.tenants.sort_by(|a, b| a.id.cmp(&b.id));
        let mut accounts: Vec<&Arc<str>> = self.tenants.iter().map(|tenant| &tenant.account).collect();
        accounts.sort();
        accounts.dedup();
        let number = |tenant: &Arc<Tenant>| accounts.binary_search(&&tenant.account).unwrap_or_default() as u32;
        self.accounts = self.tenants.iter().map(number).collect();
        self.lanes = (0..self.tenants.len()).map(|_| Key::NONE).collect();
        for tenant in 0..self.tenants.len() {
            self.lane(tenant);
        }
    }

    /// Creates or updates the lane of a tenant.
    fn lane(&mut self, tenant: usize) -> LaneKey {
        let inside = &self.tenants[tenant];
        let plan = self.plans.of(inside, &self.policy);
        let lane = self.engine.upsert(self.now, &inside.id, &inside.account, &plan, None);
        self.lanes[tenant] = lane;
        lane
    }

    /// Submits `job` at `at`. Returns the job's number.
    pub fn submit(&mut self, at: Duration, job: Job) -> usize {
        let number = self.jobs.len();
        self.jobs.push(State { job, waiter: None, permit: None, end: None, promised: None });
        self.submissions.push((START + at, number));
        number
    }

    /// Replaces the configuration at `at`; the tenants must be the same.
    pub fn reload(&mut self, at: Duration, sources: Sources) {
        self.sources.push(sources);
        self.happens(START + at, Happening::Reload(self.sources.len() - 1));
    }

    fn happens(&mut self, at: Time, what: Happening) {
        self.sequence += 1;
        self.happenings.push(Reverse((at, self.sequence, what)));
    }

    fn after(&mut self, range: &RangeInclusive<Duration>) -> Time {
        let (from, to) = (nanos(*range.start()), nanos(*range.end()));
        self.now.plus_nanos(if to > from { self.rng.u64(from..=to) } else { from })
    }

    fn chance(&mut self, of_thousand: u32) -> bool {
        of_thousand > 0 && self.rng.u32(0..1000) < of_thousand
    }

    /// Runs the simulation until `until`.
    ///
    /// # Errors
    /// A configuration of a [`reload`](World::reload) is invalid.
    ///
    /// # Panics
    /// When the engine violates its own rules: a job that ends twice, or a poll time that is not later than now. These
    /// are findings of a test.
    pub fn run(&mut self, until: Duration) -> Result<(), Error> {
        let until = START + until;
        // A stable sort: jobs of the same time stay in the order of their submission.
        self.submissions[self.submitted..].sort_by_key(|(at, _)| *at);
        loop {
            if !self.engine.is_quiet() {
                self.hear();
            }
            let timeout = self.engine.poll_timeout().unwrap_or(Time::MAX);
            assert!(
                timeout > self.now,
                "the engine asks to be polled at {timeout:?}, which is not after {:?}",
                self.now
            );
            let submission = self.submissions.get(self.submitted).map_or(Time::MAX, |(at, _)| *at);
            let happening = self.happenings.peek().map_or(Time::MAX, |Reverse((at, _, _))| *at);
            let outside = submission.min(happening);
            let next = timeout.min(outside);
            if next > until {
                self.now = self.now.max(until);
                return Ok(());
            }
            self.now = self.now.max(next);
            // Timers of the engine run before events of the same time.
            if timeout <= outside {
                self.decisions += 1;
                self.engine.poll(next);
            } else if submission <= happening {
                let (_, job) = self.submissions[self.submitted];
                self.submitted += 1;
                self.ask(job);
            } else if let Some(Reverse((_, _, what))) = self.happenings.pop() {
                self.happen(what)?;
            }
        }
    }

    /// Runs until no event is left, however long that takes.
    ///
    /// # Errors
    /// As [`run`](World::run).
    pub fn run_to_end(&mut self) -> Result<(), Error> {
        let year = Duration::from_secs(366 * 86_400);
        self.sweep_every = None;
        self.run(year)
    }

    /// Lets the woken waiters claim their permits, now or after the pick-up time.
    fn hear(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        woken.extend(self.engine.woken());
        for waiter in woken.drain(..) {
            let job = self.waiting[waiter.index as usize];
            if nanos(*self.network.pick_up.end()) == 0 {
                self.pick_up(job);
            } else {
                let at = self.after(&self.network.pick_up.clone());
                self.happens(at, Happening::PickUp(job));
            }
        }
        self.woken = woken;
    }

    fn happen(&mut self, what: Happening) -> Result<(), Error> {
        match what {
            Happening::PickUp(job) => self.pick_up(job),
            Happening::Cancel(job) => {
                if let Some(waiter) = self.jobs[job].waiter.take() {
                    self.engine.cancel(self.now, waiter);
                    self.end(job, End::Cancelled);
                }
            }
            Happening::Arrive(job) => self.arrive(job),
            Happening::Serve { arrival, call } => {
                let now = self.now.since(START);
                self.vendor.finish(nanos(now), call);
                self.arrivals[arrival].event.end_ns = nanos(now);
            }
            Happening::Answer(job) => self.answer(job),
            Happening::Abandon(job) => {
                if let Some(permit) = self.jobs[job].permit.take() {
                    self.decisions += 1;
                    self.engine.abandoned(self.now, permit);
                }
            }
            Happening::Fail(job) => {
                if let Some(permit) = self.jobs[job].permit.take() {
                    self.decisions += 1;
                    self.engine.not_sent(self.now, permit);
                    self.end(job, End::NotSent);
                }
            }
            Happening::Reload(number) => {
                self.config = self.config.reload(&self.sources[number])?;
                self.settle_tenants();
            }
            Happening::Sweep => {
                std::iter::successors(Some(Sweep::START), |from| self.engine.sweep(self.now, *from, 3, true)).last();
                if let Some(interval) = self.sweep_every {
                    self.happens(self.now + interval, Happening::Sweep);
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self, number: usize) {
        let job = &self.jobs[number].job;
        let (tenant, vendor) = (job.tenant, &self.tenants[job.tenant].vendor);
        let endpoint = job.endpoint.as_deref().and_then(|name| vendor.endpoint(name).ok());
        let endpoint = endpoint.map_or(NO_ENDPOINT, |(number, _)| EndpointId::at(number));
        let ask = Ask::new(job.priority.into(), endpoint, job.cost, Attempt::within(nanos(vendor.attempt_timeout)));
        let ask = Ask { give_up: self.now + job.patience, ..ask };
        self.decisions += 1;
        let mut answer = self.engine.submit(self.now, self.lanes[tenant], &ask);
        if let Answer::Refused(crate::engine::Refusal::NoLane) = answer {
            let lane = self.lane(tenant);
            answer = self.engine.submit(self.now, lane, &ask);
        }
        match answer {
            Answer::Granted(permit) => self.start(number, permit),
            Answer::Refused(_) => self.end(number, End::NotAdmitted),
            Answer::Wait { waiter, until, .. } => {
                let index = waiter.index as usize;
                if self.waiting.len() <= index {
                    self.waiting.resize(index + 1, usize::MAX);
                }
                self.waiting[index] = number;
                self.jobs[number].waiter = Some(waiter);
                self.jobs[number].promised = Some(until);
                if self.chance(self.network.cancelled) {
                    let at = self.now.plus_nanos(self.rng.u64(0..2_000_000_000));
                    self.happens(at, Happening::Cancel(number));
                }
            }
        }
    }

    fn pick_up(&mut self, job: usize) {
        let Some(waiter) = self.jobs[job].waiter else { return };
        self.decisions += 1;
        match self.engine.claim(self.now, waiter) {
            Claim::Started(permit, _) => {
                self.jobs[job].waiter = None;
                if let Some(Until::At(at)) = self.jobs[job].promised {
                    self.early += usize::from(self.now < at);
                }
                self.start(job, permit);
            }
            // The grant was withdrawn; the waiter will be woken again.
            Claim::Waiting => {}
            Claim::Refused(_) => {
                self.jobs[job].waiter = None;
                self.end(job, End::NotAdmitted);
            }
        }
    }

    /// Starts the exchange: the request is on its way.
    fn start(&mut self, number: usize, permit: PermitKey) {
        let State { job, permit: slot, .. } = &mut self.jobs[number];
        *slot = Some(permit);
        let (at, tenant, priority) = (self.now.since(START), job.tenant, job.priority);
        self.grants.push(Granted { at, job: number, tenant, priority });
        if self.chance(self.network.not_sent) {
            return self.happens(self.now.plus_nanos(1_000_000), Happening::Fail(number));
        }
        let arrives = self.after(&self.network.to_vendor.clone());
        // An exchange without a delay arrives at once.
        if arrives == self.now && self.network.abandoned == 0 {
            return self.arrive(number);
        }
        self.happens(arrives, Happening::Arrive(number));
        if self.chance(self.network.abandoned) {
            let at = self.now.plus_nanos(self.rng.u64(0..=arrives.since(self.now).as_nanos() as u64));
            self.happens(at, Happening::Abandon(number));
        }
    }

    fn arrive(&mut self, number: usize) {
        let job = &self.jobs[number].job;
        let endpoint = job.endpoint.as_ref().map_or(0, |name| self.vendor.endpoint(name));
        let (tenant, account) = (job.tenant, self.accounts[job.tenant]);
        let call = Call { tenant: tenant as u32, account, endpoint, cost: job.cost };
        let at = nanos(self.now.since(START));
        let verdict = self.vendor.arrive(at, &call);
        let event = Arrived::at(at).cost(job.cost);
        self.arrivals.push(Arrival { event, tenant, account, endpoint, admitted: verdict.admitted });
        let served = self.after(&self.network.service.clone());
        if verdict.admitted {
            let arrival = self.arrivals.len() - 1;
            if served > self.now {
                self.happens(served, Happening::Serve { arrival, call: verdict.call });
            } else {
                self.vendor.finish(at, verdict.call);
                self.arrivals[arrival].event.end_ns = at;
            }
        }
        self.end(number, if verdict.admitted { End::Admitted } else { End::Refused });
        if self.chance(self.network.lost_answers) {
            // The caller waits for the answer until the attempt's timeout.
            let lost = self.now + self.tenants[tenant].vendor.attempt_timeout;
            self.happens(lost, Happening::Abandon(number));
        } else {
            let back = self.after(&self.network.from_vendor.clone()).since(self.now);
            if served + back == self.now {
                self.answer(number);
            } else {
                self.happens(served + back, Happening::Answer(number));
            }
        }
    }

    fn answer(&mut self, number: usize) {
        if let Some(permit) = self.jobs[number].permit.take() {
            self.decisions += 2;
            self.engine.answered(self.now, permit);
            self.engine.finished(self.now, permit);
        }
    }

    fn end(&mut self, number: usize, end: End) {
        let job = &mut self.jobs[number];
        assert!(job.end.is_none(), "job {number} ended twice: {:?}, then {end:?}", job.end);
        job.end = Some(end);
    }
}
