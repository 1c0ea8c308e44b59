//! Waits of a handler for a future, until the future is ready or its client leaves.

use std::future::Future;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::ConnExchange;
use crate::conn::Readiness;
use crate::message::WaitError;
use crate::message::thread_wakeup::ThreadWakeup;
use crate::transport::wake_pipe::WakePipe;
use crate::transport::{Stream, Tick};

/// Time after which a system without epoll looks whether the client has left.
#[cfg(not(target_os = "linux"))]
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// One descriptor that is readable after a wake-up, and when the client has left.
#[cfg(target_os = "linux")]
struct Either(OwnedFd);

#[cfg(target_os = "linux")]
impl Either {
    fn open(pipe: &WakePipe, stream: &Stream) -> io::Result<Either> {
        use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&set, pipe, EventData::new_u64(0), EventFlags::IN)?;
        let (client, event) = match stream.memory() {
            // Without a direction, it is readable after the end only.
            Some(memory) => (memory.fd(false, false)?, EventFlags::IN),
            None => (stream.as_fd(), EventFlags::RDHUP),
        };
        epoll::add(&set, client, EventData::new_u64(1), event)?;
        Ok(Either(set))
    }

    fn fd<'f>(&'f self, _: &'f WakePipe) -> BorrowedFd<'f> {
        self.0.as_fd()
    }

    fn next_look(&self, _: Tick, until: Tick) -> Tick {
        until
    }
}

/// Elsewhere, the client is looked at now and then.
#[cfg(not(target_os = "linux"))]
struct Either;

#[cfg(not(target_os = "linux"))]
impl Either {
    fn open(_: &WakePipe, _: &Stream) -> io::Result<Either> {
        Ok(Either)
    }

    fn fd<'f>(&'f self, pipe: &'f WakePipe) -> BorrowedFd<'f> {
        pipe.as_fd()
    }

    fn next_look(&self, now: Tick, until: Tick) -> Tick {
        now.after(LOOK_AGAIN).min(until)
    }
}

impl ConnExchange<'_> {
    /// Polls the future until it is ready.
    pub(super) fn wait_for_future(
        &self,
        mut future: Pin<&mut dyn Future<Output = ()>>,
        deadline: Option<Instant>,
    ) -> Result<(), WaitError> {
        let wakeup = Arc::new(ThreadWakeup::new(self.wait.event_loop()));
        let waker = Waker::from(wakeup.clone());
        while future.as_mut().poll(&mut task::Context::from_waker(&waker)).is_pending() {
            match self.wait.is_simulated() {
                true => self.park(&wakeup, deadline)?,
                false => self.wait_for_wakeup(&wakeup, deadline)?,
            }
            wakeup.clear();
        }
        Ok(())
    }

    fn wait_for_wakeup(&self, wakeup: &ThreadWakeup, deadline: Option<Instant>) -> Result<(), WaitError> {
        let until = deadline.map_or(Tick(u64::MAX), |deadline| self.cx.clock.at_last(deadline));
        let stream = &self.conn.stream;
        let opened = wakeup.pipe().and_then(|pipe| Ok((pipe, Either::open(pipe, stream)?)));
        let (pipe, either) = opened.map_err(|_| WaitError::Overload)?;
        loop {
            if wakeup.is_woken() {
                return Ok(());
            }
            if self.has_left() {
                return Err(WaitError::ClientGone);
            }
            let look = either.next_look(self.wait.now(), until);
            match self.wait.ready(either.fd(pipe), Readiness::Read, look) {
                // A byte from before the last look, or for the next.
                Ok(()) => pipe.clear(),
                Err(error) => match error.kind() {
                    io::ErrorKind::TimedOut if look < until => {}
                    io::ErrorKind::TimedOut => return Err(WaitError::Timeout),
                    io::ErrorKind::ConnectionAborted => return Err(WaitError::ShuttingDown),
                    io::ErrorKind::ResourceBusy => {
                        self.note_overload("to wait for a future");
                        return Err(WaitError::Overload);
                    }
                    _ => return Err(WaitError::ClientGone),
                },
            }
        }
    }

    /// Waits in a test, whose clock does not move and whose client is on this thread.
    fn park(&self, wakeup: &ThreadWakeup, deadline: Option<Instant>) -> Result<(), WaitError> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(self.wait.moment()));
        let begun = Instant::now();
        while !wakeup.is_woken() {
            if self.has_left() {
                return Err(WaitError::ClientGone);
            }
            match left.map(|left| left.saturating_sub(begun.elapsed())) {
                None => thread::park(),
                Some(Duration::ZERO) => return Err(WaitError::Timeout),
                Some(left) => thread::park_timeout(left),
            }
        }
        Ok(())
    }
}
