//! How is one value handed over once?

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

/// A channel for one value.
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
    /// Hands the value over; never waits.
    ///
    /// # Errors
    ///
    /// The receiver is gone; the value comes back.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            return Err(SendError(value));
        }
        self.0.value.set(Some(value));
        Ok(())
    }

    /// Whether the receiver is gone, so that the value need not be made.
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
    /// The value; suspends until it is there.
    ///
    /// # Errors
    ///
    /// The sender is gone without a value, or the fiber unwinds and cannot wait.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a fiber.
    pub fn recv(self) -> Result<T, RecvError> {
        // The gate has no permits: it answers when the sender has closed it.
        let _ = self.0.filled.acquire("OneshotReceiver::recv");
        self.0.value.take().ok_or(RecvError)
    }

    /// The value, if it is there; it comes once.
    ///
    /// # Errors
    ///
    /// Not yet, or never.
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
