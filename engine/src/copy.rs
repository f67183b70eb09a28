//! A copy of one lane, and of everything that decides when its requests are sent, as the start of a forecast.

use std::collections::{BTreeSet, HashMap};
use std::iter::repeat;
use std::sync::Arc;

use compact_str::CompactString;

use super::cost::Cost;
use super::endpoint::EndpointId;
use super::keys::{HolderKey, LaneKey, PermitKey};
use super::lane::LaneLimits;
use super::limit::Cell;
use super::need::Need;
use super::permit::Permit;
use super::plan::{Plan, SharedSpec};
use super::slab::Key;
use super::throttle::LaneThrottle;
use super::tier::Tier;
use super::waiting::Turns;
use super::{Bound, Engine};
use crate::time::Time;

/// The number of waiting requests of one queue whose costs are copied; of the others only their number is.
const MAX_WAITING: usize = 2_048;
/// The number of copied lanes that wait, or have exchanges in flight, at a limit that the lane shares.
const MAX_RIVALS: usize = 128;

/// A lane, the lanes that wait for the same limits, and those limits.
pub struct Copy {
    lanes: Vec<LaneCopy>,
    /// Permits that count in the same shared limits but whose lanes are not copied, or have gone.
    strays: Vec<Permit>,
}

struct LaneCopy {
    tenant: CompactString,
    account: CompactString,
    plan: Arc<Plan>,
    cells: Vec<Cell>,
    version: u32,
    throttle: Option<Box<LaneThrottle>>,
    under_way: Vec<Permit>,
    waiting: Vec<Line>,
    turns: Turns,
    shared: [Option<SharedCopy>; 2],
}

struct SharedCopy {
    /// The key by which permits refer to this holder.
    key: HolderKey,
    specs: Arc<[SharedSpec]>,
    cells: Vec<Cell>,
    version: u32,
    /// The tiers' positions in the tree.
    leads: [u128; 3],
    turns: Turns,
}

/// The copy of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) endpoint: EndpointId,
    pub(crate) tier: Tier,
    /// The costs of its first requests.
    pub(crate) costs: Vec<Cost>,
    /// Number of further waiters, assumed to cost 1 each.
    pub(crate) more: usize,
    /// The position of its lane among the lanes of its tier.
    lead: u128,
    /// When its node was queued in the tree: among equals, the earlier one comes first.
    pub(crate) since: u64,
}

impl Engine {
    /// Copies a lane and the lanes that compete with it.
    pub fn copy(&self, lane: LaneKey) -> Option<Copy> {
        let (mut lanes, mut strays) = (vec![self.copy_lane(lane)?], Vec::new());
        let holders = self.lanes[lane].shared;
        if holders.iter().any(|holder| *holder != Key::NONE) {
            let shares = |key: &LaneKey| {
                let other = self.lanes.get(*key).map(|other| other.shared);
                other.is_some_and(|other| other.iter().any(|holder| *holder != Key::NONE && holders.contains(holder)))
            };
            let waiting = self.waiters.lanes().filter(|key| *key != lane).filter(shares).take(MAX_RIVALS);
            let mut rivals: BTreeSet<LaneKey> = waiting.collect();
            // Exchanges of other lanes free the shared limits when they end, so those lanes are copied too.
            let sending = self.permits.iter().map(Permit::lane);
            for key in sending.filter(|key| *key != lane).filter(shares) {
                if rivals.len() < MAX_RIVALS {
                    rivals.insert(key);
                }
            }
            lanes.extend(rivals.iter().filter_map(|key| self.copy_lane(*key)));
            let is_stray = |permit: &&Permit| {
                let counts = permit.origin.holders.iter().any(|at| *at != Key::NONE && holders.contains(at));
                counts && permit.lane() != lane && !rivals.contains(&permit.lane())
            };
            strays = self.permits.iter().filter(is_stray).cloned().collect();
        }
        Some(Copy { lanes, strays })
    }

    fn copy_lane(&self, key: LaneKey) -> Option<LaneCopy> {
        let lane = self.lanes.get(key)?;
        let queues = lane.waiting.as_ref().map(|waiting| &waiting.queues).into_iter().flatten();
        let waiting = queues.filter_map(|key| Some((key, self.waiters.queue(*key)?))).map(|(key, queue)| {
            let in_order = self.waiters.in_order(*key);
            let costs = in_order.iter().take(MAX_WAITING).filter_map(|key| self.waiters.get(*key)).map(|w| w.cost);
            let more = in_order.len().saturating_sub(MAX_WAITING);
            let node = lane.waiting.as_ref().map_or(Key::NONE, |waiting| waiting.tiers[queue.tier.index()]);
            let (lead, since) = self.tree.lead(node);
            Line { endpoint: queue.endpoint, tier: queue.tier, costs: costs.collect(), more, lead, since }
        });
        let account = lane.shared.iter().find_map(|holder| self.lanes.holder(*holder)?.key.account.clone());
        Some(LaneCopy {
            tenant: lane.tenant.clone(),
            account: account.unwrap_or_else(|| lane.tenant.clone()),
            plan: lane.plan.clone(),
            cells: lane.own.as_slice().to_vec(),
            version: lane.version,
            throttle: lane.throttle.clone(),
            under_way: self.permits.of(key).into_iter().filter_map(|key| self.permits.get(key).cloned()).collect(),
            waiting: waiting.collect(),
            turns: lane.waiting.as_ref().map(|waiting| waiting.wait_point.turns).unwrap_or_default(),
            shared: [(0, lane.shared[1]), (1, Key::NONE)].map(|(number, above)| {
                let holder = lane.shared[number];
                self.lanes.holder(holder).map(|inside| (holder, inside)).map(|(key, holder)| SharedCopy {
                    key,
                    specs: holder.specs.clone(),
                    cells: holder.cells.clone(),
                    version: holder.version,
                    leads: holder
                        .branch(above)
                        .map_or([0; 3], |branch| branch.tiers.map(|tier| self.tree.lead(tier).0)),
                    turns: holder.wait_point.turns,
                })
            }),
        })
    }
}

/// A separate engine in which the copy is run ahead.
pub(crate) struct Ahead {
    pub(crate) engine: Engine,
    /// The lanes with their queues. The lane that the forecast is about comes first.
    pub(crate) lanes: Vec<(LaneKey, Vec<Line>)>,
    /// Permits in flight, and when each was granted.
    pub(crate) under_way: Vec<(PermitKey, Time)>,
}

impl Copy {
    /// Whether an operator has paused the lane.
    pub(crate) fn is_held(&self) -> bool {
        self.lanes.first().and_then(|lane| lane.throttle.as_ref()).is_some_and(|throttle| throttle.is_held())
    }

    /// Makes an engine in the copied state. No request waits in it yet.
    pub(crate) fn unfold(&self, now: Time) -> Ahead {
        let mut engine = Engine::new(Bound::new(u32::MAX), Default::default());
        let (mut lanes, mut under_way) = (Vec::new(), Vec::new());
        // Maps the copied engine's holder keys to those of this engine.
        let mut known: HashMap<HolderKey, HolderKey> = HashMap::new();
        for copy in &self.lanes {
            let plan = Arc::new(Plan { max_waiting: u32::MAX, ..(*copy.plan).clone() });
            let key = engine.upsert(now, &copy.tenant, &copy.account, &plan, None);
            let holders = engine.lanes[key].shared;
            for (holder, shared) in holders.into_iter().zip(&copy.shared) {
                let (Some(inside), Some(shared)) = (engine.lanes.holder_mut(holder), shared) else { continue };
                inside.specs = shared.specs.clone();
                inside.cells.clone_from(&shared.cells);
                // A change of the configuration takes a moment, so the forecast takes it as done.
                inside.cells.iter_mut().for_each(|cell| cell.gather(false));
                inside.cells.iter_mut().for_each(Cell::hold_on);
                inside.cells.iter_mut().for_each(|cell| cell.rename_permits(now, &[]));
                inside.version = shared.version;
                inside.wait_point.turns = shared.turns;
                known.insert(shared.key, holder);
            }
            let lane = &mut engine.lanes[key];
            lane.own = LaneLimits::from_cells(copy.cells.clone());
            (lane.version, lane.throttle) = (copy.version, copy.throttle.clone());
            // No request that probes for the end of a pause is in flight in a copy.
            if let Some(throttle) = &mut lane.throttle {
                throttle.rename_permits(now, &[]);
            }
            lane.own.as_mut().iter_mut().for_each(|cell| cell.rename_permits(now, &[]));
            lane.own.as_mut().iter_mut().for_each(Cell::hold_on);
            for line in copy.waiting.iter().filter(|line| !line.costs.is_empty()) {
                let need = Need { lane: key, endpoint: line.endpoint, tier: line.tier, cost: 1.into() };
                engine.queue_for(&need);
                if let Some(waiting) = &mut engine.lanes[key].waiting {
                    waiting.wait_point.turns = copy.turns;
                    engine.tree.set_lead(waiting.tiers[line.tier.index()], line.lead);
                }
            }
            for ((holder, above), shared) in holders.into_iter().zip([holders[1], Key::NONE]).zip(&copy.shared) {
                let branch = engine.lanes.holder(holder).and_then(|holder| holder.branch(above));
                let (Some(branch), Some(shared)) = (branch, shared) else { continue };
                for (tier, lead) in branch.tiers.into_iter().zip(shared.leads) {
                    engine.tree.set_lead(tier, lead);
                }
            }
            lanes.push((key, copy.waiting.clone()));
        }
        let of_lanes =
            self.lanes.iter().zip(&lanes).flat_map(|(copy, (key, _))| copy.under_way.iter().zip(repeat(*key)));
        for (permit, lane) in of_lanes.chain(self.strays.iter().zip(repeat(Key::NONE))) {
            let ahead = permit.ahead(lane, |holder| known.get(&holder).copied().unwrap_or(Key::NONE));
            under_way.push((engine.permits.insert(ahead), permit.granted()));
            match engine.lanes.get_mut(lane) {
                Some(lane) => lane.in_flight += 1,
                None => engine.permits.count_departed(),
            }
        }
        // Lanes without waiters keep their positions in the tree, but are removed when the rest of the tree is.
        lanes.iter().for_each(|(lane, _)| engine.linger(*lane));
        engine.permits.look_at_all();
        Ahead { engine, lanes, under_way }
    }
}
