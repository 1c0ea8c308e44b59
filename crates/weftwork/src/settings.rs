//! Which limits and deadlines hold, where each value came from, and why its default is what it is.

mod environment;
mod nearest;
mod proxies;
mod units;

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use nearest::nearest;
pub use proxies::{ForwardedHeader, Networks};
pub use units::ByteCount;
use units::Unit;

/// Where a value of [`Settings`] came from. Code wins over the environment, the environment over the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The library's default.
    Default,
    /// A `WEFT_...` variable.
    Environment,
    /// A builder method, [`Settings::set`], or a flag of `weft`.
    Code,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Default => "default",
            Source::Environment => "environment",
            Source::Code => "set",
        })
    }
}

/// One setting, as text: for start-up lines, pages and `--help`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name, as in code; flags write it with `-`, variables in capitals behind `WEFT_`.
    pub name: &'static str,
    /// The value in force, as people write it.
    pub value: String,
    /// Where the value came from.
    pub source: Source,
    /// One line that says what it bounds.
    pub about: &'static str,
}

macro_rules! settings {
    ($( $(#[doc = $doc:literal])+ $name:ident : $type:ty = $default:expr, $about:literal; )+) => {
        /// Every limit and deadline of a server: a field each, with its default and the reason for it.
        ///
        /// In variables and flags alike a duration is written with its unit (`30s`, `500ms`, `0s`), a size with one or without
        /// (`2MiB`, `512`).
        ///
        /// **0 means none**, and each setting that takes it says what that is: no limit, no delay, no warning. It is literally
        /// none of what is counted for `body_ahead_bytes_max`, `chunk_extension_bytes_max`, `linger_bytes_max`, `queue_max`,
        /// `standby_kept` (at least 1 in the engine `pool`) and `unread_bytes_max`; and `body_bytes_max`, where that would be no
        /// body at all, refuses it: for no limit give it more than anybody sends, such as `1000000GiB`. Where a wait for a
        /// client would have no end, 0 is refused when the server starts: for `head_timeout`,
        /// `body_idle_timeout`, `write_timeout`, `idle_timeout`, `heartbeat` and `proxy_header_timeout`; and for
        /// `rate_grace`, with which everybody would be too slow at once.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $( $(#[doc = $doc])+ pub $name: $type, )+
            sources: [Source; Settings::COUNT],
            /// The values that belong to the sources; empty: the defaults.
            sourced: Box<[String]>,
        }

        impl Default for Settings {
            fn default() -> Settings {
                Settings {
                    $( $name: $default, )+
                    sources: [Source::Default; Settings::COUNT],
                    sourced: Box::default(),
                }
            }
        }

        impl Settings {
            const COUNT: usize = [$(stringify!($name)),+].len();
            const NAMES: [&'static str; Settings::COUNT] = [$(stringify!($name)),+];
            const ABOUT: [&'static str; Settings::COUNT] = [$($about),+];

            fn assign(&mut self, index: usize, text: &str) -> Result<(), Error> {
                let name = Settings::NAMES[index];
                $( if name == stringify!($name) {
                    self.$name = Unit::parse(text).map_err(|why| Error::knob(name, text, why))?;
                } )+
                Ok(())
            }

            fn texts(&self) -> [String; Settings::COUNT] {
                [$( Unit::show(&self.$name) ),+]
            }

            $(
                $(#[doc = $doc])+
                pub fn $name(mut self, value: $type) -> Settings {
                    self.$name = value;
                    self.mark(stringify!($name), Source::Code);
                    self
                }
            )+
        }
    };
}

const KIB: u64 = 1 << 10;
const FIBER_STACK: u64 = if cfg!(debug_assertions) { 256 * KIB } else { 64 * KIB };
const MIB: u64 = 1 << 20;

settings! {
    /// Longest request line: 8 KiB, the room nginx and Apache give. Longer: 414.
    request_line_bytes_max: ByteCount = ByteCount(8 * KIB), "longest request line (414)";
    /// Longest head, request line and fields together: 32 KiB, as nginx's four large buffers. Longer: 431.
    head_bytes_max: ByteCount = ByteCount(32 * KIB), "longest head (431)";
    /// Most field lines in a head or in trailers: 100, as Apache and gunicorn. More: 431.
    fields_max: u32 = 100, "most field lines in a head (431)";
    /// Most bytes of chunk extensions in one body: 4 KiB; nobody sends them but attackers. More: 413.
    chunk_extension_bytes_max: ByteCount = ByteCount(4 * KIB), "chunk extensions in one body (413)";
    /// Largest request body that a handler can read, also while it streams its response, unless it lifts the limit: 2 MiB, as
    /// axum. Larger: 413. 0 is refused; for no limit give it more than anybody sends.
    body_bytes_max: ByteCount = ByteCount(2 * MIB), "largest request body (413)";
    /// How much of a body is read before the handler is called: 64 KiB, so that a slow sender of a usual
    /// form or document costs no thread. Nothing of one whose declared length is past `body_bytes_max`.
    body_ahead_bytes_max: ByteCount = ByteCount(64 * KIB), "body read before the handler is called";
    /// How long a head may take from its first byte (the first head: from the accept): 10 s. A usual
    /// head is one packet, which may get lost a few times; more time serves those who hold connections on purpose.
    /// Longer: 408.
    head_timeout: Duration = Duration::from_secs(10), "time for a whole head (408)";
    /// How long a body may pause: 30 s, half of what nginx gives; many lost packets fit in it. Longer: 408.
    body_idle_timeout: Duration = Duration::from_secs(30), "longest pause within a body (408)";
    /// The slowest that a peer may send a head or a body, or take a response, on average: 500 B/s, as Apache's
    /// `mod_reqtimeout`. Slower: 408, or the connection ends. 0: as slow as the other deadlines
    /// allow. Of a client that always takes a little it is this alone that bounds how long a response takes.
    rate_bytes_min: ByteCount = ByteCount(500), "slowest peer, bytes a second (408; 0: no limit)";
    /// How long a peer that sends is left alone before `rate_bytes_min` counts: 10 s, in which a short message
    /// comes through on a bad link. A peer that takes a response has `write_timeout` instead.
    rate_grace: Duration = Duration::from_secs(10), "time before the rate of a sender counts";
    /// How long a response may make no progress: 30 s, as a body that comes. Longer: the connection ends. The kernel, which holds
    /// megabytes of what was sent, is told twice that (tcp(7), `TCP_USER_TIMEOUT`), and for event streams and WebSockets two minutes at
    /// least: so long it goes on to offer what nobody takes, also of a connection that is closed here.
    write_timeout: Duration = Duration::from_secs(30), "longest pause of a peer that takes a response";
    /// Silence after which an event stream or a WebSocket gets a sign of life: 15 s, under the 30 to 60 s after which
    /// proxies drop a connection. A WebSocket whose client does not answer within as much again is closed.
    heartbeat: Duration = Duration::from_secs(15), "silence before a sign of life in a stream or WebSocket";
    /// How long a connection that was upgraded, or is a tunnel, may say nothing before a read of it fails: 10 min, when
    /// most that are so quiet have gone without a word; each holds a thread. One without a thread
    /// ([`Response::upgrade_fed`](crate::Response::upgrade_fed)) ends. No limit: 0s. A handler sets its own with
    /// [`UpgradedReader::set_timeout`](crate::UpgradedReader::set_timeout); WebSockets go by `heartbeat`, and in a tunnel
    /// of [`Proxy`](crate::Proxy) what goes either way counts.
    upgrade_idle_timeout: Duration = Duration::from_secs(600), "silence of an upgraded connection or tunnel (0s: no limit)";
    /// How long a connection may wait for its next request: 75 s, above the 60 s of common load balancers,
    /// so that they are the ones who close.
    idle_timeout: Duration = Duration::from_secs(75), "longest wait for the next request";
    /// How old a connection may get: 1 h (less up to 10 % at random), so that load balancers can move clients. 0s: no
    /// limit.
    age_max: Duration = Duration::from_secs(3600), "oldest connection (0s: no limit)";
    /// A handler that takes longer is logged, with its request and thread, while it runs and when it ends: 30 s, when
    /// most clients and proxies have given up. So is the writer of a streamed body. What they wait for
    /// their client, which has deadlines of its own, does not count. Handlers have none. 0s: none is logged.
    handler_warn_after: Duration = Duration::from_secs(30), "a handler that takes longer is logged (0s: never)";
    /// How long after a request has come an answer to it makes sense: no limit (0s). Handlers are told by
    /// [`Request::deadline`](crate::Request::deadline) and are not stopped; a request that has waited for a
    /// thread for longer is not started, and gets 503.
    request_timeout: Duration = Duration::ZERO, "time in which an answer makes sense (0s: no limit)";
    /// How long a server that is told to stop goes on as before, new connections and all: not at all (0s). A load
    /// balancer needs that time to find out: let its health check answer 503 when
    /// [`Request::is_stopping`](crate::Request::is_stopping). A second signal ends it, and cuts requests in flight, too.
    drain_delay: Duration = Duration::ZERO, "going on as before when told to stop (0s: not at all)";
    /// How long `run` waits for requests in flight after SIGTERM or SIGINT and the `drain_delay`: 25 s. With 2 s
    /// in which who waits is let in, and threads and the log get to end, that is within the 30 s which Kubernetes and most
    /// others leave a process before they kill it: `drain_delay` + `drain_timeout` + 2 s has to be less. 0s: requests in
    /// flight are cut; a second signal does that too.
    drain_timeout: Duration = Duration::from_secs(25), "time to finish requests at shutdown (0s: cut them)";
    /// How much of an unread request body is read and dropped to keep a connection: 64 KiB, as much as
    /// is read ahead; for more, a new connection is cheaper.
    unread_bytes_max: ByteCount = ByteCount(64 * KIB), "unread body dropped to keep a connection";
    /// How long the rest of an unread body may take: 500 ms; a new connection is made sooner. 0s: it is not waited for.
    unread_timeout: Duration = Duration::from_millis(500), "time for the rest of an unread body (0s: none)";
    /// How long a connection that ends early still reads what its peer sends, so that the answer is not lost
    /// to a reset (RFC 9112 section 9.6): 2 s, several round trips of a slow network. 0s: it does not. As long is
    /// waited for the answer of a WebSocket's client that was told of its end, and for the end of another connection whose
    /// upgrade is done.
    linger_timeout: Duration = Duration::from_secs(2), "reading on after an early answer (0s: not)";
    /// How much is read and dropped meanwhile: 1 MiB, what a fast client has on the way before it sees the answer.
    linger_bytes_max: ByteCount = ByteCount(MIB), "bytes dropped after an early answer";
    /// Whether every listener expects the PROXY protocol, version 1 or 2, before the first request: off. One
    /// listener is told so by its address, `proxy+127.0.0.1:8080`. A connection without it is refused, as is one
    /// from outside `trusted_proxies`.
    proxy_protocol: bool = false, "expect the PROXY protocol at every listener (on, off)";
    /// How long a PROXY header may take from the accept: 5 s, room for a lost packet or two. Longer: the
    /// connection ends.
    proxy_header_timeout: Duration = Duration::from_secs(5), "time for a whole PROXY header";
    /// Longest PROXY header: 4 KiB, for many times what proxies send (536 bytes fit in any packet).
    proxy_header_bytes_max: ByteCount = ByteCount(4 * KIB), "longest PROXY header";
    /// The proxies that are believed, as networks: nobody. They may open connections with a PROXY header, and
    /// what they say in `forwarded_header` counts for [`Request::client_addr`](crate::Request::client_addr), of
    /// the scheme for [`Request::scheme`](crate::Request::scheme), and of the host where an `Origin` is compared with it
    /// ([`Csrf`](crate::middleware::Csrf), WebSockets). Who is none of them and asks for a target with
    /// `https://` gets 421 (RFC 9110 section 7.4).
    trusted_proxies: Networks = Networks::NONE, "networks whose proxies are believed (10.0.0.0/8,::1,unix)";
    /// The header in which trusted proxies name their client: `X-Forwarded-For`. The other one is never read.
    forwarded_header: ForwardedHeader = ForwardedHeader::XForwardedFor, "where proxies name the client (x-forwarded-for, forwarded)";
    /// Most connections at once; more wait in the kernel's backlog, and those that have asked for nothing for a second
    /// make room for them. 0 (the default): 0.8 of the descriptor limit, which is raised to its hard limit at start.
    connections_max: usize = 0, "most connections (0: 0.8 of the descriptor limit)";
    /// Length of the accept queue asked of the kernel: 4,096, its usual cap.
    backlog: u32 = 4096, "accept queue of the kernel";
    /// Standby threads that stay when there is nothing for them to do: 8, so that a burst of handlers that block does
    /// not begin with making threads. No more than `threads_max`.
    standby_kept: usize = 8, "standby threads kept";
    /// Most threads: 512, a GiB of address space at 2 MiB a stack. When all are in handlers, or held by connections that
    /// were upgraded, requests queue; in `adaptive` the log says that, once a second.
    threads_max: usize = 512, "most threads";
    /// Most requests that wait for a thread: 1,024, twice the threads, so that the last of them waits for about
    /// two calls. More get 503 with `Retry-After`.
    queue_max: usize = 1024, "requests that wait for a thread (503)";
    /// Most connections that are accepted and not finished, without those that only have still to end (`linger_timeout`); more get 503
    /// with `Retry-After` at the door. 0 (the
    /// default): as `connections_max`, at which they wait in the kernel's backlog instead. What clients should
    /// meet is the choice here: a wait, or an answer that they can act upon.
    accepted_max: usize = 0, "connections accepted and not finished (503; 0: connections_max)";
    /// Stack of a request in the fibers engine: 64 KiB and a guard page. Formatting, a panic with its
    /// backtrace and typical handlers fit in it, and only touched pages take memory. A request that needs more
    /// ends the process with a message that says so. With debug assertions 256 KiB: frames are several times as large
    /// without optimisation, and to drop JSON that is nested as deep as serde_json reads takes 105 KiB.
    fiber_stack_bytes: ByteCount = ByteCount(FIBER_STACK), "stack of a request in the fibers engine";
}

impl Settings {
    /// Sets one value by its name (`head_bytes_max` or `head-bytes-max`), as a flag would.
    ///
    /// # Errors
    /// No such setting, or a value that does not parse.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let wanted = name.replace('-', "_");
        let Some(index) = Settings::NAMES.iter().position(|known| *known == wanted) else {
            let meant = nearest(&wanted, Settings::NAMES).map(|known| format!(", did you mean {known}?"));
            return Err(Error::usage(format!("unknown setting {name:?}{}", meant.unwrap_or_default())));
        };
        self.assign(index, value)?;
        self.sources[index] = Source::Code;
        Ok(())
    }

    /// Every setting with its value, its source and what it bounds.
    pub fn list(&self) -> Vec<Setting> {
        let (texts, defaults) = (self.texts(), Settings::default().texts());
        (texts.into_iter().zip(&defaults).enumerate())
            .map(|(i, (value, default))| Setting {
                name: Settings::NAMES[i],
                source: self.source(i, &value, default),
                value,
                about: Settings::ABOUT[i],
            })
            .collect()
    }

    /// Fields can be assigned to: then the value tells that it came from code.
    fn source(&self, index: usize, value: &str, default: &str) -> Source {
        let sourced = self.sourced.get(index).map_or(default, String::as_str);
        if sourced == value { self.sources[index] } else { Source::Code }
    }

    /// Sets what 0 leaves to the system. That changes no source.
    pub(crate) fn work_out(&mut self, descriptors: u64) {
        for (index, setting) in self.list().into_iter().enumerate() {
            self.sources[index] = setting.source;
        }
        if self.connections_max == 0 {
            self.connections_max = usize::try_from(descriptors / 5 * 4).unwrap_or(usize::MAX);
        }
        if self.accepted_max == 0 {
            self.accepted_max = self.connections_max;
        }
        self.sourced = self.texts().into();
    }

    /// Some of them with their values, for a log line: `head_timeout is 10s, rate_bytes_min is 500B`.
    pub(crate) fn show(&self, names: &[&str]) -> String {
        let named = names.iter().filter_map(|name| Some(format!("{name} is {}", self.value(name)?)));
        named.collect::<Vec<_>>().join(", ")
    }

    /// The value of the one with that name, as it is shown.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let index = Settings::NAMES.iter().position(|known| *known == name)?;
        self.texts().into_iter().nth(index)
    }

    fn mark(&mut self, name: &str, source: Source) {
        if let Some(index) = Settings::NAMES.iter().position(|known| *known == name) {
            self.sources[index] = source;
        }
    }

    /// The limits that the protocol itself needs.
    pub(crate) fn wire(&self) -> weftwork_wire::Limits {
        let narrow = |bytes: ByteCount| u32::try_from(bytes.0).unwrap_or(u32::MAX);
        weftwork_wire::Limits {
            request_line_bytes_max: narrow(self.request_line_bytes_max),
            head_bytes_max: narrow(self.head_bytes_max),
            fields_max: self.fields_max,
            chunk_extension_bytes_max: narrow(self.chunk_extension_bytes_max),
        }
    }

    /// Refuses values with which no server could run, and names the variable that has brought one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_values().map_err(|error| self.with_variable(error))
    }

    /// The same error, with the variable that has brought the setting which it names.
    pub(crate) fn with_variable(&self, error: Error) -> Error {
        let is_named = |name: &str| error.message().split([' ', '(']).any(|word| word == name);
        let settings = self.list();
        let mut variables = settings.iter().filter(|setting| setting.source == Source::Environment);
        match variables.find(|setting| is_named(setting.name)) {
            Some(setting) => {
                let variable = environment::variable_of(setting.name);
                Error::usage(format!("{variable}: {}", error.message()))
            }
            None => error,
        }
    }

    fn check_values(&self) -> Result<(), Error> {
        let floor = |name: &'static str, value: u64, least: u64| {
            if value >= least { Ok(()) } else { Err(Error::too_small(name, value, least)) }
        };
        floor("head_bytes_max", self.head_bytes_max.0, 64)?;
        floor("request_line_bytes_max", self.request_line_bytes_max.0, 16)?;
        floor("fields_max", u64::from(self.fields_max), 1)?;
        floor("threads_max", self.threads_max as u64, 2)?;
        floor("fiber_stack_bytes", self.fiber_stack_bytes.0, 16 * KIB)?;
        floor("backlog", u64::from(self.backlog), 1)?;
        floor("proxy_header_bytes_max", self.proxy_header_bytes_max.0, 16)?;
        if self.body_bytes_max.0 == 0 {
            let why = "must be at least 1B (no limit: a large value such as 1000000GiB)";
            return Err(Error::usage(format!("invalid body_bytes_max \"0B\": {why}")));
        }
        for (name, time) in [
            ("head_timeout", self.head_timeout),
            ("body_idle_timeout", self.body_idle_timeout),
            ("rate_grace", self.rate_grace),
            ("write_timeout", self.write_timeout),
            ("heartbeat", self.heartbeat),
            ("idle_timeout", self.idle_timeout),
            ("proxy_header_timeout", self.proxy_header_timeout),
        ] {
            // Deadlines are counted in milliseconds: a part of one would be none.
            if time < Duration::from_millis(1) {
                let why = "must be at least 1ms (the server never waits for a client without a limit)";
                return Err(Error::usage(format!("invalid {name} {:?}: {why}", time.show())));
            }
        }
        if self.standby_kept > self.threads_max {
            return Err(Error::too_large("standby_kept", self.standby_kept, "threads_max", self.threads_max));
        }
        Ok(())
    }
}

/// A limit for which 0 is none.
pub(crate) fn or_never(limit: Duration) -> Duration {
    if limit.is_zero() { Duration::MAX } else { limit }
}

#[cfg(test)]
mod tests;
