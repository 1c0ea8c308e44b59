//! Where something lies that any of several threads may take, when an event for it comes to them.

use super::sync::{AtomicCell, AtomicUsize, Ordering};

/// A place for one thing at a time. Whoever takes it from there has it alone. Each that has the place is its owner by a number,
/// since an event may come late, when the next one has it.
pub(super) struct Place<T> {
    cell: AtomicCell<Option<T>>,
    /// The number of the owner, and what was told of it while it was out, and is not told again: [`CAME`], [`ENDED`], both
    /// or nothing. One word, so that what comes late is not noted for the next owner.
    state: AtomicUsize,
}

const CAME: usize = 1;
const ENDED: usize = 2;
const MISSED: usize = CAME | ENDED;
const MISSED_BITS: u32 = 2;

/// Numbers of owners are not above it.
pub(super) const OWNER_MAX: usize = usize::MAX >> MISSED_BITS;

impl<T> Place<T> {
    pub(super) fn new(owner: usize) -> Place<T> {
        Place { cell: AtomicCell::new(None), state: AtomicUsize::new(owner << MISSED_BITS) }
    }

    pub(super) fn owner(&self) -> usize {
        self.state.load(Ordering::SeqCst) >> MISSED_BITS
    }

    /// Takes what lies there, for an event of this owner's that has come; `ended`: it is the last one. None: it is out, and
    /// whoever puts it back will be told; or the place is another's.
    pub(super) fn take(&self, owner: usize, ended: bool) -> Option<T> {
        if self.owner() != owner {
            return None;
        }
        self.cell.swap(None).or_else(|| {
            let missed = if ended { MISSED } else { CAME };
            // A swap of the cell is on both sides of this, here and in `put`: whichever comes later sees the other.
            self.change(owner, |state| state | missed)?;
            self.cell.swap(None)
        })
    }

    /// Puts the owner there. It comes back when an event was missed meanwhile, with whether that was the last one. What comes
    /// back may be the next owner by then.
    pub(super) fn put(&self, owner: usize, value: T) -> Option<(T, bool)> {
        self.cell.swap(Some(value));
        // Somebody may have taken it already, and passed the place on.
        let missed = self.change(owner, |state| state & !MISSED)? & MISSED;
        let ended = missed & ENDED != 0;
        // Somebody may have been quicker, for another event, and not know of this one: then it is missed again.
        if missed == 0 { None } else { self.take(owner, ended).map(|value| (value, ended)) }
    }

    /// Takes what lies there for good.
    pub(super) fn withdraw(&self) -> Option<T> {
        self.cell.swap(None)
    }

    /// The place is the next one's, who is not told of what this one has missed. False: it was not this one's any more.
    pub(super) fn pass_on(&self, owner: usize, next: usize) -> bool {
        self.change(owner, |_| next << MISSED_BITS).is_some()
    }

    /// What the state was before. None: the place is another's, and nothing is changed.
    fn change(&self, owner: usize, to: impl Fn(usize) -> usize) -> Option<usize> {
        let changed = |state: usize| (state >> MISSED_BITS == owner).then(|| to(state));
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed).ok()
    }
}
