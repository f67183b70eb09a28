//! A process is stopped in the middle of a refresh for longer than its reservation, in virtual time.

use super::*;

/// A keeper that answers two seconds after it has loaded the token.
#[derive(Default)]
struct SlowKeeper(OneToken);

impl TokenKeeper for SlowKeeper {
    fn keep<'a>(&'a self, whose: &'a TokenOwner, token: &'a KeptToken) -> BoxFuture<'a, Result<(), BoxError>> {
        self.0.keep(whose, token)
    }

    fn load<'a>(&'a self, whose: &'a TokenOwner) -> BoxFuture<'a, Result<Option<KeptToken>, BoxError>> {
        Box::pin(async move {
            let loaded = self.0.load(whose).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            loaded
        })
    }
}

/// A vendor may revoke all tokens of a grant when it gets one that was replaced.
#[tokio::test(start_paused = true)]
async fn token_that_another_process_may_have_replaced_is_not_sent() {
    for (stopped_s, is_late) in [(50, false), (100, true)] {
        let (Account { transport, .. }, keeper) = (Account::new(), Arc::new(SlowKeeper::default()));
        let mut tokens = Tokens::default();
        tokens.begin(Arc::new(transport.clone()), Clock::system(), Some(keeper.clone()));
        let account = Account { tokens, transport, keeper: Arc::default() };
        let tenant = tenant("OLD", "one", "d");
        account.get(&tenant, "old").await;
        let stale = account.tokens.fresh(&tenant).unwrap();
        account.tokens.refused(&tenant, &stale);

        let stop = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            // Another process refreshes meanwhile.
            let granted = keeper.0.0.lock().as_ref().unwrap().granted().to_owned();
            *keeper.0.0.lock() = Some(KeptToken::new("replacement", granted));
            tokio::time::advance(Duration::from_secs(stopped_s)).await;
        };
        let (got, ()) = tokio::join!(account.tokens.get(&tenant, secrets("old")), stop);
        if !is_late {
            assert_eq!(got.unwrap().expose_secret(), "access-1");
            assert_eq!(account.used(), ["old", "refresh-0"]);
            continue;
        }
        let error = got.unwrap_err().to_string();
        assert!(error.contains("another process may have replaced the refresh token"), "{error}");
        assert_eq!(account.tokens.view(&tenant).state, TokenState::Failing);
        assert_eq!(account.used(), ["old"], "the replaced token was not sent");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(account.get(&tenant, "old").await, "access-1");
        assert_eq!(account.used(), ["old", "replacement"]);
    }
}
