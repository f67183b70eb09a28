//! Slots against a model, under any sequence of changes: of plans, accounts, endpoints and engines, of requests that wait,
//! go, are answered, end, are given back or abandoned, and of time.
//!
//! The model knows for each permit whose slots it takes, by the names of tenants, accounts and endpoints. After each step
//! every limit, however young, must have exactly as many slots taken as there are permits that it would hold for, and no
//! request may wait whose limits have room. In the end all exchanges end, and everybody who waits must go.

mod settings;

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::*;
use crate::need::Need;
use crate::permit::Permit;
use crate::plan::EndpointId;
use crate::waiting::Queue;
use settings::{ENDPOINTS, Limit, Settings, Vendor};

const TENANTS: [&str; 4] = ["t0", "t1", "t2", "t3"];
/// The first engine holds the first two accounts, the second the others.
const ACCOUNTS: [&str; 4] = ["a0", "a1", "b0", "b1"];
struct Tenant {
    name: &'static str,
    account: &'static str,
    engine: usize,
    lane: LaneKey,
    settings: Settings,
}

impl Tenant {
    fn holders(&self) -> [String; 3] {
        [self.name.to_owned(), format!("@{}", self.account), "*".to_owned()]
    }
}

/// What tells a permit from others in whatever engine it is.
fn identity(permit: &Permit, endpoint: EndpointHash) -> (Time, Time, u32, EndpointHash) {
    (permit.granted(), permit.deadline(), permit.origin.versions[0], endpoint)
}

/// Where a permit counts.
#[derive(Clone)]
struct Counted {
    /// None in the engine that its lane has left.
    tenant: Option<&'static str>,
    /// None where its account has had no limits since the grant: it is that of its tenant.
    account: Option<&'static str>,
    vendor: bool,
    endpoint: Option<&'static str>,
}

impl Counted {
    fn takes(&self, (holder, endpoint, _): &Limit) -> bool {
        let is_holder = match holder.strip_prefix('@') {
            Some(account) => self.account == Some(account),
            None if holder == "*" => self.vendor,
            None => self.tenant == Some(holder),
        };
        is_holder && (endpoint.is_none() || *endpoint == self.endpoint)
    }
}

struct Story {
    rng: Rng,
    engines: [Engine; 2],
    now: Time,
    vendor: Vendor,
    tenants: Vec<Tenant>,
    permits: [BTreeMap<PermitKey, Counted>; 2],
    /// Exchanges under way, by the engine and the key of their permits when they were granted.
    exchanges: Vec<(usize, PermitKey)>,
    /// Permits that have gone on under another key in the other engine.
    moved: BTreeMap<(usize, PermitKey), (usize, PermitKey)>,
    waiting: Vec<(usize, WaiterKey)>,
    /// A change of the configuration goes on: limits that it brings grant nothing.
    is_changing: bool,
}

impl Story {
    fn new(seed: u64) -> Story {
        let mut rng = Rng::with_seed(seed);
        let engine = || Engine::new(Bound::new(1_000_000), Default::default());
        let mut story = Story {
            vendor: [Vendor::Nothing, Vendor::Always, Vendor::Sometimes][rng.usize(..3)],
            rng,
            engines: [engine(), engine()],
            now: ms(0),
            tenants: Vec::new(),
            permits: Default::default(),
            exchanges: Vec::new(),
            moved: BTreeMap::new(),
            waiting: Vec::new(),
            is_changing: false,
        };
        for name in TENANTS {
            let settings = Settings::random(&mut story.rng, story.vendor);
            story.tenants.push(Tenant { name, account: "a0", engine: 0, lane: Key::NONE, settings });
            let last = story.tenants.len() - 1;
            story.configure(last, "a0");
        }
        story
    }

    /// Brings a tenant's lane, in the engine where it is, to its settings. `before`: the account that it belonged to.
    fn configure(&mut self, number: usize, before: &'static str) {
        self.notice_grants();
        let Tenant { name, account, engine, ref settings, .. } = self.tenants[number];
        let plan = settings.plan();
        self.tenants[number].lane = self.engines[engine].upsert(self.now, name, account, &plan, None);
        self.count_in_shared_limits(number, before);
        self.notice_grants();
    }

    /// A tenant's permits count in the limits that it shares from now on.
    fn count_in_shared_limits(&mut self, number: usize, before: &'static str) {
        let tenant = &self.tenants[number];
        let [_, account, vendor] = tenant.holders();
        let [has_account, has_vendor] =
            [(1, account), (2, vendor)].map(|(level, holder)| !tenant.settings.limits(level, &holder).is_empty());
        let permits = self.permits[tenant.engine].values_mut().filter(|permit| permit.tenant == Some(tenant.name));
        for permit in permits {
            if before != tenant.account {
                permit.account.get_or_insert(before);
            }
            if has_account {
                permit.account.get_or_insert(tenant.account);
            }
            permit.vendor |= has_vendor;
        }
    }

    /// Takes a tenant to an account, and to the engine that holds it. One engine holds all that share a vendor's limits.
    fn move_to(&mut self, number: usize, account: &'static str) {
        let (from, to) =
            (self.tenants[number].engine, usize::from(self.vendor == Vendor::Nothing && account.starts_with('b')));
        let before = std::mem::replace(&mut self.tenants[number].account, account);
        if from == to {
            return self.configure(number, before);
        }
        self.notice_grants();
        let (name, lane) = (self.tenants[number].name, self.tenants[number].lane);
        // Its permits count in both engines: here for those that it shared limits with, there for the tenant.
        let mut under_way = Vec::new();
        for key in self.engines[from].permits.of(lane) {
            let permit = self.permits[from].get_mut(&key).expect("it was noticed");
            permit.tenant = None;
            let old = permit.account.or(Some(before)).filter(|old| *old != account);
            let there = Counted { tenant: Some(name), account: old, vendor: false, ..permit.clone() };
            let endpoint = permit.endpoint.map_or(EndpointHash::NONE, EndpointHash::of);
            under_way.push((key, identity(&self.engines[from].permits[key], endpoint), there));
        }
        let moved = self.engines[from].move_out(self.now, lane).expect("the lane exists");
        self.notice_grants();
        self.tenants[number].engine = to;
        self.configure(number, account);
        let lane = self.tenants[number].lane;
        let told = self.engines[to].move_in(self.now, lane, moved);
        self.moved.extend(told.iter().map(|(before, after)| ((from, *before), (to, *after))));
        let mut untold: Vec<PermitKey> = self.engines[to].permits.of(lane);
        untold.retain(|key| !told.iter().any(|(_, after)| after == key));
        for (before, what, there) in under_way {
            let after = told.iter().find(|(key, _)| *key == before).map(|(_, after)| *after).or_else(|| {
                // Its caller went away: it ends by its deadline, under a key that nobody was told.
                let arrived = |key: &PermitKey| &self.engines[to].permits[*key];
                let is_it = |key| identity(arrived(key), arrived(key).origin.endpoint_hash) == what;
                let at = untold.iter().position(is_it)?;
                Some(untold.swap_remove(at))
            });
            // What was granted and not picked up was given back.
            if let Some(after) = after {
                self.permits[to].insert(after, there);
            }
        }
        self.count_in_shared_limits(number, account);
    }

    /// Forgets permits that have ended, and counts those that are new.
    fn notice_grants(&mut self) {
        for engine in 0..2 {
            let there: BTreeSet<PermitKey> = self.engines[engine].permits.keys().collect();
            self.permits[engine].retain(|key, _| there.contains(key));
            for key in there {
                if self.permits[engine].contains_key(&key) {
                    continue;
                }
                let permit = &self.engines[engine].permits[key];
                let lane = permit.lane();
                let Some(tenant) = self.tenants.iter().find(|tenant| tenant.engine == engine && tenant.lane == lane)
                else {
                    continue;
                };
                let endpoint = tenant.settings.endpoints.get(permit.origin.endpoint.place()).copied();
                let [_, account, vendor] = tenant.holders();
                let shares = |level, holder: &str| !tenant.settings.limits(level, holder).is_empty();
                let account = shares(1, &account).then_some(tenant.account);
                let counted = Counted { tenant: Some(tenant.name), account, vendor: shares(2, &vendor), endpoint };
                self.permits[engine].insert(key, counted);
            }
        }
    }

    /// Slots taken of each limit, as the engine says.
    fn used(&self, engine: usize) -> BTreeMap<Limit, u32> {
        let inside = &self.engines[engine];
        let mut used = BTreeMap::new();
        let name = |hash: EndpointHash| ENDPOINTS.into_iter().find(|name| EndpointHash::of(name) == hash);
        let limit_name = |spec: &LimitSpec| if &*spec.name == "whole" { "whole" } else { "single" };
        for tenant in self.tenants.iter().filter(|tenant| tenant.engine == engine) {
            let lane = &inside.lanes[tenant.lane];
            for (number, (cell, spec)) in lane.own.clone_cells().into_iter().zip(&lane.plan.own).enumerate() {
                let endpoint = lane.plan.endpoints.iter().find(|endpoint| endpoint.own.contains(&number));
                let endpoint = endpoint.and_then(|endpoint| name(endpoint.hash));
                if let Some(taken) = cell.slots_used() {
                    used.insert((tenant.name.to_owned(), endpoint, limit_name(spec)), taken);
                }
            }
        }
        for shared in inside.lanes.holders() {
            let holder = shared.key.account.as_ref().map_or("*".to_owned(), |account| format!("@{account}"));
            for (cell, spec) in shared.cells.iter().zip(shared.specs.iter()) {
                let limit = (holder.clone(), spec.endpoint.and_then(name), limit_name(&spec.spec));
                used.insert(limit, cell.slots_used().unwrap_or(0));
            }
        }
        used
    }

    /// The limits that there must be: those that some tenant states.
    fn expected_limits(&self, engine: usize) -> BTreeSet<Limit> {
        let tenants = self.tenants.iter().filter(|tenant| tenant.engine == engine);
        let limits = tenants.flat_map(|tenant| {
            let holders = tenant.holders().into_iter().enumerate();
            holders.flat_map(move |(level, holder)| tenant.settings.limits(level, &holder))
        });
        limits.collect()
    }

    fn check(&mut self, step: &str) {
        self.notice_grants();
        for engine in 0..2 {
            let used = self.used(engine);
            for limit in self.expected_limits(engine) {
                assert!(used.contains_key(&limit), "no {limit:?} in engine {engine} after: {step}");
            }
            let taken = |limit: &Limit| self.permits[engine].values().filter(|permit| permit.takes(limit)).count();
            let expected: BTreeMap<Limit, u32> =
                used.keys().map(|limit| (limit.clone(), taken(limit) as u32)).collect();
            assert_eq!(used, expected, "slots taken in engine {engine} after: {step}");
            if self.vendor != Vendor::Sometimes {
                self.check_nobody_sleeps(engine, step);
            }
        }
    }

    /// The first of each queue has a limit in its way.
    fn check_nobody_sleeps(&mut self, engine: usize, step: &str) {
        let engine = &mut self.engines[engine];
        let waiting = engine.waiters.queues().filter(|queue| queue.head().is_some());
        let need =
            |queue: &Queue| Need { lane: queue.lane, endpoint: queue.endpoint, tier: queue.tier, cost: 1.into() };
        for need in waiting.map(need).collect::<Vec<_>>() {
            let until = engine.until(&need);
            assert!(until != Until::At(self.now), "{need:?} waits for limits that have room, after: {step}");
        }
    }

    /// Tells the engines what becomes of an exchange, in whatever engines its permit is.
    fn report_exchange(&mut self, at: (usize, PermitKey), ends: bool, tell: impl Fn(&mut Engine, Time, PermitKey)) {
        let mut next = Some(at);
        while let Some((engine, key)) = next {
            tell(&mut self.engines[engine], self.now, key);
            next = if ends { self.moved.remove(&(engine, key)) } else { self.moved.get(&(engine, key)).copied() };
        }
    }

    /// Whoever was woken is there at once, mostly.
    fn pick_up(&mut self, always: bool) {
        for engine in 0..2 {
            let woken: Vec<WaiterKey> = self.engines[engine].woken().collect();
            for waiter in woken {
                if !always && self.rng.u8(..8) == 0 {
                    continue;
                }
                match self.engines[engine].claim(self.now, waiter) {
                    Claim::Started(permit, _) => self.exchanges.push((engine, permit)),
                    Claim::Waiting => continue,
                    Claim::Refused(_) => {}
                }
                self.waiting.retain(|known| *known != (engine, waiter));
            }
        }
    }

    fn submit(&mut self) -> String {
        let number = self.rng.usize(..self.tenants.len());
        let tenant = &self.tenants[number];
        let endpoint = match self.rng.usize(..=tenant.settings.endpoints.len()) {
            0 => NO_ENDPOINT,
            number => EndpointId::at(number - 1),
        };
        let ask = Ask { endpoint, immediate: self.rng.u8(..4) == 0, ..ask(Tier::ALL[usize::from(self.rng.u8(..3))]) };
        match self.engines[tenant.engine].submit(self.now, tenant.lane, &ask) {
            Answer::Granted(permit) => self.exchanges.push((tenant.engine, permit)),
            Answer::Wait { waiter, .. } => self.waiting.push((tenant.engine, waiter)),
            Answer::Refused(_) => {}
        }
        format!("{} submits to {endpoint:?}", tenant.name)
    }

    fn end_one(&mut self) -> String {
        let number = self.rng.usize(..self.exchanges.len());
        let at = self.exchanges[number];
        let what = self.rng.u8(..8);
        match what {
            0 => self.report_exchange(at, false, |engine, now, key| engine.answered(now, key)),
            1 => self.report_exchange(at, true, |engine, now, key| engine.abandoned(now, key)),
            2 => self.report_exchange(at, true, |engine, now, key| engine.not_sent(now, key)),
            _ => self.report_exchange(at, true, |engine, now, key| engine.finished(now, key)),
        }
        if what > 0 {
            self.exchanges.swap_remove(number);
        }
        format!("{at:?} ends in way {what}")
    }

    fn step(&mut self) -> String {
        match self.rng.u8(..21) {
            0..=8 => self.submit(),
            9..=13 if !self.exchanges.is_empty() => self.end_one(),
            14 if !self.waiting.is_empty() => {
                let number = self.rng.usize(..self.waiting.len());
                let (engine, waiter) = self.waiting.swap_remove(number);
                self.engines[engine].cancel(self.now, waiter);
                format!("{waiter:?} is cancelled")
            }
            15 => {
                let number = self.rng.usize(..self.tenants.len());
                self.tenants[number].settings = Settings::random(&mut self.rng, self.vendor);
                self.configure(number, self.tenants[number].account);
                format!("{} gets other limits", self.tenants[number].name)
            }
            16 | 17 => {
                let number = self.rng.usize(..self.tenants.len());
                let account = ACCOUNTS[self.rng.usize(..ACCOUNTS.len())];
                self.move_to(number, account);
                format!("{} goes to {account}", self.tenants[number].name)
            }
            18 => {
                self.is_changing = !self.is_changing;
                for engine in &mut self.engines {
                    match self.is_changing {
                        true => engine.begin_changes(),
                        false => engine.end_changes(self.now),
                    }
                }
                format!("a change goes on: {}", self.is_changing)
            }
            19 => {
                for engine in &mut self.engines {
                    let mut next = Some(Sweep::START);
                    while let Some(from) = next {
                        next = engine.sweep(self.now, from, 8, false);
                    }
                }
                "a sweep".to_owned()
            }
            _ => {
                self.now = self.now.plus_nanos(self.rng.u64(..200_000_000));
                self.engines.iter_mut().for_each(|engine| engine.poll(self.now));
                "time passes".to_owned()
            }
        }
    }

    /// All exchanges end, and time passes until nothing happens any more.
    fn end_everything(&mut self) {
        self.engines.iter_mut().for_each(|engine| engine.end_changes(self.now));
        for _ in 0..100_000 {
            self.pick_up(true);
            self.check("an end");
            if let Some(at) = self.exchanges.pop() {
                self.report_exchange(at, true, |engine, now, key| engine.finished(now, key));
                continue;
            }
            let due = self.engines.iter_mut().filter_map(Engine::poll_timeout).min();
            let Some(due) = due else { break };
            self.now = due;
            self.engines.iter_mut().for_each(|engine| engine.poll(due));
        }
        for engine in &mut self.engines {
            assert_eq!(engine.waiting(), 0, "somebody waits for ever");
            assert_eq!((engine.in_flight(), engine.permits.len()), (0, 0), "permits that nobody ends");
        }
    }
}

fn run_story(seed: u64, steps: usize) {
    let mut story = Story::new(seed);
    for _ in 0..steps {
        let step = story.step();
        story.engines.iter_mut().for_each(|engine| engine.poll(story.now));
        story.check(&step);
        story.pick_up(false);
        story.check("woken");
    }
    story.end_everything();
}

#[test]
fn slots_stay_exact_under_any_changes() {
    for seed in 0..300 {
        if let Err(panic) = std::panic::catch_unwind(|| run_story(seed, 200)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
