//! Bytes both ways, until either side ends: for protocols that are not ours to read.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::upstream::{Link, from_now, wait_readable, wait_writable};
use crate::message::{Upgraded, UpgradedReader, UpgradedWriter};
use crate::transport::stream::is_timed_out;

const COPIED_BYTES: usize = 16 << 10;
/// While one direction cannot go on, this often somebody looks whether the server is cutting all. Then it gives everybody
/// a second.
const LOOK: Duration = Duration::from_millis(250);

/// What both directions share.
struct Tunnel {
    /// The server's end.
    far: TcpStream,
    /// For how long the server may take nothing.
    patience: Duration,
    /// For how long nothing may go through, in either direction.
    silence_max: Option<Duration>,
    begun: Instant,
    /// When something last went through, in milliseconds from `begun`.
    moved: AtomicU64,
}

/// Runs until both directions have ended, or one has failed.
pub(super) fn run(line: Upgraded, link: Link, patience: Duration) -> io::Result<()> {
    let (far, rest) = link.into_parts();
    let (mut near, mut back) = line.split();
    let (begun, moved) = (Instant::now(), AtomicU64::new(0));
    let tunnel = Arc::new(Tunnel { far, patience, silence_max: near.timeout(), begun, moved });
    back.write_all(&rest)?;
    let returning = tunnel.clone();
    // Where there is no thread for it, all is dropped, which ends both connections.
    let other = Other::start(move || returning.return_all(back))?;
    let sent = tunnel.send_all(&mut near);
    // The end of one direction is passed on; a failure, and the end of the server, ends both.
    tunnel.end(if sent.is_ok() { Shutdown::Write } else { Shutdown::Both });
    other.join(|| {
        if near.is_closing() {
            tunnel.end(Shutdown::Both);
        }
    });
    sent
}

impl Tunnel {
    /// From the client to the server.
    fn send_all(&self, near: &mut UpgradedReader) -> io::Result<()> {
        let (mut bytes, mut is_told) = (vec![0; COPIED_BYTES], false);
        loop {
            near.set_timeout(self.silence_left());
            match near.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.note_moved();
                    self.send(&bytes[..count], near)?;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    // Those at the ends may have something to say before the server stops.
                    io::ErrorKind::ConnectionAborted if !std::mem::replace(&mut is_told, true) => {}
                    io::ErrorKind::TimedOut if !self.is_silent() => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Has the server take all of it, unless it takes nothing for too long, or our own server is cutting all.
    fn send(&self, mut bytes: &[u8], near: &UpgradedReader) -> io::Result<()> {
        let mut until = from_now(self.patience);
        while !bytes.is_empty() {
            match (&self.far).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    until = from_now(self.patience);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if near.is_closing() {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                    match wait_writable(&self.far, until.min(from_now(LOOK))) {
                        Err(error) if is_timed_out(&error) && Instant::now() < until => {}
                        waited => waited?,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// From the server to the client.
    fn return_all(&self, mut near: UpgradedWriter) {
        match self.copy_to(&mut near) {
            Ok(()) => near.shutdown(),
            Err(_) => {
                near.cut();
                // The other direction may be waiting for the server to take more.
                self.end(Shutdown::Both);
            }
        }
    }

    fn copy_to(&self, near: &mut UpgradedWriter) -> io::Result<()> {
        let mut bytes = vec![0; COPIED_BYTES];
        loop {
            match Far(self).read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.note_moved();
                    near.write_all(&bytes[..count])?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn end(&self, how: Shutdown) {
        // The server may be gone already, which is as good.
        let _ = self.far.shutdown(how);
    }

    fn note_moved(&self) {
        self.moved.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// How much longer nothing may go through.
    fn silence_left(&self) -> Option<Duration> {
        let moved = self.begun + Duration::from_millis(self.moved.load(Ordering::Relaxed));
        self.silence_max.map(|silence_max| silence_max.saturating_sub(moved.elapsed()))
    }

    fn is_silent(&self) -> bool {
        self.silence_left() == Some(Duration::ZERO)
    }
}

/// The server's end, as a fiber or a thread waits for it.
struct Far<'a>(&'a Tunnel);

impl Read for Far<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Far(tunnel) = self;
        loop {
            match (&tunnel.far).read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = tunnel.silence_left().unwrap_or(Duration::MAX);
                    match wait_readable(&tunnel.far, from_now(left)) {
                        Err(error) if is_timed_out(&error) && !tunnel.is_silent() => {}
                        waited => waited?,
                    }
                }
                read => return read,
            }
        }
    }
}

/// The direction that does not run where the tunnel was begun.
enum Other {
    #[cfg(feature = "fibers")]
    Fiber(weftwork_fiber::JoinHandle<()>),
    /// A thread, and what is disconnected when it is done.
    Thread(JoinHandle<()>, Receiver<()>),
}

impl Other {
    fn start(work: impl FnOnce() + Send + 'static) -> io::Result<Other> {
        #[cfg(feature = "fibers")]
        if weftwork_fiber::in_fiber() {
            return Ok(Other::Fiber(weftwork_fiber::spawn(work)));
        }
        let (held, over) = channel();
        let work = move || {
            let _held = held;
            work();
        };
        let thread = std::thread::Builder::new().name("weft-tunnel".into()).spawn(work);
        let thread =
            thread.inspect_err(|error| log::error!("a tunnel ends: no thread can be started: {error}"))?;
        Ok(Other::Thread(thread, over))
    }

    /// Waits until it is done, and calls `look` now and then. It does not panic; if it did, it has said so.
    fn join(self, look: impl Fn()) {
        match self {
            #[cfg(feature = "fibers")]
            Other::Fiber(fiber) => drop(fiber.join()),
            Other::Thread(thread, over) => {
                while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    look();
                }
                drop(thread.join());
            }
        }
    }
}
