//! A pipe that wakes who waits for a descriptor: a thread in poll(2), or a fiber.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::system;

/// A pipe with a byte in it after a wake-up.
#[derive(Debug)]
pub(crate) struct WakePipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl WakePipe {
    pub(crate) fn open() -> io::Result<WakePipe> {
        let (reader, writer) = system::pipe()?;
        Ok(WakePipe { reader, writer })
    }

    /// Makes the pipe readable.
    pub(crate) fn wake(&self) {
        // A full pipe has a byte already.
        let _ = rustix::io::write(&self.writer, &[0]);
    }

    /// Takes the wake-ups back.
    pub(crate) fn clear(&self) {
        // An empty pipe is what is wanted.
        let _ = rustix::io::read(&self.reader, &mut [0; 64]);
    }
}

impl AsFd for WakePipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
