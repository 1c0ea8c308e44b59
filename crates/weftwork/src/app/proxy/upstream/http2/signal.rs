//! Wakes a thread or fiber that waits for a shared connection, as a socket would.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use super::super::conn::wait_readable;
use crate::transport::system;

/// A pipe with a byte in it after a change. Waits on descriptors suspend fibers and block threads, so a request
/// waits for a stream as it waits for a socket of its own.
pub(super) struct Signal {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Signal {
    pub(super) fn new() -> io::Result<Signal> {
        let (reader, writer) = system::pipe()?;
        Ok(Signal { reader, writer })
    }

    pub(super) fn give(&self) {
        // A full pipe has the byte already.
        let _ = rustix::io::write(&self.writer, &[0]);
    }

    pub(super) fn clear(&self) {
        // An empty pipe is what is wanted.
        let _ = rustix::io::read(&self.reader, &mut [0; 64]);
    }

    /// Waits until the signal is given. The caller then clears it and looks again.
    pub(super) fn wait(&self, until: Instant) -> io::Result<()> {
        wait_readable(&self.reader, until)
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
