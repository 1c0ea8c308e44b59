//! How is a thread made to run fibers: all by itself, or turn by turn under someone else's loop?

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::fiber::{JoinError, JoinHandle, spawn_on};
use crate::poller::{Interest, Ready};
use crate::remote::Remote;
use crate::scheduler::Core;

/// The fibers, timers and descriptors of one thread, for a program that has a loop of its own.
///
/// A thread has at most one. It does nothing by itself: each [`turn`](Runtime::turn) runs the fibers that can run,
/// waits for events once, and runs what they woke. Beside the fibers, which cost a stack each, it watches any
/// number of descriptors that cost none: their readiness comes out of `turn`, and a fiber is spawned only when
/// there is something to do.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use weftwork_fiber::{Interest, Runtime};
///
/// let runtime = Runtime::new()?;
/// let (mut ours, mut theirs) = UnixStream::pair()?;
/// ours.set_nonblocking(true)?;
/// runtime.watch(&ours, Interest::Readable, 7)?;          // idle: no fiber, no stack
///
/// theirs.write_all(b"hello")?;
/// let mut ready = Vec::new();
/// runtime.turn(None, &mut ready)?;
/// assert_eq!((ready[0].token, ready[0].readable), (7, true));
///
/// runtime.spawn(move || {
///     let mut bytes = [0; 5];
///     ours.read_exact(&mut bytes).unwrap();
///     assert_eq!(&bytes, b"hello");
/// });
/// while runtime.has_work() {
///     runtime.turn(None, &mut ready)?;
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Dropping
///
/// Dropping the runtime cancels every fiber and unwinds it, so that destructors run, before `drop` returns. A fiber
/// that catches the unwinding and waits again is unwound again: one that does so for ever hangs the drop. Where the
/// thread itself unwinds meanwhile, such a wait blocks it, since no fiber can be suspended then. Do not
/// keep a runtime in a `thread_local!`: when the thread ends, its fibers may have borrowed thread-locals that are gone, so
/// they are leaked. That is noticed if the thread ran no fiber before the runtime was in its place; else they are unwound, which
/// is a use of what is gone. A runtime that is leaked (`mem::forget`) unwinds no fiber at all: what those lent of the thread's
/// own to other threads is gone when the thread ends.
///
/// # Threads
///
/// A runtime and all that belongs to it stay on their thread; [`Remote`] is what other threads get.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<weftwork_fiber::Runtime>();
/// ```
pub struct Runtime(Rc<Core>);

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("fibers", &self.fibers()).finish_non_exhaustive()
    }
}

impl Runtime {
    /// A runtime with the default [`Config`].
    ///
    /// # Errors
    ///
    /// As [`with_config`](Runtime::with_config).
    pub fn new() -> io::Result<Self> {
        Self::with_config(&Config::default())
    }

    /// A runtime for this thread.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the thread has one; else what the kernel says (no descriptors left for the poller).
    pub fn with_config(config: &Config) -> io::Result<Self> {
        Core::new(config).map(Runtime)
    }

    /// Makes a fiber that runs `f` from the next turn on.
    pub fn spawn<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        spawn_on(&self.0, f)
    }

    /// One turn: runs the fibers that can run, looks for events, runs what they woke, and appends to `ready` the
    /// watched descriptors that became ready. Only if there was no fiber to run does it wait for events, for at
    /// most `timeout` (`None`: until there is one), so it never waits after the fiber that the caller needs has
    /// ended. It may return with nothing to report.
    ///
    /// # Errors
    ///
    /// The poller failed; an interrupted wait is no error.
    ///
    /// # Panics
    ///
    /// In a fiber, and while the thread unwinds.
    pub fn turn(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.check_turn();
        self.0.turn(timeout, ready)
    }

    /// Runs the fibers that can run, those whose time has come and those that other threads sent or woke among
    /// them, without a look at the sockets and so without a system call. True: something ran.
    ///
    /// For a program whose own poller watches the runtime's descriptor (see [`AsRawFd`]): it calls `turn` when
    /// that is readable, this after anything else that it did, and waits for [`park_timeout`](Runtime::park_timeout).
    ///
    /// # Panics
    ///
    /// As [`turn`](Runtime::turn).
    pub fn run_ready(&self) -> bool {
        self.check_turn();
        self.0.run_due()
    }

    /// How long the thread may wait elsewhere before a fiber wants to run: zero if one does now, `None` if only
    /// a descriptor or another thread can make one.
    pub fn park_timeout(&self) -> Option<Duration> {
        if self.0.has_runnable() { Some(Duration::ZERO) } else { self.0.until_next_timer(None) }
    }

    fn check_turn(&self) {
        assert!(!self.0.in_fiber(), "a turn of the runtime was taken by one of its own fibers");
        assert!(!std::thread::panicking(), "a turn of the runtime was taken by a thread that unwinds");
    }

    /// Runs `f` as a fiber and takes turns until it has ended; other fibers run meanwhile and stay. Descriptors
    /// watched by [`watch`](Runtime::watch) must not become ready meanwhile: their readiness would be dropped.
    ///
    /// # Errors
    ///
    /// The poller failed.
    ///
    /// # Panics
    ///
    /// As `f` does, and as [`turn`](Runtime::turn).
    pub fn block_on<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> io::Result<T> {
        value_of(self.outcome_of(f)?)
    }

    fn outcome_of<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> io::Result<Result<T, JoinError>> {
        self.check_turn();
        let main = self.spawn(f);
        let mut ready = Vec::new();
        while !main.is_finished() {
            self.turn(None, &mut ready)?;
            ready.clear();
        }
        Ok(main.take_result())
    }

    /// Whether a turn has anything to do or to wait for: a fiber that has not ended, or a message from another
    /// thread. Watched descriptors do not count.
    pub fn has_work(&self) -> bool {
        self.fibers() > 0 || self.0.has_runnable()
    }

    /// Fibers that have not ended.
    pub fn fibers(&self) -> usize {
        self.0.fibers()
    }

    /// When the next `sleep`, `timeout` or socket deadline falls due; a turn waits no longer.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.0.next_deadline()
    }

    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        self.0.remote()
    }

    /// Watches a descriptor, which must be non-blocking, without a fiber: when it becomes ready, `turn` reports
    /// `token`. Reports are edge-triggered: after one, read (or accept, or write) until "would block", or
    /// [`rearm`](Runtime::rearm), else the next report may not come. While a fiber waits for the descriptor in the
    /// same direction, through [`wait_readable`](crate::wait_readable) or `wait_writable`, the event wakes the
    /// fiber instead. Such a wait costs no registration of its own.
    ///
    /// [`unwatch`](Runtime::unwatch) before the descriptor is closed: the number will be reused, and a wait for its next
    /// bearer would never end.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if it is watched, `PermissionDenied` if it cannot be polled (a regular file).
    pub fn watch(&self, fd: impl AsFd, interest: Interest, token: usize) -> io::Result<()> {
        self.0.poller.borrow_mut().watch(fd.as_fd().as_raw_fd(), interest, token)
    }

    /// Has a watched descriptor reported again if it is ready now, as when it was handed to a fiber that may have
    /// left bytes unread. One system call.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is not watched.
    pub fn rearm(&self, fd: impl AsFd) -> io::Result<()> {
        self.0.poller.borrow_mut().rearm_watched(fd.as_fd().as_raw_fd())
    }

    /// Stops watching a descriptor. Reports already in the caller's list stay there.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is not watched.
    pub fn unwatch(&self, fd: impl AsFd) -> io::Result<()> {
        self.0.poller.borrow_mut().unwatch(fd.as_fd().as_raw_fd())
    }
}

/// The descriptor of the runtime's poller: readable when [`turn`](Runtime::turn) would find an event. Pollers nest,
/// so a program can wait for it among its own descriptors. Each `turn` takes all events there are, so
/// edge-triggered interest is enough.
impl AsRawFd for Runtime {
    fn as_raw_fd(&self) -> RawFd {
        self.0.poller.borrow().as_raw_fd()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Runs `f` as the first fiber of this thread, and returns its value once `f` and every fiber spawned meanwhile have
/// ended.
///
/// # Errors
///
/// As [`Runtime::with_config`] (so it does not nest), or the poller failed.
///
/// # Panics
///
/// If `f` panics, with its payload, after the other fibers were cancelled and unwound.
pub fn run<T: 'static>(f: impl FnOnce() -> T + 'static) -> io::Result<T> {
    run_with(&Config::default(), f)
}

/// [`run`] with other settings.
///
/// # Errors
///
/// As [`run`].
///
/// # Panics
///
/// As [`run`].
pub fn run_with<T: 'static>(config: &Config, f: impl FnOnce() -> T + 'static) -> io::Result<T> {
    let runtime = Runtime::with_config(config)?;
    let first = runtime.outcome_of(f)?;
    while first.is_ok() && runtime.has_work() {
        runtime.turn(None, &mut Vec::new())?;
    }
    // Before a panic goes on: in a thread that unwinds no fiber can be suspended, not even one that does not.
    drop(runtime);
    value_of(first)
}

fn value_of<T>(outcome: Result<T, JoinError>) -> io::Result<T> {
    match outcome {
        Ok(value) => Ok(value),
        Err(JoinError::Panicked(payload)) => resume_unwind(payload),
        Err(JoinError::NoStack(error)) => Err(error),
        Err(JoinError::Cancelled) => Err(io::Error::other("the fiber was cancelled")),
    }
}
