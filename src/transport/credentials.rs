//! Resolves and caches secrets: concurrent requests for the same secret share one read. Access tokens of OAuth are
//! refreshed in `oauth/`.
//!
//! Both caches are moka's. Its `try_get_with` lets one caller do the work for all concurrent callers; if that caller
//! is dropped, another takes over. moka reads its own clock, so paused time in tests does not move these expiries.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::DefaultHashBuilder;
use moka::future::Cache;
use moka::ops::compute::Op;
use secrecy::SecretString;

use super::Transport;
use super::oauth::Tokens;
use super::tokens::{OAuthSecrets, TokenKeeper, TokenView, margin};
use crate::BoxError;
use crate::BoxFuture;
use crate::clock::{Clock, Time};
use crate::config::{AuthScheme, CredentialRef, OAuth, Tenant};
use crate::error::{Error, ErrorKind};
use crate::route::{Authorization, Route};

/// A resolved secret. Shared, so that no copies are made; zeroed when the last reference is dropped.
pub type Secret = Arc<SecretString>;

/// How long a resolved reference is used before it is read again.
const TTL: Duration = Duration::from_secs(60);
/// How long a route uses a secret without asking the caches. Shorter than the margin by which a [`Token`] is replaced
/// before its expiry, except for tokens that live less than ten seconds.
const CACHED_FOR: Duration = Duration::from_secs(1);
/// A token without a stated expiry is replaced after this time, or at once after a 401.
const TOKEN_TTL: Duration = Duration::from_secs(3600);
/// The most entries in each cache. Above it the least used are evicted, which costs another look-up.
const MAX_CACHED: u64 = 100_000;

/// Finds secrets in a place of the application's own: a vault, a database, a secret manager.
///
/// Register one under a name; a tenant's credential `NAME:KEY` then asks it for `KEY`. Closures are resolvers:
///
/// ```
/// use integration_client::IntegrationClient;
/// use integration_client::transport::SecretString;
///
/// # async fn read_from_vault(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
/// let builder = IntegrationClient::builder()
///     .credential_resolver("vault", |key: String| async move { Ok(SecretString::from(read_from_vault(&key).await?)) });
/// # drop(builder);
/// ```
pub trait CredentialResolver: Send + Sync + 'static {
    /// Returns the secret called `key`.
    ///
    /// # Errors
    ///
    /// The request is not sent. The error becomes a source, so it must hold no secret.
    fn resolve<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<SecretString, BoxError>>;
}

impl<F, R> CredentialResolver for F
where
    F: Fn(String) -> R + Send + Sync + 'static,
    R: Future<Output = Result<SecretString, BoxError>> + Send + 'static,
{
    fn resolve<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<SecretString, BoxError>> {
        Box::pin(self(key.to_owned()))
    }
}

/// Gets access tokens, for vendors with OAuth.
///
/// Called once per tenant and vendor while a token is fresh, however many requests wait for it. Closures are token
/// sources:
///
/// ```
/// use std::time::Duration;
///
/// use integration_client::IntegrationClient;
/// use integration_client::config::Tenant;
/// use integration_client::transport::Token;
///
/// # async fn refresh(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
/// let builder = IntegrationClient::builder().token_source("hubspot", |tenant: Tenant| async move {
///     Ok(Token::new(refresh(&tenant.id).await?, Some(Duration::from_secs(3600))))
/// });
/// # drop(builder);
/// ```
pub trait TokenSource: Send + Sync + 'static {
    /// Gets a new token for `tenant` at [`Tenant::vendor`].
    ///
    /// # Errors
    ///
    /// The request is not sent. The error becomes a source, so it must hold no secret.
    fn token<'a>(&'a self, tenant: &'a Tenant) -> BoxFuture<'a, Result<Token, BoxError>>;
}

impl<F, R> TokenSource for F
where
    F: Fn(Tenant) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Token, BoxError>> + Send + 'static,
{
    fn token<'a>(&'a self, tenant: &'a Tenant) -> BoxFuture<'a, Result<Token, BoxError>> {
        Box::pin(self(tenant.clone()))
    }
}

/// An access token.
#[derive(Clone, Debug)]
pub struct Token {
    secret: Secret,
    expires_in: Option<Duration>,
}

impl Token {
    /// A token, and how long it is valid from now on, if the vendor states it.
    pub fn new(secret: impl Into<SecretString>, expires_in: Option<Duration>) -> Token {
        Token { secret: Arc::new(secret.into()), expires_in }
    }

    fn fresh_for(&self) -> Duration {
        let life = self.expires_in.unwrap_or(TOKEN_TTL);
        life - margin(life)
    }
}

struct TokenExpiry;

impl moka::Expiry<TokenKey, Token> for TokenExpiry {
    fn expire_after_create(&self, _: &TokenKey, token: &Token, _: Instant) -> Option<Duration> {
        Some(token.fresh_for())
    }

    fn expire_after_update(&self, _: &TokenKey, token: &Token, _: Instant, _: Option<Duration>) -> Option<Duration> {
        Some(token.fresh_for())
    }
}

/// The owner of a token and the configuration for which it was fetched, so that a token is never sent to another base
/// URL or used for another credential's account.
#[derive(Clone, PartialEq, Eq, Hash)]
struct TokenKey {
    tenant: Arc<str>,
    vendor: Arc<str>,
    environment: Arc<str>,
    base_url: String,
    account: Arc<str>,
    credential: Option<CredentialRef>,
}

impl TokenKey {
    fn of(tenant: &Tenant) -> TokenKey {
        let vendor = &tenant.vendor;
        TokenKey {
            tenant: tenant.id.clone(),
            vendor: vendor.name.clone(),
            environment: vendor.environment.clone(),
            // If the base URL's variables are missing, no request can be sent that would carry the token.
            base_url: tenant.base_url().map(|base| base.as_str().to_owned()).unwrap_or_default(),
            account: tenant.account.clone(),
            credential: tenant.credential.clone(),
        }
    }
}

/// Finds and caches the secrets of all tenants.
pub struct Credentials {
    resolvers: HashMap<String, Arc<dyn CredentialResolver>>,
    sources: HashMap<String, Arc<dyn TokenSource>>,
    secrets: Cache<CredentialRef, Secret, DefaultHashBuilder>,
    tokens: Cache<TokenKey, Token>,
    oauth: Tokens,
    cached_for: Duration,
}

impl Default for Credentials {
    fn default() -> Credentials {
        Credentials::new()
    }
}

impl Credentials {
    /// Resolves `env:` and `file:` references; each secret is read again after 60 s.
    pub fn new() -> Credentials {
        Credentials {
            resolvers: HashMap::new(),
            sources: HashMap::new(),
            secrets: secrets(TTL),
            tokens: Cache::builder().max_capacity(MAX_CACHED).expire_after(TokenExpiry).build(),
            oauth: Default::default(),
            cached_for: CACHED_FOR,
        }
    }

    /// Reads each secret again after `ttl` (default 60 s). Zero caches nothing.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Credentials {
        // moka refuses times above a thousand years.
        let ttl = ttl.min(Duration::from_secs(365 * 86_400));
        self.secrets = secrets(ttl);
        self.cached_for = ttl.min(CACHED_FOR);
        self
    }

    /// Resolves references `NAME:KEY` with `resolver`.
    #[must_use]
    pub fn resolver(mut self, name: impl Into<String>, resolver: impl CredentialResolver) -> Credentials {
        self.resolvers.insert(name.into(), Arc::new(resolver));
        self
    }

    /// Gets the secrets of all tenants of `vendor` from `source`.
    #[must_use]
    pub fn token_source(mut self, vendor: impl Into<String>, source: impl TokenSource) -> Credentials {
        self.sources.insert(vendor.into(), Arc::new(source));
        self
    }

    /// Returns the secret that authenticates `tenant` at its vendor; `None` if it has none and the vendor needs none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Credential`], not sent: no credential is configured, it cannot be read, or its source failed.
    pub async fn secret(&self, tenant: &Tenant) -> Result<Option<Secret>, Error> {
        if let Some(source) = self.sources.get(&*tenant.vendor.name) {
            return self.token(source, tenant).await.map(Some);
        }
        if let Some(oauth) = &tenant.oauth {
            return self.oauth_token(oauth, tenant).await.map(Some).map_err(|why| failed(tenant, why));
        }
        match &tenant.credential {
            Some(reference) => self.read(reference).await.map(Some).map_err(|why| failed(tenant, why)),
            None if tenant.vendor.auth == AuthScheme::None => Ok(None),
            None => Err(failed(tenant, Arc::new("none is configured for this tenant".into()))),
        }
    }

    /// Reads the secret behind a reference, bypassing the cache.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "the gateway reads its callers' tokens"))]
    pub(crate) async fn reference(&self, reference: &CredentialRef) -> Result<Secret, BoxError> {
        self.resolve(reference).await
    }

    async fn read(&self, reference: &CredentialRef) -> Result<Secret, Arc<BoxError>> {
        // The secret is usually cached; this look-up avoids building the future that would read it.
        if let Some(known) = self.secrets.get(reference).await {
            return Ok(known);
        }
        self.secrets.try_get_with_by_ref(reference, self.resolve(reference)).await
    }

    async fn oauth_token(&self, oauth: &OAuth, tenant: &Tenant) -> Result<Secret, Arc<BoxError>> {
        if let Some(known) = self.oauth.fresh(tenant) {
            return Ok(known);
        }
        let read = async |reference: &Option<CredentialRef>| match reference {
            Some(reference) => self.read(reference).await.map(Some),
            None => Ok(None),
        };
        let secrets = OAuthSecrets {
            client_id: self.read(&oauth.client_id).await?,
            client_secret: read(&oauth.client_secret).await?,
            refresh_token: read(&oauth.refresh_token).await?,
            private_key: read(&oauth.private_key).await?,
        };
        self.oauth.get(tenant, secrets).await
    }

    /// Keeps the refresh tokens that vendors replace in `keeper`.
    #[must_use]
    pub fn token_keeper(mut self, keeper: impl TokenKeeper) -> Credentials {
        self.oauth.keep_by(Arc::new(keeper));
        self
    }

    /// Sets the transport of token requests, and the keeper of refresh tokens unless the program has set its own.
    pub(crate) fn begin(&mut self, transport: Arc<dyn Transport>, clock: Clock, keeper: Option<Arc<dyn TokenKeeper>>) {
        self.oauth.begin(transport, clock, keeper);
    }

    /// The state of `tenant`'s access token; `None` if it uses none.
    pub(crate) fn token_view(&self, tenant: &Tenant) -> Option<TokenView> {
        let by_source = self.sources.contains_key(&*tenant.vendor.name);
        (tenant.oauth.is_some() && !by_source).then(|| self.oauth.view(tenant))
    }

    /// Waits for token refreshes that are in progress.
    pub(crate) async fn settle(&self, grace: Duration) {
        self.oauth.settle(grace).await;
    }

    /// Returns the authorization if the route has it cached. `Some(None)` means that the vendor needs none.
    #[inline]
    pub(crate) fn cached_auth(&self, route: &Route, now: Time) -> Option<Option<Arc<Authorization>>> {
        if route.credential.is_none() && route.oauth.is_none() && route.vendor.auth == AuthScheme::None {
            return (!self.sources.contains_key(&*route.vendor.name)).then_some(None);
        }
        route.authorization(now).map(Some)
    }

    /// Caches `secret` in its route, for a second at most.
    pub(crate) fn cache(&self, route: &Route, secret: Secret, now: Time) -> Arc<Authorization> {
        let known = Arc::new(Authorization::new(&route.vendor.auth, secret, now + self.cached_for));
        route.keep_authorization(known.clone());
        known
    }

    async fn token(&self, source: &Arc<dyn TokenSource>, tenant: &Tenant) -> Result<Secret, Error> {
        let token = self.tokens.try_get_with(TokenKey::of(tenant), source.token(tenant)).await;
        token.map(|token| token.secret).map_err(|why| failed(tenant, why))
    }

    /// Forgets `stale`, which the vendor has refused, so that the next [`secret`](Credentials::secret) gets a new one.
    ///
    /// A secret that has been replaced since is kept: a hundred requests refused with one old token cause one refresh.
    /// Returns `false` if the next request is certain to get `stale` again.
    pub(crate) async fn invalidate(&self, route: &Route, stale: &Secret) -> bool {
        route.forget_authorization(stale);
        if self.sources.contains_key(&*route.vendor.name) {
            let entry = self.tokens.entry(TokenKey::of(route));
            entry
                .and_compute_with(async |entry| match entry {
                    Some(entry) if Arc::ptr_eq(&entry.value().secret, stale) => Op::Remove,
                    _ => Op::Nop,
                })
                .await;
        } else if route.oauth.is_some() {
            return self.oauth.refused(route, stale);
        } else if let Some(reference) = &route.credential {
            let entry = self.secrets.entry_by_ref(reference);
            entry
                .and_compute_with(async |entry| match entry {
                    Some(entry) if Arc::ptr_eq(entry.value(), stale) => Op::Remove,
                    _ => Op::Nop,
                })
                .await;
        }
        true
    }

    async fn resolve(&self, reference: &CredentialRef) -> Result<Secret, BoxError> {
        let secret = match reference {
            CredentialRef::Env(_) => reference.read()?,
            CredentialRef::File(_) => {
                let reference = reference.clone();
                // A file may be on a slow mount, and reading it must not block the runtime's thread.
                tokio::task::spawn_blocking(move || reference.read()).await.map_err(|_| "the reader was stopped")??
            }
            CredentialRef::Resolver { resolver, key } => match self.resolvers.get(resolver) {
                Some(found) => found.resolve(key).await?,
                None => return Err(format!("no credential resolver called {resolver} is registered").into()),
            },
        };
        Ok(Arc::new(secret))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("resolvers", &self.resolvers.keys())
            .field("token_sources", &self.sources.keys())
            .finish_non_exhaustive()
    }
}

/// Uses hashbrown's hasher: SipHash over the reference cost more than the look-up.
fn secrets(ttl: Duration) -> Cache<CredentialRef, Secret, DefaultHashBuilder> {
    Cache::builder().max_capacity(MAX_CACHED).time_to_live(ttl).build_with_hasher(DefaultHashBuilder::default())
}

fn failed(tenant: &Tenant, why: Arc<BoxError>) -> Error {
    tenant.not_sent(ErrorKind::Credential, format_args!("no credential: {why}")).with_source(Shared(why))
}

/// One failure, reported to every request that waited for the same secret.
struct Shared(Arc<BoxError>);

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the error's own `Debug`, which an application may have derived over its secrets.
        write!(f, "{:?}", self.0.to_string())
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Shared {}
