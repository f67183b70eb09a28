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
    /// Begins a purge.
    pub(super) fn begin(&mut self, now: Time) {
        if self.since.is_none_or(|since| now.since(since) >= ANEW) {
            *self = Purged { from: HashMap::new(), since: Some(now) };
        }
    }

    /// Where the next search by this statement begins.
    pub(super) fn from(&self, search: &'static str) -> i64 {
        self.from.get(search).copied().unwrap_or(i64::MIN)
    }

    /// Records that a step has deleted what was before `from`.
    pub(super) fn set(&mut self, search: &'static str, from: i64) {
        self.from.insert(search, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_begins_anew_once_an_hour() {
        let (mut purged, began) = (Purged::default(), Time::ZERO + ANEW);
        purged.begin(began);
        assert_eq!(purged.from("a"), i64::MIN);
        purged.set("a", 7);
        for minutes in 1..60 {
            purged.begin(began + Duration::from_secs(60 * minutes));
            assert_eq!((purged.from("a"), purged.from("b")), (7, i64::MIN), "{minutes}");
        }
        purged.begin(began + ANEW);
        assert_eq!(purged.from("a"), i64::MIN);
        purged.set("a", 9);
        purged.begin(began + ANEW + Duration::from_secs(60));
        assert_eq!(purged.from("a"), 9);
    }
}
