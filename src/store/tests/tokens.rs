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
