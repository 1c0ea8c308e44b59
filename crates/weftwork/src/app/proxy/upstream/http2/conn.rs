//! A connection of HTTP/2 that several requests share. A thread of its own reads it, and each request writes its
//! own frames.
//!
//! ```text
//! server --frames--> driver.rs (thread) --frames.rs--> streams --WakePipe--> stream.rs (a request, on any thread)
//!        <-- what the socket takes at once, the rest by the driver -- out <--+
//! ```
//!
//! The lock is held for a copy and for a write that does not block, and no thread waits while it holds the lock.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weftwork_wire::{ErrorCode, Http2, Http2Fault, Http2Settings, Window};

use super::super::conn::{wait_readable, wait_writable};
use super::super::stream::UpstreamStream;
use super::state::{State, Stream, StreamEnd};
use super::{NewConn, driver};
use crate::transport::wake_pipe::WakePipe;

/// Bytes of a response that may wait for its client. With it, a round trip of 50 ms allows 5 MB/s on each stream.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
/// Bytes that may be on their way on the connection. They are granted again as they arrive, so a client that does
/// not read stops its own stream alone.
pub(super) const CONN_WINDOW: u32 = 4 << 20;
/// Maximum number of requests that share a connection, if the server allows more.
pub(super) const STREAMS_MAX: usize = 100;
/// Bytes that wait for the socket, from which on request bodies wait.
pub(super) const OUT_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes that wait for a server that reads nothing and makes this end answer: PING, SETTINGS.
const UNREAD_BYTES_MAX: usize = 8 << 20;
/// Maximum age of a connection without requests. The server says when it ends one, so this is longer than in
/// HTTP/1.1.
pub(super) const IDLE_AGE_MAX: Duration = Duration::from_secs(60);
/// If nothing at all arrives for this time while a request waits, the connection may be dead.
const SILENCE_MAX: Duration = Duration::from_secs(5);
const SPARE_SIGNALS_MAX: usize = 16;

/// One connection.
pub(super) struct SharedConn {
    pub(super) stream: UpstreamStream,
    pub(super) address: SocketAddr,
    /// `http` or `https`.
    pub(super) scheme: &'static str,
    /// Whether the connection is kept without requests.
    is_kept: bool,
    /// Wakes the driver.
    pub(super) driver: WakePipe,
    state: Mutex<State>,
}

impl SharedConn {
    /// Exchanges SETTINGS with the server, until `until`, and starts the driver. A request waits for these SETTINGS
    /// because they say how many requests the server takes at once, and that it speaks HTTP/2 at all.
    pub(super) fn establish(new: NewConn, until: Instant) -> io::Result<Arc<SharedConn>> {
        let NewConn { stream, address, limits, is_kept } = new;
        let settings = Http2Settings {
            window: STREAM_WINDOW,
            head_bytes_max: limits.head_bytes_max,
            ..Http2Settings::default()
        };
        let http = Http2::client(&settings);
        let mut out = Vec::new();
        http.write_preface(&mut out);
        Http2::write_window_update(0, CONN_WINDOW - Window::DEFAULT, &mut out);
        let state = State::new(http, limits, out);
        let scheme = if stream.is_tls() { "https" } else { "http" };
        let (driver, state) = (WakePipe::open()?, Mutex::new(state));
        let conn = Arc::new(SharedConn { stream, address, scheme, is_kept, driver, state });
        let input = conn.begin(until).map_err(not_http2)?;
        driver::start(&conn, input)?;
        Ok(conn)
    }

    /// Returns what has arrived behind the SETTINGS of the server.
    fn begin(&self, until: Instant) -> io::Result<Vec<u8>> {
        let mut input = Vec::new();
        loop {
            let mut state = self.lock();
            self.flush(&mut state);
            let is_writing = std::mem::take(&mut state.wants_write);
            if state.is_over {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if state.has_settings && !is_writing {
                return Ok(input);
            }
            drop(state);
            match driver::read(&self.stream, &mut input) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_writing => {
                    wait_writable(&self.stream, until)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_readable(&self.stream, until)?;
                }
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    read?;
                    self.receive(&mut input).map_err(io::Error::other)?;
                }
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a place for a request. Returns false if the connection takes no more.
    pub(super) fn reserve(&self) -> bool {
        let mut state = self.lock();
        let streams_max = (state.http.peer().streams_max as usize).min(STREAMS_MAX);
        let has_place = state.is_open() && state.streams.len() + state.reserved < streams_max;
        state.reserved += usize::from(has_place);
        has_place
    }

    /// Returns whether the connection takes requests, now or when others have ended.
    pub(super) fn is_open(&self) -> bool {
        self.lock().is_open()
    }

    /// Returns whether no request uses the connection.
    pub(super) fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }

    /// Takes no new requests. The connection ends with the last one.
    pub(super) fn retire(&self) {
        self.lock().is_retired = true;
        self.driver.wake();
    }

    /// Uses the place for a stream. `write` appends the head of the request and returns the number of the stream.
    /// Returns 0 if the connection takes no more streams.
    pub(super) fn open(
        &self,
        signal: Arc<WakePipe>,
        is_head: bool,
        write: impl FnOnce(&mut Http2, &mut Vec<u8>) -> Option<u32>,
    ) -> u32 {
        let mut state = self.lock();
        if state.has_goaway || state.is_over {
            return 0;
        }
        let State { http, out, .. } = &mut *state;
        let Some(id) = write(http, out) else {
            // All numbers are used.
            state.is_retired = true;
            return 0;
        };
        let stream = Stream::new(signal, is_head, state.http.peer().window);
        state.reserved -= 1;
        state.streams.insert(id, stream);
        self.flush(&mut state);
        id
    }

    /// Gives a place back that was not used.
    pub(super) fn give_back(&self) {
        let mut state = self.lock();
        state.reserved -= 1;
        self.note_idle(&mut state);
    }

    /// Ends a stream for its request. `is_sent`: nothing more of the request is to come.
    pub(super) fn close(&self, id: u32, is_sent: bool) {
        let mut state = self.lock();
        let Some(stream) = state.streams.remove(&id) else { return };
        let is_whole = matches!(stream.end, Some(StreamEnd::Whole));
        let is_over = stream.is_reset || (is_whole && is_sent);
        if !is_over {
            let code = if is_whole { ErrorCode::NO_ERROR } else { ErrorCode::CANCEL };
            Http2::write_reset(id, code, &mut state.out);
            let is_silent = state.last_received < stream.opened && stream.opened.elapsed() >= SILENCE_MAX;
            state.is_retired |= is_silent;
        }
        if state.spare_signals.len() < SPARE_SIGNALS_MAX {
            state.spare_signals.push(stream.signal);
        }
        self.note_idle(&mut state);
        self.flush(&mut state);
    }

    fn note_idle(&self, state: &mut State) {
        if state.is_idle() {
            state.idle_since = Instant::now();
            state.is_retired |= !self.is_kept;
            if state.is_retired {
                self.driver.wake();
            }
        }
    }

    /// Returns a signal for a request.
    pub(super) fn signal(&self) -> io::Result<Arc<WakePipe>> {
        match self.lock().spare_signals.pop() {
            Some(spare) => Ok(spare),
            None => Ok(Arc::new(WakePipe::open()?)),
        }
    }

    /// Sends what the socket takes. The driver sends the rest.
    pub(super) fn flush(&self, state: &mut State) {
        while !state.is_over && (state.sent < state.out.len() || self.stream.has_unsent()) {
            match self.stream.write(&state.out[state.sent..]) {
                Ok(count) => state.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if state.unsent() > UNREAD_BYTES_MAX + OUT_BYTES_MAX {
                        return state.end_all();
                    }
                    if !std::mem::replace(&mut state.wants_write, true) {
                        self.driver.wake();
                    }
                    return;
                }
                Err(_) => {
                    // What the server has sent before is still read.
                    state.is_retired = true;
                    return state.end_writing();
                }
            }
        }
        state.wants_write = false;
        state.out.clear();
        state.out.shrink_to(OUT_BYTES_MAX);
        state.sent = 0;
    }

    /// Takes the frames at the start of `input`, and removes them.
    pub(super) fn receive(&self, input: &mut Vec<u8>) -> Result<(), Http2Fault> {
        let mut state = self.lock();
        state.last_received = Instant::now();
        let taken = state.take_frames(input);
        if let Err(fault) = &taken {
            let code = fault.code();
            Http2::write_goaway(0, code, &mut state.out);
            state.end_all_with(StreamEnd::Fault(*fault));
        }
        self.flush(&mut state);
        input.drain(..taken?);
        Ok(())
    }
}

/// States that the server does not speak HTTP/2.
fn not_http2(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            "the server did not begin HTTP/2 within connect_timeout: use an http:// URL if it speaks HTTP/1.1",
        ),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::Other => {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the server does not speak HTTP/2 ({error}): use an http:// URL if it speaks HTTP/1.1"
                ),
            )
        }
        _ => error,
    }
}
