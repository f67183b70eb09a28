//! The behaviour that every store must have.

use std::collections::HashSet;

use super::super::actor::Step;
use super::super::dead::{self, Filter, NewDead, Redrive, Redriven};
use super::super::jobs::{self, Accepted, DueLanes, End, JobEnd, Most, NewJob, Wanted};
use super::super::owners;
use super::super::purge::{self, Retention};
use super::super::records::{self, JobState};
use super::super::usage;
use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs `test` on every store.
fn on_all<F: Future<Output = ()>>(test: impl Fn(Store, Opened) -> F) {
    runtime().block_on(async {
        for store in stores().await {
            let opened = open(&store).await;
            test(store, opened).await;
        }
    });
}

fn delivered(claimed: &Claimed) -> JobEnd {
    let end = End::Delivered { status: 200, attempts: 1, result: None, reply: None };
    JobEnd { id: claimed.id, fence: claimed.fence, known: None, end }
}

fn dead(id: Id, reason: &str) -> NewDead {
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

async fn finish(store: &Opened, finish: JobEnd) -> bool {
    store.write(vec![finish], jobs::finish).await.unwrap()[0]
}

#[test]
fn accepted_job_survives_reopening() {
    on_all(|store, opened| async move {
        let accepted = accept(&opened, job("a")).await;
        drop(opened);
        let again = open(&store).await;
        assert!(matches!(again.read(accepted, records::find).await.unwrap(), JobState::Waiting { due_in_ms: 0 }));
        assert_eq!(claim(&again, id(), "a", 10).await[0].id, accepted);
    });
}

#[test]
fn job_accepted_twice_is_one_job() {
    on_all(|_, store| async move {
        let first = job("a");
        for _ in 0..2 {
            accept(&store, first.clone()).await;
        }
        let claimed = claim(&store, id(), "a", 10).await;
        assert_eq!(claimed.len(), 1);
        assert!(finish(&store, delivered(&claimed[0])).await);
        accept(&store, first).await;
        assert!(claim(&store, id(), "a", 10).await.is_empty(), "it is done");
    });
}

#[test]
fn idempotency_key_belongs_to_one_request() {
    on_all(|_, store| async move {
        let with_key = |tenant: &str, fingerprint: &str| NewJob {
            key: Some(("key".to_owned(), fingerprint.to_owned())),
            ..job(tenant)
        };
        let first = accept(&store, with_key("a", "one")).await;
        let same = store.write(with_key("a", "one"), jobs::insert).await.unwrap();
        assert_eq!(same, Accepted::Before(first));
        let other = store.write(with_key("a", "two"), jobs::insert).await.unwrap();
        assert_eq!(other, Accepted::KeyOfAnother);
        accept(&store, with_key("b", "two")).await;
        // A key is still known after its job has ended.
        let claimed = claim(&store, id(), "a", 10).await;
        assert_eq!(claimed.len(), 1);
        assert!(finish(&store, delivered(&claimed[0])).await);
        assert_eq!(store.write(with_key("a", "one"), jobs::insert).await.unwrap(), Accepted::Before(first));
        // Concurrent calls with the same key accept one job.
        let store = std::sync::Arc::new(store);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..32 {
            let (store, job) = (store.clone(), with_key("c", "one"));
            tasks.spawn(async move { store.write(job, jobs::insert).await.unwrap() });
        }
        let told = tasks.join_all().await;
        assert_eq!(told.iter().filter(|told| **told == Accepted::New).count(), 1, "{told:?}");
    });
}

#[test]
fn jobs_are_claimed_once_and_in_order() {
    on_all(|_, store| async move {
        let mut expected = Vec::new();
        for _ in 0..5 {
            expected.push(accept(&store, job("a")).await);
            accept(&store, job("b")).await;
        }
        accept(&store, NewJob { delay_ms: 60_000, ..job("a") }).await;
        let lanes = vec![whole(lane("a"), 3), whole(lane("b"), 1), whole(lane("nobody"), 9)];
        let wanted = Wanted { owner: id(), lease_ms: 20_000, lanes, most_bytes: 1 << 20 };
        let claimed = store.write(wanted, jobs::claim).await.unwrap();
        let of = |tenant: &str| -> Vec<Id> {
            claimed.iter().filter(|job| job.lane == lane(tenant)).map(|job| job.id).collect()
        };
        assert_eq!(of("a"), expected[..3]);
        assert_eq!(of("b").len(), 1);
        let rest = claim(&store, id(), "a", 10).await;
        assert_eq!(rest.iter().map(|job| job.id).collect::<Vec<_>>(), expected[3..], "and not what is not due");
    });
}

#[test]
fn concurrent_claims_get_each_job_once() {
    on_all(|store, opened| async move {
        for _ in 0..200 {
            accept(&opened, job("a")).await;
        }
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let store = open(&store).await;
            tasks.spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let claimed = claim(&store, id(), "a", 7).await;
                    if claimed.is_empty() {
                        return mine;
                    }
                    mine.extend(claimed.into_iter().map(|job| job.id));
                }
            });
        }
        let all: Vec<Id> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(all.len(), 200);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 200);
    });
}

#[test]
fn job_end_moves_it_once() {
    on_all(|_, store| async move {
        for _ in 0..3 {
            accept(&store, job("a")).await;
        }
        let claimed = claim(&store, id(), "a", 3).await;
        // Several ends in one batch, of which one is a dead letter.
        let ends = vec![
            delivered(&claimed[0]),
            delivered(&claimed[1]),
            JobEnd {
                id: claimed[2].id,
                fence: claimed[2].fence,
                known: None,
                end: End::Dead(Box::new(dead(claimed[2].id, "rejected"))),
            },
        ];
        assert_eq!(store.write(ends.clone(), jobs::finish).await.unwrap(), [true; 3]);
        assert_eq!(store.write(ends, jobs::finish).await.unwrap(), [false; 3], "they have ended");
        let done = store.read(claimed[0].id, records::find).await.unwrap();
        assert_eq!(done, JobState::Done { outcome: 0, status: 200, attempts: 1, result: None });
        let reason = "rejected".to_owned();
        assert_eq!(store.read(claimed[2].id, records::find).await.unwrap(), JobState::Dead { reason });
        assert_eq!(store.read(100, records::count).await.unwrap(), 0);
        let result = Some(b"body".to_vec());
        let with_result = accept(&store, job("a")).await;
        let claimed = claim(&store, id(), "a", 1).await;
        let end = End::Delivered { status: 201, attempts: 2, result: result.clone(), reply: None };
        assert!(finish(&store, JobEnd { id: with_result, fence: claimed[0].fence, known: None, end }).await);
        let found = store.read(with_result, records::find).await.unwrap();
        assert_eq!(found, JobState::Done { outcome: 0, status: 201, attempts: 2, result });
    });
}

#[test]
fn stale_claim_changes_nothing() {
    on_all(|_, store| async move {
        accept(&store, job("a")).await;
        let old = claim(&store, id(), "a", 1).await.remove(0);
        // The job's claim is released, and another process claims the job.
        assert_eq!(store.write(id(), owners::recover).await.unwrap(), 1);
        let owner = id();
        let new = claim(&store, owner, "a", 1).await.remove(0);
        assert_eq!((new.id, new.fence > old.fence, new.claims), (old.id, true, 2));
        for end in [
            End::Dead(Box::new(dead(old.id, "ambiguous"))),
            End::Later { after_ms: 0, expires_at: None, history: Vec::new() },
            End::Back,
        ] {
            assert!(
                !finish(&store, JobEnd { id: old.id, fence: old.fence, known: None, end: end.clone() }).await,
                "{end:?}"
            );
        }
        assert_eq!(start(&store, &old, id()).await, None, "and sends nothing");
        assert_eq!(start(&store, &new, owner).await, Some(new.fence));
        assert!(finish(&store, delivered(&new)).await);
    });
}

#[test]
fn untried_claim_is_not_counted() {
    on_all(|_, store| async move {
        accept(&store, job("a")).await;
        let owner = id();
        let first = claim(&store, owner, "a", 1).await.remove(0);
        assert!(finish(&store, JobEnd { id: first.id, fence: first.fence, known: None, end: End::Back }).await);
        let second = claim(&store, owner, "a", 1).await.remove(0);
        assert_eq!((second.claims, second.started), (1, 0));
        assert!(start(&store, &second, owner).await.is_some());
        store.write(id(), owners::recover).await.unwrap();
        let third = claim(&store, owner, "a", 1).await.remove(0);
        assert_eq!((third.claims, third.started), (2, 1), "the process ended in the middle of it");
        let later = End::Later { after_ms: 60_000, expires_at: None, history: b"history".to_vec() };
        assert!(finish(&store, JobEnd { id: third.id, fence: third.fence, known: None, end: later }).await);
        assert!(claim(&store, owner, "a", 1).await.is_empty());
        let found = store.read(third.id, records::find).await.unwrap();
        assert!(matches!(found, JobState::Waiting { due_in_ms: 50_000..=60_000 }), "{found:?}");
    });
}

#[test]
fn usage_is_stored_by_lane_and_endpoint() {
    on_all(|_, store| async move {
        let (one, other) = (id(), id());
        for (owner, exchanges) in [(one, 2), (other, 1)] {
            accept(&store, job("a")).await;
            let claimed = claim(&store, owner, "a", 1).await.remove(0);
            for _ in 0..exchanges {
                assert!(start(&store, &claimed, owner).await.is_some());
            }
        }
        let wanted = usage::Wanted { tenant: "a".to_owned(), vendor: "v".to_owned(), after: usage::Mark::START };
        let pages = store.read((id(), usage::Table::Requests, vec![wanted]), usage::read).await.unwrap();
        let spent: Vec<_> = pages.into_iter().flat_map(|page| page.rows).collect();
        let total = spent.iter().fold((0, 0), |sum, spent| (sum.0 + spent.requests, sum.1 + spent.units));
        assert_eq!(total, (3, 9), "{spent:?}");
        assert!(spent.iter().all(|spent| spent.age_ms < 5_000 && !spent.high), "{spent:?}");
    });
}

fn most(bytes: i64) -> Most {
    Most { owner: id(), lease_ms: 20_000, jobs: 500, bytes, from: 0 }
}

#[test]
fn claim_is_bounded_by_bytes() {
    on_all(|_, store| async move {
        let size = |bytes: usize| NewJob { request: vec![b'x'; bytes], ..job("a") };
        for bytes in [1_000, 1_000, 5_000, 10] {
            accept(&store, size(bytes)).await;
        }
        accept(&store, NewJob { request: vec![b'x'; 10], ..job("b") }).await;
        let lanes = vec![whole(lane("a"), 10), whole(lane("b"), 10)];
        let wanted = |most_bytes| Wanted { owner: id(), lease_ms: 20_000, lanes: lanes.clone(), most_bytes };
        let mut sizes = Vec::new();
        for most in [2_500, 100, 1, 1] {
            let claimed = store.write(wanted(most), jobs::claim).await.unwrap();
            sizes.push(claimed.iter().map(|claimed| claimed.bytes()).collect::<Vec<_>>());
        }
        // SQLite fills the remaining bytes with jobs of the next lane, PostgreSQL does not.
        let jobs: Vec<usize> = sizes.iter().flatten().copied().filter(|bytes| *bytes > 10).collect();
        assert_eq!(jobs, [1_000, 1_000, 5_000], "{sizes:?}");
        assert!(sizes[0].len() <= 3 && sizes[1].len() <= 1, "{sizes:?}");
        assert_eq!(sizes.iter().flatten().filter(|bytes| **bytes == 10).count(), 2, "{sizes:?}");
    });
}

#[test]
fn expired_jobs_are_bounded_by_bytes() {
    on_all(|_, store| async move {
        for _ in 0..3 {
            accept(&store, NewJob { request: vec![b'x'; 1_000], expires_ms: Some(0), ..job("a") }).await;
        }
        let mut found = Vec::new();
        for bytes in [2_500, 10, 10] {
            found.push(store.write(most(bytes), jobs::expired).await.unwrap().len());
        }
        assert_eq!(found, [2, 1, 0]);
    });
}

#[test]
fn lanes_with_due_jobs_are_found() {
    on_all(|_, store| async move {
        for tenant in ["a", "b", "a"] {
            accept(&store, job(tenant)).await;
        }
        accept(&store, NewJob { delay_ms: 60_000, ..job("later") }).await;
        let all = store.read((None, 100), jobs::all_due).await.unwrap();
        let now = all.at;
        let names = |lanes: DueLanes| lanes.into_iter().map(|(lane, _)| lane).collect::<Vec<_>>();
        assert!(all.lanes.iter().all(|(_, position)| position.run_at <= now && position.seq > 0), "{all:?}");
        assert_eq!((names(all.lanes), all.more), (vec![lane("a"), lane("b")], None));
        // Pages of one lane each. Of the lane `aa`, between the others, no job is due.
        accept(&store, NewJob { delay_ms: 60_000, ..job("aa") }).await;
        let (mut after, mut pages) = (None, Vec::new());
        loop {
            let page = store.read((after, 1), jobs::all_due).await.unwrap();
            pages.push(names(page.lanes));
            after = page.more;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(pages, [vec![lane("a")], vec![], vec![lane("b")], vec![], vec![]]);
        let found = store.read(now - 10_000, jobs::due).await.unwrap();
        assert!(!found.is_cut, "{found:?}");
        let lately = found.lanes;
        assert!(lately.iter().all(|(_, position)| position.run_at > now - 10_000), "{lately:?}");
        let mut lately = names(lately);
        lately.sort();
        assert_eq!(lately, [lane("a"), lane("b")]);
        assert!(store.read(now + 1_000, jobs::due).await.unwrap().lanes.is_empty());
    });
}

#[test]
fn waiting_job_alone_can_be_cancelled() {
    on_all(|_, store| async move {
        let waiting = accept(&store, job("a")).await;
        assert!(store.write(waiting, records::cancel).await.unwrap());
        assert!(!store.write(waiting, records::cancel).await.unwrap());
        assert!(claim(&store, id(), "a", 1).await.is_empty());
        let found = store.read(waiting, records::find).await.unwrap();
        assert!(matches!(found, JobState::Done { outcome: 1, .. }), "{found:?}");
        let claimed = accept(&store, job("a")).await;
        claim(&store, id(), "a", 1).await;
        assert!(!store.write(claimed, records::cancel).await.unwrap());
        assert_eq!(store.read(claimed, records::find).await.unwrap(), JobState::UnderWay);
        assert_eq!(store.read(id(), records::find).await.unwrap(), JobState::Nowhere);
    });
}

#[test]
fn expired_jobs_are_found() {
    on_all(|_, store| async move {
        let short = accept(&store, NewJob { expires_ms: Some(0), ..job("a") }).await;
        accept(&store, NewJob { expires_ms: Some(60_000), ..job("a") }).await;
        let over = store.write(most(1 << 20), jobs::expired).await.unwrap();
        assert_eq!(over.iter().map(|job| job.id).collect::<Vec<_>>(), [short]);
        assert!(over[0].expires_ms.unwrap() <= 0);
        assert!(store.write(most(1 << 20), jobs::expired).await.unwrap().is_empty(), "they are claimed");
    });
}

#[test]
fn dead_letter_becomes_a_job_again_once() {
    on_all(|store, opened| async move {
        let accepted = accept(&opened, job("a")).await;
        let claimed = claim(&opened, id(), "a", 1).await.remove(0);
        let end = End::Dead(Box::new(dead(accepted, "exhausted")));
        assert!(finish(&opened, JobEnd { id: accepted, fence: claimed.fence, known: None, end }).await);
        let filter = |reason: &str| Filter { reason: Some(reason.to_owned()), most: 10, ..Filter::default() };
        assert_eq!(opened.read(filter("exhausted"), dead::list).await.unwrap().0.len(), 1);
        assert!(opened.read(filter("rejected"), dead::list).await.unwrap().0.is_empty());
        assert!(opened.read(accepted, dead::show).await.unwrap().unwrap().can_be_sent);
        let redrive = Redrive { history: Some(b"past".to_vec()), ..redrive_of(&opened, accepted, None).await };
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (store, redrive) = (open(&store).await, redrive.clone());
            tasks.spawn(async move { store.write(redrive, dead::redrive).await.unwrap() });
        }
        let told = tasks.join_all().await;
        assert_eq!(told.iter().filter(|told| **told == Redriven::Yes).count(), 1, "{told:?}");
        assert_eq!(opened.read(10, dead::count).await.unwrap(), 0);
        let again = claim(&opened, id(), "a", 10).await;
        assert_eq!(again.len(), 1);
        assert_eq!((again[0].id, again[0].claims, again[0].started), (accepted, 1, 0));
        assert_eq!((again[0].request.as_slice(), again[0].history.as_deref()), (&b"request"[..], Some(&b"past"[..])));
    });
}

#[test]
fn dead_letter_without_request_cannot_be_redriven() {
    on_all(|_, store| async move {
        let letter = NewDead { request: None, ..dead(id(), "exhausted") };
        let id = letter.id;
        for _ in 0..2 {
            // A sink may be given the same letter twice.
            store.write(letter.clone(), dead::keep).await.unwrap();
        }
        let redrive = redrive_of(&store, id, None).await;
        assert_eq!(store.write(redrive.clone(), dead::redrive).await.unwrap(), Redriven::NoRequest);
        assert_eq!(store.read(10, dead::count).await.unwrap(), 1);
        assert_eq!(store.write(Filter { most: 10, ..Filter::default() }, dead::purge).await.unwrap().len(), 1);
        assert_eq!(store.write(redrive, dead::redrive).await.unwrap(), Redriven::Gone);
    });
}

#[test]
fn expired_rows_and_oldest_letters_are_deleted() {
    on_all(|_, store| async move {
        accept(&store, job("a")).await;
        let claimed = claim(&store, id(), "a", 1).await.remove(0);
        assert!(finish(&store, delivered(&claimed)).await);
        let letters: Vec<NewDead> = (0..5).map(|_| dead(id(), "exhausted")).collect();
        for letter in &letters {
            store.write(letter.clone(), dead::keep).await.unwrap();
        }
        let keep = Retention { done_ms: 60_000, dead_ms: 60_000, most_dead: 3 };
        assert_eq!(purge::run(&store, keep).await.unwrap(), 2);
        let (left, _) = store.read(Filter { most: 10, ..Filter::default() }, dead::list).await.unwrap();
        let expected: Vec<Id> = letters[2..].iter().map(|letter| letter.id).collect();
        assert_eq!(left.iter().map(|kept| kept.id).collect::<Vec<_>>(), expected);
        assert!(matches!(store.read(claimed.id, records::find).await.unwrap(), JobState::Done { .. }));
        let nothing = Retention { done_ms: 0, dead_ms: 0, most_dead: 3 };
        assert_eq!(purge::run(&store, nothing).await.unwrap(), 3);
        assert_eq!(store.read(claimed.id, records::find).await.unwrap(), JobState::Nowhere);
    });
}

#[test]
fn bad_write_in_a_group_fails_alone() {
    on_all(|_, store| async move {
        let store = std::sync::Arc::new(store);
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..50 {
            let store = store.clone();
            tasks.spawn(async move {
                if number % 10 == 0 {
                    let broken: Step<(), ()> = |(), db, _| {
                        Box::pin(
                            async move { db.execute("INSERT INTO nowhere VALUES (1)", Vec::new()).await.map(drop) },
                        )
                    };
                    assert!(store.write((), broken).await.is_err());
                } else {
                    accept(&store, job("a")).await;
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(store.read(100, records::count).await.unwrap(), 45);
    });
}

#[test]
fn dropped_write_loses_no_other_reply() {
    on_all(|store, opened| async move {
        let seen = open(&store).await;
        for polls in 0..6 {
            // The write is polled a few times and then dropped, at whatever step it has reached.
            let mut dropped = Box::pin(opened.write(job("a"), jobs::insert));
            for _ in 0..polls {
                if tokio::time::timeout(Duration::from_micros(300), &mut dropped).await.is_ok() {
                    break;
                }
            }
            drop(dropped);
            let kept = accept(&opened, job("b")).await;
            let place = seen.read(kept, records::find).await.unwrap();
            assert!(matches!(place, JobState::Waiting { .. }), "{place:?}");
        }
    });
}

#[test]
fn concurrent_inserts_store_each_job_once() {
    on_all(|_, store| async move {
        let store = std::sync::Arc::new(store);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..300 {
            let (store, job) = (store.clone(), NewJob { expires_ms: Some(60_000), keep_result: true, ..job("a") });
            tasks.spawn(async move {
                let id = job.id;
                assert_eq!(store.insert(job).await.unwrap(), Accepted::New);
                id
            });
        }
        let accepted: HashSet<Id> = tasks.join_all().await.into_iter().collect();
        let claimed = claim(&store, id(), "a", 1_000).await;
        assert_eq!(claimed.len(), 300);
        assert_eq!(claimed.iter().map(|job| job.id).collect::<HashSet<_>>(), accepted);
        assert!(claimed.iter().all(|job| job.keep_result && job.expires_ms.is_some_and(|left| left > 50_000)));
        assert!(claimed.iter().all(|job| job.request == b"request" && job.started == 0 && job.claims == 1));
    });
}
