//! The tokens of one account, and the lock that allows one refresh at a time.

use std::sync::Arc;

use parking_lot::Mutex;
use secrecy::SecretString;

use crate::clock::Time;
use crate::transport::tokens::KeptToken;

/// The token state of one account.
#[derive(Default)]
pub(super) struct Slot {
    /// Locked while a refresh is in progress.
    pub(super) refresher: Arc<tokio::sync::Mutex<Refresher>>,
    pub(super) known: Mutex<Known>,
}

/// The current access token of an account, and its problems.
#[derive(Default)]
pub(super) struct Known {
    pub(super) access: Option<Access>,
    pub(super) failed: Option<Failed>,
    /// Why the newest refresh token could not be stored, if it could not.
    pub(super) unkept: Option<Arc<str>>,
}

#[derive(Clone)]
pub(super) struct Access {
    pub(super) secret: Arc<SecretString>,
    /// When the token is replaced.
    pub(super) until: Time,
    /// Until when the token is handed out without trying again to store an unstored refresh token.
    pub(super) look_at: Time,
}

/// The failure of the last refresh.
pub(super) struct Failed {
    pub(super) why: Arc<str>,
    pub(super) needs_reconnect: bool,
    pub(super) again_at: Time,
    /// Hash of the secrets with which the refresh failed: with other secrets it is tried again at once.
    pub(super) secrets: [u8; 32],
}

/// State that one refresh of an account leaves to the next.
#[derive(Default)]
pub(super) struct Refresher {
    pub(super) held: Option<KeptToken>,
    /// Whether `held` is newer than the token that the keeper has.
    pub(super) unkept: bool,
    /// Number of consecutive failed refreshes.
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

    /// Returns why no refresh may be tried yet, if the last one with these secrets failed recently.
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
