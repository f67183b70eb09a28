//! The routes of a client: up to millions, changed one at a time during look-ups.
//!
//! One map by the hash of id and vendor: two nested maps would cost a second cache miss on every request. The table has 64
//! shards, so that an insert blocks one look-up in 64 for a moment; the table is never cloned.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, RwLock};

use super::Route;
use super::memory::VendorMemory;
use crate::config::{Config, Holds, Tenant, TenantEntry, Vendor, Vendors, resolve_tenant, unknown};
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
    /// The learned figures of each vendor, by name and environment. Every change of the table holds this lock, so that a
    /// reload and an insert do not interleave.
    memories: Mutex<Memories>,
}

#[derive(Debug, Default)]
struct Memories(HashMap<(Arc<str>, Arc<str>), Arc<VendorMemory>>);

impl Memories {
    /// The figures of `vendor`: the known ones, those of `before` if they still apply, or empty ones.
    fn of(&mut self, vendor: &Arc<Vendor>, before: &Memories) -> Arc<VendorMemory> {
        let key = (vendor.name.clone(), vendor.environment.clone());
        if let Some(known) = self.0.get(&key).filter(|known| known.fits(vendor)) {
            return known.clone();
        }
        let known = before.0.get(&key).filter(|known| known.fits(vendor)).cloned();
        let memory = known.unwrap_or_else(|| Arc::new(VendorMemory::new(vendor.clone())));
        self.0.insert(key, memory.clone());
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
        }
    }

    /// Returns the table for a client whose limits are shared through a store that holds only the limits in `holds`.
    pub(crate) fn shared(self, holds: Option<Holds>) -> RouteTable {
        RouteTable { holds, ..self }
    }

    fn check(&self, tenant: &Tenant) -> Result<(), Error> {
        self.holds.map_or(Ok(()), |holds| holds.check(&tenant.vendor).map_err(Error::config))
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

    /// Adds a tenant, or replaces the one with that id and vendor. Reloads keep it until it is removed.
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
        let route = memories.route(tenant, &Memories::default());
        let before = self.put(Slot { route: route.clone(), added: true });
        if let Some(before) = &before {
            before.replace();
        }
        Ok((route, before))
    }

    /// Removes a tenant and returns it. A tenant of the configuration comes back with the next reload.
    pub(crate) fn remove(&self, id: &str, vendor: &str) -> Option<Arc<Route>> {
        let _memories = self.memories.lock();
        let hash = self.hash(id, vendor);
        let mut shard = self.shards[shard_of(hash)].write();
        let entry = shard.find_entry(hash, |slot| is(&slot.route, id, vendor)).ok()?;
        let removed = entry.remove().0.route;
        // Otherwise the memory of a million removed tenants would stay allocated.
        let len = shard.len();
        if shard.capacity() > 64 && len < shard.capacity() / 8 {
            shard.shrink_to(2 * len, |slot| self.hash(&slot.route.id, &slot.route.vendor.name));
        }
        removed.replace();
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
    /// Tenants added while running stay, even if the configuration states the same tenant, and follow the new vendors. If
    /// one of them does not fit the new vendors, that is an error and nothing changes. A look-up during the change finds
    /// the old or the new route, never none.
    pub(crate) fn replace_all(&self, config: &Config) -> Result<Changes, Error> {
        let mut memories = self.memories.lock();
        let mut learned = Memories::default();
        let mut fresh: Vec<HashTable<Slot>> = (0..SHARDS).map(|_| HashTable::new()).collect();
        let added: Vec<Slot> = self
            .shards
            .iter()
            .flat_map(|shard| shard.read().iter().filter(|slot| slot.added).cloned().collect::<Vec<_>>())
            .collect();
        for slot in added {
            let tenant = resolve_tenant(config.vendors(), &slot.route.entry()).map_err(|error| {
                Error::config(format!("a tenant added while running does not fit the new configuration: {error}"))
            })?;
            self.check(&tenant)?;
            self.put_in(&mut fresh, Slot { route: learned.route(Arc::new(tenant), &memories), added: true });
        }
        for tenant in config.tenants() {
            self.check(tenant)?;
            let hash = self.hash(&tenant.id, &tenant.vendor.name);
            if fresh[shard_of(hash)].find(hash, |slot| is(&slot.route, &tenant.id, &tenant.vendor.name)).is_none() {
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

    fn put(&self, slot: Slot) -> Option<Arc<Route>> {
        let hash = self.hash(&slot.route.id, &slot.route.vendor.name);
        let mut shard = self.shards[shard_of(hash)].write();
        put(&mut shard, hash, slot, |slot| self.hash(&slot.route.id, &slot.route.vendor.name))
    }

    fn put_in(&self, shards: &mut [HashTable<Slot>], slot: Slot) {
        let hash = self.hash(&slot.route.id, &slot.route.vendor.name);
        put(&mut shards[shard_of(hash)], hash, slot, |slot| self.hash(&slot.route.id, &slot.route.vendor.name));
    }
}

fn put(shard: &mut HashTable<Slot>, hash: u64, slot: Slot, rehash: impl Fn(&Slot) -> u64) -> Option<Arc<Route>> {
    if let Some(existing) = shard.find_mut(hash, |old| is(&old.route, &slot.route.id, &slot.route.vendor.name)) {
        return Some(std::mem::replace(existing, slot).route);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::config::{LimitKind, Sources};

    /// Holders of a route see that it was replaced, and what was learned of the vendor goes on.
    #[test]
    fn route_is_current_until_its_tenant_changes() {
        let tenant = |id: &str| TenantEntry::new(id, "github");
        let config = Config::load(&Sources::new().tenants([tenant("a")]), 1).unwrap();
        let table = RouteTable::new();
        table.replace_all(&config).unwrap();
        let first = table.find("a", "github").unwrap();
        first.answered_in(std::time::Duration::from_millis(30));
        table.insert(config.vendors(), &tenant("b")).unwrap();
        assert!(first.is_current(), "another tenant is none of its business");
        assert_eq!(table.find("b", "github").unwrap().service_ns(), 30_000_000);

        let (second, _) = table.insert(config.vendors(), &tenant("a").weight(2)).unwrap();
        assert!(!first.is_current() && second.is_current());
        table.replace_all(&config.reload(&Sources::new().tenants([tenant("a")])).unwrap()).unwrap();
        let third = table.find("a", "github").unwrap();
        assert!(!second.is_current() && third.is_current());
        assert_eq!(third.service_ns(), 30_000_000, "the vendor is where it was");
        table.remove("a", "github").unwrap();
        assert!(!third.is_current());
    }

    #[test]
    fn reload_reports_changes_and_keeps_added_tenants() {
        let tenant = |id: &str| TenantEntry::new(id, "github");
        let first = Config::load(&Sources::new().tenants([tenant("a"), tenant("b"), tenant("c")]), 1).unwrap();
        let table = RouteTable::new();
        assert_eq!(table.replace_all(&first).unwrap().added.len(), 3);
        table.insert(first.vendors(), &tenant("added").limit("rest", 10)).unwrap();

        let second = first.reload(&Sources::new().tenants([tenant("a"), tenant("b").weight(2), tenant("d")])).unwrap();
        assert_eq!(second.version(), 2);
        assert_ne!(first.hash(), second.hash());
        assert!(Arc::ptr_eq(&first.vendor("github", "live").unwrap(), &second.vendor("github", "live").unwrap()));
        let changes = table.replace_all(&second).unwrap();
        let ids = |routes: &[Arc<Route>]| routes.iter().map(|route| route.id.to_string()).collect::<Vec<_>>();
        assert_eq!(
            (ids(&changes.added), ids(&changes.changed), ids(&changes.removed)),
            (vec!["d".into()], vec!["b".into()], vec!["c".into()])
        );
        let vendor = &table.get("added", "github").unwrap().vendor;
        let of_endpoints = vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits);
        let rest = vendor.limits.iter().chain(of_endpoints).find(|limit| &*limit.name == "rest").unwrap();
        assert!(matches!(&rest.kind, LimitKind::Rate(rate) if rate.limit == 10), "{rest:?}");
        assert_eq!(table.get("c", "github").unwrap_err().kind(), ErrorKind::UnknownTenant);
        assert_eq!(table.len(), 4);
        assert!(table.remove("added", "github").is_some());
        assert!(table.find("added", "github").is_none());

        table.insert(second.vendors(), &tenant("added")).unwrap();
        let gone = "[vendors.other]\nbase_url = \"https://other.example\"\n";
        let third = second.reload(&Sources::new().without_catalogue().file("f.toml", gone)).unwrap();
        assert!(table.replace_all(&third).is_err(), "a tenant that was added has lost its vendor");
        assert_eq!(table.len(), 4, "and nothing changed");
    }
}
