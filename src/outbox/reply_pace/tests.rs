//! Runs claims, results and waits on real stores, at simulated times.

#![allow(clippy::unwrap_used, reason = "tests: helpers unwrap too")]

use super::*;
use crate::BoxFuture;
use crate::clock::Clock;
use crate::store::driver::{Db, DbError};
use crate::store::replies::{self, ToDeliver};
use crate::store::tests::replies::as_written_before;
use crate::store::tests::{open, stores};
use crate::store::{Id, Opened, Store, new_id};

/// The time between two looks of a process.
const STEP: Duration = Duration::from_millis(250);
const MINUTE: Duration = Duration::from_secs(60);

/// The input of a step, and the simulated time at which it runs, in milliseconds.
struct At<T>(T, i64);

fn insert<'a>(at: &'a At<Vec<String>>, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move {
        let rows: Vec<(Id, &str)> = at.0.iter().map(|reply| (new_id(Clock::system()), reply.as_str())).collect();
        replies::insert(&rows, db, at.1).await
    })
}

fn is_any_due<'a>(at: &'a At<Claim>, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<bool, DbError>> {
    replies::is_any_due(&at.0, db, at.1)
}

fn claim<'a>(at: &'a At<Claim>, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Vec<ToDeliver>, DbError>> {
    replies::claim(&at.0, db, at.1)
}

fn settle<'a>(at: &'a At<Settled>, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<(), DbError>> {
    replies::settle(&at.0, db, at.1)
}

fn make_due<'a>(at: &'a At<()>, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<u64, DbError>> {
    as_written_before(db, at.1)
}

/// A process that delivers replies to a target that accepts some of them.
struct Delivery {
    store: Opened,
    pace: Pace,
    elapsed: Duration,
    /// The calls of the target, and the replies in all of them.
    calls: usize,
    tries: usize,
    accepted: Vec<String>,
}

impl Delivery {
    async fn on(store: &Store) -> Delivery {
        let (store, pace, elapsed) = (open(store).await, Pace::default(), Duration::ZERO);
        Delivery { store, pace, elapsed, calls: 0, tries: 0, accepted: Vec::new() }
    }

    fn at<T>(&self, input: T) -> At<T> {
        At(input, 1_000_000 + millis_of(self.elapsed))
    }

    async fn write(&self, count: usize, reply: &str) {
        let replies = vec![reply.to_owned(); count];
        self.store.write(self.at(replies), insert).await.unwrap();
    }

    /// Makes the claim that is to be made now, if there is one, and lets time pass until the next look.
    async fn step(&mut self, accepts: impl Fn(&str) -> bool) {
        let now = Time::ZERO + self.elapsed;
        if let Some(made) = self.pace.claim(now, MINUTE)
            && self.store.read(self.at(made.clone()), is_any_due).await.unwrap()
        {
            let claimed = self.store.write(self.at(made), claim).await.unwrap();
            self.calls += 1;
            self.tries += claimed.len();
            let accepted = claimed.iter().map(|reply| &*reply.kept.reply).filter(|reply| accepts(reply));
            self.accepted.extend(accepted.map(str::to_owned));
            let result = |reply: &ToDeliver| match accepts(&reply.kept.reply) {
                true => Ok(()),
                false => Err(BoxError::from("refused")),
            };
            let results = claimed.iter().map(result).collect();
            let outcome = Outcome::of(claimed.iter().map(Attempted::from), results, || 0.5);
            self.pace.after(now, &outcome, 0.5);
            self.store.write(self.at(outcome.settled), settle).await.unwrap();
        }
        self.elapsed += STEP;
    }

    /// How long it takes until the target accepts `reply`; at most an hour.
    async fn time_until(&mut self, reply: &str, accepts: impl Fn(&str) -> bool) -> Duration {
        let began = self.elapsed;
        while !self.accepted.iter().any(|accepted| accepted == reply) && self.elapsed - began < 60 * MINUTE {
            self.step(&accepts).await;
        }
        self.elapsed - began
    }

    async fn run_for(&mut self, time: Duration, accepts: impl Fn(&str) -> bool) {
        let end = self.elapsed + time;
        while self.elapsed < end {
            self.step(&accepts).await;
        }
    }
}

#[tokio::test]
async fn refused_replies_delay_no_other_sender() {
    let accepts = |reply: &str| !reply.starts_with("refused");
    for store in stores().await {
        let mut delivery = Delivery::on(&store).await;
        delivery.write(5_000, "refused").await;
        delivery.write(1, "behind 5,000 new ones").await;
        let time = delivery.time_until("behind 5,000 new ones", accepts).await;
        assert!(time < MINUTE, "{store:?}: {time:?}");
        // Now all of them have been tried and are due again, and the target has accepted nothing for a while.
        let all = Claim { most: 5_000, shares: vec![(Which::Untried, 5_000)], held_ms: 1_000 };
        delivery.store.write(delivery.at(all), claim).await.unwrap();
        delivery.run_for(2 * MINUTE, accepts).await;
        delivery.write(1, "behind 5,000 repetitions").await;
        let time = delivery.time_until("behind 5,000 repetitions", accepts).await;
        assert!(time <= 2 * STEP, "{store:?}: {time:?}");
        delivery.write(100, "refused").await;
        delivery.run_for(2 * MINUTE, accepts).await;
        delivery.write(1, "after new ones that were refused").await;
        let time = delivery.time_until("after new ones that were refused", accepts).await;
        assert!(time < MINUTE, "{store:?}: {time:?}");
        assert_eq!(delivery.accepted.len(), 3, "{store:?}: each once");
    }
}

#[tokio::test]
async fn absent_target_is_called_less_and_less() {
    for store in stores().await {
        let mut delivery = Delivery::on(&store).await;
        delivery.write(5_000, "reply").await;
        delivery.run_for(MINUTE, |_| false).await;
        assert!(delivery.calls <= 20, "{store:?}: {}", delivery.calls);
        let (calls, tries) = (delivery.calls, delivery.tries);
        delivery.run_for(10 * MINUTE, |_| false).await;
        let (calls, tries) = (delivery.calls - calls, delivery.tries - tries);
        // New replies every 9 s, and repetitions every 26 s.
        assert!((60..=95).contains(&calls) && tries <= 16 * 95, "{store:?}: {calls} calls, {tries} tries");
        // It is noticed soon that the target is back.
        delivery.run_for(MINUTE, |_| true).await;
        assert!(delivery.accepted.len() > 3_000, "{store:?}: {}", delivery.accepted.len());
    }
}

/// The earlier version wrote replies as due at once, like repetitions.
#[tokio::test]
async fn replies_of_earlier_version_are_repetitions() {
    for store in stores().await {
        let mut delivery = Delivery::on(&store).await;
        delivery.write(5_000, "reply").await;
        delivery.store.write(delivery.at(()), make_due).await.unwrap();
        delivery.run_for(MINUTE, |_| false).await;
        assert!(delivery.calls <= 20, "{store:?}: {}", delivery.calls);
    }
}

#[test]
fn refused_repetitions_let_new_replies_go_on() {
    let (mut pace, now) = (Pace::default(), Time::ZERO + MINUTE);
    let attempted = |number, tries| Attempted { number, tries, was_untried: tries == 1 };
    let refused = |tries| Outcome::of([attempted(1, tries)], vec![Err("refused".into())], || 0.5);
    for _ in 0..10 {
        pace.after(now, &refused(3), 0.0);
    }
    let shares = |pace: &Pace, now| pace.claim(now, MINUTE).map(|claim| claim.shares);
    assert_eq!(shares(&pace, now), Some(vec![(Which::Untried, 32), (Which::Untried, 64)]));
    assert_eq!(
        shares(&pace, now + Duration::from_secs(30)),
        Some(vec![(Which::Untried, 32), (Which::Tried, 16), (Which::Untried, 64)])
    );
    // A target that refuses new replies too gets nothing for a while.
    pace.after(now, &refused(1), 0.0);
    assert_eq!(shares(&pace, now), None);
    assert_eq!(shares(&pace, now + Duration::from_secs(1)), Some(vec![(Which::NewestUntried, 8), (Which::Untried, 8)]));
    let accepted = Outcome::of([attempted(1, 1), attempted(2, 1)], vec![Ok(())], || 0.5);
    assert_eq!((&accepted.settled.delivered, accepted.settled.later.len()), (&vec![1], 1));
    pace.after(now, &accepted, 0.0);
    assert_eq!(
        shares(&pace, now),
        Some(vec![(Which::Untried, 32), (Which::Tried, 64), (Which::Untried, 64)]),
        "one is enough"
    );
}

#[test]
fn waits_double_up_to_the_longest() {
    let waits: Vec<u64> = (0..8).map(|failures| wait_after(failures, TARGET_AWAY.1, 0.0).as_secs()).collect();
    assert_eq!(waits, [1, 1, 2, 4, 8, 16, 30, 30]);
    assert_eq!(wait_after(u32::MAX, AGAIN.1, 1.0), Duration::from_secs(450));
}
