//! The timer task of a shard.

use super::plan::compile;
use super::*;
use crate::config::{Config, Sources};
use crate::engine::plan::NO_ENDPOINT;
use crate::engine::tier::Tier;
use crate::engine::{Answer, Until};

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

/// A sweep over a hundred chunks of lanes begins, and a grant is due after the first.
#[tokio::test(start_paused = true)]
async fn timers_go_on_during_a_sweep() {
    let config = Config::load(&Sources::new().without_catalogue().file("v", VENDOR), 1).unwrap();
    let plan = Arc::new(compile(&config.vendor("v", "live").unwrap(), 1, &Policy::USUAL));
    let engine = Engine::new(Bound::new(1_000), DefaultHashBuilder::default());
    let (clock, starved) = (Clock::system(), Arc::new(Notify::new()));
    let shard = Arc::new(Shard::new(engine, clock, starved));
    let ask = Ask {
        tier: Tier::High,
        endpoint: NO_ENDPOINT,
        cost: 1.into(),
        retry: false,
        immediate: false,
        give_up: Time::MAX,
        patience_ns: 0,
        attempt_ns: 30_000_000_000,
    };
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
