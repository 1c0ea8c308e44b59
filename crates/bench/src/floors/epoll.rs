//! The least that a request costs on one thread: one epoll, one receive and one send a request, no parsing, no timers, no allocation once
//! a connection stands. Edge-triggered. Level-triggered measured the same within the noise.

use memchr::memmem;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{self, Errno};
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

use super::FloorArgs;

const LISTENER: u64 = u64::MAX;
const EVENTS_MAX: usize = 512;
const READ_BYTES: usize = 16 * 1024;
/// Answers that one send may carry.
const BATCH: usize = 64;

pub(super) fn serve(listener: &OwnedFd, options: &FloorArgs, answer: &[u8]) -> io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut floor = EpollFloor {
        epoll,
        listener,
        close: options.close,
        pipelined: options.pipelined,
        answer_bytes: answer.len(),
        answers: answer.repeat(BATCH),
        connections: Vec::new(),
        free: Vec::new(),
        input: vec![0; READ_BYTES],
    };
    floor.run()
}

struct Connection {
    socket: OwnedFd,
    /// Bytes of `\r\n\r\n` that the last read ended with.
    matched: u8,
}

struct EpollFloor<'a> {
    epoll: OwnedFd,
    listener: &'a OwnedFd,
    close: bool,
    pipelined: bool,
    answer_bytes: usize,
    answers: Vec<u8>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    input: Vec<u8>,
}

impl EpollFloor<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept_all(),
                    at => self.answer(at as usize, event.flags),
                }
            }
        }
    }

    fn accept_all(&mut self) {
        while let Ok(socket) = net::accept_with(self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            // The request of a connection made for it is mostly there already: one receive then saves the
            // registration and a wait (measured 7 % of the CPU of a short connection).
            if self.close && self.answer_at_once(&socket) {
                continue;
            }
            self.register(socket);
        }
    }

    /// Whether the connection is over with.
    fn answer_at_once(&mut self, socket: &OwnedFd) -> bool {
        match net::recv(socket, &mut self.input[..], RecvFlags::empty()) {
            Ok((0, _)) => true,
            Ok(_) => {
                // The end leaves with it.
                let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
                let _ = net::send(socket, &self.answers[..self.answer_bytes], flags);
                true
            }
            Err(error) => error != Errno::AGAIN,
        }
    }

    fn register(&mut self, socket: OwnedFd) {
        let at = self.free.pop().unwrap_or(self.connections.len());
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        if epoll::add(&self.epoll, &socket, EventData::new_u64(at as u64), flags).is_err() {
            self.free.push(at);
            return;
        }
        let connection = Some(Connection { socket, matched: 0 });
        match self.connections.get_mut(at) {
            Some(slot) => *slot = connection,
            None => self.connections.push(connection),
        }
    }

    fn answer(&mut self, at: usize, flags: EventFlags) {
        let Some(Some(connection)) = self.connections.get_mut(at) else { return };
        let mut keep =
            !self.close && !flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        loop {
            let received = match net::recv(&connection.socket, &mut self.input[..], RecvFlags::empty()) {
                Ok((0, _)) => {
                    keep = false;
                    break;
                }
                Ok((received, _)) => received,
                Err(error) => {
                    keep &= error == Errno::AGAIN;
                    break;
                }
            };
            let heads = match self.pipelined {
                true => count_heads(&self.input[..received], &mut connection.matched),
                false => 1,
            };
            if !send_answers(&connection.socket, &self.answers, self.answer_bytes, heads) {
                keep = false;
                break;
            }
            // A short read on a stream socket means empty: epoll(7) allows to skip the read that says so.
            if received < READ_BYTES {
                break;
            }
        }
        if !keep {
            self.connections[at] = None;
            self.free.push(at);
        }
    }
}

/// A client that does not take what it asked for is dropped, and counts it as an error.
fn send_answers(socket: &OwnedFd, answers: &[u8], answer_bytes: usize, mut heads: usize) -> bool {
    while heads > 0 {
        let batch = heads.min(BATCH);
        let bytes = &answers[..batch * answer_bytes];
        if net::send(socket, bytes, SendFlags::NOSIGNAL) != Ok(bytes.len()) {
            return false;
        }
        heads -= batch;
    }
    true
}

/// Counts the heads that end in `input`. `matched` holds the state of an end that is split between two reads.
fn count_heads(input: &[u8], matched: &mut u8) -> usize {
    const END: &[u8] = b"\r\n\r\n";
    let mut rest = input;
    let mut heads = 0;
    while *matched > 0 {
        let Some((&byte, tail)) = rest.split_first() else { return heads };
        if byte != END[usize::from(*matched)] {
            *matched = 0;
            break;
        }
        rest = tail;
        *matched += 1;
        if usize::from(*matched) == END.len() {
            *matched = 0;
            heads += 1;
        }
    }
    let mut after = 0;
    for at in memmem::find_iter(rest, END) {
        heads += 1;
        after = at + END.len();
    }
    let tail = &rest[after..];
    *matched = (1..END.len()).rev().find(|&n| tail.ends_with(&END[..n])).unwrap_or(0) as u8;
    heads
}

#[cfg(test)]
mod tests;
