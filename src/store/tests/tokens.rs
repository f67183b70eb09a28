//! The newest refresh token of each account.

use super::super::tokens::{self, Whose};
use super::*;

#[tokio::test]
async fn newest_token_of_an_account_is_kept() {
    for store in stores().await {
        let store = open(&store).await;
        let whose = |account: &str| -> Whose { ["v", "live", account].map(str::to_owned) };
        assert_eq!(store.read(whose("a"), tokens::load).await.unwrap(), None);
        for (account, token) in [("a", "1"), ("b", "2"), ("a", "3")] {
            store.write((whose(account), token.as_bytes().to_vec()), tokens::keep).await.unwrap();
        }
        assert_eq!(store.read(whose("a"), tokens::load).await.unwrap(), Some(b"3".to_vec()));
        assert_eq!(store.read(whose("b"), tokens::load).await.unwrap(), Some(b"2".to_vec()));
    }
}

#[tokio::test]
async fn token_is_refreshed_by_one_process_only() {
    for store in stores().await {
        let store = open(&store).await;
        let whose = |account: &str| -> Whose { ["v", "live", account].map(str::to_owned) };
        let (one, other) = (id(), id());
        let reserve = async |account: &str, who: Id, length_ms: i64| {
            store.write((whose(account), who, length_ms), tokens::reserve).await.unwrap()
        };
        assert_eq!(reserve("a", one, 60_000).await, None);
        assert_eq!(reserve("a", one, 60_000).await, None, "its own");
        assert!(reserve("a", other, 60_000).await.is_some_and(|left| (50_000..=60_000).contains(&left)));
        assert_eq!(reserve("b", other, 60_000).await, None, "another account");
        store.write((whose("a"), other), tokens::give_back).await.unwrap();
        assert!(reserve("a", other, 60_000).await.is_some(), "nobody gives back what another has");
        store.write((whose("a"), one), tokens::give_back).await.unwrap();
        assert_eq!(reserve("a", other, 0).await, None);
        // A reservation of 0 ms stands for that of a process that was killed.
        assert_eq!(reserve("a", one, 60_000).await, None);
    }
}
