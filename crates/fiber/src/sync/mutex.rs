//! A mutex for fibers.

use std::cell::{RefCell, RefMut};
use std::fmt;
use std::ops::{Deref, DerefMut};

use super::{Permit, Semaphore};

/// A mutex that suspends the fiber, for values that stay locked across a wait. Without a wait, a [`RefCell`] is
/// enough. Fibers get the lock in the order in which they asked. A panic does not poison the mutex.
///
/// ```
/// use std::rc::Rc;
/// use weftwork_fiber::{run, spawn, sync::Mutex, yield_now};
///
/// run(|| {
///     let log = Rc::new(Mutex::new(Vec::new()));
///     let writers: Vec<_> = (0..3).map(|writer| {
///         let log = Rc::clone(&log);
///         spawn(move || {
///             let mut log = log.lock();
///             log.push(writer);
///             yield_now();
///             log.push(writer);
///         })
///     }).collect();
///     writers.into_iter().for_each(|writer| writer.join().unwrap());
///     assert_eq!(*log.lock(), [0, 0, 1, 1, 2, 2]);
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Mutex<T> {
    semaphore: Semaphore,
    value: RefCell<T>,
}

/// Access to the value of a [`Mutex`], until it is dropped.
pub struct MutexGuard<'a, T> {
    // Dropped in this order: the value is free before the next fiber gets the lock.
    value: RefMut<'a, T>,
    _permit: Permit<'a>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex { semaphore: Semaphore::new(1), value: RefCell::new(value) }
    }

    /// Locks the mutex. Suspends until it is free.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside a fiber, or in a fiber that unwinds. In a destructor, any panic aborts
    /// the process. Use [`try_lock`](Self::try_lock) in destructors.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.guard(self.semaphore.acquire_by("Mutex::lock"))
    }

    /// Locks the mutex if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.semaphore.try_acquire().map(|permit| self.guard(permit))
    }

    fn guard<'a>(&'a self, permit: Permit<'a>) -> MutexGuard<'a, T> {
        MutexGuard { value: self.value.borrow_mut(), _permit: permit }
    }

    /// Returns the value without locking, because no other fiber can hold it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => f.debug_tuple("Mutex").field(&*value).finish(),
            None => f.write_str("Mutex(<locked>)"),
        }
    }
}
