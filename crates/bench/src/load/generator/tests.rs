//! The generator counts what it gets, and calls each failure by its name.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::net::{self, AddressFamily, SocketType};

use super::*;

const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const GOOD_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
const SHORT: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok";
const TIME: Duration = Duration::from_millis(150);

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Holds a port, and does not listen there.
fn deaf() -> (OwnedFd, u16) {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let port = SocketAddr::try_from(net::getsockname(&socket).unwrap()).unwrap().port();
    (socket, port)
}

/// Answers each request of each connection with the same bytes, and closes after so many.
fn serve(answer: &'static [u8], requests_max: usize) -> u16 {
    serve_counting(answer, requests_max).0
}

/// The same, and how many connections came.
fn serve_counting(answer: &'static [u8], requests_max: usize) -> (u16, Arc<AtomicUsize>) {
    let (listener, port) = listen();
    let came = Arc::new(AtomicUsize::new(0));
    let count = came.clone();
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
            count.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || answer_all(stream));
        }
    });
    (port, came)
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

/// A generator never sleeps: two at once on a small machine starve each other's servers.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn drive(port: u16, depth: u32, close: bool, timeout: Duration) -> Tally {
    let _alone = alone();
    let group = Group { depth, close, ..Group::get("/", 3) };
    let mut generator = Generator::open(port, &[group]).unwrap();
    generator.timeout = timeout;
    generator.drive(TIME).unwrap().remove(0)
}

/// Which of the counts are above zero: good, non-2xx, socket errors, timeouts.
fn check(answer: &'static [u8], requests_max: usize, close: bool, want: [bool; 4]) {
    // Short only where it must pass: on a busy machine a good answer may take its time.
    let timeout = if want[3] { TIME / 3 } else { TIMEOUT };
    let tally = drive(serve(answer, requests_max), 1, close, timeout);
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
    let (_deaf, port) = deaf();
    let tally = drive(port, 1, false, TIMEOUT);
    assert!(tally.socket_errors > 0 && tally.ok == 0, "{tally:?}");
}

#[test]
fn pipelined_requests_are_all_answered() {
    let tally = drive(serve(GOOD, usize::MAX), 16, false, TIMEOUT);
    assert!(tally.ok >= 3 * 16 && tally.errors() == 0, "{tally:?}");
}

/// A connection that was not answered yet is no error.
#[test]
fn connections_may_be_new_in_between() {
    let _alone = alone();
    let (port, came) = serve_counting(GOOD, usize::MAX);
    let mut generator = Generator::open(port, &[Group::get("/", 3)]).unwrap();
    for times in 1..=3 {
        let tally = generator.drive(TIME).unwrap().remove(0);
        assert!(tally.ok > 0 && tally.errors() == 0, "{tally:?}");
        assert_eq!(came.load(Ordering::Relaxed), 3 * times);
        generator.reopen_all();
    }
}

#[test]
fn groups_are_counted_apart() {
    let _alone = alone();
    let good = Group::get("/", 2);
    let none = Group { connections: 0, ..good.clone() };
    let mut generator = Generator::open(serve(GOOD, usize::MAX), &[none, good]).unwrap();
    let tallies = generator.drive(TIME).unwrap();
    assert!(tallies[0].ok == 0 && tallies[1].ok > 0);
    assert!(tallies[1].latency_ms(0.5) > 0.0 && tallies[1].latency_ms(0.99) >= tallies[1].latency_ms(0.5));
}

#[test]
fn a_body_that_is_not_the_expected_one_is_wrong() {
    let _alone = alone();
    let groups = [Group::get("/", 2)];
    let drive = |expected: &[u8]| {
        let mut generator =
            Generator::expecting(serve(GOOD, usize::MAX), &groups, &[expected], false).unwrap();
        let tally = generator.drive(TIME).unwrap().remove(0);
        (tally.ok > 0, tally.wrong > 0)
    };
    assert_eq!(drive(b"ok"), (true, false));
    assert_eq!(drive(b"no"), (false, true));
    assert_eq!(drive(b"okay"), (false, true));
}

#[test]
fn connections_end_after_their_last_lot() {
    let _alone = alone();
    // The server closes after three answers, just when it is told that there will be no more.
    let group = Group { lots_max: 3, ..Group::get("/", 2) };
    let tally = Generator::open(serve(GOOD, 3), &[group]).unwrap().drive(TIME).unwrap().remove(0);
    assert!(tally.ok > 6 && tally.errors() == 0, "{tally:?}");
}

#[test]
fn a_server_that_never_answers_is_late_even_in_a_short_run() {
    let _alone = alone();
    let mut generator = Generator::open(serve(b"", usize::MAX), &[Group::get("/", 2)]).unwrap();
    generator.timeout = TIME * 4;
    assert_eq!(generator.drive(TIME / 4).unwrap()[0].timeouts, 0, "they may only be slow");
    assert_eq!(generator.wait_for_late().unwrap()[0].timeouts, 2);
    assert_eq!(
        generator.wait_for_late().unwrap()[0].elapsed,
        Duration::ZERO,
        "no connection is late any more"
    );
}

/// Its answer comes behind the time in which nothing else is counted.
#[test]
fn a_slow_server_is_not_late() {
    let _alone = alone();
    let (listener, port) = listen();
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        read_request(&stream).unwrap();
        thread::sleep(TIME * 6);
        (&stream).write_all(GOOD).unwrap();
        stream
    });
    let mut generator = Generator::open(port, &[Group::get("/", 1)]).unwrap();
    let tally = generator.drive(TIME).unwrap().remove(0);
    assert_eq!((tally.ok, tally.errors()), (0, 0), "{tally:?}");
    let late = generator.wait_for_late().unwrap().remove(0);
    assert_eq!((late.ok, late.errors()), (1, 0), "{late:?}");
    drop(server.join().unwrap());
}

/// Nothing listens while the connections are opened.
#[test]
fn what_goes_wrong_before_the_time_begins_is_counted() {
    let _alone = alone();
    let (_deaf, port) = deaf();
    let mut generator = Generator::open(port, &[Group::get("/", 3)]).unwrap();
    generator.askings[0].tally.begin();
    let errors = generator.askings[0].tally.take(TIME).errors();
    assert!(errors > 0 && generator.askings[0].tally.errors() == 0, "{errors}");
}

#[test]
fn bodies_are_sent() {
    let group = Group { body_bytes: 20, ..Group::get("/echo", 1) };
    let request = String::from_utf8(group.request(1, false)).unwrap();
    assert!(request.starts_with("POST /echo HTTP/1.1\r\n") && request.contains("Content-Length: 20\r\n"));
    assert!(request.ends_with("\r\n\r\n000000000000000\n0000"), "{request}");
}

#[test]
fn a_paced_load_keeps_its_rate() {
    let _alone = alone();
    let groups = [Group::get("/", 4)];
    let mut generator = Generator::expecting(serve(GOOD, usize::MAX), &groups, &[], true).unwrap();
    let tally = generator.drive_at(200.0, TIME).unwrap();
    assert_eq!((tally.ok + tally.unanswered, tally.errors()), (30, 0), "{tally:?}");
}

#[test]
fn lateness_at_a_paced_load_counts_from_the_due_time() {
    let _alone = alone();
    // No answer ever comes: all but the first four wait for a connection, and their wait counts.
    let groups = [Group::get("/", 4)];
    let mut generator = Generator::expecting(serve(b"", usize::MAX), &groups, &[], true).unwrap();
    let tally = generator.drive_at(100.0, TIME).unwrap();
    assert!(tally.ok == 0 && tally.unanswered == 15, "{tally:?}");
    assert!(tally.latency_ms(1.0) >= 140.0 && tally.latency_ms(0.5) >= 50.0, "{tally:?}");
}
