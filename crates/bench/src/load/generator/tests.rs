//! Does the generator count what it gets, and call each failure by its name?

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;

const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const GOOD_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
const SHORT: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok";
const TIME: Duration = Duration::from_millis(150);

/// Answers each request of each connection with the same bytes, and closes after so many.
fn serve(answer: &'static [u8], requests_max: usize) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer_all = move |stream: TcpStream| {
        for _ in 0..requests_max {
            if read_request(&stream).is_err() || (&stream).write_all(answer).is_err() {
                return;
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || answer_all(stream));
        }
    });
    port
}

fn read_request(mut stream: &TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(())
}

fn drive(port: u16, depth: u32, close: bool) -> Tally {
    let group = Group { path: "/", connections: 3, depth, close };
    let mut generator = Generator::open(port, &[group]).unwrap();
    generator.timeout = TIME / 3;
    generator.drive(TIME).unwrap().remove(0)
}

/// Which of the counts are above zero: good, non-2xx, socket errors, timeouts.
fn check(answer: &'static [u8], requests_max: usize, close: bool, want: [bool; 4]) {
    let tally = drive(serve(answer, requests_max), 1, close);
    let got = [tally.ok, tally.non_2xx, tally.socket_errors, tally.timeouts].map(|count| count > 0);
    assert_eq!(got, want, "{tally:?}");
}

#[test]
fn each_outcome_is_counted_as_what_it_is() {
    check(GOOD, usize::MAX, false, [true, false, false, false]);
    check(GOOD, 1, true, [true, false, false, false]);
    check(GOOD_CLOSE, 1, false, [true, false, false, false]);
    check(BUSY, usize::MAX, false, [false, true, false, false]);
    check(b"", 1, false, [false, false, true, false]);
    check(SHORT, 1, false, [false, false, true, false]);
    check(b"SSH-2.0\r\n", 1, false, [false, false, true, false]);
    check(b"", usize::MAX, false, [false, false, false, true]);
    // Closing is the server's part: one that keeps a connection open that was to be closed is late.
    check(GOOD, usize::MAX, true, [true, false, false, true]);
}

#[test]
fn an_unexpected_end_is_an_error_though_the_answers_were_good() {
    check(GOOD, 2, false, [true, false, true, false]);
}

#[test]
fn refused_connections_are_errors() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let tally = drive(port, 1, false);
    assert!(tally.socket_errors > 0 && tally.ok == 0, "{tally:?}");
}

#[test]
fn pipelined_requests_are_all_answered() {
    let tally = drive(serve(GOOD, usize::MAX), 16, false);
    assert!(tally.ok >= 3 * 16 && tally.errors() == 0, "{tally:?}");
}

#[test]
fn groups_are_counted_apart() {
    let good = Group { path: "/", connections: 2, depth: 1, close: false };
    let none = Group { connections: 0, ..good.clone() };
    let mut generator = Generator::open(serve(GOOD, usize::MAX), &[none, good]).unwrap();
    let tallies = generator.drive(TIME).unwrap();
    assert!(tallies[0].ok == 0 && tallies[1].ok > 0);
    assert!(tallies[1].latency_ms(0.5) > 0.0 && tallies[1].latency_ms(0.99) >= tallies[1].latency_ms(0.5));
}
