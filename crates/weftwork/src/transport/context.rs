//! State that all connections of a server share: settings, limits, clock, counters, and the stage of the shutdown.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weftwork_wire::Limits;

use super::buffers::SharedBudget;
use super::deadlines::Clock;
use super::events::{ConnState, Counters, Event, ServerStats};
use super::log_limit::LogLimit;
use super::reserve_fd::ReserveFd;
use super::system;
#[cfg(feature = "_tls")]
use super::tls::TlsAcceptor;
use super::watchdog::Watchdog;
use crate::message::drop_caught::caught;
use crate::message::observer::{Observer, log_panic};
use crate::message::{Handler, ProblemShape, RequestLine, random_below};
use crate::settings::{Settings, or_never};
use crate::transport::log_queue::log_line;

/// Log lines about clients in a second. They are enough to see what happens, and little for a disk.
const LINES_A_SECOND: u32 = 10;

/// Idle connections end this long before the time to drain is over, so that none of them counts as cut.
const DRAIN_RESERVE: Duration = Duration::from_millis(250);

/// Time between two ends of endless responses or upgraded connections while the server drains, on average.
const SPREAD: Duration = Duration::from_millis(20);

/// Stage of the shutdown. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stage {
    Running,
    /// The server accepts no connections. Open connections end after their current response, or when they were idle for
    /// the setting `drain_idle_timeout`.
    Draining,
    /// The deadline has passed, and every connection is cut.
    Closing,
}

pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    /// Value of `handler_warn_after`. If the setting is 0, it is the maximum duration.
    pub(crate) warn_after: Duration,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) reserve_fd: ReserveFd,
    /// Budget for the buffers of threads that have connections of their own.
    pub(crate) shared_budget: Arc<SharedBudget>,
    /// Limit for log lines about clients.
    pub(crate) client_log: LogLimit,
    /// Limit for log lines about what the system refuses, because clients can cause those refusals.
    refusal_log: LogLimit,
    /// Lines about failed TLS handshakes.
    #[cfg_attr(not(feature = "_tls"), allow(dead_code))]
    pub(crate) handshake_log: LogLimit,
    /// What adopted connections need to begin TLS. Without it, they are in clear.
    #[cfg(feature = "_tls")]
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    /// Answers questions about requests before the handler runs.
    handler: Option<Arc<dyn Handler>>,
    /// Shape of the responses of the library itself, unless it is the default.
    pub(crate) problems: Option<ProblemShape>,
    /// Observers of all requests, from the middleware around the handler.
    observers: Vec<Arc<dyn Observer>>,
    stage: AtomicU8,
    /// Whether the stop was announced. The stage may still be `Running`.
    stopping: AtomicBool,
    /// Time after its last byte for which an idle connection stays open while the server drains, in milliseconds.
    drain_idle_ms: AtomicU64,
    /// Time over which the ends of endless responses and upgraded connections are spread while the server drains, in
    /// milliseconds.
    spread_ms: AtomicU64,
    draining: StopSignal,
    closing: StopSignal,
}

/// Descriptor that becomes readable once and stays readable, for all threads that poll it.
#[derive(Debug)]
struct StopSignal {
    fd: OwnedFd,
    /// Write end of the pipe. Dropping it gives the signal.
    write_end: Mutex<Option<OwnedFd>>,
}

impl StopSignal {
    fn new() -> std::io::Result<StopSignal> {
        let (fd, write_end) = system::pipe()?;
        Ok(StopSignal { fd, write_end: Mutex::new(Some(write_end)) })
    }

    fn send(&self) {
        self.write_end.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Context {
    pub(crate) fn new(settings: Settings) -> std::io::Result<Context> {
        Ok(Context {
            limits: settings.wire(),
            warn_after: or_never(settings.handler_warn_after),
            settings,
            clock: Clock::start(),
            counters: Arc::default(),
            watchdog: Arc::default(),
            reserve_fd: ReserveFd::new(),
            shared_budget: Arc::default(),
            client_log: LogLimit::new(LINES_A_SECOND),
            refusal_log: LogLimit::new(1),
            handshake_log: LogLimit::new(1),
            #[cfg(feature = "_tls")]
            tls: None,
            handler: None,
            problems: None,
            observers: Vec::new(),
            stage: AtomicU8::new(Stage::Running as u8),
            stopping: AtomicBool::new(false),
            drain_idle_ms: AtomicU64::new(0),
            spread_ms: AtomicU64::new(0),
            draining: StopSignal::new()?,
            closing: StopSignal::new()?,
        })
    }

    /// Returns the same context with this handler.
    pub(crate) fn of(self, handler: Arc<dyn Handler>) -> Context {
        Context { observers: handler.observers(), handler: Some(handler), ..self }
    }

    /// Returns the same context with this shape of problems.
    pub(crate) fn with_problems(self, problems: Option<ProblemShape>) -> Context {
        Context { problems, ..self }
    }

    /// Returns the same context with what adopted connections need to begin TLS.
    #[cfg(feature = "_tls")]
    pub(crate) fn with_tls(self, tls: Option<Arc<TlsAcceptor>>) -> Context {
        Context { tls, ..self }
    }

    /// Returns whether adopted connections begin with TLS.
    pub(crate) fn has_tls(&self) -> bool {
        #[cfg(feature = "_tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "_tls"))]
        false
    }

    /// Counts an event, and passes it to the observers.
    pub(crate) fn record(&self, event: Event) {
        self.counters.count(&event);
        self.observers.iter().for_each(|observer| caught(|| observer.on_event(&event), log_panic));
    }

    /// Returns the observers of all requests.
    pub(crate) fn observers(&self) -> &[Arc<dyn Observer>] {
        &self.observers
    }

    /// Returns the pattern of the route for a request that gets no call. See [`Handler::pattern`].
    #[cold]
    pub(crate) fn pattern(&self, line: &RequestLine<'_>) -> Option<String> {
        let handler = self.handler.as_ref()?;
        caught(|| handler.pattern(line).map(Into::into), |_| None)
    }

    /// Logs a line about what the system refuses, unless a line was logged in this second.
    #[cold]
    pub(crate) fn warn_resources(&self, line: fmt::Arguments<'_>) {
        let Some(left_out) = self.refusal_log.take(self.clock.now()) else { return };
        match left_out {
            0 => log_line!(Warn, "{line}"),
            more => log_line!(Warn, "{line} ({more} more lines about refusals were left out)"),
        }
    }

    /// Returns whether the handler wants part of the body to be read before it runs.
    pub(crate) fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        self.handler.as_ref().is_none_or(|handler| handler.reads_ahead(line))
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::SeqCst) {
            0 => Stage::Running,
            1 => Stage::Draining,
            _ => Stage::Closing,
        }
    }

    pub(crate) fn announce_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Returns whether the server was told to stop. From then on, each response is the last one of its connection.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Enters the stage `Draining`, which lasts for at most `timeout`.
    pub(crate) fn begin_drain(&self, timeout: Duration) {
        let idle = self.settings.drain_idle_timeout.min(timeout.saturating_sub(DRAIN_RESERVE));
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.drain_idle_ms.store(ms(idle), Ordering::SeqCst);
        let endless =
            self.counters.in_state(ConnState::Waiting) + self.counters.in_state(ConnState::Upgraded);
        // A single one ends at once.
        let spread = SPREAD.saturating_mul(u32::try_from(endless.saturating_sub(1)).unwrap_or(u32::MAX));
        self.spread_ms.store(ms(spread.min(timeout / 2)), Ordering::SeqCst);
        self.enter(Stage::Draining);
    }

    /// Returns the time after its last byte for which an idle connection stays open while the server drains.
    pub(crate) fn drain_idle_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_idle_ms.load(Ordering::SeqCst))
    }

    /// Returns how long after the begin of the drain an endless response or an upgraded connection ends: a random time, so
    /// that not all clients return in the same moment. Half of the time to drain is left for what is sent then.
    pub(crate) fn stop_delay(&self) -> Duration {
        let spread = Duration::from_millis(self.spread_ms.load(Ordering::SeqCst));
        Duration::from_micros(random_below(spread.as_micros() as u64))
    }

    /// Moves on to `stage`. A stage that has already passed changes nothing.
    pub(crate) fn enter(&self, stage: Stage) {
        self.announce_stop();
        self.stage.fetch_max(stage as u8, Ordering::SeqCst);
        if stage >= Stage::Draining {
            self.draining.send();
        }
        if stage >= Stage::Closing {
            self.counters.closing.store(true, Ordering::Relaxed);
            self.closing.send();
        }
    }

    /// Returns the counters.
    pub(crate) fn stats(&self) -> ServerStats {
        self.counters.read(&self.watchdog)
    }

    /// Returns the time of day, for responses that no handler made.
    pub(crate) fn date(&self) -> weftwork_wire::Date {
        weftwork_wire::Date::at(std::time::SystemTime::now())
    }

    /// Returns a descriptor that is readable from `Closing` on. A thread that waits for a peer also polls it.
    pub(crate) fn closing_fd(&self) -> BorrowedFd<'_> {
        self.closing.fd.as_fd()
    }

    /// Returns a descriptor that is readable after the server has moved on from `stage`.
    pub(crate) fn stage_fd(&self, stage: Stage) -> BorrowedFd<'_> {
        match stage {
            Stage::Running => self.draining.fd.as_fd(),
            Stage::Draining | Stage::Closing => self.closing_fd(),
        }
    }
}
