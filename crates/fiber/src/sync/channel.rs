//! A bounded channel between fibers of one thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use super::wait_list::WaitList;

/// The receiver is gone, or the fiber unwinds and cannot wait. The field is the value that was not sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// All senders are gone and all values are taken, or the fiber unwinds and cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

/// The reason why [`Sender::try_send`] failed. The field is the value that was not sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

/// The reason why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is no value now.
    Empty,
    /// There will be no more values.
    Closed,
}

/// The two wait lists count the free slots and the values.
struct Shared<T> {
    values: RefCell<VecDeque<T>>,
    free_slots: WaitList,
    filled: WaitList,
    senders: Cell<usize>,
}

/// The sending half of a [`channel`]. Clone it for more senders.
pub struct Sender<T>(Rc<Shared<T>>);

/// The receiving half of a [`channel`].
pub struct Receiver<T>(Rc<Shared<T>>);

/// Creates a channel for up to `capacity` values between the fibers of one thread. 0 counts as 1.
///
/// ```
/// use weftwork_fiber::{run, spawn, sync::channel};
///
/// let sum = run(|| {
///     let (sender, receiver) = channel(2);
///     spawn(move || (1..=10).for_each(|value| sender.send(value).unwrap()));
///     receiver.iter().sum::<i32>()
/// })?;
/// assert_eq!(sum, 55);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Rc::new(Shared {
        values: RefCell::default(),
        free_slots: WaitList::new(capacity.max(1)),
        filled: WaitList::new(0),
        senders: Cell::new(1),
    });
    (Sender(Rc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Sends a value. Suspends while the channel is full.
    ///
    /// # Errors
    ///
    /// See [`SendError`].
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside a fiber.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        // A closed list may still have permits.
        if self.is_closed() || self.0.free_slots.acquire("Sender::send").is_err() {
            return Err(SendError(value));
        }
        if self.is_closed() {
            return Err(SendError(value));
        }
        self.put(value);
        Ok(())
    }

    /// Sends a value if the channel is not full.
    ///
    /// # Errors
    ///
    /// See [`TrySendError`].
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        if self.is_closed() {
            return Err(TrySendError::Closed(value));
        }
        if !self.0.free_slots.try_acquire() {
            return Err(TrySendError::Full(value));
        }
        self.put(value);
        Ok(())
    }

    fn put(&self, value: T) {
        self.0.values.borrow_mut().push_back(value);
        self.0.filled.release();
    }

    /// Returns whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.0.free_slots.is_closed()
    }
}

impl<T> Receiver<T> {
    /// Returns the next value. Suspends until there is one.
    ///
    /// # Errors
    ///
    /// See [`RecvError`].
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside a fiber.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.filled.acquire("Receiver::recv").map_err(|_| RecvError)?;
        self.take().ok_or(RecvError)
    }

    /// Returns the next value, if there is one.
    ///
    /// # Errors
    ///
    /// See [`TryRecvError`].
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        if self.0.filled.try_acquire()
            && let Some(value) = self.take()
        {
            return Ok(value);
        }
        Err(if self.0.filled.is_closed() { TryRecvError::Closed } else { TryRecvError::Empty })
    }

    fn take(&self) -> Option<T> {
        let value = self.0.values.borrow_mut().pop_front();
        self.0.free_slots.release();
        value
    }

    /// Returns an iterator over the values, until all senders are gone.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }
}

/// An iterator over the values of a [`Receiver`], until all senders are gone.
#[derive(Debug)]
pub struct IntoIter<T>(Receiver<T>);

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.set(self.0.senders.get() + 1);
        Sender(Rc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.senders.set(self.0.senders.get() - 1);
        if self.0.senders.get() == 0 {
            self.0.filled.close();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.free_slots.close();
        // Drops unread values now instead of with the last sender. The borrow ends before destructors run.
        let unread = self.0.values.take();
        drop(unread);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("free_slots", &self.0.free_slots.permits()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("values", &self.0.filled.permits()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the receiver is gone, or the fiber unwinds and cannot wait")
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "the channel is full",
            TrySendError::Closed(_) => "the receiver is gone",
        })
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the senders are gone, or the fiber unwinds and cannot wait")
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryRecvError::Empty => "the channel is empty",
            TryRecvError::Closed => "the senders are gone",
        })
    }
}

impl<T> std::error::Error for SendError<T> {}
impl<T> std::error::Error for TrySendError<T> {}
impl std::error::Error for RecvError {}
impl std::error::Error for TryRecvError {}
