//! The texts that a server returned last, and whether their entity tag can stand for them.

use std::sync::Arc;

use super::super::file::SETTLED;
use super::found::{Found, Text};
use crate::clock::Time;

/// Replaced only if the texts differ, so that equal pointers mean equal texts.
pub(super) type Texts = Arc<Vec<Text>>;

/// The texts of the server's last response; before the first response, those of the copy.
#[derive(Default)]
pub(super) struct Latest {
    texts: Option<Texts>,
    /// The entity tag that came with the texts, and the first time that it did.
    tag: Option<String>,
    since: Time,
    /// A full response has repeated texts and tag after [`SETTLED`].
    is_settled: bool,
}

impl Latest {
    /// The texts of a copy, which have no tag.
    pub(super) fn of_copy(texts: Option<Texts>) -> Latest {
        Latest { texts, ..Latest::default() }
    }

    pub(super) fn texts(&self) -> Option<&Texts> {
        self.texts.as_ref()
    }

    /// Takes over a full response.
    pub(super) fn receive(&mut self, Found { tag, texts }: Found, now: Time) {
        let is_known = self.texts.as_ref().is_some_and(|known| **known == texts);
        if is_known && self.tag == tag {
            self.is_settled |= now.since(self.since) >= SETTLED;
            return;
        }
        if !is_known {
            self.texts = Some(Arc::new(texts));
        }
        (self.tag, self.since, self.is_settled) = (tag, now, false);
    }

    /// The tag to ask with, so that the server sends the texts only if they have changed; `None` if it must send them.
    /// A text that was damaged on its way has the tag of the whole text, and many servers make the tag of the file's
    /// time in seconds: asked with that tag, the server would confirm the wrong text for ever. A text that is not in
    /// use was refused, or is new and must be compared with another reading.
    pub(super) fn tag(&self, in_use: Option<&Texts>) -> Option<&str> {
        let is_in_use = self.texts.as_ref().zip(in_use).is_some_and(|(own, in_use)| Arc::ptr_eq(own, in_use));
        self.tag.as_deref().filter(|_| self.is_settled && is_in_use)
    }
}

#[cfg(test)]
mod tests;
