//! Slots with stable, checked ids.
//!
//! Chunked, so that growing neither copies nor doubles: a million idle lanes must not cost the memory of two million,
//! nor stall a sender while they move.

const CHUNK: usize = 256;

/// An id of something in a [`Slab`]; of another thing once its slot was used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) index: u32,
    generation: u32,
}

impl Key {
    /// The key of nothing.
    pub(crate) const NONE: Key = Key { index: u32::MAX, generation: 0 };
}

/// Begins a line of the processor's cache: a lane, looked up among a million, then takes two misses and not three.
#[repr(align(64))]
struct Slot<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// Values by [`Key`]. Free slots are used again, last freed first.
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    free: u32,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Slab<T> {
        Slab { chunks: Vec::new(), free: u32::MAX, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One past the highest index that was ever used.
    pub(crate) fn end(&self) -> u32 {
        match self.chunks.last() {
            Some(last) => ((self.chunks.len() - 1) * CHUNK + last.len()) as u32,
            None => 0,
        }
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if self.free != u32::MAX {
            let index = self.free;
            let slot = self.slot_mut(index).expect("the free list holds slots of the slab");
            slot.value = Some(value);
            let key = Key { index, generation: slot.generation };
            self.free = slot.next_free;
            return key;
        }
        let index = self.end();
        if self.chunks.last().is_none_or(|last| last.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let last = self.chunks.last_mut().expect("a chunk was just ensured");
        last.push(Slot { generation: 0, next_free: u32::MAX, value: Some(value) });
        Key { index, generation: 0 }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let free = self.free;
        let slot = self.slot_mut(key.index)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next_free = free;
        self.free = key.index;
        self.len -= 1;
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slot(key.index)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slot_mut(key.index)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    /// The value in a slot, whatever its generation.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.slot(index)?.value.as_ref()
    }

    /// The current key of a slot that holds something.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slot(index)?;
        slot.value.as_ref().map(|_| Key { index, generation: slot.generation })
    }

    /// Keys of everything inside, in slot order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        (0..self.end()).filter_map(|index| self.key_at(index))
    }
}

impl<T> std::ops::Index<Key> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, key: Key) -> &T {
        self.get(key).expect("the key was taken from live state of the same engine")
    }
}

impl<T> std::ops::IndexMut<Key> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, key: Key) -> &mut T {
        self.get_mut(key).expect("the key was taken from live state of the same engine")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_is_used_again_under_another_key() {
        let mut slab = Slab::new();
        let a = slab.insert('a');
        let b = slab.insert('b');
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        let c = slab.insert('c');
        assert_eq!(c.index, a.index);
        assert_eq!((slab.get(a), slab.get(b), slab.get(c)), (None, Some(&'b'), Some(&'c')));
        assert_eq!(slab.keys().collect::<Vec<_>>(), [c, b]);
    }

    #[test]
    fn it_grows_past_a_chunk() {
        let mut slab = Slab::new();
        let keys: Vec<Key> = (0..3 * CHUNK + 1).map(|n| slab.insert(n)).collect();
        assert!(keys.iter().enumerate().all(|(n, key)| slab[*key] == n));
        assert_eq!(slab.end() as usize, 3 * CHUNK + 1);
        assert_eq!(slab.len(), 3 * CHUNK + 1);
    }
}
