//! Invariants under random requests through a random network, in virtual time, judged by the offline checker, which
//! shares no code with the engine.

#![expect(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::time::Duration;

use integration_client::Priority;
use integration_client::config::{Scope, Sources};
use integration_client::testing::checker::{Definition, Event, check};
use integration_client::testing::{End, Job, Network, ScriptedVendor, VendorLimit, World};
use proptest::prelude::*;

const PRIORITIES: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The entry of a vendor with a rate limit and perhaps slots, and some tenants.
#[derive(Clone, Debug)]
struct Entry {
    limit: u32,
    window: Duration,
    algorithm: &'static str,
    scope: &'static str,
    safety: f64,
    transit: Duration,
    slots: u32,
    tenants: usize,
}

impl Entry {
    fn sources(&self) -> Sources {
        let Entry { limit, algorithm, scope, safety, slots, .. } = self;
        let (window, transit) = (self.window.as_millis(), self.transit.as_millis());
        let mut text = format!(
            r#"
[vendors.v]
base_url = "https://v.example"
max_transit = "{transit}ms"
attempt_timeout = "30s"
[[vendors.v.limits]]
name = "rate"
limit = {limit}
window = "{window}ms"
algorithm = "{algorithm}"
scope = "{scope}"
safety = {safety:?}
unit = "points"
"#
        );
        // Only some entries have slots: a lane with slots remembers for a minute how long its vendor takes, and is not
        // evicted before.
        if self.slots < 1_000 {
            text += &format!("[[vendors.v.limits]]\nname = \"slots\"\nconcurrency = {slots}\nscope = \"{scope}\"\n");
        }
        for tenant in 0..self.tenants {
            text += &format!("[[tenants]]\nid = \"t{tenant:02}\"\nvendor = \"v\"\naccount = \"a{}\"\n", tenant % 2);
        }
        Sources::new().without_catalogue().file("world.toml", text)
    }

    fn holder(&self, tenant: usize, account: u32) -> u64 {
        match self.scope {
            "vendor" => 0,
            "account" => u64::from(account),
            _ => tenant as u64,
        }
    }

    fn scope(&self) -> Scope {
        match self.scope {
            "vendor" => Scope::Vendor,
            "account" => Scope::Account,
            _ => Scope::Tenant,
        }
    }

    fn vendor(&self, phase: Duration) -> ScriptedVendor {
        let rate = match self.algorithm {
            "fixed_window" => VendorLimit::fixed_window(self.limit, self.window).phase(phase),
            _ => VendorLimit::sliding_window(self.limit, self.window).count_both_ends(),
        };
        ScriptedVendor::new([rate.scope(self.scope()), VendorLimit::concurrency(self.slots).scope(self.scope())])
    }

    /// The number of windows in which a holder's arrivals exceed the limit.
    fn violations(&self, world: &World) -> u64 {
        let (limit, window_ns) = (u64::from(self.limit), self.window.as_nanos() as u64);
        let definitions = [
            match self.algorithm {
                "fixed_window" => Definition::FixedWindowEveryPhase { limit, window_ns },
                _ => Definition::SlidingWindow { limit, window_ns, both_ends: true },
            },
            Definition::Concurrency { limit: u64::from(self.slots) },
        ];
        let mut holders = std::collections::BTreeMap::<u64, Vec<Event>>::new();
        for arrival in world.arrivals() {
            holders.entry(self.holder(arrival.tenant, arrival.account)).or_default().push(arrival.event);
        }
        let broken = |log: &Vec<Event>| definitions.iter().map(|is| check(log, is).violating).sum::<u64>();
        holders.values().map(broken).sum()
    }
}

prop_compose! {
    fn entries()(
        limit in 4u32..60,
        window in 100u64..4_000,
        algorithm in prop::sample::select(vec!["fixed_window", "sliding_window"]),
        scope in prop::sample::select(vec!["tenant", "account", "vendor"]),
        safety in prop::sample::select(vec![0.5, 0.8, 0.95, 1.0]),
        transit in 20u64..1_500,
        slots in prop::sample::select(vec![2u32, 5, 1_000]),
        tenants in 1usize..5,
    ) -> Entry {
        let (window, transit) = (ms(window), ms(transit));
        Entry { limit, window, algorithm, scope, safety, transit, slots, tenants }
    }
}

prop_compose! {
    /// A network whose requests arrive within `transit`.
    fn networks(transit: Duration)(
        slow in 0u32..=100,
        service in 0u64..300,
        back in 0u64..500,
        pick_up in prop::sample::select(vec![0u64, 0, 5, 150]),
        lost in prop::sample::select(vec![0u32, 30]),
        not_sent in prop::sample::select(vec![0u32, 50]),
        gone in prop::sample::select(vec![0u32, 50]),
        cancelled in prop::sample::select(vec![0u32, 100]),
    ) -> Network {
        Network {
            to_vendor: Duration::ZERO..=transit * slow / 100,
            service: Duration::ZERO..=ms(service),
            from_vendor: Duration::ZERO..=ms(back),
            pick_up: Duration::ZERO..=ms(pick_up),
            lost_answers: lost,
            not_sent,
            abandoned: gone,
            cancelled,
        }
    }
}

#[derive(Clone, Debug)]
struct Scenario {
    entry: Entry,
    network: Network,
    phase: Duration,
    seed: u64,
    jobs: usize,
    span: Duration,
    evict: bool,
    reloads: Vec<(u64, u32, f64)>,
}

prop_compose! {
    fn stories()(entry in entries())(
        network in networks(entry.transit),
        phase in 0..entry.window.as_millis() as u64,
        seed in any::<u64>(),
        jobs in 50usize..400,
        windows in 1u32..12,
        evict in any::<bool>(),
        // A reload may lower the configured limit, or raise it again, but never above the vendor's real limit.
        reloads in prop::collection::vec((0u64..8_000, 1..=entry.limit, 0.5f64..=1.0), 0..3),
        entry in Just(entry),
    ) -> Scenario {
        let span = entry.window * windows;
        // The client can only guess how long a vendor works on an abandoned request, so slots are not exact then.
        let slots = if network.abandoned > 0 { 1_000 } else { entry.slots };
        let entry = Entry { slots, ..entry };
        Scenario { entry, network, phase: ms(phase), seed, jobs, span, evict, reloads }
    }
}

/// Submits jobs of all tenants, tiers and costs at random times, many of them at once.
fn submit_random(world: &mut World, rng: &mut fastrand::Rng, jobs: usize, span: Duration, largest: u32) {
    let tenants = world.tenants().len();
    let mut at = 0;
    for _ in 0..jobs {
        if rng.u32(0..4) == 0 {
            at = rng.u64(0..=span.as_millis() as u64);
        }
        let mut job = Job::new(rng.usize(0..tenants), PRIORITIES[rng.usize(0..3)]);
        job.cost = if rng.u32(0..5) == 0 { rng.u32(1..=largest) } else { 1 };
        if rng.u32(0..5) == 0 {
            job.patience = ms(rng.u64(0..3_000));
        }
        world.submit(ms(at), job);
    }
}

fn run_scenario(story: &Scenario) -> World {
    let Scenario { entry, network, phase, seed, jobs, span, evict, reloads } = story;
    let mut world = World::new(entry.sources(), entry.vendor(*phase), *seed).unwrap().network(network.clone());
    if *evict {
        world = world.evicting_every(ms(137));
    }
    let mut rng = fastrand::Rng::with_seed(*seed);
    submit_random(&mut world, &mut rng, *jobs, *span, (entry.limit / 8).max(1));
    for (at, limit, safety) in reloads {
        let lowered = Entry { limit: *limit, safety: (safety * 100.0).round() / 100.0, ..entry.clone() };
        world.reload(ms(*at), lowered.sources());
    }
    world.run(Duration::from_secs(600)).unwrap();
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: Some(Box::new(
        proptest::test_runner::FileFailurePersistence::WithSource("regressions"))), ..ProptestConfig::default() })]

    /// No vendor window ever holds more than the limit, whatever the phase, delays, cancels, failures, reloads and
    /// evictions are. Every job ends exactly once (the world checks that), and nothing is left behind.
    #[test]
    fn world_never_exceeds_the_limit(story in stories()) {
        let mut world = run_scenario(&story);
        prop_assert_eq!(world.refused(), 0, "refused by the vendor");
        prop_assert_eq!(story.entry.violations(&world), 0, "found by the checker");
        world.run_to_end().unwrap();
        let ended = world.ends().filter(Option::is_some).count();
        prop_assert_eq!(ended, story.jobs, "every job ends");
        prop_assert_eq!(world.load(), (0, 0));
    }

    /// The same story has the same trace each time, and eviction of idle lanes does not change it.
    #[test]
    fn same_with_and_without_eviction(story in stories()) {
        let trace = |evict| run_scenario(&Scenario { evict, ..story.clone() }).trace();
        prop_assert_eq!(trace(false), trace(false));
        prop_assert_eq!(trace(false), trace(true));
    }

    /// A request to which time t was promised is granted at t, if nothing interferes.
    #[test]
    fn promised_moment_is_kept(story in stories()) {
        let Scenario { entry, network, phase, seed, span, .. } = &story;
        let mut world = World::new(entry.sources(), entry.vendor(*phase), *seed).unwrap().network(Network {
            pick_up: Duration::ZERO..=Duration::ZERO,
            lost_answers: 0,
            not_sent: 0,
            abandoned: 0,
            cancelled: 0,
            ..network.clone()
        });
        let mut rng = fastrand::Rng::with_seed(*seed);
        submit_random(&mut world, &mut rng, 60, *span, (entry.limit / 8).max(1));
        world.run(Duration::from_secs(120)).unwrap();
        prop_assert_eq!(world.load(), (0, 0));
        // Sends as many requests as fit at once, which are all answered, and then one more.
        let at = Duration::from_secs(120);
        let tenant = rng.usize(0..entry.tenants);
        for _ in 0..entry.limit {
            world.submit(at, Job { patience: Duration::from_nanos(1), ..Job::new(tenant, Priority::Normal) });
        }
        let last = world.submit(at + ms(5_000), Job::new(tenant, Priority::Normal));
        world.run_to_end().unwrap();
        prop_assert_eq!(world.early(), 0);
        if let Some(promised) = world.promised(last) {
            let granted = world.grants().iter().find(|grant| grant.job == last).unwrap().at;
            prop_assert_eq!(granted, promised);
        }
    }

    /// While requests of all tiers and tenants wait, any hundred grants in a row are shared 60 / 30 / 10, and tenants
    /// are served in turn.
    #[test]
    fn shares_hold_whoever_shares_the_limit(
        tenants in 1usize..5,
        scope in prop::sample::select(vec!["account", "vendor"]),
        limit in 40u32..150,
        delay in 0u64..40,
    ) {
        let entry = Entry {
            limit, window: ms(1_000), algorithm: "sliding_window", scope, safety: 0.8, transit: ms(100), slots: 10_000,
            tenants: if scope == "account" { 2 * tenants } else { tenants },
        };
        let fixed = |n| ms(n)..=ms(n);
        let network = Network { to_vendor: fixed(delay), from_vendor: fixed(delay), ..Network::default() };
        let mut world = World::new(entry.sources(), entry.vendor(ms(0)), 1).unwrap().network(network);
        for number in 0..3 * 300 * tenants {
            let priority = PRIORITIES[number % 3];
            // With the scope `account`, only tenants with even numbers send, which are in one account.
            let tenant = number / 3 % tenants * if scope == "account" { 2 } else { 1 };
            world.submit(ms(0), Job::new(tenant, priority));
        }
        world.run(Duration::from_secs(600)).unwrap();
        // Leaves out the first grants, which found an empty queue, and the last ones, when no longer all three tiers
        // waited.
        let grants = &world.grants()[(limit as usize)..(300 * tenants).max(limit as usize + 100)];
        for window in grants.windows(100) {
            let count = |priority| window.iter().filter(|grant| grant.priority == priority).count() as i64;
            let shares = PRIORITIES.map(count);
            prop_assert!((shares[0] - 60).abs() <= 1 && (shares[1] - 30).abs() <= 1 && (shares[2] - 10).abs() <= 1,
                "{:?}", shares);
            for priority in PRIORITIES {
                let of = |tenant| window.iter().filter(|g| g.priority == priority && g.tenant == tenant).count();
                let turns: Vec<usize> = (0..entry.tenants).map(of).filter(|turns| *turns > 0).collect();
                let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
                prop_assert!(most - least <= 2, "{:?} of {}", turns, priority);
            }
        }
    }
}

/// The checks above detect a missing guard.
#[test]
fn without_the_guard_the_checker_finds_violations() {
    for algorithm in ["fixed_window", "sliding_window"] {
        let entry = Entry {
            limit: 100,
            window: ms(1_000),
            algorithm,
            scope: "tenant",
            safety: 0.8,
            transit: ms(100),
            slots: 1_000,
            tenants: 1,
        };
        let network = Network { to_vendor: ms(0)..=ms(50), from_vendor: ms(0)..=ms(50), ..Network::default() };
        let found = |guarded: bool| {
            let world = World::new(entry.sources(), entry.vendor(ms(330)), 7).unwrap().network(network.clone());
            let mut world = if guarded { world } else { world.without_guard() };
            for number in 0..2_000u64 {
                world.submit(ms(5 * number), Job::new(0, Priority::High));
            }
            world.run_to_end().unwrap();
            (world.refused(), entry.violations(&world))
        };
        assert_eq!(found(true), (0, 0), "{algorithm}");
        let (refused, violations) = found(false);
        assert!(refused > 0 && violations > 0, "{algorithm}: {refused} refused, {violations} violations");
    }
}

/// The grants of 99 polite tenants are the same to the nanosecond with and without another tenant that offers 100 times
/// its limit.
#[test]
fn noisy_tenant_changes_no_grant_times() {
    let entry = Entry {
        limit: 20,
        window: ms(1_000),
        algorithm: "fixed_window",
        scope: "tenant",
        safety: 0.8,
        transit: ms(200),
        slots: 4,
        tenants: 100,
    };
    let network = Network {
        to_vendor: ms(7)..=ms(7),
        service: ms(60)..=ms(60),
        from_vendor: ms(9)..=ms(9),
        ..Network::default()
    };
    let polite = |noisy: bool| {
        let mut world = World::new(entry.sources(), entry.vendor(ms(0)), 1).unwrap().network(network.clone());
        let mut names = Vec::new();
        let mut rng = fastrand::Rng::with_seed(11);
        for tenant in 0..99 {
            for _ in 0..60 {
                let job = world.submit(ms(rng.u64(0..5_000)), Job::new(tenant, PRIORITIES[rng.usize(0..3)]));
                names.push((job, tenant));
            }
        }
        if noisy {
            for number in 0..10_000u64 {
                world.submit(ms(number / 2), Job::new(99, PRIORITIES[number as usize % 3]));
            }
        }
        world.run(Duration::from_secs(20)).unwrap();
        let all = world.grants().iter().filter(|grant| grant.tenant != 99);
        all.map(|grant| (grant.at, grant.job, grant.tenant)).collect::<Vec<_>>()
    };
    let (with, without) = (polite(true), polite(false));
    assert_eq!(with.len(), 99 * 60);
    assert!(with == without, "the traces differ");
}

/// Low priority is served during a flood of high priority: one grant in ten, and never later than the eleventh grant.
#[test]
fn waiters_never_starve() {
    let entry = Entry {
        limit: 100,
        window: ms(1_000),
        algorithm: "sliding_window",
        scope: "tenant",
        safety: 0.8,
        transit: ms(100),
        slots: 1_000,
        tenants: 1,
    };
    let mut world = World::new(entry.sources(), entry.vendor(ms(0)), 1).unwrap();
    for number in 0..3_000u64 {
        world.submit(ms(number * 3), Job::new(0, Priority::High));
        if number % 4 == 0 {
            world.submit(ms(number * 3), Job::new(0, Priority::Low));
        }
    }
    world.run(Duration::from_secs(9)).unwrap();
    let grants = &world.grants()[200..];
    let mut since_low = 0;
    for grant in grants {
        since_low = if grant.priority == Priority::Low { 0 } else { since_low + 1 };
        assert!(since_low <= 10, "{since_low} grants without one for low");
    }
    assert!(world.ends().all(|end| matches!(end, None | Some(End::Admitted))));
}
