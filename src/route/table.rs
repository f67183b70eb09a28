//! The routes of a client: up to millions, changed one at a time during look-ups.
//!
//! One map by the hash of id and vendor: two nested maps would cost a second cache miss on every request. The table has 64
//! shards, so that an insert blocks one look-up in 64 for a moment; the table is never cloned.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, RwLock};

use super::Route;
use super::memory::VendorMemory;
use crate::config::{Config, Holds, Tenant, TenantEntry, TokenAccounts, Vendor, Vendors, resolve_tenant, unknown};
use crate::error::Error;

const SHARDS: usize = 64;

#[derive(Clone, Debug)]
struct Slot {
    route: Arc<Route>,
    /// Added while running and not by the configuration, so that a reload keeps it.
    added: bool,
}

/// The routes of a client. A look-up takes the read lock of one shard; no lock is held across an await.
#[derive(Debug)]
pub(crate) struct RouteTable {
    /// What the store of shared limits can hold, if limits are shared.
    holds: Option<Holds>,
    hasher: DefaultHashBuilder,
    shards: Box<[RwLock<HashTable<Slot>>]>,
    /// Every change of the table holds this lock, so that a reload and an insert do not interleave.
    memories: Mutex<Memories>,
    /// See [`RouteTable::single_changes`].
    single_changes: AtomicU64,
}

#[derive(Debug, Default)]
struct Memories {
    /// The learned figures of each vendor, by name and environment.
    vendors: HashMap<(Arc<str>, Arc<str>), Arc<VendorMemory>>,
    /// The accounts of the tenants in the table.
    accounts: TokenAccounts,
}

impl Memories {
    /// The figures of `vendor`: the known ones, those of `before` if they still apply, or empty ones.
    fn of(&mut self, vendor: &Arc<Vendor>, before: &Memories) -> Arc<VendorMemory> {
        let key = (vendor.name.clone(), vendor.environment.clone());
        if let Some(known) = self.vendors.get(&key).filter(|known| known.fits(vendor)) {
            return known.clone();
        }
        let known = before.vendors.get(&key).filter(|known| known.fits(vendor)).cloned();
        let memory = known.unwrap_or_else(|| Arc::new(VendorMemory::new(vendor.clone())));
        self.vendors.insert(key, memory.clone());
        memory
    }

    fn route(&mut self, tenant: Arc<Tenant>, before: &Memories) -> Arc<Route> {
        let memory = self.of(&tenant.vendor, before);
        Arc::new(Route::new(tenant, memory))
    }
}

/// What a reload changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// New tenants.
    pub(crate) added: Vec<Arc<Route>>,
    /// The new routes of tenants whose vendor, limits, credential or weight differ.
    pub(crate) changed: Vec<Arc<Route>>,
    /// The old routes of removed tenants.
    pub(crate) removed: Vec<Arc<Route>>,
}

impl Default for RouteTable {
    fn default() -> Self {
        RouteTable::new()
    }
}

impl RouteTable {
    /// An empty table.
    pub(crate) fn new() -> RouteTable {
        RouteTable {
            holds: None,
            hasher: DefaultHashBuilder::default(),
            shards: (0..SHARDS).map(|_| RwLock::new(HashTable::new())).collect(),
            memories: Mutex::default(),
            single_changes: AtomicU64::new(0),
        }
    }

    /// Returns the table for a client whose limits are shared through a store that holds only the limits in `holds`.
    pub(crate) fn shared(self, holds: Option<Holds>) -> RouteTable {
        RouteTable { holds, ..self }
    }

    fn check(&self, tenant: &Tenant) -> Result<(), Error> {
        self.holds.map_or(Ok(()), |holds| holds.check(&tenant.vendor).map_err(Error::config))
    }

    /// Checks that the store of shared limits can hold those of the configuration's tenants. No change of other tenants
    /// helps if it cannot.
    pub(crate) fn check_all(&self, config: &Config) -> Result<(), Error> {
        config.tenants().try_for_each(|tenant| self.check(tenant))
    }

    /// The tenant, or an error that names similar ones.
    pub(crate) fn get(&self, id: &str, vendor: &str) -> Result<Arc<Route>, Error> {
        self.find(id, vendor).ok_or_else(|| {
            let searched = if self.len() <= unknown::SEARCHED { self.snapshot() } else { Vec::new() };
            let tenants: Vec<Arc<Tenant>> = searched.iter().map(|route| route.tenant().clone()).collect();
            unknown::unknown_tenant(id, vendor, &tenants)
        })
    }

    /// The tenant, if it exists.
    pub(crate) fn find(&self, id: &str, vendor: &str) -> Option<Arc<Route>> {
        let hash = self.hash(id, vendor);
        let shard = self.shards[shard_of(hash)].read();
        shard.find(hash, |slot| is(&slot.route, id, vendor)).map(|slot| slot.route.clone())
    }

    /// The number of tenants; a tenant at two vendors counts twice.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    /// All tenants in no particular order. A tenant that is added or removed meanwhile may be missed.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Route>> {
        let mut out = Vec::with_capacity(self.len());
        for shard in &self.shards {
            out.extend(shard.read().iter().map(|slot| slot.route.clone()));
        }
        out
    }

    /// The number of tenants that were added, changed and removed one by one, and not by a configuration. A tenant that
    /// is set to what it is does not count: a program may set all of its tenants again and again.
    pub(crate) fn single_changes(&self) -> u64 {
        self.single_changes.load(Ordering::Acquire)
    }

    /// Adds a tenant, or replaces the one with that id and vendor. Reloads keep it until it is removed. If it shares an
    /// account's access token with other tenants, it must be able to use theirs.
    ///
    /// Returns the new route and the one before, if any. On an error nothing changes.
    pub(crate) fn insert(
        &self,
        vendors: &Vendors,
        entry: &TenantEntry,
    ) -> Result<(Arc<Route>, Option<Arc<Route>>), Error> {
        let tenant = Arc::new(resolve_tenant(vendors, entry)?);
        self.check(&tenant)?;
        let mut memories = self.memories.lock();
        let before = self.find(&tenant.id, &tenant.vendor.name);
        if let Err(other) = memories.accounts.replace(before.as_ref().map(|before| before.tenant()), &tenant) {
            return Err(self.no_common_token(&other, &tenant));
        }
        let route = memories.route(tenant, &Memories::default());
        let before = self.put(Slot { route: route.clone(), added: true });
        if let Some(before) = &before {
            before.route.replace();
        }
        // From now on reloads keep a tenant that was the configuration's, which is a change too.
        if before.as_ref().is_none_or(|before| !before.added || before.route.tenant() != route.tenant()) {
            self.single_changes.fetch_add(1, Ordering::Release);
        }
        Ok((route, before.map(|before| before.route)))
    }

    /// The error for a tenant that could not use the access token of its account. `other` is or was in the account.
    fn no_common_token(&self, other: &Tenant, tenant: &Tenant) -> Error {
        // To name another one, all tenants would have to be searched.
        let is_there = |route: Arc<Route>| route.id != tenant.id && route.has_token_account_of(tenant);
        let why = if self.find(&other.id, &other.vendor.name).is_some_and(is_there) {
            other.no_token_with(tenant)
        } else {
            tenant.no_token_with_others(other)
        };
        Error::config(format!(
            "{why}. While the client runs, no tenant can change alone what its account's access token is for: remove \
             the others first, or change all of them in the configuration at once"
        ))
    }

    /// Removes a tenant and returns it. A tenant of the configuration comes back with the next reload.
    pub(crate) fn remove(&self, id: &str, vendor: &str) -> Option<Arc<Route>> {
        let mut memories = self.memories.lock();
        let hash = self.hash(id, vendor);
        let mut shard = self.shards[shard_of(hash)].write();
        let entry = shard.find_entry(hash, |slot| is(&slot.route, id, vendor)).ok()?;
        let removed = entry.remove().0.route;
        // Otherwise the memory of a million removed tenants would stay allocated.
        let len = shard.len();
        if shard.capacity() > 64 && len < shard.capacity() / 8 {
            shard.shrink_to(2 * len, |slot| self.hash(&slot.route.id, &slot.route.vendor.name));
        }
        memories.accounts.remove(removed.tenant());
        removed.replace();
        self.single_changes.fetch_add(1, Ordering::Release);
        Some(removed)
    }

    /// The number of parts, for scans that read one part at a time.
    pub(crate) fn parts(&self) -> usize {
        self.shards.len()
    }

    /// All tenants of one part.
    pub(crate) fn part(&self, number: usize) -> Vec<Arc<Route>> {
        self.shards[number].read().iter().map(|slot| slot.route.clone()).collect()
    }

    /// Calls `each` with every tenant of one part, while the part cannot change.
    pub(crate) fn each_of_part(&self, number: usize, mut each: impl FnMut(&Arc<Route>)) {
        // Holding this lock keeps writers out: a writer would wait for this scan, and look-ups would queue behind the
        // writer. A reload holds this lock for long, so the scan does not wait for it; then a few look-ups may wait.
        let _no_changes = self.memories.try_lock();
        let part = self.shards[number].read();
        part.iter().for_each(|slot| each(&slot.route));
    }

    /// Replaces the tenants of the old configuration by those of the new one, and returns the differences.
    ///
    /// Tenants added while running stay, even if the configuration states the same tenant, and follow the new vendors.
    /// If one of them does not fit the new vendors, or the other tenants of its account, that is an error and nothing
    /// changes. A look-up during the change finds the old or the new route, never none.
    pub(crate) fn replace_all(&self, config: &Config) -> Result<Changes, Error> {
        self.check_all(config)?;
        let mut memories = self.memories.lock();
        let mut learned = Memories::default();
        let mut fresh: Vec<HashTable<Slot>> = (0..SHARDS).map(|_| HashTable::new()).collect();
        let added: Vec<Slot> = self
            .shards
            .iter()
            .flat_map(|shard| shard.read().iter().filter(|slot| slot.added).cloned().collect::<Vec<_>>())
            .collect();
        for slot in added {
            let tenant = resolve_tenant(config.vendors(), &slot.route.entry()).map_err(|error| misfit(&error))?;
            self.check(&tenant).map_err(|error| misfit(&error))?;
            let tenant = Arc::new(tenant);
            learned.accounts.add(&tenant).map_err(|other| misfit(&other.no_token_with(&tenant)))?;
            self.put_in(&mut fresh, Slot { route: learned.route(tenant, &memories), added: true });
        }
        for tenant in config.tenants() {
            let hash = self.hash(&tenant.id, &tenant.vendor.name);
            if fresh[shard_of(hash)].find(hash, |slot| is(&slot.route, &tenant.id, &tenant.vendor.name)).is_none() {
                // The tenants of the configuration fit each other, so this one is at odds with one added while running.
                learned.accounts.add(tenant).map_err(|other| misfit(&other.no_token_with(tenant)))?;
                self.put_in(&mut fresh, Slot { route: learned.route(tenant.clone(), &memories), added: false });
            }
        }
        let mut changes = Changes::default();
        for (shard, mut fresh) in self.shards.iter().zip(fresh) {
            // The lock on `memories` excludes other writers, so the read lock is enough for comparing.
            let old = shard.read();
            for slot in &mut fresh {
                let tenant = &slot.route;
                let hash = self.hash(&tenant.id, &tenant.vendor.name);
                match old.find(hash, |old| is(&old.route, &tenant.id, &tenant.vendor.name)) {
                    None => changes.added.push(tenant.clone()),
                    Some(old) if old.route.tenant() != tenant.tenant() => changes.changed.push(tenant.clone()),
                    Some(_) => {}
                }
            }
            for slot in old.iter() {
                let (id, vendor) = (&slot.route.id, &slot.route.vendor.name);
                if fresh.find(self.hash(id, vendor), |new| is(&new.route, id, vendor)).is_none() {
                    changes.removed.push(slot.route.clone());
                }
            }
            drop(old);
            let replaced = std::mem::replace(&mut *shard.write(), fresh);
            replaced.iter().for_each(|slot| slot.route.replace());
        }
        *memories = learned;
        Ok(changes)
    }

    #[inline]
    fn hash(&self, id: &str, vendor: &str) -> u64 {
        self.hasher.hash_one((id, vendor))
    }

    fn put(&self, slot: Slot) -> Option<Slot> {
        let hash = self.hash(&slot.route.id, &slot.route.vendor.name);
        let mut shard = self.shards[shard_of(hash)].write();
        put(&mut shard, hash, slot, |slot| self.hash(&slot.route.id, &slot.route.vendor.name))
    }

    fn put_in(&self, shards: &mut [HashTable<Slot>], slot: Slot) {
        let hash = self.hash(&slot.route.id, &slot.route.vendor.name);
        put(&mut shards[shard_of(hash)], hash, slot, |slot| self.hash(&slot.route.id, &slot.route.vendor.name));
    }
}

fn misfit(why: &dyn Display) -> Error {
    Error::config(format!("a tenant added while running does not fit the new configuration: {why}"))
}

fn put(shard: &mut HashTable<Slot>, hash: u64, slot: Slot, rehash: impl Fn(&Slot) -> u64) -> Option<Slot> {
    if let Some(existing) = shard.find_mut(hash, |old| is(&old.route, &slot.route.id, &slot.route.vendor.name)) {
        return Some(std::mem::replace(existing, slot));
    }
    shard.insert_unique(hash, slot, rehash);
    None
}

fn is(tenant: &Tenant, id: &str, vendor: &str) -> bool {
    &*tenant.id == id && &*tenant.vendor.name == vendor
}

/// Chooses the shard by middle bits of the hash, because the table inside a shard uses the top and bottom bits.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}
