//! Processes that always have requests waiting share few units, in virtual time: none goes without, and together they
//! use no more than there are. The engines, the calls and the ledger are the library's own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::capacity::call::{Answer, Reading};
use crate::capacity::ledger::Ledger;
use crate::capacity::process::Process;
use crate::clock::Time;
use crate::config::{Config, Holds, Sources};
use crate::dispatch::plan::{Policy, compile};
use crate::engine::keys::{LaneKey, PermitKey};
use crate::engine::limit::Wish;
use crate::engine::plan::{NO_ENDPOINT, Plan};
use crate::engine::tier::Tier;
use crate::engine::{Answer as Asked, Ask, Attempt, Bound, Claim, Engine, PooledLimit, Refusal};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The time between two looks at all processes.
const STEP: u64 = 50 * MS;
/// How long a request takes.
const TOOK: u64 = 400 * MS;
/// How many requests wait in each process.
const WAITING: usize = 10;
const LEASE: Duration = Duration::from_secs(10);

/// One process.
struct Member {
    engine: Engine,
    lane: LaneKey,
    process: Process,
    /// The cost of a request.
    cost: u32,
    /// How long a request takes.
    took: u64,
    /// The time between two requests; `None` if some always wait.
    between: Option<u64>,
    /// The most requests that wait or are under way, if some always wait.
    most: usize,
    /// Whether its requests do not wait.
    immediate: bool,
    /// The time between two calls to the store.
    every: u64,
    /// When the next request comes, if none always waits.
    next: Time,
    waiting: usize,
    /// Its requests under way, each with its end.
    under_way: VecDeque<(Time, PermitKey)>,
    /// When it calls the store next.
    due: Time,
    sent: u32,
}

impl Member {
    /// Ends and begins requests.
    fn serve(&mut self, now: Time) {
        self.engine.poll(now);
        while let Some((_, permit)) = self.under_way.pop_front_if(|(ends, _)| *ends <= now) {
            self.engine.finished(now, permit);
        }
        loop {
            let woken: Vec<_> = self.engine.woken().collect();
            for waiter in woken {
                if let Claim::Started(permit, _) = self.engine.claim(now, waiter) {
                    self.waiting -= 1;
                    self.send(now, permit);
                }
            }
            if !self.has_more(now) {
                return;
            }
            self.submit(now);
        }
    }

    /// Whether one more request comes.
    fn has_more(&mut self, now: Time) -> bool {
        let Some(between) = self.between else {
            return self.waiting < WAITING && self.waiting + self.under_way.len() < self.most;
        };
        let is_due = self.next <= now;
        if is_due {
            self.next = now.plus_nanos(between);
        }
        is_due
    }

    fn submit(&mut self, now: Time) {
        let ask = Ask {
            immediate: self.immediate,
            ..Ask::new(Tier::Normal, NO_ENDPOINT, self.cost, Attempt::within(30 * SECOND))
        };
        match self.engine.submit(now, self.lane, &ask) {
            Asked::Granted(permit) => self.send(now, permit),
            Asked::Wait { .. } => self.waiting += 1,
            Asked::Refused(Refusal::NotNow { .. }) if self.immediate => {}
            Asked::Refused(why) => panic!("{why:?}"),
        }
    }

    fn send(&mut self, now: Time, permit: PermitKey) {
        self.under_way.push_back((now.plus_nanos(self.took), permit));
        self.sent += 1;
    }

    /// Makes a call, which the store answers at once.
    fn call(&mut self, now: Time, ledger: &mut Option<Ledger>) {
        let (mut limits, mut wishes): (Vec<PooledLimit>, Vec<(String, Wish)>) = Default::default();
        self.engine.wishes(now, |limit, name, wish| {
            limits.push(limit);
            wishes.push((name, wish));
        });
        let is_starved = wishes.iter().any(|(_, wish)| wish.is_starved);
        let call = self.process.call(now, wishes, false);
        let clock_us = now.as_nanos() / 1_000;
        let mut got = Vec::new();
        for entry in &call.lines {
            let (answer, after) = call.exchange(entry, ledger.take(), None, Reading::of(clock_us));
            *ledger = Some(after);
            got.push(Ok(answer));
        }
        let until = self.process.until(now);
        let got = self.process.answered(now, now, &call, &Answer { clock_us, read_at: None, got });
        for (limit, got) in limits.into_iter().zip(got) {
            assert!(self.engine.hold(now, limit, &got.expect("an answer"), until));
        }
        self.due = now.plus_nanos(if is_starved { self.every / 2 } else { self.every });
    }
}

struct World {
    now: Time,
    plan: Arc<Plan>,
    ledger: Option<Ledger>,
    members: Vec<Member>,
    /// The most requests that may be under way.
    most: usize,
}

impl World {
    fn new(slots: u32, members: usize) -> World {
        World::of(plan_with_slots(slots), slots as usize, members)
    }

    fn of(plan: Arc<Plan>, most: usize, members: usize) -> World {
        let now = Time::from_nanos(3_600 * SECOND);
        let mut world = World { now, plan, ledger: None, members: Vec::new(), most };
        (0..members).for_each(|_| world.join());
        world
    }

    /// One more process starts.
    fn join(&mut self) {
        let mut engine = Engine::new(Bound::new(1_000), Default::default());
        let lane = engine.upsert(self.now, "acme", "acme", &self.plan, None);
        let process = Process::new(1 + self.members.len() as u64, LEASE);
        self.members.push(Member {
            engine,
            lane,
            process,
            cost: 1,
            took: TOOK,
            between: None,
            most: usize::MAX,
            immediate: false,
            every: SECOND,
            next: self.now,
            waiting: 0,
            under_way: VecDeque::new(),
            due: self.now,
            sent: 0,
        });
    }

    /// Lets time pass. Returns what each process has sent meanwhile.
    fn run(&mut self, seconds: u64) -> Vec<u32> {
        let until = self.now.plus_nanos(seconds * SECOND);
        self.members.iter_mut().for_each(|member| member.sent = 0);
        while self.now < until {
            self.now = self.now.plus_nanos(STEP);
            for member in &mut self.members {
                member.serve(self.now);
                if member.due <= self.now {
                    member.call(self.now, &mut self.ledger);
                    member.serve(self.now);
                }
            }
            let under_way = self.under_way();
            assert!(under_way.iter().sum::<usize>() <= self.most, "{under_way:?}");
        }
        self.members.iter().map(|member| member.sent).collect()
    }

    /// The requests of each process that are under way.
    fn under_way(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.under_way.len()).collect()
    }
}

fn plan_with_slots(slots: u32) -> Arc<Plan> {
    plan_with(&format!("concurrency = {slots}"))
}

/// A plan with one limit.
fn plan_with(limit: &str) -> Arc<Plan> {
    let text = format!(
        "[vendors.v]\nbase_url = \"https://v.test\"\nauth = {{ scheme = \"bearer\" }}\n\
         [[vendors.v.limits]]\nname = \"few\"\n{limit}\n"
    );
    let config = Config::load(&Sources::new().without_catalogue().file("v", text), 1).expect("a vendor");
    let vendor = config.vendor("v", "live").expect("a vendor");
    let holds = Holds { windows_from: Duration::ZERO, name: "a test" };
    Arc::new(compile(&vendor, 1, &Policy { pooled: Some(holds), ..Policy::USUAL }))
}

#[test]
fn newcomer_gets_its_part_of_slots() {
    let mut world = World::new(10, 1);
    let alone = world.run(10)[0];
    assert!(alone >= 220, "{alone} of 25 a second");
    world.join();
    world.run(10);
    assert_eq!(world.under_way(), [5, 5]);
    let sent = world.run(20);
    assert!(sent.iter().all(|sent| (230..=255).contains(sent)), "{sent:?} of 12.5 a second each");
}

#[test]
fn slots_go_round_among_more_processes() {
    let mut world = World::new(2, 5);
    world.run(30);
    let sent = world.run(300);
    let all: u32 = sent.iter().sum();
    assert!(all >= 1_200, "{sent:?} of 5 a second");
    assert!(sent.iter().all(|sent| sent * 5 >= all * 8 / 10), "{sent:?}");
}

/// The one slot that is lacking costs no more than the time in which one slot changes hands.
#[test]
fn slots_stay_used_beside_one_process_more() {
    let mut world = World::new(10, 11);
    for (number, member) in (0..).zip(&mut world.members) {
        member.due = world.now.plus_nanos(70 * MS * number);
    }
    world.run(30);
    let sent = world.run(300);
    let all: u32 = sent.iter().sum();
    assert!(all >= 6_600, "{sent:?}: 88 % of 25 a second");
    assert!(sent.iter().all(|sent| sent * 11 >= all * 8 / 10), "{sent:?}");
}

#[test]
fn light_process_leaves_slots_to_saturated_one() {
    let mut world = World::new(10, 2);
    (world.members[1].took, world.members[1].between) = (50 * MS, Some(300 * MS));
    world.run(30);
    let sent = world.run(60);
    assert!(sent[0] >= 18 * 60, "{sent:?} of 25 a second alone");
    assert!(sent[1] >= 190, "{sent:?} of 200");
}

/// Each request needs more than half of the units, so one process at a time has a turn.
#[test]
fn saturated_processes_take_turns_for_big_requests() {
    let limit = "limit = 3\nwindow = \"1s\"\nalgorithm = \"token_bucket\"\nsafety = 1.0\nunit = \"points\"";
    let mut world = World::of(plan_with(limit), 1, 2);
    world.members.iter_mut().for_each(|member| member.cost = 2);
    world.run(30);
    let sent = world.run(300);
    let all: u32 = sent.iter().sum();
    assert!(sent.iter().all(|sent| sent * 4 > all), "{sent:?}");
    assert!(all * 2 <= 3 * 301, "{sent:?} of 3 points a second");
}

/// Each request of the first process needs all units.
#[test]
fn small_requests_pass_beside_big_ones() {
    let limit = "limit = 2\nwindow = \"1s\"\nalgorithm = \"token_bucket\"\nsafety = 1.0\nunit = \"points\"";
    let mut world = World::of(plan_with(limit), 1, 2);
    (world.members[0].cost, world.members[1].cost) = (2, 1);
    world.run(30);
    let sent = world.run(300);
    assert!(sent.iter().all(|sent| *sent >= 30), "{sent:?}");
}

/// Each request of the first process needs all units, because it may use four fifths of those that it holds.
#[test]
fn small_requests_pass_beside_one_for_a_whole_window() {
    for (units, cost, members, per_minute) in [(1_000, 800, 3, 180), (100, 80, 16, 30)] {
        let limit = format!(
            "limit = {units}\nwindow = \"1s\"\nalgorithm = \"sliding_window\"\nsafety = 0.8\nunit = \"points\""
        );
        let mut world = World::of(plan_with(&limit), units, members);
        world.members.iter_mut().for_each(|member| member.every = SECOND / 4);
        world.members[0].cost = cost;
        for seconds in [30, 120] {
            let sent = world.run(seconds);
            assert!(u64::from(sent[0]) * 10 >= seconds, "{sent:?} in {seconds} s");
            let small = |sent: &u32| u64::from(*sent) * 60 >= per_minute * seconds;
            assert!(sent[1..].iter().all(small), "{sent:?} in {seconds} s");
        }
    }
}

/// Two processes have one request for all units each, so that their turns end early, and a third has small ones.
#[test]
fn requests_for_whole_windows_leave_time_to_small_ones() {
    let limit = "limit = 1000\nwindow = \"1s\"\nalgorithm = \"sliding_window\"\nsafety = 0.8\nunit = \"points\"";
    for took in [50 * MS, 400 * MS] {
        let mut world = World::of(plan_with(limit), 1_000, 3);
        for (member, cost) in world.members.iter_mut().zip([800, 800, 1]) {
            (member.every, member.cost, member.took) = (SECOND / 4, cost, took);
            member.most = if cost > 1 { 1 } else { 1_000 };
        }
        world.run(30);
        let sent = world.run(120);
        assert!(sent.iter().all(|sent| *sent >= 8), "{sent:?}");
        assert!(sent[2] >= 120, "{sent:?}");
    }
}

/// The second process needs more than it holds beside the first one, and less than its own part.
#[test]
fn requests_for_most_units_leave_time_to_middle_ones() {
    let limit = "limit = 1000\nwindow = \"1s\"\nalgorithm = \"sliding_window\"\nsafety = 0.8\nunit = \"points\"";
    let mut world = World::of(plan_with(limit), 1_000, 2);
    for (member, cost) in world.members.iter_mut().zip([720, 160]) {
        (member.every, member.cost) = (SECOND / 4, cost);
    }
    world.run(30);
    let sent = world.run(120);
    assert!(sent.iter().all(|sent| *sent >= 12), "{sent:?}");
}

/// Three programs try once in twelve seconds, and find no unit then. Those kept for them are missing to the sender.
#[test]
fn immediate_requests_take_few_units_from_sender() {
    let limit = "limit = 3\nwindow = \"1s\"\nalgorithm = \"sliding_window\"\nsafety = 1.0";
    let mut world = World::of(plan_with(limit), WAITING, 4);
    for (number, member) in (0..).zip(&mut world.members) {
        (member.took, member.every) = (50 * MS, SECOND / 4);
        if number > 0 {
            (member.immediate, member.between) = (true, Some(12 * SECOND));
            member.next = world.now.plus_nanos(4 * SECOND * number);
        }
    }
    world.run(24);
    let sent = world.run(120);
    assert!(sent[0] >= 240, "{sent:?}: 2 of 3 a second");
}

#[test]
fn slots_follow_a_lowered_limit() {
    for (slots, expected) in [(4, [2, 2]), (20, [10, 10])] {
        let mut world = World::new(10, 2);
        world.run(10);
        assert_eq!(world.under_way(), [5, 5]);
        world.plan = plan_with_slots(slots);
        for member in &mut world.members {
            member.engine.upsert(world.now, "acme", "acme", &world.plan, None);
        }
        world.most = world.most.max(slots as usize);
        world.run(5);
        world.most = slots as usize;
        world.run(10);
        assert_eq!(world.under_way(), expected);
    }
}

/// The tenant of the first process is paused while its requests wait.
#[test]
fn paused_tenant_leaves_account_to_other_process() {
    let rate = "limit = 100\nwindow = \"1s\"\nalgorithm = \"sliding_window\"";
    for (limit, most) in [(rate, 100), ("concurrency = 10", 10)] {
        let mut world = World::of(plan_with(&format!("{limit}\nscope = \"account\"")), most, 2);
        world.members.iter_mut().for_each(|member| member.every = SECOND / 4);
        world.run(20);
        let both = world.run(20);
        let all: u32 = both.iter().sum();
        assert!(both.iter().all(|sent| sent * 10 >= all * 4), "{both:?}");
        let (now, lane) = (world.now, world.members[0].lane);
        world.members[0].engine.pause(now, lane);
        world.run(10);
        let alone = world.run(20);
        assert!(alone[0] == 0 && alone[1] * 10 >= all * 8, "{alone:?} beside {both:?}");
        world.members[0].engine.unpause(now, lane);
        world.run(10);
        let again = world.run(20);
        assert!(again.iter().all(|sent| sent * 10 >= all * 4), "{again:?} beside {both:?}");
    }
}
