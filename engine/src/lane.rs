//! Lanes (one tenant at one vendor), and the limits that several lanes share.

use std::hash::BuildHasher;
use std::sync::Arc;

use compact_str::CompactString;
use hashbrown::{DefaultHashBuilder, HashMap};

use super::endpoint::EndpointId;
use super::holder::{Shared, SharedKey};
use super::index::Index;
use super::keys::{HolderKey, LaneKey, OfHolder, OfLane};
use super::limit::{Cell, LimitSpec, one_less};
use super::plan::{Plan, SharedSpec};
use super::slab::excess;
use super::slab::{Key, Slab};
use super::throttle::LaneThrottle;
use super::waiting::LaneWait;
use crate::time::Time;

/// One tenant at one vendor.
///
/// Kept small: a process may hold a million idle lanes. Fields that only a busy lane needs are boxed.
pub(crate) struct Lane {
    pub(crate) tenant: CompactString,
    pub(crate) plan: Arc<Plan>,
    pub(crate) own: LaneLimits,
    /// The holders of account and vendor-wide limits, as keys into [`Lanes`].
    pub(crate) shared: [HolderKey; 2],
    pub(crate) waiting: Option<Box<LaneWait>>,
    /// State that responses have set and that belongs to no configured limit; most lanes never need it.
    pub(crate) throttle: Option<Box<LaneThrottle>>,
    /// Permits that exist, including those of callers that went away. Exact: each grant adds one and each end takes
    /// one.
    pub(crate) in_flight: u32,
    /// Counts changes of the plan.
    pub(crate) version: u32,
    /// Smoothed time that the vendor takes to answer, in microseconds; 0 if unknown. Learned only if the lane has
    /// concurrency limits, and ignored [`SERVICE_MEMORY`] seconds after `service_at`, so that evicting the lane after
    /// that loses nothing.
    pub(crate) service_us: u32,
    /// When `service_us` was last updated, in seconds.
    pub(crate) service_at: u32,
    /// Handles that refer to the lane by its key. A lane with handles is not evicted.
    pub(crate) pins: u32,
    /// The lane admits no more requests and is removed as soon as nothing is left in it.
    pub(crate) retired: bool,
}

/// How long a lane remembers the vendor's answer time, in seconds.
const SERVICE_MEMORY: u32 = 60;

#[inline]
fn seconds(now: Time) -> u32 {
    u32::try_from(now.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX)
}

impl Lane {
    /// The holders of its shared limits, each with what the lane's plan states of those limits.
    pub(crate) fn stated(&self) -> [(HolderKey, &Arc<[SharedSpec]>); 2] {
        [(self.shared[0], &self.plan.account), (self.shared[1], &self.plan.vendor_wide)]
    }

    /// Its own limits except those of endpoints, each with its specification.
    #[inline(always)]
    pub(crate) fn whole(&mut self) -> impl Iterator<Item = (&mut Cell, &LimitSpec)> {
        let whole = self.plan.whole;
        self.own.as_mut()[..whole].iter_mut().zip(&self.plan.own[..whole])
    }

    /// Whether a request also counts in limits other than those of the whole lane: of its endpoint, or shared ones.
    #[inline(always)]
    pub(crate) fn has_others(&self, endpoint: EndpointId) -> bool {
        self.shared != [Key::NONE; 2] || !self.plan.endpoint_own(endpoint).is_empty()
    }

    /// Whether no response has slowed the lane, or one of its own limits for all requests.
    #[inline(always)]
    pub(crate) fn is_at_full_speed(&mut self) -> bool {
        let whole = self.plan.whole;
        self.throttle.is_none() && !self.own.as_mut()[..whole].iter().any(Cell::is_throttled)
    }

    /// How long the vendor is expected to work on a request, in nanoseconds.
    pub(crate) fn expected_service(&self, now: Time) -> u64 {
        match self.service_us {
            0 => self.plan.service_ns,
            _ if self.has_forgotten(now) => self.plan.service_ns,
            known => 2 * known as u64 * 1_000,
        }
    }

    /// Called when one of its permits ends, which started at `started`. `answers`: whether the vendor's response ended
    /// it.
    #[inline(always)]
    pub(crate) fn permit_left(&mut self, now: Time, started: Time, answers: bool) {
        one_less(&mut self.in_flight);
        if answers && self.plan.has_slots {
            self.learn_service(now, started);
        }
    }

    /// Whether nothing that was learned from response times is still in use.
    pub(crate) fn has_forgotten(&self, now: Time) -> bool {
        self.has_forgotten_at(seconds(now))
    }

    #[inline]
    fn has_forgotten_at(&self, second: u32) -> bool {
        self.service_us == 0 || second.saturating_sub(self.service_at) > SERVICE_MEMORY
    }

    /// Learns from the time that the vendor took to answer a request that started at `started`.
    #[inline]
    pub(crate) fn learn_service(&mut self, now: Time, started: Time) {
        let took = u32::try_from(now.as_nanos().saturating_sub(started.as_nanos()) / 1_000).unwrap_or(u32::MAX).max(1);
        let second = seconds(now);
        self.service_us = match self.has_forgotten_at(second) {
            true => took,
            false => (self.service_us - self.service_us / 8).saturating_add(took / 8).max(1),
        };
        self.service_at = second;
    }
}

/// The lane's own limits. Most lanes have one, which is stored in the lane itself.
pub(crate) enum LaneLimits {
    One(Cell),
    Many(Box<[Cell]>),
}

impl LaneLimits {
    pub(crate) fn new(plan: &Plan, now: Time, since: u32) -> LaneLimits {
        let mut cells = plan.own.iter().map(|spec| Cell::new(spec, now, since));
        if plan.own.len() == 1
            && let Some(cell) = cells.next()
        {
            return LaneLimits::One(cell);
        }
        LaneLimits::Many(cells.collect())
    }

    pub(crate) fn from_cells(mut cells: Vec<Cell>) -> LaneLimits {
        match cells.len() {
            1 => cells.pop().map_or_else(|| LaneLimits::Many(Box::new([])), LaneLimits::One),
            _ => LaneLimits::Many(cells.into()),
        }
    }

    #[cfg(test)]
    pub(crate) fn clone_cells(&self) -> Vec<Cell> {
        match self {
            LaneLimits::One(cell) => vec![cell.clone()],
            LaneLimits::Many(cells) => cells.to_vec(),
        }
    }

    pub(crate) fn into_cells(self) -> Vec<Cell> {
        match self {
            LaneLimits::One(cell) => vec![cell],
            LaneLimits::Many(cells) => cells.into_vec(),
        }
    }

    pub(crate) fn as_slice(&self) -> &[Cell] {
        match self {
            LaneLimits::One(cell) => std::slice::from_ref(cell),
            LaneLimits::Many(cells) => cells,
        }
    }

    #[inline]
    pub(crate) fn as_mut(&mut self) -> &mut [Cell] {
        match self {
            LaneLimits::One(cell) => std::slice::from_mut(cell),
            LaneLimits::Many(cells) => cells,
        }
    }
}

/// A change of the configuration that is being applied to the lanes one by one.
#[derive(Default)]
pub(crate) struct ChangeUnderWay {
    goes_on: bool,
    /// Holders with limits that grant nothing until the change has been applied to all lanes.
    gathering: Vec<HolderKey>,
}

impl ChangeUnderWay {
    pub(crate) fn begin(&mut self) {
        self.goes_on = true;
    }

    /// Ends the change. Returns the holders whose limits may grant again.
    pub(crate) fn end(&mut self) -> Vec<HolderKey> {
        self.goes_on = false;
        std::mem::take(&mut self.gathering)
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Notes a holder with limits that grant nothing until the change is over.
    pub(crate) fn gathers(&mut self, holder: HolderKey) {
        self.gathering.push(holder);
    }
}

/// All lanes of an engine, by id.
pub(crate) struct Lanes {
    slab: Slab<OfLane, Lane>,
    /// By the hash of tenant and vendor; the ids themselves are in the lanes.
    index: Index,
    hasher: DefaultHashBuilder,
    shared: Slab<OfHolder, Shared>,
    shared_keys: HashMap<SharedKey, HolderKey>,
    /// Accounts of lanes. Only those that are not named like their tenants, since most are and a lane is kept small.
    accounts: HashMap<LaneKey, Account>,
}

/// The account of a lane.
pub(crate) struct Account {
    /// The hash that [`Group`](super::Group) computes.
    pub(crate) hash: u64,
    pub(crate) name: CompactString,
}

/// One hash of both ids.
#[inline(always)]
pub fn hash_ids(hasher: &impl BuildHasher, tenant: &str, vendor: &str) -> u64 {
    use std::hash::Hasher;
    let mut state = hasher.build_hasher();
    state.write(tenant.as_bytes());
    state.write_u8(0xff);
    state.write(vendor.as_bytes());
    state.finish()
}

impl Lanes {
    pub(crate) fn new(hasher: DefaultHashBuilder) -> Lanes {
        Lanes {
            slab: Slab::new(),
            index: Index::default(),
            hasher,
            shared: Slab::new(),
            shared_keys: HashMap::with_hasher(DefaultHashBuilder::default()),
            accounts: HashMap::with_hasher(DefaultHashBuilder::default()),
        }
    }

    pub(crate) fn hasher(&self) -> &DefaultHashBuilder {
        &self.hasher
    }

    #[inline]
    pub(crate) fn get(&self, lane: LaneKey) -> Option<&Lane> {
        self.slab.get(lane)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, lane: LaneKey) -> Option<&mut Lane> {
        self.slab.get_mut(lane)
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> impl Iterator<Item = LaneKey> + '_ {
        self.slab.keys()
    }

    /// One past the highest index of a lane.
    pub(crate) fn end(&self) -> u32 {
        self.slab.end()
    }

    pub(crate) fn key_at(&self, index: u32) -> Option<LaneKey> {
        self.slab.key_at(index)
    }

    /// A holder of limits that lanes share.
    #[inline]
    pub(crate) fn holder(&self, holder: HolderKey) -> Option<&Shared> {
        self.shared.get(holder)
    }

    #[inline]
    pub(crate) fn holder_mut(&mut self, holder: HolderKey) -> Option<&mut Shared> {
        self.shared.get_mut(holder)
    }

    pub(crate) fn holder_count(&self) -> usize {
        self.shared.len()
    }

    #[cfg(test)]
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Shared> + '_ {
        self.shared.keys().filter_map(|key| self.shared.get(key))
    }

    /// One past the highest index of a holder.
    pub(crate) fn holder_end(&self) -> u32 {
        self.shared.end()
    }

    pub(crate) fn holder_key_at(&self, index: u32) -> Option<HolderKey> {
        self.shared.key_at(index)
    }

    /// The hash of a lane's tenant.
    pub(crate) fn tenant_hash(&self, lane: &Lane) -> u64 {
        self.hasher.hash_one(&lane.tenant)
    }

    /// Finds a lane. `hash` is that of both ids, by [`hash_ids`].
    #[inline]
    pub(crate) fn find(&self, hash: u64, tenant: &str, vendor: &str) -> Option<LaneKey> {
        let same =
            |index| self.slab.at(index).is_some_and(|lane| lane.tenant == tenant && *lane.plan.vendor == *vendor);
        self.index.find(hash, same).and_then(|index| self.slab.key_at(index))
    }

    pub(crate) fn insert(&mut self, lane: Lane) -> LaneKey {
        let hash = hash_ids(&self.hasher, &lane.tenant, &lane.plan.vendor);
        let key = self.slab.insert(lane);
        self.index.insert(hash, key.index);
        key
    }

    /// Removes a lane. The limits that it shared stay as they are in force.
    pub(crate) fn remove(&mut self, key: LaneKey) -> Option<Lane> {
        self.take_back(key);
        let lane = self.slab.get(key)?;
        let hash = hash_ids(&self.hasher, &lane.tenant, &lane.plan.vendor);
        self.index.remove(hash, key.index);
        let lane = self.slab.remove(key)?;
        self.accounts.remove(&key);
        for holder in lane.shared {
            if let Some(shared) = self.shared.get_mut(holder) {
                one_less(&mut shared.lanes);
            }
        }
        Some(lane)
    }

    /// What a lane states of its shared limits counts no more. A retired lane states nothing.
    pub(crate) fn take_back(&mut self, key: LaneKey) {
        let Some(lane) = self.slab.get(key).filter(|lane| !lane.retired) else { return };
        for (holder, specs) in lane.stated() {
            if let Some(shared) = self.shared.get_mut(holder) {
                shared.stated.remove(specs);
            }
        }
    }

    /// Whether the lanes that share limits with this one would have other figures without it.
    pub(crate) fn decides_for_others(&self, key: LaneKey) -> bool {
        let Some(lane) = self.slab.get(key).filter(|lane| !lane.retired) else { return false };
        let mut stated = lane.stated().into_iter();
        stated.any(|(holder, specs)| self.shared.get(holder).is_some_and(|shared| shared.stated.decides(specs)))
    }

    /// Stores the account of a lane, or removes it if it is named like the tenant.
    pub(crate) fn set_account(&mut self, key: LaneKey, account: Option<Account>) {
        match account {
            Some(account) => drop(self.accounts.insert(key, account)),
            None => drop(self.accounts.remove(&key)),
        }
    }

    /// The hash of a lane's account; `None` if it is named like the tenant.
    pub(crate) fn account(&self, key: LaneKey) -> Option<u64> {
        self.accounts.get(&key).map(|account| account.hash)
    }

    pub(crate) fn account_name(&self, key: LaneKey) -> Option<&CompactString> {
        match self.accounts.get(&key) {
            Some(account) => Some(&account.name),
            None => self.slab.get(key).map(|lane| &lane.tenant),
        }
    }

    /// The holder of shared limits under `key`, made if it does not exist.
    pub(crate) fn share(&mut self, key: SharedKey, specs: &Arc<[SharedSpec]>, now: Time) -> HolderKey {
        if let Some(found) = self.shared_keys.get(&key) {
            return *found;
        }
        let holder = self.shared.insert(Shared::new(key.clone(), specs.clone(), now));
        self.shared_keys.insert(key, holder);
        holder
    }

    /// Frees unused memory, at most `chunks` chunks of each slab. Returns whether there may be more to free.
    pub(crate) fn shrink(&mut self, chunks: usize) -> bool {
        self.index.shrink();
        if let Some(room) = excess(self.shared_keys.capacity(), self.shared_keys.len()) {
            self.shared_keys.shrink_to(room);
        }
        if let Some(room) = excess(self.accounts.capacity(), self.accounts.len()) {
            self.accounts.shrink_to(room);
        }
        let more = [self.slab.shrink(chunks), self.shared.shrink(chunks)];
        more.contains(&true)
    }

    pub(crate) fn unshare(&mut self, holder: HolderKey) {
        if let Some(shared) = self.shared.remove(holder) {
            self.shared_keys.remove(&shared.key);
        }
    }
}

impl std::ops::Index<LaneKey> for Lanes {
    type Output = Lane;

    #[inline]
    fn index(&self, lane: LaneKey) -> &Lane {
        &self.slab[lane]
    }
}

impl std::ops::IndexMut<LaneKey> for Lanes {
    #[inline]
    fn index_mut(&mut self, lane: LaneKey) -> &mut Lane {
        &mut self.slab[lane]
    }
}
