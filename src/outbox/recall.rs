//! Reads what other processes sent of each lane, and counts it against the lane's limits before a job of the lane is
//! claimed.
//!
//! A lane is read when its tenant appears: with the configuration at the start, by a reload or by
//! [`Tenants::set`](crate::Tenants::set). One task reads the lanes in the background, a few lanes and a bounded number
//! of rows at a time, so that neither memory nor the start of the program depends on the number of rows. Lanes with
//! waiting jobs are read first. Where several tenants share a limit, all lanes of the vendor are read before a job of
//! one of them is claimed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::OutboxState;
use super::job::remembered;
use crate::clock::nanos;
use crate::config::{Scope, Tenant};
use crate::core::{Core, OutboxHooks};
use crate::engine::limit::Past;
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::metrics::KINDS_OF_WORK;
use crate::store::may_pass;
use crate::store::usage::{self, Mark, Usage, Wanted};

/// How often the read of a page that fails is tried. A damaged file must not stop a lane for ever.
const TRIES: u32 = 3;
const BETWEEN_TRIES: Duration = Duration::from_millis(200);
/// The wait between two tries while the store is unreachable. There is no last try: without the store no job can be
/// claimed either.
const AWAY: Duration = Duration::from_secs(1);

/// A tenant and its vendor.
type Lane = (Arc<str>, Arc<str>);

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
struct Lanes {
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
    fn add(&mut self, tenant: &Arc<str>, vendor: &Arc<str>) {
        let lane = (tenant.clone(), vendor.clone());
        if self.known.contains_key(&lane) {
            return;
        }
        *self.unread.entry(vendor.clone()).or_default() += 1;
        let is_urgent = self.urgent_vendors.contains(vendor);
        self.known.insert(lane.clone(), if is_urgent { Read::Urgent } else { Read::Waiting });
        if is_urgent { &mut self.urgent } else { &mut self.waiting }.push_back(lane);
    }

    /// Whether all usage is read that matters for a job of the lane. If not, the lane is read next.
    fn is_ready(&mut self, tenant: &Arc<str>, vendor: &Arc<str>, shares: bool) -> bool {
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
    fn next(&mut self, most: usize) -> Vec<Lane> {
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
    fn read(&mut self, lane: &Lane) {
        if let Some(read) = self.known.get_mut(lane)
            && std::mem::replace(read, Read::Whole) != Read::Whole
        {
            self.count_read(&lane.1);
        }
    }

    /// Forgets the tenant. If it comes back, its usage is read again.
    fn forget(&mut self, tenant: &str, vendor: &str) {
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
pub(super) struct Recall {
    lanes: Mutex<Lanes>,
    wanted: Notify,
}

impl Recall {
    fn is_ready(&self, tenant: &Tenant) -> bool {
        if remembered(tenant) == 0 {
            // No limit counts by time.
            return true;
        }
        let ready = self.lanes.lock().is_ready(&tenant.id, &tenant.vendor.name, shares(tenant));
        if !ready {
            self.wanted.notify_one();
        }
        ready
    }
}

impl OutboxHooks for OutboxState {
    fn tenant_appears(&self, tenant: &Tenant) {
        if self.works && remembered(tenant) > 0 {
            self.recall.lanes.lock().add(&tenant.id, &tenant.vendor.name);
            self.recall.wanted.notify_one();
        }
    }

    fn tenant_goes(&self, tenant: &str, vendor: &str) {
        if self.works {
            self.recall.lanes.lock().forget(tenant, vendor);
        }
    }

    fn store_failures(&self) -> [(&'static str, u64); KINDS_OF_WORK] {
        self.store.problems.failures()
    }
}

impl OutboxState {
    /// Whether all that other processes sent is counted, as far as it concerns the tenant's limits.
    pub(super) fn is_recalled(&self, tenant: &Tenant) -> bool {
        self.recall.is_ready(tenant)
    }
}

/// Whether other tenants use limits of this one.
fn shares(tenant: &Tenant) -> bool {
    let vendor = &tenant.vendor;
    let limits = vendor.limits.iter().chain(vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits));
    limits.into_iter().any(|limit| matches!(limit.scope, Scope::Account | Scope::Vendor))
}

/// Reads lanes until the outbox stops.
pub(super) async fn run(core: Weak<Core>, outbox: Arc<OutboxState>) {
    let mut stop = outbox.stop.subscribe();
    loop {
        let lanes = outbox.recall.lanes.lock().next(usage::LANES);
        let read = async {
            if lanes.is_empty() {
                outbox.recall.wanted.notified().await;
            } else {
                read(&core, &outbox, &lanes).await;
            }
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            () = read => {}
        }
        if !lanes.is_empty() {
            let mut known = outbox.recall.lanes.lock();
            lanes.iter().for_each(|lane| known.read(lane));
            drop(known);
            outbox.wake.notify_one();
        }
    }
}

/// Counts what was sent of `lanes`, page by page.
async fn read(core: &Weak<Core>, outbox: &OutboxState, lanes: &[Lane]) {
    let start = |(tenant, vendor): &Lane| Wanted {
        tenant: tenant.as_ref().to_owned(),
        vendor: vendor.as_ref().to_owned(),
        after: Mark::START,
    };
    let mut left: Vec<Vec<Wanted>> = vec![lanes.iter().map(start).collect()];
    let mut failed = 0;
    while let Some(wanted) = left.pop() {
        if wanted.is_empty() {
            continue;
        }
        match outbox.store.read((outbox.store.owner, wanted.clone()), usage::read).await {
            Ok(pages) => {
                let Some(core) = core.upgrade() else { return };
                let mut more = Vec::new();
                for page in pages {
                    let Some(lane) = wanted.get(page.lane) else { continue };
                    recall(&core, &lane.tenant, &lane.vendor, page.rows, outbox.store.limits.latest_start());
                    more.extend(page.more.map(|after| Wanted { after, ..lane.clone() }));
                }
                left.push(more);
                failed = 0;
            }
            Err(error) if may_pass(&error) => {
                left.push(wanted);
                tokio::time::sleep(AWAY).await;
            }
            // The damage may concern one lane alone.
            Err(_) if wanted.len() > 1 => left.extend(wanted.into_iter().map(|lane| vec![lane])),
            Err(error) => {
                failed += 1;
                if failed < TRIES {
                    left.push(wanted);
                    tokio::time::sleep(BETWEEN_TRIES).await;
                    continue;
                }
                failed = 0;
                for Wanted { tenant, vendor, .. } in &wanted {
                    tracing::error!(%error, tenant, vendor, "earlier usage of a lane cannot be read, and is not counted");
                }
            }
        }
    }
}

/// Counts what other processes sent against a lane's limits.
fn recall(core: &Core, tenant: &str, vendor: &str, mut rows: Vec<Usage>, latest_start: Duration) {
    let Ok(tenant) = core.registry.tenant(tenant, vendor) else { return };
    let Ok(place) = core.registry.place(&tenant) else { return };
    // Oldest first, so that a bucket's refill in between is counted.
    rows.sort_by_key(|row| std::cmp::Reverse(row.age_ms));
    // No negative number was ever written; a row that holds one was edited.
    let figure = |figure: i64| u32::try_from(figure.max(0)).unwrap_or(u32::MAX);
    place.shard.decide(|engine, now| {
        for row in &rows {
            let endpoints = &tenant.vendor.endpoints;
            let endpoint = endpoints.iter().position(|endpoint| *endpoint.name == *row.endpoint);
            let endpoint = endpoint.map_or(NO_ENDPOINT, |number| number as EndpointId);
            // The record was written before the exchange left, and the exchange may have reached the vendor later by
            // up to this time.
            let age = Duration::from_millis(u64::try_from(row.age_ms).unwrap_or(0));
            let age = age.saturating_sub(tenant.vendor.max_transit).saturating_sub(latest_start);
            let past = Past {
                requests: figure(row.requests),
                points: figure(row.points),
                high: row.high,
                at: now.minus_nanos(nanos(age)),
            };
            engine.recall(now, place.lane, endpoint, &past);
        }
    });
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
    fn lane_with_jobs_is_read_before_the_others_and_ready_by_itself() {
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
    fn shared_limit_waits_for_all_lanes_of_vendor() {
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
