//! The tokens of one account, and the lock that allows one refresh at a time.
//!
//! A token is used only with the settings and the host for which it was issued. When these change, requests that
//! began before still use the old ones, so a slot keeps the token of the old ones beside the current one.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::task::AbortHandle;

use crate::clock::Time;
use crate::config::Tenant;
use crate::transport::resolutions::in_words;
use crate::transport::tokens::{KeptToken, NoToken};

/// The tokens that are forgotten within [`SPELL`] because the vendor refused them; the next refused one stays in use. A
/// request that the vendor refuses whatever its token (a missing right, a suspended user) would otherwise make the account
/// ask for token after token, until the token URL refuses all of its tenants. More than one, because some vendors accept
/// the newest token alone, so that each process of an account takes the token of the others away.
const FORGOTTEN: u32 = 5;
const SPELL: Duration = Duration::from_secs(60);

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
    /// The token of the settings before, for requests that began with them.
    pub(super) former: Option<Access>,
    pub(super) failed: Option<Failed>,
    /// Since when refused tokens are counted, and how many were forgotten since.
    refused: (Time, u32),
    /// Why the newest refresh token could not be stored, if it could not.
    pub(super) unkept: Option<Arc<str>>,
}

#[derive(Clone)]
pub(super) struct Access {
    pub(super) secret: Arc<SecretString>,
    /// The tenant, in the version of its configuration, for which the token was issued.
    pub(super) issued_for: Arc<Tenant>,
    /// When the token is replaced.
    pub(super) until: Time,
}

/// The failure of the last refresh.
pub(super) struct Failed {
    pub(super) why: Arc<str>,
    pub(super) needs_reconnect: bool,
    /// It may pass without anybody's help.
    pub(super) may_pass: bool,
    pub(super) again_at: Time,
    /// Hash of the secrets with which the refresh failed: with other secrets it is tried again at once.
    pub(super) secrets: [u8; 32],
    /// The tenant for which it failed: with other settings it is tried again at once.
    pub(super) asked_for: Arc<Tenant>,
}

impl Failed {
    /// The failure for a request at `now`.
    pub(super) fn no_token(&self, now: Time) -> NoToken {
        NoToken { why: in_words(&self.why), again_in: self.may_pass.then(|| self.again_at.since(now)) }
    }
}

/// State that one refresh of an account leaves to the next.
#[derive(Default)]
pub(super) struct Refresher {
    pub(super) held: Option<KeptToken>,
    /// Whether `held` is newer than the token that the keeper has.
    pub(super) unkept: bool,
    /// The task that tries again and again to store `held`.
    pub(super) repeated_by: Option<AbortHandle>,
    /// Number of consecutive failed refreshes.
    pub(super) failures: u32,
    /// The tenant for which the last refresh asked.
    pub(super) asked_for: Option<Arc<Tenant>>,
}

impl Refresher {
    /// Begins a refresh for `tenant`. What failed with other settings does not lengthen its pauses.
    pub(super) fn begin(&mut self, tenant: &Arc<Tenant>) {
        if self.has_asked_for_another(tenant) {
            self.failures = 0;
        }
        self.asked_for = Some(tenant.clone());
    }

    /// Whether `tenant` is an old version, and a newer one has asked for a token already. A refresh for the old one
    /// would store its refresh token in the place of the newer one's, which would be lost.
    pub(super) fn is_past(&self, tenant: &Tenant) -> bool {
        tenant.oauth.as_ref().is_some_and(|oauth| oauth.is_replaced()) && self.has_asked_for_another(tenant)
    }

    /// Whether the last refresh was of a vendor that replaces refresh tokens: one process at a time may refresh.
    pub(super) fn rotates(&self) -> bool {
        self.asked_for.as_ref().and_then(|tenant| tenant.oauth.as_ref()).is_some_and(|oauth| oauth.rotates)
    }

    fn has_asked_for_another(&self, tenant: &Tenant) -> bool {
        self.asked_for.as_ref().is_some_and(|last| !tenant.may_use_token_of(last))
    }
}

impl Slot {
    /// Returns the token that was issued for the settings and the host of `tenant`, if it is fresh.
    pub(super) fn fresh(&self, now: Time, tenant: &Tenant) -> Option<Arc<SecretString>> {
        let known = self.known.lock();
        known.of(tenant).filter(|access| now < access.until).map(|access| access.secret.clone())
    }

    /// Returns why no refresh may be tried yet, if the last one with these settings and secrets failed recently.
    pub(super) fn refused(&self, now: Time, tenant: &Tenant, secrets: [u8; 32]) -> Option<NoToken> {
        let known = self.known.lock();
        let failed = known.failure_of(tenant).filter(|failed| now < failed.again_at && failed.secrets == secrets);
        failed.map(|failed| failed.no_token(now))
    }
}

impl Known {
    /// Returns the token that was issued for the settings and the host of `tenant`, fresh or not.
    pub(super) fn of(&self, tenant: &Tenant) -> Option<&Access> {
        self.access.iter().chain(&self.former).find(|access| tenant.may_use_token_of(&access.issued_for))
    }

    /// Returns the failure of the last refresh, if it was one for the settings of `tenant`.
    pub(super) fn failure_of(&self, tenant: &Tenant) -> Option<&Failed> {
        self.failed.as_ref().filter(|failed| tenant.may_use_token_of(&failed.asked_for))
    }

    /// Puts a new token into use. If the one before was issued for other settings, it stays for requests with these.
    pub(super) fn put(&mut self, now: Time, access: Access) {
        let is_for_others = |before: &mut Access| !access.issued_for.may_use_token_of(&before.issued_for);
        if let Some(before) = self.access.take_if(is_for_others) {
            self.former = Some(before);
        }
        self.former.take_if(|former| now >= former.until);
        self.access = Some(access);
    }

    /// Forgets `stale`, which the vendor has refused, unless too many were forgotten lately: then the token is hardly the
    /// reason. Returns whether the next request may get another token.
    pub(super) fn forget(&mut self, now: Time, stale: &Arc<SecretString>) -> bool {
        let is_stale = |access: &Access| Arc::ptr_eq(&access.secret, stale);
        let mut places = [&mut self.access, &mut self.former].into_iter();
        let Some(place) = places.find(|place| place.as_ref().is_some_and(is_stale)) else { return true };
        let (since, count) = self.refused;
        let (since, count) = if now.since(since) < SPELL { (since, count) } else { (now, 0) };
        if count >= FORGOTTEN {
            return false;
        }
        *place = None;
        self.refused = (since, count + 1);
        true
    }

    pub(super) fn is_worth_nothing(&self, now: Time) -> bool {
        self.unkept.is_none() && self.access.iter().chain(&self.former).all(|access| now >= access.until)
    }
}
