//! What is left when descriptors are used up: one that was kept, to be given up for those who knock.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::clock::Tick;

/// A descriptor that means nothing, and since when there were no others.
#[derive(Debug)]
pub(crate) struct Spare {
    file: Mutex<Option<File>>,
    /// In milliseconds, plus one; 0: there are others.
    short_since: AtomicU64,
}

impl Spare {
    pub(crate) fn new() -> Spare {
        Spare { file: Mutex::new(keep()), short_since: AtomicU64::new(0) }
    }

    /// Descriptors are used up: since when. The first to find out is told so by `None`.
    pub(crate) fn note_shortage(&self, now: Tick) -> Option<Tick> {
        let before = self.short_since.compare_exchange(0, now.0 + 1, Ordering::Relaxed, Ordering::Relaxed);
        before.err().map(|since| Tick(since - 1))
    }

    /// There was one.
    #[inline]
    pub(crate) fn note_plenty(&self) {
        if self.short_since.load(Ordering::Relaxed) != 0 {
            self.short_since.store(0, Ordering::Relaxed);
        }
    }

    /// Runs `work` with one descriptor more than there was. Not when somebody else does so just now.
    pub(crate) fn lend(&self, work: impl FnOnce()) {
        let mut lent = match self.file.try_lock() {
            Ok(file) => Lent(file),
            Err(TryLockError::Poisoned(poisoned)) => Lent(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return,
        };
        drop(lent.0.take());
        work();
    }
}

/// The spare one while it is lent: there is one again however the work ends.
struct Lent<'a>(MutexGuard<'a, Option<File>>);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // If somebody else was faster, the next one that is lent is one that was freed meanwhile.
        *self.0 = keep();
    }
}

fn keep() -> Option<File> {
    File::open("/dev/null").ok()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn one_is_kept_again_however_the_work_ends() {
        let spare = Spare::new();
        let ended = catch_unwind(AssertUnwindSafe(|| spare.lend(|| panic!("as it should"))));
        assert!(ended.is_err());
        let file = spare.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        assert!(file.is_some());
    }
}
