//! Slots against a model, under any sequence of changes: of plans, accounts, endpoints and engines, of requests that wait,
//! go, are answered, end, are given back or abandoned, and of time.
//!
//! The model knows for each permit which limits it took from, by the names of their holders, endpoints and limits. After
//! each step every limit must have exactly the slots taken that the model counts, and no request may wait whose limits have
//! room. In the end all exchanges end, and everybody who waits must go.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::*;
use crate::engine::plan::EndpointId;
use crate::engine::turns::Need;

const TENANTS: [&str; 4] = ["t0", "t1", "t2", "t3"];
/// The first engine holds the first two accounts, the second the others.
const ACCOUNTS: [&str; 4] = ["a0", "a1", "b0", "b1"];
const ENDPOINTS: [&str; 3] = ["export", "read", "search"];

/// A limit by the names of its holder, of its endpoint and of itself. A holder is a tenant, `@` and an account, or `*`.
type Limit = (String, Option<&'static str>, &'static str);

/// Whether there are limits that all tenants share.
#[derive(Clone, Copy, PartialEq)]
enum Vendor {
    Nothing,
    Always,
    /// Of some tenants, as while a reload goes through them. One of an account that knows the vendor's limit then reserves
    /// the account's next slot before one that does not, and may have to wait for the vendor: the other waits with it.
    Sometimes,
}

/// What a tenant is configured with.
#[derive(Clone, Default)]
struct Settings {
    endpoints: Vec<&'static str>,
    /// How many slots, where there is such a limit: of the tenant, the account and the vendor.
    whole: [Option<u32>; 3],
    /// The same of each endpoint.
    of_endpoint: BTreeMap<&'static str, [Option<u32>; 3]>,
    /// Requests a second of the tenant.
    rate: Option<u32>,
}

impl Settings {
    fn random(rng: &mut Rng, vendor: Vendor) -> Settings {
        let mut slots = |most: u32| rng.bool().then(|| rng.u32(1..=most));
        let has_vendor = vendor != Vendor::Nothing;
        let mut whole = [slots(4), slots(3), slots(5).filter(|_| has_vendor)];
        if vendor == Vendor::Always {
            whole[2] = whole[2].or(Some(5));
        }
        let mut settings = Settings { whole, rate: slots(20), ..Settings::default() };
        for name in ENDPOINTS {
            if rng.u8(..4) > 0 {
                let mut slots = |most: u32| (rng.u8(..3) == 0).then(|| rng.u32(1..=most));
                settings.endpoints.push(name);
                settings.of_endpoint.insert(name, [slots(2), slots(2), slots(3).filter(|_| has_vendor)]);
            }
        }
        settings
    }

    fn plan(&self) -> Arc<Plan> {
        let mut own: Vec<LimitSpec> = self.whole[0].map(|most| slots("whole", most)).into_iter().collect();
        own.extend(self.rate.map(|rate| bucket("rate", 1, rate.into())));
        let mut plan = plan(own);
        for name in &self.endpoints {
            let from = plan.own.len();
            plan.own.extend(self.of_endpoint[name][0].map(|most| slots("single", most)));
            let hash = EndpointHash::of(name);
            plan.endpoints.push(EndpointPlan { name: (*name).into(), hash, own: from..plan.own.len() });
        }
        let shared = |level: usize| -> Arc<[SharedSpec]> {
            let whole = self.whole[level].map(|most| SharedSpec { spec: slots("whole", most), endpoint: None });
            let of_endpoint =
                |name: &&'static str| Some(endpoint_spec(name, slots("single", self.of_endpoint[name][level]?)));
            whole.into_iter().chain(self.endpoints.iter().filter_map(of_endpoint)).collect()
        };
        Arc::new(Plan { account: shared(1), vendor_wide: shared(2), ..plan })
    }

    /// The limits of a level that exist by these settings.
    fn limits(&self, level: usize, holder: &str) -> BTreeSet<Limit> {
        let whole = self.whole[level].map(|_| (holder.to_owned(), None, "whole"));
        let of_endpoint =
            |name: &&'static str| self.of_endpoint[name][level].map(|_| (holder.to_owned(), Some(*name), "single"));
        whole.into_iter().chain(self.endpoints.iter().filter_map(of_endpoint)).collect()
    }
}

struct Tenant {
    name: &'static str,
    account: &'static str,
    engine: usize,
    lane: Key,
    settings: Settings,
}

impl Tenant {
    fn holders(&self) -> [String; 3] {
        [self.name.to_owned(), format!("@{}", self.account), "*".to_owned()]
    }
}

/// What tells a permit from others in whatever engine it is.
fn identity(permit: &Permit) -> (Time, Time, u32, EndpointHash) {
    (permit.granted, permit.deadline, permit.origin.versions[0], permit.origin.endpoint_hash)
}

#[derive(Default)]
struct Counted {
    /// What it took, each with the life of the limit that it was in.
    took: Vec<(Limit, u32)>,
}

struct Story {
    rng: Rng,
    engines: [Engine; 2],
    now: Time,
    config: u64,
    vendor: Vendor,
    tenants: Vec<Tenant>,
    /// Limits of each engine as they are now.
    limits: [BTreeSet<Limit>; 2],
    /// How often a limit came anew: what an earlier one of the name had taken does not count in it.
    lives: BTreeMap<Limit, u32>,
    permits: [BTreeMap<Key, Counted>; 2],
    /// Exchanges under way, by the engine and the key of their permits when they were granted.
    exchanges: Vec<(usize, Key)>,
    /// Permits that have gone on under another key in the other engine.
    moved: BTreeMap<(usize, Key), (usize, Key)>,
    waiting: Vec<(usize, Key)>,
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
            config: 1,
            tenants: Vec::new(),
            limits: Default::default(),
            lives: BTreeMap::new(),
            permits: Default::default(),
            exchanges: Vec::new(),
            moved: BTreeMap::new(),
            waiting: Vec::new(),
        };
        for name in TENANTS {
            let settings = Settings::random(&mut story.rng, story.vendor);
            story.tenants.push(Tenant { name, account: "a0", engine: 0, lane: Key::NONE, settings });
            let last = story.tenants.len() - 1;
            story.configure(last);
        }
        story
    }

    /// Brings a tenant's lane, in the engine where it is, to its settings.
    fn configure(&mut self, number: usize) {
        let Tenant { name, account, engine, ref settings, .. } = self.tenants[number];
        self.config += 1;
        let plan = settings.plan();
        let known = self.tenants[number].holders();
        for (level, holder) in known.iter().enumerate() {
            let new = self.tenants[number].settings.limits(level, holder);
            // A holder of which nothing is asked any more keeps what it has.
            if level > 0 && new.is_empty() {
                continue;
            }
            let old = self.limits[engine].iter().filter(|limit| limit.0 == *holder).cloned().collect::<BTreeSet<_>>();
            for gone in old.difference(&new) {
                self.limits[engine].remove(gone);
            }
            for come in new.difference(&old) {
                self.limits[engine].insert(come.clone());
                *self.lives.entry(come.clone()).or_default() += 1;
            }
        }
        self.tenants[number].lane = self.engines[engine].upsert(self.now, name, account, &plan, self.config);
    }

    /// Takes a tenant to an account, and to the engine that holds it. One engine holds all that share a vendor's limits.
    fn move_to(&mut self, number: usize, account: &'static str) {
        let (from, to) =
            (self.tenants[number].engine, usize::from(self.vendor == Vendor::Nothing && account.starts_with('b')));
        if from == to {
            self.tenants[number].account = account;
            return self.configure(number);
        }
        self.notice_grants();
        let (name, lane) = (self.tenants[number].name, self.tenants[number].lane);
        // What its permits took of its own limits goes along.
        let mut own = Vec::new();
        for key in self.engines[from].permits_of(lane) {
            let permit = self.permits[from].get_mut(&key).expect("it was noticed");
            let took = permit.took.extract_if(.., |(limit, _)| limit.0 == name).collect::<Vec<_>>();
            own.push((key, identity(&self.engines[from].permits[key]), took));
        }
        let moved = self.engines[from].move_out(self.now, lane).expect("the lane exists");
        self.notice_grants();
        (self.tenants[number].account, self.tenants[number].engine) = (account, to);
        let limits: Vec<Limit> = self.limits[from].extract_if(.., |limit| limit.0 == name).collect();
        self.limits[to].extend(limits);
        self.configure(number);
        let lane = self.tenants[number].lane;
        let told = self.engines[to].move_in(self.now, lane, moved);
        self.moved.extend(told.iter().map(|(before, after)| ((from, *before), (to, *after))));
        let mut untold: Vec<Key> = self.engines[to].permits_of(lane);
        untold.retain(|key| !told.iter().any(|(_, after)| after == key));
        for (before, what, took) in own {
            let after = told.iter().find(|(key, _)| *key == before).map(|(_, after)| *after).or_else(|| {
                // Its caller went away: it ends by its deadline, under a key that nobody was told.
                let at = untold.iter().position(|key| identity(&self.engines[to].permits[*key]) == what)?;
                Some(untold.swap_remove(at))
            });
            // What was granted and not picked up was given back.
            if let Some(after) = after {
                self.permits[to].insert(after, Counted { took });
            }
        }
    }

    /// Forgets permits that have ended, and counts those that are new.
    fn notice_grants(&mut self) {
        for engine in 0..2 {
            let there: BTreeSet<Key> = self.engines[engine].permits.keys().collect();
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
                let endpoint = tenant.settings.endpoints.get(permit.origin.endpoint as usize).copied();
                let mut took = Vec::new();
                for (level, holder) in tenant.holders().iter().enumerate() {
                    // A lane that asks for no shared limit at a level takes from none.
                    if tenant.settings.limits(level, holder).is_empty() {
                        continue;
                    }
                    let limits = self.limits[engine].iter().filter(|limit| limit.0 == *holder);
                    for limit in limits.filter(|limit| limit.1.is_none() || limit.1 == endpoint) {
                        took.push((limit.clone(), self.lives[limit]));
                    }
                }
                self.permits[engine].insert(key, Counted { took });
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
            let lane = &inside.lanes.slab[tenant.lane];
            for (number, (cell, spec)) in lane.own.clone_cells().into_iter().zip(&lane.plan.own).enumerate() {
                let endpoint = lane.plan.endpoints.iter().find(|endpoint| endpoint.own.contains(&number));
                let endpoint = endpoint.and_then(|endpoint| name(endpoint.hash));
                if let Some(taken) = cell.slots_used() {
                    used.insert((tenant.name.to_owned(), endpoint, limit_name(spec)), taken);
                }
            }
        }
        for key in inside.lanes.shared.keys() {
            let shared = &inside.lanes.shared[key];
            let holder = shared.key.account.as_ref().map_or("*".to_owned(), |account| format!("@{account}"));
            for (cell, spec) in shared.cells.iter().zip(shared.specs.iter()) {
                let limit = (holder.clone(), spec.endpoint.and_then(name), limit_name(&spec.spec));
                used.insert(limit, cell.slots_used().unwrap_or(0));
            }
        }
        used
    }

    fn check(&mut self, step: &str) {
        self.notice_grants();
        for engine in 0..2 {
            let mut expected: BTreeMap<Limit, u32> = BTreeMap::new();
            for (limit, life) in self.permits[engine].values().flat_map(|permit| &permit.took) {
                if self.limits[engine].contains(limit) && self.lives[limit] == *life {
                    *expected.entry(limit.clone()).or_default() += 1;
                }
            }
            let mut used = self.used(engine);
            used.retain(|_, taken| *taken > 0);
            assert_eq!(used, expected, "slots taken in engine {engine} after: {step}");
            if self.vendor != Vendor::Sometimes {
                self.check_nobody_sleeps(engine, step);
            }
        }
    }

    /// The first of each queue has a limit in its way.
    fn check_nobody_sleeps(&mut self, engine: usize, step: &str) {
        let engine = &mut self.engines[engine];
        let queues: Vec<Key> = engine.queues.keys().collect();
        for queue in queues {
            let queue = &engine.queues[queue];
            if queue.head().is_some() {
                let need = Need { lane: queue.lane, endpoint: queue.endpoint, tier: queue.tier, cost: 1.into() };
                let until = engine.until(&need);
                assert!(until != Until::At(self.now), "{need:?} waits for limits that have room, after: {step}");
            }
        }
    }

    /// Tells the engines what becomes of an exchange, in whatever engines its permit is.
    fn tell(&mut self, at: (usize, Key), ends: bool, tell: impl Fn(&mut Engine, Time, Key)) {
        let mut next = Some(at);
        while let Some((engine, key)) = next {
            tell(&mut self.engines[engine], self.now, key);
            next = if ends { self.moved.remove(&(engine, key)) } else { self.moved.get(&(engine, key)).copied() };
        }
    }

    /// Whoever was woken is there at once, mostly.
    fn pick_up(&mut self, always: bool) {
        for engine in 0..2 {
            let woken: Vec<Key> = self.engines[engine].woken().collect();
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
            number => number as EndpointId - 1,
        };
        let ask = Ask { endpoint, immediate: self.rng.u8(..4) == 0, ..ask(self.rng.u8(..3)) };
        match self.engines[tenant.engine].submit(self.now, tenant.lane, &ask) {
            Answer::Granted(permit) => self.exchanges.push((tenant.engine, permit)),
            Answer::Wait { waiter, .. } => self.waiting.push((tenant.engine, waiter)),
            Answer::Refused(_) => {}
        }
        format!("{} submits to {endpoint}", tenant.name)
    }

    fn end_one(&mut self) -> String {
        let number = self.rng.usize(..self.exchanges.len());
        let at = self.exchanges[number];
        let what = self.rng.u8(..8);
        match what {
            0 => self.tell(at, false, |engine, now, key| engine.answered(now, key)),
            1 => self.tell(at, true, |engine, now, key| engine.abandoned(now, key)),
            2 => self.tell(at, true, |engine, now, key| engine.not_sent(now, key)),
            _ => self.tell(at, true, |engine, now, key| engine.finished(now, key)),
        }
        if what > 0 {
            self.exchanges.swap_remove(number);
        }
        format!("{at:?} ends in way {what}")
    }

    fn step(&mut self) -> String {
        match self.rng.u8(..20) {
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
                self.configure(number);
                format!("{} gets other limits", self.tenants[number].name)
            }
            16 | 17 => {
                let number = self.rng.usize(..self.tenants.len());
                let account = ACCOUNTS[self.rng.usize(..ACCOUNTS.len())];
                self.move_to(number, account);
                format!("{} goes to {account}", self.tenants[number].name)
            }
            18 => {
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
    fn come_to_rest(&mut self) {
        for _ in 0..100_000 {
            self.pick_up(true);
            self.check("an end");
            if let Some(at) = self.exchanges.pop() {
                self.tell(at, true, |engine, now, key| engine.finished(now, key));
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

fn play(seed: u64, steps: usize) {
    let mut story = Story::new(seed);
    for _ in 0..steps {
        let step = story.step();
        story.engines.iter_mut().for_each(|engine| engine.poll(story.now));
        story.check(&step);
        story.pick_up(false);
        story.check("woken");
    }
    story.come_to_rest();
}

#[test]
fn slots_are_counted_exactly_and_nobody_sleeps_under_any_changes() {
    for seed in 0..300 {
        if let Err(panic) = std::panic::catch_unwind(|| play(seed, 200)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
