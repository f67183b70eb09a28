//! Caches the secret of a route's last request in the form in which it is sent.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use secrecy::SecretString;

use crate::clock::Time;

/// A tenant's secret in the form in which its requests carry it. It is shared by pointer, and zeroed when the last request
/// drops it.
pub(crate) struct Authorization {
    pub(crate) secret: Arc<SecretString>,
    /// The header that carries it, `None` if it goes elsewhere, or the reason why no header can carry it.
    pub(crate) header: Result<Option<(HeaderName, HeaderValue)>, &'static str>,
    /// When the secret has to be looked up again.
    pub(crate) until: Time,
}

/// The secret of a tenant's last request. A look-up in the caches of credentials costs as much as all other look-ups of a
/// request. It is kept for a second at most, so that the expiry of those caches still holds.
#[derive(Default)]
pub(crate) struct CachedAuth(Mutex<Option<Arc<Authorization>>>);

impl CachedAuth {
    /// The secret, if it may be used at `now`.
    #[inline]
    pub(crate) fn at(&self, now: Time) -> Option<Arc<Authorization>> {
        self.0.lock().as_ref().filter(|known| now < known.until).cloned()
    }

    pub(crate) fn keep(&self, known: Arc<Authorization>) {
        let _before = self.0.lock().replace(known);
    }

    /// Drops the secret if it is `stale`.
    pub(crate) fn forget(&self, stale: &Arc<SecretString>) {
        let _before = self.0.lock().take_if(|known| Arc::ptr_eq(&known.secret, stale));
    }
}

impl std::fmt::Debug for CachedAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CachedAuth")
    }
}
