//! Stores refresh tokens in the client's store.

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::OutboxState;
use crate::store::{Id, millis_of, tokens};
use crate::transport::{KeptToken, TokenKeeper, TokenOwner};
use crate::{BoxError, BoxFuture};

/// The keeper that the client uses unless the program sets its own.
pub(crate) struct StoreTokens(pub(crate) Arc<OutboxState>);

/// The content of a row before sealing.
#[derive(Serialize, Deserialize)]
struct Row<T> {
    token: T,
    granted: String,
}

const NO_KEY: &str = "the store has no key to seal refresh tokens with: `Store::seal_key`";

fn whose(owner: &TokenOwner) -> tokens::Whose {
    [&owner.vendor, &owner.environment, &owner.account].map(|text| text.to_string())
}

/// The id to which a sealed token is bound, so that it does not open in another account's row.
fn id_of(owner: &TokenOwner) -> Id {
    let TokenOwner { vendor, environment, account } = owner;
    // No name contains a control character, so the newlines separate unambiguously.
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("token\n{vendor}\n{environment}\n{account}").as_bytes())
}

impl TokenKeeper for StoreTokens {
    fn keep<'a>(&'a self, owner: &'a TokenOwner, token: &'a KeptToken) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let store = &self.0.store;
            let row = Row { token: token.refresh_token().expose_secret(), granted: token.granted().to_owned() };
            let sealed = store.seal(&id_of(owner), serde_json::to_vec(&row)?).ok_or(NO_KEY)?;
            Ok(store.write((whose(owner), sealed), tokens::keep).await?)
        })
    }

    fn load<'a>(&'a self, owner: &'a TokenOwner) -> BoxFuture<'a, Result<Option<KeptToken>, BoxError>> {
        Box::pin(async move {
            let store = &self.0.store;
            let id = id_of(owner);
            // Fail before a refresh begins whose new token could not be sealed.
            store.seal(&id, Vec::new()).ok_or(NO_KEY)?;
            let Some(sealed) = store.read(whose(owner), tokens::load).await? else { return Ok(None) };
            let opened = store.unseal(&id, &sealed).ok_or("no key of the store opens the kept refresh token")?;
            let row: Row<String> = serde_json::from_slice(&opened)?;
            Ok(Some(KeptToken::new(SecretString::from(row.token), row.granted)))
        })
    }

    fn reserve<'a>(
        &'a self,
        owner: &'a TokenOwner,
        length: Duration,
    ) -> BoxFuture<'a, Result<Option<Duration>, BoxError>> {
        Box::pin(async move {
            let store = &self.0.store;
            let left = store.write((whose(owner), store.owner, millis_of(length)), tokens::reserve).await?;
            Ok(left.map(|left| Duration::from_millis(left.unsigned_abs())))
        })
    }

    fn give_back<'a>(&'a self, owner: &'a TokenOwner) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let store = &self.0.store;
            // If this fails, the reservation ends by timeout.
            let _ = store.write((whose(owner), store.owner), tokens::give_back).await;
        })
    }
}
