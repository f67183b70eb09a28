//! The asynchronous shell around the engine: it finds the shard of a lane and lets callers wait there.
//!
//! Lanes that share a limit are in the same shard, so that one lock covers all limits of a request. The widest scope
//! among the vendor's limits selects the shard: by vendor, account or tenant. A lane whose limits are all its own is
//! found by one hash of its ids; for the others the tenant's configuration is needed.

mod acquire;
mod briefs;
pub(crate) mod plan;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::{Clock, Time};
use crate::config::{Scope, Tenant};
use crate::engine::cost::Cost;
use crate::engine::keys::LaneKey;
use crate::engine::{Ask, Bound, Engine, Group, Refusal, hash_ids};
use crate::signals;
use crate::telemetry::metrics::Series;

pub(crate) use acquire::{Grant, PermitAnswer, Waiting, Whose, acquire, acquire_deferred, try_acquire};
pub(crate) use briefs::LaneLookup;
use plan::{Plans, Policy};
pub(crate) use shard::{PermitGuard, SWEEP_EVERY, Shard};

/// All shards of a client.
pub(crate) struct Dispatch {
    shards: Box<[Arc<Shard>]>,
    hasher: DefaultHashBuilder,
    plans: Mutex<Plans>,
    /// Held while a lane moves to another shard, and while all shards are asked one after the other for what they hold
    /// and want of limits that processes share: a lane that moved in between would be asked twice, or not at all. It is
    /// taken before the locks of shards, and not across an await.
    pub(crate) moves: Arc<Mutex<()>>,
    pub(crate) policy: Policy,
    /// Notified when a request waits for units that processes share, and when the client is dropped.
    pub(crate) starved: Arc<Notify>,
}

/// The place of a lane.
#[derive(Clone)]
pub(crate) struct LaneRef {
    pub(crate) shard: Arc<Shard>,
    pub(crate) lane: LaneKey,
}

impl Dispatch {
    /// `max_waiting` bounds the waiting requests of all shards together.
    pub(crate) fn new(shards: usize, max_waiting: u32, policy: Policy, clock: Clock) -> Dispatch {
        let shards = shards.next_power_of_two();
        let hasher = DefaultHashBuilder::default();
        let bound = Bound::new(max_waiting);
        let starved = Arc::new(Notify::new());
        let shard = || Arc::new(Shard::new(Engine::new(bound.clone(), hasher.clone()), clock, starved.clone()));
        let shards = (0..shards).map(|_| shard()).collect();
        Dispatch { shards, hasher, plans: Mutex::default(), moves: Arc::default(), policy, starved }
    }

    pub(crate) fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> &Arc<Shard> {
        &self.shards[self.number_of(hash)]
    }

    #[inline]
    fn number_of(&self, hash: u64) -> usize {
        // Uses other bits of the hash than the shard's own table.
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    /// Asks for an immediate permit of an existing lane that shares no limit with others: one hash of its ids, one
    /// lock. The permit is for an exchange that the program makes itself: only the program knows its end.
    /// `None` if there is no such lane.
    #[inline]
    pub(crate) fn try_acquire(
        &self,
        tenant: &str,
        vendor: &str,
        ask: impl FnOnce(Time, Duration, Cost) -> Ask,
    ) -> Option<Result<PermitGuard, Box<Refusal>>> {
        let hash = hash_ids(&self.hasher, tenant, vendor);
        let shard = self.shard_of(hash);
        let answer = shard.decide(|engine, now| {
            let lane = engine.find(hash, tenant, vendor)?;
            let (attempt_ns, usual) = engine.usual(lane);
            let ask = ask(now, Duration::from_nanos(attempt_ns), usual);
            let ask = Ask { immediate: true, attempt: ask.attempt.open_ended(), ..ask };
            Some(engine.submit(now, lane, &ask).now())
        });
        Some(answer?.map(|permit| PermitGuard::new(shard, permit)))
    }

    /// The shard that `tenant` implies for its lane.
    pub(crate) fn home(&self, tenant: &Tenant) -> &Arc<Shard> {
        self.home_of(tenant, hash_ids(&self.hasher, &tenant.id, &tenant.vendor.name))
    }

    /// The shard of a tenant's lane. `lane` is the hash of the lane's ids.
    #[inline]
    fn home_of(&self, tenant: &Tenant, lane: u64) -> &Arc<Shard> {
        self.shard_of(self.home_hash(tenant, lane))
    }

    #[inline]
    fn home_hash(&self, tenant: &Tenant, lane: u64) -> u64 {
        let vendor = &tenant.vendor;
        match vendor.widest_scope {
            Scope::Vendor => hash_ids(&self.hasher, &vendor.environment, &vendor.name),
            Scope::Account => {
                let account = hash_ids(&self.hasher, &tenant.account, &vendor.environment);
                account.wrapping_add(hash_ids(&self.hasher, "", &vendor.name))
            }
            Scope::Tenant | Scope::Endpoint => lane,
        }
    }

    pub(crate) fn hash(&self, tenant: &str, vendor: &str) -> u64 {
        hash_ids(&self.hasher, tenant, vendor)
    }

    /// Finds the lane of a tenant and asks it for a permit, under one lock. Fails with `NoLane` if the lane is not in
    /// the shard that `tenant` implies.
    #[inline]
    pub(crate) fn acquire<'a>(&'a self, tenant: &Tenant, ask: &Ask, now: Time, series: &'a Series) -> PermitAnswer<'a> {
        let hash = hash_ids(&self.hasher, &tenant.id, &tenant.vendor.name);
        acquire(self.home_of(tenant, hash), Whose::Tenant { tenant, hash }, ask, now, series)
    }

    /// Like [`acquire`](Self::acquire), for a permit that the caller starts later.
    pub(crate) fn acquire_deferred<'a>(
        &'a self,
        tenant: &Tenant,
        ask: &Ask,
        now: Time,
        series: &'a Series,
    ) -> Result<Waiting<'a>, Refusal> {
        let hash = hash_ids(&self.hasher, &tenant.id, &tenant.vendor.name);
        acquire_deferred(self.home_of(tenant, hash), Whose::Tenant { tenant, hash }, ask, now, series)
    }

    /// The lane of a tenant, if it is in the shard that `tenant` implies.
    pub(crate) fn find(&self, tenant: &Tenant) -> Option<LaneRef> {
        let hash = hash_ids(&self.hasher, &tenant.id, &tenant.vendor.name);
        let shard = self.home_of(tenant, hash);
        let lane = shard.find(hash, &tenant.id, &tenant.vendor.name)?;
        Some(LaneRef { shard: shard.clone(), lane })
    }

    /// The lane of a tenant; creates it if necessary. The caller holds the lock that keeps the tenant from changing
    /// meanwhile.
    pub(crate) fn place(&self, tenant: &Tenant) -> LaneRef {
        self.find(tenant).unwrap_or_else(|| {
            let shard = self.home(tenant).clone();
            let lane = self.upsert(&shard, tenant);
            LaneRef { shard, lane }
        })
    }

    fn upsert(&self, shard: &Arc<Shard>, tenant: &Tenant) -> LaneKey {
        let plan = self.plans.lock().of(tenant, &self.policy);
        let host = tenant.chosen_host();
        shard.decide(|engine, now| engine.upsert(now, &tenant.id, &tenant.account, &plan, host.as_deref()))
    }

    /// Begins an update of all lanes, one by one. A new concurrency limit grants nothing until
    /// [`end_changes`](Self::end_changes).
    pub(crate) fn begin_changes(&self) {
        self.shards.iter().for_each(|shard| shard.decide(|engine, _| engine.begin_changes()));
    }

    /// Ends the update: all lanes follow the new configuration.
    pub(crate) fn end_changes(&self) {
        self.shards.iter().for_each(|shard| shard.decide(Engine::end_changes));
    }

    /// Updates the lane of a tenant to its new configuration, if the lane exists. Other lanes are created on first use.
    pub(crate) fn update(&self, tenant: &Tenant) {
        let home = self.home(tenant);
        let hash = hash_ids(&self.hasher, &tenant.id, &tenant.vendor.name);
        for shard in &self.shards {
            let Some(lane) = shard.find(hash, &tenant.id, &tenant.vendor.name) else {
                continue;
            };
            if Arc::ptr_eq(shard, home) {
                self.upsert(shard, tenant);
                return;
            }
            // The scope of its limits has changed: the lane moves to another shard, with its history.
            let plan = self.plans.lock().of(tenant, &self.policy);
            let host = tenant.chosen_host();
            Shard::move_between(&self.moves, shard, home, |from, to, now| {
                let Some(moved) = from.move_out(now, lane) else { return Vec::new() };
                let lane = to.upsert(now, &tenant.id, &tenant.account, &plan, host.as_deref());
                to.take_over(now, lane, moved, from)
            });
            return;
        }
    }

    /// Stops accepting requests for a tenant at a vendor. `refuse` also ends the waiting ones.
    pub(crate) fn retire(&self, tenant: &str, vendor: &str, refuse: bool) {
        let hash = hash_ids(&self.hasher, tenant, vendor);
        for shard in &self.shards {
            shard.decide(|engine, now| {
                if let Some(lane) = engine.find(hash, tenant, vendor) {
                    engine.retire(now, lane, refuse);
                }
            });
        }
    }

    /// Like [`retire`](Self::retire), for many tenants: the lane is in the shard that `tenant` implies, because no
    /// tenant changes meanwhile.
    pub(crate) fn retire_at_home(&self, tenant: &Tenant, refuse: bool) {
        let hash = hash_ids(&self.hasher, &tenant.id, &tenant.vendor.name);
        self.home(tenant).decide(|engine, now| {
            if let Some(lane) = engine.find(hash, &tenant.id, &tenant.vendor.name) {
                engine.retire(now, lane, refuse);
            }
        });
    }

    /// Pauses all lanes of a tenant's account, or of its vendor, until `until`, in all shards.
    pub(crate) fn pause_group(&self, tenant: &Tenant, scope: signals::Scope, until: Time) {
        let most = crate::clock::nanos(tenant.vendor.retry.max_shared_pause);
        self.pause_group_for(tenant, scope, until, most);
    }

    /// Puts back a pause of [`pause_group`](Self::pause_group) as it was in force in an earlier process.
    pub(crate) fn restore_group(&self, tenant: &Tenant, scope: signals::Scope, until: Time) {
        // It was bounded when it began.
        self.pause_group_for(tenant, scope, until, u64::MAX);
    }

    fn pause_group_for(&self, tenant: &Tenant, scope: signals::Scope, until: Time, most: u64) {
        let account = match scope {
            signals::Scope::Account => Some(&*tenant.account),
            signals::Scope::Vendor => None,
            signals::Scope::Tenant | signals::Scope::Endpoint => return,
        };
        let group = Group { vendor: &tenant.vendor.name, environment: &tenant.vendor.environment, account };
        for shard in &self.shards {
            shard.decide(|engine, now| engine.pause_group(now, group, &tenant.id, until, most));
        }
    }

    /// Ends the pauses of a tenant's account and of its vendor, in all shards. A lane that has a pause of its own from
    /// them keeps that.
    pub(crate) fn forget_groups(&self, tenant: &Tenant) {
        let whole = Group { vendor: &tenant.vendor.name, environment: &tenant.vendor.environment, account: None };
        let account = Group { account: Some(&*tenant.account), ..whole };
        for shard in &self.shards {
            shard.decide(|engine, _| {
                engine.forget_group(whole);
                engine.forget_group(account);
            });
        }
    }

    /// Drops cached plans that no lane uses.
    pub(crate) fn forget_plans(&self) {
        self.plans.lock().forget();
    }

    /// The numbers of waiting requests and of permits that have not ended.
    pub(crate) fn load(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(waiting, in_flight), shard| {
            let (more, flying) = shard.look(|engine, _| (engine.waiting() as u64, engine.in_flight() as u64));
            (waiting + more, in_flight + flying)
        })
    }

    /// Whether any request waits or has an exchange in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.shards.iter().any(|shard| shard.look(|engine, _| engine.is_busy()))
    }

    /// The number of lanes in memory.
    pub(crate) fn lanes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.look(|engine, _| engine.lane_count() as u64)).sum()
    }
}
