//! A process loses a claim while its exchange is in flight, and learns the outcome of the exchange afterwards.

use super::super::actor::Step;
use super::super::dead::{self, NewDead, Redriven};
use super::super::driver::args;
use super::super::jobs::{self, End, JobEnd, Most};
use super::super::owners;
use super::super::records::{self, JobState};
use super::*;

/// What has happened to the job by the time its outcome is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meanwhile {
    /// The job is ready again.
    Recovered,
    /// Another process has claimed the job.
    Taken,
    /// Another process has claimed the job and begun an exchange of its own.
    Started,
    /// Another process has made the job a dead letter with the reason `ambiguous`.
    Ambiguous,
    /// Another process has made the job a dead letter with another reason, because its request may be sent again after
    /// an exchange with an unknown outcome.
    Expired,
    /// The job was a dead letter, and an operator has sent it again.
    Redriven,
}

use Meanwhile::*;

const ALL: [Meanwhile; 6] = [Recovered, Taken, Started, Ambiguous, Expired, Redriven];

fn letter(id: Id, reason: &str) -> NewDead {
    let request = Some(b"request".to_vec());
    NewDead {
        id,
        lane: lane("a"),
        reason: reason.to_owned(),
        letter: b"{}".to_vec(),
        request,
        keep_result: false,
        reply: None,
    }
}

async fn finish(store: &Opened, claimed: &Claimed, known: Option<i64>, end: End) -> bool {
    store.write(vec![JobEnd { id: claimed.id, fence: claimed.fence, known, end }], jobs::finish).await.unwrap()[0]
}

/// Returns the job as the first process claimed it, and the other process's claim if there is one.
async fn claim_and_lose(store: &Opened, meanwhile: Meanwhile) -> (Claimed, Option<(Claimed, Id)>) {
    // Each case has a lane of its own.
    let tenant = format!("{meanwhile:?}");
    accept(store, job(&tenant)).await;
    let (first, second) = (id(), id());
    let claimed = claim(store, first, &tenant, 1).await.remove(0);
    assert_eq!(start(store, &claimed, first).await, Some(claimed.fence));
    assert!(store.write(second, owners::recover).await.unwrap() >= 1);
    if meanwhile == Recovered {
        return (claimed, None);
    }
    let other = claim(store, second, &tenant, 1).await.remove(0);
    match meanwhile {
        Started => assert_eq!(start(store, &other, second).await, Some(other.fence)),
        Ambiguous | Expired | Redriven => {
            let reason = if meanwhile == Expired { "expired" } else { "ambiguous" };
            assert!(finish(store, &other, None, End::Dead(Box::new(letter(other.id, reason)))).await);
        }
        _ => {}
    }
    if meanwhile == Redriven {
        let redrive = redrive_of(store, claimed.id, None).await;
        assert_eq!(store.write(redrive, dead::redrive).await.unwrap(), Redriven::Yes);
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
async fn known_delivery_counts_after_a_takeover() {
    for kind in stores().await {
        let store = open(&kind).await;
        for meanwhile in ALL {
            let (claimed, other) = claim_and_lose(&store, meanwhile).await;
            let end = End::Delivered { status: 200, attempts: 1, result: None, reply: None };
            assert!(finish(&store, &claimed, None, end.clone()).await, "{meanwhile:?}");
            assert_eq!(all_places(&store, claimed.id).await, ["done"], "{meanwhile:?}");
            let place = store.read(claimed.id, records::find).await.unwrap();
            assert!(matches!(place, JobState::Done { outcome: 0, status: 200, .. }), "{meanwhile:?}: {place:?}");
            // The other process sends nothing, and its own end changes nothing.
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
async fn known_deliveries_of_one_batch_count() {
    for kind in stores().await {
        let store = open(&kind).await;
        let mut ends = Vec::new();
        for meanwhile in ALL {
            let (claimed, _) = claim_and_lose(&store, meanwhile).await;
            let end = End::Delivered { status: 200, attempts: 1, result: None, reply: None };
            ends.push(JobEnd { id: claimed.id, fence: claimed.fence, known: None, end });
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
            let (claimed, other) = claim_and_lose(&store, meanwhile).await;
            let end = End::Dead(Box::new(letter(claimed.id, "rejected")));
            let counts = matches!(meanwhile, Recovered | Taken | Ambiguous);
            assert_eq!(finish(&store, &claimed, Some(claimed.fence), end).await, counts, "{meanwhile:?}");
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
async fn known_refusal_counts_until_another_exchange_begins() {
    for kind in stores().await {
        let store = open(&kind).await;
        for meanwhile in ALL {
            let (claimed, other) = claim_and_lose(&store, meanwhile).await;
            let end = End::Later { after_ms: 60_000, expires_at: None, history: b"refused".to_vec() };
            let counts = matches!(meanwhile, Recovered | Taken | Ambiguous);
            // The same outcome is written again, as after a commit whose reply was lost.
            for _ in 0..2 {
                assert_eq!(finish(&store, &claimed, Some(claimed.fence), end.clone()).await, counts, "{meanwhile:?}");
            }
            let place = store.read(claimed.id, records::find).await.unwrap();
            let is_put_back = matches!(place, JobState::Waiting { due_in_ms: 50_000.. });
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
async fn job_taken_back_keeps_its_deadline() {
    for kind in stores().await {
        let store = open(&kind).await;
        let now = store.read((), |(), _, now| Box::pin(async move { Ok(now) })).await.unwrap();
        for expires_at in [None, Some(now + 60_000)] {
            let end = End::Later { after_ms: 0, expires_at, history: Vec::new() };
            let (lost, _) = claim_and_lose(&store, Ambiguous).await;
            assert!(finish(&store, &lost, Some(lost.fence), end).await);
            // The lane is that of the letter.
            let again = claim(&store, id(), "a", 1).await.remove(0);
            assert_eq!((again.id, again.started), (lost.id, 0));
            assert_eq!(again.expires_at, expires_at);
            let end = End::Delivered { status: 200, attempts: 2, result: None, reply: None };
            assert!(finish(&store, &again, None, end).await);
        }
        // A job whose deadline has passed meanwhile is found with the other expired ones.
        let (lost, _) = claim_and_lose(&store, Ambiguous).await;
        let end = End::Later { after_ms: 1, expires_at: Some(now - 1), history: Vec::new() };
        assert!(finish(&store, &lost, Some(lost.fence), end).await);
        let most = Most { owner: id(), lease_ms: 20_000, jobs: 10, bytes: 1 << 20, from: 0 };
        let expired = store.write(most, jobs::expired).await.unwrap();
        assert_eq!(expired.iter().map(|job| job.id).collect::<Vec<_>>(), [lost.id]);
    }
}

/// While an operator looks at a letter, another one sends it again, and its job is given up again.
#[tokio::test]
async fn stale_redrive_sends_no_later_letter() {
    for kind in stores().await {
        let store = open(&kind).await;
        let first = accept(&store, job("a")).await;
        let die = async |reason: &str| {
            let claimed = claim(&store, id(), "a", 1).await.remove(0);
            assert!(finish(&store, &claimed, None, End::Dead(Box::new(letter(first, reason)))).await);
        };
        let redriven = async |redrive: Redrive| store.write(redrive, dead::redrive).await.unwrap();
        die("exhausted").await;
        let seen = redrive_of(&store, first, None).await;
        assert_eq!(redriven(seen.clone()).await, Redriven::Yes);
        for reason in ["ambiguous", "exhausted"] {
            die(reason).await;
            assert_eq!(redriven(seen.clone()).await, Redriven::Gone, "{reason}");
            assert_eq!(all_places(&store, first).await, [reason]);
            assert_eq!(redriven(redrive_of(&store, first, None).await).await, Redriven::Yes, "{reason}");
        }
        // The outcome of the job's exchange becomes known, and its letter gets another reason.
        let (lost, _) = claim_and_lose(&store, Ambiguous).await;
        let seen = redrive_of(&store, lost.id, None).await;
        let known = End::Dead(Box::new(letter(lost.id, "rejected")));
        assert!(finish(&store, &lost, Some(lost.fence), known).await);
        assert_eq!(redriven(seen).await, Redriven::Gone);
        assert_eq!(all_places(&store, lost.id).await, ["rejected"]);
    }
}

#[tokio::test]
async fn outcome_counts_after_a_lost_start_reply() {
    for kind in stores().await {
        let store = open(&kind).await;
        accept(&store, job("a")).await;
        let owner = id();
        let claimed = claim(&store, owner, "a", 1).await.remove(0);
        assert_eq!(start(&store, &claimed, owner).await, Some(claimed.fence));
        // The start is committed, but its caller never gets the reply.
        assert_eq!(start(&store, &claimed, owner).await, Some(claimed.fence + 1));
        let end = End::Later { after_ms: 60_000, expires_at: None, history: Vec::new() };
        assert!(finish(&store, &claimed, Some(claimed.fence), end).await);
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn silent_process_alone_loses_its_claims() {
    use super::super::owners::Beat;
    use crate::clock::Time;
    let store = open(&Store::postgres(database().await)).await;
    let (alive, watcher) = (id(), id());
    for _ in 0..3 {
        accept(&store, job("a")).await;
    }
    assert_eq!(claim(&store, alive, "a", 3).await.len(), 3);
    let beat = |owner, number| store.beat(Beat { owner, number, lease_ms: 20_000 });
    assert_eq!(beat(watcher, 1).await.unwrap().unwrap(), []);
    assert_eq!(store.read(watcher, owners::unregistered).await.unwrap(), [alive.as_bytes()]);
    assert_eq!(store.read(alive, owners::unregistered).await.unwrap(), [[0; 0]; 0], "it knows its own claims");
    beat(alive, 1).await.unwrap();
    assert_eq!(store.read(watcher, owners::unregistered).await.unwrap(), [[0; 0]; 0]);
    let seen = beat(watcher, 2).await.unwrap().unwrap();
    assert_eq!(seen.iter().map(|seen| seen.number).collect::<Vec<_>>(), [1]);
    // The process's heartbeat grew between the observation and the takeover.
    beat(alive, 2).await.unwrap();
    let of = |number| Silent { number, ..silent(alive) };
    assert_eq!(store.write(of(Some(1)), owners::take_over).await.unwrap(), 0);
    assert_eq!(store.write(of(None), owners::take_over).await.unwrap(), 0);
    // The store stalled.
    let late = Silent { not_after: Time::ZERO, ..of(Some(2)) };
    assert_eq!(store.write(late, owners::take_over).await.unwrap(), 0);
    assert_eq!(store.write(of(Some(2)), owners::take_over).await.unwrap(), 3);
    assert_eq!(claim(&store, watcher, "a", 9).await.len(), 3);
    assert_eq!(store.write(alive, owners::leave).await.unwrap(), 0, "its row went with its claims");
    assert_eq!(store.write(watcher, owners::leave).await.unwrap(), 0, "it has claims");
}

/// The age of a job's key is counted from the first of the exchanges that have no outcome.
#[tokio::test]
async fn first_exchange_without_outcome_is_dated() {
    let date: Step<(Id, Option<i64>), ()> = |(id, at), db, _| {
        Box::pin(async move {
            let sql = "UPDATE ic_job SET started_at = $2 WHERE id = $1";
            db.execute(sql, args![id.as_bytes().as_slice(), *at]).await.map(drop)
        })
    };
    for kind in stores().await {
        let store = open(&kind).await;
        accept(&store, job("a")).await;
        let processes = [id(), id(), id(), id()];
        let claimed = async |process: usize| {
            store.write(processes[process], owners::recover).await.unwrap();
            claim(&store, processes[process], "a", 1).await.remove(0)
        };
        let first = claimed(0).await;
        assert_eq!(first.started_at, None);
        start(&store, &first, processes[0]).await.unwrap();
        let second = claimed(1).await;
        let at = second.started_at.unwrap();
        assert!((first.claimed_at..=second.claimed_at).contains(&at), "{at}: {first:?} {second:?}");
        store.write((second.id, Some(5)), date).await.unwrap();
        start(&store, &second, processes[1]).await.unwrap();
        let third = claimed(2).await;
        assert_eq!((third.started, third.started_at), (2, Some(5)), "not that of the second exchange");
        // A row of schema 12: the exchange began when the job was due, or later.
        store.write((third.id, None), date).await.unwrap();
        let fourth = claimed(3).await;
        assert!(fourth.started_at.is_some_and(|at| at <= first.claimed_at), "{fourth:?}");
        // With an outcome, the next exchange without one is the first.
        let later = End::Later { after_ms: 0, expires_at: None, history: Vec::new() };
        assert!(finish(&store, &fourth, None, later).await);
        let fifth = claimed(3).await;
        assert_eq!(fifth.started_at, None);
        start(&store, &fifth, processes[3]).await.unwrap();
        let sixth = claimed(0).await;
        assert!(sixth.started_at.is_some_and(|at| at >= fifth.claimed_at), "{sixth:?}");
    }
}

/// A process without the key of a job gives it back, and must not forget that another one may have sent it.
#[tokio::test]
async fn waiting_job_keeps_its_doubt() {
    for store in stores().await {
        let store = open(&store).await;
        accept(&store, job("a")).await;
        let owner = id();
        let claimed = async || claim(&store, owner, "a", 1).await;
        let first = claimed().await.remove(0);
        start(&store, &first, owner).await.unwrap();
        assert!(finish(&store, &first, None, End::Dropped).await);
        let second = claimed().await.remove(0);
        assert_eq!((second.claims, second.started), (2, 1));
        let wait = |after_ms| End::Wait { after_ms };
        assert!(finish(&store, &second, None, wait(0)).await);
        assert!(!finish(&store, &second, None, wait(0)).await, "the claim is over");
        let third = claimed().await.remove(0);
        assert_eq!((third.claims, third.started, third.started_at), (2, 1, second.started_at));
        assert!(finish(&store, &third, None, wait(60_000)).await);
        assert!(claimed().await.is_empty(), "it is not due");
    }
}

/// The store tells the age of a job that is postponed again and again, although the job is never due for long.
#[tokio::test]
async fn postponed_job_grows_old() {
    const MOMENT: Duration = Duration::from_millis(30);
    for kind in stores().await {
        let store = open(&kind).await;
        let backlog = async || store.read((), records::backlog).await.unwrap();
        assert_eq!(backlog().await.age, Duration::ZERO);
        accept(&store, job("a")).await;
        tokio::time::sleep(MOMENT).await;
        accept(&store, job("b")).await;
        let claimed = claim(&store, id(), "a", 1).await.remove(0);
        assert!(backlog().await.age >= MOMENT, "it is under way");
        let later = End::Later { after_ms: 3_600_000, expires_at: None, history: b"{}".to_vec() };
        assert!(finish(&store, &claimed, None, later).await);
        let waits = claim(&store, id(), "b", 1).await;
        let found = backlog().await;
        assert!(waits.len() == 1 && found.oldest == Duration::ZERO && found.age >= MOMENT, "{found:?}");
    }
}
