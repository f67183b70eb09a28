//! An index of the lanes by the number of waiting requests.

use crate::keys::LaneKey;
use crate::slab::excess;

/// The number of classes.
pub(super) const CLASSES: usize = 33;

/// The class of a lane in which `total` requests wait: 0 for none, and one more at each power of two.
pub(super) fn class_of(total: u32) -> u8 {
    (u32::BITS - total.leading_zeros()) as u8
}

/// Lanes by the number of requests that wait in them, in classes by power of two.
pub(crate) struct BacklogIndex {
    lanes: [Vec<LaneKey>; CLASSES],
}

impl Default for BacklogIndex {
    fn default() -> Self {
        BacklogIndex { lanes: std::array::from_fn(|_| Vec::new()) }
    }
}

impl BacklogIndex {
    /// Records that `total` requests wait in a lane. Does work only when `total` passes a power of two.
    pub(crate) fn record(&mut self, lane: LaneKey, total: u32, at: Option<(u8, u32)>) -> BacklogMove {
        let class = class_of(total);
        if at.is_some_and(|(old, _)| old == class) {
            return BacklogMove { at, displaced: None };
        }
        let displaced = at.and_then(|(old, index)| self.take(old, index));
        let at = (class > 0).then(|| {
            let lanes = &mut self.lanes[class as usize];
            lanes.push(lane);
            (class, lanes.len() as u32 - 1)
        });
        BacklogMove { at, displaced }
    }

    /// Removes an entry. The last entry of the class moves to its index and is returned with it.
    fn take(&mut self, class: u8, index: u32) -> Option<(LaneKey, (u8, u32))> {
        let lanes = &mut self.lanes[class as usize];
        lanes.swap_remove(index as usize);
        lanes.get(index as usize).map(|moved| (*moved, (class, index)))
    }

    pub(crate) fn shrink(&mut self) {
        for lanes in &mut self.lanes {
            if let Some(room) = excess(lanes.capacity(), lanes.len()) {
                lanes.shrink_to(room);
            }
        }
    }

    /// All lanes with waiting requests, the largest class first.
    pub(crate) fn keys(&self) -> impl Iterator<Item = LaneKey> + '_ {
        self.lanes.iter().rev().flatten().copied()
    }

    /// The lanes of the largest class, one of which has the most waiting requests.
    pub(crate) fn fullest(&self) -> &[LaneKey] {
        self.lanes.iter().rev().find(|lanes| !lanes.is_empty()).map_or(&[], |lanes| lanes)
    }

    /// Whether a lane is in `class` or in a higher one.
    pub(super) fn reaches(&self, class: u8) -> bool {
        self.lanes.iter().skip(class.into()).any(|lanes| !lanes.is_empty())
    }
}

/// The result of [`BacklogIndex::record`]: the lane's new position, and another lane that was moved to a new position.
pub(crate) struct BacklogMove {
    pub(crate) at: Option<(u8, u32)>,
    pub(crate) displaced: Option<(LaneKey, (u8, u32))>,
}
