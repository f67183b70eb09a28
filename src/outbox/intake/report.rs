//! What is reported to the source of a hand-over.

use std::time::Duration;

use super::source::{IntakeSource, MessageRef};
use crate::clock::Time;
use crate::error::Error;
use crate::{BoxError, BoxFuture};

/// How long a message for a full lane is postponed, if its source can do so.
const POSTPONE: Duration = Duration::from_secs(5);

/// Messages to report, and the bytes that they take in memory: their source keeps them until the report has ended.
pub(super) struct Weighed<M> {
    messages: Vec<M>,
    bytes: usize,
}

impl<M> Default for Weighed<M> {
    fn default() -> Weighed<M> {
        Weighed { messages: Vec::new(), bytes: 0 }
    }
}

impl<M> Weighed<M> {
    pub(super) fn push(&mut self, message: M, bytes: usize) {
        self.messages.push(message);
        self.bytes += bytes;
    }

    /// Moves all messages of `other` behind these.
    pub(super) fn append(&mut self, other: &mut Weighed<M>) {
        self.messages.append(&mut other.messages);
        self.bytes += std::mem::take(&mut other.bytes);
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }
}

/// The results to report to the source.
#[derive(Default)]
pub(super) struct SourceReport {
    pub(super) taken: Weighed<MessageRef>,
    pub(super) refused: Weighed<(MessageRef, Error)>,
    /// Messages without room in the outbox: the source delivers them again after [`POSTPONE`].
    pub(super) later: Weighed<MessageRef>,
    /// Messages returned because the hand-over ends: another process may take them at once.
    pub(super) back: Weighed<MessageRef>,
}

impl SourceReport {
    pub(super) fn len(&self) -> usize {
        self.taken.len() + self.refused.len() + self.later.len() + self.back.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.taken.bytes + self.refused.bytes + self.later.bytes + self.back.bytes
    }

    /// Takes the acknowledgements out. They are a report of their own: it may take long to put messages aside, and the
    /// acknowledgements of other tenants' messages must not wait for that.
    pub(super) fn acknowledgements(&mut self) -> SourceReport {
        SourceReport { taken: std::mem::take(&mut self.taken), ..SourceReport::default() }
    }

    async fn tell(self, source: &dyn IntakeSource) -> Result<(), BoxError> {
        let SourceReport { taken, refused, later, back } = self;
        let (taken, refused) = (taken.messages, refused.messages);
        if !taken.is_empty() {
            source.taken(&taken).await?;
        }
        for (message, why) in &refused {
            tracing::warn!(source = source.name(), message = message.id, %why, "a message was refused");
        }
        if !refused.is_empty() {
            source.refused(&refused).await?;
        }
        for (messages, after) in [(later.messages, POSTPONE), (back.messages, Duration::ZERO)] {
            if !messages.is_empty() {
                source.later(&messages, after).await?;
            }
        }
        Ok(())
    }
}

/// A report that is under way.
pub(super) struct Report<'a> {
    /// The number of its messages.
    pub(super) count: usize,
    /// The bytes that they take in memory.
    pub(super) bytes: usize,
    /// Until when it is awaited, once the client has been shut down.
    pub(super) until: Option<Time>,
    pub(super) done: BoxFuture<'a, Result<(), BoxError>>,
}

impl<'a> Report<'a> {
    /// Begins a report, unless there is nothing to report.
    pub(super) fn begin(told: SourceReport, source: &'a dyn IntakeSource) -> Option<Report<'a>> {
        let (count, bytes) = (told.len(), told.bytes());
        (count > 0).then(|| Report { count, bytes, until: None, done: Box::pin(told.tell(source)) })
    }
}
