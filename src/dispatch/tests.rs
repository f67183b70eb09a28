//! The timer task of a shard.

use super::plan::compile;
use super::*;
use crate::config::{Config, Sources};
use crate::engine::plan::NO_ENDPOINT;
use crate::engine::tier::Tier;
use crate::engine::{Answer, Attempt, Until};

/// A vendor that takes a request and the next one some time later.
const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example"
auth = { scheme = "none" }
[[vendors.v.limits]]
name = "requests"
algorithm = "sliding_window"
limit = 10
window = "1m"
burst = 1
"#;

fn ask() -> Ask {
    Ask::new(Tier::High, NO_ENDPOINT, 1, Attempt::within(30_000_000_000))
}

/// A sweep over a hundred chunks of lanes begins, and a grant is due after the first.
#[tokio::test(start_paused = true)]
async fn timers_go_on_during_a_sweep() {
    let config = Config::load(&Sources::new().without_catalogue().file("v", VENDOR), 1).unwrap();
    let plan = Arc::new(compile(&config.vendor("v", "live").unwrap(), 1, &Policy::USUAL));
    let engine = Engine::new(Bound::new(1_000), DefaultHashBuilder::default());
    let (clock, starved) = (Clock::system(), Arc::new(Notify::new()));
    let shard = Arc::new(Shard::new(engine, clock, starved));
    let ask = ask();
    let until = shard.decide(|engine, now| {
        for number in 0..12_800 {
            engine.upsert(now, &number.to_string(), "", &plan, None);
        }
        let lane = engine.upsert(now, "busy", "", &plan, None);
        let first = engine.submit(now, lane, &ask);
        assert!(matches!(first, Answer::Granted(_)), "{first:?}");
        match engine.submit(now, lane, &ask) {
            Answer::Wait { until: Until::At(until), .. } => until,
            other => panic!("expected a wait, got {other:?}"),
        }
    });
    let ms = |n: u128| Duration::from_millis(u64::try_from(n).unwrap());
    let sweep_every = ms(until.since(clock.now()).as_millis() - 5);
    let look = || shard.look(|engine, _| (engine.waiting(), engine.lane_count()));
    let steps = async |count: usize| {
        for _ in 0..count {
            tokio::task::yield_now().await;
        }
    };
    let during = async {
        steps(1).await;
        tokio::time::advance(sweep_every).await;
        steps(3).await;
        let (waiting, lanes) = look();
        assert!(waiting == 1 && lanes < 12_801, "the sweep has begun: {waiting} wait, {lanes} lanes");
        tokio::time::advance(ms(10)).await;
        steps(5).await;
        let (waiting, lanes) = look();
        assert!(waiting == 0 && lanes > 10_000, "the sweep goes on: {waiting} wait, {lanes} lanes");
        shard.close();
    };
    tokio::join!(shard.clone().keep_time(sweep_every), during);
}

/// One shard has the longest queue and nothing to decide for minutes. A request of another shard displaces one there.
#[tokio::test(start_paused = true)]
async fn resting_shard_gives_way_by_its_next_sweep() {
    let text = VENDOR.replace("1m", "1h");
    let config = Config::load(&Sources::new().without_catalogue().file("v", &text), 1).unwrap();
    let plan = Arc::new(compile(&config.vendor("v", "live").unwrap(), 1, &Policy::USUAL));
    let (bound, clock) = (Bound::new(10), Clock::system());
    let shard = || {
        let engine = Engine::new(bound.clone(), DefaultHashBuilder::default());
        Arc::new(Shard::new(engine, clock, Arc::new(Notify::new())))
    };
    let (loud, quiet) = (shard(), shard());
    // The first request is granted, the others wait.
    let send = |shard: &Shard, tenant: &str, count: usize| {
        shard.decide(|engine, now| {
            let lane = engine.upsert(now, tenant, "", &plan, None);
            (0..count).map(|_| engine.submit(now, lane, &ask())).filter(|it| matches!(it, Answer::Wait { .. })).count()
        })
    };
    let waiting = |shard: &Shard| shard.look(|engine, _| engine.waiting());
    assert_eq!(send(&loud, "noisy", 12), 10);
    let during = async {
        tokio::task::yield_now().await;
        assert_eq!(send(&quiet, "modest", 2), 1, "the second request waits, and is not refused");
        assert_eq!((waiting(&loud), waiting(&quiet)), (10, 1));
        tokio::time::advance(SWEEP_EVERY + Duration::from_millis(5)).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!((waiting(&loud), waiting(&quiet)), (9, 1));
        loud.close();
    };
    tokio::join!(loud.clone().keep_time(SWEEP_EVERY), during);
}

/// The calls to the store of shared limits hold this lock while they ask all shards one after the other.
#[test]
fn lane_moves_under_the_lock_of_moves() {
    let dispatch = Dispatch::new(2, 10, Policy::USUAL, Clock::system());
    let [from, to] = dispatch.shards() else { panic!("two shards") };
    for (from, to) in [(from, to), (to, from)] {
        let mut is_locked = false;
        Shard::move_between(&dispatch.moves, from, to, |_, _, _| {
            is_locked = dispatch.moves.is_locked();
            Vec::new()
        });
        assert!(is_locked && !dispatch.moves.is_locked());
    }
}
