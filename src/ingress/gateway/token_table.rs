//! The digests of the tokens of `[[callers]]`, and how the tokens are read.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use secrecy::ExposeSecret as _;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::clock::Time;
use crate::config::{Caller, Config, CredentialRef};
use crate::core::Core;

/// How long one token may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most tokens that are read at once: a vault may limit requests.
const AT_ONCE: usize = 64;
/// A token that takes longer than this no longer counts among those. Otherwise the tokens behind a vault that hangs
/// would hold up all others, and a thousand tokens would take 16 times `PATIENCE`. With it they take less than 10 s.
const IN_PLACE: Duration = Duration::from_millis(300);
/// Least length of a token in bytes. A shorter one is taken for an empty variable or a placeholder, and is ignored.
pub(super) const SHORTEST: usize = 16;

/// What was read last.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) version: u64,
    pub(super) read_at: Time,
    /// The callers of the configuration of that version, each with the digest of its token if there is one.
    pub(super) entries: Vec<(Option<[u8; 32]>, Arc<Caller>)>,
}

impl Table {
    /// Finds the caller whose token has this digest. Compares it with every known digest, each in constant time, so
    /// that the time taken does not reveal which one matched.
    pub(super) fn find(&self, config: &Config, wanted: &[u8; 32]) -> Option<Arc<Caller>> {
        let mut found = None;
        for (known, caller) in &self.entries {
            if known.as_ref().is_some_and(|known| verify_slices_are_equal(known, wanted).is_ok()) {
                found = Some(caller);
            }
        }
        let found = found?;
        if self.version == config.version() {
            return Some(found.clone());
        }
        // The configuration has changed since: it may have removed the caller, or changed its reference or its rights.
        config.callers().iter().rfind(|caller| caller.token == found.token).cloned()
    }

    /// Whether the tokens of all callers of this configuration have been read.
    pub(super) fn covers(&self, config: &Config) -> bool {
        if self.version == config.version() {
            return true;
        }
        let read: HashSet<&CredentialRef> = self.entries.iter().map(|(_, caller)| &caller.token).collect();
        config.callers().iter().all(|caller| read.contains(&caller.token))
    }

    /// The digest of the token behind this reference.
    fn digest(&self, reference: &CredentialRef) -> Option<[u8; 32]> {
        self.entries.iter().filter(|(_, caller)| caller.token == *reference).find_map(|(known, _)| *known)
    }
}

pub(crate) fn digest_of(token: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, token).as_ref());
    out
}

/// Reads the tokens of all callers. Takes less than 10 s for a thousand callers, whatever their resolvers do.
pub(super) async fn read(core: &Arc<Core>, before: Option<&Table>) -> Table {
    let config = core.registry.config.load_full();
    let callers = config.callers();
    let mut results = vec![Err("its resolver panicked".to_owned()); callers.len()];
    let (mut tasks, places) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    for (at, caller) in callers.iter().cloned().enumerate() {
        let place = places.clone().acquire_owned().await;
        let core = core.clone();
        tasks.spawn(async move {
            let mut reading = pin!(read_one(&core, &caller));
            let soon = tokio::time::timeout(IN_PLACE, reading.as_mut()).await;
            drop(place);
            let result = match soon {
                Ok(result) => result,
                Err(_) => reading.await,
            };
            (at, result)
        });
    }
    while let Some(ended) = tasks.join_next().await {
        if let Ok((at, result)) = ended {
            results[at] = result;
        }
    }
    let known = |(caller, result): (&Arc<Caller>, Result<Option<[u8; 32]>, String>)| {
        let digest = result.unwrap_or_else(|error| kept(caller, &error, before));
        (digest, caller.clone())
    };
    let entries = callers.iter().zip(results).map(known).collect();
    Table { version: config.version(), read_at: core.clock.now(), entries }
}

/// Reads a caller's token, and returns its digest; `None` if the token is too short.
async fn read_one(core: &Core, caller: &Caller) -> Result<Option<[u8; 32]>, String> {
    let secret = match tokio::time::timeout(PATIENCE, core.egress.credentials.reference(&caller.token)).await {
        Ok(secret) => secret.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("it did not come within {} s", PATIENCE.as_secs())),
    };
    let token = secret.expose_secret().as_bytes();
    if token.len() < SHORTEST {
        tracing::warn!(
            caller = &*caller.name,
            "the token has fewer than {SHORTEST} bytes, and the caller can do nothing; \
             make one with `openssl rand -hex 16`"
        );
        return Ok(None);
    }
    Ok(Some(digest_of(token)))
}

/// The digest of a caller whose token cannot be read: that of the token that its reference led to before, because a
/// vault that is away for a moment must not lock callers out.
fn kept(caller: &Caller, error: &str, before: Option<&Table>) -> Option<[u8; 32]> {
    let digest = before.and_then(|before| before.digest(&caller.token));
    let (name, reference) = (&*caller.name, &caller.token);
    match digest {
        Some(_) => tracing::warn!(
            caller = name, %reference, error,
            "the token cannot be read again; the one that was read last stays in force until the caller is removed"
        ),
        None => {
            tracing::warn!(caller = name, %reference, error, "the token cannot be read, and the caller can do nothing");
        }
    }
    digest
}
