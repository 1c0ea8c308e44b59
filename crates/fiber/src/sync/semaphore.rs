//! A counting semaphore for fibers.

use super::wait_list::{NoPermit, WaitList};

/// A number of permits. A fiber without a permit waits, and fibers get permits in the order in which they
/// asked.
///
/// ```
/// use weftwork_fiber::sync::Semaphore;
///
/// let seats = Semaphore::new(1);
/// let seat = seats.acquire();
/// assert!(seats.try_acquire().is_none());
/// drop(seat);
/// assert_eq!(seats.available(), 1);
/// ```
#[derive(Debug)]
pub struct Semaphore(WaitList);

/// A permit of a [`Semaphore`], released on drop.
#[derive(Debug)]
#[must_use = "a permit is released as soon as it is dropped"]
pub struct Permit<'a>(&'a WaitList);

impl Semaphore {
    /// Creates a semaphore with this many permits.
    pub const fn new(permits: usize) -> Self {
        Semaphore(WaitList::new(permits))
    }

    /// Takes a permit. Suspends until there is one.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside a fiber, or in a fiber that unwinds. In a destructor, any panic aborts
    /// the process. Use [`try_acquire`](Self::try_acquire) in destructors.
    pub fn acquire(&self) -> Permit<'_> {
        self.acquire_by("Semaphore::acquire")
    }

    /// Takes a permit. `what` is the name of the call for panic messages.
    pub(super) fn acquire_by(&self, what: &str) -> Permit<'_> {
        match self.0.acquire(what) {
            Ok(()) => Permit(&self.0),
            Err(NoPermit) => panic!("{what} must wait in a fiber that unwinds: use the try_ form there"),
        }
    }

    /// Takes a permit if there is one.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.0.try_acquire().then(|| Permit(&self.0))
    }

    /// Returns the number of free permits.
    pub fn available(&self) -> usize {
        self.0.permits()
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}
