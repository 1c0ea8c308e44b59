//! One connection of the generator: it sends a lot of requests and reads their answers. In closing groups it waits for the server's end, so
//! that TIME_WAIT lands on the server.

use std::net::SocketAddrV4;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::BorrowedFd;
use rustix::io::{self, Errno};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::ClientConfig;

use super::response::{Answer, ResponseParser};
use super::tally::Tally;
use super::wire::{Input, Tls, Wire};

/// What a group's connections send, and where their counts go.
#[derive(Debug)]
pub(super) struct Asking {
    /// As many requests as are sent at once.
    pub(super) requests: Vec<u8>,
    /// The same, and the connection is to end after them.
    pub(super) last: Vec<u8>,
    pub(super) depth: u32,
    /// Lots after which it is.
    pub(super) lots_max: u32,
    /// Requests are sent when they are due, rather than when the last ones are answered.
    pub(super) paced: bool,
    /// The body of every answer, where it is known.
    pub(super) expected: Option<Rc<[u8]>>,
    pub(super) tls: Option<Tls>,
    pub(super) tally: Tally,
}

impl Asking {
    fn lot(&self, is_last: bool) -> &[u8] {
        if is_last { &self.last } else { &self.requests }
    }
}

/// What a connection wants of the generator after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// All is answered: it may be asked again. Paced groups only.
    Free,
    /// It came to its proper end: open the next one.
    Reopen,
    /// It broke: count that, and open the next one.
    Broken,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) group: usize,
    wire: Option<Wire>,
    /// What this client offers over TLS, and the sessions that it has.
    config: Option<Arc<ClientConfig>>,
    parser: ResponseParser,
    /// Bytes of the requests that are sent.
    sent: usize,
    /// Lots that were asked for, this one too.
    lots: u32,
    /// The connection is to end after this lot.
    is_last: bool,
    /// Answers still to come.
    awaited: u32,
    /// Everything is answered, and the end of the server is awaited.
    ending: bool,
    since: Instant,
}

impl Connection {
    pub(super) fn new(group: usize, now: Instant) -> Self {
        let (wire, config, parser) = (None, None, ResponseParser::default());
        let (is_last, ending, sent, lots, awaited, since) = (false, false, 0, 0, 0, now);
        Connection { group, wire, config, parser, sent, lots, is_last, awaited, ending, since }
    }

    pub(super) fn is_open(&self) -> bool {
        self.wire.is_some()
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn discard(&mut self) {
        self.wire = None;
    }

    /// Waits for an answer, or for the server's end.
    pub(super) fn is_busy(&self) -> bool {
        self.awaited > 0 || self.ending
    }

    /// Connects, sends unless the group is paced, and asks `epoll` for what comes back.
    pub(super) fn open(
        &mut self,
        epoll: BorrowedFd<'_>,
        at: usize,
        to: SocketAddrV4,
        asking: &Asking,
    ) -> io::Result<()> {
        // A client whose connection broke forgets its sessions.
        let (config, is_again) = (self.config.take().filter(|_| self.ending), self.ending);
        *self = Connection::new(self.group, Instant::now());
        self.parser = ResponseParser::expecting(asking.expected.clone());
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        match net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        match asking.tls {
            None => {}
            // It leaves first, and thousands of them would use up the ports.
            Some(Tls::Hello) => sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?,
            Some(tls) => {
                // Else a second flight waits for the server to acknowledge the first one, which it does after 40 ms.
                sockopt::set_tcp_nodelay(&socket, true)?;
                let new = || tls.config().map_err(|_| Errno::PROTO);
                self.config = Some(config.map_or_else(new, Ok)?);
            }
        }
        let must_resume = is_again && matches!(asking.tls, Some(Tls::Resumed(_)));
        let mut wire = Wire::new(socket, self.config.clone(), must_resume)?;
        // On loopback the handshake is mostly over by now: sending before registering saves an event.
        let whole = asking.paced || self.ask(&mut wire, asking, self.since)?;
        let mut flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        // Always, once a send can fall short later: a lot of requests may outgrow the send buffer.
        flags.set(EventFlags::OUT, !whole || !self.is_last || self.config.is_some());
        epoll::add(epoll, &wire, EventData::new_u64(at as u64), flags)?;
        self.wire = Some(wire);
        Ok(())
    }

    /// Sends a lot that was due at `since`, on a connection that is not busy.
    pub(super) fn ask_now(&mut self, asking: &Asking, since: Instant) -> io::Result<()> {
        let Some(mut wire) = self.wire.take() else { return Err(Errno::NOTCONN) };
        let sent = self.ask(&mut wire, asking, since);
        self.wire = Some(wire);
        sent.map(drop)
    }

    /// Sends the next batch. Returns whether all of it was sent.
    fn ask(&mut self, wire: &mut Wire, asking: &Asking, since: Instant) -> io::Result<bool> {
        self.lots += 1;
        self.is_last = self.lots == asking.lots_max;
        self.awaited = asking.depth;
        self.sent = 0;
        self.since = since;
        self.send(wire, asking)
    }

    /// Sends the rest of the requests. Returns whether all of it was sent.
    fn send(&mut self, wire: &mut Wire, asking: &Asking) -> io::Result<bool> {
        let lot = asking.lot(self.is_last);
        while self.sent < lot.len() {
            match wire.send(&lot[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(super) fn event(&mut self, flags: EventFlags, asking: &mut Asking, input: &mut Input) -> Next {
        let Some(mut wire) = self.wire.take() else { return Next::Wait };
        let next = self.exchange(&mut wire, flags, asking, input);
        self.wire = Some(wire);
        next
    }

    fn exchange(
        &mut self,
        wire: &mut Wire,
        flags: EventFlags,
        asking: &mut Asking,
        input: &mut Input,
    ) -> Next {
        let is_sending = self.lots > 0 && self.sent < asking.lot(self.is_last).len();
        if is_sending && self.send(wire, asking).is_err() || wire.flush().is_err() {
            return Next::Broken;
        }
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if !flags.contains(EventFlags::IN) && !ended {
            return Next::Wait;
        }
        loop {
            let received = match wire.receive(input) {
                Ok(received) if received.has_ended => return self.end(asking),
                Ok(received) => received,
                Err(Errno::AGAIN) => return Next::Wait,
                Err(Errno::INTR) => continue,
                Err(_) => return Next::Broken,
            };
            if self.read(received.bytes, asking).is_err() {
                return Next::Broken;
            }
            if self.ending && (ended && received.is_drained || asking.tls == Some(Tls::Hello)) {
                return Next::Reopen;
            }
            if self.awaited == 0 && !self.ending {
                if asking.paced {
                    return Next::Free;
                }
                if self.ask(wire, asking, Instant::now()).is_err() {
                    return Next::Broken;
                }
            }
            // A short read means empty (epoll(7)), except for an end that may stand behind it.
            if received.is_drained && !ended {
                return Next::Wait;
            }
        }
    }

    fn read(&mut self, mut bytes: &[u8], asking: &mut Asking) -> Result<(), ()> {
        let now = Instant::now();
        if asking.tls == Some(Tls::Hello) {
            // A record of the handshake, rather than an alert.
            if bytes.first() != Some(&22) {
                return Err(());
            }
            (self.awaited, self.ending) = (0, true);
            let answer = Answer { status: 200, close: true, right: true };
            asking.tally.answered(answer, now.saturating_duration_since(self.since));
            return Ok(());
        }
        while !bytes.is_empty() {
            let (used, answer) = self.parser.feed(bytes).map_err(drop)?;
            bytes = &bytes[used..];
            let Some(answer) = answer else { continue };
            // More answers than questions are no answers.
            self.awaited = self.awaited.checked_sub(1).ok_or(())?;
            asking.tally.answered(answer, now.saturating_duration_since(self.since));
            self.ending = self.awaited == 0 && (answer.close || self.is_last);
            if answer.close && self.awaited > 0 {
                return Err(());
            }
        }
        Ok(())
    }

    /// The server's end: proper only when nothing more was to come.
    fn end(&mut self, asking: &mut Asking) -> Next {
        if let Some(answer) = self.parser.end() {
            asking.tally.answered(answer, self.since.elapsed());
            self.awaited = self.awaited.saturating_sub(1);
            self.ending = self.awaited == 0;
        }
        if self.ending { Next::Reopen } else { Next::Broken }
    }
}
