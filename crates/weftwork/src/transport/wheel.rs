//! Which connections are due. A hashed wheel of intrusive lists: arming, disarming and moving a deadline
//! later cost no allocation, and moving it later costs nothing at all.
//!
//! An entry sits in the slot of a time at or before its real deadline. When the slot comes up, the owner
//! compares with the real one and arms again if it has moved. A keep-alive connection moves its deadline
//! at every request and touches the wheel once in a turn of it.

use super::clock::Tick;

/// A slot is 64 ms wide: no deadline here is finer than that, and 512 of them reach over half a minute.
const SLOT_MILLIS: u64 = 64;
const SLOTS: u64 = 512;
const NONE: u32 = u32::MAX;

/// An entry's place in the wheel, kept by its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    previous: u32,
    next: u32,
    /// The slot's number since the start, not modulo; `u64::MAX`: not in the wheel.
    slot: u64,
}

impl Default for Link {
    fn default() -> Link {
        Link { previous: NONE, next: NONE, slot: u64::MAX }
    }
}

/// Where the wheel finds the links of its entries: the connection table.
pub(crate) trait Links {
    fn link(&mut self, entry: u32) -> &mut Link;
}

#[derive(Debug)]
pub(crate) struct Wheel {
    heads: Box<[u32]>,
    /// Bit set: the slot's list is not empty.
    filled: [u64; (SLOTS / 64) as usize],
    /// All slots before this one have been taken out.
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

    /// Sees to it that `entry` comes out of [`Wheel::expire`] at `due`, or sooner.
    pub(crate) fn arm(&mut self, links: &mut impl Links, entry: u32, due: Tick) {
        // Rounded up: an entry must not come out before its time and then be armed for the same slot again.
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

    /// Takes out one entry whose slot has passed. The owner drops it, or arms it again.
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

    /// When the next slot with an entry comes up.
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
