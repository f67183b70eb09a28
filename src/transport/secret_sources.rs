//! Where secrets come from: variables, files, and the program's resolvers and token sources.
//!
//! The program's code gets a bounded time for each call, and its panics become errors.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::Semaphore;

use super::resolutions::{Resolved, in_words};
use super::tokens::margin;
use crate::config::{CredentialRef, Tenant};
use crate::error::panic::catch_panic_in;
use crate::{BoxError, BoxFuture};

/// A resolved secret. Shared, so that no copies are made; zeroed when the last reference is dropped.
pub type Secret = Arc<SecretString>;

/// The longest time that one call of a resolver or a token source may take. All requests that need the secret wait for
/// the same call, so one that hangs would stop the tenant for ever. It is a request's default deadline.
const LONGEST_CALL: Duration = Duration::from_secs(60);
/// The most files that are read at once. A read from a mount that hangs occupies a thread until the mount is back, and
/// the runtime has 512 of these threads unless the program says otherwise. The names of hosts are resolved there too.
pub(super) const FILES_AT_ONCE: usize = 64;
/// How long a file waits for its place among those.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// A token without a stated expiry is replaced after this time, or at once after a 401.
const TOKEN_TTL: Duration = Duration::from_secs(3600);

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
///
/// All requests that need the same key wait for one call. It runs in a task of its own, so it goes on if they give up,
/// and if the client is dropped. It is dropped after 60 s, or when the runtime ends. Set a shorter timeout of your own:
/// while a call hangs, no other begins for its key. Only after a vendor has refused the secret does a new call begin
/// beside an older one, whose secret is then not kept.
pub trait CredentialResolver: Send + Sync + 'static {
    /// Returns the secret called `key`, within 60 s.
    ///
    /// # Errors
    ///
    /// The requests that wait for it are not sent, and the next request asks again. The error becomes a source, so it
    /// must hold no secret. A panic, or a call that takes longer, counts as an error.
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
///
/// A call runs in a task of its own. It goes on if the requests that wait for it give up, and if the client is dropped,
/// because the vendor may have replaced a refresh token by then. A
/// [shutdown](crate::IntegrationClient::shutdown) waits for it within its grace. It is dropped after 60 s, or when the
/// runtime ends: set a shorter timeout of your own, and store a new refresh token before anything else.
pub trait TokenSource: Send + Sync + 'static {
    /// Gets a new token for `tenant` at [`Tenant::vendor`], within 60 s. While a call runs, no other begins for the
    /// same tenant, base URL, account and credential.
    ///
    /// # Errors
    ///
    /// The requests that wait for it are not sent, and the next request asks again. The error becomes a source, so it
    /// must hold no secret. A panic, or a call that takes longer, counts as an error.
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
    pub(super) secret: Secret,
    expires_in: Option<Duration>,
}

impl Token {
    /// A token, and how long it is valid from now on, if the vendor states it.
    pub fn new(secret: impl Into<SecretString>, expires_in: Option<Duration>) -> Token {
        Token { secret: Arc::new(secret.into()), expires_in }
    }

    pub(super) fn fresh_for(&self) -> Duration {
        let life = self.expires_in.unwrap_or(TOKEN_TTL);
        life - margin(life)
    }
}

/// Calls code of the program, which errors call `name`.
pub(super) async fn call<T>(name: &str, code: impl Future<Output = Result<T, BoxError>>) -> Resolved<T> {
    match tokio::time::timeout(LONGEST_CALL, catch_panic_in(code)).await {
        Ok(Some(returned)) => returned.map_err(Arc::new),
        Ok(None) => Err(in_words(&format!("{name} panicked"))),
        Err(_) => Err(in_words(&format!("{name} did not answer within {} s", LONGEST_CALL.as_secs()))),
    }
}

/// Reads a credential file. `places` are those of [`FILES_AT_ONCE`].
pub(super) async fn read_file(file: CredentialRef, places: Arc<Semaphore>) -> Resolved<Secret> {
    let Ok(Ok(place)) = tokio::time::timeout(LONGEST_WAIT, places.acquire_owned()).await else {
        let why = format!(
            "{file} was not read: {FILES_AT_ONCE} other credential files are being read and do not come; \
             a mount may hang"
        );
        return Err(in_words(&why));
    };
    // A file may be on a slow mount, and reading it must not block the runtime's thread.
    let read = tokio::task::spawn_blocking(move || {
        // The place is free when the thread is, even if nobody waits for the secret any more.
        let _place = place;
        file.read()
    });
    match read.await {
        Ok(read) => read.map(Arc::new).map_err(|why| in_words(&why)),
        Err(_) => Err(in_words("the reader was stopped")),
    }
}
