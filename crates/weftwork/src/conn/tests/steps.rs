//! Tests of what a connection asks for, what it holds meanwhile, and how its bytes leave.

use super::*;

#[test]
fn an_idle_connection_holds_no_buffers() {
    let mut bed = Bed::new();
    assert_eq!(bed.drive(), Step::Read);
    assert!(bed.conn.buffers.is_none() && bed.conn.is_idle());
    for _ in 0..3 {
        bed.send(GET);
        assert_eq!(bed.drive(), Step::Read);
        assert!(bed.conn.buffers.is_none() && bed.conn.is_idle());
    }
    bed.send("G");
    bed.drive();
    assert!(bed.conn.buffers.is_some() && !bed.conn.is_idle(), "half a head is kept");
}

/// An empty line after a body, which some clients send (RFC 9112 section 2.2), begins no request that could be late.
#[test]
fn a_connection_is_idle_after_an_empty_line() {
    let mut bed = Bed::new();
    for line in ["\r", "\r\n"] {
        bed.send(post("/echo", 4) + "body" + line);
        assert_eq!(bed.drive(), Step::Read);
        assert!(bed.conn.is_idle() && bed.due() == 75_000, "{line:?}, due in {} ms", bed.due());
        bed.send(&format!("\r\n{GET}")[line.len()..]);
        assert_eq!(bed.drive(), Step::Read);
        assert_eq!(bed.got().matches("HTTP/1.1 200").count(), 2);
    }
    bed.send(post("/echo", 4) + "body\r\n");
    bed.drive();
    bed.got();
    assert_eq!((bed.expire(), bed.got()), (Step::Close, String::new()));
    let mut fresh = Bed::new();
    fresh.send("\r\n");
    fresh.drive();
    assert_eq!((fresh.expire(), fresh.got()), (Step::Close, String::new()), "it has not begun to ask");
}

/// A socket that preserves message boundaries shows the number of writes.
#[test]
fn answers_to_all_requests_of_one_read_leave_with_one_write() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let (ours, peer) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let mut bed = Bed::over(ours.into(), peer.into(), Settings::default());
    bed.send(get("/").repeat(5) + &post("/echo", 4) + "body" + "GET /half HT");
    assert_eq!(bed.drive(), Step::Read);
    let mut first = [0; 8192];
    let count = bed.peer.read(&mut first).unwrap();
    let text = String::from_utf8_lossy(&first[..count]);
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 6, "{text}");
    assert_eq!(bed.got(), "", "a second write");
    assert_eq!(bed.calls, 6);
}

/// The next request waits while much is unsent, so that a peer that does not read cannot use more memory.
#[test]
fn a_peer_that_does_not_read_is_not_read_from() {
    let mut bed = Bed::new();
    bed.peer.set_nonblocking(false).unwrap();
    let requests = get("/medium").repeat(100);
    let mut peer = bed.peer.try_clone().unwrap();
    let sent = std::thread::spawn(move || peer.write_all(requests.as_bytes()).unwrap());
    sent.join().unwrap();
    assert_eq!(bed.drive(), Step::Write);
    assert!(bed.calls < 100, "{} calls", bed.calls);
    assert!(bed.conn.unsent() <= OUTPUT_BYTES_MAX + (16 << 10), "{} unsent", bed.conn.unsent());
    bed.peer.set_nonblocking(true).unwrap();
    let mut answers = 0;
    while answers < 100 {
        answers += bed.got().matches("HTTP/1.1 200").count();
        bed.drive();
    }
    assert_eq!((bed.calls, answers), (100, 100));
}

#[test]
fn every_cut_of_a_request_gives_the_same_answer() {
    let stream = post("/echo", 4) + "body" + GET;
    for cut in 1..stream.len() {
        let mut bed = Bed::new();
        bed.send(&stream[..cut]);
        bed.drive();
        bed.send(&stream[cut..]);
        assert_eq!(bed.drive(), Step::Read);
        let got = bed.got();
        assert!(got.contains("\r\n\r\nbody") && got.ends_with("\r\n\r\nhello"), "cut at {cut}: {got}");
        assert_eq!(bed.calls, 2, "cut at {cut}");
    }
}

/// Asking again without doing anything gives the same answer.
#[test]
fn repeated_steps_give_the_same_result() {
    let mut bed = Bed::new();
    for _ in 0..3 {
        assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Read);
    }
    bed.send(GET);
    bed.conn.fill(bed.now, &mut bed.pool).unwrap();
    for _ in 0..3 {
        assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    }
    bed.call();
    for _ in 0..3 {
        assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Write);
    }
}

/// If a loop read more of a body ahead than necessary, it would hold that for every slow client.
#[test]
fn a_body_is_read_ahead_up_to_its_limit() {
    let mut bed = Bed::with(Settings::default().body_ahead_bytes_max(1000));
    bed.send(post("/ignored", 100_000));
    bed.send(vec![b'x'; 999]);
    assert_eq!(bed.drive(), Step::Read);
    assert_eq!(bed.calls, 0);
    bed.send("x");
    bed.drive();
    assert_eq!(bed.calls, 1);
}

/// Small chunks are mostly framing, which needs memory too.
#[test]
fn what_is_read_ahead_is_counted_with_its_framing() {
    let mut bed = Bed::with(Settings::default().body_ahead_bytes_max(1000));
    bed.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    bed.send("1\r\nx\r\n".repeat(160));
    bed.drive();
    assert_eq!(bed.calls, 0, "960 bytes");
    bed.send("1\r\nx\r\n".repeat(7));
    bed.drive();
    assert_eq!(bed.calls, 1, "1002 bytes");
}

#[test]
fn the_bytes_of_a_file_that_are_in_memory_are_sent_from_there() {
    let mut bed = Bed::new();
    for method in ["HEAD", "GET", "HEAD"] {
        bed.send(format!("{method} /kept HTTP/1.1\r\nHost: a\r\n\r\n"));
        bed.call_next();
        assert_eq!(bed.conn.holds_body(), method == "GET", "a long body leaves at once");
        assert_eq!(bed.go_on(), Step::Read);
        let got = bed.got();
        let (head, body) = got.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Content-Length: 20480"), "{head}");
        assert_eq!(body.len(), if method == "GET" { 20 << 10 } else { 0 });
        assert!(body.bytes().all(|byte| byte == b'k'));
    }
}
