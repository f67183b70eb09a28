//! Access tokens by OAuth 2.0: requested when needed, shared while fresh, with one refresh at a time per account.
//!
//! A refresh runs in its own task, so that it survives its caller. Otherwise a cancelled caller would discard the
//! response, and with it the refresh token that replaces the one that the vendor has just made void.
//!
//! An account has one token. It is used only with the settings and the host for which it was issued
//! (`Tenant::may_use_token_of`); the configuration makes sure that all tenants of an account have the same.
//!
//! | file | what it does |
//! |---|---|
//! | `slot.rs` | decides whether a token is fresh, or a refresh is needed or under way: one at a time for each account |
//! | `refresh.rs` | one refresh: its retries, and when the new token expires |
//! | `unkept.rs` | stores a new refresh token, and goes on until it is stored |
//! | `keeper.rs` | one call of the program's `TokenKeeper`, in a bounded time |
//! | `exchange.rs`, `jwt.rs` | the request to the token URL, and the assertion that it may carry |
//! | `issued.rs` | reads the response |
//!
//! A response 401 of the vendor asks for a refresh too: `retry/mod.rs` decides that.

mod exchange;
mod issued;
mod jwt;
mod keeper;
mod refresh;
mod slot;
#[cfg(all(test, feature = "testing"))]
mod tests;
mod unkept;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::task::JoinSet;

use self::refresh::Refresh;
use self::slot::Slot;
use super::Transport;
use super::resolutions::in_words;
use super::tokens::{NoToken, OAuthSecrets, TokenKeeper, TokenOwner, TokenState, TokenView};
use crate::clock::{Clock, Time};
use crate::config::Tenant;

/// Whether the feature `oauth` is compiled in.
pub(crate) const COMPILED: bool = true;
/// Number of accounts above which accounts without state worth keeping are removed.
const MANY: usize = 4096;
/// How long the status calls a token URL failing after it could have been asked again, if no request has asked it since.
/// A host that no request tries counts as unreachable for as long.
const UNTRIED: Duration = Duration::from_secs(120);
const PAST: &str = "the tenant's `oauth` or host was changed while the request waited; send it again";

/// The access tokens of all accounts.
#[derive(Default)]
pub(crate) struct Tokens {
    slots: Mutex<HashMap<TokenOwner, Arc<Slot>>>,
    keeper: Option<Arc<dyn TokenKeeper>>,
    way: Option<(Arc<dyn Transport>, Clock)>,
}

impl Tokens {
    /// Sets the transport of token requests, and the keeper of refresh tokens unless the program has set its own.
    pub(crate) fn begin(&mut self, transport: Arc<dyn Transport>, clock: Clock, keeper: Option<Arc<dyn TokenKeeper>>) {
        self.way = Some((transport, clock));
        self.keeper = self.keeper.take().or(keeper);
    }

    pub(crate) fn keep_by(&mut self, keeper: Arc<dyn TokenKeeper>) {
        self.keeper = Some(keeper);
    }

    /// Returns the access token of `tenant` if a fresh one is cached.
    pub(crate) fn fresh(&self, tenant: &Tenant) -> Option<Arc<SecretString>> {
        let (_, clock) = self.way.as_ref()?;
        let slot = self.slots.lock().get(&TokenOwner::of(tenant)).cloned()?;
        slot.fresh(clock.now(), tenant)
    }

    /// Returns the access token of `tenant`, requesting it with `secrets` unless another caller has done so meanwhile.
    pub(crate) async fn get(&self, tenant: &Tenant, secrets: OAuthSecrets) -> Result<Arc<SecretString>, NoToken> {
        let (Some(oauth), Some((transport, clock))) = (tenant.oauth.clone(), self.way.clone()) else {
            return Err(in_words("OAuth is not set up for this tenant").into());
        };
        let owner = TokenOwner::of(tenant);
        let slot = self.slot(&owner, clock.now());
        // Callers that arrive during a refresh wait for it here. One with other settings then refreshes for itself.
        let refresher = slot.refresher.clone().lock_owned().await;
        let now = clock.now();
        if let Some(secret) = slot.fresh(now, tenant) {
            return Ok(secret);
        }
        let digest = refresh::digest(&secrets);
        if let Some(no_token) = slot.refused(now, tenant, digest) {
            return Err(no_token);
        }
        if refresher.is_past(tenant) {
            return Err(in_words(PAST).into());
        }
        let keeper = self.keeper.clone();
        let tenant = Arc::new(tenant.clone());
        let refresh = Refresh { slot, refresher, owner, tenant, oauth, secrets, digest, transport, keeper, clock };
        #[expect(clippy::disallowed_methods, reason = "a refresh outlives its caller; it ends within its timeouts")]
        let refresh = tokio::spawn(refresh.run());
        match refresh.await {
            Ok(done) => done,
            Err(_) => Err(in_words("the refresh of the access token was cut short").into()),
        }
    }

    /// Forgets `stale`, which the vendor has refused. Returns whether the next request may get another token.
    pub(crate) fn refused(&self, tenant: &Tenant, stale: &Arc<SecretString>) -> bool {
        let Some((_, clock)) = &self.way else { return true };
        let slot = self.slots.lock().get(&TokenOwner::of(tenant)).cloned();
        slot.is_none_or(|slot| slot.known.lock().forget(clock.now(), stale))
    }

    /// Returns the state of `tenant`'s access token.
    pub(crate) fn view(&self, tenant: &Tenant) -> TokenView {
        let unasked = TokenView { state: TokenState::Unasked, fresh_until: None, next_try: None, problem: None };
        let slot = self.slots.lock().get(&TokenOwner::of(tenant)).cloned();
        let (Some(slot), Some((_, clock))) = (slot, &self.way) else { return unasked };
        let (known, now) = (slot.known.lock(), clock.now());
        let access = known.of(tenant).filter(|access| now < access.until);
        match (access, known.failure_of(tenant)) {
            (Some(access), _) => TokenView {
                state: TokenState::Fresh,
                fresh_until: Some(access.until),
                problem: known.unkept.clone(),
                ..unasked
            },
            (None, Some(failed)) if !failed.needs_reconnect && now.since(failed.again_at) >= UNTRIED => {
                TokenView { problem: Some(failed.why.clone()), ..unasked }
            }
            (None, Some(failed)) => TokenView {
                state: if failed.needs_reconnect { TokenState::NeedsReconnect } else { TokenState::Failing },
                next_try: Some(failed.again_at),
                problem: Some(failed.why.clone()),
                ..unasked
            },
            (None, None) => unasked,
        }
    }

    /// Waits for refreshes in progress, and for the storing of new refresh tokens that are not stored yet: they would be
    /// lost with the process. One account whose keeper or token URL hangs delays no other.
    pub(crate) async fn settle(&self, grace: Duration) {
        let slots: Vec<_> = self.slots.lock().iter().map(|(owner, slot)| (owner.clone(), slot.clone())).collect();
        let mut settling = JoinSet::new();
        for (owner, slot) in slots {
            let is_settled = slot.refresher.try_lock().is_ok_and(|refresher| !refresher.unkept);
            if !is_settled {
                settling.spawn(unkept::settle(slot, owner, self.keeper.clone()));
            }
        }
        let settled = async { while settling.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(grace, settled).await;
    }

    fn slot(&self, owner: &TokenOwner, now: Time) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        if slots.len() >= MANY && slots.len() == slots.capacity() {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || !slot.known.lock().is_worth_nothing(now));
        }
        slots.entry(owner.clone()).or_default().clone()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("accounts", &self.slots.lock().len()).finish_non_exhaustive()
    }
}
