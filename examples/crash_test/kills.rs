//! One worker at a time, killed at random moments and at named points.

use std::collections::BTreeMap;
use std::time::Duration;

use integration_client::testing::Delay;

use crate::judge::{Judge, World};
use crate::worker::{Orders, points};
use crate::{Fallible, Options};

pub(crate) fn run(options: &Options, kills: u32) -> Fallible<bool> {
    // Workers accept more requests than the limit lets them send. So a worker that forgot at its restart what was sent
    // before would exceed the limit.
    let service = Delay::fixed(Duration::from_millis(5)).jitter(Duration::from_millis(40));
    let world = World { limit: 60, service, lease: Duration::from_secs(2), workers: 1 };
    let mut judge = Judge::new(options, &world)?;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let points = points();
    let mut reached: BTreeMap<&str, u32> = BTreeMap::new();
    let round = u64::try_from(options.round.as_millis())?;
    for kill in 1..=kills {
        let point = random.bool().then(|| &points[random.usize(..points.len())]);
        // Some points are reached at the start for the first time, and under load later.
        let at = point.map(|point| format!("{point}:{}", [1, 1, 2, 5, 20][random.usize(..5)]));
        let orders = Orders { run: Some(kill.to_string()), point: at, ..judge.orders.clone() };
        let mut worker = orders.start()?;
        let most = if point.is_some() { 1_000 } else { random.u64(20..round) };
        worker.ends_within(Duration::from_millis(most))?;
        let ended = worker.kill()?;
        if let Some(point) = point.filter(|_| ended.at_point) {
            *reached.entry(point).or_default() += 1;
        }
        judge.bury(ended);
        judge.count_begun()?;
        if kill % 50 == 0 {
            println!("crash-test: {kill} kills, {} exchanges under way at them", judge.in_flight.len());
        }
    }
    let at_points: u32 = reached.values().sum();
    let names: Vec<&str> = reached.into_keys().collect();
    println!("crash-test: {at_points} of the kills at {} named points: {}", names.len(), names.join(" "));
    judge.verdict(&format!("kills={kills}"), "", false)
}
