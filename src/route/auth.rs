//! Caches the secrets of a route's last request in the form in which they are sent.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use secrecy::SecretString;

use crate::clock::Time;

/// The secrets of a tenant's requests. Each is shared by pointer, and zeroed when the last request drops it.
#[derive(Clone)]
pub(crate) struct Secrets {
    /// The credential; `None` if the vendor needs none.
    pub(crate) credential: Option<Arc<SecretString>>,
    /// The secrets of the headers beside it.
    pub(crate) headers: Vec<(HeaderName, Arc<SecretString>)>,
}

impl From<Arc<SecretString>> for Secrets {
    /// A credential alone.
    fn from(credential: Arc<SecretString>) -> Secrets {
        Secrets { credential: Some(credential), headers: Vec::new() }
    }
}

impl Secrets {
    /// Whether this very secret is one of them.
    fn holds(&self, secret: &Arc<SecretString>) -> bool {
        let headers = self.headers.iter().map(|(_, known)| known);
        self.credential.iter().chain(headers).any(|known| Arc::ptr_eq(known, secret))
    }
}

/// A tenant's secrets in the form in which its requests carry them.
pub(crate) struct Authorization {
    pub(crate) secrets: Secrets,
    /// The headers that carry secrets, or the reason why a header cannot carry its secret.
    pub(crate) headers: Result<Vec<(HeaderName, HeaderValue)>, &'static str>,
    /// When the secrets have to be looked up again.
    pub(crate) until: Time,
}

/// The secrets of a tenant's last request. A look-up in the caches of credentials costs as much as all other look-ups of a
/// request. They are kept for a second at most, so that the expiry of those caches still holds.
#[derive(Default)]
pub(crate) struct CachedAuth(Mutex<Option<Arc<Authorization>>>);

impl CachedAuth {
    /// The secrets, if they may be used at `now`.
    #[inline]
    pub(crate) fn at(&self, now: Time) -> Option<Arc<Authorization>> {
        self.0.lock().as_ref().filter(|known| now < known.until).cloned()
    }

    pub(crate) fn keep(&self, known: Arc<Authorization>) {
        let _before = self.0.lock().replace(known);
    }

    /// Drops the secrets if `stale` is one of them.
    pub(crate) fn forget(&self, stale: &Arc<SecretString>) {
        let _before = self.0.lock().take_if(|known| known.secrets.holds(stale));
    }
}

impl std::fmt::Debug for CachedAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CachedAuth")
    }
}
