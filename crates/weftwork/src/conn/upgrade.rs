//! An upgraded connection: its socket, for as long as the other protocol uses it.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::http2::StreamEnd;
use super::refusal::log_client;
use super::{Conn, CountGuard, IoWait, PendingBody, Phase, Readiness};
use crate::error::{OneLine, panic_message};
use crate::message::Upgraded;
use crate::message::drop_caught::drop_payload;
use crate::message::exchange::UpgradedIo;
use crate::settings::or_never;
use crate::transport::context::{Context, Stage};
use crate::transport::deadlines::{PeerTimer, TimeoutKind};
use crate::transport::events::{ConnState, Counters, Event, ShedReason};
use crate::transport::log_queue::log_line;
use crate::transport::stream::{is_timed_out, is_would_block};
use crate::transport::{Stream, Tick};

/// Interval at which a thread that waits for the end of a connection checks whether other work waits for it.
const LINGER_LOOK: Duration = Duration::from_millis(50);

/// Socket of the connection. Both halves of an [`Upgraded`] share it, and the last half to go closes it.
struct UpgradedSocket {
    stream: Stream,
    peer: Option<SocketAddr>,
    cx: Arc<Context>,
    wait: Arc<dyn IoWait + Send + Sync>,
    /// Progress of the peer in reading what is written.
    timer: Mutex<PeerTimer>,
    has_lingered: AtomicBool,
    /// When the readers are told that the server stops, after it has begun to drain.
    stops_at: OnceLock<Tick>,
    _count: CountGuard,
    /// Of one request of HTTP/2, whose connection has the socket.
    _end: Option<StreamEnd>,
}

impl Conn {
    /// Runs the upgraded protocol after [`Step::Upgrade`](super::Step::Upgrade), to its end. `is_wanted` says whether
    /// other work waits for the thread.
    pub(crate) fn run_upgraded(
        self: Box<Conn>,
        cx: &Arc<Context>,
        wait: Arc<dyn IoWait + Send + Sync>,
        is_wanted: impl Fn() -> bool,
    ) {
        let Conn { stream, peer, buffers, mut pending_body, mut count, role, .. } = *self;
        count.enter(ConnState::Upgraded);
        let Some(PendingBody::Upgrade(take)) = pending_body.take().map(|body| *body) else { return };
        let early =
            buffers.map_or_else(Bytes::new, |buffers| Bytes::copy_from_slice(&buffers.input[buffers.raw..]));
        stream.enable_keepalive(cx.settings.write_timeout);
        let timer = Mutex::new(PeerTimer::start(TimeoutKind::Idle, wait.now()));
        let (cx_kept, wait_kept, has_lingered) = (cx.clone(), wait.clone(), AtomicBool::new(false));
        let line = Arc::new(UpgradedSocket {
            stream,
            peer,
            cx: cx_kept,
            wait: wait_kept,
            timer,
            has_lingered,
            stops_at: OnceLock::new(),
            _count: count,
            _end: role.into_stream_end(),
        });
        let settings = &cx.settings;
        let _held = UpgradeCount::count(&cx.counters);
        let upgraded =
            Upgraded::new(line.clone(), early, settings.upgrade_idle_timeout, settings.write_timeout);
        // The error is the user's too, so it is logged and dropped in here.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let ended = take(upgraded);
            ended.map_err(|error| log_client(cx, format_args!("an upgraded connection ended: {error}")))
        }));
        match ended {
            // Another thread may hold a half, and then continues.
            Ok(Ok(())) if Arc::strong_count(&line) == 1 && !line.has_lingered.load(Ordering::Relaxed) => {
                line.linger(is_wanted);
            }
            Ok(_) => {}
            Err(panic) if wait.is_cancelled(&*panic) => resume_unwind(panic),
            Err(panic) if wait.is_overload(&*panic) => {
                cx.record(Event::Shed(ShedReason::NoThread));
                let why = "no thread was free for its blocking call";
                log_client(cx, format_args!("an upgraded connection ended: {why}"));
            }
            Err(panic) => {
                cx.record(Event::Panicked);
                log_line!(
                    Error,
                    "the handler of an upgraded connection panicked: {}",
                    OneLine(panic_message(&*panic))
                );
                drop_payload(panic);
            }
        }
    }

    /// The response is on its way, and later bytes belong to the other protocol.
    pub(super) fn leave_to(&mut self, rest: PendingBody) {
        *self.pending_body = Some(Box::new(rest));
        self.phase = Phase::Upgrade;
    }
}

/// Counts a thread that an upgraded connection holds, however it ends.
struct UpgradeCount<'a>(&'a Counters);

impl UpgradeCount<'_> {
    fn count(counters: &Counters) -> UpgradeCount<'_> {
        counters.upgraded.fetch_add(1, Ordering::Relaxed);
        UpgradeCount(counters)
    }
}

impl Drop for UpgradeCount<'_> {
    fn drop(&mut self) {
        self.0.upgraded.fetch_sub(1, Ordering::Relaxed);
    }
}

impl UpgradedSocket {
    /// Closes this side, and reads on until the peer closes its side. Then a reset does not destroy the last bytes (RFC
    /// 9112 section 9.6).
    fn linger(&self, is_wanted: impl Fn() -> bool) {
        self.close_write();
        let settings = &self.cx.settings;
        let until = self.cx.clock.now().after(settings.linger_timeout);
        let (mut read, mut dropped) = (0, [0; 4096]);
        while read < settings.linger_bytes_max && !is_wanted() {
            let left = self.cx.clock.now().until(until);
            // A stop of the server does not end the lingering.
            match self.read(&mut dropped, Some(left.min(LINGER_LOOK)), &mut true) {
                Ok(count @ 1..) if !left.is_zero() => read += count as u64,
                Err(error) if is_timed_out(&error) && !left.is_zero() => {}
                _ => return,
            }
        }
    }

    /// Closes this side. The end of a TLS session waits for space in the kernel, because without it the last bytes look
    /// truncated.
    fn close_write(&self) {
        let until = self.cx.clock.now().after(or_never(self.cx.settings.write_timeout));
        while !self.stream.close_session() {
            // After a timeout or a stop, the peer gets the end as far as it was sent.
            let waited =
                Readiness::Write.of(&self.stream).and_then(|(fd, ready)| self.wait.ready(fd, ready, until));
            if waited.is_err() {
                break;
            }
        }
        self.stream.shutdown_write();
    }

    /// Returns when the readers are told that the server stops.
    fn stops_at(&self, stage: Stage) -> Option<Tick> {
        match stage {
            Stage::Running => None,
            Stage::Draining => {
                Some(*self.stops_at.get_or_init(|| self.wait.now().after(self.cx.stop_delay())))
            }
            Stage::Closing => Some(self.wait.now()),
        }
    }

    fn until(&self, timeout: Option<Duration>) -> Tick {
        timeout.map_or(Tick(u64::MAX), |timeout| self.cx.clock.now().after(timeout))
    }
}

impl UpgradedIo for UpgradedSocket {
    fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn read(&self, into: &mut [u8], timeout: Option<Duration>, stop_sent: &mut bool) -> io::Result<usize> {
        self.wait.check(&self.cx)?;
        let until = self.until(timeout);
        loop {
            match self.stream.recv_into(into) {
                Err(error) if is_would_block(&error) => {}
                read => return read,
            }
            let stage = self.cx.stage();
            let stops_at = self.stops_at(stage).filter(|_| !*stop_sent);
            if stops_at.is_some_and(|stops_at| self.wait.now() >= stops_at) {
                *stop_sent = true;
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server is stopping"));
            }
            let wait_end = stops_at.map_or(until, |stops_at| stops_at.min(until));
            let (fd, ready) = Readiness::Read.of(&self.stream)?;
            match self.wait.wait_ready(fd, ready, wait_end, stage) {
                Err(error) if is_timed_out(&error) && wait_end < until => {}
                // The server has moved on to another stage, which is checked again.
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionAborted && stage != self.cx.stage() =>
                {
                    if self.cx.stage() == Stage::Closing {
                        return Err(error);
                    }
                }
                waited => waited?,
            }
        }
    }

    fn limit_unread(&self, write_timeout: Option<Duration>) {
        self.stream.limit_unread(write_timeout);
    }

    fn write(&self, data: &[u8], timeout: Option<Duration>) -> io::Result<usize> {
        self.wait.check(&self.cx)?;
        // There is one writer, so the lock is free.
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        if timer.kind == TimeoutKind::Write {
            timer.resume(self.wait.now());
        }
        // Result of the last wait. After a timeout, a send shows whether the peer has read something all the same, as
        // in `Conn::makes_progress`.
        let mut late = None;
        let mut done = 0;
        loop {
            match self.stream.send(&data[done..], false) {
                Err(error) if is_would_block(&error) => {
                    if let Some(late) = late {
                        // The caller may write something else next.
                        self.stream.abandon_unsent();
                        return Err(late);
                    }
                    if timer.kind != TimeoutKind::Write {
                        *timer = timer.then(TimeoutKind::Write, self.wait.now());
                    }
                    let until = timeout.map(|pause| timer.write_deadline(&self.cx.settings, pause));
                    let (fd, ready) = Readiness::Write.of(&self.stream)?;
                    match self.wait.ready(fd, ready, until.unwrap_or(Tick(u64::MAX))) {
                        Err(error) if is_timed_out(&error) => late = Some(error),
                        waited => waited?,
                    }
                }
                Ok(count) => {
                    done += count;
                    if timer.kind == TimeoutKind::Write {
                        let now = self.wait.now();
                        // The peer has read everything, so the next time it blocks is a new time.
                        match done == data.len() {
                            true => *timer = timer.then(TimeoutKind::Idle, now),
                            false => timer.advance(count, now),
                        }
                    }
                    if !self.stream.owes_report() {
                        return Ok(done);
                    }
                    late = None;
                }
                failed => return failed,
            }
        }
    }

    fn shutdown_write(&self) {
        self.close_write();
    }

    #[cfg(feature = "websocket")]
    fn note_linger(&self) {
        self.has_lingered.store(true, Ordering::Relaxed);
    }

    fn cut(&self) {
        self.stream.cut();
    }

    fn is_stopping(&self) -> bool {
        self.cx.stage() != Stage::Running
    }

    fn is_closing(&self) -> bool {
        self.cx.stage() == Stage::Closing
    }

    #[cfg(feature = "websocket")]
    fn heartbeat(&self) -> Duration {
        self.cx.settings.heartbeat
    }

    #[cfg(feature = "websocket")]
    fn linger_timeout(&self) -> Duration {
        // A century counts as no limit, and can be added to a time.
        self.cx.settings.linger_timeout.min(Duration::from_secs(100 * 365 * 24 * 3600))
    }
}
