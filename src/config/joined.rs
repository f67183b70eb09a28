//! Combines several sources into one.

use std::sync::Arc;
use std::time::Duration;

use super::copies::CopyPlace;
use super::observed::observed;
use super::source::{
    ConfigSource, FingerprintFuture, LastUsedFuture, LoadFuture, Sources, TakenFuture, join_fingerprints,
};
use super::source_record::SourceRecord;
use crate::error::panic::catch_panic_in;

/// How long a source may take to note that what it loaded is in use. No reload begins meanwhile.
const TAKEN: Duration = Duration::from_secs(20);

/// Sources that are read one after the other; the texts of a later source come after those of an earlier one. One whose
/// [`taken`](ConfigSource::taken) panics or hangs keeps neither the client nor the other sources from going on.
#[derive(Debug)]
pub(crate) struct JoinedSource {
    first: Arc<dyn ConfigSource>,
    rest: Vec<Arc<dyn ConfigSource>>,
    records: Vec<Arc<SourceRecord>>,
}

impl JoinedSource {
    pub(crate) fn new(first: Arc<dyn ConfigSource>, rest: Vec<Arc<dyn ConfigSource>>) -> JoinedSource {
        let mut records = Vec::new();
        let first = observed(first, &mut records);
        let rest = rest.into_iter().map(|source| observed(source, &mut records)).collect();
        JoinedSource { first, rest, records }
    }

    /// What is known of each source that the status lists.
    pub(crate) fn records(&self) -> &[Arc<SourceRecord>] {
        &self.records
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn ConfigSource>> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl ConfigSource for JoinedSource {
    fn load(&self) -> LoadFuture<'_> {
        Box::pin(async move {
            let mut joined = self.first.load().await;
            for source in &self.rest {
                // Asked even after another has failed, so that the status knows which sources can be read.
                let loaded = source.load().await;
                joined = match (joined, loaded) {
                    (Ok(before), Ok(sources)) => Ok(before.and(sources)),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                };
            }
            joined
        })
    }

    fn fingerprint(&self) -> FingerprintFuture<'_> {
        Box::pin(async move {
            let mut joined = self.first.fingerprint().await?;
            for source in &self.rest {
                joined = join_fingerprints(joined, source.fingerprint().await?);
            }
            Some(joined)
        })
    }

    fn taken(&self) -> TakenFuture<'_> {
        Box::pin(async move {
            for source in self.all() {
                let taken = catch_panic_in(async { source.taken().await });
                match tokio::time::timeout(TAKEN, taken).await {
                    Ok(Some(())) => {}
                    Ok(None) => tracing::error!(
                        source = source.display_name(),
                        "a source of the configuration panicked when it was told that its content is in use; that is a \
                         mistake in its code"
                    ),
                    Err(_) => tracing::error!(
                        source = source.display_name(),
                        seconds = TAKEN.as_secs(),
                        "a source of the configuration was told that its content is in use, and did not return"
                    ),
                }
            }
        })
    }

    fn load_last_used(&self) -> LastUsedFuture<'_> {
        Box::pin(async move {
            let (mut joined, mut is_any) = (None, false);
            for source in self.all() {
                let last = source.load_last_used().await;
                is_any |= last.is_some();
                let sources = match last {
                    Some(last) => last,
                    None => source.load().await.ok()?,
                };
                joined = Some(match joined {
                    Some(before) => Sources::and(before, sources),
                    None => sources,
                });
            }
            joined.filter(|_| is_any)
        })
    }

    fn keep_copies_in(&self, place: Arc<dyn CopyPlace>) {
        self.all().for_each(|source| source.keep_copies_in(place.clone()));
    }

    fn look_every(&self) -> Option<Duration> {
        self.all().filter_map(|source| source.look_every()).min()
    }
}

#[cfg(test)]
mod tests;
