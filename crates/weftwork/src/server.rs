//! Layer 4: a server as a value. It is bound, started, and stopped.

mod admin;
mod adopt;
mod bind;
mod caught_handler;
#[cfg(feature = "metrics")]
mod dashboard;
mod environment;
mod hsts;
mod problems;
mod process;
#[cfg(feature = "_tls")]
mod redirect;
mod status;
mod stopped;
mod tls;
mod wait;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::app::extract::IntoHandler;
use crate::app::middleware::HandlerExt;
use crate::engine::{self, Engine, EngineHandle};
use crate::error::{Error, Result};
use crate::message::{Handler, ProblemShape};
use crate::settings::Settings;
use crate::shutdown::{LeakReport, ShutdownReport};
pub use crate::transport::address::Address;
use crate::transport::context::{Context, Stage};
use crate::transport::events::{ConnState, ServerStats};
use crate::transport::listener::Listener;
use crate::transport::log_queue::{LogThread, log_line};
use crate::transport::{system, thread_memory, watchdog};
use admin::Admin;
pub use adopt::{AcceptedSocket, AdoptError, Adopter};
use caught_handler::CaughtHandler;
#[cfg(feature = "metrics")]
pub use dashboard::Dashboard;
use hsts::Hsts;
use process::maintenance::ReloadHooks;
use process::replacement;
pub use process::signals::Signals;
pub use status::ServerStatus;
use status::{Plan, Slot};
use tls::{RunningTls, ServerTls};

/// Interval at which a draining server checks for open connections.
const DRAIN_TICK: Duration = Duration::from_millis(5);
/// Time for connections that wait to be accepted when the server is told to stop. Idle loops accept them within a
/// millisecond, and a busy server may not accept them at all.
const ACCEPT_GRACE: Duration = Duration::from_millis(250);
/// Interval at which the server checks whether connections still wait.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
/// Time for threads to end after every connection is cut. Only threads in a handler take longer.
const JOIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A server that is bound to its addresses, and not started.
///
/// ```no_run
/// use weftwork::prelude::*;
///
/// fn main() -> weftwork::Result<()> {
///     Server::bind("127.0.0.1:8080")?.run(|req: &mut Request| format!("you asked for {}\n", req.path()))
/// }
/// ```
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    /// Engine that code has set, and engine that a variable names.
    engine: (Option<Engine>, Option<Engine>),
    settings: Settings,
    admin: Option<Box<Admin>>,
    #[cfg(feature = "_tls")]
    redirect: Option<Box<Server>>,
    /// An invalid variable, which keeps the server from starting.
    invalid_variable: Option<Error>,
    started: Slot,
    reload_hooks: ReloadHooks,
    tls: ServerTls,
    problems: Option<ProblemShape>,
}

impl Server {
    /// Sets the engine. The default comes from `WEFT_ENGINE`, or else is [`Engine::Adaptive`].
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Server {
        self.engine.0 = Some(engine);
        self
    }

    /// Changes settings. A value that is set here overrides the environment.
    ///
    /// ```
    /// # use weftwork::prelude::*; use std::time::Duration;
    /// let server = Server::bind("127.0.0.1:0")?.settings(|s| s.idle_timeout(Duration::from_secs(20)));
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    #[must_use]
    pub fn settings(self, change: impl FnOnce(Settings) -> Settings) -> Server {
        Server { settings: change(self.settings), ..self }
    }

    /// Adds a function that SIGHUP calls, for example to read a file of the program again. It runs on a thread of its own,
    /// one call at a time, while the server goes on. The log has its error. See [`Signals`].
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use weftwork::prelude::*;
    ///
    /// let motto = Arc::new(Mutex::new(String::new()));
    /// let (shared, path) = (motto.clone(), "/etc/motto");
    /// let server = Server::bind("127.0.0.1:0")?.on_reload(move || {
    ///     *motto.lock().unwrap() = std::fs::read_to_string(path)?;
    ///     Ok(())
    /// });
    /// let running = server.start(move |_: &mut Request| shared.lock().unwrap().clone())?;
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    #[must_use]
    pub fn on_reload(mut self, reload: impl Fn() -> Result<()> + Send + Sync + 'static) -> Server {
        self.reload_hooks.push(reload);
        self
    }

    /// Sets one setting by its name, from text, as a flag does. See [`Settings::set`].
    ///
    /// # Errors
    /// The setting is unknown, or its value is invalid.
    pub fn set(mut self, name: &str, value: &str) -> Result<Server> {
        self.settings.set(name, value)?;
        Ok(self)
    }

    /// Returns the addresses of the listeners, with their real ports.
    pub fn addresses(&self) -> Vec<Address> {
        self.listeners.iter().map(|listener| listener.address().clone()).collect()
    }

    /// Returns the status of the server, for a handler that shows it. Call it last, after all settings are set, and move
    /// the status into the handler.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// let server = Server::bind("127.0.0.1:0")?;
    /// let status = server.status();
    /// let running = server.start(move |_: &mut Request| format!("{} requests\n", status.stats().requests))?;
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    pub fn status(&self) -> ServerStatus {
        let (set, named) = self.engine;
        let engine = set.or(named).unwrap_or_default();
        let plan = Plan { engine, addresses: self.addresses(), settings: self.settings.clone() };
        ServerStatus::new(plan, &self.started)
    }

    /// Starts the server and returns at once. The log names the addresses, at level info. Without a logger, stderr does
    /// ([`stderr_log`](Settings::stderr_log)).
    ///
    /// # Errors
    /// A setting or variable is invalid, the handler [cannot answer](Handler::check), or the system refuses sockets or threads.
    pub fn start<M>(self, handler: impl IntoHandler<M>) -> Result<Running> {
        let handler = handler.into_handler();
        let status = self.status();
        let engine = status.engine();
        let Server { mut listeners, mut settings, admin, invalid_variable, mut reload_hooks, tls, .. } = self;
        let problems = self.problems;
        #[cfg(feature = "_tls")]
        let redirect = self.redirect;
        invalid_variable.map_or(Ok(()), Err)?;
        handler.check()?;
        check_states(&handler)?;
        settings.check()?;
        bind::expect_proxies(&mut listeners, &settings)?;
        let tls = tls.start(&mut listeners, &settings)?;
        tls.add_reload_hook(&mut reload_hooks);
        let descriptors = system::raise_descriptor_limit();
        settings.work_out(descriptors);
        engine.check(&settings).map_err(|error| settings.with_variable(error))?;
        if let Some(listener) = listeners.first() {
            system::grow_descriptor_table(listener, descriptors);
        }
        for listener in &listeners {
            listener.listen(settings.backlog)?;
            listener.limit_unread(settings.write_timeout);
        }
        let refused = |error| Error::io(format!("cannot start the engine {engine}"), error);
        let log = LogThread::start(settings.stderr_log).map_err(refused)?;
        let handler = wrapped(handler, problems.clone(), settings.hsts_max_age);
        #[cfg(feature = "_tls")]
        let handler = tls.answer_challenges(handler);
        #[cfg(feature = "_tls")]
        let redirect = redirect::start(redirect, &listeners, &settings, &tls)?;
        #[cfg(feature = "_tls")]
        let tls = tls.start_acme(&listeners, redirect.is_some())?;
        let cx = Context::new(settings).map_err(refused)?.of(handler.clone()).with_problems(problems);
        let cx = Arc::new(tls.add_to(cx));
        let watchdog = start_watchdog(&cx).map_err(refused)?;
        let handle = engine::start(engine, cx.clone(), handler, listeners).map_err(|error| {
            cx.enter(Stage::Closing);
            refused(error)
        })?;
        if let Some(caution) = thread_memory::caution(cx.settings.threads_max) {
            log_line!(Warn, "{caution}");
        }
        for address in status.addresses() {
            log_line!(Start, "listening at {address}, engine {engine}");
        }
        if let Some(caution) = engine.caution() {
            log_line!(Info, "engine {engine}: {caution}");
        }
        tls.log_start(&cx.settings);
        replacement::register(&cx, &handle);
        status.started(&cx, &handle, &tls);
        let mut running = Running {
            cx,
            handle,
            status,
            watchdog,
            reload_hooks,
            tls,
            admin: None,
            #[cfg(feature = "_tls")]
            redirect,
            stopped: false,
            log,
        };
        running.admin = admin.map(|admin| admin.start(&running.tls)).transpose()?.map(Box::new);
        Ok(running)
    }

    /// Starts the server and serves until SIGTERM or SIGINT. Then it finishes the requests in flight, for at most
    /// `drain_timeout`. A second signal, at least half a second after the first, ends that at once.
    ///
    /// If systemd waits for a message (`NOTIFY_SOCKET`), it hears that the server is ready, reloads or stops, and hears of it
    /// for its watchdog (sd_notify(3)). [`Signals`] lists what other signals do. With the setting
    /// [`maintenance_signals`](Settings::maintenance_signals) off, they are left to the program.
    ///
    /// After this function has returned, SIGTERM and SIGINT end the process again. The log reports the shutdown at level info.
    /// If the log is stuck because nothing reads its output, the shutdown waits for it half a second and then goes on.
    ///
    /// # Errors
    /// See [`start`](Server::start). Or the system refuses the signals.
    pub fn run<M>(self, handler: impl IntoHandler<M>) -> Result<()> {
        let signals = match self.settings.maintenance_signals {
            true => Signals::install()?,
            false => Signals::stop_only()?,
        };
        let (report, _log) = self.start(handler)?.wait_and_stop(signals)?;
        log_line!(Info, "{report}");
        Ok(())
    }
}

/// A running server. Dropping it cuts every connection and stops the server.
#[must_use = "the server stops when this is dropped: keep it, or call `wait` or `shutdown`"]
pub struct Running {
    cx: Arc<Context>,
    handle: Arc<dyn EngineHandle>,
    status: ServerStatus,
    watchdog: Option<JoinHandle<()>>,
    /// The side listener.
    admin: Option<Box<Running>>,
    #[cfg(feature = "_tls")]
    redirect: Option<Box<Running>>,
    reload_hooks: ReloadHooks,
    #[cfg_attr(not(feature = "_tls"), allow(dead_code, reason = "nothing reloads it"))]
    tls: RunningTls,
    stopped: bool,
    /// Dropped last: its thread writes the lines of the stop.
    log: LogThread,
}

impl Running {
    /// Returns the first TCP address, with its real port. A server with only Unix sockets has no such address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.addresses().iter().find_map(|address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        })
    }

    /// Returns all addresses, with their real ports.
    pub fn addresses(&self) -> &[Address] {
        self.status.addresses()
    }

    /// Returns the engine.
    pub fn engine(&self) -> Engine {
        self.status.engine()
    }

    /// Returns the current settings. `connections_max` and `accepted_max` have their computed values.
    pub fn settings(&self) -> &Settings {
        &self.cx.settings
    }

    /// Returns the counters.
    pub fn stats(&self) -> ServerStats {
        self.cx.stats()
    }

    /// Returns the number of threads that serve requests, at most `threads_max`. Exceptions are that each loop has at
    /// least one thread, and the server one more, and the spare threads of [`threads_max`](Settings::threads_max). A few
    /// threads for other work do not count.
    pub fn threads(&self) -> usize {
        self.handle.threads()
    }

    /// Stops the server in three steps. (1) It serves as before for the `drain_delay`, and then accepts the connections
    /// that wait, for at most a quarter of a second. (2) It stops accepting, finishes the requests in flight, and closes
    /// connections that were idle for the `drain_idle_timeout`. (3) After `timeout`, measured from step 2, it resets the
    /// connections that are left. All responses after the call say `Connection: close`.
    ///
    /// With a `timeout` of zero there is no delay. If a handler does not return, its thread is left behind.
    pub fn shutdown(mut self, timeout: Duration) -> ShutdownReport {
        let delay = if timeout.is_zero() { Duration::ZERO } else { self.cx.settings.drain_delay };
        self.stop(delay, timeout, || false)
    }

    /// Ends everything at once, as a last resort. Requests are not finished. If a handler does not return within a
    /// second, its thread is left behind.
    ///
    /// # Errors
    /// Something was left behind. The error names each counter that is not 0: open connections, threads that did not
    /// end, and the engine's own counters.
    pub fn abandon(mut self) -> Result<(), LeakReport> {
        self.stopped = true;
        self.cx.enter(Stage::Closing);
        self.handle.wake();
        let stuck = self.join();
        self.end_admin();
        let mut counters = vec![("connections still open", self.open()), ("threads that did not end", stuck)];
        counters.extend(self.handle.leaks());
        LeakReport::unless_all_zero(counters)
    }

    fn stop(
        &mut self,
        delay: Duration,
        deadline: Duration,
        mut must_end: impl FnMut() -> bool,
    ) -> ShutdownReport {
        self.stopped = true;
        let open_before = self.open();
        self.announce_stop();
        let stop_started = Instant::now();
        let mut ended_early = false;
        while !ended_early && stop_started.elapsed() < delay {
            std::thread::sleep(DRAIN_TICK);
            ended_early = must_end();
        }
        #[cfg(feature = "_tls")]
        self.end_redirect();
        let called = Instant::now();
        // Closing the listeners resets the connections that wait there, and the kernel has already told those clients
        // that they are connected.
        while !ended_early && called.elapsed() < ACCEPT_GRACE.min(deadline) && self.handle.has_pending() {
            std::thread::sleep(POLL_INTERVAL);
            ended_early = must_end();
        }
        if !ended_early && !deadline.is_zero() {
            self.handle.clone().accept_pending();
        }
        let begun = Instant::now();
        // A connection may have ended since the announcement, and another one may have come.
        let open = self.open().max(open_before);
        self.cx.begin_drain(deadline);
        self.handle.wake();
        while self.may_have_clients() && begun.elapsed() < deadline && !ended_early {
            std::thread::sleep(DRAIN_TICK.min(deadline));
            ended_early = must_end();
        }
        // A connection that is only closing has sent its whole response.
        let cut = self.open().saturating_sub(self.cx.counters.in_state(ConnState::Lingering));
        self.cx.enter(Stage::Closing);
        self.handle.wake();
        let stuck = self.join();
        self.end_admin();
        ShutdownReport { drained: open.saturating_sub(cut), cut, stuck, took: stop_started.elapsed() }
    }

    /// Waits for all threads, and returns the number of threads left in handlers or in `weftwork::blocking`.
    fn join(&mut self) -> usize {
        let until = Instant::now() + JOIN_TIMEOUT;
        let stuck = self.handle.join(JOIN_TIMEOUT);
        // The watchdog ends with the stage. It runs no handler, so it does not count.
        let watchdog = self.watchdog.take().into_iter().collect();
        engine::join_within(watchdog, until.saturating_duration_since(Instant::now()));
        stuck
    }

    /// The order matters: a connection counts before its thread stops accepting.
    fn may_have_clients(&self) -> bool {
        self.handle.is_accepting() || self.cx.counters.has_clients()
    }

    fn open(&self) -> usize {
        self.cx.counters.connections.load(Ordering::Acquire)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.stopped {
            self.stop(Duration::ZERO, Duration::ZERO, || true);
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("engine", &self.engine())
            .field("addresses", &self.addresses())
            .finish_non_exhaustive()
    }
}

/// Returns the handler with the wrappers that the server adds.
fn wrapped(
    handler: impl Handler,
    problems: Option<ProblemShape>,
    hsts_max_age: Duration,
) -> Arc<dyn Handler> {
    match problems {
        Some(shape) => with_hsts(handler.with(shape), hsts_max_age),
        None => with_hsts(handler, hsts_max_age),
    }
}

fn with_hsts(handler: impl Handler, max_age: Duration) -> Arc<dyn Handler> {
    match max_age {
        Duration::ZERO => Arc::new(CaughtHandler::new(handler)),
        max_age => Arc::new(CaughtHandler::new(handler.with(Hsts::new(max_age)))),
    }
}

/// Checks that every state that a handler extracts is provided by a router.
pub(crate) fn check_states(handler: &impl Handler) -> Result<()> {
    let needs: Vec<String> = handler.needs().iter().map(ToString::to_string).collect();
    if needs.is_empty() { Ok(()) } else { Err(Error::usage(needs.join("; "))) }
}

/// Starts the thread that reports handlers that take too long.
fn start_watchdog(cx: &Arc<Context>) -> io::Result<Option<JoinHandle<()>>> {
    let cx = cx.clone();
    Builder::new().name("weft-watchdog".into()).spawn(move || watchdog::watch(&cx)).map(Some)
}
