//! Who waits for the next thread that comes back, and which threads sleep until somebody does.
//!
//! Whoever puts itself on the list looks for sleepers afterwards, and whoever goes to sleep is counted before it looks at
//! the list. Both change the same count, so the later of the two knows what the other has done before: nobody waits while a
//! thread sleeps.

use std::collections::VecDeque;

use super::sync::{AtomicUsize, Mutex, Ordering, lock};

pub(super) struct PendingQueue<T> {
    /// In the order of their coming.
    list: Mutex<VecDeque<T>>,
    /// How many, to be asked without the lock.
    len: AtomicUsize,
    sleepers: AtomicUsize,
}

impl<T> PendingQueue<T> {
    pub(super) fn new() -> PendingQueue<T> {
        PendingQueue {
            list: Mutex::new(VecDeque::new()),
            len: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
        }
    }

    /// It comes back where `most` wait already. Else a sleeper is to be [called](PendingQueue::call).
    pub(super) fn put(&self, item: T, most: usize) -> Result<(), T> {
        let mut list = lock(&self.list);
        if list.len() >= most {
            return Err(item);
        }
        list.push_back(item);
        self.len.store(list.len(), Ordering::Release);
        Ok(())
    }

    /// Who has waited for longest.
    pub(super) fn first(&self) -> Option<T> {
        if self.len() == 0 {
            return None;
        }
        let mut list = lock(&self.list);
        let first = list.pop_front();
        self.len.store(list.len(), Ordering::Release);
        first
    }

    /// All of them: who comes from now on is not among them.
    pub(super) fn take_all(&self) -> VecDeque<T> {
        let mut list = lock(&self.list);
        self.len.store(0, Ordering::Release);
        std::mem::take(&mut *list)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Runs `ring` if there is a thread to wake: for who has come to the list, or has put other work where sleepers look for it.
    pub(super) fn call(&self, ring: impl FnOnce()) {
        // Not a load, which may be of a count from before that thread went to sleep.
        if self.sleepers.fetch_add(0, Ordering::AcqRel) > 0 {
            ring();
        }
    }

    pub(super) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// ServerStats this thread as a sleeper meanwhile: in there it looks whether it may sleep, and does. How many others are
    /// left when it is awake; what they were called for it has to look at, as it may have been called itself.
    #[inline]
    pub(super) fn sleep<R>(&self, sleep: impl FnOnce() -> R) -> (R, usize) {
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        let told = sleep();
        (told, self.sleepers.fetch_sub(1, Ordering::AcqRel) - 1)
    }
}
