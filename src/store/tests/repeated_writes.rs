//! Steps that are run again, as after a commit whose reply was lost: they have no second effect, and report the first.

use super::super::actor::Step;
use super::super::dead::{self, NewDead};
use super::super::records::{self, Cancel, JobState};
use super::*;

#[tokio::test]
async fn cancel_run_again_finds_its_own_cancellation() {
    let twice: Step<Cancel, [bool; 2]> = |call, db, now| {
        Box::pin(async move {
            let first = records::cancel_in_call(call, db, now).await?;
            Ok([first, records::cancel_in_call(call, db, now).await?])
        })
    };
    for kind in stores().await {
        let store = open(&kind).await;
        let waiting = accept(&store, job("a")).await;
        assert_eq!(store.write(Cancel::new(waiting), twice).await.unwrap(), [true; 2]);
        let found = store.read(waiting, records::find).await.unwrap();
        assert!(matches!(found, JobState::Done { outcome: 1, .. }), "{found:?}");
        assert_eq!(store.write(Cancel::new(waiting), twice).await.unwrap(), [false; 2], "another call did it");
        let claimed = accept(&store, job("a")).await;
        claim(&store, id(), "a", 1).await;
        assert_eq!(store.write(Cancel::new(claimed), twice).await.unwrap(), [false; 2]);
    }
}

#[tokio::test]
async fn insert_run_again_brings_no_ended_job_back() {
    let again: Step<Vec<NewJob>, ()> =
        |new, db, now| Box::pin(async move { jobs::insert_many(&new.iter().collect::<Vec<_>>(), true, db, now).await });
    for kind in stores().await {
        let store = open(&kind).await;
        let new: Vec<NewJob> = (0..40).map(|_| job("a")).collect();
        for known in &new[..3] {
            accept(&store, known.clone()).await;
        }
        store.write(Cancel::new(new[0].id), records::cancel_in_call).await.unwrap();
        let letter = NewDead {
            id: new[1].id,
            lane: lane("a"),
            reason: "rejected".to_owned(),
            letter: b"{}".to_vec(),
            request: None,
            keep_result: false,
            reply: None,
        };
        let bury: Step<NewDead, bool> = |dead, db, now| Box::pin(dead::bury(dead, 0, 0, db, now));
        assert!(store.write(letter, bury).await.unwrap());
        store.write(new.clone(), again).await.unwrap();
        for (number, job) in new.iter().enumerate() {
            let found = store.read(job.id, records::find).await.unwrap();
            match number {
                0 => assert!(matches!(found, JobState::Done { .. }), "{found:?}"),
                1 => assert!(matches!(found, JobState::Dead { .. }), "{found:?}"),
                _ => assert!(matches!(found, JobState::Waiting { .. }), "{number}: {found:?}"),
            }
        }
        assert_eq!(store.read(100, records::count).await.unwrap(), 38);
    }
}
