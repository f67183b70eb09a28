//! Computes the offset that a consumer may commit, that of the oldest unsettled message, while it settles the messages of a
//! partition in any order. Pure.

use std::collections::{BTreeSet, HashMap};

/// The fetched and unsettled offsets of all partitions that a consumer reads.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    partitions: HashMap<i32, Partition>,
}

#[derive(Debug, Default)]
struct Partition {
    /// Offsets that were fetched and are not settled yet.
    open: BTreeSet<i64>,
    /// The last fetched offset plus one.
    next: i64,
}

impl Positions {
    /// Records that a message was fetched.
    pub(crate) fn fetched(&mut self, partition: i32, offset: i64) {
        let known = self.partitions.entry(partition).or_default();
        known.open.insert(offset);
        known.next = offset.saturating_add(1);
    }

    /// The offset behind the last fetched message of a partition. `None` if none was fetched since it was assigned.
    pub(crate) fn next(&self, partition: i32) -> Option<i64> {
        self.partitions.get(&partition).map(|known| known.next)
    }

    /// Forgets a partition that was reassigned to another consumer. That consumer continues from the committed offset,
    /// so it fetches the open messages again.
    pub(crate) fn lost(&mut self, partition: i32) {
        self.partitions.remove(&partition);
    }

    /// Records that a message is settled. Returns the offset that may be committed now, before which all messages are
    /// settled. Returns `None` if the message was settled before, or was fetched before the partition was
    /// [lost](Self::lost).
    pub(crate) fn settled(&mut self, partition: i32, offset: i64) -> Option<i64> {
        let known = self.partitions.get_mut(&partition)?;
        known.open.remove(&offset).then(|| known.open.first().copied().unwrap_or(known.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_stays_before_the_oldest_open_message() {
        let mut positions = Positions::default();
        for offset in [10, 11, 13] {
            positions.fetched(0, offset);
        }
        positions.fetched(1, 0);
        assert_eq!([0, 1, 2].map(|partition| positions.next(partition)), [Some(14), Some(1), None]);
        assert_eq!(positions.settled(0, 11), Some(10));
        assert_eq!(positions.settled(0, 10), Some(13), "compacted topics have gaps");
        assert_eq!(positions.settled(0, 13), Some(14));
        assert_eq!(positions.settled(0, 13), None, "settled before");
        assert_eq!(positions.settled(1, 0), Some(1));
        assert_eq!(positions.settled(2, 0), None);
    }

    #[test]
    fn returned_partition_resumes_at_stored_position() {
        let mut positions = Positions::default();
        (0..4).for_each(|offset| positions.fetched(0, offset));
        assert_eq!(positions.settled(0, 0), Some(1));
        positions.lost(0);
        assert_eq!(positions.next(0), None);
        // Meanwhile another consumer had the partition and settled offsets 1 and 2.
        positions.fetched(0, 3);
        assert_eq!(positions.settled(0, 1), None, "of the earlier assignment");
        assert_eq!(positions.settled(0, 3), Some(4));
    }

    /// A held message is handed over once, and its only delivery is of the earlier assignment.
    #[test]
    fn earlier_delivery_moves_new_position() {
        let mut positions = Positions::default();
        (0..5).for_each(|offset| positions.fetched(0, offset));
        assert_eq!([0, 2].map(|offset| positions.settled(0, offset)), [Some(1), Some(1)]);
        positions.lost(0);
        assert_eq!(positions.settled(0, 4), None, "settled while no process has the partition");
        // It goes on at the committed position. Message 3 is settled before it comes again, and then once more.
        positions.fetched(0, 1);
        assert_eq!(positions.settled(0, 3), None);
        (2..5).for_each(|offset| positions.fetched(0, offset));
        assert_eq!([4, 2].map(|offset| positions.settled(0, offset)), [Some(1), Some(1)], "recognised");
        assert_eq!(positions.settled(0, 1), Some(3), "message 3 is not settled in this assignment yet");
        assert_eq!(positions.settled(0, 3), Some(5));
    }
}
