//! A slot from which any of several threads may take a connection, when an event for it comes to them.

use super::sync::{AtomicCell, AtomicUsize, Ordering};

/// A place for one thing at a time. Whoever takes it from there has it alone. Each that has the place is its generation by a number,
/// since an event may come late, when the next one has it.
pub(super) struct ConnSlot<T> {
    cell: AtomicCell<Option<T>>,
    /// The number of the generation, and what was told of it while it was out, and is not told again: [`READABLE`], [`CLOSED`], both
    /// or nothing. One word, so that what comes late is not noted for the next generation.
    state: AtomicUsize,
}

const READABLE: usize = 1;
const CLOSED: usize = 2;
const PENDING: usize = READABLE | CLOSED;
const PENDING_BITS: u32 = 2;

/// Numbers of owners are not above it.
pub(super) const GENERATION_MAX: usize = usize::MAX >> PENDING_BITS;

impl<T> ConnSlot<T> {
    pub(super) fn new(generation: usize) -> ConnSlot<T> {
        ConnSlot { cell: AtomicCell::new(None), state: AtomicUsize::new(generation << PENDING_BITS) }
    }

    pub(super) fn generation(&self) -> usize {
        self.state.load(Ordering::SeqCst) >> PENDING_BITS
    }

    /// Takes what lies there, for an event of this generation's that has come; `ended`: it is the last one. None: it is out, and
    /// the thread that puts it back will be told. Or the slot is another's.
    pub(super) fn take(&self, generation: usize, ended: bool) -> Option<T> {
        if self.generation() != generation {
            return None;
        }
        self.cell.swap(None).or_else(|| {
            let missed = if ended { PENDING } else { READABLE };
            // A swap of the cell is on both sides of this, here and in `put`: whichever comes later sees the other.
            self.change(generation, |state| state | missed)?;
            self.cell.swap(None)
        })
    }

    /// Puts the generation there. It comes back when an event was missed meanwhile, with whether that was the last one. What comes
    /// back may be the next generation by then.
    pub(super) fn put(&self, generation: usize, value: T) -> Option<(T, bool)> {
        self.cell.swap(Some(value));
        // Somebody may have taken it already, and passed the place on.
        let missed = self.change(generation, |state| state & !PENDING)? & PENDING;
        let ended = missed & CLOSED != 0;
        // Somebody may have been quicker, for another event, and not know of this one: then it is missed again.
        if missed == 0 { None } else { self.take(generation, ended).map(|value| (value, ended)) }
    }

    /// Takes what lies there for good.
    pub(super) fn withdraw(&self) -> Option<T> {
        self.cell.swap(None)
    }

    /// The place is the next one's, who is not told of what this one has missed. False: it was not this one's any more.
    pub(super) fn reuse(&self, generation: usize, next: usize) -> bool {
        self.change(generation, |_| next << PENDING_BITS).is_some()
    }

    /// What the state was before. None: the place is another's, and nothing is changed.
    fn change(&self, generation: usize, to: impl Fn(usize) -> usize) -> Option<usize> {
        let changed = |state: usize| (state >> PENDING_BITS == generation).then(|| to(state));
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed).ok()
    }
}
