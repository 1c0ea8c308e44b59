//! A slab with generations: a stale key finds nothing.

/// A key of a value in a [`Slab`]. After the value is gone, the key never finds another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Index of the slot, which is reused after its value is gone.
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A table whose keys have a generation.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Key { index, generation: slot.generation };
        }
        let index =
            u32::try_from(self.slots.len()).unwrap_or_else(|_| panic!("more than 2^32 fibers or sources"));
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Key { index, generation: 0 }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.slots.get(key.index()).filter(|slot| slot.generation == key.generation)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key.index()).filter(|slot| slot.generation == key.generation)?.value.as_mut()
    }

    /// Returns the current value in slot `index`.
    pub(crate) fn at_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slots.get_mut(index)?.value.as_mut()
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index()).filter(|slot| slot.generation == key.generation)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    /// Returns the keys of all values, in any order.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let taken = |(index, slot): (usize, &Slot<T>)| {
            slot.value.as_ref().map(|_| Key { index: index as u32, generation: slot.generation })
        };
        self.slots.iter().enumerate().filter_map(taken).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab = Slab::new();
        let old = slab.insert('a');
        assert_eq!(slab.remove(old), Some('a'));
        let new = slab.insert('b');
        assert_eq!(old.index(), new.index());
        assert_eq!((slab.get(old), slab.get(new)), (None, Some(&'b')));
        assert_eq!((slab.remove(old), slab.len()), (None, 1));
    }

    #[test]
    fn keys_name_the_values_that_are_there() {
        let mut slab = Slab::new();
        let keys = [slab.insert(1), slab.insert(2), slab.insert(3)];
        slab.remove(keys[1]);
        assert_eq!(slab.keys(), [keys[0], keys[2]]);
    }
}
