//! The secret of a route's last request, ready to be sent.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use secrecy::SecretString;

use crate::clock::Time;

/// A tenant's secret in the form in which its requests carry it: made once and then only pointed to, and zeroed with the
/// last request that holds it.
pub(crate) struct Authorization {
    pub(crate) secret: Arc<SecretString>,
    /// The header that carries it, unless the vendor wants it elsewhere; or why no header can.
    pub(crate) header: Result<Option<(HeaderName, HeaderValue)>, &'static str>,
    /// Until when it may be used without asking for the secret again.
    pub(crate) until: Time,
}

/// The secret of a tenant's last request. Here, because looking into the caches of credentials costs as much as all else
/// that is looked up for a request. Kept for a second at most, so that what those caches promise holds.
#[derive(Default)]
pub(crate) struct CachedAuth(Mutex<Option<Arc<Authorization>>>);

impl CachedAuth {
    /// What may be used at `now`.
    #[inline]
    pub(crate) fn at(&self, now: Time) -> Option<Arc<Authorization>> {
        self.0.lock().as_ref().filter(|known| now < known.until).cloned()
    }

    pub(crate) fn keep(&self, known: Arc<Authorization>) {
        let _before = self.0.lock().replace(known);
    }

    /// Forgets `stale`, if it is that.
    pub(crate) fn forget(&self, stale: &Arc<SecretString>) {
        let _before = self.0.lock().take_if(|known| Arc::ptr_eq(&known.secret, stale));
    }
}

impl std::fmt::Debug for CachedAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CachedAuth")
    }
}
