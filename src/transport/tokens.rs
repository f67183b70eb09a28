//! Types for OAuth 2.0 tokens, shared by the code that stores them and the code that shows their state.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use crate::clock::Time;
use crate::config::Tenant;
use crate::{BoxError, BoxFuture};

/// The owner of a refresh token. An account has one refresh token, which its tenants share.
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

/// A refresh token that the vendor returned in place of an earlier one. Its `Debug` shows no secret.
#[derive(Clone)]
pub struct KeptToken {
    refresh_token: SecretString,
    granted: String,
}

impl KeptToken {
    /// Restores a token from the values that a keeper stored.
    pub fn new(refresh_token: impl Into<SecretString>, granted: impl Into<String>) -> KeptToken {
        KeptToken { refresh_token: refresh_token.into(), granted: granted.into() }
    }

    /// The token.
    pub fn refresh_token(&self) -> &SecretString {
        &self.refresh_token
    }

    /// A hash of the refresh token that the user granted first, from which this one descends. If the configuration
    /// refers to another granted token by now, the user has connected again, and a token with this hash is worthless.
    pub fn granted(&self) -> &str {
        &self.granted
    }
}

impl fmt::Debug for KeptToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptToken").field("granted", &self.granted).finish_non_exhaustive()
    }
}

/// Stores refresh tokens that vendors replace: many vendors return a new one with each access token, and no longer
/// accept the previous one. A client with a store keeps them there, sealed; this trait is for programs that keep them
/// elsewhere.
///
/// Closures are keepers that only store. The tenant's configured reference must then lead to the newest token:
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
///
/// All requests of an account wait for these calls, so each call has 10 s. It is dropped then. A panic, or a call that
/// takes longer, counts as an error. Set a shorter timeout of your own, and make sure that a write of
/// [`keep`](TokenKeeper::keep) that was dropped does not end later in place of a newer one.
pub trait TokenKeeper: Send + Sync + 'static {
    /// Stores the newest token of `whose`. The token must be on the disk when this returns: the previous one may be
    /// void already.
    ///
    /// # Errors
    /// The token was not stored. The client tries again, about every 10 s and at its shutdown; the access token that came
    /// with it is used meanwhile. The error must hold no secret.
    fn keep<'a>(&'a self, whose: &'a TokenOwner, token: &'a KeptToken) -> BoxFuture<'a, Result<(), BoxError>>;

    /// Returns the newest token of `whose`, if one was stored. Called before the first refresh, and after the vendor
    /// refused a token, because another process may have replaced it.
    ///
    /// # Errors
    /// The token cannot be read. No refresh begins then, because the vendor might take the configured token, if it has
    /// been replaced, for a stolen one. The error must hold no secret.
    fn load<'a>(&'a self, whose: &'a TokenOwner) -> BoxFuture<'a, Result<Option<KeptToken>, BoxError>> {
        let _ = whose;
        Box::pin(async { Ok(None) })
    }

    /// Reserves the refresh of `whose`'s token for this process for `length`, or until [`give_back`](Self::give_back).
    /// If another process holds the reservation, returns how long that one may last. Vendors that replace refresh
    /// tokens take one that is used twice for stolen, and revoke all tokens that descend from it: a keeper that
    /// several processes use must let only one of them refresh at a time. The default always grants the reservation,
    /// which is safe only for a single process. A further call of the process that holds the reservation makes it last
    /// for `length` from then on: the client calls again while a new token cannot be stored.
    ///
    /// # Errors
    /// It is unknown whether another process refreshes the token. No refresh begins then. The error must hold no
    /// secret.
    fn reserve<'a>(
        &'a self,
        whose: &'a TokenOwner,
        length: Duration,
    ) -> BoxFuture<'a, Result<Option<Duration>, BoxError>> {
        let _ = (whose, length);
        Box::pin(async { Ok(None) })
    }

    /// Ends the reservation, after the refresh and after its new token was stored: another process may refresh. If this
    /// panics or takes longer than 10 s, other processes wait until the reservation ends by itself.
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

/// The resolved secrets that one refresh needs.
pub(crate) struct OAuthSecrets {
    pub(crate) client_id: Arc<SecretString>,
    pub(crate) client_secret: Option<Arc<SecretString>>,
    pub(crate) refresh_token: Option<Arc<SecretString>>,
    pub(crate) private_key: Option<Arc<SecretString>>,
}

/// Why there is no access token.
#[derive(Clone)]
pub(crate) struct NoToken {
    pub(crate) why: Arc<BoxError>,
    /// The wait until the token URL is asked again, if the failure may pass without anybody's help: the URL does not
    /// answer, or asks for a wait. `None` if a person has to correct something.
    pub(crate) again_in: Option<Duration>,
}

/// A failure that does not pass by itself.
impl From<Arc<BoxError>> for NoToken {
    fn from(why: Arc<BoxError>) -> NoToken {
        NoToken { why, again_in: None }
    }
}

impl fmt::Display for NoToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.why, f)
    }
}

impl fmt::Debug for NoToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the error's own `Debug`, which an application may have derived over its secrets.
        f.debug_struct("NoToken").field("why", &self.why.to_string()).field("again_in", &self.again_in).finish()
    }
}

/// The state of an account's access token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenState {
    Unasked,
    Fresh,
    Failing,
    NeedsReconnect,
}

/// The state of an access token with its times and problem, for status and console.
#[derive(Clone, Debug)]
pub(crate) struct TokenView {
    pub(crate) state: TokenState,
    pub(crate) fresh_until: Option<Time>,
    pub(crate) next_try: Option<Time>,
    pub(crate) problem: Option<Arc<str>>,
}

/// How long before its expiry a token that is valid for `life` is replaced, so that it does not expire on the way to
/// the vendor.
pub(crate) fn margin(life: Duration) -> Duration {
    Duration::from_secs(30).min(life / 10)
}
