//! What is reported to the source of a hand-over.

use std::time::Duration;

use super::source::{IntakeSource, MessageRef};
use crate::clock::Time;
use crate::error::Error;
use crate::{BoxError, BoxFuture};

/// How long a message for a full lane is postponed, if its source can do so.
const POSTPONE: Duration = Duration::from_secs(5);

/// The results to report to the source.
#[derive(Default)]
pub(super) struct SourceReport {
    pub(super) taken: Vec<MessageRef>,
    pub(super) refused: Vec<(MessageRef, Error)>,
    /// Messages without room in the outbox: the source delivers them again after [`POSTPONE`].
    pub(super) later: Vec<MessageRef>,
    /// Messages returned because the hand-over ends: another process may take them at once.
    pub(super) back: Vec<MessageRef>,
}

impl SourceReport {
    pub(super) fn len(&self) -> usize {
        self.taken.len() + self.refused.len() + self.later.len() + self.back.len()
    }

    /// Takes the acknowledgements out. They are a report of their own: it may take long to put messages aside, and the
    /// acknowledgements of other tenants' messages must not wait for that.
    pub(super) fn acknowledgements(&mut self) -> SourceReport {
        SourceReport { taken: std::mem::take(&mut self.taken), ..SourceReport::default() }
    }

    async fn tell(self, source: &dyn IntakeSource) -> Result<(), BoxError> {
        if !self.taken.is_empty() {
            source.taken(&self.taken).await?;
        }
        for (message, why) in &self.refused {
            tracing::warn!(source = source.name(), message = message.id, %why, "a message was refused");
        }
        if !self.refused.is_empty() {
            source.refused(&self.refused).await?;
        }
        for (messages, after) in [(self.later, POSTPONE), (self.back, Duration::ZERO)] {
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
    /// Until when it is awaited, once the client has been shut down.
    pub(super) until: Option<Time>,
    pub(super) done: BoxFuture<'a, Result<(), BoxError>>,
}

impl<'a> Report<'a> {
    /// Begins a report, unless there is nothing to report.
    pub(super) fn begin(told: SourceReport, source: &'a dyn IntakeSource) -> Option<Report<'a>> {
        let count = told.len();
        (count > 0).then(|| Report { count, until: None, done: Box::pin(told.tell(source)) })
    }
}
