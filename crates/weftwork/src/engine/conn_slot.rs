//! A slot from which any thread may take a connection when it gets an event for it.

use super::sync::{AtomicCell, AtomicUsize, Ordering};

/// Holds one value. The thread that takes the value has it alone. Each connection that uses the slot has a generation
/// number, since an event may come late, when the next connection has the slot.
pub(super) struct ConnSlot<T> {
    cell: AtomicCell<Option<T>>,
    /// The generation, and the events that came while the value was out: [`READABLE`], [`CLOSED`], both or neither.
    /// One word, so that a late event is not noted for the next generation.
    state: AtomicUsize,
}

const READABLE: usize = 1;
const CLOSED: usize = 2;
const PENDING: usize = READABLE | CLOSED;
const PENDING_BITS: u32 = 2;

/// Largest generation number.
pub(super) const GENERATION_MAX: usize = usize::MAX >> PENDING_BITS;

impl<T> ConnSlot<T> {
    pub(super) fn new(generation: usize) -> ConnSlot<T> {
        ConnSlot { cell: AtomicCell::new(None), state: AtomicUsize::new(generation << PENDING_BITS) }
    }

    pub(super) fn generation(&self) -> usize {
        self.state.load(Ordering::SeqCst) >> PENDING_BITS
    }

    /// Takes the value, for an event of this generation. `ended`: it is the last event. `None`: the value is out, and
    /// the thread that puts it back will see the event. Or the slot has another generation.
    pub(super) fn take(&self, generation: usize, ended: bool) -> Option<T> {
        if self.generation() != generation {
            return None;
        }
        self.cell.swap(None).or_else(|| {
            let missed = if ended { PENDING } else { READABLE };
            // Here and in `put`, the cell is swapped before and after the state changes: the later thread sees the
            // change of the other.
            self.change(generation, |state| state | missed)?;
            self.cell.swap(None)
        })
    }

    /// Puts the value back. Returns a value if an event was missed meanwhile, and whether that was the last event.
    /// The value may be of the next generation.
    pub(super) fn put(&self, generation: usize, value: T) -> Option<(T, bool)> {
        self.cell.swap(Some(value));
        // Another thread may have taken the value already, and have freed the slot.
        let missed = self.change(generation, |state| state & !PENDING)? & PENDING;
        let ended = missed & CLOSED != 0;
        // Another thread may have taken the value for another event, and not know of this one: then the event is
        // missed again.
        if missed == 0 { None } else { self.take(generation, ended).map(|value| (value, ended)) }
    }

    /// Takes the value for good.
    pub(super) fn withdraw(&self) -> Option<T> {
        self.cell.swap(None)
    }

    /// Gives the slot to the next generation, without the events that this one has missed. False: the slot was not of
    /// this generation.
    pub(super) fn reuse(&self, generation: usize, next: usize) -> bool {
        self.change(generation, |_| next << PENDING_BITS).is_some()
    }

    /// Returns the state before the change. `None`: the slot is of another generation, and nothing is changed.
    fn change(&self, generation: usize, to: impl Fn(usize) -> usize) -> Option<usize> {
        let changed = |state: usize| (state >> PENDING_BITS == generation).then(|| to(state));
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed).ok()
    }
}
