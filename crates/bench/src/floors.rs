//! The least that a server can do: two raw loops that answer with canned bytes. A server that parses, routes and limits cannot be
//! cheaper, so weft is measured against them.

mod epoll;
mod threads;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;

use clap::{Args, ValueEnum};
use rustix::fd::OwnedFd;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::args::count;
use crate::failure::{Failure, Result};
use crate::procs::limits;

/// One of the two loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

/// What a floor does. It reads nothing of this from the requests, to stay cheap.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct FloorArgs {
    #[arg(value_enum)]
    pub(crate) floor: Floor,
    /// Port to listen on
    #[arg(long, value_name = "N")]
    pub(crate) port: u16,
    /// Close the connection after each answer
    #[arg(long)]
    pub(crate) close: bool,
    /// epoll: count heads, and answer all that came with one write. Without it: one answer for each read
    #[arg(long)]
    pub(crate) pipelined: bool,
    /// threads: sleep before the answer to GET /slow..
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub(crate) sleep_us: u64,
    /// epoll: threads that each run a loop, and share the port
    #[arg(long, value_name = "N", default_value = "1", value_parser = count(1, 1024))]
    pub(crate) loops: usize,
    /// Length of the answer, head and body
    #[arg(long, value_name = "N", default_value = "130", value_parser = count(1, 65_536))]
    pub(crate) answer_bytes: usize,
}

/// Runs a floor until it is killed, or until the bench that started it has ended.
pub(crate) fn run(options: &FloorArgs) -> Result<()> {
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
fn loops(options: &FloorArgs, answer: &[u8]) -> Result<()> {
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

fn open(options: &FloorArgs) -> Result<OwnedFd> {
    listen(options).map_err(|error| Failure::step(format!("port {}", options.port), error))
}

/// Backlog of the listener: what weft asks for, so that neither drops a burst of 400 that the other takes.
const BACKLOG: i32 = 4096;
/// Descriptors that are made room for before there are connections: else threads wait for that in the middle of the load.
const DESCRIPTORS: i32 = 16 << 10;

fn listen(options: &FloorArgs) -> rustix::io::Result<OwnedFd> {
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
    // As in weft. If it fails, the table of descriptors grows as usual.
    let _ = rustix::io::fcntl_dupfd_cloexec(&listener, DESCRIPTORS - 1);
    Ok(listener)
}

/// A whole answer of exactly `answer_bytes`: what a client needs to find its end, the rest as body.
fn canned_answer(options: &FloorArgs) -> Result<Vec<u8>> {
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
