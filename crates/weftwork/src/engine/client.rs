//! For tests of the engines: clients that keep their connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::burst::PATIENCE;

pub(super) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// In one piece: half a head is waited for elsewhere.
pub(super) fn ask_on(stream: &mut TcpStream, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
}

/// Asks, and reads the answer, on a connection that is kept.
#[track_caller]
pub(super) fn is_answered_on(stream: &mut TcpStream, path: &str) {
    ask_on(stream, path);
    is_next_answer(stream, path);
}

/// The body of the next answer is this, and nothing comes behind it.
#[track_caller]
pub(super) fn is_next_answer(stream: &mut TcpStream, body: &str) {
    let mut answer = Vec::new();
    while !answer.ends_with(format!("\r\n\r\n{body}").as_bytes()) {
        let mut part = [0; 512];
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&part[..count]);
    }
}

/// `holds` is true in one of many rounds at least: the machine may be busy for longer than a member stays, and for many rounds.
#[track_caller]
pub(super) fn in_some_round(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
    }
}
