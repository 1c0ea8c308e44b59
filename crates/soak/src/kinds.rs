//! The kinds of clients, as one table: how many of each, how often each acts, and when the server must have ended it.

use std::str::FromStr;
use std::time::Duration;

/// Requests of one burst of a flood.
pub(crate) const BURST: usize = 64;
/// Bytes that a download reads at a time: 160 KiB a second.
const DOWNLOAD_READ_BYTES: usize = 16 << 10;
/// A server's timers may be a little late, and the clients look once a second.
const GRACE: Duration = Duration::from_secs(5);

/// Behaviour of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    SlowHead,
    SlowBody,
    SlowReader,
    Silent,
    Vanishing,
    Flood,
    Churn,
    Nonsense,
    Duplex,
    Download,
    Socket,
    Feed,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) count: usize,
    every_ms: u64,
    /// The deadline of the server that ends it. None: the server does not end it.
    deadline_s: Option<u64>,
    pub(crate) about: &'static str,
}

/// All kinds. The deadlines are `head_timeout` (and the least rate after ten seconds), `write_timeout` and `linger_timeout`.
#[rustfmt::skip]
pub(crate) const SCRIPTS: [Script; 12] = [
    script(Kind::SlowHead, "slow-heads", 500, 1_000, Some(10), "slow head: a byte a second"),
    script(Kind::SlowBody, "slow-bodies", 200, 1_000, Some(10), "slow body: a byte a second"),
    script(Kind::SlowReader, "slow-readers", 50, 1_000, Some(30), "slow reader: 100 bytes a second"),
    script(Kind::Silent, "silent", 300, 1_000, Some(10), "half open: never sends a byte"),
    script(Kind::Vanishing, "vanishing", 50, 500, None, "leaves within a head, by a reset"),
    script(Kind::Flood, "flood", 4, 100, None, "flood: 64 pipelined requests at once"),
    script(Kind::Churn, "churn", 20, 100, None, "churn: a connection for each request"),
    script(Kind::Nonsense, "nonsense", 20, 500, Some(2), "nonsense"),
    script(Kind::Duplex, "duplex", 5, 100, None, "well-behaved: a body both ways, chunk by chunk"),
    script(Kind::Download, "download", 10, 100, None, "well-behaved: a body of 512 KiB, read slowly"),
    script(Kind::Socket, "socket", 20, 1_000, None, "well-behaved: a WebSocket, a message a second"),
    script(Kind::Feed, "feed", 50, 1_000, None, "well-behaved: the clock's events"),
];

const fn script(
    kind: Kind,
    name: &'static str,
    count: usize,
    every_ms: u64,
    deadline_s: Option<u64>,
    about: &'static str,
) -> Script {
    Script { kind, name, count, every_ms, deadline_s, about }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = SCRIPTS.map(|script| script.name).join(", ");
        let found = SCRIPTS.into_iter().find(|script| script.name == name);
        found.ok_or_else(|| format!("unknown clients '{name}': {names}"))
    }
}

impl Script {
    pub(crate) fn every(&self) -> Duration {
        Duration::from_millis(self.every_ms)
    }

    /// Returns the age at which the server must have ended it. None: it may stay, or leaves by itself.
    pub(crate) fn ends_within(&self) -> Option<Duration> {
        self.deadline_s.map(|seconds| Duration::from_secs(seconds) + GRACE)
    }
}

impl Kind {
    /// Returns what it sends first, if it is hostile.
    pub(crate) fn first_bytes(self) -> Vec<u8> {
        match self {
            Kind::SlowBody => b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n".to_vec(),
            Kind::SlowReader => b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3_000),
            Kind::Vanishing => b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\nhalf".to_vec(),
            Kind::Flood => b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n".repeat(BURST),
            Kind::Churn => b"GET /json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(),
            Kind::Nonsense => {
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n\
                GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
                    .to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Returns what it reads in one turn. None: all there is.
    pub(crate) fn read_bytes(self) -> Option<usize> {
        match self {
            Kind::SlowReader => Some(100),
            Kind::Download => Some(DOWNLOAD_READ_BYTES),
            _ => None,
        }
    }
}
