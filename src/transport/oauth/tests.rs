//! Tests of the tokens of an account whose settings change, in virtual time.
#![allow(clippy::unwrap_used, reason = "tests: helpers unwrap too")]

mod keeper;
mod stopped;
mod waits;

use secrecy::ExposeSecret;

use super::*;
use crate::config::{Config, OAuthEntry, Sources, TenantEntry, resolve_tenant};
use crate::testing::{FakeAnswer, FakeTransport};
use crate::transport::tokens::KeptToken;
use crate::{BoxError, BoxFuture};

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://{host}.v.example/{part}"
auth = { scheme = "bearer" }
unpublished = true
[vendors.v.oauth]
grant = "refresh_token"
token_url = "https://login.example/{directory}/token"
client_id = "env:ID"
"#;

/// A new version of the tenant's configuration.
fn tenant(grant: &str, host: &str, directory: &str) -> Tenant {
    tenant_at_part(grant, host, directory, "1")
}

fn tenant_at_part(grant: &str, host: &str, directory: &str, part: &str) -> Tenant {
    let config = Config::load(&Sources::new().without_catalogue().file("f.toml", VENDOR), 1).unwrap();
    let entry = TenantEntry::new("a", "v").variable("host", host).variable("part", part);
    let entry =
        entry.variable("directory", directory).oauth(OAuthEntry::default().refresh_token(format!("env:{grant}")));
    resolve_tenant(config.vendors(), &entry).unwrap()
}

fn secrets(grant: &str) -> OAuthSecrets {
    let secret = |text: &str| Arc::new(SecretString::from(text));
    OAuthSecrets { client_id: secret("id"), client_secret: None, refresh_token: Some(secret(grant)), private_key: None }
}

/// Keeps one refresh token, as a store does for an account.
#[derive(Default)]
struct OneToken(Mutex<Option<KeptToken>>);

impl TokenKeeper for OneToken {
    fn keep<'a>(&'a self, _: &'a TokenOwner, token: &'a KeptToken) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            *self.0.lock() = Some(token.clone());
            Ok(())
        })
    }

    fn load<'a>(&'a self, _: &'a TokenOwner) -> BoxFuture<'a, Result<Option<KeptToken>, BoxError>> {
        Box::pin(async { Ok(self.0.lock().clone()) })
    }
}

/// The tokens of one account at a vendor that numbers the tokens it issues, from 0.
struct Account {
    tokens: Tokens,
    transport: FakeTransport,
    keeper: Arc<OneToken>,
}

impl Account {
    fn new() -> Account {
        Account::at(FakeTransport::new(|call| {
            let n = call.number;
            let tokens = format!("\"access_token\":\"access-{n}\",\"refresh_token\":\"refresh-{n}\"");
            FakeAnswer::status(200).body(format!("{{{tokens},\"expires_in\":3600}}"))
        }))
    }

    fn at(transport: FakeTransport) -> Account {
        let (mut tokens, keeper) = (Tokens::default(), Arc::new(OneToken::default()));
        tokens.begin(Arc::new(transport.clone()), Clock::system(), Some(keeper.clone()));
        Account { tokens, transport, keeper }
    }

    async fn get(&self, tenant: &Tenant, grant: &str) -> String {
        self.tokens.get(tenant, secrets(grant)).await.unwrap().expose_secret().to_owned()
    }

    fn fresh(&self, tenant: &Tenant) -> Option<String> {
        self.tokens.fresh(tenant).map(|token| token.expose_secret().to_owned())
    }

    /// The refresh token of each token request.
    fn used(&self) -> Vec<String> {
        let token = |form: &str| {
            let token = form.split('&').find_map(|pair| pair.strip_prefix("refresh_token="));
            token.unwrap_or_default().to_owned()
        };
        self.transport.calls().iter().map(|call| token(std::str::from_utf8(&call.body).unwrap())).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn token_stays_with_its_settings() {
    let account = Account::new();
    let old = tenant("OLD", "one", "d");
    assert_eq!(account.get(&old, "old").await, "access-0");
    assert_eq!(account.fresh(&tenant("OLD", "one", "d")).as_deref(), Some("access-0"), "a later version is the same");
    assert_eq!(account.fresh(&tenant_at_part("OLD", "one", "d", "2")).as_deref(), Some("access-0"), "of the same host");
    for (new, grant) in [("NEW", "one", "d"), ("OLD", "two", "d"), ("OLD", "one", "e")]
        .map(|(grant, host, directory)| (tenant(grant, host, directory), grant.to_lowercase()))
    {
        let account = Account::new();
        account.get(&old, "old").await;
        assert_eq!(account.fresh(&new), None);
        assert_eq!(account.tokens.view(&new).state, TokenState::Unasked);
        assert_eq!(account.get(&new, &grant).await, "access-1");
        // Each of the two versions has its token: requests that began with the old one do not ask again.
        assert_eq!(account.get(&new, &grant).await, "access-1");
        assert_eq!(account.get(&old, "old").await, "access-0");
        let newest = if grant == "old" { "refresh-0" } else { "new" };
        assert_eq!(account.used(), ["old", newest], "the newest that descends from the grant");
    }
}

/// A request may still have the settings of a grant that was replaced while it waited.
#[tokio::test(start_paused = true)]
async fn replaced_settings_do_not_take_the_place_of_newer_ones() {
    let account = Account::new();
    let (old, new) = (tenant("OLD", "one", "d"), tenant("NEW", "one", "d"));
    old.oauth.as_ref().unwrap().replace();
    assert_eq!(account.get(&old, "old").await, "access-0", "nothing newer has asked yet");
    assert_eq!(account.get(&new, "new").await, "access-1");
    let stale = account.tokens.fresh(&old).unwrap();
    account.tokens.refused(&old, &stale);
    assert_eq!(account.fresh(&old), None);
    let error = account.tokens.get(&old, secrets("old")).await.unwrap_err();
    assert!(error.to_string().contains("was changed while the request waited"), "{error}");
    let kept = account.keeper.0.lock().as_ref().map(|kept| kept.refresh_token().expose_secret().to_owned());
    assert_eq!((kept.as_deref(), account.used().len()), (Some("refresh-1"), 2), "the newer grant's is still there");

    // The configuration goes back to the old grant. The kept token descends from another one.
    assert_eq!(account.get(&tenant("OLD", "one", "d"), "old").await, "access-2");
    assert_eq!(account.used(), ["old", "new", "old"]);
}

#[tokio::test(start_paused = true)]
async fn failure_concerns_its_settings_alone() {
    let dead = FakeAnswer::status(400).body("{\"error\":\"invalid_grant\"}");
    let account = Account::at(FakeTransport::new(move |_| dead.clone()));
    let (wrong, corrected) = (tenant("OLD", "one", "wrong"), tenant("OLD", "one", "right"));
    for _ in 0..2 {
        account.tokens.get(&wrong, secrets("old")).await.unwrap_err();
    }
    assert_eq!(account.used().len(), 1, "a dead grant is not asked for again at once");
    assert_eq!(account.tokens.view(&wrong).state, TokenState::NeedsReconnect);
    assert_eq!(account.tokens.view(&corrected).state, TokenState::Unasked);
    account.tokens.get(&corrected, secrets("old")).await.unwrap_err();
    assert_eq!(account.used().len(), 2, "the token URL was corrected");
    assert_eq!(account.tokens.view(&corrected).state, TokenState::NeedsReconnect);
}

/// A vendor may refuse a request whatever its token, for example because a right is missing.
#[tokio::test(start_paused = true)]
async fn refused_tokens_are_replaced_five_times_a_minute() {
    let account = Account::new();
    let tenant = tenant("OLD", "one", "d");
    account.get(&tenant, "old").await;
    let first = account.tokens.fresh(&tenant).unwrap();
    for _ in 0..5 {
        let stale = account.tokens.fresh(&tenant).unwrap();
        assert!(account.tokens.refused(&tenant, &stale));
        account.get(&tenant, "old").await;
    }
    let last = account.tokens.fresh(&tenant).unwrap();
    assert!(account.tokens.refused(&tenant, &first), "a request that began before gets the new one");
    assert!(!account.tokens.refused(&tenant, &last), "the token is not the reason");
    assert_eq!(account.fresh(&tenant).as_deref(), Some("access-5"));
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(account.tokens.refused(&tenant, &last));
    assert_eq!(account.fresh(&tenant), None);
}

#[tokio::test(start_paused = true)]
async fn wait_of_zero_does_not_shorten_the_backoff() {
    let overloaded = FakeAnswer::status(503).header("retry-after", "0");
    let account = Account::at(FakeTransport::new(move |_| overloaded.clone()));
    let tenant = tenant("OLD", "one", "d");
    for _ in 0..50 {
        account.tokens.get(&tenant, secrets("old")).await.unwrap_err();
    }
    assert_eq!(account.used().len(), 1);
}
