//! Holds every limit and deadline, with its default, the reason for it, and the source of its value.

mod environment;
mod proxies;
mod suggest;
mod tls;
mod units;

use std::fmt;
use std::time::Duration;

use crate::error::Error;
pub(crate) use environment::EnvPrefix;
pub use proxies::{ForwardedHeader, Networks};
use suggest::nearest;
pub use tls::TlsVersion;
use units::Unit;

/// Source of a value of [`Settings`]. Code overrides the environment, and the environment overrides the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

/// Describes one setting as text, for startup lines, pages and `--help`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Name in code. A flag has `-` instead of `_`, and a variable has capitals after `WEFT_`.
    pub name: &'static str,
    /// Current value, as users write it.
    pub value: String,
    /// Source of the value.
    pub source: Source,
    /// Describes in one line what the setting limits.
    pub about: &'static str,
}

macro_rules! settings {
    ($( $(#[doc = $doc:literal])+ $name:ident : $type:ty = $default:expr, $about:literal; )+) => {
        /// Every limit and deadline of a server. Each field names its default and the reason for it.
        ///
        /// In variables and flags, a duration has a unit (`30s`, `500ms`, `0s`). A size may have one (`2MiB`, `512`).
        ///
        /// # What 0 means
        ///
        /// | settings | 0 means |
        /// |---|---|
        /// | `age_max`, `drain_delay`, `handler_warn_after`, `hsts_max_age`, `rate_bytes_min`, `request_timeout`, `tls_check_interval`, `upgrade_idle_timeout` | no limit, no delay, no warning, or no checks |
        /// | `drain_idle_timeout`, `drain_timeout`, `linger_timeout`, `unread_timeout` | no time: requests are cut, or connections are closed, at once |
        /// | `body_ahead_bytes_max`, `chunk_extension_bytes_max`, `linger_bytes_max`, `queue_max`, `standby_kept`, `unread_bytes_max` | zero bytes or items (`standby_kept` must be at least 1 in the engine `pool`) |
        /// | `connections_max`, `accepted_max`, `https_port` | a value computed at startup |
        /// | other durations, sizes and numbers | rejected at startup, because a wait for a client would have no end or no request would fit |
        #[derive(Clone, Debug)]
        pub struct Settings {
            $( $(#[doc = $doc])+ pub $name: $type, )+
            sources: [Source; Settings::COUNT],
            /// Values that belong to the sources. If empty, the values are the defaults.
            sourced: Box<[String]>,
            /// Prefix of the variables. If empty, it is `WEFT_`.
            prefix: Box<str>,
        }

        impl Default for Settings {
            fn default() -> Settings {
                Settings {
                    $( $name: $default, )+
                    sources: [Source::Default; Settings::COUNT],
                    sourced: Box::default(),
                    prefix: Box::default(),
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
                    self.$name = Unit::parse(text).map_err(|why| Error::setting(name, text, why))?;
                } )+
                Ok(())
            }

            fn copy(&mut self, index: usize, from: &Settings) {
                let name = Settings::NAMES[index];
                $( if name == stringify!($name) {
                    self.$name.clone_from(&from.$name);
                } )+
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
    /// Maximum length of a request line. Default: 8 KiB, as in nginx and Apache. When exceeded: 414.
    request_line_bytes_max: u64 = 8 * KIB, "longest request line (414)";
    /// Maximum length of a request head: the request line and all fields. Default: 32 KiB, as nginx's four large
    /// buffers. When exceeded: 431.
    head_bytes_max: u64 = 32 * KIB, "longest head (431)";
    /// Maximum number of field lines in a head or in trailers. Default: 100, as in Apache and gunicorn.
    /// When exceeded: 431.
    fields_max: u32 = 100, "most field lines in a head (431)";
    /// Maximum size of all chunk extensions in one body. Default: 4 KiB, because only attackers send them.
    /// When exceeded: 413. 0 rejects every extension.
    chunk_extension_bytes_max: u64 = 4 * KIB, "most bytes of chunk extensions in a body (413)";
    /// Maximum size of a request body that a handler can read, also while it streams its response. A handler can
    /// change the limit for its request. Default: 2 MiB, as in axum. When exceeded: 413. 0 is rejected at startup.
    /// For no limit, set a large value such as `1000000GiB`.
    body_bytes_max: u64 = 2 * MIB, "largest request body (413)";
    /// Maximum part of a body that is read before the handler starts. Default: 64 KiB, so that a slow upload of a
    /// usual form or document holds no thread. When exceeded: the handler starts and reads the rest. If the declared
    /// length is above `body_bytes_max`, nothing is read ahead. 0 reads nothing ahead.
    body_ahead_bytes_max: u64 = 64 * KIB, "bytes of a body read before the handler starts";
    /// Maximum time to receive a request head, measured from its first byte, or from accept for the first request of
    /// a connection. Default: 10 s, enough to resend a lost packet a few times. A longer time only helps clients that
    /// hold connections on purpose. When exceeded: 408. 0 is rejected at startup.
    head_timeout: Duration = Duration::from_secs(10), "time to receive a head (408)";
    /// Maximum pause while a request body arrives. Default: 30 s, half of nginx's, enough to resend many lost packets.
    /// When exceeded: 408. 0 is rejected at startup.
    body_idle_timeout: Duration = Duration::from_secs(30), "longest pause while a body arrives (408)";
    /// Minimum average transfer rate, in bytes per second. Applies to requests and responses. If a client always reads
    /// a little of a response, only this setting limits the duration of the response. Default: 500, as in Apache's
    /// `mod_reqtimeout`. When violated: 408 while receiving, or the connection closes while sending. 0 disables the limit.
    rate_bytes_min: u64 = 500, "lowest transfer rate in bytes a second (408; 0: no limit)";
    /// Time before `rate_bytes_min` applies to a client that sends. For a client that reads a response, `write_timeout`
    /// takes its place. Default: 10 s, enough for a short message on a bad link. 0 is rejected at startup, because
    /// every client would be too slow at once.
    rate_grace: Duration = Duration::from_secs(10), "time before the rate of a sender counts";
    /// Maximum time without progress while a response is sent. Default: 30 s, as `body_idle_timeout`. When exceeded:
    /// the connection closes. 0 is rejected at startup.
    ///
    /// On Linux the server sets `TCP_USER_TIMEOUT` (tcp(7)) to twice this value, and to at least 2 min for event streams
    /// and WebSockets. If the client reads nothing for that long, the kernel drops the connection, even one that the
    /// server has closed.
    write_timeout: Duration = Duration::from_secs(30), "longest pause of a client that reads a response";
    /// Silence on an event stream or a WebSocket after which the server sends a heartbeat. Default: 15 s, less than the
    /// 30 to 60 s after which proxies close a connection. When a WebSocket client does not answer within the same time:
    /// the connection closes. 0 is rejected at startup.
    heartbeat: Duration = Duration::from_secs(15), "silence before a heartbeat on an event stream or WebSocket";
    /// Maximum silence on an upgraded connection or a tunnel. Default: 10 min, because most connections that are silent
    /// for that long are dead, and each holds a thread. When exceeded: the read fails, or the connection closes if it
    /// holds no thread ([`Response::upgrade_fed`](crate::Response::upgrade_fed)). 0 disables the limit.
    ///
    /// A handler can set its own limit with [`UpgradedReader::set_timeout`](crate::UpgradedReader::set_timeout).
    /// WebSockets use `heartbeat` instead. In a tunnel of [`Proxy`](crate::Proxy), bytes in either direction count.
    upgrade_idle_timeout: Duration = Duration::from_secs(600), "longest silence of an upgraded connection or tunnel (0s: no limit)";
    /// Maximum wait for the next request on a connection. Default: 75 s, more than the 60 s of common load balancers, so
    /// that the load balancer closes first. When exceeded: the connection closes. 0 is rejected at startup.
    idle_timeout: Duration = Duration::from_secs(75), "longest wait for the next request";
    /// Maximum age of a connection, reduced by up to 10 % at random. Default: 1 h, so that load balancers can move
    /// clients. When exceeded: the connection closes after the current response. 0 disables the limit.
    age_max: Duration = Duration::from_secs(3600), "longest life of a connection (0s: no limit)";
    /// Duration after which a running handler, or the writer of a streamed body, is logged with its request and its
    /// thread. Time spent waiting for the client does not count, because those waits have limits of their own.
    /// Default: 30 s, when most clients and proxies have given up. When exceeded: a warning while the handler runs and
    /// another when it ends. The handler is not stopped. 0 disables the warnings.
    handler_warn_after: Duration = Duration::from_secs(30), "log handlers that take longer (0s: never)";
    /// Whether stderr gets the addresses, the warnings and the errors if the program has installed no logger for the crate
    /// [`log`]. Default: on, so that no error is lost. stderr belongs to the process, so a single server with `off` turns it
    /// off for all. `weft` has a logger of its own.
    stderr_log: bool = true, "addresses and errors go to stderr if the program has no logger (on, off)";
    /// Time budget of a request, measured from its arrival. A handler can read
    /// [`Request::deadline`](crate::Request::deadline) and is not stopped. Default: no limit (`0s`). When exceeded: a
    /// request that still waits for a thread gets 503. 0 disables the limit.
    request_timeout: Duration = Duration::ZERO, "time budget of a request, 503 if not started (0s: no limit)";
    /// Time to keep serving after the stop signal, new connections included, so that a load balancer can notice. Let the
    /// health check answer 503 if [`Request::is_stopping`](crate::Request::is_stopping). Default: `0s`, no delay. A
    /// second signal ends the delay and cuts requests in flight.
    drain_delay: Duration = Duration::ZERO, "time to keep serving after the stop signal (0s: none)";
    /// Maximum time that `run` waits for requests in flight after SIGTERM or SIGINT and the `drain_delay`. Default: 25 s,
    /// because Kubernetes and most supervisors kill a process after 30 s. The shutdown needs 2 s more: to accept waiting
    /// connections, and for threads and the log to end. Keep `drain_delay` + `drain_timeout` + 2 s below the limit of
    /// your supervisor. When exceeded, or on a second signal: requests in flight are cut. 0 cuts them at once.
    ///
    /// Endless responses and upgraded connections end one after another, in random order, so that not all their clients
    /// return in the same moment: fifty in a second, or more if half of this time would not be enough. A single one ends at
    /// once.
    drain_timeout: Duration = Duration::from_secs(25), "time to finish requests at shutdown (0s: cut them)";
    /// Time after its last byte for which an idle connection stays open while the server drains. A request that was on its
    /// way when the server was told to stop is then answered. Default: 1 s, many times the pauses of a proxy or a client
    /// that is at work. At most `drain_timeout`, and a second signal ends it. A connection that has never sent a request
    /// ends at once. 0 closes idle connections at once.
    drain_idle_timeout: Duration = Duration::from_secs(1), "time for one more request on an idle connection at shutdown (0s: none)";
    /// Whether [`Server::run`](crate::Server::run) takes SIGHUP, SIGUSR1 and SIGUSR2: see [`Signals`](crate::Signals).
    /// Default: on, because each of them would end the process at once. If off, they are left to the program.
    maintenance_signals: bool = true, "SIGHUP reloads, SIGUSR1 reopens logs, SIGUSR2 replaces (on, off)";
    /// Maximum time for the process that SIGUSR2 starts to become ready. Default: 60 s, because a program may read much at
    /// its start. When exceeded: the new process is ended, and this one goes on. 0 is rejected at startup.
    replacement_timeout: Duration = Duration::from_secs(60), "time for a process that SIGUSR2 starts to become ready";
    /// Maximum part of an unread request body that is read and dropped to keep a connection. Default: 64 KiB, as
    /// `body_ahead_bytes_max`, because for more bytes a new connection is cheaper. When exceeded: the connection closes.
    /// 0 drops nothing.
    unread_bytes_max: u64 = 64 * KIB, "unread body bytes dropped to keep a connection";
    /// Maximum time to receive the rest of an unread body. Default: 500 ms, because a new connection takes less. When
    /// exceeded: the connection closes. 0 does not wait.
    unread_timeout: Duration = Duration::from_millis(500), "time for the rest of an unread body (0s: none)";
    /// Time to keep reading from a client after closing early, so that a reset does not destroy the response (RFC 9112
    /// section 9.6). Also the time to wait for a WebSocket client to confirm a close, and for the other side to close an
    /// upgraded connection that is done. Default: 2 s, several round trips on a slow network. When exceeded: the
    /// connection closes. 0 closes at once. A client of HTTP/2 that may still read a long response (it has not answered a
    /// PING behind the response) gets `write_timeout` after each of its frames, and four times as long in all.
    linger_timeout: Duration = Duration::from_secs(2), "time to keep reading after closing early (0s: off)";
    /// Maximum number of bytes read and dropped during `linger_timeout`. Default: 1 MiB, what a fast client has sent
    /// before it sees the response. When exceeded: no more is read, and the client has the rest of `linger_timeout` to
    /// read the response. 0 drops nothing.
    linger_bytes_max: u64 = MIB, "bytes dropped after closing early";
    /// Whether every listener expects the PROXY protocol, version 1 or 2, before the first request. For one listener,
    /// write its address as `proxy+127.0.0.1:8080`. Default: off. A connection without a PROXY header, or from an address
    /// outside `trusted_proxies`, is rejected.
    proxy_protocol: bool = false, "expect the PROXY protocol at every listener (on, off)";
    /// Maximum time to receive a PROXY header, measured from accept. Default: 5 s, enough to resend a lost packet or two.
    /// When exceeded: the connection closes. 0 is rejected at startup.
    proxy_header_timeout: Duration = Duration::from_secs(5), "time to receive a PROXY header";
    /// Maximum time of a TLS handshake, from accept or from the end of a PROXY header. Default: 10 s, as `head_timeout`. A
    /// handshake holds no thread. When exceeded: the connection closes. 0 is rejected at startup.
    tls_handshake_timeout: Duration = Duration::from_secs(10), "time for a TLS handshake";
    /// Maximum length of a PROXY header. Default: 4 KiB, many times what proxies send (536 bytes fit in any packet).
    /// When exceeded: 400.
    proxy_header_bytes_max: u64 = 4 * KIB, "longest PROXY header (400)";
    /// Networks of the proxies that the server trusts. Default: none. A trusted proxy may send a PROXY header. Its
    /// `forwarded_header` sets [`Request::client_addr`](crate::Request::client_addr) and
    /// [`Request::scheme`](crate::Request::scheme), and the host that an `Origin` is compared with
    /// ([`Csrf`](crate::middleware::Csrf), WebSockets). If any other client requests an `https://` target: 421 (RFC 9110
    /// section 7.4).
    trusted_proxies: Networks = Networks::NONE, "networks of trusted proxies (10.0.0.0/8,::1,unix)";
    /// Header in which trusted proxies name their client. The other header is never read. Default: `X-Forwarded-For`,
    /// which most proxies send.
    forwarded_header: ForwardedHeader = ForwardedHeader::XForwardedFor, "header that names the client (x-forwarded-for, forwarded)";
    /// Time for which browsers use only HTTPS for this host (`Strict-Transport-Security`, RFC 6797), in whole seconds. Sent with each
    /// response whose scheme is `https`, unless the handler sets the header. Default: 0, not sent, because it cannot be revoked:
    /// each page of the host must have HTTPS for that long.
    hsts_max_age: Duration = Duration::ZERO, "time for which browsers use only HTTPS for this host (0s: not sent)";
    /// Port that the redirect listener sends clients to. Default: 0, the port of the first TLS address. Set it if clients reach
    /// that address by another port, as with a container.
    https_port: u16 = 0, "port that redirects to HTTPS name (0: of the first TLS address)";
    /// Maximum number of open connections. Default: 0, which means 0.8 of the descriptor limit. The server raises that
    /// limit to its hard limit at startup. When exceeded: new connections wait in the kernel's backlog, and connections
    /// without a request for 1 s are closed to make room.
    connections_max: usize = 0, "most open connections (0: 0.8 of the descriptor limit)";
    /// Length of the kernel's accept queue. Default: 4,096, the usual cap of the kernel.
    backlog: u32 = 4096, "length of the kernel's accept queue";
    /// Number of standby threads that stay when they are idle, at most `threads_max`. Default: 8, or `threads_max` if that is
    /// less, so that a burst of blocking handlers does not have to start threads first. 0 keeps none (the engine `pool` needs
    /// at least 1).
    standby_kept: usize = 8, "standby threads kept";
    /// Maximum number of threads. Default: 512, which is 1 GiB of address space at 2 MiB a stack. When exceeded: requests
    /// queue while all threads run handlers or hold upgraded connections. The engine `adaptive` logs that once a second. It
    /// may start a spare thread for each loop and one more, so that no loop waits for a handler.
    threads_max: usize = 512, "most threads";
    /// Maximum number of requests that wait for a thread. Default: 1,024, twice `threads_max`, so that the last request
    /// waits for about two calls. When exceeded: 503 with `Retry-After`. 0 lets no request wait.
    queue_max: usize = 1024, "most requests that wait for a thread (503)";
    /// Maximum number of accepted connections, without connections that are only closing (`linger_timeout`). Default: 0,
    /// which means `connections_max`, so that new connections wait in the kernel's backlog. When exceeded: 503 with
    /// `Retry-After`, before a request is read. Set this limit if your clients need a response rather than a wait.
    accepted_max: usize = 0, "most accepted connections (503; 0: connections_max)";
    /// Whether clients may choose HTTP/2 in the TLS handshake (ALPN, RFC 9113 section 3.2). Default: on, because all browsers
    /// do.
    http2: bool = true, "HTTP/2 for clients with TLS that choose it (on, off)";
    /// Whether a connection without TLS may begin with HTTP/2 (prior knowledge, RFC 9113 section 3.3). Default: off, because
    /// only proxies and gRPC clients do that. `Upgrade: h2c` is never honoured.
    http2_cleartext: bool = false, "HTTP/2 without TLS, by prior knowledge (on, off)";
    /// Maximum number of requests in progress on one HTTP/2 connection. Default: 100, the least that RFC 9113 section 6.5.2
    /// recommends. At least 1. When exceeded: the stream is refused, and its client tries again.
    http2_streams_max: u32 = 100, "most requests in progress on an HTTP/2 connection";
    /// Window of a stream whose handler reads a long body. Default: 1 MiB, which is 20 MB/s at a round trip of 50 ms. A
    /// stream begins with 64 KiB, so that is the least.
    http2_window_bytes_max: u64 = MIB, "bytes of a long upload on their way (HTTP/2)";
    /// Maximum number of body bytes that an HTTP/2 connection holds for requests that have not read them. Default: 2 MiB, so
    /// that one slow handler does not stop the uploads beside it. At least 64 KiB. When exceeded: the client waits.
    http2_held_bytes_max: u64 = 2 * MIB, "unread body bytes of an HTTP/2 connection";
    /// Oldest TLS version that the server accepts: `1.2` or `1.3`. Default: 1.2, which clients of the years before 2018 need.
    /// Older versions do not exist here (RFC 8996). A client that has only older ones gets an alert.
    tls_min_version: TlsVersion = TlsVersion::Tls12, "oldest TLS version (1.2, 1.3)";
    /// Interval of checks for changed certificate files, authorities of clients and ticket keys. Default: 60 s, so that a
    /// renewed certificate is in use at once. 0 never checks: see `Tls` for other ways.
    tls_check_interval: Duration = Duration::from_secs(60), "interval of checks for changed certificate files (0s: never)";
    /// Whether the secrets of connections are written to the file that the variable `SSLKEYLOGFILE` names, for Wireshark.
    /// Default: off, because a reader of that file can decrypt all traffic. A start logs it.
    tls_key_log: bool = false, "write secrets of TLS connections to $SSLKEYLOGFILE (on, off)";
    /// Stack size of a request in the engine `fibers`. Default: 64 KiB and a guard page, enough for formatting, a panic
    /// with its backtrace and typical handlers. Only pages in use take memory. When exceeded: the process ends with a
    /// message that says so.
    ///
    /// With debug assertions, the default is 256 KiB, because unoptimized frames are several times as large. For example,
    /// dropping JSON nested to serde_json's limit takes 105 KiB.
    fiber_stack_bytes: u64 = FIBER_STACK, "stack of a request in the engine fibers";
}

impl Settings {
    /// Sets a value by its name (`head_bytes_max` or `head-bytes-max`), as a flag does.
    ///
    /// # Errors
    /// The setting is unknown, or its value is invalid.
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

    /// Returns every setting with its value, its source and what it limits.
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

    /// Finds the source of a value. A field that was assigned differs from its recorded value, so it came from code.
    fn source(&self, index: usize, value: &str, default: &str) -> Source {
        let sourced = self.sourced.get(index).map_or(default, String::as_str);
        if sourced == value { self.sources[index] } else { Source::Code }
    }

    fn is_default(&self, name: &str) -> bool {
        self.list().iter().any(|setting| setting.name == name && setting.source == Source::Default)
    }

    /// Computes the values that depend on the system or on other values by default, without a change of their source.
    pub(crate) fn work_out(&mut self, descriptors: u64) {
        for (index, setting) in self.list().into_iter().enumerate() {
            self.sources[index] = setting.source;
        }
        if self.is_default("standby_kept") {
            self.standby_kept = self.standby_kept.min(self.threads_max);
        }
        if self.connections_max == 0 {
            self.connections_max = usize::try_from(descriptors / 5 * 4).unwrap_or(usize::MAX);
        }
        if self.accepted_max == 0 {
            self.accepted_max = self.connections_max;
        }
        self.sourced = self.texts().into();
    }

    /// Formats some settings for a log line: `head_timeout is 10s, rate_bytes_min is 500B`.
    pub(crate) fn show(&self, names: &[&str]) -> String {
        let named = names.iter().filter_map(|name| Some(format!("{name} is {}", self.value(name)?)));
        named.collect::<Vec<_>>().join(", ")
    }

    /// Returns the value of a setting as text.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let index = Settings::NAMES.iter().position(|known| *known == name)?;
        self.texts().into_iter().nth(index)
    }

    fn mark(&mut self, name: &str, source: Source) {
        if let Some(index) = Settings::NAMES.iter().position(|known| *known == name) {
            self.sources[index] = source;
        }
    }

    /// Returns the limits that the protocol needs.
    pub(crate) fn wire(&self) -> weftwork_wire::Limits {
        let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        weftwork_wire::Limits {
            request_line_bytes_max: narrow(self.request_line_bytes_max),
            head_bytes_max: narrow(self.head_bytes_max),
            fields_max: self.fields_max,
            chunk_extension_bytes_max: narrow(self.chunk_extension_bytes_max),
        }
    }

    /// Rejects values with which no server can run, and names the variable that set such a value.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_values().map_err(|error| self.with_variable(error))
    }

    /// Adds the variable that set the value to an error that names a setting.
    pub(crate) fn with_variable(&self, error: Error) -> Error {
        let is_named = |name: &str| error.message().split([' ', '(']).any(|word| word == name);
        let settings = self.list();
        let mut variables = settings.iter().filter(|setting| setting.source == Source::Environment);
        match variables.find(|setting| is_named(setting.name)) {
            Some(setting) => {
                let variable = self.variable_of(setting.name);
                Error::usage(format!("{variable}: {}", error.message()))
            }
            None => error,
        }
    }

    fn check_values(&self) -> Result<(), Error> {
        let floor = |name: &'static str, value: u64, least: u64| {
            if value >= least { Ok(()) } else { Err(Error::too_small(name, value, least)) }
        };
        floor("head_bytes_max", self.head_bytes_max, 64)?;
        floor("request_line_bytes_max", self.request_line_bytes_max, 16)?;
        floor("fields_max", u64::from(self.fields_max), 1)?;
        floor("threads_max", self.threads_max as u64, 2)?;
        floor("fiber_stack_bytes", self.fiber_stack_bytes, 16 * KIB)?;
        floor("backlog", u64::from(self.backlog), 1)?;
        floor("proxy_header_bytes_max", self.proxy_header_bytes_max, 16)?;
        floor("http2_streams_max", u64::from(self.http2_streams_max), 1)?;
        // Windows begin with 64 KiB. If they never opened again, no longer upload would end.
        floor("http2_window_bytes_max", self.http2_window_bytes_max, 64 * KIB)?;
        floor("http2_held_bytes_max", self.http2_held_bytes_max, 64 * KIB)?;
        if self.body_bytes_max == 0 {
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
            ("tls_handshake_timeout", self.tls_handshake_timeout),
            ("replacement_timeout", self.replacement_timeout),
        ] {
            // Deadlines are counted in whole milliseconds, so a shorter one would be 0.
            if time < Duration::from_millis(1) {
                let why = "must be at least 1ms (the server never waits for a client without a limit)";
                return Err(Error::usage(format!("invalid {name} {:?}: {why}", time.show())));
            }
        }
        if self.standby_kept > self.threads_max && !self.is_default("standby_kept") {
            return Err(Error::too_large("standby_kept", self.standby_kept, "threads_max", self.threads_max));
        }
        Ok(())
    }
}

/// Returns the limit, or the maximum duration if it is 0 (no limit).
pub(crate) fn or_never(limit: Duration) -> Duration {
    if limit.is_zero() { Duration::MAX } else { limit }
}

#[cfg(test)]
mod tests;
