//! How does a fiber, or a plain thread, wait for a descriptor?

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

/// Waits until reading `fd` would not block: bytes, a connection, the end of the stream, or an error.
///
/// In a fiber it suspends the fiber; outside it blocks the thread. For a descriptor that the runtime
/// [watches](crate::Runtime::watch) it costs one poll(2) if that shows readiness, and in the direction that is watched no
/// registration of its own; for others the descriptor is registered for the length of the wait.
///
/// # Errors
///
/// `TimedOut` when the deadline has passed, or what the kernel says about the descriptor. `WouldBlock` in a fiber that
/// unwinds, if it would have to wait.
pub fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<()> {
    wait(fd, Interest::Readable, deadline, None)
}

/// Waits until writing to `fd` would not block; otherwise as [`wait_readable`].
///
/// # Errors
///
/// As [`wait_readable`].
pub fn wait_writable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<()> {
    wait(fd, Interest::Writable, deadline, None)
}

/// Waits until `fd` is ready for what `interest` says, for [`Interest::Both`] until it is ready for either; otherwise as
/// [`wait_readable`].
///
/// # Errors
///
/// As [`wait_readable`].
pub fn wait_for(fd: BorrowedFd<'_>, interest: Interest, deadline: Option<Instant>) -> io::Result<()> {
    wait(fd, interest, deadline, None)
}

/// Ends waits before their event comes. It belongs to one thread; keep one for each.
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

/// Borrows nothing: what it is written to may suspend the fiber.
impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").field("set", &self.flag).finish_non_exhaustive()
    }
}

impl Signal {
    /// A signal that was not given.
    pub const fn new() -> Signal {
        Signal { flag: Cell::new(false), waiting: RefCell::new(BTreeSet::new()) }
    }

    /// Ends every wait that was begun with this signal on this thread, and each that is begun from now on.
    pub fn set(&self) {
        self.flag.set(true);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        if let Some(core) = scheduler::current() {
            waiting.into_iter().for_each(|fiber| core.wake(fiber));
        }
    }

    /// As [`wait_for`], until the signal is given. Outside a fiber nobody can give it meanwhile, and it is only
    /// looked at first.
    ///
    /// # Errors
    ///
    /// As [`wait_readable`], and `Interrupted` when the signal is given.
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

/// A fiber is among those that a signal wakes, for as long as this lives.
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
    let lasting = core.poller.borrow().find(fd.as_raw_fd()).is_some();
    // Registering tells of readiness that is there already; a registration that lasts may have told it before.
    if lasting && retry_on_intr(|| is_ready(fd, interest, Some(Duration::ZERO)))? {
        core.count_call(fiber);
        return Ok(());
    }
    let source = match Acquired::new(&core, fd, interest) {
        // A regular file, of which poll(2) says that it is always ready.
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

/// What a wait is answered with in a fiber that unwinds: all other fibers would stand still, for as long as its peer likes.
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
