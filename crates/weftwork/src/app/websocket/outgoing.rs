//! Lets several writers share one socket. No writer waits for another one while it holds a lock.
//!
//! The writer that finds the socket free writes its own frames and those that are queued meanwhile. If a lock
//! were held while a slow client keeps a writer waiting, a thread of fibers would stop for ever.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::frames;
use crate::message::UpgradedWriter;
use crate::message::exchange::UpgradedIo;

/// Time between two checks for space in the queue. The client has been slow for longer.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Outgoing {
    bytes_max: u64,
    /// Disconnects the client while another thread holds the writer. It is weak because programs keep writers
    /// of sockets that have ended.
    line: Weak<dyn UpgradedIo>,
    state: Mutex<State>,
}

struct State {
    /// `None` while a thread is writing, or after the end.
    writer: Option<UpgradedWriter>,
    queued: Vec<u8>,
    stage: Stage,
    /// Whether the thread that writes is the reader, which started with a frame of its own.
    reader_is_writing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// A close frame is queued, and nothing may follow it.
    Closed,
    /// The socket is finished. The thread with the writer ends the connection.
    Finished,
    /// A write has failed, or the queue was full.
    Broken,
}

impl Outgoing {
    pub(super) fn new(writer: UpgradedWriter, bytes_max: u64) -> Outgoing {
        let line = Arc::downgrade(&writer.line());
        let state =
            State { writer: Some(writer), queued: Vec::new(), stage: Stage::Open, reader_is_writing: false };
        Outgoing { bytes_max, line, state: Mutex::new(state) }
    }

    /// Sends a frame, or leaves it to the thread that is writing.
    pub(super) fn send(&self, frame: Vec<u8>) -> io::Result<()> {
        let mut state = self.lock();
        // Otherwise a single sender would be disconnected for not waiting, although it cannot know that it must
        // wait. The wait ends, because a write of the reader fails after `write_timeout`. A fiber that unwinds
        // must not wait, because it would block the thread that the reader needs.
        let may_wait = !std::thread::panicking();
        while may_wait && state.reader_is_writing && state.stage == Stage::Open && !self.fits(&state, &frame)
        {
            drop(state);
            pause();
            state = self.lock();
        }
        self.queue(state, frame)
    }

    /// Sends a reply of the reader, unless the socket is closed. A reply must not follow a close frame, and a
    /// failed writer has already reported its error.
    pub(super) fn send_if_open(&self, frame: Vec<u8>) -> io::Result<()> {
        let mut state = self.lock();
        if state.stage != Stage::Open {
            return Ok(());
        }
        state.reader_is_writing |= state.writer.is_some();
        self.queue(state, frame)
    }

    /// Sends a close frame, unless one was sent before.
    pub(super) fn close(&self, frame: Vec<u8>) -> io::Result<()> {
        let mut state = self.lock();
        if state.stage != Stage::Open {
            return Ok(());
        }
        // A close frame is queued even if the queue is full.
        state.stage = Stage::Closed;
        state.queued.extend_from_slice(&frame);
        self.write(state)
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().stage == Stage::Open
    }

    /// Returns whether our side has ended: nothing more is sent or queued.
    pub(super) fn has_ended(&self) -> bool {
        let state = self.lock();
        match state.stage {
            Stage::Open => false,
            Stage::Closed | Stage::Finished => state.writer.is_some(),
            Stage::Broken => true,
        }
    }

    /// Closes the socket after its last use, as far as the client takes part.
    pub(super) fn finish(&self, code: u16) {
        // The client may be gone, which needs no close frame.
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

    /// Disconnects a client that did not end its side in time. Nothing more is read from it.
    pub(super) fn abort(&self) {
        let mut state = self.lock();
        state.stage = Stage::Broken;
        // Taken out because otherwise no other thread could end the connection.
        let writer = state.writer.take();
        drop(state);
        match writer {
            Some(mut writer) => writer.cut(),
            None => self.cut(),
        }
    }

    fn queue<'s>(&'s self, mut state: MutexGuard<'s, State>, frame: Vec<u8>) -> io::Result<()> {
        if state.stage != Stage::Open {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the WebSocket is closed"));
        }
        if !self.fits(&state, &frame) {
            // No close frame is sent first, because it would wait behind the bytes that the client does not
            // read.
            state.stage = Stage::Broken;
            state.queued = Vec::new();
            drop(state);
            self.cut();
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the client reads too slowly"));
        }
        if state.queued.is_empty() {
            state.queued = frame;
        } else {
            state.queued.extend_from_slice(&frame);
        }
        self.write(state)
    }

    fn fits(&self, state: &State, frame: &[u8]) -> bool {
        state.queued.is_empty() || (state.queued.len() + frame.len()) as u64 <= self.bytes_max
    }

    fn write<'s>(&'s self, mut state: MutexGuard<'s, State>) -> io::Result<()> {
        let Some(mut writer) = state.writer.take() else { return Ok(()) };
        let broken = MarkBroken(self);
        let mut written = Ok(());
        while written.is_ok() && !state.queued.is_empty() {
            let frames = std::mem::take(&mut state.queued);
            drop(state);
            written = writer.write_all(&frames);
            state = self.lock();
        }
        std::mem::forget(broken);
        state.reader_is_writing = false;
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

/// Suspends the fiber if there is one, because the reader may be another fiber of the same thread.
fn pause() {
    #[cfg(all(unix, feature = "fibers"))]
    weftwork_fiber::sleep(PAUSE);
    #[cfg(not(all(unix, feature = "fibers")))]
    std::thread::sleep(PAUSE);
}

/// Marks the socket as broken if a writer unwinds: a fiber that is cancelled while its client reads nothing.
/// Half a frame may be sent, so no frame can follow.
struct MarkBroken<'o>(&'o Outgoing);

impl Drop for MarkBroken<'_> {
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
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::message::Upgraded;

    const LINGER: Duration = Duration::from_secs(3600);

    /// Writes like its function, and records how it ends.
    struct Scripted<W> {
        write: W,
        is_ended: AtomicBool,
        is_cut: AtomicBool,
        /// The time that was spent waiting for the client.
        waited: Mutex<Duration>,
    }

    impl<W: Fn() + Send + Sync + 'static> Scripted<W> {
        fn begin(write: W) -> (Arc<Scripted<W>>, Outgoing) {
            let (is_ended, is_cut) = (false.into(), false.into());
            let line = Arc::new(Scripted { write, is_ended, is_cut, waited: Mutex::default() });
            let none = bytes::Bytes::new();
            let upgraded = Upgraded::new(line.clone(), none, Duration::ZERO, Duration::from_secs(1));
            (line, Outgoing::new(upgraded.split().1, 1000))
        }
    }

    impl<W: Fn() + Send + Sync> UpgradedIo for Scripted<W> {
        fn peer_addr(&self) -> Option<SocketAddr> {
            None
        }

        fn read(&self, _: &mut [u8], timeout: Option<Duration>, _: &mut bool) -> io::Result<usize> {
            *self.waited.lock().unwrap() = timeout.unwrap();
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
    fn after_a_writer_unwinds_the_next_send_fails() {
        let (line, outgoing) = Scripted::begin(|| panic!("as asked"));
        let send = || outgoing.send(b"frame".to_vec());
        assert!(catch_unwind(AssertUnwindSafe(send)).is_err());
        assert_eq!(send().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(line.is_cut.load(Ordering::SeqCst) && !outgoing.is_open());
    }

    #[test]
    fn the_last_writer_of_a_finished_socket_ends_it() {
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
        assert!(*line.waited.lock().unwrap() > LINGER / 2);
    }

    /// Sends with `first`, whose client is slow for at most this time, and twice more than fits together. Returns
    /// how all three ended, and whether the last one waited.
    fn meanwhile(
        slow: Duration,
        first: impl FnOnce(&Outgoing) -> io::Result<()> + Send,
        write: impl Fn() + Send + Sync + 'static,
    ) -> (std::thread::Result<io::Result<()>>, [io::Result<()>; 2], bool) {
        let gate = Arc::new(Mutex::new(()));
        let within = gate.clone();
        let (_line, outgoing) = Scripted::begin(move || {
            drop(within.lock());
            write();
        });
        // The reader has stopped what it did before.
        outgoing.send_if_open(b"pong".to_vec()).unwrap();
        std::thread::scope(|threads| {
            let held = gate.lock().unwrap();
            let writing = threads.spawn(|| first(&outgoing));
            while outgoing.lock().writer.is_some() {
                std::thread::yield_now();
            }
            let queued = outgoing.send(vec![0; 600]);
            let sending = threads.spawn(|| outgoing.send(vec![0; 600]));
            let until = Instant::now() + slow;
            while !sending.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            let waited = !sending.is_finished();
            drop(held);
            (writing.join(), [queued, sending.join().unwrap()], waited)
        })
    }

    #[test]
    fn a_writer_waits_for_queue_space_while_the_reader_answers() {
        let answer = |outgoing: &Outgoing| outgoing.send_if_open(b"pong".to_vec());
        let (answered, sent, waited) = meanwhile(Duration::from_millis(50), answer, || {});
        assert!(waited, "{sent:?}");
        answered.unwrap().unwrap();
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    }

    #[test]
    fn a_writer_that_waits_for_an_unwinding_reader_gets_an_error() {
        let writes = AtomicUsize::new(0);
        let panics = move || assert_eq!(writes.fetch_add(1, Ordering::SeqCst), 0, "as asked");
        let answer = |outgoing: &Outgoing| outgoing.send_if_open(b"pong".to_vec());
        let (answered, [_, sent], _) = meanwhile(Duration::from_millis(50), answer, panics);
        assert!(answered.is_err());
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_writer_does_not_wait_for_another_writer() {
        let first = |outgoing: &Outgoing| outgoing.send(b"frame".to_vec());
        let (_, [queued, sent], waited) = meanwhile(Duration::from_secs(60), first, || {});
        assert!(!waited && queued.is_ok());
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    }

    /// They share one thread. If it were blocked, neither would continue.
    #[cfg(all(unix, feature = "fibers"))]
    #[test]
    fn fibers_that_wait_for_room_let_the_reader_go_on() {
        let (line, outgoing) = Scripted::begin(|| weftwork_fiber::sleep(Duration::from_millis(20)));
        let outgoing = Arc::new(outgoing);
        let theirs = outgoing.clone();
        let ran = weftwork_fiber::run(move || {
            let reader = theirs.clone();
            let answering = weftwork_fiber::spawn(move || reader.send_if_open(b"pong".to_vec()));
            weftwork_fiber::yield_now();
            assert!(theirs.lock().writer.is_none());
            theirs.send(vec![0; 600]).unwrap();
            theirs.send(vec![0; 600]).unwrap();
            answering.join().unwrap().unwrap();
        });
        ran.unwrap();
        assert!(outgoing.is_open() && !line.is_cut.load(Ordering::SeqCst));
    }
}
