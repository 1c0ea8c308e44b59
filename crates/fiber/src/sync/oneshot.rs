//! A channel for a single value.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use super::RecvError;
use super::channel::{SendError, TryRecvError};
use super::wait_list::WaitList;

struct Slot<T> {
    value: Cell<Option<T>>,
    filled: WaitList,
}

/// The sending half of [`oneshot`].
pub struct OneshotSender<T>(Rc<Slot<T>>);

/// The receiving half of [`oneshot`].
pub struct OneshotReceiver<T>(Rc<Slot<T>>);

/// Creates a channel for one value.
///
/// ```
/// use weftwork_fiber::{run, spawn, sync::oneshot};
///
/// let answer = run(|| {
///     let (sender, receiver) = oneshot();
///     spawn(move || sender.send(42));
///     receiver.recv()
/// })?;
/// assert_eq!(answer, Ok(42));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let slot = Rc::new(Slot { value: Cell::new(None), filled: WaitList::new(0) });
    (OneshotSender(Rc::clone(&slot)), OneshotReceiver(slot))
}

impl<T> OneshotSender<T> {
    /// Sends the value. Never waits.
    ///
    /// # Errors
    ///
    /// Fails if the receiver is gone. The error contains the value.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            return Err(SendError(value));
        }
        self.0.value.set(Some(value));
        Ok(())
    }

    /// Returns whether the receiver is gone, so that the value is not needed.
    pub fn is_closed(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        self.0.filled.close();
    }
}

impl<T> OneshotReceiver<T> {
    /// Returns the value. Suspends until it is sent.
    ///
    /// # Errors
    ///
    /// Fails if the sender is gone without a value, or if the fiber unwinds and cannot wait.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside a fiber.
    pub fn recv(self) -> Result<T, RecvError> {
        // The list has no permits, so this returns when the sender has closed it.
        let _ = self.0.filled.acquire("OneshotReceiver::recv");
        self.0.value.take().ok_or(RecvError)
    }

    /// Returns the value if it was sent. The value is returned once.
    ///
    /// # Errors
    ///
    /// See [`TryRecvError`].
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let closed = if self.0.filled.is_closed() { TryRecvError::Closed } else { TryRecvError::Empty };
        self.0.value.take().ok_or(closed)
    }
}

impl<T> fmt::Debug for OneshotSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneshotSender").field("closed", &self.is_closed()).finish()
    }
}

impl<T> fmt::Debug for OneshotReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneshotReceiver").field("filled", &self.0.filled.is_closed()).finish()
    }
}
