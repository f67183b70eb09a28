//! Claims of jobs by their ids.

use super::super::jobs::Named;
use super::*;

#[tokio::test]
async fn named_claim_is_bounded_by_bytes() {
    for store in stores().await {
        let store = open(&store).await;
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(accept(&store, job("a")).await);
        }
        let each = job("a").request.len();
        let named = Named { owner: id(), lease_ms: 20_000, ids: ids.clone(), bytes: each * 2 };
        let (claimed, gone) = store.write(named.clone(), jobs::claim_named).await.unwrap();
        assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), ids[..2].to_vec());
        assert!(gone.is_empty(), "{gone:?}");
        let (claimed, _) = store.write(named, jobs::claim_named).await.unwrap();
        assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), ids[2..].to_vec());
    }
}

#[tokio::test]
async fn named_claim_tells_of_ended_jobs() {
    for store in stores().await {
        let store = open(&store).await;
        let held = accept(&store, job("a")).await;
        let waits = accept(&store, NewJob { delay_ms: 60_000, ..job("b") }).await;
        assert_eq!(claim(&store, id(), "a", 1).await.len(), 1);
        let never = id();
        let named = Named { owner: id(), lease_ms: 20_000, ids: vec![held, waits, never], bytes: 1 << 20 };
        let (claimed, gone) = store.write(named, jobs::claim_named).await.unwrap();
        assert_eq!((claimed.len(), gone), (0, vec![never]), "the others are claimed, or not due");
    }
}
