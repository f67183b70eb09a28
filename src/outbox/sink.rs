//! Writes the dead letters of plain sends into the same table as those of jobs.

use std::sync::Arc;

use super::stored::Stored;
use super::{OutboxState, sealing};
use crate::BoxError;
use crate::BoxFuture;
use crate::config::AtRest;
use crate::dead_letter::{DeadLetter, DeadLetterSink, LetterRequest};
use crate::error::Error;
use crate::store::dead::{self, NewDead};
use crate::store::{Id, LaneTier, clock, millis_of};

/// A sink that keeps letters in the client's store.
pub(crate) struct StoreSink(pub(crate) Arc<OutboxState>);

impl StoreSink {
    /// When the vendor may first have acted, by the store's clock: a little too early rather than too late, because the
    /// process's clocks are read after it.
    async fn may_have_acted_at(&self, letter: &DeadLetter) -> Result<Option<i64>, Error> {
        let Some(since) = letter.in_doubt_since else { return Ok(None) };
        let now = self.0.store.read((), clock::now).await?;
        Ok(Some(now.saturating_sub(millis_of(self.0.clock.moment().since(since)))))
    }
}

impl DeadLetterSink for StoreSink {
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let id = Id::try_parse(&letter.id)?;
            let stored = matches!(letter.request, LetterRequest::Whole { .. }).then(|| Stored {
                request: letter.request.clone(),
                endpoint: letter.endpoint.clone().filter(|endpoint| !endpoint.starts_with('/')),
                cost: None,
                costs: letter.costs.clone(),
                bytes: None,
                attempt_timeout_ms: None,
                resend: None,
                key: letter.idempotency_key.clone(),
                metadata: letter.metadata.clone(),
                reply: false,
                reply_to: None,
                // A vendor whose entry states `at_rest` has no letters with whole requests.
                redacted: false,
                replaced: letter.replaced.clone(),
            });
            let lane = LaneTier {
                tenant: letter.tenant.clone(),
                vendor: letter.vendor.clone(),
                tier: i64::from(letter.priority.rank()),
            };
            let store = &self.0.store;
            let seals = letter.at_rest == AtRest::Sealed;
            let request = stored.map(|stored| serde_json::to_vec(&stored)).transpose()?;
            // If there is no key to seal the request with, nothing of the request is written.
            let request = request.and_then(|request| if seals { store.seal(&id, request) } else { Some(request) });
            let reason = letter.reason.as_str().to_owned();
            let may_have_acted_at = self.may_have_acted_at(letter).await?;
            let text = sealing::letter_in_doubt(store, &id, (letter, may_have_acted_at), seals);
            let dead = NewDead { id, lane, reason, letter: text, request, keep_result: false, reply: None };
            Ok(store.write(dead, dead::keep).await?)
        })
    }
}
