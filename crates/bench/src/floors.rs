//! What is the least that a server can do? Two raw loops that answer with canned bytes: nothing that
//! parses, routes or limits can be cheaper, so they are what weft is measured against.

mod epoll;
mod threads;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::failure::{Failure, Result};
use crate::procs::limits;

/// Which of the two loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// One thread, one edge-triggered epoll: the floor of everything that never blocks.
    Epoll,
    /// As many blocking threads as there are connections: the floor of handlers that block.
    Threads,
}

impl Floor {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Floor::Epoll => "epoll",
            Floor::Threads => "threads",
        }
    }
}

/// How a floor behaves; it reads nothing of this from the requests, to stay cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FloorOptions {
    pub(crate) floor: Floor,
    pub(crate) port: u16,
    /// Close after each answer.
    pub(crate) close: bool,
    /// Count heads and answer all that came with one write (epoll only).
    pub(crate) pipelined: bool,
    /// Sleep before the answer to `GET /slow` (threads only).
    pub(crate) sleep: Duration,
    /// Start a thread for each connection instead of keeping them (threads only).
    pub(crate) spawn: bool,
    /// Threads that each run a loop of their own (epoll only).
    pub(crate) loops: usize,
    /// Length of the answer, head and body.
    pub(crate) answer_bytes: usize,
}

/// Runs a floor until it is killed, or until the bench that started it is gone.
pub(crate) fn run(options: &FloorOptions) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    limits::raise_files()?;
    let answer = canned_answer(options)?;
    match options.floor {
        Floor::Epoll => loops(options, &answer),
        Floor::Threads => threads::serve(&open(options)?, options, &answer),
    }
}

/// Loops that share nothing but the port. The first is the process's first thread: with one loop there is no other,
/// and the kernel need not count who uses a descriptor.
fn loops(options: &FloorOptions, answer: &[u8]) -> Result<()> {
    let first = open(options)?;
    let others = (1..options.loops).map(|_| open(options)).collect::<Result<Vec<OwnedFd>>>()?;
    thread::scope(|scope| {
        for listener in &others {
            scope.spawn(move || {
                if let Err(error) = epoll::serve(listener, options, answer) {
                    eprintln!("a loop of the floor ended: {error}");
                }
            });
        }
        Ok(epoll::serve(&first, options, answer)?)
    })
}

fn open(options: &FloorOptions) -> Result<OwnedFd> {
    listen(options).map_err(|error| Failure::step(format!("port {}", options.port), error))
}

/// Backlog of the listener: what weft asks for, so that neither drops a burst of 400 that the other takes.
const BACKLOG: i32 = 4096;
/// Descriptors that are made room for before there are connections: else threads wait for that in the middle of the load.
const DESCRIPTORS: i32 = 16 << 10;

fn listen(options: &FloorOptions) -> rustix::io::Result<OwnedFd> {
    let flags = match options.floor {
        Floor::Epoll => SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Floor::Threads => SocketFlags::CLOEXEC,
    };
    let listener = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    if options.loops > 1 {
        sockopt::set_socket_reuseport(&listener, true)?;
    }
    // Accepted sockets inherit it: no system call for each connection.
    sockopt::set_tcp_nodelay(&listener, true)?;
    net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, options.port))?;
    net::listen(&listener, BACKLOG)?;
    // There is room for them from now on, as in weft. Where not, their table grows as ever.
    let _ = rustix::io::fcntl_dupfd_cloexec(&listener, DESCRIPTORS - 1);
    Ok(listener)
}

/// A whole answer of exactly `answer_bytes`: what a client needs to find its end, the rest as body.
fn canned_answer(options: &FloorOptions) -> Result<Vec<u8>> {
    let close = if options.close { "connection: close\r\n" } else { "" };
    let head = |body: usize| format!("HTTP/1.1 200 OK\r\n{close}content-length: {body}\r\n\r\n");
    // How long the head is depends on the digits of the body's length: take the longest body that fits.
    let body = (0..options.answer_bytes).rev().find(|body| head(*body).len() + body <= options.answer_bytes);
    let Some(body) = body else {
        let least = head(0).len();
        return Err(Failure::Usage(format!("--answer-bytes must be at least {least}")));
    };
    let mut answer = head(body).into_bytes();
    answer.resize(answer.len() + body, b'.');
    Ok(answer)
}

#[cfg(test)]
mod tests;
