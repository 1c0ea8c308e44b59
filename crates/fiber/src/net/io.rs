//! What do all sockets share: try, wait, try again?

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use crate::poller::Direction;
use crate::scheduler::{self, Core, Place};
use crate::slab::Key;
use crate::wait::block_thread;

/// A non-blocking socket of std, its time limits, and its place in the poller.
#[derive(Debug)]
pub(super) struct Io<S> {
    // Dropped before the socket: deregister, then close.
    registration: RefCell<Option<Registration>>,
    read_timeout: Cell<Option<Duration>>,
    write_timeout: Cell<Option<Duration>>,
    socket: S,
}

struct Registration {
    core: Weak<Core>,
    source: Key,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registration").field(&self.source).finish()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.poller.borrow_mut().release(self.source);
        }
    }
}

impl<S: AsFd> Io<S> {
    /// Takes over a socket that is non-blocking already.
    pub(super) fn new(socket: S) -> Self {
        let registration = RefCell::new(None);
        Io { registration, read_timeout: Cell::new(None), write_timeout: Cell::new(None), socket }
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    pub(super) fn into_socket(self) -> S {
        self.socket
    }

    pub(super) fn timeout(&self, direction: Direction) -> &Cell<Option<Duration>> {
        match direction {
            Direction::Read => &self.read_timeout,
            Direction::Write => &self.write_timeout,
        }
    }

    /// Sets how long one call may wait; as in std a limit of zero is refused.
    pub(super) fn set_timeout(&self, direction: Direction, limit: Option<Duration>) -> io::Result<()> {
        if limit == Some(Duration::ZERO) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a time limit of zero is no limit"));
        }
        self.timeout(direction).set(limit);
        Ok(())
    }

    /// Tries `attempt` until it does not say "would block", with the socket's time limit.
    pub(super) fn retry<T>(
        &self,
        direction: Direction,
        mut attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        if let Place::Fiber(core, fiber) = scheduler::place() {
            core.count_call(fiber);
        }
        let mut deadline = None;
        loop {
            match attempt(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => return result,
            }
            // The clock is read only by calls that have to wait.
            if deadline.is_none() {
                deadline = self.timeout(direction).get().and_then(|limit| Instant::now().checked_add(limit));
            }
            self.wait(direction, deadline)?;
        }
    }

    /// Waits after "would block".
    pub(super) fn wait(&self, direction: Direction, deadline: Option<Instant>) -> io::Result<()> {
        match scheduler::place() {
            Place::Fiber(core, fiber) => {
                let source = self.register(&core, direction)?;
                core.wait_source(fiber, source, direction, deadline, None)
            }
            Place::Unwinding | Place::Thread => block_thread(self.socket.as_fd(), direction, deadline),
        }
    }

    fn register(&self, core: &Rc<Core>, direction: Direction) -> io::Result<Key> {
        let mut registration = self.registration.borrow_mut();
        if let Some(known) = registration.as_ref().filter(|known| known.core.as_ptr() == Rc::as_ptr(core)) {
            return Ok(known.source);
        }
        let source = core.poller.borrow_mut().adopt(self.socket.as_fd().as_raw_fd(), direction.interest())?;
        *registration = Some(Registration { core: Rc::downgrade(core), source });
        Ok(source)
    }
}

/// `Read` and `Write` for a stream and for a reference to it, and its descriptor.
macro_rules! stream_io {
    ($stream:ident) => {
        impl Read for &$stream {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.retry(Direction::Read, |mut socket| socket.read(buffer))
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.retry(Direction::Read, |mut socket| socket.read_vectored(buffers))
            }
        }

        impl Write for &$stream {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.retry(Direction::Write, |mut socket| socket.write(bytes))
            }

            fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                self.0.retry(Direction::Write, |mut socket| socket.write_vectored(slices))
            }

            /// Does nothing: a socket has no buffer to flush.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Read for $stream {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                (&*self).read(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&*self).read_vectored(buffers)
            }
        }

        impl Write for $stream {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                (&*self).write(bytes)
            }

            fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(slices)
            }

            /// Does nothing: a socket has no buffer to flush.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

/// What every socket type has: time limits, the way from and to std, its descriptor.
macro_rules! socket_basics {
    ($socket:ident, $std:ty) => {
        impl $socket {
            /// Takes over a socket of std, and makes it non-blocking.
            ///
            /// # Errors
            ///
            /// The kernel refuses the mode.
            pub fn from_std(socket: $std) -> io::Result<Self> {
                socket.set_nonblocking(true)?;
                Ok($socket(Io::new(socket)))
            }

            /// Lets go of the socket, which then blocks again and may go to another thread.
            ///
            /// # Errors
            ///
            /// The kernel refuses the mode.
            pub fn into_std(self) -> io::Result<$std> {
                let socket = self.0.into_socket();
                socket.set_nonblocking(false)?;
                Ok(socket)
            }

            /// Another handle to the same socket. The time limits are each handle's own.
            ///
            /// # Errors
            ///
            /// No descriptor is left.
            pub fn try_clone(&self) -> io::Result<Self> {
                let socket = Io::new(self.0.socket().try_clone()?);
                socket.timeout(Direction::Read).set(self.0.timeout(Direction::Read).get());
                socket.timeout(Direction::Write).set(self.0.timeout(Direction::Write).get());
                Ok($socket(socket))
            }

            /// The error that is pending on the socket, which this clears.
            ///
            /// # Errors
            ///
            /// The kernel refuses to tell.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.0.socket().take_error()
            }

            /// Sets how long a call that reads or accepts may wait before it fails with `TimedOut`. The default is
            /// `None`: for ever.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a limit of zero.
            pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.0.set_timeout(Direction::Read, limit)
            }

            /// Sets how long a call that writes may wait before it fails with `TimedOut`. The default is `None`: for
            /// ever.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a limit of zero.
            pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.0.set_timeout(Direction::Write, limit)
            }

            /// The limit set by [`set_read_timeout`](Self::set_read_timeout).
            pub fn read_timeout(&self) -> Option<Duration> {
                self.0.timeout(Direction::Read).get()
            }

            /// The limit set by [`set_write_timeout`](Self::set_write_timeout).
            pub fn write_timeout(&self) -> Option<Duration> {
                self.0.timeout(Direction::Write).get()
            }
        }

        impl AsFd for $socket {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.socket().as_fd()
            }
        }
    };
}

pub(super) use {socket_basics, stream_io};
