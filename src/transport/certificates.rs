//! The files of certificates, which may be replaced while the process runs: short-lived certificates are, every few hours.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use crate::clock::Time;
use crate::config::stamp;

/// How often files are looked at for changes.
const EVERY: Duration = Duration::from_secs(60);
/// How soon they are looked at after an exchange that failed: the vendor may have refused an expired certificate.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The files of a client, each with the [`stamp`] that it had when the client was built.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(Vec<(String, Option<(SystemTime, u64)>)>);

impl Files {
    /// The present state of the files. Call it before the files are read: a change in between is then noticed later.
    pub(super) fn of<'a>(paths: impl IntoIterator<Item = &'a str>) -> Files {
        Files(paths.into_iter().map(|path| (path.to_owned(), stamp(Path::new(path)))).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of the files was written or replaced since. A file that is missing for a moment counts as unchanged.
    pub(super) fn have_changed(&self) -> bool {
        self.0.iter().any(|(path, before)| stamp(Path::new(path)).is_some_and(|now| *before != Some(now)))
    }
}

/// When files are looked at.
#[derive(Debug, Default)]
pub(super) struct Looks {
    last_ns: AtomicU64,
    has_failed: AtomicBool,
}

impl Looks {
    /// Notes that an exchange failed before it had a response.
    pub(super) fn failed(&self) {
        self.has_failed.store(true, Relaxed);
    }

    /// Whether the caller is to look at the files now. Of several callers at once, one is.
    pub(super) fn are_due(&self, now: Time) -> bool {
        let last = self.last_ns.load(Relaxed);
        let every = if self.has_failed.load(Relaxed) { AFTER_FAILURE } else { EVERY };
        if u128::from(now.as_nanos().saturating_sub(last)) < every.as_nanos() {
            return false;
        }
        let is_first = self.last_ns.compare_exchange(last, now.as_nanos(), Relaxed, Relaxed).is_ok();
        if is_first {
            self.has_failed.store(false, Relaxed);
        }
        is_first
    }
}

#[cfg(test)]
mod tests;
