//! The thread of a shared connection: reads its frames, and sends what the socket did not take at once.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::super::from_now;
use super::super::stream::UpstreamStream;
use super::conn::SharedConn;
use crate::transport::log_queue::log_line;
use crate::transport::thread_memory;

const READ_BYTES: usize = 16 << 10;

/// Starts the driver. `input` has arrived before.
pub(super) fn start(conn: &Arc<SharedConn>, input: Vec<u8>) -> io::Result<()> {
    let own = conn.clone();
    let thread = thread_memory::spawn("weft-upstream", move || run(&own, input));
    let started = thread.map(drop);
    started.inspect_err(|error| log_line!(Error, "cannot start a thread for a connection of HTTP/2: {error}"))
}

fn run(conn: &SharedConn, mut input: Vec<u8>) {
    let result = drive(conn, &mut input);
    let mut state = conn.lock();
    if result.is_ok() {
        // GOAWAY.
        conn.flush(&mut state);
    }
    state.end_all();
    drop(state);
    // The server may have closed already.
    let _ = conn.stream.shutdown(Shutdown::Both, from_now(Duration::ZERO));
}

/// Returns when the connection has ended in order.
fn drive(conn: &SharedConn, input: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let (wants_write, ends_at) = {
            let mut state = conn.lock();
            if state.is_over {
                return Ok(());
            }
            let ends_at = state.ends_at();
            if ends_at.is_some_and(|at| at <= Instant::now()) {
                state.end_idle();
                return Ok(());
            }
            (state.wants_write, ends_at)
        };
        let readiness = wait(conn, wants_write, ends_at)?;
        conn.driver.clear();
        if readiness.intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR) && wants_write {
            let mut state = conn.lock();
            conn.flush(&mut state);
            // Request bodies wait until there is space.
            state.wake_all();
        }
        if readiness.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            receive(conn, input)?;
        }
    }
}

/// Waits for the socket, for a request that wakes the driver, or until `until`.
fn wait(conn: &SharedConn, wants_write: bool, until: Option<Instant>) -> io::Result<PollFlags> {
    let events = if wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut fds = [PollFd::new(&conn.stream, events), PollFd::new(&conn.driver, PollFlags::IN)];
    // A millisecond more, because poll(2) may round.
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left + Duration::from_millis(1)).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => Ok(fds[0].revents()),
        Err(Errno::INTR) => Ok(PollFlags::empty()),
        Err(error) => Err(error.into()),
    }
}

/// Reads all that has arrived.
fn receive(conn: &SharedConn, input: &mut Vec<u8>) -> io::Result<()> {
    loop {
        match read(&conn.stream, input) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => conn.receive(input).map_err(|fault| {
                log_line!(Warn, "connection of HTTP/2 to {}: {fault}", conn.address);
                io::Error::other(fault)
            })?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Reads once, without a wait. Appends to `input`.
pub(super) fn read(stream: &UpstreamStream, input: &mut Vec<u8>) -> io::Result<usize> {
    let held = input.len();
    input.resize(held + READ_BYTES, 0);
    let read = loop {
        match stream.read(&mut input[held..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read,
        }
    };
    input.truncate(held + *read.as_ref().unwrap_or(&0));
    read
}
