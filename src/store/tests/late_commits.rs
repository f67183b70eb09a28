//! A server commits a claim after the client has given it up: it waited for its disk, or for a standby.

use super::super::jobs::{Most, Named, Unclaimed};
use super::super::postgres;
use super::*;

#[tokio::test]
async fn pending_claim_is_released_when_visible() {
    for how in ["claim", "expired", "named"] {
        let url = database().await;
        let opened = open(&Store::postgres(url.clone())).await;
        let expires_ms = (how == "expired").then_some(0);
        let accepted = accept(&opened, NewJob { expires_ms, ..job("a") }).await;
        let (owner, lease_ms) = (id(), 20_000);
        let mut connection = postgres::open(&url).unwrap().connect().await.unwrap();
        let now = connection.begin(true).await.unwrap();
        let claimed = match how {
            "claim" => {
                let wanted = Wanted { owner, lease_ms, lanes: vec![whole(lane("a"), 1)], most_bytes: 1 << 20 };
                jobs::claim(&wanted, &mut *connection, now).await
            }
            "expired" => {
                jobs::expired(&Most { owner, lease_ms, jobs: 1, bytes: 1 << 20, from: 0 }, &mut *connection, now).await
            }
            _ => {
                let named = Named { owner, lease_ms, ids: vec![accepted], bytes: 1 << 20 };
                jobs::claim_named(&named, &mut *connection, now).await.map(|(jobs, _)| jobs)
            }
        };
        assert_eq!(claimed.unwrap().len(), 1, "{how}");
        let unclaim = |owner: Id, held: Vec<Id>| opened.write((owner, held), jobs::unclaim);
        let undone = unclaim(owner, Vec::new()).await.unwrap();
        assert_eq!(undone, Unclaimed::Pending, "{how}: it may be committed at any moment");
        let undone = unclaim(id(), Vec::new()).await.unwrap();
        assert_eq!(undone, Unclaimed::All(0), "{how}: another process has nothing to wait for");
        connection.execute("COMMIT", Vec::new()).await.unwrap();
        assert_eq!(unclaim(owner, vec![accepted]).await.unwrap(), Unclaimed::All(0), "{how}: the process knows it");
        assert_eq!(unclaim(owner, Vec::new()).await.unwrap(), Unclaimed::All(1), "{how}");
        let claimed = claim(&opened, owner, "a", 1).await;
        assert_eq!((claimed[0].id, claimed[0].claims), (accepted, 1), "{how}: as if it had not been claimed");
    }
}
