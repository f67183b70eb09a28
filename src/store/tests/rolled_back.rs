//! The store is back at an earlier state, like a standby that was promoted without the last commits, and a process goes
//! on with a claim that the store has lost.

use super::super::actor::Step;
use super::super::dead::{self, NewDead};
use super::super::driver::args;
use super::super::jobs::{End, JobEnd, Most, Named};
use super::super::records::{self, JobState};
use super::*;

/// Sets a job's row back to what it was before the first claim.
const LOSE_CLAIM: Step<Id, u64> = |id, db, _| {
    Box::pin(async move {
        let sql = "UPDATE ic_job SET state = 0, run_at = 0, fence = 0, claims = 0, started = 0, begun = 0, owner = NULL, \
                   lease_until = NULL WHERE id = $1";
        db.execute(sql, args![id.as_bytes().as_slice()]).await
    })
};

/// How a job is claimed, by which process, and at which time after the store's own, in milliseconds.
#[derive(Clone, Copy)]
struct How {
    what: &'static str,
    owner: Id,
    job: Id,
    later_ms: i64,
}

/// Claims a job whose tenant has the name of the claim.
const CLAIM: Step<How, Vec<Claimed>> = |how, db, now| {
    Box::pin(async move {
        let (How { owner, .. }, now, lease_ms) = (*how, now + how.later_ms, 20_000);
        match how.what {
            "expired" => jobs::expired(&Most { owner, lease_ms, jobs: 1, bytes: 1 << 20, from: 0 }, db, now).await,
            "named" => {
                let named = Named { owner, lease_ms, ids: vec![how.job], bytes: 1 << 20 };
                jobs::claim_named(&named, db, now).await.map(|(jobs, _)| jobs)
            }
            tenant => {
                let wanted = Wanted { owner, lease_ms, lanes: vec![whole(lane(tenant), 1)], most_bytes: 1 << 20 };
                jobs::claim(&wanted, db, now).await
            }
        }
    })
};

async fn claim_as(store: &Opened, how: How) -> Claimed {
    let mut claimed = store.write(how, CLAIM).await.unwrap();
    assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [how.job], "{}", how.what);
    claimed.remove(0)
}

fn end(claimed: &Claimed, end: End) -> JobEnd {
    JobEnd { id: claimed.id, fence: claimed.fence, known: None, end }
}

fn delivered(claimed: &Claimed) -> JobEnd {
    end(claimed, End::Delivered { status: 201, attempts: 1, result: None, reply: None })
}

fn letter(id: Id, tenant: &str, reason: &str) -> NewDead {
    NewDead {
        id,
        lane: lane(tenant),
        reason: reason.to_owned(),
        letter: b"{}".to_vec(),
        request: None,
        keep_result: false,
        reply: None,
    }
}

#[tokio::test]
async fn lost_claim_neither_starts_nor_ends_a_later_one() {
    for kind in stores().await {
        let store = open(&kind).await;
        for what in ["claim", "expired", "named"] {
            let expires_ms = (what == "expired").then_some(0);
            let job = accept(&store, NewJob { expires_ms, ..job(what) }).await;
            let (owner, other) = (Id::from_u128(1), Id::from_u128(2));
            let how = How { what, owner, job, later_ms: 0 };
            let mut lost = Vec::new();
            // The process itself claims the job again a while later, and then another one at the same time.
            for how in [how, How { later_ms: 5_000, ..how }, How { owner: other, later_ms: 5_000, ..how }] {
                let claimed = claim_as(&store, how).await;
                assert!(lost.iter().all(|old: &Claimed| old.fence != claimed.fence), "{what}");
                for old in &lost {
                    assert_eq!(start(&store, old, owner).await, None, "{what}");
                    let ended = store.write(vec![end(old, End::Back)], jobs::finish).await.unwrap();
                    assert_eq!(ended, [false], "{what}");
                }
                assert_eq!(start(&store, &claimed, how.owner).await, Some(claimed.fence), "{what}");
                assert_eq!(start(&store, &claimed, id()).await, None, "{what}: it is no other process's");
                lost.push(claimed);
                store.write(job, LOSE_CLAIM).await.unwrap();
            }
            store.write(job, records::cancel).await.unwrap();
        }
    }
}

#[tokio::test]
async fn delivery_of_a_lost_claim_counts() {
    for kind in stores().await {
        let store = open(&kind).await;
        let mut ends = Vec::new();
        // What has happened to the job since the store lost its claim. Each case has a lane of its own.
        for since in ["nothing", "claimed", "started", "buried", "nothing else"] {
            let job = accept(&store, job(since)).await;
            let (owner, other) = (id(), id());
            let how = How { what: since, owner, job, later_ms: 0 };
            let claimed = claim_as(&store, how).await;
            assert_eq!(start(&store, &claimed, owner).await, Some(claimed.fence));
            store.write(job, LOSE_CLAIM).await.unwrap();
            match since {
                "claimed" => drop(claim_as(&store, How { owner: other, ..how }).await),
                "started" => {
                    let again = claim_as(&store, How { owner: other, ..how }).await;
                    assert_eq!(start(&store, &again, other).await, Some(again.fence));
                }
                "buried" => {
                    // The clock of the new server is behind that of the lost one, and so is the fence of the letter.
                    let again = claim_as(&store, How { owner: other, later_ms: -5_000, ..how }).await;
                    assert!(again.fence < claimed.fence);
                    let buried = end(&again, End::Dead(Box::new(letter(job, since, "ambiguous"))));
                    assert_eq!(store.write(vec![buried], jobs::finish).await.unwrap(), [true]);
                }
                _ => {}
            }
            ends.push(delivered(&claimed));
        }
        let ids: Vec<Id> = ends.iter().map(|end| end.id).collect();
        let alone = ends.split_off(4);
        assert_eq!(store.write(alone, jobs::finish).await.unwrap(), [true]);
        assert_eq!(store.write(ends.clone(), jobs::finish).await.unwrap(), [true; 4]);
        assert_eq!(store.write(ends, jobs::finish).await.unwrap(), [false; 4], "and once");
        for id in ids {
            let found = store.read(id, records::find).await.unwrap();
            assert!(matches!(found, JobState::Done { outcome: 0, status: 201, .. }), "{found:?}");
        }
        assert_eq!(store.read(10, records::count).await.unwrap(), 0);
        assert_eq!(store.read(10, dead::count).await.unwrap(), 0);
    }
}

/// The exchange of a lost claim and that of the next claim have different numbers: the outcome of the first says nothing
/// about the second.
#[tokio::test]
async fn outcome_of_a_lost_exchange_ends_no_later_one() {
    let row: Step<Id, Vec<i64>> = |id, db, _| {
        Box::pin(async move {
            let sql = "SELECT state, fence, begun, started FROM ic_job WHERE id = $1";
            let mut rows = db.fetch(sql, args![id.as_bytes().as_slice()]).await?;
            rows.iter_mut().map(|row| Ok(vec![row.int()?, row.int()?, row.int()?, row.int()?])).next().unwrap()
        })
    };
    for kind in stores().await {
        let store = open(&kind).await;
        // Alone, and together with others.
        for together in [false, true] {
            let what = if together { "together" } else { "alone" };
            let job = accept(&store, job(what)).await;
            let (owner, other) = (Id::from_u128(1), Id::from_u128(2));
            let how = How { what, owner, job, later_ms: 0 };
            let lost = claim_as(&store, how).await;
            let known = start(&store, &lost, owner).await;
            assert!(known.is_some());
            store.write(job, LOSE_CLAIM).await.unwrap();
            let again = claim_as(&store, How { owner: other, later_ms: 5_000, ..how }).await;
            assert!(start(&store, &again, other).await.is_some_and(|number| Some(number) != known), "{what}");
            let before = store.read(job, row).await.unwrap();
            let later = End::Later { after_ms: 60_000, expires_at: None, history: Vec::new() };
            let dead = End::Dead(Box::new(letter(job, what, "rejected")));
            let ends: Vec<_> = [later, dead].map(|ended| JobEnd { known, ..end(&lost, ended) }).into();
            if together {
                assert_eq!(store.write(ends, jobs::finish).await.unwrap(), [false; 2], "{what}");
            } else {
                for end in ends {
                    assert_eq!(store.write(vec![end], jobs::finish).await.unwrap(), [false], "{what}");
                }
            }
            assert_eq!(store.read(job, row).await.unwrap(), before, "{what}");
            store.write(job, records::cancel).await.unwrap();
        }
    }
}
