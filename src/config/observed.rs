//! A source of configuration whose answers are recorded for the status.

use std::sync::Arc;
use std::time::Duration;

use super::copies::CopyPlace;
use super::source::{ConfigSource, FingerprintFuture, LastUsedFuture, LoadFuture, SourceKind, TakenFuture};
use super::source_record::{SourceContent, SourceRecord};

#[derive(Debug)]
struct ObservedSource {
    source: Arc<dyn ConfigSource>,
    record: Arc<SourceRecord>,
}

/// Records the answers of `source` in a new one of `records`, if the status lists the source.
pub(super) fn observed(source: Arc<dyn ConfigSource>, records: &mut Vec<Arc<SourceRecord>>) -> Arc<dyn ConfigSource> {
    let Some(name) = source.display_name() else { return source };
    let record = Arc::new(SourceRecord::new(name, source.kind()));
    records.push(record.clone());
    Arc::new(ObservedSource { source, record })
}

impl ConfigSource for ObservedSource {
    fn load(&self) -> LoadFuture<'_> {
        Box::pin(async move {
            let sources = self.source.load().await.inspect_err(|error| self.record.failed(&error.to_string()))?;
            let fingerprint = self.record.loaded(SourceContent::from(&sources));
            Ok(sources.with_fingerprint(fingerprint))
        })
    }

    fn fingerprint(&self) -> FingerprintFuture<'_> {
        Box::pin(async move {
            let fingerprint = self.source.fingerprint().await?;
            self.record.stated(fingerprint);
            Some(fingerprint)
        })
    }

    fn taken(&self) -> TakenFuture<'_> {
        Box::pin(async move {
            self.record.taken();
            self.source.taken().await;
        })
    }

    fn keep_copies_in(&self, place: Arc<dyn CopyPlace>) {
        self.source.keep_copies_in(place);
    }

    fn load_last_used(&self) -> LastUsedFuture<'_> {
        Box::pin(async move {
            let last = self.source.load_last_used().await?;
            self.record.loaded(SourceContent::from(&last));
            Some(last)
        })
    }

    fn look_every(&self) -> Option<Duration> {
        self.source.look_every()
    }

    fn display_name(&self) -> Option<String> {
        self.source.display_name()
    }

    fn kind(&self) -> SourceKind {
        self.source.kind()
    }
}
