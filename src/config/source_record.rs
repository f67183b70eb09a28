//! What a client knows of one source of its configuration: when it last confirmed what is in force, and what is wrong.

use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use super::source::{SourceKind, Sources};
use crate::clock::{Clock, Time, as_seconds, as_some_seconds};

/// The status of one source of a client's configuration:
/// [`ClientStatus::config_sources`](crate::status::ClientStatus::config_sources).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct SourceStatus {
    /// The source's path, or its address without user, password and query.
    pub name: String,
    /// What the source reads.
    pub kind: SourceKind,
    /// How long ago the source last confirmed what is in force of it, in seconds: it returned the same, or said that
    /// nothing has changed. Includes the age of a copy.
    #[serde(rename = "age_s", serialize_with = "as_seconds")]
    pub age: Duration,
    /// In force is the copy of an earlier configuration, with which the process started because the source could not be
    /// read or was not valid.
    pub is_copy: bool,
    /// Why the source cannot be read, or why its present content is not in force; `None` if nothing is wrong.
    pub problem: Option<String>,
    /// For how long there has been a problem without a break, in seconds.
    #[serde(rename = "problem_for_s", serialize_with = "as_some_seconds")]
    pub problem_for: Option<Duration>,
}

/// What a source returned.
#[derive(Clone, Debug)]
pub(crate) struct SourceContent {
    /// The same for the same content.
    pub(crate) hash: u64,
    /// The fingerprint that the source stated with the content; `None` if it stated none.
    pub(crate) fingerprint: Option<u64>,
    /// The age of the content if it is a copy.
    pub(crate) copy_age: Option<Duration>,
    /// Why the content differs from what the source holds now.
    pub(crate) problem: Option<String>,
}

impl From<&Sources> for SourceContent {
    fn from(sources: &Sources) -> SourceContent {
        let problem = sources.problem().map(|problem| problem.why.clone());
        let (fingerprint, copy_age) = (sources.fingerprint(), sources.copy_age());
        SourceContent { hash: sources.hash(), fingerprint, copy_age, problem }
    }
}

/// Records what one source answers, and what becomes of it.
#[derive(Debug)]
pub(crate) struct SourceRecord {
    name: String,
    kind: SourceKind,
    clock: Clock,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// The hash of the content in force.
    in_force: Option<u64>,
    /// The fingerprint of the content in force.
    fingerprint: Option<u64>,
    is_copy: bool,
    /// When the source last confirmed the content in force, and the age that a copy had then.
    confirmed: Time,
    age_then: Duration,
    /// The latest fingerprint and the latest content, whether in force or not.
    stated: Option<u64>,
    loaded: Option<SourceContent>,
    /// The latest load failed.
    is_unreadable: bool,
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    why: String,
    since: Time,
}

impl Known {
    /// The source has returned the content in force.
    fn confirm(&mut self, content: &SourceContent, now: Time) {
        self.in_force = Some(content.hash);
        self.fingerprint = content.fingerprint;
        self.is_copy = content.copy_age.is_some();
        (self.confirmed, self.age_then) = (now, content.copy_age.unwrap_or_default());
        self.set_trouble(content.problem.clone(), now);
    }

    /// Sets the present trouble, or none. One trouble after the other is one for the time since when.
    fn set_trouble(&mut self, why: Option<String>, now: Time) {
        let since = self.trouble.as_ref().map_or(now, |trouble| trouble.since);
        self.trouble = why.map(|why| Trouble { why, since });
    }
}

impl SourceRecord {
    pub(crate) fn new(name: String, kind: SourceKind) -> SourceRecord {
        let clock = Clock::system();
        let known = Known {
            in_force: None,
            fingerprint: None,
            is_copy: false,
            confirmed: clock.now(),
            age_then: Duration::ZERO,
            stated: None,
            loaded: None,
            is_unreadable: false,
            trouble: None,
        };
        SourceRecord { name, kind, clock, known: Mutex::new(known) }
    }

    /// The source returned a content, which is not yet in force if it is new. Returns the content's fingerprint. If the
    /// source stated none with the content, it is the one that it stated last: the content is that one's, or later.
    pub(crate) fn loaded(&self, mut content: SourceContent) -> Option<u64> {
        let now = self.clock.now();
        let mut known = self.known.lock();
        content.fingerprint = content.fingerprint.or(known.stated);
        let fingerprint = content.fingerprint;
        let was_unreadable = std::mem::take(&mut known.is_unreadable);
        if known.in_force == Some(content.hash) {
            known.confirm(&content, now);
        } else if was_unreadable {
            known.trouble = None;
        }
        known.loaded = Some(content);
        fingerprint
    }

    /// The source could not be read.
    pub(crate) fn failed(&self, why: &str) {
        let now = self.clock.now();
        let mut known = self.known.lock();
        known.is_unreadable = true;
        known.set_trouble(Some(why.to_owned()), now);
    }

    /// The source stated the fingerprint of its content. If that is the content in force, it is confirmed.
    pub(crate) fn stated(&self, fingerprint: u64) {
        let now = self.clock.now();
        let mut known = self.known.lock();
        known.stated = Some(fingerprint);
        if known.fingerprint == Some(fingerprint) && !known.is_unreadable {
            (known.confirmed, known.age_then) = (now, Duration::ZERO);
        }
    }

    /// As [`stated`](Self::stated), of a source whose fingerprint proves that it can be read.
    pub(crate) fn answered(&self, fingerprint: u64) {
        {
            let mut known = self.known.lock();
            if std::mem::take(&mut known.is_unreadable) {
                known.trouble = None;
            }
        }
        self.stated(fingerprint);
    }

    /// The content that was loaded last is in force now.
    pub(crate) fn taken(&self) {
        let now = self.clock.now();
        let mut known = self.known.lock();
        if let Some(content) = known.loaded.clone() {
            known.confirm(&content, now);
        }
    }

    /// The configuration that was loaded last was refused as a whole. A source whose content is in force has no part in
    /// that.
    pub(crate) fn refused(&self, why: &str) {
        let now = self.clock.now();
        let mut known = self.known.lock();
        if known.loaded.as_ref().is_some_and(|content| known.in_force != Some(content.hash)) {
            known.set_trouble(Some(why.to_owned()), now);
        }
    }

    pub(crate) fn status(&self) -> SourceStatus {
        let now = self.clock.now();
        let known = self.known.lock();
        SourceStatus {
            name: self.name.clone(),
            kind: self.kind,
            age: now.since(known.confirmed).saturating_add(known.age_then),
            is_copy: known.is_copy,
            problem: known.trouble.as_ref().map(|trouble| self.without_name(&trouble.why)),
            problem_for: known.trouble.as_ref().map(|trouble| now.since(trouble.since)),
        }
    }

    /// A reason without the source's name before it, which the status states anyway.
    fn without_name(&self, why: &str) -> String {
        let rest = why.strip_prefix(&*self.name).and_then(|rest| rest.strip_prefix(": "));
        rest.unwrap_or(why).to_owned()
    }
}

#[cfg(test)]
mod tests;
