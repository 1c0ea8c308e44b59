//! Clients that keep their connection, for tests of the engines.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use super::burst::TIMEOUT;

pub(in crate::engine) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Sends a request in one piece, because a loop waits for the rest of a partial head.
pub(in crate::engine) fn ask_on(stream: &mut TcpStream, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
}

/// Sends a request on a kept connection, and checks the response.
#[track_caller]
pub(in crate::engine) fn is_answered_on(stream: &mut TcpStream, path: &str) {
    ask_on(stream, path);
    is_next_answer(stream, path);
}

/// Checks that the next response has this body, and that nothing follows.
#[track_caller]
pub(in crate::engine) fn is_next_answer(stream: &mut TcpStream, body: &str) {
    let mut answer = Vec::new();
    while !answer.ends_with(format!("\r\n\r\n{body}").as_bytes()) {
        let mut part = [0; 512];
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&part[..count]);
    }
}

/// Runs `act` while a client sends requests on this connection without end, and reads the responses.
#[track_caller]
pub(in crate::engine) fn while_asking_without_end(stream: &TcpStream, act: impl FnOnce()) {
    let (mut asks, mut reads) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
    let lot = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500);
    std::thread::scope(|scope| {
        scope.spawn(move || while asks.write_all(&lot).is_ok() {});
        scope.spawn(move || while reads.read(&mut [0; 64 << 10]).is_ok_and(|count| count > 0) {});
        let done = catch_unwind(AssertUnwindSafe(act));
        // The server may have ended the connection.
        let _ = stream.shutdown(Shutdown::Both);
        done.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// Checks that `holds` returns true in at least one of many rounds. The machine may be busy for longer than a
/// connection stays in the shared poller, and for many rounds.
#[track_caller]
pub(in crate::engine) fn in_some_round(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "{what}");
    }
}
