//! Combines several sources into one.

use std::sync::Arc;
use std::time::Duration;

use super::copies::CopyPlace;
use super::observed::observed;
use super::source::{ConfigSource, FingerprintFuture, Fnv, LastUsedFuture, LoadFuture, Sources, TakenFuture};
use super::source_record::SourceRecord;

/// Sources that are read one after the other; the texts of a later source come after those of an earlier one.
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
            let mut hash = Fnv::default();
            for source in self.all() {
                hash.bytes(&source.fingerprint().await?.to_le_bytes());
            }
            Some(hash.0)
        })
    }

    fn taken(&self) -> TakenFuture<'_> {
        Box::pin(async move {
            for source in self.all() {
                source.taken().await;
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
