//! What becomes of them? Clients without threads of their own: each acts when its time comes, and tells what
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

use super::guests::{Guest, Wrong};
use super::kinds::{BURST, Kind};
use crate::load::response::ResponseParser;

/// Below the 28,000 ports that Linux has for one source address by default.
const PER_SOURCE: usize = 20_000;
/// A guest has an answer in this time, or is not well served.
const GUEST_PATIENCE: Duration = Duration::from_secs(15);

/// What became of all clients of a kind.
#[derive(Clone, Debug, Default)]
struct Tally {
    opened: u64,
    /// Ended by the server.
    ended: u64,
    answers: u64,
    /// Not ended in time; or, of guests, left without an answer for too long.
    overdue: u64,
    /// Could not connect; or, of guests, answered wrong.
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
    guest: Option<Guest>,
    /// When it had its last answer, or came.
    served: Instant,
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
            self.clients.push(Client::new(kind, now));
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
                    *client = Client::new(client.kind, now);
                    client.come(*kind, socket);
                    tally.opened += 1;
                }
                Err(_) => tally.failed += 1,
            }
            return true;
        };
        let age = now - client.opened;
        if client.exchange(*kind, &socket, &mut self.input, tally) {
            let is_starved = client.guest.is_some() && now - client.served > GUEST_PATIENCE;
            if is_starved || kind.ends_within().is_some_and(|most| age > most) {
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
            if Guest::of(*kind).is_some() {
                faults.extend(tally.inhospitable(*kind));
                continue;
            }
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

impl Tally {
    /// What a guest must not meet.
    fn inhospitable(&self, kind: Kind) -> Option<String> {
        let Tally { ended, answers, overdue, failed, .. } = *self;
        let is_well = ended == 0 && overdue == 0 && failed == 0 && answers > 0;
        (!is_well).then(|| {
            format!(
                "{}: {answers} answers, {failed} wrong or not connected, {overdue} waited over {GUEST_PATIENCE:?} for \
                 one, {ended} ended by the server",
                kind.about()
            )
        })
    }
}

impl Client {
    /// One that is still to come.
    fn new(kind: usize, now: Instant) -> Client {
        let (words, parser) = (Vec::new(), ResponseParser::default());
        Client {
            kind,
            socket: None,
            opened: now,
            words,
            said: 0,
            awaited: 0,
            parser,
            guest: None,
            served: now,
        }
    }

    fn come(&mut self, kind: Kind, socket: OwnedFd) {
        self.socket = Some(socket);
        self.guest = Guest::of(kind);
        self.words = self.guest.as_ref().map_or_else(|| kind.first_words(), Guest::first_words);
        self.awaited = if kind == Kind::Flood { BURST } else { 0 };
    }

    /// One step of what the client does. False: the connection is over.
    fn exchange(&mut self, kind: Kind, socket: &OwnedFd, input: &mut [u8], tally: &mut Tally) -> bool {
        let most = kind.read_bytes().unwrap_or(input.len());
        loop {
            match net::recv(socket, &mut input[..most], RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok((count, _)) if self.guest.is_some() => {
                    if self.hear(&input[..count], tally).is_err() {
                        return false;
                    }
                }
                Ok((count, _)) => self.count_answers(kind, &input[..count], tally),
                Err(Errno::AGAIN | Errno::NOTCONN) => break,
                Err(Errno::INTR) => continue,
                Err(_) => return false,
            }
            if kind.read_bytes().is_some() {
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
            // So that it hears of its end: it is likely, and was not seen, that a reset is lost at a full receive window.
            Kind::SlowReader if self.said == self.words.len() => self.words.push(b'G'),
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

    /// What a guest hears, and what it says to that.
    fn hear(&mut self, bytes: &[u8], tally: &mut Tally) -> Result<(), Wrong> {
        let Some(guest) = &mut self.guest else { return Ok(()) };
        if self.said == self.words.len() {
            self.words.clear();
            self.said = 0;
        }
        let answers = guest.hear(bytes, &mut self.words).inspect_err(|Wrong| tally.failed += 1)?;
        if answers > 0 {
            self.served = Instant::now();
            tally.answers += answers;
        }
        Ok(())
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
    if let Some(bytes) = kind.read_bytes() {
        // Else the kernel would read for it.
        sockopt::set_socket_recv_buffer_size(&socket, bytes.max(4096))?;
    }
    net::bind(&socket, &SocketAddrV4::new(source, 0))?;
    match net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}
