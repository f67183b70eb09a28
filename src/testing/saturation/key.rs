//! Runs one key with several users (clients that share nothing but the key, and another user) against a vendor that
//! announces the remaining units in each answer, or announces nothing.
//!
//! All clients always have more to send. Each has an engine of its own; the vendor counts them together. The vendor may
//! change its limit meanwhile.

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
use crate::engine::throttle::{About, Label, Report, Wait};
use crate::engine::tier::Tier;
use crate::engine::{Answer, Bound, Claim, Engine, Feedback};
use crate::testing::limit::{Limiter, Reading};

const SECOND: u64 = 1_000_000_000;
/// The longest wait of a client after a refusal that announces none, in nanoseconds.
const LONGEST_GUESS: u64 = 10 * SECOND;
/// The name of the limit in [`StatedHeaders::Named`]; the configuration calls it otherwise.
const OTHER_NAME: &str = "core";

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
    /// As `Windows`, and under a name that the client's configuration does not know.
    Named(Reset),
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

/// A change of the limit by the vendor, which announces the new figure like any other. What was sent before a change
/// counts after it too: a window keeps its requests, and a bucket holds what it would hold if it had always had the new
/// size and rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitChange {
    /// The other limit.
    pub limit: u32,
    /// The first window with the other limit.
    pub from: u64,
    /// The first window in which the case's own limit applies again.
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
    /// A change of the limit, which the clients' configuration does not follow.
    pub change: Option<LimitChange>,
}

/// The requests of one client, for each window of the limit.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// Admitted requests.
    pub admitted: Vec<u64>,
    /// Refused requests.
    pub refused: Vec<u64>,
    /// Refused requests that were granted after a response had announced the limit that refused them.
    pub forewarned: Vec<u64>,
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
    /// By how often the vendor had changed its limit: the number of the last event before the first response that
    /// announced that limit; `u64::MAX` until such a response comes.
    told: [u64; 3],
}

struct Run<'a> {
    key: &'a SharedKey,
    seed: u64,
    clients: Vec<Client>,
    /// The vendor's count by the case's own limit and, if there is a change, by the other limit. Each counts all
    /// admitted requests.
    limiters: Vec<Limiter>,
    random: Rng,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    /// The answers so far. If an answer announces a limit, with the number of changes before that.
    answers: Vec<(Feedback, Option<usize>)>,
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
                engine.upsert(Time::from_nanos(START), &tenant.id, &tenant.account, plan, None)
            };
            let lanes = tenants.iter().map(lane).collect();
            Client { engine, lanes, waiting: 0, has_started: false, granted: 0, told: [u64::MAX; 3] }
        };
        let none = vec![0; windows as usize];
        let nothing = Usage { admitted: none.clone(), refused: none.clone(), forewarned: none };
        let limits = [Some(key.case.limit), key.change.map(|change| change.limit)].into_iter().flatten();
        let mut run = Run {
            key,
            seed,
            clients: (0..key.clients).map(|_| client()).collect(),
            limiters: limits.map(|limit| Case { limit, ..key.case.clone() }.limiter(seed)).collect(),
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
            } else if let Some(Reverse((_, number, event))) = self.events.pop() {
                match event {
                    Event::Start(client) => self.clients[client].has_started = true,
                    Event::Arrive(client, permit) => self.arrive(client, permit, number),
                    Event::Answer(client, permit, answer) => self.answer(client, permit, answer),
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
            self.admits(next);
            self.others += 1;
        }
    }

    /// How often the vendor has changed its limit by `at` on its clock.
    fn changes(&self, at: u64) -> usize {
        let window = at / self.key.case.window_ns();
        let begun = |change: LimitChange| usize::from(window >= change.from) + usize::from(window >= change.until);
        self.key.change.map_or(0, begun)
    }

    /// Whether the vendor admits a request at `at` on its clock.
    fn admits(&mut self, at: u64) -> bool {
        let in_force = self.changes(at) % 2;
        let is_admitted = self.limiters[in_force].fits(at, 1);
        if is_admitted {
            self.limiters.iter_mut().for_each(|limiter| limiter.count(at, 1));
        }
        is_admitted
    }

    /// Hands an answer to a client.
    fn answer(&mut self, client: usize, permit: PermitKey, answer: usize) {
        let (word, announced) = self.answers[answer];
        let client = &mut self.clients[client];
        client.engine.answered_with(Time::from_nanos(self.now), permit, word, &[], true);
        if let Some(changes) = announced {
            client.told[changes] = client.told[changes].min(self.sequence);
        }
    }

    /// A request arrives. `number` is that of its event, which is as old as its grant.
    fn arrive(&mut self, client: usize, permit: PermitKey, number: u64) {
        let at = self.key.case.vendor_time(self.now - START, self.seed);
        self.let_others_call(at);
        let is_admitted = self.admits(at);
        let changes = self.changes(at);
        let is_forewarned = !is_admitted && number > self.clients[client].told[changes];
        let window = (self.now - START) / self.key.case.window_ns();
        let usage = &mut self.usage[client];
        for (is_meant, counts) in [
            (is_admitted, &mut usage.admitted),
            (!is_admitted, &mut usage.refused),
            (is_forewarned, &mut usage.forewarned),
        ] {
            if let Some(count) = counts.get_mut(window as usize).filter(|_| is_meant) {
                *count += 1;
            }
        }
        let limiter = &mut self.limiters[changes % 2];
        let report = match self.key.stated {
            StatedHeaders::Windows(reset) => Some(report(limiter.reading(at), at, reset)),
            StatedHeaders::Named(reset) => {
                let about = About { name: Label::of(OTHER_NAME), is_special: true, ..About::default() };
                Some(Report { about, ..report(limiter.reading(at), at, reset) })
            }
            StatedHeaders::Nothing | StatedHeaders::RetryAfter => None,
        };
        let word = match is_admitted {
            true => Feedback::Passed(report),
            false if self.key.stated == StatedHeaders::Nothing => {
                Feedback::Refused(Wait::Guess { most: LONGEST_GUESS }, None)
            }
            false => {
                let fits = limiter.fits_at(at, 1).unwrap_or(at).saturating_sub(at);
                let wait = Reset::RoundedUp.state(fits).max(SECOND);
                // Like a real sender, waits at least as long as announced, plus a random time.
                Feedback::Refused(Wait::Stated(wait + wait * self.random.u64(0..100) / 1_000), report)
            }
        };
        self.answers.push((word, report.map(|_| changes)));
        let back = self.key.case.travel.back(&mut self.random);
        self.happens(self.now + back, Event::Answer(client, permit, self.answers.len() - 1));
    }
}

fn report(reading: Reading, at: u64, reset: Reset) -> Report {
    Report {
        limit: reading.limit.into(),
        remaining: reading.remaining.into(),
        reset_ns: Some(reset.state(reading.reset_at_ns.saturating_sub(at))),
        ..Report::default()
    }
}
