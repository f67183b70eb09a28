//! A simulation of a vendor that counts by a log, processes that always have more to send, and a store between the
//! processes. Nothing sleeps.

mod case;
mod checks;
mod store;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::capacity::call::{Answer, Call, Root};
use crate::capacity::ledger::Ledger;
use crate::capacity::process::Process;
use crate::capacity::sights::AllSights;
use crate::clock::Time;
use crate::config::Holds;
use crate::dispatch::plan::{Policy, compile};
use crate::engine::keys::{LaneKey, PermitKey};
use crate::engine::plan::{NO_ENDPOINT, Plan};
use crate::engine::tier::Tier;
use crate::engine::{Answer as Asked, Ask, Attempt, Bound, Claim, Engine, PooledLimit};

pub(super) use case::{Case, Demand, Figures, Mistake, Outcome, StoreKind, Trouble};
use checks::{Belief, Clocks};

const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;
const HOLDS: Holds = Holds { windows_from: Duration::ZERO, name: "a world" };
/// How many requests wait in each tier that has demand.
const WAITING: usize = 30;

enum Event {
    Poll(usize),
    Call(usize),
    /// A call reaches the store.
    Store(usize, Arc<Call>, bool),
    Reply(usize, Arc<Call>, Arc<Answer>),
    /// The texts of a store that can compare and swap reach the process: each with its version, then the answer's date
    /// and when it was made.
    Read(usize, Arc<Call>, bool, Vec<(String, u64)>, (Option<u64>, Time)),
    /// The texts that the process has computed reach the store.
    Write(usize, Arc<Call>, bool, Vec<(String, u64)>, Arc<Answer>),
    Arrive(usize, Tier),
    Answered(usize, PermitKey),
    Trouble(Trouble),
}

struct Member {
    /// The nanoseconds by which the process's clock is ahead, and the millionths by which it runs fast.
    ahead: u64,
    gains: i64,
    sights: AllSights,
    engine: Engine,
    lane: LaneKey,
    /// The number of the process's configuration.
    version: u64,
    /// The configuration with which the call under way was made. The engine ignores the answer if it has another now.
    asked_with: u64,
    process: Process,
    belief: Belief,
    tiers: HashMap<crate::engine::keys::WaiterKey, Tier>,
    waiting: [usize; 3],
    /// The call under way: its number, when it began, and the limits that its answers belong to.
    under_way: Option<(u64, Time, Vec<PooledLimit>)>,
    due: Time,
    soon: Time,
    stands_until: Time,
    cut_until: Time,
    is_gone: bool,
    has_left: bool,
    polls_at: Time,
    /// The last poll, and how many came one nanosecond after the other.
    polled: (Time, u32),
    last_send: Option<u64>,
}

/// An earlier state of the store: its time, the ledgers and the texts.
type Backup = (Time, HashMap<String, Ledger>, HashMap<String, String>);

pub(super) struct World {
    case: Case,
    now: Time,
    random: fastrand::Rng,
    members: Vec<Member>,
    events: BTreeMap<u64, Event>,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    number: u64,
    /// The ledgers of a server that answers whole calls.
    ledgers: HashMap<String, Ledger>,
    /// The texts in a store that can compare and swap.
    texts: HashMap<String, String>,
    /// How often each ledger was written, if the store can compare and swap.
    versions: HashMap<String, u64>,
    root: Root,
    past: Vec<Backup>,
    /// How far the store's clock has stepped, and what it has gained by slews that were replaced by another.
    step_ms: i64,
    gained_ns: i64,
    /// The latest slew of the store's clock: millionths, beginning and end.
    slews: (i64, Time, Time),
    /// The latest moment that a process has claimed, if that is the store's clock.
    claimed_us: u64,
    clocks: HashMap<String, Clocks>,
    stalls_until: Time,
    log: std::collections::VecDeque<Time>,
    outcome: Outcome,
    began: Time,
}

impl World {
    pub(super) fn run(case: Case) -> Outcome {
        let mut world = World::new(case);
        let ends = world.began + world.case.time;
        while let Some(Reverse((at, number))) = world.queue.pop() {
            if at > ends {
                break;
            }
            world.now = at;
            if let Some(event) = world.events.remove(&number) {
                world.handle_event(event);
            }
        }
        let standings = world.ledgers.values().map(Ledger::standing);
        world.outcome.held = standings.flat_map(|standing| standing.holders).map(|(_, held, _)| held).sum();
        world.outcome
    }

    fn new(case: Case) -> World {
        let began = Time::from_nanos(3_600 * SECOND);
        let plan = plan(&case, &case.figures);
        let mut random = fastrand::Rng::with_seed(case.seed);
        let mut clocks = fastrand::Rng::with_seed(case.seed);
        let differ = !case.store_kind.is_server();
        let members = (0..case.processes).map(|_| {
            let mut engine = Engine::new(Bound::new(100_000), Default::default());
            let (ahead, gains) = match differ {
                true => (clocks.u64(0..10 * SECOND), clocks.i64(-200..200)),
                false => (0, 0),
            };
            let lane = engine.upsert(local(began, ahead, gains), "acme", "acme", &plan, None);
            Member {
                ahead,
                gains,
                sights: AllSights::default(),
                engine,
                lane,
                version: 1,
                asked_with: 1,
                belief: Belief::default(),
                process: Process::new(random.u64(1..), case.lease),
                tiers: HashMap::new(),
                waiting: [0; 3],
                under_way: None,
                due: Time::MAX,
                soon: Time::ZERO,
                stands_until: Time::ZERO,
                cut_until: Time::ZERO,
                is_gone: false,
                has_left: false,
                polls_at: Time::MAX,
                polled: (began, 0),
                last_send: None,
            }
        });
        let outcome = Outcome { by_process: vec![0; case.processes], ..Outcome::default() };
        let mut world = World {
            now: began,
            members: members.collect(),
            events: BTreeMap::new(),
            queue: BinaryHeap::new(),
            number: 0,
            ledgers: HashMap::new(),
            texts: HashMap::new(),
            versions: HashMap::new(),
            root: Root::new(false, 0, 0),
            past: Vec::new(),
            step_ms: 0,
            gained_ns: 0,
            slews: (0, began, began),
            claimed_us: 0,
            clocks: HashMap::new(),
            stalls_until: Time::ZERO,
            log: Default::default(),
            outcome,
            began,
            random,
            case,
        };
        for number in 0..world.members.len() {
            let after = world.random.u64(0..500 * MS);
            world.schedule(began.plus_nanos(after), Event::Poll(number));
        }
        for (after, trouble) in world.case.troubles.clone() {
            world.schedule(began + after, Event::Trouble(trouble));
        }
        world
    }

    fn schedule(&mut self, at: Time, event: Event) -> u64 {
        self.number += 1;
        self.events.insert(self.number, event);
        self.queue.push(Reverse((at.max(self.now), self.number)));
        self.number
    }

    fn random_time_within(&mut self, from: u64, to: u64) -> Time {
        self.now.plus_nanos(self.random.u64(from..to))
    }

    fn handle_event(&mut self, event: Event) {
        let whose = match &event {
            Event::Poll(it) | Event::Call(it) | Event::Read(it, ..) => Some(*it),
            Event::Reply(it, ..) | Event::Answered(it, _) => Some(*it),
            Event::Store(..) | Event::Write(..) | Event::Arrive(..) | Event::Trouble(_) => None,
        };
        if let Some(member) = whose.map(|it| &self.members[it]) {
            if member.is_gone {
                return;
            }
            if self.now < member.stands_until {
                let at = member.stands_until;
                self.schedule(at, event);
                return;
            }
        }
        match event {
            Event::Poll(it) => {
                self.members[it].polls_at = Time::MAX;
                let now = self.local(it);
                self.check_rest(it);
                self.members[it].engine.poll(now);
                self.drive_process(it);
            }
            Event::Call(it) => self.call(it),
            Event::Store(it, call, is_first) => self.arrive_at_store(it, call, is_first),
            Event::Reply(it, call, answer) => self.receive_answer(it, &call, &answer),
            Event::Read(it, call, is_first, texts, dated) => self.compute_answer(it, call, is_first, texts, dated),
            Event::Write(it, call, is_first, texts, answer) => self.swap_texts(it, call, is_first, texts, answer),
            Event::Arrive(it, tier) => self.arrive(it, tier),
            Event::Answered(it, permit) => {
                let now = self.local(it);
                self.members[it].engine.finished(now, permit);
                self.drive_process(it);
            }
            Event::Trouble(trouble) => self.apply_trouble(trouble),
        }
    }

    fn has_demand(&self, it: usize, tier: Tier) -> bool {
        self.case.has_demand(self.now.as_nanos() - self.began.as_nanos(), it, tier as usize)
    }

    /// The time that a process's clock shows.
    fn local(&self, it: usize) -> Time {
        local(self.now, self.members[it].ahead, self.members[it].gains)
    }

    /// The true time at which a process's clock shows `time`, or a little later.
    fn true_time_of(&self, it: usize, time: Time) -> Time {
        let left = i128::from(time.as_nanos()) - i128::from(self.local(it).as_nanos());
        let gains = i128::from(self.members[it].gains);
        let waits = left.max(0) * 1_000_000 / (1_000_000 + gains) + i128::from(gains != 0);
        self.now.plus_nanos(u64::try_from(waits).unwrap_or(u64::MAX))
    }

    /// Starts the granted requests of a process, submits more, and schedules the next poll.
    fn drive_process(&mut self, it: usize) {
        let now = self.local(it);
        loop {
            let woken: Vec<_> = self.members[it].engine.woken().collect();
            for waiter in woken {
                if let Claim::Started(permit, _) = self.members[it].engine.claim(now, waiter) {
                    let tier = self.members[it].tiers.remove(&waiter).expect("a waiter of this process");
                    self.members[it].waiting[tier as usize] -= 1;
                    self.send(it, tier, permit);
                }
            }
            if !self.submit_requests(it) {
                break;
            }
        }
        if self.members[it].engine.was_starved() {
            let member = &self.members[it];
            let at = member.soon.min(member.due).max(self.now);
            if member.under_way.is_none() && !member.has_left {
                self.schedule(at, Event::Call(it));
            }
        }
        let next = self.members[it].engine.poll_timeout().map_or(Time::MAX, |next| self.true_time_of(it, next));
        let next = next.min(self.now + Duration::from_secs(1));
        if next < self.members[it].polls_at {
            self.members[it].polls_at = next;
            self.schedule(next, Event::Poll(it));
        }
    }

    /// Submits requests of a process up to its demand. Returns whether one of them was granted at once.
    fn submit_requests(&mut self, it: usize) -> bool {
        let (mut granted, now) = (false, self.local(it));
        for tier in Tier::ALL {
            while self.has_demand(it, tier) && self.members[it].waiting[tier as usize] < WAITING {
                let ask = Ask::new(tier, NO_ENDPOINT, 1, Attempt::within(30 * SECOND));
                let member = &mut self.members[it];
                match member.engine.submit(now, member.lane, &ask) {
                    Asked::Granted(permit) => {
                        granted = true;
                        self.send(it, tier, permit);
                    }
                    Asked::Wait { waiter, .. } => {
                        member.waiting[tier as usize] += 1;
                        member.tiers.insert(waiter, tier);
                    }
                    Asked::Refused(why) => panic!("{why:?}"),
                }
            }
        }
        granted
    }

    fn send(&mut self, it: usize, tier: Tier, permit: PermitKey) {
        self.check_lease(it);
        let there = self.random_time_within(5 * MS, 25 * MS);
        let number = self.schedule(there, Event::Arrive(it, tier));
        self.members[it].last_send = Some(number);
        let back = there.plus_nanos(self.random.u64(5 * MS..25 * MS));
        self.schedule(back, Event::Answered(it, permit));
    }

    /// Counts an arrival as the vendor does: by a log of the last window.
    fn arrive(&mut self, it: usize, tier: Tier) {
        let window = self.case.figures.window;
        while self.log.front().is_some_and(|at| *at + window < self.now) {
            self.log.pop_front();
        }
        if self.log.len() >= self.case.figures.limit as usize {
            self.outcome.refused += 1;
            return;
        }
        self.log.push_back(self.now);
        self.outcome.by_process[it] += 1;
        self.outcome.by_tier[tier as usize] += 1;
        let second = self.now.since(self.began).as_secs() as usize;
        self.outcome.seconds.resize(self.outcome.seconds.len().max(second + 1), 0);
        self.outcome.seconds[second] += 1;
    }

    fn apply_trouble(&mut self, trouble: Trouble) {
        if let Trouble::Leave(it) | Trouble::Configure(it, _) = trouble {
            let member = &self.members[it];
            if member.is_gone || member.has_left {
                return;
            }
            if self.now < member.stands_until {
                self.schedule(member.stands_until, Event::Trouble(trouble));
                return;
            }
        }
        match trouble {
            Trouble::Kill(it) => self.members[it].is_gone = true,
            Trouble::Stop(it, time) => {
                let until = self.now + time;
                self.members[it].stands_until = until;
                // The last request stands between its start and its departure. A stop that is longer than the transit
                // time allows is not covered.
                if time < Duration::from_millis(1_500)
                    && let Some(number) = self.members[it].last_send.take()
                    && let Some(event) = self.events.remove(&number)
                {
                    self.schedule(until, event);
                }
            }
            Trouble::Leave(it) => {
                let now = self.local(it);
                let member = &mut self.members[it];
                let mut given = Vec::new();
                member.engine.give_all(now, |name, wish| given.push((name, wish)));
                (member.has_left, member.under_way, member.belief) = (true, None, Belief::default());
                let call = Arc::new(member.process.call(now, given, true));
                self.arrive_at_store(it, call, false);
            }
            Trouble::Cut(it, time) => self.members[it].cut_until = self.now + time,
            Trouble::Stall(time) => self.stalls_until = self.now + time,
            Trouble::Configure(it, figures) => {
                let (now, plan) = (self.local(it), plan(&self.case, &figures));
                let member = &mut self.members[it];
                member.version += 1;
                member.engine.upsert(now, "acme", "acme", &plan, None);
                self.drive_process(it);
            }
            Trouble::Lose => {
                self.ledgers.clear();
                self.texts.clear();
                self.clocks.clear();
                let lease_us = u64::try_from(self.case.lease.as_micros()).expect("a lease");
                self.root = Root::new(true, self.clock_us(), lease_us);
            }
            Trouble::Rewind => {
                let then = self.past.iter().rev().find(|(at, ..)| self.now.since(*at) >= Duration::from_secs(1));
                if let Some((_, ledgers, texts)) = then {
                    (self.ledgers, self.texts) = (ledgers.clone(), texts.clone());
                    self.clocks.clear();
                }
            }
            Trouble::Step(by_ms) => self.step_ms += by_ms,
            Trouble::Slew(millionths, time) => {
                self.gained_ns += self.slewed_ns();
                self.slews = (millionths, self.now, self.now + time);
            }
        }
    }
}

fn local(now: Time, ahead: u64, gains: i64) -> Time {
    let gained = i128::from(now.as_nanos()) * i128::from(gains) / 1_000_000;
    let shown = i128::from(now.as_nanos()) + i128::from(ahead) + gained;
    Time::from_nanos(u64::try_from(shown).expect("a time of the case"))
}

/// What a process that is configured with `figures` is bound by.
fn plan(case: &Case, figures: &Figures) -> Arc<Plan> {
    let sources = crate::config::Sources::new().without_catalogue().file("v", figures.vendors());
    let config = crate::config::Config::load(&sources, 1).expect("the case's vendors");
    let vendor = config.vendor("v", "live").expect("the case's vendor");
    let policy =
        Policy { max_waiting: 1_000, pooled: case.shares.then_some(HOLDS), floor: case.floor, ..Policy::USUAL };
    Arc::new(compile(&vendor, 1, &policy))
}
