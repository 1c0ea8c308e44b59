//! Waits of a fiber or a thread for a descriptor.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};

use crate::poller::Interest;
use crate::scheduler::{self, Core, Location};
use crate::slab::Key;

/// Waits until a read from `fd` would not block: bytes, a connection, the end of the stream, or an error.
///
/// In a fiber it suspends the fiber, and outside it blocks the thread. If the runtime
/// [watches](crate::Runtime::watch) the descriptor and it is ready, the call costs one poll(2). In the watched
/// direction it needs no registration of its own. Other descriptors are registered for the time of the wait.
///
/// # Errors
///
/// `TimedOut` after the deadline, or the error of the kernel. `WouldBlock` if a fiber that unwinds would have
/// to wait.
pub fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<()> {
    wait(fd, Interest::Readable, deadline, None)
}

/// Waits until a write to `fd` would not block. Otherwise the same as [`wait_readable`].
///
/// # Errors
///
/// Same as [`wait_readable`].
pub fn wait_writable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<()> {
    wait(fd, Interest::Writable, deadline, None)
}

/// Waits until `fd` is ready for `interest`. [`Interest::Both`] waits for either direction. Otherwise the same
/// as [`wait_readable`].
///
/// # Errors
///
/// Same as [`wait_readable`].
pub fn wait_for(fd: BorrowedFd<'_>, interest: Interest, deadline: Option<Instant>) -> io::Result<()> {
    wait(fd, interest, deadline, None)
}

/// A signal that ends waits before their event arrives. It belongs to one thread, so create one per thread.
///
/// ```
/// use std::io::ErrorKind;
/// use std::os::fd::AsFd;
/// use std::os::unix::net::UnixStream;
/// use std::rc::Rc;
/// use weftwork_fiber::{Interest, Signal, run, spawn, yield_now};
///
/// let (socket, _peer) = UnixStream::pair()?;
/// let error = run(move || {
///     let signal = Rc::new(Signal::new());
///     let theirs = signal.clone();
///     let waiting = spawn(move || theirs.wait_for(socket.as_fd(), Interest::Readable, None));
///     yield_now();
///     signal.set();
///     waiting.join()
/// })?;
/// assert_eq!(error.unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
/// # std::io::Result::Ok(())
/// ```
#[derive(Default)]
pub struct Signal {
    flag: Cell<bool>,
    waiting: RefCell<BTreeSet<Key>>,
}

/// Borrows nothing, because writing the text may suspend the fiber.
impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").field("set", &self.flag).finish_non_exhaustive()
    }
}

impl Signal {
    /// Creates a signal that is not set.
    pub const fn new() -> Signal {
        Signal { flag: Cell::new(false), waiting: RefCell::new(BTreeSet::new()) }
    }

    /// Sets the signal. It ends every wait with this signal on this thread, now and later.
    pub fn set(&self) {
        self.flag.set(true);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        if let Some(core) = scheduler::current() {
            waiting.into_iter().for_each(|fiber| core.wake(fiber));
        }
    }

    /// Waits like [`wait_for`], and also ends when the signal is set. Outside a fiber, the signal cannot be set
    /// during the wait, so it is only checked first.
    ///
    /// # Errors
    ///
    /// Same as [`wait_readable`], and `Interrupted` if the signal is set.
    pub fn wait_for(
        &self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        if self.flag.get() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        wait(fd, interest, deadline, Some(self))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.flag.get()
    }
}

/// Adds a fiber to those that a signal wakes, until it is dropped.
struct SignalWaiter<'a> {
    signal: &'a Signal,
    fiber: Key,
}

impl<'a> SignalWaiter<'a> {
    fn new(signal: &'a Signal, fiber: Key) -> SignalWaiter<'a> {
        signal.waiting.borrow_mut().insert(fiber);
        SignalWaiter { signal, fiber }
    }
}

impl Drop for SignalWaiter<'_> {
    fn drop(&mut self) {
        self.signal.waiting.borrow_mut().remove(&self.fiber);
    }
}

fn wait(
    fd: BorrowedFd<'_>,
    interest: Interest,
    deadline: Option<Instant>,
    signal: Option<&Signal>,
) -> io::Result<()> {
    let (core, fiber) = match scheduler::location() {
        Location::Fiber(core, fiber) => (core, fiber),
        Location::Unwinding if retry_on_intr(|| is_ready(fd, interest, Some(Duration::ZERO)))? => {
            return Ok(());
        }
        Location::Unwinding => return Err(cannot_wait()),
        Location::Thread => return block_thread(fd, interest, deadline),
    };
    let is_registered = core.poller.borrow().find(fd.as_raw_fd()).is_some();
    // Registration reports readiness that exists already. A permanent registration may have reported it before.
    if is_registered && retry_on_intr(|| is_ready(fd, interest, Some(Duration::ZERO)))? {
        core.count_call(fiber);
        return Ok(());
    }
    let source = match Acquired::new(&core, fd, interest) {
        // A regular file. poll(2) always reports it as ready.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return block_thread(fd, interest, deadline);
        }
        source => source?,
    };
    let _signal_waiter = signal.map(|signal| SignalWaiter::new(signal, fiber));
    core.wait_source(fiber, fd, source.key, interest, deadline, signal)
}

struct Acquired<'a> {
    core: &'a Rc<Core>,
    key: Key,
}

impl<'a> Acquired<'a> {
    fn new(core: &'a Rc<Core>, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<Self> {
        let key = core.poller.borrow_mut().acquire(fd.as_raw_fd(), interest)?;
        Ok(Acquired { core, key })
    }
}

impl Drop for Acquired<'_> {
    fn drop(&mut self) {
        self.core.poller.borrow_mut().release(self.key);
    }
}

/// The error of a wait in a fiber that unwinds. Waiting would block all other fibers for as long as the peer
/// likes.
#[cold]
pub(crate) fn cannot_wait() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "a fiber that unwinds cannot wait for a socket")
}

/// Waits with poll(2).
pub(crate) fn block_thread(
    fd: BorrowedFd<'_>,
    interest: Interest,
    deadline: Option<Instant>,
) -> io::Result<()> {
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match is_ready(fd, interest, left) {
            Ok(true) => return Ok(()),
            Ok(false) if left.is_some_and(|left| left.is_zero()) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Ok(false) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_ready(fd: BorrowedFd<'_>, interest: Interest, timeout: Option<Duration>) -> rustix::io::Result<bool> {
    let flags = match interest {
        Interest::Readable => PollFlags::IN,
        Interest::Writable => PollFlags::OUT,
        Interest::Both => PollFlags::IN | PollFlags::OUT,
    };
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    Ok(poll(&mut [PollFd::from_borrowed_fd(fd, flags)], timeout.as_ref())? > 0)
}
