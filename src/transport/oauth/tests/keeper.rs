//! Tests of a token keeper that hangs or panics, in virtual time.
#![allow(clippy::panic, reason = "tests: the keeper panics")]

use tokio::runtime::Handle;

use super::*;
use crate::transport::oauth::keeper::LONGEST_CALL;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Hangs,
    Panics,
}

impl Fault {
    /// What the error says.
    fn described(self) -> &'static str {
        match self {
            Fault::Hangs => "did not answer within 10 s",
            Fault::Panics => "the token keeper panicked",
        }
    }
}

/// A keeper in which one method has a fault until the test mends it.
struct FaultyKeeper {
    method: &'static str,
    fault: Mutex<Option<Fault>>,
    kept: OneToken,
    /// When the refresh was reserved.
    reserved: Mutex<Vec<Time>>,
}

impl FaultyKeeper {
    async fn pass(&self, method: &str) {
        let fault = self.fault.lock().filter(|_| method == self.method);
        match fault {
            Some(Fault::Hangs) => std::future::pending::<()>().await,
            Some(Fault::Panics) => panic!("the fault of the test"),
            None => {}
        }
    }
}

impl TokenKeeper for FaultyKeeper {
    fn keep<'a>(&'a self, whose: &'a TokenOwner, token: &'a KeptToken) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            self.pass("keep").await;
            self.kept.keep(whose, token).await
        })
    }

    fn load<'a>(&'a self, whose: &'a TokenOwner) -> BoxFuture<'a, Result<Option<KeptToken>, BoxError>> {
        Box::pin(async move {
            self.pass("load").await;
            self.kept.load(whose).await
        })
    }

    fn reserve<'a>(
        &'a self,
        whose: &'a TokenOwner,
        length: Duration,
    ) -> BoxFuture<'a, Result<Option<Duration>, BoxError>> {
        Box::pin(async move {
            self.pass("reserve").await;
            self.reserved.lock().push(Clock::system().now());
            self.kept.reserve(whose, length).await
        })
    }

    fn give_back<'a>(&'a self, whose: &'a TokenOwner) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.pass("give_back").await;
            self.kept.give_back(whose).await;
        })
    }
}

/// The tokens of one account with such a keeper.
struct Faulty {
    tokens: Tokens,
    tenant: Tenant,
    transport: FakeTransport,
    keeper: Arc<FaultyKeeper>,
    clock: Clock,
}

impl Faulty {
    fn new(method: &'static str, fault: Fault) -> Faulty {
        let (Account { transport, .. }, clock) = (Account::new(), Clock::system());
        let (fault, kept, reserved) = (Mutex::new(Some(fault)), OneToken::default(), Mutex::default());
        let keeper = FaultyKeeper { method, fault, kept, reserved };
        let (mut tokens, keeper) = (Tokens::default(), Arc::new(keeper));
        tokens.begin(Arc::new(transport.clone()), clock, Some(keeper.clone()));
        Faulty { tokens, tenant: tenant("OLD", "one", "d"), transport, keeper, clock }
    }

    /// Gets a token, or the error in words. Asserts that it takes no longer than one call of the keeper may.
    async fn get(&self) -> Result<String, String> {
        let begun = self.clock.now();
        let got = self.tokens.get(&self.tenant, secrets("old")).await;
        assert!(self.clock.now().since(begun) <= LONGEST_CALL + Duration::from_millis(100));
        got.map(|token| token.expose_secret().to_owned()).map_err(|error| error.to_string())
    }

    fn fresh(&self) -> Option<String> {
        self.tokens.fresh(&self.tenant).map(|token| token.expose_secret().to_owned())
    }

    fn mend(&self) {
        *self.keeper.fault.lock() = None;
    }

    fn kept(&self) -> Option<String> {
        self.keeper.kept.0.lock().as_ref().map(|kept| kept.refresh_token().expose_secret().to_owned())
    }

    fn problem(&self) -> Option<Arc<str>> {
        self.tokens.view(&self.tenant).problem
    }
}

#[tokio::test(start_paused = true)]
async fn fault_in_keep_costs_no_access_token() {
    for fault in [Fault::Hangs, Fault::Panics] {
        let account = Faulty::new("keep", fault);
        assert_eq!(account.get().await, Ok("access-0".to_owned()));
        let problem = account.problem().unwrap();
        assert!(problem.contains(fault.described()), "{problem}");
        assert_eq!(account.kept(), None);

        // The refresh token is kept when the keeper works again, without another request.
        account.mend();
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!((account.kept().as_deref(), account.problem()), (Some("refresh-0"), None));
        assert_eq!(account.get().await, Ok("access-0".to_owned()));
        assert_eq!(account.transport.calls().len(), 1);
    }
}

/// A task tries again to store the refresh token. Requests have the access token meanwhile.
#[tokio::test(start_paused = true)]
async fn hanging_keep_delays_no_request() {
    let account = Faulty::new("keep", Fault::Hangs);
    account.get().await.unwrap();
    for second in 1..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(account.fresh().as_deref(), Some("access-0"), "{second} s");
    }
    assert!(account.problem().is_some(), "it is not kept yet");
}

/// Another process would use the previous refresh token, and the vendor would take it for stolen.
#[tokio::test(start_paused = true)]
async fn refresh_stays_reserved_while_the_token_is_unkept() {
    for fault in [Fault::Hangs, Fault::Panics] {
        let account = Faulty::new("keep", fault);
        account.get().await.unwrap();
        tokio::time::sleep(Duration::from_secs(400)).await;
        let ends = Clock::system().now();
        let reserved: Vec<Time> = account.keeper.reserved.lock().iter().copied().chain([ends]).collect();
        let is_held = |pair: &[Time]| pair[1].since(pair[0]) < Duration::from_secs(90);
        assert!(reserved.windows(2).all(is_held), "{reserved:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_keeps_the_unkept_token() {
    for (fault, mended_after) in [(Fault::Hangs, 0), (Fault::Panics, 0), (Fault::Panics, 2)] {
        let account = Faulty::new("keep", fault);
        account.get().await.unwrap();
        assert_eq!(account.kept(), None);
        let mending = async {
            if mended_after > 0 {
                tokio::time::sleep(Duration::from_secs(mended_after)).await;
            }
            account.mend();
        };
        let begun = account.clock.now();
        tokio::join!(mending, account.tokens.settle(Duration::from_secs(5)));
        assert_eq!((account.kept().as_deref(), account.problem()), (Some("refresh-0"), None));
        assert!(account.clock.now().since(begun) < Duration::from_secs(4), "it waits no longer than it has to");
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_with_a_broken_keeper_ends_after_its_grace() {
    for fault in [Fault::Hangs, Fault::Panics] {
        let account = Faulty::new("keep", fault);
        account.get().await.unwrap();
        let begun = account.clock.now();
        account.tokens.settle(Duration::from_secs(5)).await;
        let took = account.clock.now().since(begun);
        assert!(took <= Duration::from_millis(5_010), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_to_keep_end_with_the_client() {
    let account = Faulty::new("keep", Fault::Panics);
    account.get().await.unwrap();
    let (keeper, tasks) = (Arc::downgrade(&account.keeper), || Handle::current().metrics().num_alive_tasks());
    assert_eq!(tasks(), 1);
    drop(account);
    assert_eq!(keeper.strong_count(), 0, "the task does not hold it");
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn fault_before_a_refresh_ends_with_an_error() {
    for method in ["load", "reserve"] {
        for fault in [Fault::Hangs, Fault::Panics] {
            let account = Faulty::new(method, fault);
            let error = account.get().await.unwrap_err();
            assert!(error.contains(fault.described()), "{error}");
            assert_eq!(account.tokens.view(&account.tenant).state, TokenState::Failing);
            assert!(account.transport.calls().is_empty(), "nothing was asked with a token that may be replaced");

            account.mend();
            tokio::time::advance(Duration::from_secs(2)).await;
            assert_eq!(account.get().await, Ok("access-0".to_owned()), "{method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fault_in_give_back_costs_no_access_token() {
    for fault in [Fault::Hangs, Fault::Panics] {
        let account = Faulty::new("give_back", fault);
        assert_eq!(account.get().await, Ok("access-0".to_owned()));
        assert_eq!((account.kept().as_deref(), account.problem()), (Some("refresh-0"), None));
    }
}
