//! Runs one key with several users (clients that share nothing but the key, and another user) against a vendor that
//! announces the remaining units in each answer, or announces nothing.
//!
//! All clients always have more to send. Each has an engine of its own; the vendor counts them together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use fastrand::Rng;

use super::{Case, QUEUE, START};
use crate::Error;
use crate::clock::Time;
use crate::config::Tenant;
use crate::dispatch::plan::{Plans, Policy};
use crate::engine::keys::{LaneKey, PermitKey};
use crate::engine::plan::Plan;
use crate::engine::throttle::{About, Report, Wait};
use crate::engine::tier::Tier;
use crate::engine::{Answer, Bound, Claim, Engine, Feedback};
use crate::testing::limit::{Limiter, Reading};

const SECOND: u64 = 1_000_000_000;
/// The longest wait of a client after a refusal that announces none, in nanoseconds.
const LONGEST_GUESS: u64 = 10 * SECOND;

/// What the vendor announces besides the status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StatedHeaders {
    /// Nothing.
    Nothing,
    /// Refusals announce how long to wait, in whole seconds.
    RetryAfter,
    /// Each answer announces what is left and when the limit resets; refusals also announce how long to wait.
    Windows(Reset),
}

/// The form in which a vendor announces the time until the reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reset {
    /// To the nanosecond.
    Exact,
    /// In whole seconds, rounded up.
    RoundedUp,
    /// In whole seconds, rounded down.
    Truncated,
}

impl Reset {
    /// All of them.
    pub const ALL: [Reset; 3] = [Reset::Exact, Reset::RoundedUp, Reset::Truncated];

    fn state(self, nanos: u64) -> u64 {
        match self {
            Reset::Exact => nanos,
            Reset::RoundedUp => nanos.div_ceil(SECOND) * SECOND,
            Reset::Truncated => nanos / SECOND * SECOND,
        }
    }
}

/// Another user of the key, who sends evenly and ignores what the vendor announces.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Other {
    /// The share of the limit that this user asks for.
    pub share: f64,
    /// The first window in which this user sends.
    pub from: u64,
    /// The first window in which this user no longer sends.
    pub until: u64,
}

/// A key and its users.
#[derive(Clone, Debug)]
pub struct SharedKey {
    /// The limit, and the clients' configuration of it.
    pub case: Case,
    /// What the vendor announces.
    pub stated: StatedHeaders,
    /// Clients that share nothing but the key.
    pub clients: usize,
    /// Another user that is no client of this library.
    pub other: Option<Other>,
}

/// The requests of one client, for each window of the limit.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// Admitted requests.
    pub admitted: Vec<u64>,
    /// Refused requests.
    pub refused: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client starts.
    Start(usize),
    Arrive(usize, PermitKey),
    /// The answer with this number is back.
    Answer(usize, PermitKey, usize),
}

struct Client {
    engine: Engine,
    lanes: Vec<LaneKey>,
    waiting: usize,
    has_started: bool,
    granted: u64,
}

struct Run<'a> {
    key: &'a SharedKey,
    seed: u64,
    clients: Vec<Client>,
    limiter: Limiter,
    random: Rng,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    answers: Vec<Feedback>,
    /// Calls of the other user so far.
    others: u64,
    usage: Vec<Usage>,
}

impl SharedKey {
    /// Runs the case for `windows` windows. Returns the usage of each client; the same seed gives the same result.
    ///
    /// # Errors
    /// The case's figures are not a valid configuration.
    pub fn run(&self, windows: u64, seed: u64) -> Result<Vec<Usage>, Error> {
        let mut run = Run::new(self, windows, seed)?;
        run.go(START + windows * self.case.window_ns());
        Ok(run.usage)
    }
}

impl<'a> Run<'a> {
    fn new(key: &'a SharedKey, windows: u64, seed: u64) -> Result<Run<'a>, Error> {
        let tenants = key.case.tenants(key.case.limit, 1)?;
        let policy = Policy { max_waiting: u32::MAX, guard: key.case.guarded, ..Policy::USUAL };
        let mut plans = Plans::default();
        let tenants: Vec<_> = tenants.iter().map(|tenant| (tenant, plans.of(tenant, &policy))).collect();
        let client = || {
            let mut engine = Engine::new(Bound::new(u32::MAX), Default::default());
            let lane = |(tenant, plan): &(&Arc<Tenant>, Arc<Plan>)| {
                engine.upsert(Time::from_nanos(START), &tenant.id, &tenant.account, plan, 1, None)
            };
            let lanes = tenants.iter().map(lane).collect();
            Client { engine, lanes, waiting: 0, has_started: false, granted: 0 }
        };
        let nothing = Usage { admitted: vec![0; windows as usize], refused: vec![0; windows as usize] };
        let mut run = Run {
            key,
            seed,
            clients: (0..key.clients).map(|_| client()).collect(),
            limiter: key.case.limiter(seed),
            random: Rng::with_seed(seed),
            now: START,
            events: BinaryHeap::new(),
            sequence: 0,
            answers: Vec::new(),
            others: 0,
            usage: vec![nothing; key.clients],
        };
        for client in 0..key.clients {
            let later = run.random.u64(0..key.case.window_ns());
            run.happens(START + if client == 0 { 0 } else { later }, Event::Start(client));
        }
        Ok(run)
    }

    fn happens(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn go(&mut self, end: u64) {
        loop {
            (0..self.clients.len()).for_each(|client| self.send(client));
            let timers = self.clients.iter_mut().map(|client| client.engine.poll_timeout());
            let timer = timers.map(|at| at.map_or(u64::MAX, Time::as_nanos)).min().unwrap_or(u64::MAX);
            let event = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            if timer.min(event) >= end {
                return;
            }
            self.now = self.now.max(timer.min(event));
            if timer < event {
                let now = Time::from_nanos(self.now);
                for client in &mut self.clients {
                    if client.engine.poll_timeout().is_some_and(|at| at <= now) {
                        client.engine.poll(now);
                    }
                }
            } else if let Some(Reverse((_, _, event))) = self.events.pop() {
                match event {
                    Event::Start(client) => self.clients[client].has_started = true,
                    Event::Arrive(client, permit) => self.arrive(client, permit),
                    Event::Answer(client, permit, answer) => {
                        let (now, word) = (Time::from_nanos(self.now), self.answers[answer]);
                        self.clients[client].engine.answered_with(now, permit, word, &[], true);
                    }
                }
            }
        }
    }

    /// Submits requests so that some always wait.
    fn send(&mut self, number: usize) {
        let now = Time::from_nanos(self.now);
        let client = &mut self.clients[number];
        let mut started = Vec::new();
        let all = client.lanes.len();
        while client.has_started && client.waiting < QUEUE * all {
            let ask = super::unhurried(Tier::ALL[(client.granted % 3) as usize], self.key.case.endpoint());
            match client.engine.submit(now, client.lanes[client.granted as usize / 3 % all], &ask) {
                Answer::Granted(permit) => started.push(permit),
                Answer::Wait { .. } => client.waiting += 1,
                Answer::Refused(refusal) => unreachable!("there is room in the queues: {refusal:?}"),
            }
            client.granted += 1;
        }
        while !client.engine.is_quiet() {
            for waiter in client.engine.woken().collect::<Vec<_>>() {
                match client.engine.claim(now, waiter) {
                    Claim::Started(permit, _) => {
                        client.waiting -= 1;
                        started.push(permit);
                    }
                    Claim::Waiting => {}
                    Claim::Refused(_) => client.waiting -= 1,
                }
            }
        }
        for permit in started {
            let there = self.key.case.travel.there(&mut self.random, self.now - START);
            self.happens(self.now + there, Event::Arrive(number, permit));
        }
    }

    /// Makes the other user's calls up to `at` on the vendor's clock.
    fn let_others_call(&mut self, at: u64) {
        let Some(Other { share, from, until }) = self.key.other else { return };
        let (window, per_window) = (self.key.case.window_ns(), share * f64::from(self.key.case.limit));
        loop {
            let next = from * window + (self.others as f64 * window as f64 / per_window) as u64;
            if next > at || next >= until * window {
                return;
            }
            self.limiter.arrive(next, 1);
            self.others += 1;
        }
    }

    fn arrive(&mut self, client: usize, permit: PermitKey) {
        let at = self.key.case.vendor_time(self.now - START, self.seed);
        self.let_others_call(at);
        let is_admitted = self.limiter.arrive(at, 1);
        let usage = &mut self.usage[client];
        let counts = if is_admitted { &mut usage.admitted } else { &mut usage.refused };
        let window = (self.now - START) / self.key.case.window_ns();
        if let Some(count) = counts.get_mut(window as usize) {
            *count += 1;
        }
        let report = match self.key.stated {
            StatedHeaders::Windows(reset) => Some(report(self.limiter.reading(at), at, reset)),
            StatedHeaders::Nothing | StatedHeaders::RetryAfter => None,
        };
        let word = match is_admitted {
            true => Feedback::Passed(report),
            false if self.key.stated == StatedHeaders::Nothing => {
                Feedback::Refused(Wait::Guess { most: LONGEST_GUESS }, None)
            }
            false => {
                let fits = self.limiter.fits_at(at, 1).unwrap_or(at).saturating_sub(at);
                let wait = Reset::RoundedUp.state(fits).max(SECOND);
                // Like a real sender, waits at least as long as announced, plus a random time.
                Feedback::Refused(Wait::Stated(wait + wait * self.random.u64(0..100) / 1_000), report)
            }
        };
        self.answers.push(word);
        let back = self.key.case.travel.back(&mut self.random);
        self.happens(self.now + back, Event::Answer(client, permit, self.answers.len() - 1));
    }
}

fn report(reading: Reading, at: u64, reset: Reset) -> Report {
    Report {
        about: About::default(),
        limit: reading.limit.into(),
        remaining: reading.remaining.into(),
        reset_ns: Some(reset.state(reading.reset_at_ns.saturating_sub(at))),
    }
}
