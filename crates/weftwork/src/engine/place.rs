//! Where something lies that any of several threads may take, when an event for it comes to them.

use super::sync::{AtomicCell, AtomicU8, Ordering};

/// A place for one thing. Whoever takes it from there has it alone.
pub(super) struct Place<T> {
    cell: AtomicCell<Option<T>>,
    /// What was told of the thing while it was out, and is not told again: [`CAME`], [`ENDED`], both or nothing.
    missed: AtomicU8,
}

const CAME: u8 = 1;
const ENDED: u8 = 2;

impl<T> Place<T> {
    pub(super) fn new() -> Place<T> {
        Place { cell: AtomicCell::new(None), missed: AtomicU8::new(0) }
    }

    /// Takes what lies there, for an event that has come; `ended`: it is the last one. None: it is out, and whoever puts it
    /// back will be told.
    pub(super) fn take(&self, ended: bool) -> Option<T> {
        self.cell.swap(None).or_else(|| {
            // A swap of the cell is on both sides of this one, here and in `put`: whichever comes later sees the other.
            self.missed.fetch_or(if ended { CAME | ENDED } else { CAME }, Ordering::SeqCst);
            self.cell.swap(None)
        })
    }

    /// Puts it there. It comes back when an event was missed meanwhile, with whether that was the last one.
    pub(super) fn put(&self, value: T) -> Option<(T, bool)> {
        self.cell.swap(Some(value));
        let missed = self.missed.swap(0, Ordering::SeqCst);
        let ended = missed & ENDED != 0;
        // Somebody may have been quicker, for another event, and not know of this one: then it is missed again.
        if missed == 0 { None } else { self.take(ended).map(|value| (value, ended)) }
    }

    /// Whoever has the place next is not told of what its last owner has missed.
    pub(super) fn forget(&self) {
        self.missed.store(0, Ordering::SeqCst);
    }

    /// Takes what lies there for good.
    pub(super) fn withdraw(&self) -> Option<T> {
        self.cell.swap(None)
    }
}
