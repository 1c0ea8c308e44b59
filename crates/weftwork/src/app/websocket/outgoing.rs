//! How several writers share one socket, none of them waiting for another with a lock in its hand.
//!
//! Whoever finds the socket free writes its own frames and those that are brought meanwhile. A lock held while the
//! client keeps a writer waiting would stop a thread of fibers for ever.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::frames;
use crate::message::UpgradedWriter;
use crate::message::exchange::Line;

pub(super) struct Outgoing {
    bytes_max: usize,
    /// To cut it off while somebody else is writing, who holds it. Nothing else here may: writers are kept by programs
    /// that do not look which of them are done with.
    line: Weak<dyn Line>,
    state: Mutex<State>,
}

struct State {
    /// None: somebody is writing, or nobody will.
    writer: Option<UpgradedWriter>,
    brought: Vec<u8>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// A close frame was brought: nothing follows it.
    Closed,
    /// The socket is done with: whoever has the writer ends the connection.
    Finished,
    /// A write has failed, or too much has waited for one.
    Broken,
}

impl Outgoing {
    pub(super) fn new(writer: UpgradedWriter, bytes_max: usize) -> Outgoing {
        let line = Arc::downgrade(&writer.line());
        let state = State { writer: Some(writer), brought: Vec::new(), stage: Stage::Open };
        Outgoing { bytes_max, line, state: Mutex::new(state) }
    }

    /// Sends a frame, or leaves it to whoever is writing.
    pub(super) fn send(&self, frame: Vec<u8>) -> io::Result<()> {
        let state = self.lock();
        self.bring(state, frame)
    }

    /// The same for a frame that nobody misses: none may follow a close, and a writer that failed has said so already.
    pub(super) fn send_if_open(&self, frame: Vec<u8>) -> io::Result<()> {
        let state = self.lock();
        if state.stage == Stage::Open { self.bring(state, frame) } else { Ok(()) }
    }

    /// Sends the frame that closes, unless one was sent before.
    pub(super) fn close(&self, frame: Vec<u8>) -> io::Result<()> {
        let mut state = self.lock();
        if state.stage != Stage::Open {
            return Ok(());
        }
        // Whatever waits, a close has room.
        state.stage = Stage::Closed;
        state.brought.extend_from_slice(&frame);
        self.write(state)
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().stage == Stage::Open
    }

    /// Nothing more is sent, nor on its way: what the client says from now on it says behind our end.
    pub(super) fn has_ended(&self) -> bool {
        let state = self.lock();
        match state.stage {
            Stage::Open => false,
            Stage::Closed | Stage::Finished => state.writer.is_some(),
            Stage::Broken => true,
        }
    }

    /// The socket is done with: closes it in order, as far as its client goes along.
    pub(super) fn finish(&self, code: u16) {
        // A client that is gone needs no farewell.
        let _ = self.close(frames::close(code, ""));
        let mut state = self.lock();
        if state.stage == Stage::Closed {
            state.stage = Stage::Finished;
        }
        let writer = state.writer.take();
        drop(state);
        if let Some(mut writer) = writer {
            writer.linger();
        }
    }

    /// The client has had its time to end its side: nothing more is read of it either.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        state.stage = Stage::Broken;
        // Else nobody could end it while this is kept.
        let writer = state.writer.take();
        drop(state);
        match writer {
            Some(mut writer) => writer.cut(),
            None => self.cut(),
        }
    }

    fn bring<'s>(&'s self, mut state: MutexGuard<'s, State>, frame: Vec<u8>) -> io::Result<()> {
        if state.stage != Stage::Open {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the WebSocket is closed"));
        }
        if !state.brought.is_empty() && state.brought.len() + frame.len() > self.bytes_max {
            // No close goes before: what stands in its way is just what the client does not take.
            state.stage = Stage::Broken;
            state.brought = Vec::new();
            drop(state);
            self.cut();
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the client reads too slowly"));
        }
        if state.brought.is_empty() {
            state.brought = frame;
        } else {
            state.brought.extend_from_slice(&frame);
        }
        self.write(state)
    }

    fn write<'s>(&'s self, mut state: MutexGuard<'s, State>) -> io::Result<()> {
        let Some(mut writer) = state.writer.take() else { return Ok(()) };
        let broken = Broken(self);
        let mut written = Ok(());
        while written.is_ok() && !state.brought.is_empty() {
            let frames = std::mem::take(&mut state.brought);
            drop(state);
            written = writer.write_all(&frames);
            state = self.lock();
        }
        std::mem::forget(broken);
        if written.is_err() {
            state.stage = Stage::Broken;
        }
        match state.stage {
            Stage::Open | Stage::Closed => state.writer = Some(writer),
            Stage::Finished => {
                drop(state);
                writer.linger();
            }
            Stage::Broken => writer.cut(),
        }
        written
    }

    fn cut(&self) {
        if let Some(line) = self.line.upgrade() {
            line.cut();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped only where a writer unwinds: a fiber that is cancelled while its client takes nothing. Half a frame may be
/// sent, and nobody can go on behind it.
struct Broken<'o>(&'o Outgoing);

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        self.0.lock().stage = Stage::Broken;
        self.0.cut();
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::message::Upgraded;

    const LINGER: Duration = Duration::from_secs(3600);

    /// Writes as its function does, and notes how it ends.
    struct Scripted<W> {
        write: W,
        is_ended: AtomicBool,
        is_cut: AtomicBool,
        /// How long the client was waited for.
        patience: Mutex<Duration>,
    }

    impl<W: Fn() + Send + Sync + 'static> Scripted<W> {
        fn begin(write: W) -> (Arc<Scripted<W>>, Outgoing) {
            let (is_ended, is_cut) = (false.into(), false.into());
            let line = Arc::new(Scripted { write, is_ended, is_cut, patience: Mutex::default() });
            let none = bytes::Bytes::new();
            let upgraded = Upgraded::new(line.clone(), none, Duration::ZERO, Duration::from_secs(1));
            (line, Outgoing::new(upgraded.split().1, 1000))
        }
    }

    impl<W: Fn() + Send + Sync> Line for Scripted<W> {
        fn peer_addr(&self) -> Option<SocketAddr> {
            None
        }

        fn read(&self, _: &mut [u8], patience: Option<Duration>, _: &mut bool) -> io::Result<usize> {
            *self.patience.lock().unwrap() = patience.unwrap();
            Ok(0)
        }

        fn write(&self, data: &[u8], _: Option<Duration>) -> io::Result<usize> {
            (self.write)();
            Ok(data.len())
        }

        fn limit_unread(&self, _: Option<Duration>) {}

        fn shutdown_write(&self) {
            self.is_ended.store(true, Ordering::SeqCst);
        }

        fn cut(&self) {
            self.is_cut.store(true, Ordering::SeqCst);
        }

        fn is_stopping(&self) -> bool {
            false
        }

        fn is_closing(&self) -> bool {
            false
        }

        fn heartbeat(&self) -> Duration {
            Duration::ZERO
        }

        fn linger_timeout(&self) -> Duration {
            LINGER
        }
    }

    #[test]
    fn a_writer_that_unwinds_leaves_nobody_in_the_belief_that_more_is_sent() {
        let (line, outgoing) = Scripted::begin(|| panic!("as asked"));
        let send = || outgoing.send(b"frame".to_vec());
        assert!(catch_unwind(AssertUnwindSafe(send)).is_err());
        assert_eq!(send().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(line.is_cut.load(Ordering::SeqCst) && !outgoing.is_open());
    }

    #[test]
    fn whoever_writes_when_the_socket_is_done_with_ends_it() {
        let (inside, go) = (Barrier::new(2), Barrier::new(2));
        let barriers = Arc::new((inside, go));
        let within = barriers.clone();
        let (line, outgoing) = Scripted::begin(move || {
            within.0.wait();
            within.1.wait();
        });
        std::thread::scope(|threads| {
            let writing = threads.spawn(|| outgoing.send(b"frame".to_vec()));
            barriers.0.wait();
            outgoing.close(frames::close(1000, "")).unwrap();
            assert!(!outgoing.has_ended(), "its client has no time to answer yet");
            outgoing.finish(1000);
            assert!(!line.is_ended.load(Ordering::SeqCst), "the close is still to be sent");
            barriers.1.wait();
            // The close.
            barriers.0.wait();
            barriers.1.wait();
            writing.join().unwrap().unwrap();
        });
        assert!(line.is_ended.load(Ordering::SeqCst) && !line.is_cut.load(Ordering::SeqCst));
        assert_eq!(Arc::strong_count(&line), 1, "nobody holds the connection");
        assert!(*line.patience.lock().unwrap() > LINGER / 2);
    }
}
