//! Replaces the module when the feature `oauth` is off.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use super::Transport;
use super::resolutions::in_words;
use super::tokens::{NoToken, OAuthSecrets, TokenKeeper, TokenState, TokenView};
use crate::clock::Clock;
use crate::config::Tenant;

pub(crate) const COMPILED: bool = false;

#[derive(Debug, Default)]
pub(crate) struct Tokens;

impl Tokens {
    pub(crate) fn begin(&mut self, _: Arc<dyn Transport>, _: Clock, _: Option<Arc<dyn TokenKeeper>>) {}

    pub(crate) fn keep_by(&mut self, _: Arc<dyn TokenKeeper>) {}

    pub(crate) fn fresh(&self, _: &Tenant) -> Option<Arc<SecretString>> {
        None
    }

    pub(crate) async fn get(&self, _: &Tenant, secrets: OAuthSecrets) -> Result<Arc<SecretString>, NoToken> {
        let OAuthSecrets { client_id: _, client_secret: _, refresh_token: _, private_key: _ } = secrets;
        Err(in_words("OAuth is not compiled in; switch the feature `oauth` on").into())
    }

    pub(crate) fn refused(&self, _: &Tenant, _: &Arc<SecretString>) -> bool {
        true
    }

    pub(crate) fn view(&self, _: &Tenant) -> TokenView {
        TokenView { state: TokenState::Unasked, fresh_until: None, next_try: None, problem: None }
    }

    pub(crate) async fn settle(&self, _: Duration) {}
}
