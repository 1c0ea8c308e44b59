//! Bytes both ways, until either side ends: for protocols that are not ours to read.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::upstream::{Link, wait_readable, wait_writable};
use crate::message::{Upgraded, UpgradedWriter};

/// A tunnel may be silent for as long as it likes; the waits of one direction are only made anew after this.
const PATIENCE: Duration = Duration::from_secs(3600);
const COPIED_BYTES: usize = 16 << 10;

/// Runs until both directions have ended, or one has failed.
pub(super) fn run(line: Upgraded, link: Link) -> io::Result<()> {
    let (stream, rest) = link.into_parts();
    let far = Far(Arc::new(stream));
    let (mut near, mut back) = line.split();
    back.write_all(&rest)?;
    let returning = far.clone();
    aside(
        move || return_all(returning, back),
        move || {
            let copied = copy(&mut near, &mut far.clone());
            // The end of one direction is passed on; a failure, and the end of the server, ends both.
            let _ = far.0.shutdown(if copied.is_ok() { Shutdown::Write } else { Shutdown::Both });
            copied
        },
    )
}

fn return_all(mut far: Far, mut near: UpgradedWriter) {
    match copy(&mut far, &mut near) {
        Ok(()) => near.shutdown(),
        Err(_) => near.cut(),
    }
}

fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = vec![0; COPIED_BYTES];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&bytes[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Runs `there` on a fiber or a thread of its own, and `here` on this one, until both are done.
fn aside<T>(there: impl FnOnce() + Send + 'static, here: impl FnOnce() -> T) -> T {
    #[cfg(feature = "fibers")]
    if weftwork_fiber::in_fiber() {
        let fiber = weftwork_fiber::spawn(there);
        let done = here();
        let _ = fiber.join();
        return done;
    }
    let thread = std::thread::Builder::new().name("weft-tunnel".into()).spawn(there);
    let done = here();
    match thread {
        // It does not panic; if it did, it has said so.
        Ok(thread) => drop(thread.join()),
        Err(error) => log::error!("a tunnel goes one way: {error}"),
    }
    done
}

/// The server's end.
#[derive(Clone)]
struct Far(Arc<TcpStream>);

impl Read for Far {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&*self.0).read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    patiently(|until| wait_readable(&*self.0, until))?;
                }
                read => return read,
            }
        }
    }
}

impl Write for Far {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        loop {
            match (&*self.0).write(data) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    patiently(|until| wait_writable(&*self.0, until))?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn patiently(wait: impl Fn(Instant) -> io::Result<()>) -> io::Result<()> {
    match wait(Instant::now() + PATIENCE) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(()),
        waited => waited,
    }
}
