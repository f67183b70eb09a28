//! Writes the dead letters of plain sends into the same table as those of jobs.

use std::sync::Arc;

use super::stored::Stored;
use super::{OutboxState, sealing};
use crate::BoxError;
use crate::BoxFuture;
use crate::config::AtRest;
use crate::dead_letter::{DeadLetter, DeadLetterSink, LetterRequest};
use crate::store::dead::{self, NewDead};
use crate::store::{Id, LaneTier};

/// A sink that keeps letters in the client's store.
pub(crate) struct StoreSink(pub(crate) Arc<OutboxState>);

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
            let text = sealing::letter(store, &id, letter, seals);
            let dead = NewDead { id, lane, reason, letter: text, request, keep_result: false, reply: None };
            Ok(store.write(dead, dead::keep).await?)
        })
    }
}
