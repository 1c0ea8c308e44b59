//! Who attacks, and how? Clients without threads of their own: each acts when its time comes, and tells what
//! became of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::load::response::ResponseParser;

/// Below the 28,000 ports that Linux has for one source address by default.
const PER_SOURCE: usize = 20_000;
/// Requests of one burst of a flood.
const BURST: usize = 64;
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
}

impl Kind {
    /// All of them, and how many of each.
    pub(crate) const STORM: [(Kind, usize); 8] = [
        (Kind::SlowHead, 500),
        (Kind::SlowBody, 200),
        (Kind::SlowReader, 50),
        (Kind::Silent, 300),
        (Kind::Vanishing, 50),
        (Kind::Flood, 4),
        (Kind::Churn, 20),
        (Kind::Nonsense, 20),
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
        }
    }

    fn about(self) -> &'static str {
        match self {
            Kind::SlowHead => "slow head: a byte a second",
            Kind::SlowBody => "slow body: a byte a second",
            Kind::SlowReader => "slow reader: 100 bytes a second",
            Kind::Silent => "half open: never says a word",
            Kind::Vanishing => "leaves within a head, by a reset",
            Kind::Flood => "flood: 64 pipelined requests at once",
            Kind::Churn => "churn: a connection for each request",
            Kind::Nonsense => "nonsense",
        }
    }

    fn every(self) -> Duration {
        Duration::from_millis(match self {
            Kind::SlowHead | Kind::SlowBody | Kind::SlowReader | Kind::Silent => 1_000,
            Kind::Vanishing | Kind::Nonsense => 500,
            Kind::Flood | Kind::Churn => 100,
        })
    }

    /// When the server has to have ended it. None: it is welcome, or leaves by itself.
    fn ends_within(self) -> Option<Duration> {
        let seconds = match self {
            // head_timeout, and the least rate after ten seconds
            Kind::SlowHead | Kind::SlowBody | Kind::Silent => 10,
            // write_timeout
            Kind::SlowReader => 30,
            // linger_timeout
            Kind::Nonsense => 2,
            Kind::Vanishing | Kind::Flood | Kind::Churn => return None,
        };
        Some(Duration::from_secs(seconds) + GRACE)
    }

    fn first_words(self) -> Vec<u8> {
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
        }
    }
}

/// What became of all clients of a kind.
#[derive(Clone, Debug, Default)]
struct Tally {
    opened: u64,
    /// Ended by the server.
    ended: u64,
    answers: u64,
    /// Not ended in time.
    overdue: u64,
    failed: u64,
    longest: Duration,
}

struct Client {
    kind: usize,
    socket: Option<OwnedFd>,
    opened: Instant,
    words: Vec<u8>,
    said: usize,
    awaited: usize,
    parser: ResponseParser,
}

/// All clients, each waiting for its turn.
pub(super) struct Crowd {
    port: u16,
    kinds: Vec<(Kind, Tally)>,
    clients: Vec<Client>,
    turns: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Whoever has been ended comes again.
    again: bool,
    input: Vec<u8>,
}

impl Crowd {
    pub(super) fn new(port: u16, kinds: &[(Kind, usize)]) -> Crowd {
        let mut crowd = Crowd {
            port,
            kinds: Vec::new(),
            clients: Vec::new(),
            turns: BinaryHeap::new(),
            again: true,
            input: vec![0; 64 << 10],
        };
        for (kind, count) in kinds {
            crowd.join(*kind, *count);
        }
        crowd
    }

    /// Clients of one kind, each of which comes once.
    pub(super) fn once(port: u16, kind: Kind, count: usize) -> Crowd {
        Crowd { again: false, ..Crowd::new(port, &[(kind, count)]) }
    }

    fn join(&mut self, kind: Kind, count: usize) {
        let now = Instant::now();
        for at in 0..count {
            // Spread over one period: no two seconds are alike, and no listener is overrun.
            let turn = now + kind.every().mul_f64(at as f64 / count as f64);
            self.turns.push(Reverse((turn, self.clients.len())));
            let kind = self.kinds.len();
            let (words, parser) = (Vec::new(), ResponseParser::default());
            self.clients.push(Client { kind, socket: None, opened: now, words, said: 0, awaited: 0, parser });
        }
        self.kinds.push((kind, Tally::default()));
    }

    /// Lets everybody act whose time has come, and comes back after `time`.
    pub(super) fn act(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let now = Instant::now();
            match self.turns.peek() {
                Some(Reverse((turn, _))) if *turn <= now => {}
                Some(Reverse((turn, _))) if *turn < end => {
                    thread::sleep(*turn - now);
                    continue;
                }
                _ => return thread::sleep(end.saturating_duration_since(now)),
            }
            if let Some(Reverse((turn, at))) = self.turns.pop()
                && self.turn(at, now)
            {
                let next = turn.max(now - Duration::from_secs(1)) + self.kind(at).every();
                self.turns.push(Reverse((next, at)));
            }
            if now >= end {
                return;
            }
        }
    }

    fn kind(&self, at: usize) -> Kind {
        self.kinds[self.clients[at].kind].0
    }

    /// False: it does not come again.
    fn turn(&mut self, at: usize, now: Instant) -> bool {
        let client = &mut self.clients[at];
        let (kind, tally) = &mut self.kinds[client.kind];
        let Some(socket) = client.socket.take() else {
            let source = Ipv4Addr::new(127, 0, 0, (2 + client.kind * 4 + at / PER_SOURCE) as u8);
            match connect(self.port, source, *kind) {
                Ok(socket) => {
                    *client = Client {
                        socket: Some(socket),
                        opened: now,
                        words: kind.first_words(),
                        said: 0,
                        awaited: if *kind == Kind::Flood { BURST } else { 0 },
                        parser: ResponseParser::default(),
                        kind: client.kind,
                    };
                    tally.opened += 1;
                }
                Err(_) => tally.failed += 1,
            }
            return true;
        };
        let age = now - client.opened;
        if client.exchange(*kind, &socket, &mut self.input, tally) {
            if kind.ends_within().is_some_and(|most| age > most) {
                tally.overdue += 1;
            } else {
                client.socket = Some(socket);
                return true;
            }
        } else {
            tally.ended += 1;
        }
        tally.longest = tally.longest.max(age);
        self.again
    }

    pub(super) fn is_over(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn answers(&self) -> u64 {
        self.kinds.iter().map(|(_, tally)| tally.answers).sum()
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{:38} {:>8} {:>14} {:>9} {:>8} {:>8} {:>13}\n",
            "clients", "opened", "ended by weft", "answers", "overdue", "failed", "longest"
        );
        for (kind, tally) in &self.kinds {
            let Tally { opened, ended, answers, overdue, failed, longest } = tally;
            let longest = format!("{:.1} s", longest.as_secs_f64());
            let _ = writeln!(
                text,
                "{:38} {opened:8} {ended:14} {answers:9} {overdue:8} {failed:8} {longest:>13}",
                kind.about()
            );
        }
        text
    }

    /// What a server must not let happen.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (kind, tally) in &self.kinds {
            if tally.overdue > 0 {
                faults.push(format!("{} not ended in time: {}", tally.overdue, kind.about()));
            }
            if tally.opened == 0 || tally.failed > tally.opened {
                faults.push(format!("{} could not connect: {}", tally.failed, kind.about()));
            }
        }
        faults
    }
}

impl Client {
    /// One step of what the client does. False: the connection is over.
    fn exchange(&mut self, kind: Kind, socket: &OwnedFd, input: &mut [u8], tally: &mut Tally) -> bool {
        let most = if kind == Kind::SlowReader { 100 } else { input.len() };
        loop {
            match net::recv(socket, &mut input[..most], RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok((count, _)) => self.count_answers(kind, &input[..count], tally),
                Err(Errno::AGAIN | Errno::NOTCONN) => break,
                Err(Errno::INTR) => continue,
                Err(_) => return false,
            }
            if kind == Kind::SlowReader {
                break;
            }
        }
        // A reset can be seen before all that came in front of it is read.
        if sockopt::socket_error(socket).is_ok_and(|error| error.is_err()) {
            return false;
        }
        match kind {
            // The head never comes to its end.
            Kind::SlowHead => self.words.push(*b"GET /a".get(self.words.len()).unwrap_or(&b'a')),
            Kind::SlowBody if self.said == self.words.len() => self.words.push(b'x'),
            Kind::Flood if self.awaited == 0 && self.said == self.words.len() => {
                (self.said, self.awaited) = (0, BURST);
            }
            Kind::Vanishing if self.said == self.words.len() => {
                let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
                return false;
            }
            _ => {}
        }
        while self.said < self.words.len() {
            match net::send(socket, &self.words[self.said..], SendFlags::NOSIGNAL) {
                Ok(count) => self.said += count,
                Err(Errno::AGAIN | Errno::NOTCONN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn count_answers(&mut self, kind: Kind, mut bytes: &[u8], tally: &mut Tally) {
        if !matches!(kind, Kind::Flood | Kind::Churn) {
            return;
        }
        while !bytes.is_empty() {
            let Ok((used, answer)) = self.parser.feed(bytes) else { return tally.failed += 1 };
            bytes = &bytes[used..];
            if answer.is_some() {
                tally.answers += 1;
                self.awaited = self.awaited.saturating_sub(1);
            }
        }
    }
}

fn connect(port: u16, source: Ipv4Addr, kind: Kind) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    if kind == Kind::SlowReader {
        // Else the kernel would read for it.
        sockopt::set_socket_recv_buffer_size(&socket, 4096)?;
    }
    net::bind(&socket, &SocketAddrV4::new(source, 0))?;
    match net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}
