//! Steps that are run again, as after a commit whose reply was lost: they have no second effect, and report the first.

use super::super::actor::Step;
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
