//! A process loses a claim while its exchange goes on, and knows in the end what came of it.

use super::super::Step;
use super::super::dead::{self, NewDead, Redriven};
use super::super::driver::args;
use super::super::jobs::{self, End, Finish, Start};
use super::super::owners;
use super::super::records::{self, Place};
use super::*;

/// What has become of the job when the outcome is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meanwhile {
    /// It is ready again.
    Recovered,
    /// Another process has claimed it.
    Taken,
    /// And has begun an exchange of its own.
    Started,
    /// And has made it a letter, because nobody knew.
    Ambiguous,
    /// It was a letter of another kind.
    Expired,
    /// It was a letter, and somebody had it sent again.
    Redriven,
}

use Meanwhile::*;

const ALL: [Meanwhile; 6] = [Recovered, Taken, Started, Ambiguous, Expired, Redriven];

fn letter(id: Id, reason: &str) -> NewDead {
    let request = Some(b"request".to_vec());
    NewDead { id, lane: lane("a"), reason: reason.to_owned(), letter: b"{}".to_vec(), request, keep_result: false }
}

async fn start(store: &Opened, claimed: &Claimed, owner: Id) -> Option<i64> {
    let start = Start {
        id: claimed.id,
        fence: claimed.fence,
        owner,
        lane: claimed.lane.clone(),
        again: false,
        endpoint: String::new(),
        points: 1,
        slot_ms: 0,
        counts_ms: 0,
    };
    store.write(start, jobs::start).await.unwrap()
}

async fn finish(store: &Opened, claimed: &Claimed, known: Option<i64>, end: End) -> bool {
    store.write(vec![Finish { id: claimed.id, fence: claimed.fence, known, end }], jobs::finish).await.unwrap()[0]
}

/// The job, as the first process claimed it, and the other's claim; and whether the other can still send it.
async fn lost(store: &Opened, meanwhile: Meanwhile) -> (Claimed, Option<(Claimed, Id)>) {
    // Each case has a lane of its own.
    let tenant = format!("{meanwhile:?}");
    accept(store, job(&tenant)).await;
    let (first, second) = (id(), id());
    let claimed = claim(store, first, &tenant, 1).await.remove(0);
    assert_eq!(start(store, &claimed, first).await, Some(1));
    assert!(store.write(second, owners::recover).await.unwrap() >= 1);
    if meanwhile == Recovered {
        return (claimed, None);
    }
    let other = claim(store, second, &tenant, 1).await.remove(0);
    match meanwhile {
        Started => assert_eq!(start(store, &other, second).await, Some(2)),
        Ambiguous | Expired | Redriven => {
            let reason = if meanwhile == Expired { "expired" } else { "ambiguous" };
            assert!(finish(store, &other, None, End::Dead(Box::new(letter(other.id, reason)))).await);
        }
        _ => {}
    }
    if meanwhile == Redriven {
        assert_eq!(store.write((claimed.id, None), dead::redrive).await.unwrap(), Redriven::Yes);
    }
    (claimed, Some((other, second)))
}

async fn all_places(store: &Opened, id: Id) -> Vec<String> {
    let places: Step<Id, Vec<String>> = |id, db, _| {
        Box::pin(async move {
            let sql = "SELECT 'job' FROM ic_job WHERE id = $1 UNION ALL SELECT 'done' FROM ic_done WHERE id = $1 \
                       UNION ALL SELECT reason FROM ic_dead WHERE id = $1";
            let rows = db.fetch(sql, args![id.as_bytes().as_slice()]).await?;
            rows.into_iter().map(|mut row| row.text()).collect()
        })
    };
    store.read(id, places).await.unwrap()
}

#[tokio::test]
async fn known_delivery_counts_whoever_has_the_job() {
    for kind in stores().await {
        let store = open(&kind).await;
        for meanwhile in ALL {
            let (claimed, other) = lost(&store, meanwhile).await;
            let end = End::Delivered { status: 200, attempts: 1, result: None };
            assert!(finish(&store, &claimed, None, end.clone()).await, "{meanwhile:?}");
            assert_eq!(all_places(&store, claimed.id).await, ["done"], "{meanwhile:?}");
            let place = store.read(claimed.id, records::find).await.unwrap();
            assert!(matches!(place, Place::Done { outcome: 0, status: 200, .. }), "{meanwhile:?}: {place:?}");
            // Whoever had it sends nothing, and its word changes nothing.
            if let Some((other, owner)) = other {
                assert_eq!(start(&store, &other, owner).await, None, "{meanwhile:?}");
                let end = End::Dead(Box::new(letter(other.id, "ambiguous")));
                assert!(!finish(&store, &other, None, end).await, "{meanwhile:?}");
            }
            assert!(claim(&store, id(), &format!("{meanwhile:?}"), 1).await.is_empty());
        }
    }
}

#[tokio::test]
async fn known_deliveries_of_one_batch_count_too() {
    for kind in stores().await {
        let store = open(&kind).await;
        let mut ends = Vec::new();
        for meanwhile in ALL {
            let (claimed, _) = lost(&store, meanwhile).await;
            let end = End::Delivered { status: 200, attempts: 1, result: None };
            ends.push(Finish { id: claimed.id, fence: claimed.fence, known: None, end });
        }
        let ids: Vec<Id> = ends.iter().map(|end| end.id).collect();
        assert_eq!(store.write(ends, jobs::finish).await.unwrap(), [true; 6]);
        for id in ids {
            assert_eq!(all_places(&store, id).await, ["done"]);
        }
    }
}

#[tokio::test]
async fn known_rejection_counts_until_another_exchange_begins() {
    for kind in stores().await {
        let store = open(&kind).await;
        for meanwhile in ALL {
            let (claimed, other) = lost(&store, meanwhile).await;
            let end = End::Dead(Box::new(letter(claimed.id, "rejected")));
            let counts = matches!(meanwhile, Recovered | Taken | Ambiguous);
            assert_eq!(finish(&store, &claimed, Some(1), end).await, counts, "{meanwhile:?}");
            let expected = match meanwhile {
                _ if counts => "rejected",
                Expired => "expired",
                _ => "job",
            };
            assert_eq!(all_places(&store, claimed.id).await, [expected], "{meanwhile:?}");
            if let (Taken, Some((other, owner))) = (meanwhile, other) {
                assert_eq!(start(&store, &other, owner).await, None);
            }
        }
    }
}

#[tokio::test]
async fn known_refusal_puts_the_job_back_until_another_exchange_begins() {
    for kind in stores().await {
        let store = open(&kind).await;
        for meanwhile in ALL {
            let (claimed, other) = lost(&store, meanwhile).await;
            let end = End::Later { after_ms: 60_000, history: b"refused".to_vec() };
            let counts = matches!(meanwhile, Recovered | Taken | Ambiguous);
            // A commit whose word was lost is written again.
            for _ in 0..2 {
                assert_eq!(finish(&store, &claimed, Some(1), end.clone()).await, counts, "{meanwhile:?}");
            }
            let place = store.read(claimed.id, records::find).await.unwrap();
            let is_put_back = matches!(place, Place::Waiting { due_in_ms: 50_000.. });
            assert_eq!(is_put_back, counts, "{meanwhile:?}: {place:?}");
            if let (Taken, Some((other, owner))) = (meanwhile, other) {
                assert_eq!(start(&store, &other, owner).await, None, "it was taken from it");
                assert!(!finish(&store, &other, None, End::Back).await);
            }
            store.write(claimed.id, records::cancel).await.unwrap();
        }
    }
}

#[tokio::test]
async fn outcome_of_an_own_claim_counts_although_the_word_of_a_later_start_was_lost() {
    for kind in stores().await {
        let store = open(&kind).await;
        accept(&store, job("a")).await;
        let owner = id();
        let claimed = claim(&store, owner, "a", 1).await.remove(0);
        assert_eq!(start(&store, &claimed, owner).await, Some(1));
        // Written, and its caller never heard of it.
        assert_eq!(start(&store, &claimed, owner).await, Some(2));
        let end = End::Later { after_ms: 60_000, history: Vec::new() };
        assert!(finish(&store, &claimed, Some(1), end).await);
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn only_a_silent_process_loses_its_claims_and_only_while_the_store_answers() {
    use super::super::owners::Beat;
    use crate::clock::Time;
    let store = open(&Store::postgres(database().await)).await;
    let (alive, watcher) = (id(), id());
    for _ in 0..3 {
        accept(&store, job("a")).await;
    }
    assert_eq!(claim(&store, alive, "a", 3).await.len(), 3);
    let beat = |owner, number| store.beat(Beat { owner, number, lease_ms: 20_000 });
    let seen = beat(watcher, 1).await.unwrap().unwrap();
    assert_eq!(
        seen.iter().map(|seen| (&*seen.owner, seen.number)).collect::<Vec<_>>(),
        [(&alive.as_bytes()[..], None)]
    );
    beat(alive, 1).await.unwrap();
    let seen = beat(watcher, 2).await.unwrap().unwrap();
    assert_eq!(seen.iter().map(|seen| seen.number).collect::<Vec<_>>(), [Some(1)]);
    // Its heart beat once more between the observation and what follows from it.
    beat(alive, 2).await.unwrap();
    let of = |number| Silent { number, ..silent(alive) };
    assert_eq!(store.write(of(Some(1)), owners::take_over).await.unwrap(), 0);
    assert_eq!(store.write(of(None), owners::take_over).await.unwrap(), 0);
    // The store stood still.
    let late = Silent { not_after: Time::ZERO, ..of(Some(2)) };
    assert_eq!(store.write(late, owners::take_over).await.unwrap(), 0);
    assert_eq!(store.write(of(Some(2)), owners::take_over).await.unwrap(), 3);
    assert_eq!(claim(&store, watcher, "a", 9).await.len(), 3);
    assert_eq!(store.write(alive, owners::leave).await.unwrap(), 0, "its row went with its claims");
    assert_eq!(store.write(watcher, owners::leave).await.unwrap(), 0, "it has claims");
}
