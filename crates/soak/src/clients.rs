//! Clients without threads of their own: each acts when its time comes, and its outcome is counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::kinds::{BURST, Kind, Script};
use crate::sessions::{Session, Wrong};
use weftwork_bench::{ResponseParser, table};

/// Below the 28,000 ports that Linux has for one source address by default.
const PER_SOURCE: usize = 20_000;
/// A well-behaved client has an answer in this time, or is not well served.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The outcomes of all clients of a kind.
#[derive(Clone, Debug, Default)]
struct Tally {
    opened: u64,
    /// Ended by the server.
    ended: u64,
    answers: u64,
    /// Not ended in time. Of well-behaved clients: left without an answer for too long.
    overdue: u64,
    /// Could not connect. Of well-behaved clients: answered wrong.
    failed: u64,
    longest: Duration,
}

struct Client {
    kind: usize,
    socket: Option<OwnedFd>,
    opened: Instant,
    bytes_out: Vec<u8>,
    sent: usize,
    awaited: usize,
    parser: ResponseParser,
    session: Option<Session>,
    /// When it had its last answer, or connected.
    served: Instant,
}

/// All clients, each waiting for its turn.
pub(crate) struct Clients {
    port: u16,
    kinds: Vec<(Script, Tally)>,
    clients: Vec<Client>,
    turns: BinaryHeap<Reverse<(Instant, usize)>>,
    input: Vec<u8>,
}

impl Clients {
    pub(crate) fn new(port: u16, scripts: &[Script]) -> Clients {
        let now = Instant::now();
        let mut all = Clients {
            port,
            kinds: scripts.iter().map(|script| (*script, Tally::default())).collect(),
            clients: Vec::new(),
            turns: BinaryHeap::new(),
            input: vec![0; 64 << 10],
        };
        for (kind, script) in scripts.iter().enumerate() {
            for at in 0..script.count {
                // Spread over one period: no two seconds are alike, and no listener is overrun.
                let turn = now + script.every().mul_f64(at as f64 / script.count as f64);
                all.turns.push(Reverse((turn, all.clients.len())));
                all.clients.push(Client::new(kind, now));
            }
        }
        all
    }

    /// Lets each client act whose time has come, and returns after `time`.
    pub(crate) fn act(&mut self, time: Duration) {
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
            if let Some(Reverse((turn, at))) = self.turns.pop() {
                self.turn(at, now);
                let every = self.kinds[self.clients[at].kind].0.every();
                self.turns.push(Reverse((turn.max(now - Duration::from_secs(1)) + every, at)));
            }
            if now >= end {
                return;
            }
        }
    }

    /// Connects a client that is not, or lets it go on.
    fn turn(&mut self, at: usize, now: Instant) {
        let client = &mut self.clients[at];
        let (script, tally) = &mut self.kinds[client.kind];
        let Some(socket) = client.socket.take() else {
            let source = Ipv4Addr::new(127, 0, 0, (2 + client.kind * 4 + at / PER_SOURCE) as u8);
            match connect(self.port, source, script.kind) {
                Ok(socket) => {
                    *client = Client::new(client.kind, now);
                    client.connected(script.kind, socket);
                    tally.opened += 1;
                }
                Err(_) => tally.failed += 1,
            }
            return;
        };
        let age = now - client.opened;
        if client.exchange(script.kind, &socket, &mut self.input, tally) {
            let is_starved = client.session.is_some() && now - client.served > ANSWER_TIMEOUT;
            if !is_starved && script.ends_within().is_none_or(|most| age <= most) {
                client.socket = Some(socket);
                return;
            }
            tally.overdue += 1;
        } else {
            tally.ended += 1;
        }
        tally.longest = tally.longest.max(age);
    }

    pub(crate) fn answers(&self) -> u64 {
        self.kinds.iter().map(|(_, tally)| tally.answers).sum()
    }

    pub(crate) fn table(&self) -> String {
        let head = ["clients", "opened", "ended by weft", "answers", "overdue", "failed", "longest"];
        let rows = self.kinds.iter().map(|(script, tally)| {
            let Tally { opened, ended, answers, overdue, failed, longest } = tally;
            let counts = [opened, ended, answers, overdue, failed].map(u64::to_string);
            let longest = format!("{:.1} s", longest.as_secs_f64());
            [script.about.to_owned()].into_iter().chain(counts).chain([longest])
        });
        table(head.map(str::to_owned).to_vec(), rows)
    }

    /// Returns what a server must not let happen.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (Script { kind, about, .. }, tally) in &self.kinds {
            let Tally { opened, ended, answers, overdue, failed, .. } = *tally;
            if Session::of(*kind).is_some() {
                if ended + overdue + failed > 0 || answers == 0 {
                    faults.push(format!(
                        "{about}: {answers} answers, {failed} wrong or not connected, {overdue} waited over \
                         {ANSWER_TIMEOUT:?} for one, {ended} ended by the server"
                    ));
                }
                continue;
            }
            if overdue > 0 {
                faults.push(format!("{overdue} not ended in time: {about}"));
            }
            if opened == 0 || failed > opened {
                faults.push(format!("{failed} could not connect: {about}"));
            }
        }
        faults
    }
}

impl Client {
    /// Returns a client that is not connected yet.
    fn new(kind: usize, now: Instant) -> Client {
        let (bytes_out, parser) = (Vec::new(), ResponseParser::default());
        Client {
            kind,
            socket: None,
            opened: now,
            bytes_out,
            sent: 0,
            awaited: 0,
            parser,
            session: None,
            served: now,
        }
    }

    fn connected(&mut self, kind: Kind, socket: OwnedFd) {
        self.socket = Some(socket);
        self.session = Session::of(kind);
        self.bytes_out = self.session.as_ref().map_or_else(|| kind.first_bytes(), Session::first_bytes);
        self.awaited = if kind == Kind::Flood { BURST } else { 0 };
    }

    /// Does one step of the client. False: the connection is over.
    fn exchange(&mut self, kind: Kind, socket: &OwnedFd, input: &mut [u8], tally: &mut Tally) -> bool {
        let most = kind.read_bytes().unwrap_or(input.len());
        loop {
            match net::recv(socket, &mut input[..most], RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok((count, _)) if self.session.is_some() => {
                    if self.read(&input[..count], tally).is_err() {
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
            Kind::SlowHead => self.bytes_out.push(*b"GET /a".get(self.bytes_out.len()).unwrap_or(&b'a')),
            Kind::SlowBody if self.sent == self.bytes_out.len() => self.bytes_out.push(b'x'),
            // So that it hears of its end: it is likely, and was not seen, that a reset is lost at a full receive window.
            Kind::SlowReader if self.sent == self.bytes_out.len() => self.bytes_out.push(b'G'),
            Kind::Flood if self.awaited == 0 && self.sent == self.bytes_out.len() => {
                (self.sent, self.awaited) = (0, BURST);
            }
            Kind::Vanishing if self.sent == self.bytes_out.len() => {
                let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
                return false;
            }
            _ => {}
        }
        while self.sent < self.bytes_out.len() {
            match net::send(socket, &self.bytes_out[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN | Errno::NOTCONN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Gives a session what has come, and sends what it says to that.
    fn read(&mut self, bytes: &[u8], tally: &mut Tally) -> Result<(), Wrong> {
        let Some(session) = &mut self.session else { return Ok(()) };
        if self.sent == self.bytes_out.len() {
            self.bytes_out.clear();
            self.sent = 0;
        }
        let answers = session.read(bytes, &mut self.bytes_out).inspect_err(|Wrong| tally.failed += 1)?;
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
