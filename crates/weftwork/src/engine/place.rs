//! Where something lies that any of several threads may take, when an event for it comes to them.

use super::sync::{AtomicBool, AtomicCell, Ordering};

/// A place for one thing. Whoever takes it from there has it alone.
pub(super) struct Place<T> {
    cell: AtomicCell<Option<T>>,
    /// An event has come while the thing was out. It does not come again.
    missed: AtomicBool,
}

impl<T> Place<T> {
    pub(super) fn new() -> Place<T> {
        Place { cell: AtomicCell::new(None), missed: AtomicBool::new(false) }
    }

    /// Takes what lies there, for an event that has come. None: it is out, and whoever puts it back will be told.
    pub(super) fn take(&self) -> Option<T> {
        self.cell.swap(None).or_else(|| {
            // Swapped, not stored: of this and the swap that puts it back, the later one sees the other.
            self.missed.swap(true, Ordering::SeqCst);
            self.cell.swap(None)
        })
    }

    /// Puts it there. It comes back when an event was missed meanwhile.
    pub(super) fn put(&self, value: T) -> Option<T> {
        self.cell.swap(Some(value));
        if self.missed.swap(false, Ordering::SeqCst) { self.cell.swap(None) } else { None }
    }

    /// Takes what lies there for good.
    pub(super) fn withdraw(&self) -> Option<T> {
        self.cell.swap(None)
    }
}
