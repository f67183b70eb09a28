//! Caches secrets: concurrent requests for the same secret share one call or read, which `resolutions.rs` keeps under
//! way. Where secrets come from is in `secret_sources.rs`; access tokens of OAuth are refreshed in `oauth/`.
//!
//! The caches are moka's, and hold what was resolved, no errors. moka reads its own clock, so paused time in tests does
//! not move these expiries. Its `try_get_with` is not used: it resolves within the future of one caller.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::DefaultHashBuilder;
use moka::future::Cache;
use moka::ops::compute::Op;
use secrecy::ExposeSecret;
use tokio::sync::Semaphore;

use super::Transport;
use super::oauth::Tokens;
use super::resolutions::{Resolutions, Resolved, in_words};
use super::secret_sources::{CredentialResolver, FILES_AT_ONCE, Secret, Token, TokenSource, call, read_file};
use super::tokens::{NoToken, OAuthSecrets, TokenKeeper, TokenView};
use crate::clock::{Clock, Time};
use crate::config::{AuthScheme, CredentialRef, OAuth, SecretHeader, Tenant};
use crate::error::{Error, ErrorKind};
use crate::route::{Authorization, Route, Secrets};
use crate::{BoxError, BoxFuture};

/// How long a resolved reference is used before it is read again.
const TTL: Duration = Duration::from_secs(60);
/// How long a route uses a secret without asking the caches. Shorter than the margin by which a [`Token`] is replaced
/// before its expiry, except for tokens that live less than ten seconds.
const CACHED_FOR: Duration = Duration::from_secs(1);
/// The most entries in each cache. Above it the least used are evicted, which costs another look-up.
const MAX_CACHED: u64 = 100_000;

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
    /// The secrets that vendors refused last, for a minute: only the first of a hundred refusals has an effect.
    refused: Cache<CredentialRef, Secret, DefaultHashBuilder>,
    /// The references that are being resolved.
    reading: Resolutions<CredentialRef, Secret>,
    /// A place for each file that may be read at once.
    files: Arc<Semaphore>,
    tokens: Cache<TokenKey, Token>,
    /// The calls of token sources.
    asking: Resolutions<TokenKey, Token>,
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
            refused: secrets(TTL),
            reading: Resolutions::default(),
            files: Arc::new(Semaphore::new(FILES_AT_ONCE)),
            tokens: Cache::builder().max_capacity(MAX_CACHED).expire_after(TokenExpiry).build(),
            asking: Resolutions::default(),
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
    /// Needs a tokio runtime with time enabled. What has to be called or read for it goes on if this future is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Credential`], not sent: no credential is configured, it cannot be read, or its source failed. It
    /// states a wait ([`Error::retry_after`]) if a token URL failed in a way that may pass without anybody's help.
    pub async fn secret(&self, tenant: &Tenant) -> Result<Option<Secret>, Error> {
        if let Some(source) = self.sources.get(&*tenant.vendor.name) {
            return self.token(source, tenant).await.map(Some).map_err(|why| failed(tenant, why));
        }
        if let Some(oauth) = &tenant.oauth {
            return self.oauth_token(oauth, tenant).await.map(Some).map_err(|NoToken { why, again_in }| {
                let error = failed(tenant, why);
                match again_in {
                    Some(wait) => error.with_retry_after(wait),
                    None => error,
                }
            });
        }
        match &tenant.credential {
            Some(reference) => self.read(reference).await.map(Some).map_err(|why| failed(tenant, why)),
            None if tenant.vendor.auth == AuthScheme::None => Ok(None),
            None => Err(failed(tenant, in_words("none is configured for this tenant"))),
        }
    }

    /// Returns all secrets of a request of `tenant`: what [`secret`](Credentials::secret) returns, and those of
    /// `secret_headers`. `None` if there are none. Fails as that does.
    pub(crate) async fn secrets(&self, tenant: &Tenant) -> Result<Option<Secrets>, Error> {
        let credential = self.secret(tenant).await?;
        let stated: Vec<&SecretHeader> = tenant.all_secret_headers().collect();
        let mut headers = Vec::with_capacity(stated.len());
        for SecretHeader { name, secret } in stated {
            let secret = self.read(secret).await;
            let failed = |why| failed_to_get(&format!("no secret for the header {name}"), tenant, why);
            headers.push((name.clone(), secret.map_err(failed)?));
        }
        Ok((credential.is_some() || !headers.is_empty()).then_some(Secrets { credential, headers }))
    }

    /// Reads the secret behind a reference, bypassing the cache.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "the gateway reads its callers' tokens"))]
    pub(crate) async fn reference(&self, reference: &CredentialRef) -> Result<Secret, Arc<BoxError>> {
        match reference {
            // Otherwise each reading would occupy a further thread with a file that hangs.
            CredentialRef::File(_) => self.reading.outcome(reference, self.resolve(reference)).await,
            _ => self.resolve(reference).await,
        }
    }

    async fn read(&self, reference: &CredentialRef) -> Resolved<Secret> {
        // The secret is usually cached; this look-up avoids building the future that would read it.
        if let Some(known) = self.secrets.get(reference).await {
            return Ok(known);
        }
        let (secrets, refused) = (self.secrets.clone(), self.refused.clone());
        let (key, resolving) = (reference.clone(), self.resolve(reference));
        let resolution = async move {
            // Another resolution may have ended since the look-up.
            if let Some(known) = secrets.get(&key).await {
                return Ok(known);
            }
            let before = refused.get(&key).await;
            let secret = resolving.await?;
            // If a vendor refused a secret meanwhile, this may be the same one.
            if is_same(&before, &refused.get(&key).await) {
                secrets.insert(key, secret.clone()).await;
            }
            Ok(secret)
        };
        self.reading.outcome(reference, resolution).await
    }

    async fn oauth_token(&self, oauth: &OAuth, tenant: &Tenant) -> Result<Secret, NoToken> {
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
        self.is_of_token_url(tenant).then(|| self.oauth.view(tenant))
    }

    /// Whether `tenant` gets its tokens from a token URL.
    pub(crate) fn is_of_token_url(&self, tenant: &Tenant) -> bool {
        tenant.oauth.is_some() && !self.sources.contains_key(&*tenant.vendor.name)
    }

    /// Waits for token refreshes and calls of token sources that are in progress.
    pub(crate) async fn settle(&self, grace: Duration) {
        let _ = tokio::join!(self.oauth.settle(grace), tokio::time::timeout(grace, self.asking.settle()));
    }

    /// Returns the authorization if the route has it cached. `Some(None)` means that the vendor needs none.
    #[inline]
    pub(crate) fn cached_auth(&self, route: &Route, now: Time) -> Option<Option<Arc<Authorization>>> {
        let is_open = route.vendor.auth == AuthScheme::None && !route.has_secret_headers();
        if is_open && route.credential.is_none() && route.oauth.is_none() {
            return (!self.sources.contains_key(&*route.vendor.name)).then_some(None);
        }
        route.authorization(now).map(Some)
    }

    /// Caches `secrets` in their route, for a second at most.
    pub(crate) fn cache(&self, route: &Route, secrets: Secrets, now: Time) -> Arc<Authorization> {
        let known = Arc::new(Authorization::new(&route.vendor.auth, secrets, now + self.cached_for));
        route.keep_authorization(known.clone());
        known
    }

    /// Whether the secret of `tenant` is an access token, which expires.
    #[inline]
    pub(crate) fn expires(&self, tenant: &Tenant) -> bool {
        tenant.oauth.is_some() || self.sources.contains_key(&*tenant.vendor.name)
    }

    /// What authorizes a request of `route` that has waited since it got the access token `used`: the same, or a newer one
    /// if there is one by now. `None` if the token has expired or was refused, and no newer one is cached. It looks into
    /// the caches alone, because the request holds a permit.
    pub(crate) async fn after_wait(
        &self,
        route: &Route,
        used: &Arc<Authorization>,
        now: Time,
    ) -> Option<Arc<Authorization>> {
        let known = match self.is_of_token_url(route) {
            true => self.oauth.fresh(route),
            false => self.tokens.get(&TokenKey::of(route)).await.map(|token| token.secret),
        }?;
        if used.secrets.credential.as_ref().is_some_and(|token| Arc::ptr_eq(&known, token)) {
            return Some(used.clone());
        }
        let headers = used.secrets.headers.clone();
        Some(self.cache(route, Secrets { credential: Some(known), headers }, now))
    }

    async fn token(&self, source: &Arc<dyn TokenSource>, tenant: &Tenant) -> Resolved<Secret> {
        let key = TokenKey::of(tenant);
        if let Some(known) = self.tokens.get(&key).await {
            return Ok(known.secret);
        }
        let (tokens, source, owner, tenant) = (self.tokens.clone(), source.clone(), key.clone(), tenant.clone());
        let resolution = async move {
            // Another call may have ended since the look-up.
            if let Some(known) = tokens.get(&owner).await {
                return Ok(known);
            }
            let token = call("the token source", async { source.token(&tenant).await }).await?;
            tokens.insert(owner, token.clone()).await;
            Ok(token)
        };
        self.asking.outcome(&key, resolution).await.map(|token| token.secret)
    }

    /// Forgets the secrets of a request that the vendor has refused: it does not say which of them it refuses.
    ///
    /// Returns `false` if the next request is certain to get the same ones again.
    pub(crate) async fn invalidate_all(&self, route: &Route, stale: &Secrets) -> bool {
        let mut is_replaced = match &stale.credential {
            Some(secret) => self.invalidate(route, secret).await,
            None => false,
        };
        let stated: Vec<&SecretHeader> = route.all_secret_headers().collect();
        for SecretHeader { name, secret: reference } in stated {
            let Some((_, secret)) = stale.headers.iter().find(|(known, _)| known == name) else { continue };
            route.forget_authorization(secret);
            is_replaced |= self.outdate(reference, secret).await;
        }
        is_replaced
    }

    /// Forgets `stale`, which the vendor has refused, so that the next [`secret`](Credentials::secret) gets a new one.
    ///
    /// A secret that has been replaced since is kept: a hundred requests refused with one old token cause one refresh.
    /// A resolver that was called before the refusal may return `stale` again, so the next request calls it once more.
    /// A token source is not called twice at once: its token is a new one, and two calls might use one refresh token.
    ///
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
            return self.outdate(reference, stale).await;
        }
        true
    }

    /// Forgets `stale`, to which `reference` led, as [`invalidate`](Self::invalidate) does. A secret that was read again after
    /// a refusal and is the same stays: a tenant that is refused for another reason must not make all others wait for it.
    async fn outdate(&self, reference: &CredentialRef, stale: &Secret) -> bool {
        let is_stale = |other: &Secret| other.expose_secret() == stale.expose_secret();
        let last = self.refused.get(reference).await;
        let is_first = last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, stale));
        if is_first && last.as_ref().is_some_and(is_stale) {
            return !self.secrets.get(reference).await.as_ref().is_some_and(is_stale);
        }
        if is_first {
            self.refused.insert(reference.clone(), stale.clone()).await;
        }
        let entry = self.secrets.entry_by_ref(reference);
        entry
            .and_compute_with(async |entry| match entry {
                Some(entry) if Arc::ptr_eq(entry.value(), stale) => Op::Remove,
                _ => Op::Nop,
            })
            .await;
        // A file is read in a moment, or its mount hangs: a second read would occupy a second thread.
        if is_first && !matches!(reference, CredentialRef::File(_)) {
            self.reading.outdate(reference);
        }
        true
    }

    /// A future that resolves a reference, without the cache.
    fn resolve(&self, reference: &CredentialRef) -> BoxFuture<'static, Resolved<Secret>> {
        match reference {
            CredentialRef::Env(_) => {
                let read = reference.read().map(Arc::new).map_err(|why| in_words(&why));
                Box::pin(std::future::ready(read))
            }
            CredentialRef::File(_) => Box::pin(read_file(reference.clone(), self.files.clone())),
            CredentialRef::Resolver { resolver: name, key } => {
                let Some(resolver) = self.resolvers.get(name).cloned() else {
                    let why = in_words(&format!("no credential resolver called {name} is registered"));
                    return Box::pin(std::future::ready(Err(why)));
                };
                let (name, key) = (format!("the credential resolver {name}"), key.clone());
                Box::pin(async move { call(&name, async { resolver.resolve(&key).await }).await.map(Arc::new) })
            }
        }
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

fn is_same(one: &Option<Secret>, other: &Option<Secret>) -> bool {
    one.as_ref().map(Arc::as_ptr) == other.as_ref().map(Arc::as_ptr)
}

fn failed(tenant: &Tenant, why: Arc<BoxError>) -> Error {
    failed_to_get("no credential", tenant, why)
}

fn failed_to_get(what: &str, tenant: &Tenant, why: Arc<BoxError>) -> Error {
    tenant.not_sent(ErrorKind::Credential, format_args!("{what}: {why}")).with_source(Shared(why))
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
