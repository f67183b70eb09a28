//! One refresh of an access token: the choice of the refresh token, the retries, and the storing of a new refresh
//! token. `slot.rs` allows one refresh of an account at a time.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use oauth2::TokenResponse as _;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OwnedMutexGuard;

use super::exchange::{FIRST_PAUSE, TokenRequest};
use super::issued::{Issued, Trouble};
use super::keeper::{Fault, call};
use super::slot::{Access, Failed, Refresher, Slot};
use super::unkept::{RESERVED, Storing};
use crate::clock::{Clock, Moment};
use crate::config::{OAuth, OAuthGrant, Tenant};
use crate::transport::Transport;
use crate::transport::tokens::{KeptToken, NoToken, OAuthSecrets, TokenKeeper, TokenOwner, margin};

/// Requests to the token URL within one refresh, if it does not respond. The vendor may have replaced the refresh
/// token and failed before it returned the new one. Most vendors accept the previous token for some time, so the retry
/// comes soon.
const ASKED: u32 = 3;
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// The age of a reservation from which on its refresh token is not sent any more: another process may have replaced the
/// token by the time at which the request leaves, and a vendor that gets a replaced token may revoke all tokens of the
/// grant. [`ASKED`] requests that get no response begin earlier, and the answer of the last is kept within [`RESERVED`].
const SENDABLE: Duration = Duration::from_secs(60);
/// Lifetime assumed for a token without a stated one; a 401 ends it at once.
const LIFE: Duration = Duration::from_secs(3600);
const LONGEST_LIFE: Duration = Duration::from_secs(366 * 86_400);
/// The longest backoff after failed refreshes; requests until its end get the same error. The first is [`FIRST_PAUSE`].
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const RECONNECT_PAUSE: Duration = Duration::from_secs(15 * 60);
/// Interval at which a waiting process checks whether another one has ended its refresh.
const LOOK: Duration = Duration::from_millis(100);

/// One refresh. It owns all its inputs, so that it can outlive its caller.
pub(super) struct Refresh {
    pub(super) slot: Arc<Slot>,
    pub(super) refresher: OwnedMutexGuard<Refresher>,
    pub(super) owner: TokenOwner,
    pub(super) tenant: Arc<Tenant>,
    pub(super) oauth: Arc<OAuth>,
    pub(super) secrets: OAuthSecrets,
    pub(super) digest: [u8; 32],
    pub(super) transport: Arc<dyn Transport>,
    pub(super) keeper: Option<Arc<dyn TokenKeeper>>,
    pub(super) clock: Clock,
}

impl Refresh {
    pub(super) async fn run(mut self) -> Result<Arc<SecretString>, NoToken> {
        self.refresher.begin(&self.tenant);
        if self.refresher.unkept {
            self.keep().await;
            self.give_back().await;
        }
        match self.obtain().await {
            Ok(issued) => Ok(self.succeeded(&issued)),
            Err(trouble) => Err(self.failed(&trouble)),
        }
    }

    async fn obtain(&mut self) -> Result<Issued, Trouble> {
        if self.oauth.grant != OAuthGrant::RefreshToken {
            return self.ask(None).await;
        }
        let Some(first) = self.secrets.refresh_token.clone() else {
            return Err(Trouble::Refused("there is no refresh token".to_owned()));
        };
        let granted = hex(&[first.expose_secret()]);
        let reserved = self.reserve().await?;
        let issued = self.obtain_alone(&first, granted, reserved).await;
        self.give_back().await;
        issued
    }

    /// Returns the keeper if refresh tokens may be used only once.
    fn keeper_of_one_use(&self) -> Option<&Arc<dyn TokenKeeper>> {
        self.keeper.as_ref().filter(|_| self.oauth.rotates)
    }

    /// What stores the account's refresh token; `None` without a keeper.
    fn storing(&mut self) -> Option<Storing<'_>> {
        let keeper = self.keeper.as_ref()?;
        Some(Storing { slot: &self.slot, refresher: &mut self.refresher, owner: &self.owner, keeper })
    }

    async fn give_back(&mut self) {
        if let Some(storing) = self.storing() {
            storing.give_back().await;
        }
    }

    /// Waits until no other process refreshes this token. Returns when the reservation was asked for, if the token may be
    /// used only once.
    async fn reserve(&self) -> Result<Option<Moment>, Trouble> {
        let Some(keeper) = self.keeper_of_one_use() else { return Ok(None) };
        let unknown =
            |error: Fault| Trouble::Later(format!("it is not known whether another process refreshes: {error}"), None);
        let begun = self.clock.now();
        loop {
            // By both clocks: the machine may be suspended, or the process stopped, from here on.
            let asked = self.clock.moment();
            let taken = call(async { keeper.reserve(&self.owner, RESERVED).await }).await.map_err(unknown)?;
            let Some(left) = taken else { return Ok(Some(asked)) };
            if self.clock.now().since(begun) > RESERVED {
                return Err(Trouble::Later("another process refreshes the token".to_owned(), Some(left)));
            }
            tokio::time::sleep(LOOK.min(left.max(Duration::from_millis(1)))).await;
        }
    }

    /// Refreshes while no other process uses the refresh token, which was reserved at `reserved`.
    async fn obtain_alone(
        &mut self,
        first: &SecretString,
        granted: String,
        reserved: Option<Moment>,
    ) -> Result<Issued, Trouble> {
        let held = self.newest(first, &granted).await?;
        let issued = match self.ask(Some((held.refresh_token(), reserved))).await {
            // Another process may have replaced the token.
            Err(Trouble::Reconnect(why)) => match self.loaded(&granted).await? {
                Some(newer) if !same(newer.refresh_token(), held.refresh_token()) => {
                    self.refresher.held = Some(newer.clone());
                    self.ask(Some((newer.refresh_token(), reserved))).await
                }
                _ => Err(Trouble::Reconnect(why)),
            },
            done => done,
        }?;
        if let Some(new) = issued.refresh_token()
            && self.refresher.held.as_ref().is_none_or(|held| held.refresh_token().expose_secret() != new.secret())
        {
            // The vendor no longer accepts the previous token, or not for long: the new one is stored before anything
            // else.
            self.refresher.held = Some(KeptToken::new(new.secret().clone(), granted));
            self.refresher.unkept = true;
            self.keep().await;
        }
        Ok(issued)
    }

    /// Returns the refresh token to use: the newest that descends from the one that the user granted.
    async fn newest(&mut self, first: &SecretString, granted: &str) -> Result<KeptToken, Trouble> {
        // Another process may have replaced the held token, unless it is newer than the one that the keeper has.
        if self.refresher.held.is_some()
            && self.oauth.rotates
            && !self.refresher.unkept
            && let Some(newer) = self.loaded(granted).await?
        {
            self.refresher.held = Some(newer);
        }
        if let Some(held) = &self.refresher.held {
            let is_of_it = held.granted() == granted;
            // The second case: a keeper wrote the newest token to the place to which the configuration refers.
            if is_of_it || same(held.refresh_token(), first) {
                return Ok(held.clone());
            }
        }
        if self.keeper.is_none() && self.oauth.rotates {
            return Err(Trouble::Refused(
                "the vendor may replace the refresh token, and nothing keeps the new one: give the client a store with a seal \
                 key, or a `token_keeper`; or write `rotates = false` into the vendor's `oauth` if it never does"
                    .to_owned(),
            ));
        }
        // A token that was held until now descends from another grant and is worth nothing, kept or not.
        let held = self.loaded(granted).await?.unwrap_or_else(|| KeptToken::new(first.clone(), granted));
        self.refresher.unkept = false;
        self.slot.known.lock().unkept = None;
        self.refresher.held = Some(held.clone());
        Ok(held)
    }

    /// Loads the keeper's token, if it descends from the token with the hash `granted`.
    async fn loaded(&self, granted: &str) -> Result<Option<KeptToken>, Trouble> {
        let Some(keeper) = &self.keeper else { return Ok(None) };
        let unread = |error: Fault| Trouble::Later(format!("the kept refresh token cannot be read: {error}"), None);
        let kept = call(async { keeper.load(&self.owner).await }).await.map_err(unread)?;
        Ok(kept.filter(|kept| kept.granted() == granted))
    }

    /// Requests a token, and retries if no response came. A refresh token comes with the moment at which it was reserved.
    async fn ask(&self, refresh_token: Option<(&SecretString, Option<Moment>)>) -> Result<Issued, Trouble> {
        let Refresh { oauth, tenant, secrets, transport, clock, .. } = self;
        let request = TokenRequest { oauth, tenant, secrets, transport, clock: *clock, stated: Mutex::default() };
        let (refresh_token, reserved) = refresh_token.unzip();
        let mut asked = 1;
        loop {
            let is_late = |reserved: Moment| self.clock.moment().since(reserved) >= SENDABLE;
            if reserved.flatten().is_some_and(is_late) {
                let why = "the refresh took so long, perhaps because the process was stopped, that another process may have \
                           replaced the refresh token; the next refresh looks for it";
                return Err(Trouble::Later(why.to_owned(), None));
            }
            match request.ask(refresh_token).await {
                Err(Trouble::Later(_, None)) if asked < ASKED => {
                    tokio::time::sleep(ASK_AGAIN * asked).await;
                    asked += 1;
                }
                done => return done,
            }
        }
    }

    /// Stores the held refresh token with the keeper. If that fails, a task goes on with it, and requests use the access
    /// token meanwhile.
    async fn keep(&mut self) {
        if let Some(mut storing) = self.storing() {
            storing.keep().await;
            storing.repeat();
            return;
        }
        tracing::warn!(
            vendor = &*self.owner.vendor,
            account = &*self.owner.account,
            "the vendor replaced a refresh token though its entry says that it does not, and nothing keeps the new one"
        );
        self.refresher.unkept = false;
    }

    fn succeeded(&mut self, issued: &Issued) -> Arc<SecretString> {
        self.refresher.failures = 0;
        let life = issued.expires_in().unwrap_or(LIFE).clamp(Duration::from_secs(1), LONGEST_LIFE);
        let now = self.clock.now();
        let until = now + (life - margin(life));
        let secret = Arc::new(SecretString::from(issued.access_token().secret().as_str()));
        let mut known = self.slot.known.lock();
        known.put(now, Access { secret: secret.clone(), issued_for: self.tenant.clone(), until });
        known.failed = None;
        secret
    }

    fn failed(&mut self, trouble: &Trouble) -> NoToken {
        let failures = self.refresher.failures;
        self.refresher.failures = failures.saturating_add(1);
        let backoff = FIRST_PAUSE.saturating_mul(1 << failures.min(6)).min(LONGEST_PAUSE);
        let (why, pause) = match trouble {
            Trouble::Later(why, wait) => {
                (format!("the access token could not be refreshed: {why}"), wait.unwrap_or_default().max(backoff))
            }
            Trouble::Refused(why) => (format!("no access token: {why}"), LONGEST_PAUSE),
            Trouble::Reconnect(why) => {
                let mend = match self.oauth.grant {
                    OAuthGrant::RefreshToken => {
                        "the tenant's user must connect again; put the new refresh token where the tenant's `oauth` refers to"
                    }
                    _ => "the vendor must allow the client again",
                };
                (format!("the vendor takes the grant no more: {why}; {mend}"), RECONNECT_PAUSE)
            }
        };
        let why: Arc<str> = why.into();
        let needs_reconnect = matches!(trouble, Trouble::Reconnect(_));
        let (vendor, account) = (&*self.owner.vendor, &*self.owner.account);
        tracing::warn!(vendor, account, needs_reconnect, why = &*why, "no access token");
        let (now, may_pass) = (self.clock.now(), matches!(trouble, Trouble::Later(..)));
        let (again_at, secrets, asked_for) = (now + pause, self.digest, self.tenant.clone());
        let failed = Failed { why, needs_reconnect, may_pass, again_at, secrets, asked_for };
        let no_token = failed.no_token(now);
        self.slot.known.lock().failed = Some(failed);
        no_token
    }
}

fn same(a: &SecretString, b: &SecretString) -> bool {
    a.expose_secret() == b.expose_secret()
}

/// Hashes secrets, to recognise them without holding them.
pub(super) fn digest(secrets: &OAuthSecrets) -> [u8; 32] {
    let OAuthSecrets { client_id, client_secret, refresh_token, private_key } = secrets;
    let all = [Some(client_id), client_secret.as_ref(), refresh_token.as_ref(), private_key.as_ref()];
    hash(&all.map(|secret| secret.map_or("", |secret| secret.expose_secret())))
}

fn hash(parts: &[&str]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part.as_bytes());
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

fn hex(parts: &[&str]) -> String {
    hash(parts).iter().map(|byte| format!("{byte:02x}")).collect()
}
