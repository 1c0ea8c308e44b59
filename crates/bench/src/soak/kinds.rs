//! Who comes, what does each say first, how often is it heard of, and when must it be over?

use std::time::Duration;

/// Requests of one burst of a flood.
pub(super) const BURST: usize = 64;
/// What a download reads in one turn: 160 KiB a second.
const DOWNLOAD_READ_BYTES: usize = 16 << 10;
/// A server's timers may be a little late; so may we, who look once a second.
const GRACE: Duration = Duration::from_secs(5);

/// What a client does to the server.
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

impl Kind {
    /// All of them, and how many of each.
    pub(crate) const STORM: [(Kind, usize); 12] = [
        (Kind::SlowHead, 500),
        (Kind::SlowBody, 200),
        (Kind::SlowReader, 50),
        (Kind::Silent, 300),
        (Kind::Vanishing, 50),
        (Kind::Flood, 4),
        (Kind::Churn, 20),
        (Kind::Nonsense, 20),
        (Kind::Duplex, 5),
        (Kind::Download, 10),
        (Kind::Socket, 20),
        (Kind::Feed, 50),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::SlowHead => "slow-heads",
            Kind::SlowBody => "slow-bodies",
            Kind::SlowReader => "slow-readers",
            Kind::Silent => "silent",
            Kind::Vanishing => "vanishing",
            Kind::Flood => "flood",
            Kind::Churn => "churn",
            Kind::Nonsense => "nonsense",
            Kind::Duplex => "duplex",
            Kind::Download => "download",
            Kind::Socket => "socket",
            Kind::Feed => "feed",
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Kind::SlowHead => "slow head: a byte a second",
            Kind::SlowBody => "slow body: a byte a second",
            Kind::SlowReader => "slow reader: 100 bytes a second",
            Kind::Silent => "half open: never says a word",
            Kind::Vanishing => "leaves within a head, by a reset",
            Kind::Flood => "flood: 64 pipelined requests at once",
            Kind::Churn => "churn: a connection for each request",
            Kind::Nonsense => "nonsense",
            Kind::Duplex => "guest: a body both ways, chunk by chunk",
            Kind::Download => "guest: a body of 512 KiB, read slowly",
            Kind::Socket => "guest: a WebSocket, a message a second",
            Kind::Feed => "guest: the clock's events",
        }
    }

    pub(super) fn every(self) -> Duration {
        Duration::from_millis(match self {
            Kind::SlowHead | Kind::SlowBody | Kind::SlowReader | Kind::Silent => 1_000,
            Kind::Socket | Kind::Feed => 1_000,
            Kind::Vanishing | Kind::Nonsense => 500,
            Kind::Flood | Kind::Churn | Kind::Duplex | Kind::Download => 100,
        })
    }

    /// When the server has to have ended it. None: it is welcome, or leaves by itself.
    pub(super) fn ends_within(self) -> Option<Duration> {
        let seconds = match self {
            // head_timeout, and the least rate after ten seconds
            Kind::SlowHead | Kind::SlowBody | Kind::Silent => 10,
            // write_timeout
            Kind::SlowReader => 30,
            // linger_timeout
            Kind::Nonsense => 2,
            Kind::Vanishing | Kind::Flood | Kind::Churn => return None,
            Kind::Duplex | Kind::Download | Kind::Socket | Kind::Feed => return None,
        };
        Some(Duration::from_secs(seconds) + GRACE)
    }

    pub(super) fn first_words(self) -> Vec<u8> {
        match self {
            Kind::SlowHead | Kind::Silent => Vec::new(),
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
            Kind::Duplex | Kind::Download | Kind::Socket | Kind::Feed => Vec::new(),
        }
    }

    /// What it reads in one turn: in pieces so small the whole turn, or else all there is.
    pub(super) fn read_bytes(self) -> Option<usize> {
        match self {
            Kind::SlowReader => Some(100),
            Kind::Download => Some(DOWNLOAD_READ_BYTES),
            _ => None,
        }
    }
}
