//! The tenants, up to millions of them, changed one at a time while others are looked up.
//!
//! One hash of id and vendor, one map: two maps (id, then vendor) cost a second cache miss on every request. The table
//! is cut into shards so that adding a tenant stops the look-ups of one in 64 others for the moment that an insert
//! takes; nothing is cloned as a whole.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{Mutex, RwLock};

use super::vendor::Tenant;
use super::{Config, TenantEntry, Vendors, resolve_tenant, unknown};
use crate::Error;

const SHARDS: usize = 64;

#[derive(Clone, Debug)]
struct Slot {
    tenant: Arc<Tenant>,
    /// Added while running, not by the configuration: a reload leaves it.
    added: bool,
}

/// The tenants of a client. Look-ups take a read lock of one shard; nothing waits across an await.
///
/// ```
/// use integration_client::config::{Config, Sources, TenantEntry, TenantTable};
///
/// let config = Config::load(&Sources::new(), 1)?;
/// let tenants = TenantTable::new();
/// tenants.replace_all(&config)?;
/// tenants.insert(config.vendors(), &TenantEntry::new("acme", "github"))?;
/// assert_eq!(&*tenants.get("acme", "github")?.id, "acme");
/// # Ok::<(), integration_client::Error>(())
/// ```
#[derive(Debug)]
pub struct TenantTable {
    hasher: DefaultHashBuilder,
    shards: Box<[RwLock<HashTable<Slot>>]>,
    /// Held by the caller who changes the table, so that a reload and an insert do not interleave.
    changing: Mutex<()>,
}

/// What a reload changed.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    /// Tenants that were not there before.
    pub added: Vec<Arc<Tenant>>,
    /// Tenants whose vendor, limits, credential or weight differ, as they are now.
    pub changed: Vec<Arc<Tenant>>,
    /// Tenants that are gone, as they were.
    pub removed: Vec<Arc<Tenant>>,
}

impl Default for TenantTable {
    fn default() -> Self {
        TenantTable::new()
    }
}

impl TenantTable {
    /// An empty table.
    pub fn new() -> TenantTable {
        TenantTable {
            hasher: DefaultHashBuilder::default(),
            shards: (0..SHARDS).map(|_| RwLock::new(HashTable::new())).collect(),
            changing: Mutex::new(()),
        }
    }

    /// The tenant, or an error that names what is there.
    pub fn get(&self, id: &str, vendor: &str) -> Result<Arc<Tenant>, Error> {
        self.find(id, vendor).ok_or_else(|| {
            let small = self.len() <= unknown::SEARCHED;
            unknown::unknown_tenant(id, vendor, &if small { self.snapshot() } else { Vec::new() })
        })
    }

    /// The tenant, if it is there.
    pub fn find(&self, id: &str, vendor: &str) -> Option<Arc<Tenant>> {
        let hash = self.hash(id, vendor);
        let shard = self.shards[shard_of(hash)].read();
        shard.find(hash, |slot| is(&slot.tenant, id, vendor)).map(|slot| slot.tenant.clone())
    }

    /// How many tenants there are; a tenant at two vendors counts twice.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every tenant, shard by shard, in no order. A tenant that comes or goes meanwhile may be missed.
    pub fn snapshot(&self) -> Vec<Arc<Tenant>> {
        let mut out = Vec::with_capacity(self.len());
        for shard in &self.shards {
            out.extend(shard.read().iter().map(|slot| slot.tenant.clone()));
        }
        out
    }

    /// Adds a tenant, or changes the one of that id and vendor. It stays through reloads until it is removed.
    ///
    /// Returns the tenant now and, if there was one, before. On an error nothing changes.
    pub fn insert(&self, vendors: &Vendors, entry: &TenantEntry) -> Result<(Arc<Tenant>, Option<Arc<Tenant>>), Error> {
        let tenant = Arc::new(resolve_tenant(vendors, entry)?);
        let _changing = self.changing.lock();
        let before = self.put(Slot { tenant: tenant.clone(), added: true });
        Ok((tenant, before))
    }

    /// Removes a tenant and returns it. One that the configuration states comes back with the next reload.
    pub fn remove(&self, id: &str, vendor: &str) -> Option<Arc<Tenant>> {
        let _changing = self.changing.lock();
        let hash = self.hash(id, vendor);
        let mut shard = self.shards[shard_of(hash)].write();
        let entry = shard.find_entry(hash, |slot| is(&slot.tenant, id, vendor)).ok()?;
        let removed = entry.remove().0.tenant;
        // Of a million tenants who are gone the table would otherwise stay.
        let len = shard.len();
        if shard.capacity() > 64 && len < shard.capacity() / 8 {
            shard.shrink_to(2 * len, |slot| self.hash(&slot.tenant.id, &slot.tenant.vendor.name));
        }
        Some(removed)
    }

    /// How many parts there are, to be looked at one at a time.
    pub(crate) fn parts(&self) -> usize {
        self.shards.len()
    }

    /// Every tenant of one part.
    pub(crate) fn part(&self, number: usize) -> Vec<Arc<Tenant>> {
        self.shards[number].read().iter().map(|slot| slot.tenant.clone()).collect()
    }

    /// Puts the configuration's tenants in place of those of the configuration before, and says what changed.
    ///
    /// Tenants added while running stay, even where the configuration states the same one, and follow the new vendors.
    /// If one of them does not fit the new vendors, that is an error and nothing changes. A look-up during the change
    /// sees the old or the new tenant, never neither.
    pub fn replace_all(&self, config: &Config) -> Result<Changes, Error> {
        let _changing = self.changing.lock();
        let mut fresh: Vec<HashTable<Slot>> = (0..SHARDS).map(|_| HashTable::new()).collect();
        let added: Vec<Slot> = self
            .shards
            .iter()
            .flat_map(|shard| shard.read().iter().filter(|slot| slot.added).cloned().collect::<Vec<_>>())
            .collect();
        for slot in added {
            let tenant = resolve_tenant(config.vendors(), &slot.tenant.entry()).map_err(|error| {
                Error::config(format!("a tenant added while running does not fit the new configuration: {error}"))
            })?;
            self.put_in(&mut fresh, Slot { tenant: Arc::new(tenant), added: true });
        }
        for tenant in config.tenants() {
            let hash = self.hash(&tenant.id, &tenant.vendor.name);
            if fresh[shard_of(hash)].find(hash, |slot| is(&slot.tenant, &tenant.id, &tenant.vendor.name)).is_none() {
                self.put_in(&mut fresh, Slot { tenant: tenant.clone(), added: false });
            }
        }
        let mut changes = Changes::default();
        for (shard, mut fresh) in self.shards.iter().zip(fresh) {
            // Only writers change a shard, and they are held off: comparing under the read lock is enough.
            let old = shard.read();
            for slot in &mut fresh {
                let tenant = &slot.tenant;
                let hash = self.hash(&tenant.id, &tenant.vendor.name);
                match old.find(hash, |old| is(&old.tenant, &tenant.id, &tenant.vendor.name)) {
                    None => changes.added.push(tenant.clone()),
                    Some(old) if *old.tenant != **tenant => changes.changed.push(tenant.clone()),
                    Some(_) => {}
                }
            }
            for slot in old.iter() {
                let (id, vendor) = (&slot.tenant.id, &slot.tenant.vendor.name);
                if fresh.find(self.hash(id, vendor), |new| is(&new.tenant, id, vendor)).is_none() {
                    changes.removed.push(slot.tenant.clone());
                }
            }
            drop(old);
            *shard.write() = fresh;
        }
        Ok(changes)
    }

    #[inline]
    fn hash(&self, id: &str, vendor: &str) -> u64 {
        self.hasher.hash_one((id, vendor))
    }

    fn put(&self, slot: Slot) -> Option<Arc<Tenant>> {
        let hash = self.hash(&slot.tenant.id, &slot.tenant.vendor.name);
        let mut shard = self.shards[shard_of(hash)].write();
        put(&mut shard, hash, slot, |slot| self.hash(&slot.tenant.id, &slot.tenant.vendor.name))
    }

    fn put_in(&self, shards: &mut [HashTable<Slot>], slot: Slot) {
        let hash = self.hash(&slot.tenant.id, &slot.tenant.vendor.name);
        put(&mut shards[shard_of(hash)], hash, slot, |slot| self.hash(&slot.tenant.id, &slot.tenant.vendor.name));
    }
}

fn put(shard: &mut HashTable<Slot>, hash: u64, slot: Slot, rehash: impl Fn(&Slot) -> u64) -> Option<Arc<Tenant>> {
    if let Some(existing) = shard.find_mut(hash, |old| is(&old.tenant, &slot.tenant.id, &slot.tenant.vendor.name)) {
        return Some(std::mem::replace(existing, slot).tenant);
    }
    shard.insert_unique(hash, slot, rehash);
    None
}

fn is(tenant: &Tenant, id: &str, vendor: &str) -> bool {
    &*tenant.id == id && &*tenant.vendor.name == vendor
}

/// The table inside a shard uses the hash's top and bottom bits; the shard is chosen by some in the middle.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}
