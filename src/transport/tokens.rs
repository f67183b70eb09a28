//! Tokens of OAuth 2.0, for whoever keeps and shows them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use crate::clock::Time;
use crate::config::Tenant;
use crate::{BoxError, BoxFuture};

/// Whose refresh token it is. One account has one, and its tenants share it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct TokenOwner {
    /// The vendor's name.
    pub vendor: Arc<str>,
    /// The vendor's environment.
    pub environment: Arc<str>,
    /// The account; the tenant's id unless its entry names another.
    pub account: Arc<str>,
}

impl TokenOwner {
    pub(crate) fn of(tenant: &Tenant) -> TokenOwner {
        let vendor = &tenant.vendor;
        TokenOwner {
            vendor: vendor.name.clone(),
            environment: vendor.environment.clone(),
            account: tenant.account.clone(),
        }
    }
}

/// A refresh token that an answer of the vendor brought. Its `Debug` shows no secret.
#[derive(Clone)]
pub struct KeptToken {
    refresh_token: SecretString,
    granted: String,
}

impl KeptToken {
    /// A token as it was kept.
    pub fn new(refresh_token: impl Into<SecretString>, granted: impl Into<String>) -> KeptToken {
        KeptToken { refresh_token: refresh_token.into(), granted: granted.into() }
    }

    /// The token.
    pub fn refresh_token(&self) -> &SecretString {
        &self.refresh_token
    }

    /// A hash of the token that the user granted first, from which this one comes. Where the configuration leads to another
    /// one by now, the user has connected again, and a token with this mark is worth nothing.
    pub fn granted(&self) -> &str {
        &self.granted
    }
}

impl fmt::Debug for KeptToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptToken").field("granted", &self.granted).finish_non_exhaustive()
    }
}

/// Keeps refresh tokens that vendors replace: many vendors give a new one with each access token, and take the one before no
/// more. A client with a store keeps them there, sealed; this is for those that have another place.
///
/// Closures are keepers that cannot be asked. What the configuration refers to must then lead to the newest token:
///
/// ```
/// use integration_client::IntegrationClient;
/// use integration_client::transport::{ExposeSecret, KeptToken, TokenOwner};
///
/// # async fn write_to_vault(_: &str, _: &str) -> Result<(), std::io::Error> { Ok(()) }
/// let builder = IntegrationClient::builder().token_keeper(|whose: TokenOwner, token: KeptToken| async move {
///     Ok(write_to_vault(&whose.account, token.refresh_token().expose_secret()).await?)
/// });
/// # drop(builder);
/// ```
pub trait TokenKeeper: Send + Sync + 'static {
    /// Keeps the newest token of `whose`. It is on the disk when this returns: the token before it may be void already.
    ///
    /// # Errors
    /// It was not kept. It is tried again; the access token that came with it is used meanwhile. The error must hold no secret.
    fn keep<'a>(&'a self, whose: &'a TokenOwner, token: &'a KeptToken) -> BoxFuture<'a, Result<(), BoxError>>;

    /// The newest token of `whose`, if one was kept. Asked before the first refresh, and after the vendor refused a token,
    /// which another process may have replaced.
    ///
    /// # Errors
    /// It cannot be read. No refresh begins then: the vendor might take the token of the configuration for a theft. The error
    /// must hold no secret.
    fn load<'a>(&'a self, whose: &'a TokenOwner) -> BoxFuture<'a, Result<Option<KeptToken>, BoxError>> {
        let _ = whose;
        Box::pin(async { Ok(None) })
    }

    /// Lets no other process refresh the token of `whose` for `length`, or until [`give_back`](Self::give_back). If another one has
    /// that right, the answer is how long it may keep it. Vendors that replace refresh tokens take one that is used twice for stolen,
    /// and revoke all that come from it: a keeper that several processes use must let one of them refresh at a time. Without it, as
    /// by default, there is to be one process.
    ///
    /// # Errors
    /// It is not known whether another process refreshes. No refresh begins then. The error must hold no secret.
    fn reserve<'a>(
        &'a self,
        whose: &'a TokenOwner,
        length: Duration,
    ) -> BoxFuture<'a, Result<Option<Duration>, BoxError>> {
        let _ = (whose, length);
        Box::pin(async { Ok(None) })
    }

    /// The refresh is over, and what it brought is kept: another process may refresh.
    fn give_back<'a>(&'a self, whose: &'a TokenOwner) -> BoxFuture<'a, ()> {
        let _ = whose;
        Box::pin(async {})
    }
}

impl<F, R> TokenKeeper for F
where
    F: Fn(TokenOwner, KeptToken) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    fn keep<'a>(&'a self, whose: &'a TokenOwner, token: &'a KeptToken) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(self(whose.clone(), token.clone()))
    }
}

/// The secrets of one refresh, resolved.
pub(crate) struct OAuthSecrets {
    pub(crate) client_id: Arc<SecretString>,
    pub(crate) client_secret: Option<Arc<SecretString>>,
    pub(crate) refresh_token: Option<Arc<SecretString>>,
    pub(crate) private_key: Option<Arc<SecretString>>,
}

/// How it stands with an account's access token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenState {
    Unasked,
    Fresh,
    Failing,
    NeedsReconnect,
}

/// The same with figures, as it is shown.
#[derive(Clone, Debug)]
pub(crate) struct TokenView {
    pub(crate) state: TokenState,
    pub(crate) fresh_until: Option<Time>,
    pub(crate) next_try: Option<Time>,
    pub(crate) problem: Option<Arc<str>>,
}

/// A token that is valid for `life` is replaced this long before its end, so that it does not expire on its way.
pub(crate) fn margin(life: Duration) -> Duration {
    Duration::from_secs(30).min(life / 10)
}
