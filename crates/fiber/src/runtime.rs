//! The runtime of a thread: it runs fibers to completion, or turn by turn within another event loop.

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

/// The fibers, timers and descriptors of one thread, for programs with their own event loop.
///
/// A thread has at most one runtime. The runtime does nothing by itself. Each [`turn`](Runtime::turn) runs the
/// runnable fibers, waits for events once, and runs the fibers that the events woke. Each fiber needs a stack.
/// The runtime can also watch any number of descriptors without a fiber: `turn` reports their readiness, and
/// the program spawns a fiber only if there is work.
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
/// Dropping the runtime cancels and unwinds every fiber before `drop` returns, so that destructors run. If a
/// fiber catches the unwinding and waits again, it is unwound again. A fiber that does so for ever hangs the
/// drop. If the thread itself is unwinding, such a wait blocks the thread, because no fiber can be suspended
/// then.
///
/// Do not keep a runtime in a `thread_local!`. When the thread ends, its fibers may have borrowed thread-locals
/// that are gone, so they are leaked. This is detected only if the thread ran no fiber before the runtime was
/// stored there. Otherwise they are unwound, which uses values that are gone.
///
/// A leaked runtime (`mem::forget`) unwinds no fiber. References that its fibers lent to other threads then
/// dangle when the thread ends.
///
/// # Threads
///
/// A runtime and all its parts stay on their thread. Other threads use a [`Remote`].
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
    /// Creates a runtime with the default [`Config`].
    ///
    /// # Errors
    ///
    /// Same as [`with_config`](Runtime::with_config).
    pub fn new() -> io::Result<Self> {
        Self::with_config(&Config::default())
    }

    /// Creates a runtime for this thread.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the thread has a runtime, or the error of the kernel (no descriptor left for the
    /// poller).
    pub fn with_config(config: &Config) -> io::Result<Self> {
        Core::new(config).map(Runtime)
    }

    /// Creates a fiber that runs `f` from the next turn on.
    pub fn spawn<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        spawn_on(&self.0, f)
    }

    /// Runs one turn: runs the runnable fibers, polls for events, and runs the fibers that the events woke.
    /// Appends the watched descriptors that became ready to `ready`. It waits for events only if no fiber was
    /// runnable, for at most `timeout` (`None` for no limit). It thus never waits after the fiber that the
    /// caller needs has ended. It may return without a report.
    ///
    /// # Errors
    ///
    /// Fails if the poller fails. An interrupted wait is not an error.
    ///
    /// # Panics
    ///
    /// Panics in a fiber, and while the thread unwinds.
    pub fn turn(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.check_turn();
        self.0.turn(timeout, ready)
    }

    /// Runs the runnable fibers, including those whose time has come and those that other threads sent or woke.
    /// Does not poll sockets, so it makes no system call. Returns true if a fiber ran.
    ///
    /// For programs whose own poller watches the descriptor of the runtime (see [`AsRawFd`]). Call `turn` when
    /// the descriptor is readable, call this function after any other work, and wait for at most
    /// [`park_timeout`](Runtime::park_timeout).
    ///
    /// # Panics
    ///
    /// Same as [`turn`](Runtime::turn).
    pub fn run_ready(&self) -> bool {
        self.check_turn();
        self.0.run_due()
    }

    /// Returns how long the thread may wait elsewhere before a fiber needs to run. Zero if a fiber is runnable.
    /// `None` if only a descriptor or another thread can make a fiber runnable.
    pub fn park_timeout(&self) -> Option<Duration> {
        if self.0.has_runnable() { Some(Duration::ZERO) } else { self.0.until_next_timer(None) }
    }

    fn check_turn(&self) {
        assert!(!self.0.in_fiber(), "a turn cannot run in a fiber of the same runtime");
        assert!(!std::thread::panicking(), "a turn cannot run in a thread that unwinds");
    }

    /// Runs `f` as a fiber and takes turns until it has ended. Other fibers run meanwhile and stay. Descriptors
    /// watched by [`watch`](Runtime::watch) must not become ready meanwhile, because their reports would be
    /// lost.
    ///
    /// # Errors
    ///
    /// Fails if the poller fails.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics. Otherwise the same as [`turn`](Runtime::turn).
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

    /// Returns whether a turn has work or something to wait for: a fiber that has not ended, or a message from
    /// another thread. Watched descriptors do not count.
    pub fn has_work(&self) -> bool {
        self.fibers() > 0 || self.0.has_runnable()
    }

    /// Returns the number of fibers that have not ended.
    pub fn fibers(&self) -> usize {
        self.0.fibers()
    }

    /// Returns the time of the next `sleep`, `timeout` or socket deadline. A turn waits no longer.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.0.next_deadline()
    }

    /// Returns a handle for other threads.
    pub fn remote(&self) -> Remote {
        self.0.remote()
    }

    /// Watches a non-blocking descriptor without a fiber. When it becomes ready, `turn` reports `token`.
    /// Reports are edge-triggered: after a report, read (or accept, or write) until "would block", or call
    /// [`rearm`](Runtime::rearm). Otherwise there may be no further report. While a fiber waits for the
    /// descriptor in the same direction, with [`wait_readable`](crate::wait_readable) or `wait_writable`, the
    /// event wakes the fiber instead. Such a wait needs no registration of its own.
    ///
    /// Call [`unwatch`](Runtime::unwatch) before you close the descriptor. Its number will be reused, and a
    /// wait for the new descriptor would never end.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the descriptor is watched, `PermissionDenied` if it cannot be polled (a regular
    /// file).
    pub fn watch(&self, fd: impl AsFd, interest: Interest, token: usize) -> io::Result<()> {
        self.0.poller.borrow_mut().watch(fd.as_fd().as_raw_fd(), interest, token)
    }

    /// Reports a watched descriptor again if it is ready now. Use it after a fiber may have left bytes unread.
    /// It costs one system call.
    ///
    /// # Errors
    ///
    /// `NotFound` if the descriptor is not watched.
    pub fn rearm(&self, fd: impl AsFd) -> io::Result<()> {
        self.0.poller.borrow_mut().rearm_watched(fd.as_fd().as_raw_fd())
    }

    /// Stops watching a descriptor. Reports already in the caller's list stay there.
    ///
    /// # Errors
    ///
    /// `NotFound` if the descriptor is not watched.
    pub fn unwatch(&self, fd: impl AsFd) -> io::Result<()> {
        self.0.poller.borrow_mut().unwatch(fd.as_fd().as_raw_fd())
    }
}

/// The descriptor of the runtime's poller. It is readable when [`turn`](Runtime::turn) would find an event.
/// Pollers nest, so a program can wait for it in its own poller. Each `turn` takes all events, so
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

/// Runs `f` as the first fiber of this thread. Returns its value after `f` and all fibers spawned meanwhile
/// have ended.
///
/// # Errors
///
/// Same as [`Runtime::with_config`], so it does not nest. Also fails if the poller fails.
///
/// # Panics
///
/// Panics with the payload of `f` if `f` panics, after the other fibers were cancelled and unwound.
pub fn run<T: 'static>(f: impl FnOnce() -> T + 'static) -> io::Result<T> {
    run_with(&Config::default(), f)
}

/// Runs `f` like [`run`], with other settings.
///
/// # Errors
///
/// Same as [`run`].
///
/// # Panics
///
/// Same as [`run`].
pub fn run_with<T: 'static>(config: &Config, f: impl FnOnce() -> T + 'static) -> io::Result<T> {
    let runtime = Runtime::with_config(config)?;
    let first = runtime.outcome_of(f)?;
    while first.is_ok() && runtime.has_work() {
        runtime.turn(None, &mut Vec::new())?;
    }
    // Dropped before a panic continues, because no fiber can be suspended in a thread that unwinds.
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
