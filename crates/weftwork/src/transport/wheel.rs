//! A hashed timer wheel of intrusive lists, for deadlines of connections. Arming and disarming allocate nothing, and
//! moving a deadline later costs nothing.
//!
//! An entry is in the slot of a time at or before its real deadline. When the slot is due, the owner compares with the
//! real deadline, and arms the entry again if the deadline has moved. A keep-alive connection moves its deadline at
//! every request, and touches the wheel once per rotation.

use super::deadlines::Tick;

/// Width of a slot: 64 ms. No deadline here is finer than that. 512 slots cover more than half a minute.
const SLOT_MILLIS: u64 = 64;
const SLOTS: u64 = 512;
const NONE: u32 = u32::MAX;

/// Position of an entry in the wheel, stored by its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    previous: u32,
    next: u32,
    /// Number of the slot since the start, not modulo. `u64::MAX` means that the entry is not in the wheel.
    slot: u64,
}

impl Default for Link {
    fn default() -> Link {
        Link { previous: NONE, next: NONE, slot: u64::MAX }
    }
}

/// Access to the links of the entries, which the connection table stores.
pub(crate) trait Links {
    fn link(&mut self, entry: u32) -> &mut Link;
}

#[derive(Debug)]
pub(crate) struct Wheel {
    heads: Box<[u32]>,
    /// A set bit means that the slot's list is not empty.
    filled: [u64; (SLOTS / 64) as usize],
    /// All slots before this one were emptied.
    cursor: u64,
}

impl Wheel {
    pub(crate) fn new(now: Tick) -> Wheel {
        Wheel {
            heads: vec![NONE; SLOTS as usize].into_boxed_slice(),
            filled: [0; (SLOTS / 64) as usize],
            cursor: now.0 / SLOT_MILLIS,
        }
    }

    /// Arms `entry`, so that [`Wheel::expire`] returns it at `due` or earlier.
    pub(crate) fn arm(&mut self, links: &mut impl Links, entry: u32, due: Tick) {
        // The time is rounded up. Otherwise the entry could come out early, and then be armed for the same slot again.
        let slot = (due.0 / SLOT_MILLIS + 1).clamp(self.cursor + 1, self.cursor + SLOTS - 1);
        let link = links.link(entry);
        if link.slot <= slot {
            return;
        }
        if link.slot != u64::MAX {
            self.disarm(links, entry);
        }
        let place = (slot % SLOTS) as usize;
        let next = std::mem::replace(&mut self.heads[place], entry);
        *links.link(entry) = Link { previous: NONE, next, slot };
        if next != NONE {
            links.link(next).previous = entry;
        }
        self.filled[place / 64] |= 1 << (place % 64);
    }

    pub(crate) fn disarm(&mut self, links: &mut impl Links, entry: u32) {
        let link = std::mem::take(links.link(entry));
        if link.slot == u64::MAX {
            return;
        }
        if link.next != NONE {
            links.link(link.next).previous = link.previous;
        }
        if link.previous != NONE {
            links.link(link.previous).next = link.next;
            return;
        }
        let place = (link.slot % SLOTS) as usize;
        self.heads[place] = link.next;
        if link.next == NONE {
            self.filled[place / 64] &= !(1 << (place % 64));
        }
    }

    /// Removes an entry whose slot has passed. The owner drops it or arms it again.
    pub(crate) fn expire(&mut self, links: &mut impl Links, now: Tick) -> Option<u32> {
        let end = now.0 / SLOT_MILLIS;
        while self.cursor <= end {
            let place = (self.cursor % SLOTS) as usize;
            if self.heads[place] != NONE {
                let entry = self.heads[place];
                self.disarm(links, entry);
                return Some(entry);
            }
            self.cursor = match self.next_filled() {
                Some(slot) => slot.min(end + 1),
                None => end + 1,
            };
        }
        None
    }

    /// Returns when the next slot with an entry is due.
    pub(crate) fn next(&self) -> Option<Tick> {
        self.next_filled().map(|slot| Tick(slot * SLOT_MILLIS))
    }

    fn next_filled(&self) -> Option<u64> {
        let words = self.filled.len();
        let start = (self.cursor % SLOTS) as usize;
        (0..=words).find_map(|step| {
            let word = (start / 64 + step) % words;
            let mut bits = self.filled[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            let place = (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)?;
            Some(self.cursor + (place as u64 + SLOTS - start as u64) % SLOTS)
        })
    }
}

#[cfg(test)]
mod tests;
