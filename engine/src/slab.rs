//! Slots with stable, checked keys.
//!
//! Slots are in chunks, so that growing neither copies nor doubles: a million idle lanes must not cost the memory of
//! two million, nor delay a sender while they are moved. An empty chunk is returned to the system.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::marker::PhantomData;

const CHUNK: usize = 512;

/// The key of a value in a [`Slab`]; it fits nothing once the value was removed. `M` is the kind of value (`keys.rs`):
/// the key of a waiter is not accepted as that of a permit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key<M> {
    pub index: u32,
    generation: u32,
    of: PhantomData<M>,
}

impl<M: Copy> Key<M> {
    /// The key of nothing: no slab has a value under it.
    pub const NONE: Key<M> = Key::new(u32::MAX, 0);

    #[inline(always)]
    const fn new(index: u32, generation: u32) -> Key<M> {
        Key { index, generation, of: PhantomData }
    }

    /// The key as one number, for [`from_bits`](Self::from_bits).
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub fn from_bits(bits: u64) -> Key<M> {
        Key::new(bits as u32, (bits >> 32) as u32)
    }
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Up to [`CHUNK`] slots; no memory if all slots were empty at the last [`Slab::shrink`].
type Chunk<T> = Vec<Slot<T>>;

/// The bookkeeping of a chunk. Kept apart from `chunks`, so that a look-up among a million slots finds the chunk's
/// address in a cache.
struct Book {
    /// Slots that hold a value, one bit each.
    taken: [u64; CHUNK / 64],
    used: u32,
    /// The generation of newly made slots: later than those of all slots that were here before.
    base: u32,
}

impl Book {
    fn has_room(&self) -> bool {
        (self.used as usize) < CHUNK
    }

    /// Takes the lowest free slot. There must be one.
    #[inline(always)]
    fn take(&mut self) -> usize {
        let word = self.taken.iter().position(|word| *word != u64::MAX).unwrap_or_default();
        let bit = self.taken[word].trailing_ones();
        self.taken[word] |= 1 << bit;
        self.used += 1;
        64 * word + bit as usize
    }

    fn give_back(&mut self, slot: usize) {
        self.taken[slot / 64] &= !(1 << (slot % 64));
        self.used -= 1;
    }
}

/// Values by [`Key`]. A new value gets the lowest free index, so that higher chunks become empty and can be freed, and
/// so that indexes, which break some ties, do not depend on when that happens.
pub(crate) struct Slab<M, T> {
    chunks: Vec<Chunk<T>>,
    /// One for each chunk.
    books: Vec<Book>,
    /// Chunks with free slots, each once, lowest first.
    roomy: BinaryHeap<Reverse<u32>>,
    len: usize,
    /// The generation of slots in newly made chunks.
    base: u32,
    of: PhantomData<M>,
}

impl<M: Copy, T> Slab<M, T> {
    pub(crate) const fn new() -> Slab<M, T> {
        Slab { chunks: Vec::new(), books: Vec::new(), roomy: BinaryHeap::new(), len: 0, base: 0, of: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One past the highest index that is in memory.
    pub(crate) fn end(&self) -> u32 {
        let last = self.chunks.iter().rposition(|chunk| !chunk.is_empty());
        last.map_or(0, |last| (last * CHUNK + self.chunks[last].len()) as u32)
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, value: T) -> Key<M> {
        self.len += 1;
        let number = match self.roomy.peek() {
            Some(Reverse(lowest)) => *lowest,
            None => self.add_chunk(),
        };
        let (chunk, book) = (&mut self.chunks[number as usize], &mut self.books[number as usize]);
        let at = book.take();
        if !book.has_room() {
            self.roomy.pop();
        }
        let index = number * CHUNK as u32 + at as u32;
        if let Some(slot) = chunk.get_mut(at) {
            slot.value = Some(value);
            return Key::new(index, slot.generation);
        }
        if chunk.capacity() == 0 {
            chunk.reserve_exact(CHUNK);
        }
        chunk.push(Slot { generation: book.base, value: Some(value) });
        Key::new(index, book.base)
    }

    #[cold]
    fn add_chunk(&mut self) -> u32 {
        let number = self.chunks.len() as u32;
        self.chunks.push(Chunk::new());
        self.books.push(Book { taken: [0; CHUNK / 64], used: 0, base: self.base });
        self.roomy.push(Reverse(number));
        number
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: Key<M>) -> Option<T> {
        let value = self.get_mut_slot(key)?.value.take()?;
        self.free(key.index);
        Some(value)
    }

    /// Like [`remove`](Self::remove), for values that are not needed whole: `read` runs in place, and nothing is
    /// copied.
    #[inline(always)]
    pub(crate) fn discard<R>(&mut self, key: Key<M>, read: impl FnOnce(&T) -> R) -> Option<R> {
        let slot = self.get_mut_slot(key)?;
        let read = read(slot.value.as_ref()?);
        slot.value = None;
        self.free(key.index);
        Some(read)
    }

    #[inline]
    fn get_mut_slot(&mut self, key: Key<M>) -> Option<&mut Slot<T>> {
        self.slot_mut(key.index).filter(|slot| slot.generation == key.generation)
    }

    /// Frees the slot at this index, which has just been emptied.
    #[inline]
    fn free(&mut self, index: u32) {
        let (number, at) = (index as usize / CHUNK, index as usize % CHUNK);
        if let Some(slot) = self.slot_mut(index) {
            slot.generation = slot.generation.wrapping_add(1);
        }
        let Some(book) = self.books.get_mut(number) else { return };
        if !book.has_room() {
            self.roomy.push(Reverse(number as u32));
        }
        book.give_back(at);
        self.len -= 1;
    }

    #[inline]
    pub(crate) fn get(&self, key: Key<M>) -> Option<&T> {
        let slot = self.slot(key.index)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key<M>) -> Option<&mut T> {
        self.get_mut_slot(key)?.value.as_mut()
    }

    /// The value in a slot, whatever its generation.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.slot(index)?.value.as_ref()
    }

    /// The current key of the value in a slot.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key<M>> {
        let slot = self.slot(index)?;
        slot.value.as_ref().map(|_| Key::new(index, slot.generation))
    }

    /// The keys of all values, in the order of their slots.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key<M>> + '_ {
        let in_use = (0..).zip(&self.books).filter(|(_, book)| book.used > 0);
        in_use.flat_map(|(number, _)| (number * CHUNK as u32..).take(CHUNK)).filter_map(|index| self.key_at(index))
    }

    /// Frees the memory of at most `most` empty chunks. Returns whether there may be more.
    pub(crate) fn shrink(&mut self, mut most: usize) -> bool {
        // From the end, so that trailing chunks can be dropped altogether.
        for (chunk, book) in self.chunks.iter_mut().zip(&mut self.books).rev() {
            if book.used > 0 || chunk.is_empty() {
                continue;
            }
            if most == 0 {
                return true;
            }
            most -= 1;
            // An old key must not fit a new slot. Generations wrap around, so they are counted from `base`.
            let generations = chunk.iter().map(|slot| slot.generation.wrapping_sub(book.base));
            book.base = book.base.wrapping_add(generations.max().unwrap_or_default()).wrapping_add(1);
            *chunk = Chunk::new();
        }
        let left = self.chunks.iter().rposition(|chunk| !chunk.is_empty()).map_or(0, |last| last + 1);
        self.chunks.truncate(left);
        for gone in self.books.drain(left..) {
            if (gone.base.wrapping_sub(self.base) as i32) > 0 {
                self.base = gone.base;
            }
        }
        if self.chunks.capacity() > 64 && self.chunks.capacity() / 4 > left {
            self.chunks.shrink_to(2 * left);
            self.books.shrink_to(2 * left);
        }
        self.roomy.retain(|Reverse(number)| (*number as usize) < left);
        if self.roomy.capacity() > 64 && self.roomy.capacity() / 4 > self.roomy.len() {
            self.roomy.shrink_to(2 * self.roomy.len());
        }
        false
    }
}

impl<M: Copy, T> std::ops::Index<Key<M>> for Slab<M, T> {
    type Output = T;

    #[inline]
    fn index(&self, key: Key<M>) -> &T {
        self.get(key).expect("the key was taken from live state of the same engine")
    }
}

impl<M: Copy, T> std::ops::IndexMut<Key<M>> for Slab<M, T> {
    #[inline]
    fn index_mut(&mut self, key: Key<M>) -> &mut T {
        self.get_mut(key).expect("the key was taken from live state of the same engine")
    }
}

/// The capacity to keep, if far more is reserved than is in use.
pub fn excess(capacity: usize, len: usize) -> Option<usize> {
    (capacity > 64 && len < capacity / 8).then_some(2 * len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_slot_gets_another_key() {
        let mut slab = Slab::<(), _>::new();
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
    fn slab_grows_past_a_chunk() {
        let mut slab = Slab::<(), _>::new();
        let keys: Vec<Key<()>> = (0..3 * CHUNK + 1).map(|n| slab.insert(n)).collect();
        assert!(keys.iter().enumerate().all(|(n, key)| slab[*key] == n));
        assert_eq!(slab.end() as usize, 3 * CHUNK + 1);
        assert_eq!(slab.len(), 3 * CHUNK + 1);
    }

    #[test]
    fn old_keys_stay_stale_after_chunks_return() {
        let mut slab = Slab::<(), _>::new();
        let mut random = fastrand::Rng::with_seed(3);
        let mut inside: Vec<(Key<()>, u32)> = Vec::new();
        let mut gone: Vec<Key<()>> = Vec::new();
        for round in 0..200u32 {
            // Waves: up to some thousands, down to a few or none.
            let target = if round % 2 == 0 { random.usize(0..3_000) } else { random.usize(0..2) * random.usize(0..40) };
            while inside.len() < target {
                let value = random.u32(..);
                inside.push((slab.insert(value), value));
            }
            while inside.len() > target {
                let (key, value) = inside.swap_remove(random.usize(0..inside.len()));
                assert_eq!(slab.remove(key), Some(value));
                gone.push(key);
            }
            while slab.shrink(3) {}
            let chunks = slab.chunks.iter().filter(|chunk| !chunk.is_empty()).count();
            assert!(chunks <= inside.len(), "{chunks} chunks for {}", inside.len());
            assert!(!inside.is_empty() || (slab.end() == 0 && slab.chunks.is_empty()));
            assert!(inside.iter().all(|(key, value)| slab.get(*key) == Some(value)));
            assert!(gone.iter().all(|key| slab.get(*key).is_none()), "a key of before fits again");
            let mut expected: Vec<Key<()>> = inside.iter().map(|(key, _)| *key).collect();
            expected.sort_unstable_by_key(|key| key.index);
            assert_eq!(slab.keys().collect::<Vec<_>>(), expected);
            assert_eq!(slab.len(), inside.len());
            gone.truncate(20_000);
        }
    }

    #[test]
    fn lowest_free_slot_is_used_first() {
        let mut slab = Slab::<(), _>::new();
        let keys: Vec<Key<()>> = (0..3 * CHUNK).map(|n| slab.insert(n)).collect();
        for key in [keys[2 * CHUNK + 5], keys[7], keys[CHUNK], keys[3]] {
            slab.remove(key);
        }
        let again: Vec<u32> = (0..4).map(|n| slab.insert(n).index).collect();
        assert_eq!(again, [3, 7, CHUNK as u32, 2 * CHUNK as u32 + 5]);
    }
}
