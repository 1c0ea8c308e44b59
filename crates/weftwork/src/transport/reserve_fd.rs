//! A reserve descriptor. When descriptors are used up, it is closed so that a client can be rejected.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::deadlines::Tick;

/// A descriptor without a use of its own, and the time since when there are no other descriptors.
#[derive(Debug)]
pub(crate) struct ReserveFd {
    file: Mutex<Option<File>>,
    /// In milliseconds, plus one. 0 means that descriptors are available.
    short_since: AtomicU64,
}

impl ReserveFd {
    pub(crate) fn new() -> ReserveFd {
        ReserveFd { file: Mutex::new(keep()), short_since: AtomicU64::new(0) }
    }

    /// Returns since when descriptors are used up. The first caller gets `None`.
    pub(crate) fn note_shortage(&self, now: Tick) -> Option<Tick> {
        let before = self.short_since.compare_exchange(0, now.0 + 1, Ordering::Relaxed, Ordering::Relaxed);
        before.err().map(|since| Tick(since - 1))
    }

    /// Records that a descriptor was available.
    #[inline]
    pub(crate) fn note_plenty(&self) {
        if self.short_since.load(Ordering::Relaxed) != 0 {
            self.short_since.store(0, Ordering::Relaxed);
        }
    }

    /// Runs `work` with one more descriptor, unless another thread does so at the moment.
    pub(crate) fn with_reserve(&self, work: impl FnOnce()) {
        let mut lent = match self.file.try_lock() {
            Ok(file) => LentFd(file),
            Err(TryLockError::Poisoned(poisoned)) => LentFd(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return,
        };
        drop(lent.0.take());
        work();
    }
}

/// The reserve descriptor while it is lent. It is opened again, however the work ends.
struct LentFd<'a>(MutexGuard<'a, Option<File>>);

impl Drop for LentFd<'_> {
    fn drop(&mut self) {
        // If another thread was faster, the next reserve is a descriptor that was closed meanwhile.
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
    fn the_reserve_descriptor_is_kept_again_however_the_work_ends() {
        let spare = ReserveFd::new();
        let ended = catch_unwind(AssertUnwindSafe(|| spare.with_reserve(|| panic!("as it should"))));
        assert!(ended.is_err());
        let file = spare.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        assert!(file.is_some());
    }
}
