//! Idempotency keys that a store knows as they are, or as keyed hashes: a request is accepted once, even if `at_rest`
//! changes between two calls.

use std::sync::Arc;

use super::super::actor::Step;
use super::super::dead::{self, NewDead, Redriven};
use super::super::driver::args;
use super::super::intake;
use super::super::jobs::{Accepted, End, JobEnd};
use super::*;

/// A job with the key `order`, for the request `print`: the key is a keyed hash if the vendor's entry `seals`.
fn keyed(tenant: &str, print: &str, seals: bool) -> NewJob {
    let plain = Some(("order".to_owned(), print.to_owned()));
    let hashed = Some(("hash of order".to_owned(), format!("hash of {print}")));
    let (key, other_key) = if seals { (hashed, plain) } else { (plain, hashed) };
    NewJob { key, other_key, ..job(tenant) }
}

async fn insert(store: &Opened, job: NewJob) -> Accepted {
    store.write(job, jobs::insert).await.unwrap()
}

#[tokio::test]
async fn key_is_known_in_both_forms() {
    for store in stores().await {
        let store = open(&store).await;
        for (tenant, sealed_first) in [("a", false), ("b", true)] {
            let first = accept(&store, keyed(tenant, "one", sealed_first)).await;
            for seals in [!sealed_first, sealed_first] {
                let same = insert(&store, keyed(tenant, "one", seals)).await;
                assert_eq!(same, Accepted::Before(first), "{tenant} {seals}");
                let other = insert(&store, keyed(tenant, "two", seals)).await;
                assert_eq!(other, Accepted::KeyOfAnother, "{tenant} {seals}");
            }
        }
        let together = vec![keyed("c", "one", false), keyed("c", "one", true), keyed("c", "two", true)];
        let (first, which) = (together[0].id, 0..together.len());
        let accepted = store.write((Arc::new(together), which), intake::take).await.unwrap();
        assert_eq!(accepted, [Accepted::New, Accepted::Before(first), Accepted::KeyOfAnother]);
    }
}

#[tokio::test]
async fn expired_key_is_free_in_both_forms() {
    let expire: Step<(), u64> = |(), db, _| db.execute("UPDATE ic_key SET expires_at = 5", Vec::new());
    for store in stores().await {
        let store = open(&store).await;
        let first = accept(&store, keyed("a", "one", false)).await;
        store.write((), expire).await.unwrap();
        let same = insert(&store, keyed("a", "one", true)).await;
        assert_eq!(same, Accepted::Before(first), "the job is in the outbox");
        let fence = claim(&store, id(), "a", 1).await.remove(0).fence;
        let end = End::Delivered { status: 200, attempts: 1, result: None, reply: None };
        store.write(vec![JobEnd { id: first, fence, known: None, end }], jobs::finish).await.unwrap();
        let second = accept(&store, keyed("a", "two", true)).await;
        // The row of the plain key has expired, and is still there.
        assert_eq!(insert(&store, keyed("a", "one", false)).await, Accepted::KeyOfAnother);
        assert_eq!(insert(&store, keyed("a", "two", false)).await, Accepted::Before(second));
    }
}

/// A dead letter of the job, and its key as a redrive states it.
async fn letter_of(store: &Opened, job: NewJob) -> (Id, Option<RequestKey>) {
    let NewJob { lane, request, key, other_key, .. } = job.clone();
    let letter = accept(store, job).await;
    let fence = claim(store, id(), &lane.tenant, 1).await.remove(0).fence;
    let dead = NewDead {
        id: letter,
        lane,
        reason: "exhausted".to_owned(),
        letter: b"{}".to_vec(),
        request: Some(request),
        keep_result: false,
        reply: None,
    };
    let end = JobEnd { id: letter, fence, known: None, end: End::Dead(Box::new(dead)) };
    assert_eq!(store.write(vec![end], jobs::finish).await.unwrap(), [true]);
    (letter, key.map(|key| RequestKey { key, other_key }))
}

/// Ends the only job of the tenant `a`, which must be `expected`.
async fn deliver(store: &Opened, expected: Id) {
    let jobs = claim(store, id(), "a", 10).await;
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [expected]);
    let end = End::Delivered { status: 200, attempts: 1, result: None, reply: None };
    let end = JobEnd { id: expected, fence: jobs[0].fence, known: None, end };
    assert_eq!(store.write(vec![end], jobs::finish).await.unwrap(), [true]);
}

const FORGET: Step<(), u64> = |(), db, _| db.execute("DELETE FROM ic_key", Vec::new());

#[tokio::test]
async fn redriven_letter_has_its_key_again() {
    for store in stores().await {
        let store = open(&store).await;
        for (tenant, seals, is_forgotten) in [("a", false, true), ("b", true, true), ("c", false, false)] {
            let (letter, key) = letter_of(&store, keyed(tenant, "one", seals)).await;
            if is_forgotten {
                store.write((), FORGET).await.unwrap();
            }
            let redrive = redrive_of(&store, letter, key).await;
            assert_eq!(store.write(redrive, dead::redrive).await.unwrap(), Redriven::Yes, "{tenant}");
            for seals in [false, true] {
                assert_eq!(insert(&store, keyed(tenant, "one", seals)).await, Accepted::Before(letter), "{tenant}");
                assert_eq!(insert(&store, keyed(tenant, "two", seals)).await, Accepted::KeyOfAnother, "{tenant}");
            }
        }
    }
}

/// The key of the letter has not expired, and will soon.
#[tokio::test]
async fn redriven_letter_keeps_its_key_a_day() {
    let shorten: Step<(), u64> = |(), db, now| {
        Box::pin(async move { db.execute("UPDATE ic_key SET expires_at = $1", args![now + 60_000]).await })
    };
    let left_ms: Step<(), i64> = |(), db, now| {
        Box::pin(async move { Ok(db.fetch("SELECT expires_at FROM ic_key", Vec::new()).await?[0].int()? - now) })
    };
    for store in stores().await {
        let store = open(&store).await;
        // `at_rest` may have changed since the key was recorded.
        for (tenant, seals) in [("a", false), ("b", true)] {
            let (letter, _) = letter_of(&store, keyed(tenant, "one", false)).await;
            let NewJob { key, other_key, .. } = keyed(tenant, "one", seals);
            let redrive = redrive_of(&store, letter, key.map(|key| RequestKey { key, other_key })).await;
            store.write((), shorten).await.unwrap();
            assert_eq!(store.write(redrive, dead::redrive).await.unwrap(), Redriven::Yes, "{tenant}");
            let left = store.read((), left_ms).await.unwrap();
            assert!(left > 23 * 3_600_000, "{tenant}: {left} ms");
            store.write((), FORGET).await.unwrap();
        }
    }
}

#[tokio::test]
async fn letter_stays_while_another_request_has_its_key() {
    for store in stores().await {
        let store = open(&store).await;
        for print in ["one", "two"] {
            let (letter, key) = letter_of(&store, keyed("a", "one", false)).await;
            store.write((), FORGET).await.unwrap();
            let second = accept(&store, keyed("a", print, true)).await;
            let redrive = redrive_of(&store, letter, key).await;
            let redriven = store.write(redrive.clone(), dead::redrive).await.unwrap();
            assert_eq!(redriven, Redriven::KeyTaken, "{print}");
            assert_eq!(store.read(10, dead::count).await.unwrap(), 1, "{print}");
            deliver(&store, second).await;
            // The key of the second request has expired.
            store.write((), FORGET).await.unwrap();
            assert_eq!(store.write(redrive, dead::redrive).await.unwrap(), Redriven::Yes, "{print}");
            store.write((), FORGET).await.unwrap();
            deliver(&store, letter).await;
        }
    }
}

#[tokio::test]
async fn missing_letter_takes_no_key() {
    for store in stores().await {
        let store = open(&store).await;
        let (letter, key) = letter_of(&store, keyed("a", "one", false)).await;
        store.write((), FORGET).await.unwrap();
        let redrive = redrive_of(&store, letter, key).await;
        store.write(letter, dead::remove).await.unwrap();
        assert_eq!(store.write(redrive, dead::redrive).await.unwrap(), Redriven::Gone);
        accept(&store, keyed("a", "one", false)).await;
    }
}
