//! How a server ends: Running, Draining, Closing, Stopped; and what it says of that.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

/// How the end of a server went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Connections that were open at the beginning of the end, and ended by themselves.
    pub drained: usize,
    /// Connections that were cut when the time was up.
    pub cut: usize,
    /// Threads left in a handler that did not return. They are not waited for.
    pub stuck: usize,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { drained, cut, stuck, took } = self;
        write!(f, "stopped in {took:.1?}: {drained} connections drained, {cut} cut")?;
        if *stuck > 0 {
            write!(f, ", {stuck} threads left in handlers that did not return")?;
        }
        Ok(())
    }
}

/// SIGTERM and SIGINT, while this lives.
pub(crate) struct Signals {
    pipe: UnixStream,
    ids: Vec<SigId>,
}

impl Signals {
    pub(crate) fn install() -> io::Result<Signals> {
        let (pipe, written) = UnixStream::pair()?;
        let mut signals = Signals { pipe, ids: Vec::new() };
        for signal in [SIGTERM, SIGINT] {
            signals.ids.push(signal_hook::low_level::pipe::register(signal, written.try_clone()?)?);
        }
        Ok(signals)
    }

    /// Waits for a signal, for at most `patience`. True: one came.
    pub(crate) fn wait(&mut self, patience: Option<Duration>) -> io::Result<bool> {
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            self.pipe.set_read_timeout(left)?;
            match self.pipe.read(&mut [0]) {
                Ok(count) => return Ok(count > 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
