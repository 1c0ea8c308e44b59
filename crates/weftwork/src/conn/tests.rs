//! Tests of a connection, step by step, with a clock that the test moves.

mod close;
mod deadlines;
mod faults;
mod feeds;
mod http2;
mod interim;
#[cfg(target_os = "linux")]
mod segments;
mod steps;
#[cfg(feature = "_tls")]
mod tls;
mod upgrade;
mod waits;
mod writers;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::*;
use crate::message::{Handler, Payload, Request, Response};
use crate::settings::Settings;
use crate::transport::{CallSlot, DateCache};

/// A connection, its peer, and the parts of an engine that it needs.
struct Bed {
    conn: Box<Conn>,
    peer: UnixStream,
    cx: Context,
    pool: BufferPool,
    dates: DateCache,
    slot: Arc<CallSlot>,
    now: Tick,
    /// Whether the peer has closed its side, as a poller reports it.
    ended: bool,
    /// Duration of each call of the handler.
    call_takes: u64,
    calls: usize,
}

/// Wait of a handler. The peer never makes progress, and the deadline ends the wait.
struct InVain {
    now: Tick,
}

impl IoWait for InVain {
    fn now(&self) -> Tick {
        self.now
    }

    fn wait_ready(&self, _: BorrowedFd<'_>, _: Readiness, _: Tick, _: Stage) -> std::io::Result<()> {
        Err(ErrorKind::TimedOut.into())
    }
}

/// The handler. `/large` is more than a socket accepts, `/kept` is a file whose bytes are in memory, `/echo` reads its
/// body, `/close` closes. It ignores everything else.
fn handler(req: &mut Request) -> crate::Result<Response> {
    Ok(match req.path() {
        "/large" => Response::bytes(vec![b'x'; 8 << 20]),
        "/medium" => Response::bytes(vec![b'x'; 15 << 10]),
        "/kept" => Response { payload: kept(), ..Response::default() },
        "/echo" => Response::bytes(req.body().bytes()?),
        "/close" => Response::text("last").with_close(),
        _ => Response::text("hello"),
    })
}

/// Returns an empty file, to show what is sent.
fn kept() -> Payload {
    let file = Arc::new(File::open("/dev/null").unwrap());
    Payload::File { file, offset: 0, count: 20 << 10, read: Some(vec![b'k'; 20 << 10].into()) }
}

impl Bed {
    fn new() -> Bed {
        Bed::with(Settings::default())
    }

    fn with(settings: Settings) -> Bed {
        let (ours, peer) = UnixStream::pair().unwrap();
        Bed::over(ours, peer, settings)
    }

    /// Returns a peer whose kernel accepts very little.
    fn narrow() -> Bed {
        let (ours, peer) = UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4096).unwrap();
        Bed::over(ours, peer, Settings::default())
    }

    fn over(ours: UnixStream, peer: UnixStream, settings: Settings) -> Bed {
        peer.set_nonblocking(true).unwrap();
        let cx = Context::new(settings).unwrap();
        let now = Tick(0);
        let conn = Conn::new(Stream::new(OwnedFd::from(ours)), None, now, &cx);
        let (pool, dates) = (BufferPool::alone(), DateCache::new(now));
        let slot = Arc::default();
        Bed { conn, peer, cx, pool, dates, slot, now, ended: false, call_takes: 0, calls: 0 }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.peer.write_all(bytes.as_ref()).unwrap();
    }

    fn half_close(&mut self) {
        self.peer.shutdown(std::net::Shutdown::Write).unwrap();
        self.ended = true;
    }

    /// Continues like a loop after an event, until the connection must wait or has ended.
    fn drive(&mut self) -> Step {
        self.conn.note_ready(self.ended);
        self.go_on()
    }

    fn go_on(&mut self) -> Step {
        loop {
            let (now, step) = (self.now, self.conn.step(self.now, &self.cx));
            match step {
                Step::Call => self.call(),
                Step::Handshake => self.conn.advance_handshake(now, &self.cx),
                Step::Stream => unreachable!("HTTP/2 is off"),
                Step::Close | Step::Upgrade => return step,
                Step::WaitFeed => {
                    self.conn.release_buffers(&mut self.pool);
                    return step;
                }
                Step::Read if !self.conn.is_read_ready() => {
                    self.conn.release_buffers(&mut self.pool);
                    return step;
                }
                Step::Read => match self.conn.fill(now, &mut self.pool) {
                    Ok(0) => self.conn.on_eof(),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return Step::Close,
                },
                Step::Write => match self.conn.flush(now) {
                    Ok(Flushed::All) => {}
                    Ok(_) => return step,
                    Err(_) => return Step::Close,
                },
            }
        }
    }

    /// Reads a request and calls its handler, and sends nothing.
    fn call_next(&mut self) {
        self.conn.note_ready(false);
        assert!(self.conn.fill(self.now, &mut self.pool).is_ok_and(|count| count > 0));
        assert_eq!(self.conn.step(self.now, &self.cx), Step::Call);
        self.call();
    }

    fn call(&mut self) {
        self.now.0 += self.call_takes;
        let wait = InVain { now: self.now };
        self.call_with(&handler, &wait);
    }

    fn call_with(&mut self, handler: &dyn Handler, wait: &dyn IoWait) {
        self.calls += 1;
        let (cx, dates, slot) = (&self.cx, &mut self.dates, &self.slot);
        self.now = self.conn.run(Call { cx, now: wait.now(), handler, wait, dates, slot });
        assert_eq!(self.now, wait.now(), "whoever called would go on with a time that has passed");
    }

    /// Returns all bytes that the peer has received.
    fn got(&mut self) -> String {
        let mut all = Vec::new();
        let mut part = vec![0; 1 << 16];
        while let Ok(count @ 1..) = self.peer.read(&mut part) {
            all.extend_from_slice(&part[..count]);
        }
        String::from_utf8(all).unwrap()
    }

    /// Lets the peer read this many bytes.
    fn take(&mut self, bytes: usize) {
        self.peer.read_exact(&mut vec![0; bytes]).unwrap();
    }

    /// Returns the deadline, in milliseconds from now.
    fn due(&self) -> u64 {
        self.conn.deadline(&self.cx).0 - self.now.0
    }

    /// Lets the deadline pass, like the timer wheel.
    fn expire(&mut self) -> Step {
        self.now = self.conn.deadline(&self.cx);
        self.conn.on_timeout(self.now, &self.cx);
        self.go_on()
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn post(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}
