//! Floor 4: a server is a value. It is bound, started, and stopped.

mod last_words;
mod view;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::engine::{self, Engine, EngineHandle};
use crate::error::{Error, Result};
use crate::message::Handler;
use crate::settings::Settings;
use crate::shutdown::{Abandoned, Report, Signals};
pub use crate::transport::address::Address;
use crate::transport::context::{Context, Stage};
use crate::transport::counters::Counts;
use crate::transport::listener::Listener;
use crate::transport::{system, watchdog};
use last_words::LastWords;
pub use view::View;
use view::{Plan, Slot};

/// How often a server that drains looks whether its last connection has gone.
const DRAIN_TICK: Duration = Duration::from_millis(5);
/// Who waits to be accepted when the server is told to stop is let in within this, or not at all: loops that are well need a
/// millisecond, and a server that is full may stay so.
const LAST_CALL: Duration = Duration::from_millis(250);
/// How often it is looked whether somebody still waits.
const LOOK: Duration = Duration::from_micros(500);
/// How long threads get to end once every connection is cut. Only those in a handler take longer.
const JOIN_PATIENCE: Duration = Duration::from_secs(1);
/// Signals that come within this are one: `timeout` and some supervisors send it to the process, and to its group.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

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
    engine: Engine,
    settings: Settings,
    started: Slot,
}

impl Server {
    /// Binds to an address: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` (all that the name stands for),
    /// `:8080` (any address), `unix:/run/app.sock`, or a [`SocketAddr`]. Port 0 lets the system choose; of several
    /// addresses all get the same port. Those of a family that the machine does not have (IPv6, in many containers)
    /// are left out, if another one can be had.
    ///
    /// `proxy+127.0.0.1:8080` expects the PROXY protocol there; the setting `proxy_protocol` expects it
    /// everywhere. [`trusted_proxies`](Settings::trusted_proxies) says who may speak it.
    ///
    /// Settings are the defaults, or what the `WEFT_...` variables say.
    ///
    /// # Errors
    /// The address cannot be had, with the reason; or a variable's value does not parse.
    pub fn bind(address: impl fmt::Display) -> Result<Server> {
        Server::nowhere()?.and_bind(address)
    }

    fn nowhere() -> Result<Server> {
        Ok(Server {
            listeners: Vec::new(),
            engine: Engine::from_env()?.unwrap_or_default(),
            settings: Settings::from_env()?,
            started: Slot::default(),
        })
    }

    /// Takes a socket that is bound already: a [`TcpListener`](std::net::TcpListener), a
    /// [`UnixListener`](std::os::unix::net::UnixListener), or what systemd or a parent process has handed over. At the end
    /// it is only closed: who holds a copy of it, as systemd does, keeps the address and whoever waits there.
    ///
    /// ```
    /// # use weftwork::prelude::*;
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let running = Server::from_listener(listener)?.start(|_: &mut Request| "hello")?;
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// It is no TCP or Unix socket, or a variable's value does not parse.
    pub fn from_listener(listener: impl Into<OwnedFd>) -> Result<Server> {
        Server::nowhere()?.and_listener(listener)
    }

    /// Takes one more socket that is bound already.
    ///
    /// # Errors
    /// As [`from_listener`](Server::from_listener).
    pub fn and_listener(mut self, listener: impl Into<OwnedFd>) -> Result<Server> {
        self.listeners.push(Listener::given(listener.into())?);
        Ok(self)
    }

    /// Binds to one more address. `[::]` takes IPv4 as well: `0.0.0.0` with the same port adds nothing to it.
    ///
    /// # Errors
    /// As [`bind`](Server::bind).
    pub fn and_bind(mut self, address: impl fmt::Display) -> Result<Server> {
        let text = address.to_string();
        let (is_proxied, text) = match text.strip_prefix("proxy+") {
            Some(rest) => (true, rest),
            None => (false, text.as_str()),
        };
        let bound = Listener::bind_all(&Address::parse(text)?, is_proxied, &self.listeners)?;
        self.listeners.extend(bound);
        Ok(self)
    }

    /// Chooses the engine. The default is what `WEFT_ENGINE` says, else [`Engine::Adaptive`].
    #[must_use]
    pub fn engine(self, engine: Engine) -> Server {
        Server { engine, ..self }
    }

    /// Changes settings; what is set here wins over the environment.
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

    /// Sets one setting by its name, from text, as a flag would; see [`Settings::set`].
    ///
    /// # Errors
    /// No such setting, or a value that does not parse.
    pub fn set(mut self, name: &str, value: &str) -> Result<Server> {
        self.settings.set(name, value)?;
        Ok(self)
    }

    /// The addresses that it is bound to, with their real ports.
    pub fn addresses(&self) -> Vec<Address> {
        self.listeners.iter().map(|listener| listener.address().clone()).collect()
    }

    /// A way to look at the server from elsewhere, for a handler that shows what the server is doing: make it last, when
    /// all is set, and give it to the handler.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// let server = Server::bind("127.0.0.1:0")?;
    /// let view = server.view();
    /// let running = server.start(move |_: &mut Request| format!("{} requests\n", view.counts().requests))?;
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    pub fn view(&self) -> View {
        let plan = Plan { engine: self.engine, addresses: self.addresses(), settings: self.settings.clone() };
        View::new(plan, &self.started)
    }

    /// Starts the server and returns at once. The log says where it listens, at level info.
    ///
    /// # Errors
    /// A setting with which no server could run, a handler that [cannot answer](Handler::check), or the system refuses
    /// sockets or threads.
    pub fn start(self, handler: impl Handler) -> Result<Running> {
        let view = self.view();
        let engine = view.engine();
        let Server { mut listeners, mut settings, .. } = self;
        handler.check()?;
        check_states(&handler)?;
        settings.check()?;
        if settings.proxy_protocol {
            listeners.iter_mut().for_each(Listener::expect_proxies);
        }
        if settings.trusted_proxies.is_empty() && listeners.iter().any(Listener::is_proxied) {
            return Err(Error::usage(
                "a listener expects the PROXY protocol, and trusted_proxies is none: say from where your \
                 proxies connect, such as 10.0.0.0/8 (0.0.0.0/0,::/0 lets anyone claim any address)",
            ));
        }
        let descriptors = system::raise_descriptor_limit();
        settings.work_out(descriptors);
        engine.check(&settings).map_err(|error| settings.with_variable(error))?;
        if let Some(listener) = listeners.first() {
            system::make_room_for_descriptors(listener, descriptors);
        }
        for listener in &listeners {
            listener.listen(settings.backlog)?;
            listener.limit_unread(settings.write_timeout);
        }
        let refused = |error| Error::io(format!("the engine {engine} could not be started"), error);
        let handler: Arc<dyn Handler> = Arc::new(handler);
        let cx = Arc::new(Context::new(settings).map_err(refused)?.of(handler.clone()));
        let watchdog = start_watchdog(&cx).map_err(refused)?;
        let room = engine::start(engine, cx.clone(), handler, listeners).map_err(|error| {
            cx.enter(Stage::Closing);
            refused(error)
        })?;
        for address in view.addresses() {
            log::info!("listening at {address}, engine {engine}");
        }
        view.started(&cx, &room);
        Ok(Running { cx, room, view, watchdog, stopped: false })
    }

    /// Starts the server, and serves until SIGTERM or SIGINT; then finishes the requests in flight, for
    /// `drain_timeout` at most. A second signal, half a second after the first or later, ends that at once. Once this has
    /// returned, the signals end the process again. The log says so at level info; one that is stuck, since nobody reads what
    /// it writes, is waited for half a second at the end, and keeps nothing from stopping.
    ///
    /// # Errors
    /// As [`start`](Server::start), or the system refuses the signals.
    pub fn run(self, handler: impl Handler) -> Result<()> {
        let signals = Signals::install()?;
        let (report, mut words) = self.start(handler)?.wait_and_stop(signals)?;
        words.say(report.to_string());
        words.end();
        Ok(())
    }
}

/// A server that runs. Dropping it cuts every connection and stops it.
#[must_use = "the server stops when this is dropped: keep it, or call `wait` or `shutdown`"]
pub struct Running {
    cx: Arc<Context>,
    room: Arc<dyn EngineHandle>,
    view: View,
    watchdog: Option<JoinHandle<()>>,
    stopped: bool,
}

impl Running {
    /// The first TCP address, with its real port. Servers with Unix sockets alone have none.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.addresses().iter().find_map(|address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        })
    }

    /// All addresses, with their real ports.
    pub fn addresses(&self) -> &[Address] {
        self.view.addresses()
    }

    /// The engine that was chosen.
    pub fn engine(&self) -> Engine {
        self.view.engine()
    }

    /// The settings in force; `connections_max` and `accepted_max` are the numbers that were worked out.
    pub fn settings(&self) -> &Settings {
        &self.cx.settings
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.cx.counts()
    }

    /// Threads there are now that serve requests; `threads_max` bounds them; but there is at least one for each
    /// loop, and one besides. A few others keep house.
    pub fn threads(&self) -> usize {
        self.room.threads()
    }

    /// Stops the server: goes on for the `drain_delay`, if there is one, and until all who wait to be accepted are let in, for
    /// a quarter of a second at most; then takes no more connections, ends idle ones, and finishes requests in flight. What
    /// is not finished within `timeout`, counted from there, is cut; with a timeout of zero there is no delay either. A
    /// handler that does not return is left behind with its thread.
    pub fn shutdown(mut self, timeout: Duration) -> Report {
        let delay = if timeout.is_zero() { Duration::ZERO } else { self.cx.settings.drain_delay };
        self.stop(delay, timeout, || false)
    }

    /// Serves until SIGTERM or SIGINT, then stops as [`Server::run`] says.
    ///
    /// # Errors
    /// The system does not let us wait for the signals.
    pub fn wait(self, signals: Signals) -> Result<Report> {
        let (report, words) = self.wait_and_stop(signals)?;
        words.end();
        Ok(report)
    }

    fn wait_and_stop(mut self, mut signals: Signals) -> Result<(Report, LastWords)> {
        let refused = |error| Error::io("signals cannot be waited for", error);
        while !signals.wait(None).map_err(refused)? {}
        let told = Instant::now();
        // Before anything is said of it: a log may be stuck.
        self.cx.announce_stop();
        let mut words = LastWords::begin();
        words.say("stopping: requests in flight may finish; a second signal cuts them");
        let (delay, timeout) = (self.cx.settings.drain_delay, self.cx.settings.drain_timeout);
        let report = self.stop(delay, timeout, move || {
            let comes = signals.wait(Some(Duration::from_millis(1))).unwrap_or(false);
            comes && told.elapsed() >= ONE_SIGNAL
        });
        Ok((report, words))
    }

    /// A way to look at the server from elsewhere, while it is waited for; [`Server::view`] is one from before the start.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// The last resort: ends everything at once. No request is finished; a handler that does not return
    /// within a second is left behind with its thread.
    ///
    /// # Errors
    /// Something was left behind: each counter that is wrong, by name (connections that are still open, threads
    /// that did not end, and what the engine itself counts).
    pub fn abandon(mut self) -> Result<(), Abandoned> {
        self.stopped = true;
        self.cx.enter(Stage::Closing);
        self.room.wake();
        let stuck = self.join();
        let mut counters = vec![("connections still open", self.open()), ("threads that did not end", stuck)];
        counters.extend(self.room.leaks());
        Abandoned::unless_all_zero(counters)
    }

    fn stop(&mut self, delay: Duration, deadline: Duration, mut hurry: impl FnMut() -> bool) -> Report {
        self.stopped = true;
        self.cx.announce_stop();
        let told = Instant::now();
        let mut hurried = false;
        while !hurried && told.elapsed() < delay {
            std::thread::sleep(DRAIN_TICK);
            hurried = hurry();
        }
        let called = Instant::now();
        // To close the doors resets who waits there, and has been told by the kernel to be connected.
        while !hurried && called.elapsed() < LAST_CALL.min(deadline) && self.room.has_pending() {
            std::thread::sleep(LOOK);
            hurried = hurry();
        }
        let begun = Instant::now();
        let open = self.open();
        self.cx.enter(Stage::Draining);
        self.room.wake();
        while self.cx.counters.has_clients() && begun.elapsed() < deadline && !hurried {
            std::thread::sleep(DRAIN_TICK.min(deadline));
            hurried = hurry();
        }
        // Who only has still to end has got all.
        let cut = self.open().saturating_sub(self.cx.counters.lingering.load(Ordering::Relaxed));
        self.cx.enter(Stage::Closing);
        self.room.wake();
        let stuck = self.join();
        Report { drained: open.saturating_sub(cut), cut, stuck, took: told.elapsed() }
    }

    /// Waits for all threads; how many are left in handlers, or in what these have called.
    fn join(&mut self) -> usize {
        let until = Instant::now() + JOIN_PATIENCE;
        let stuck = self.room.join(JOIN_PATIENCE);
        // It ends with the stage, unless it is stuck in a line of the log; it is in no handler, and so not counted.
        let watchdog = self.watchdog.take().into_iter().collect();
        engine::join_within(watchdog, until.saturating_duration_since(Instant::now()));
        stuck
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

/// A handler that takes a state is behind a router that gives it.
pub(crate) fn check_states(handler: &impl Handler) -> Result<()> {
    let needs: Vec<String> = handler.needs().iter().map(ToString::to_string).collect();
    if needs.is_empty() { Ok(()) } else { Err(Error::usage(needs.join("; "))) }
}

/// The thread that looks for handlers that take too long.
fn start_watchdog(cx: &Arc<Context>) -> io::Result<Option<JoinHandle<()>>> {
    let cx = cx.clone();
    Builder::new().name("weft-watchdog".into()).spawn(move || watchdog::watch(&cx)).map(Some)
}
