//! Stores the new refresh token of an account with the keeper, and goes on until it is stored.
//!
//! The vendor has replaced the previous refresh token, so a new one that is stored nowhere must not wait for the next
//! request of its account: the process may end before there is one, and another process may refresh with the previous
//! one. A task repeats the attempt until it succeeds, and a shutdown makes further attempts within its grace.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::keeper::call;
use super::slot::{Refresher, Slot};
use crate::BoxError;
use crate::transport::tokens::{TokenKeeper, TokenOwner};

/// Attempts to store a new refresh token before the access token that came with it is used.
const KEPT: u32 = 3;
const KEEP_AGAIN: Duration = Duration::from_millis(200);
/// Time after which the task tries again to store an unstored refresh token.
const UNKEPT: Duration = Duration::from_secs(10);
/// The same in a shutdown, whose grace may be short.
const UNKEPT_AT_THE_END: Duration = Duration::from_millis(500);
/// How long a process reserves the refresh: long enough for all token requests and for the calls of the keeper. If the
/// process dies in the middle, others wait this long.
pub(super) const RESERVED: Duration = Duration::from_secs(90);

/// The refresh token of an account, in the hands of whoever has locked its refresher, and the keeper to store it with.
pub(super) struct Storing<'a> {
    pub(super) slot: &'a Arc<Slot>,
    pub(super) refresher: &'a mut Refresher,
    pub(super) owner: &'a TokenOwner,
    pub(super) keeper: &'a Arc<dyn TokenKeeper>,
}

impl Storing<'_> {
    /// Stores the held refresh token if it is not stored yet, with retries. A call that timed out is not repeated here:
    /// requests wait for the access token.
    pub(super) async fn keep(&mut self) {
        let Some(held) = self.refresher.held.clone().filter(|_| self.refresher.unkept) else { return };
        let mut tried = 1;
        loop {
            let kept = call(async { self.keeper.keep(self.owner, &held).await }).await;
            match kept {
                Ok(()) => {
                    self.refresher.unkept = false;
                    self.slot.known.lock().unkept = None;
                    return;
                }
                Err(error) if tried == KEPT || error.is_timeout() => {
                    let why = format!("the new refresh token could not be kept: {error}");
                    tracing::error!(
                        vendor = &*self.owner.vendor, account = &*self.owner.account, %error,
                        "a new refresh token could not be kept; it is lost if the process ends before it can"
                    );
                    self.slot.known.lock().unkept = Some(why.into());
                    return;
                }
                Err(_) => tokio::time::sleep(KEEP_AGAIN * tried).await,
            }
            tried += 1;
        }
    }

    /// Lets other processes refresh, unless the new token is not stored yet: they would use the previous one.
    pub(super) async fn give_back(&self) {
        if self.refresher.unkept || !self.refresher.rotates() {
            return;
        }
        let code = async {
            self.keeper.give_back(self.owner).await;
            Ok::<(), BoxError>(())
        };
        if let Err(error) = call(code).await {
            tracing::warn!(
                vendor = &*self.owner.vendor, account = &*self.owner.account, %error,
                "the reservation of a refresh was not given back; other processes wait until it ends"
            );
        }
    }

    /// Reserves the refresh for longer, so that no other process uses the previous token.
    async fn renew(&self) {
        if !self.refresher.rotates() {
            return;
        }
        let (vendor, account) = (&*self.owner.vendor, &*self.owner.account);
        match call(async { self.keeper.reserve(self.owner, RESERVED).await }).await {
            Ok(None) => {}
            Ok(Some(_)) => tracing::warn!(
                vendor,
                account,
                "another process refreshes the token, perhaps with the refresh token before the one that is not kept yet"
            ),
            Err(error) => tracing::warn!(
                vendor, account, %error,
                "the reservation of a refresh was not renewed; another process may use the previous refresh token"
            ),
        }
    }

    /// Begins the task that repeats the attempt, unless the token is stored or the task of an earlier failure goes on.
    pub(super) fn repeat(&mut self) {
        let goes_on = self.refresher.repeated_by.as_ref().is_some_and(|task| !task.is_finished());
        if goes_on || !self.refresher.unkept {
            return;
        }
        let repeated = repeated(Arc::downgrade(self.slot), self.owner.clone(), Arc::downgrade(self.keeper));
        #[expect(clippy::disallowed_methods, reason = "the task ends with the tokens of its client, at its next look")]
        let task = tokio::spawn(repeated);
        self.refresher.repeated_by = Some(task.abort_handle());
    }
}

/// Stores the refresh token of an account as soon as the keeper takes it. Ends when the token is stored, by whomever, or
/// was replaced by a stored one, and when the client is gone.
async fn repeated(slot: Weak<Slot>, owner: TokenOwner, keeper: Weak<dyn TokenKeeper>) {
    let mut is_due = false;
    loop {
        if let (Some(slot), Some(keeper)) = (slot.upgrade(), keeper.upgrade()) {
            let mut refresher = slot.refresher.lock().await;
            let mut storing = Storing { slot: &slot, refresher: &mut refresher, owner: &owner, keeper: &keeper };
            if is_due && storing.refresher.unkept {
                storing.keep().await;
                storing.give_back().await;
            }
            if !storing.refresher.unkept {
                // While the refresher is locked: a refresh that fails to store its token later begins another task.
                storing.refresher.repeated_by = None;
                return;
            }
            storing.renew().await;
        } else {
            return;
        }
        tokio::time::sleep(UNKEPT).await;
        is_due = true;
    }
}

/// Waits for the refresh of an account that is in progress, and stores a refresh token that is not stored yet, with
/// attempts until the caller gives up.
pub(super) async fn settle(slot: Arc<Slot>, owner: TokenOwner, keeper: Option<Arc<dyn TokenKeeper>>) {
    loop {
        {
            let mut refresher = slot.refresher.lock().await;
            let Some(keeper) = keeper.as_ref().filter(|_| refresher.unkept) else { return };
            let mut storing = Storing { slot: &slot, refresher: &mut refresher, owner: &owner, keeper };
            storing.keep().await;
            storing.give_back().await;
            if !storing.refresher.unkept {
                return;
            }
        }
        tokio::time::sleep(UNKEPT_AT_THE_END).await;
    }
}
