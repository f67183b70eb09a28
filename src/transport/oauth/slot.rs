//! The tokens of one account, and the lock that lets one refresh be under way.

use std::sync::Arc;

use parking_lot::Mutex;
use secrecy::SecretString;

use crate::clock::Time;
use crate::transport::tokens::KeptToken;

/// One account.
#[derive(Default)]
pub(super) struct Slot {
    /// Held while a refresh is under way.
    pub(super) refresher: Arc<tokio::sync::Mutex<Refresher>>,
    pub(super) known: Mutex<Known>,
}

/// What is known of an account's token.
#[derive(Default)]
pub(super) struct Known {
    pub(super) access: Option<Access>,
    pub(super) failed: Option<Failed>,
    /// The refresh token that replaced another one could not be kept, and why.
    pub(super) unkept: Option<Arc<str>>,
}

#[derive(Clone)]
pub(super) struct Access {
    pub(super) secret: Arc<SecretString>,
    /// It is replaced then.
    pub(super) until: Time,
    /// It is handed out without a look at what is to be kept until then.
    pub(super) look_at: Time,
}

/// The last refresh failed.
pub(super) struct Failed {
    pub(super) why: Arc<str>,
    pub(super) needs_reconnect: bool,
    pub(super) again_at: Time,
    /// Identifies the secrets with which it failed: with others it is tried at once.
    pub(super) secrets: [u8; 32],
}

/// What an account's refreshes remember.
#[derive(Default)]
pub(super) struct Refresher {
    pub(super) held: Option<KeptToken>,
    /// `held` is newer than what the keeper has.
    pub(super) unkept: bool,
    /// Refreshes that failed, in a row.
    pub(super) failures: u32,
}

impl Slot {
    pub(super) fn fresh(&self, now: Time) -> Option<Arc<SecretString>> {
        let known = self.known.lock();
        known
            .access
            .as_ref()
            .filter(|access| now < access.until.min(access.look_at))
            .map(|access| access.secret.clone())
    }

    /// Why no refresh is tried now, if so.
    pub(super) fn refused(&self, now: Time, secrets: [u8; 32]) -> Option<Arc<str>> {
        let known = self.known.lock();
        known.failed.as_ref().filter(|failed| now < failed.again_at && failed.secrets == secrets).map(|f| f.why.clone())
    }
}

impl Known {
    pub(super) fn is_worth_nothing(&self, now: Time) -> bool {
        self.unkept.is_none() && self.access.as_ref().is_none_or(|access| now >= access.until)
    }
}
