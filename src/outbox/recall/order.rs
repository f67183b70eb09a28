//! Which lanes' stored usage has been read, and which lane is read next.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A tenant and its vendor.
pub(super) type Lane = (Arc<str>, Arc<str>);

/// How far a lane has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    Waiting,
    /// Waits to be read, before the lanes that have no jobs.
    Urgent,
    UnderWay,
    Whole,
}

/// Which lanes have been read. Pure.
#[derive(Default)]
pub(super) struct Lanes {
    known: HashMap<Lane, Read>,
    /// The number of lanes of each vendor that have not been read completely.
    unread: HashMap<Arc<str>, usize>,
    /// Vendors with jobs whose tenants share limits.
    urgent_vendors: HashSet<Arc<str>>,
    urgent: VecDeque<Lane>,
    waiting: VecDeque<Lane>,
}

impl Lanes {
    /// Queues the lane to be read, unless it is known already.
    pub(super) fn add(&mut self, tenant: &Arc<str>, vendor: &Arc<str>) {
        let lane = (tenant.clone(), vendor.clone());
        if self.known.contains_key(&lane) {
            return;
        }
        *self.unread.entry(vendor.clone()).or_default() += 1;
        let is_urgent = self.urgent_vendors.contains(vendor);
        self.known.insert(lane.clone(), if is_urgent { Read::Urgent } else { Read::Waiting });
        if is_urgent { &mut self.urgent } else { &mut self.waiting }.push_back(lane);
    }

    /// Whether all usage has been read that matters for a job of the lane. If not, the lane is read next.
    pub(super) fn is_ready(&mut self, tenant: &Arc<str>, vendor: &Arc<str>, shares: bool) -> bool {
        self.add(tenant, vendor);
        let lane = (tenant.clone(), vendor.clone());
        match self.known.get_mut(&lane) {
            Some(Read::Whole) => {}
            Some(read @ Read::Waiting) => {
                *read = Read::Urgent;
                self.urgent.push_back(lane);
            }
            _ => {}
        }
        let is_read = self.known.get(&(tenant.clone(), vendor.clone())) == Some(&Read::Whole);
        if !shares {
            return is_read;
        }
        if is_read && !self.unread.contains_key(vendor) {
            return true;
        }
        if self.urgent_vendors.insert(vendor.clone()) {
            for lane in self.waiting.iter().filter(|lane| lane.1 == *vendor) {
                if let Some(read @ Read::Waiting) = self.known.get_mut(lane) {
                    *read = Read::Urgent;
                    self.urgent.push_back(lane.clone());
                }
            }
        }
        false
    }

    /// Up to `most` lanes that are to be read now.
    pub(super) fn next(&mut self, most: usize) -> Vec<Lane> {
        let mut lanes = Vec::new();
        while lanes.len() < most
            && let Some(lane) = self.urgent.pop_front().or_else(|| self.waiting.pop_front())
        {
            if let Some(read @ (Read::Waiting | Read::Urgent)) = self.known.get_mut(&lane) {
                *read = Read::UnderWay;
                lanes.push(lane);
            }
        }
        lanes
    }

    /// Records that the lane has been read completely.
    pub(super) fn read(&mut self, lane: &Lane) {
        if let Some(read) = self.known.get_mut(lane)
            && std::mem::replace(read, Read::Whole) != Read::Whole
        {
            self.count_read(&lane.1);
        }
    }

    /// Forgets the tenant. If it comes back, its usage is read again.
    pub(super) fn forget(&mut self, tenant: &str, vendor: &str) {
        let lane: Lane = (tenant.into(), vendor.into());
        if self.known.remove(&lane).is_some_and(|read| read != Read::Whole) {
            self.count_read(&lane.1);
        }
    }

    fn count_read(&mut self, vendor: &Arc<str>) {
        if let Some(unread) = self.unread.get_mut(vendor) {
            *unread = unread.saturating_sub(1);
            if *unread == 0 {
                self.unread.remove(vendor);
            }
        }
    }
}

/// Which lanes have been read; shared by the worker, changes of the tenants, and the task that reads.
#[derive(Default)]
pub(in crate::outbox) struct Recall {
    pub(super) lanes: Mutex<Lanes>,
    pub(super) wanted: Notify,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(lanes: &[Lane]) -> Vec<&str> {
        lanes.iter().map(|(tenant, _)| &**tenant).collect()
    }

    fn lanes(tenants: &[&str]) -> Lanes {
        let mut lanes = Lanes::default();
        tenants.iter().for_each(|tenant| lanes.add(&(*tenant).into(), &"v".into()));
        lanes
    }

    #[test]
    fn lane_with_jobs_is_replayed_first() {
        let mut lanes = lanes(&["a", "b", "c"]);
        assert!(!lanes.is_ready(&"c".into(), &"v".into(), false));
        assert!(!lanes.is_ready(&"c".into(), &"v".into(), false));
        let first = lanes.next(1);
        assert_eq!(names(&first), ["c"]);
        assert!(!lanes.is_ready(&"c".into(), &"v".into(), false), "it is being read");
        lanes.read(&first[0]);
        assert!(lanes.is_ready(&"c".into(), &"v".into(), false));
        assert_eq!(names(&lanes.next(10)), ["a", "b"]);
        assert!(lanes.next(10).is_empty());
    }

    #[test]
    fn shared_limit_waits_for_the_vendors_lanes() {
        let mut lanes = lanes(&["a", "b"]);
        lanes.add(&"x".into(), &"w".into());
        assert!(!lanes.is_ready(&"b".into(), &"v".into(), true));
        lanes.add(&"c".into(), &"v".into());
        let read = lanes.next(3);
        assert_eq!(names(&read), ["b", "a", "c"], "the other vendor's lane is not urgent");
        read[..2].iter().for_each(|lane| lanes.read(lane));
        assert!(!lanes.is_ready(&"b".into(), &"v".into(), true), "c has not been read");
        lanes.read(&read[2]);
        assert!(lanes.is_ready(&"b".into(), &"v".into(), true));
        assert_eq!(names(&lanes.next(3)), ["x"]);
    }

    #[test]
    fn removed_tenant_is_read_again_on_return() {
        let mut lanes = lanes(&["a", "b"]);
        lanes.forget("a", "v");
        let read = lanes.next(10);
        assert_eq!(names(&read), ["b"]);
        lanes.read(&read[0]);
        assert!(lanes.is_ready(&"b".into(), &"v".into(), true));
        lanes.add(&"a".into(), &"v".into());
        assert!(!lanes.is_ready(&"b".into(), &"v".into(), true));
        assert_eq!(names(&lanes.next(10)), ["a"]);
        lanes.forget("a", "v");
        lanes.read(&("a".into(), "v".into()));
        assert!(lanes.is_ready(&"b".into(), &"v".into(), true));
    }
}
