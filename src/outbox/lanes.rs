//! Which lanes have jobs that are due, and how many of each are to be claimed. Pure.
//!
//! A lane is in line while it may have due jobs. It leaves the line when a claim brings fewer than were asked for, and comes
//! back when somebody says that it has got one: an `enqueue` here, or a look at what has become due. Lanes take turns, so that no
//! number of jobs in one keeps another from being claimed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::clock::Time;
use crate::store::LaneTier;

#[derive(Default)]
pub(super) struct Lanes {
    known: HashMap<LaneTier, Known>,
    line: VecDeque<LaneTier>,
}

#[derive(Default)]
struct Known {
    in_line: bool,
    /// It got a job since it was last asked about.
    again: bool,
    /// Claimed, and not begun.
    waiting: Arc<AtomicU32>,
    /// Since when no configuration knows it.
    unknown_since: Option<Time>,
}

impl Lanes {
    /// The lane may have a due job.
    pub(super) fn due(&mut self, lane: LaneTier) {
        let known = self.known.entry(lane.clone()).or_default();
        known.again = true;
        if !known.in_line {
            known.in_line = true;
            self.line.push_back(lane);
        }
    }

    /// What to claim: of each lane as many as `room` says beside those that wait already, `free` in all, and of `most`
    /// lanes.
    pub(super) fn wanted(
        &mut self,
        mut free: usize,
        most: usize,
        mut room: impl FnMut(&LaneTier) -> u32,
    ) -> Vec<(LaneTier, u32)> {
        let mut wanted = Vec::new();
        for _ in 0..self.line.len() {
            if free == 0 || wanted.len() >= most {
                break;
            }
            let Some(lane) = self.line.pop_front() else { break };
            if let Some(known) = self.known.get_mut(&lane) {
                let waiting = known.waiting.load(Relaxed);
                let count = room(&lane).saturating_sub(waiting).min(u32::try_from(free).unwrap_or(u32::MAX));
                if count > 0 {
                    known.again = false;
                    free -= count as usize;
                    wanted.push((lane.clone(), count));
                }
            }
            self.line.push_back(lane);
        }
        wanted
    }

    /// The lane is asked about, by other means than [`wanted`](Self::wanted).
    pub(super) fn asked(&mut self, lane: &LaneTier) {
        if let Some(known) = self.known.get_mut(lane) {
            known.again = false;
        }
    }

    /// So many were asked for, and so many came.
    pub(super) fn claimed(&mut self, lane: &LaneTier, asked: u32, came: u32) {
        let Some(known) = self.known.get_mut(lane) else { return };
        if came < asked && !known.again && known.in_line {
            known.in_line = false;
            self.line.retain(|other| other != lane);
        }
    }

    /// Where the lane's jobs are counted that wait for their permit.
    pub(super) fn waiting(&mut self, lane: &LaneTier) -> Arc<AtomicU32> {
        self.known.entry(lane.clone()).or_default().waiting.clone()
    }

    /// Whether the lane is in a configuration, as of `now`. Returns since when it is not.
    pub(super) fn is_known(&mut self, lane: &LaneTier, is: bool, now: Time) -> Option<Time> {
        let known = self.known.get_mut(lane)?;
        known.unknown_since = if is { None } else { Some(known.unknown_since.unwrap_or(now)) };
        known.unknown_since
    }

    /// Forgets lanes of which nothing is known that matters.
    pub(super) fn forget(&mut self) {
        self.known.retain(|_, known| known.in_line || Arc::strong_count(&known.waiting) > 1);
    }

    /// All that are known.
    pub(super) fn all(&self) -> impl Iterator<Item = LaneTier> {
        self.known.keys().cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.line.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(tenant: &str) -> LaneTier {
        LaneTier { tenant: tenant.to_owned(), vendor: "v".to_owned(), tier: 1 }
    }

    #[test]
    fn a_lane_leaves_the_line_when_it_is_empty_and_comes_back_when_told() {
        let mut lanes = Lanes::default();
        lanes.due(lane("a"));
        assert_eq!(lanes.wanted(10, 10, |_| 5), [(lane("a"), 5)]);
        lanes.claimed(&lane("a"), 5, 5);
        assert_eq!(lanes.len(), 1, "there may be more");
        assert_eq!(lanes.wanted(10, 10, |_| 5), [(lane("a"), 5)]);
        lanes.due(lane("a"));
        lanes.claimed(&lane("a"), 5, 2);
        assert_eq!(lanes.len(), 1, "it got one while it was asked about");
        assert_eq!(lanes.wanted(10, 10, |_| 5), [(lane("a"), 5)]);
        lanes.claimed(&lane("a"), 5, 0);
        assert_eq!(lanes.len(), 0);
    }

    #[test]
    fn lanes_take_turns_and_no_more_is_wanted_than_there_is_room() {
        let mut lanes = Lanes::default();
        for tenant in ["a", "b", "c"] {
            lanes.due(lane(tenant));
        }
        assert_eq!(lanes.wanted(7, 10, |_| 5), [(lane("a"), 5), (lane("b"), 2)]);
        assert_eq!(lanes.wanted(7, 1, |_| 5), [(lane("c"), 5)]);
        lanes.waiting(&lane("a")).store(4, Relaxed);
        lanes.waiting(&lane("b")).store(5, Relaxed);
        assert_eq!(lanes.wanted(7, 10, |_| 5), [(lane("a"), 1), (lane("c"), 5)], "b has as many as it may");
    }
}
