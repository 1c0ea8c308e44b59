//! HTTP/2 in the tests: the variable `WEFT_TEST_HTTP2` makes every client of the matrix speak HTTP/2. A case sends requests as the text
//! of HTTP/1.1 and reads responses as such text. This file translates both, on one connection.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weftwork::Server;

use super::TIMEOUT;
use super::http2_exchanges::Exchanges;
use super::request_text::RequestText;

/// Time that a send waits for the windows. Then the body waits here, as it would in the kernel's buffer.
const WINDOW_WAIT: Duration = Duration::from_millis(200);

/// Time for which a send into a tunnel looks whether the tunnel has ended.
const LOOK: Duration = Duration::from_millis(1);

/// Time in which the reset behind an early response has to come.
const RESET_WAIT: Duration = Duration::from_secs(1);

/// Bytes of bodies that may wait here.
const HELD_BYTES_MAX: usize = 1 << 20;

/// Returns whether the clients of the matrix speak HTTP/2.
pub(crate) fn is_on() -> bool {
    static ON: LazyLock<bool> = LazyLock::new(|| std::env::var_os("WEFT_TEST_HTTP2").is_some());
    *ON
}

/// Makes the server take HTTP/2 in clear, if the matrix speaks it.
pub(crate) fn accept(server: Server) -> Server {
    if is_on() { server.settings(|settings| settings.http2_cleartext(true)) } else { server }
}

/// What a client has below HTTP/2.
pub(crate) trait Transport: Read + Write {
    /// Waits until there is something to read. Returns false after this time.
    fn is_readable(&mut self, timeout: Duration) -> bool;
}

#[derive(Default)]
struct State {
    requests: RequestText,
    exchanges: Exchanges,
    /// A thread reads from the socket.
    is_read: bool,
    /// The server has ended its side, or the socket has failed.
    ended: Option<Result<(), ErrorKind>>,
}

/// A client's connection over any socket. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Http2Session {
    state: Arc<(Mutex<State>, Condvar)>,
    /// Held while frames are written, so that they keep their order.
    wire: Arc<Mutex<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Http2Session {
    pub(crate) fn has_begun(&self) -> bool {
        lock(&self.state.0).exchanges.has_begun()
    }

    /// Lets the connection begin behind these bytes.
    pub(crate) fn begin_behind(&self, before: &[u8]) {
        lock(&self.state.0).exchanges.begin_behind(before);
    }

    /// Ends this side.
    pub(crate) fn end_sending(&self, io: &mut impl Write) -> io::Result<()> {
        lock(&self.state.0).exchanges.end_sending();
        self.flush(usize::MAX, io).map(drop)
    }

    /// Whether the server says that it takes no more after the last response. If the request of that response is not whole,
    /// the server says so behind the response, so this waits.
    pub(crate) fn says_end(&self, io: &mut impl Transport) -> bool {
        let says_end = || lock(&self.state.0).exchanges.says_end();
        if !says_end() && lock(&self.state.0).exchanges.is_last_cut() {
            self.wait(RESET_WAIT, io, |state| !state.exchanges.is_last_cut());
        }
        says_end()
    }

    /// Sends the text of requests, each frame in pieces of this size.
    pub(crate) fn write(&self, text: &[u8], size: usize, io: &mut impl Transport) -> io::Result<()> {
        {
            let mut state = lock(&self.state.0);
            let State { requests, exchanges, .. } = &mut *state;
            requests.read(text, exchanges);
        }
        if lock(&self.state.0).exchanges.is_in_tunnel() {
            // The kernel would refuse bytes for a connection of HTTP/1.1 that has ended.
            self.wait(LOOK, io, |state| state.exchanges.has_tunnel_ended());
        }
        let mut progress = Instant::now();
        loop {
            if lock(&self.state.0).exchanges.has_tunnel_ended() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let (sent, left) = self.flush(size, io)?;
            if left == 0 {
                return Ok(());
            }
            if sent {
                progress = Instant::now();
            }
            match progress.elapsed() {
                waited if waited >= WINDOW_WAIT && left <= HELD_BYTES_MAX => return Ok(()),
                waited if waited >= TIMEOUT => return Err(ErrorKind::WouldBlock.into()),
                _ => {}
            }
            match self.wait(WINDOW_WAIT, io, |state| state.exchanges.can_send()) {
                Some(Err(kind)) => return Err(kind.into()),
                // No window grows any more.
                Some(Ok(())) if !lock(&self.state.0).exchanges.can_send() => {
                    return Err(ErrorKind::BrokenPipe.into());
                }
                _ => {}
            }
        }
    }

    /// Writes what the windows allow. Returns whether there was something, and how many bytes of bodies are left.
    fn flush(&self, size: usize, io: &mut impl Write) -> io::Result<(bool, usize)> {
        let _wire = lock(&self.wire);
        let (out, left) = lock(&self.state.0).exchanges.take_output();
        for piece in out.chunks(size) {
            io.write_all(piece)?;
        }
        Ok((!out.is_empty(), left))
    }

    /// Reads frames until `is_so`, the end or the timeout. Returns how the connection ended, if it has.
    fn wait(
        &self,
        timeout: Duration,
        io: &mut impl Transport,
        is_so: impl Fn(&State) -> bool,
    ) -> Option<Result<(), ErrorKind>> {
        let (mutex, changed) = &*self.state;
        let until = Instant::now() + timeout;
        let mut state = lock(mutex);
        while !is_so(&state) && state.ended.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            if state.is_read {
                let waited = changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.is_read = true;
            drop(state);
            let mut bytes = vec![0; 64 << 10];
            let read =
                if io.is_readable(left) { io.read(&mut bytes) } else { Err(ErrorKind::WouldBlock.into()) };
            state = lock(mutex);
            state.is_read = false;
            changed.notify_all();
            match read {
                Ok(0) => state.ended = Some(Ok(())),
                Ok(count) => state.exchanges.read(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => state.ended = Some(Err(error.kind())),
            }
        }
        state.ended
    }

    /// Reads the text of responses.
    pub(crate) fn read(
        &self,
        into: &mut [u8],
        timeout: Duration,
        io: &mut impl Transport,
    ) -> io::Result<usize> {
        let mut until = Instant::now() + timeout;
        loop {
            // What another thread reads behind this counts as a change.
            let (text, seen) = {
                let exchanges = &mut lock(&self.state.0).exchanges;
                (exchanges.take_text(into), exchanges.changes())
            };
            // Windows may have grown. The server may have ended the connection meanwhile.
            let begun = Instant::now();
            let _ = self.flush(usize::MAX, io);
            // Another thread may be sending much.
            until += begun.elapsed();
            if let Some(read) = text {
                return read;
            }
            let left = until.saturating_duration_since(Instant::now());
            let ended = self.wait(left, io, |state| state.exchanges.changes() != seen);
            let mut state = lock(&self.state.0);
            if state.exchanges.changes() != seen {
                continue;
            }
            return match ended {
                Some(Ok(())) => state.exchanges.end(),
                Some(Err(kind)) => Err(kind.into()),
                None => Err(ErrorKind::WouldBlock.into()),
            };
        }
    }
}
