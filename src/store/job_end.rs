//! The types that describe the end of a claim (delivered, dead, due later, given back or dropped) and the data that is
//! written for each.

use super::Id;
use super::dead::NewDead;

/// The end of a claim.
///
/// An end with a known outcome of an exchange stays true even if another process has the job by now: this process may
/// have been stopped or cut off from the store, so that another process took its claim for one without an outcome. Such
/// an end counts unless another exchange of the job has begun since. A delivery counts even then, and also if the store
/// has lost the claim in a failover. Every other end counts for its own claim only.
#[derive(Clone, Debug)]
pub(crate) struct JobEnd {
    pub(crate) id: Id,
    pub(crate) fence: i64,
    /// The number of the exchange with a known outcome, as [`start`](super::starts::start) returned it; `None` if this
    /// claim made no exchange, or if its outcome is unknown.
    pub(crate) known: Option<i64>,
    pub(crate) end: End,
}

#[derive(Clone, Debug)]
pub(crate) enum End {
    Delivered {
        status: u16,
        attempts: u32,
        result: Option<Vec<u8>>,
        /// The reply for the sender of the request, if the sender asked for one.
        reply: Option<String>,
    },
    Dead(Box<NewDead>),
    /// Retried after `after_ms` milliseconds, with the history of attempts.
    Later {
        after_ms: i64,
        /// When the job expires, by the store's clock. The job's row states it, but the row of a letter does not, from
        /// which a known outcome may take the job back.
        expires_at: Option<i64>,
        history: Vec<u8>,
    },
    /// Nothing was tried: the claim is undone and not counted.
    Back,
    /// As `Back`, and the job is not claimed again for `after_ms` milliseconds. Everything else that its row says stays,
    /// exchanges without an outcome and a history that this process cannot read included.
    Wait {
        after_ms: i64,
    },
    /// It is unknown what was tried: the claim is treated as if the process had ended.
    Dropped,
}

/// The most bytes of an end that is written in a statement with others, so that no such statement becomes larger than a
/// few MiB.
const MAX_TOGETHER: usize = 16 * 1024;

impl End {
    /// Whether the end can be written together with others.
    pub(super) fn is_small(&self) -> bool {
        !matches!(self, End::Wait { .. } | End::Dropped) && self.bytes() <= MAX_TOGETHER
    }

    /// About how many statements the end takes of its own, if the job still belongs to this process. The small ends of a
    /// kind have their statements in common.
    pub(crate) fn statements(&self) -> usize {
        match self {
            small if small.is_small() => 0,
            End::Delivered { .. } | End::Dead(_) => 2,
            End::Later { .. } | End::Back | End::Wait { .. } | End::Dropped => 1,
        }
    }

    /// The bytes of what is written: result and reply, letter and request, or history.
    pub(crate) fn bytes(&self) -> usize {
        let len = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let content = match self {
            End::Delivered { result, .. } => len(result),
            End::Dead(dead) => dead.letter.len() + len(&dead.request),
            End::Later { history, .. } => history.len(),
            End::Back | End::Wait { .. } | End::Dropped => 0,
        };
        content + self.reply().map_or(0, str::len)
    }

    /// The reply for the sender of the request, if this end has one.
    pub(super) fn reply(&self) -> Option<&str> {
        match self {
            End::Delivered { reply, .. } => reply.as_deref(),
            End::Dead(dead) => dead.reply.as_deref(),
            End::Later { .. } | End::Back | End::Wait { .. } | End::Dropped => None,
        }
    }
}
