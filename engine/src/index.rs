//! Finds the slab index of a lane by the hash of its ids.
//!
//! Open addressing with linear probing over entries of eight bytes, each with half of the hash and the index. A lookup
//! among a million lanes then costs one cache miss before the lane itself; a table with separate control bytes
//! (hashbrown's) costs two. Growing reads the entries alone and not the lanes. Removing moves later entries up, so
//! there are no tombstones.

/// Slab indexes by hash. Several entries may have the same hash: the caller tells them apart.
#[derive(Default)]
pub(crate) struct Index {
    /// The length is a power of two, and at most three quarters are in use.
    entries: Vec<Option<Entry>>,
    len: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    /// The slab index plus one, so that `Option<Entry>` takes no more room than an entry.
    place: std::num::NonZeroU32,
}

impl Entry {
    fn place(self) -> u32 {
        self.place.get() - 1
    }
}

impl Index {
    /// The low half of the hash; the high half chooses the shard.
    #[inline]
    fn half(hash: u64) -> u32 {
        hash as u32
    }

    #[inline]
    fn mask(&self) -> usize {
        self.entries.len().wrapping_sub(1)
    }

    fn position(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<usize> {
        let half = Index::half(hash);
        let mask = self.mask();
        let mut at = half as usize & mask;
        while let Some(entry) = (*self.entries.get(at)?).as_ref() {
            if entry.hash == half && is(entry.place()) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// The entry with this hash for which `is` returns `true`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.position(hash, is).and_then(|at| self.entries[at]).map(Entry::place)
    }

    /// Adds an index. `u32::MAX` cannot be stored and is ignored.
    pub(crate) fn insert(&mut self, hash: u64, place: u32) {
        let Some(place) = std::num::NonZeroU32::new(place.wrapping_add(1)) else { return };
        if (self.len + 1) * 4 > self.entries.len() * 3 {
            let entries = vec![None; (self.entries.len() * 2).max(8)];
            let old = std::mem::replace(&mut self.entries, entries);
            old.into_iter().flatten().for_each(|entry| self.put(entry));
        }
        self.put(Entry { hash: Index::half(hash), place });
        self.len += 1;
    }

    /// Frees memory if the table is far larger than its contents.
    pub(crate) fn shrink(&mut self) {
        if self.entries.len() > 64 && self.len * 8 < self.entries.len() {
            let room = if self.len == 0 { 0 } else { (self.len * 2).next_power_of_two().max(8) };
            let old = std::mem::replace(&mut self.entries, vec![None; room]);
            old.into_iter().flatten().for_each(|entry| self.put(entry));
        }
    }

    fn put(&mut self, entry: Entry) {
        let mask = self.mask();
        let mut at = entry.hash as usize & mask;
        while self.entries[at].is_some() {
            at = (at + 1) & mask;
        }
        self.entries[at] = Some(entry);
    }

    pub(crate) fn remove(&mut self, hash: u64, place: u32) {
        let Some(mut hole) = self.position(hash, |other| other == place) else { return };
        let mask = self.mask();
        let mut at = hole;
        self.len -= 1;
        self.entries[hole] = None;
        loop {
            at = (at + 1) & mask;
            let Some(entry) = self.entries[at] else { return };
            // Moves an entry into the hole if the hole lies between the start of its probe sequence and its position: a
            // search would stop at the hole and not find it.
            let from_home = at.wrapping_sub(entry.hash as usize) & mask;
            if from_home >= (at.wrapping_sub(hole) & mask) {
                self.entries[hole] = Some(entry);
                self.entries[at] = None;
                hole = at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn entry_takes_eight_bytes() {
        assert_eq!(size_of::<Option<Entry>>(), 8);
    }

    #[test]
    fn index_finds_what_a_map_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut index, mut map) = (Index::default(), HashMap::new());
        for step in 0..100_000_u32 {
            // Few hashes, so that they collide, and long runs of them, across the end of the table too.
            let hash = (random.u64(0..40) * 0x3333_3333) ^ random.u64(0..16);
            let place = random.u32(0..8);
            match map.remove(&(hash as u32, place)) {
                Some(()) => index.remove(hash, place),
                None if step % 3 > 0 => {
                    map.insert((hash as u32, place), ());
                    index.insert(hash, place);
                }
                None => {}
            }
            let asked = (random.u64(0..40) * 0x3333_3333) ^ random.u64(0..16);
            let place = random.u32(0..8);
            let found = index.find(asked, |other| other == place).is_some();
            assert_eq!(found, map.contains_key(&(asked as u32, place)), "step {step}");
            index.shrink();
        }
        assert_eq!(index.len, map.len());
    }

    #[test]
    fn room_is_given_back() {
        let mut index = Index::default();
        let hash = |n: u32| u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7;
        (0..10_000).for_each(|n| index.insert(hash(n), n));
        (10..10_000).for_each(|n| index.remove(hash(n), n));
        index.shrink();
        assert!(index.entries.len() <= 64, "{}", index.entries.len());
        assert!((0..10).all(|n| index.find(hash(n), |place| place == n) == Some(n)));
        (0..10).for_each(|n| index.remove(hash(n), n));
        index.insert(hash(3), 3);
        assert_eq!(index.find(hash(3), |_| true), Some(3));
    }
}
