//! Up to where each table was purged, so that the next search for expired rows begins there. Pure.
//!
//! While a dump or an idle transaction holds an old snapshot of PostgreSQL, an index keeps the entries of all rows that have
//! been deleted since. A search from the first entry reads all of them, and every other write waits meanwhile.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Time;

/// How often tables are searched from their beginning: a row may have got an earlier time than those that were deleted,
/// because its transaction was committed late, or its process keeps rows for a shorter time.
const ANEW: Duration = Duration::from_secs(3_600);

/// Where the next search in each table begins.
#[derive(Debug, Default)]
pub(crate) struct Purged {
    /// By the statement that searches the table.
    from: HashMap<&'static str, i64>,
    /// When the tables were last searched from their beginning.
    since: Option<Time>,
}

impl Purged {
    /// Begins a purge. Returns whether it searches the tables from their beginning.
    pub(super) fn begin(&mut self, now: Time) -> bool {
        let is_anew = self.since.is_none_or(|since| now.since(since) >= ANEW);
        if is_anew {
            self.since = Some(now);
        }
        is_anew
    }

    /// Where the next search by this statement begins, unless it is one from the beginning. `None` if no search has ended.
    pub(super) fn from(&self, search: &'static str) -> Option<i64> {
        self.from.get(search).copied()
    }

    /// Records that a step has deleted what was before `from`.
    pub(super) fn set(&mut self, search: &'static str, from: i64) {
        self.from.insert(search, from);
    }
}

#[cfg(test)]
mod tests;
