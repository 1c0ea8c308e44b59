//! Tests that every phase has the documented deadline, and that only the peer's own time counts.

use std::time::Duration;

use super::*;

const HEAD: u64 = 10_000;
const RATE_GRACE: u64 = 10_000;
pub(super) const BODY_IDLE: u64 = 30_000;
const WRITE: u64 = 30_000;
const IDLE: u64 = 75_000;
const DRAIN: u64 = 500;
const LINGER: u64 = 2_000;

#[test]
fn a_new_connection_has_the_time_of_a_head() {
    let mut bed = Bed::new();
    bed.drive();
    assert_eq!(bed.due(), HEAD);
    assert_eq!(bed.expire(), Step::Close);
    assert_eq!(bed.got(), "", "who said nothing gets no answer");
}

#[test]
fn a_head_sent_byte_by_byte_does_not_move_its_deadline() {
    let mut bed = Bed::new();
    for left in (1..=9).rev() {
        bed.now.0 += 1000;
        bed.send("G");
        assert_eq!(bed.drive(), Step::Read);
        assert_eq!(bed.due(), left * 1000);
    }
    assert_eq!(bed.expire(), Step::Read, "408, then whatever the peer still sends");
    assert!(bed.got().starts_with("HTTP/1.1 408 "));
}

/// The wait for the next request is long. From its first byte on, the time of a head applies.
#[test]
fn idle_until_the_first_byte_of_the_next_head() {
    let mut bed = Bed::new();
    bed.send(GET);
    bed.now.0 = 5000;
    bed.drive();
    assert_eq!(bed.due(), IDLE);
    bed.now.0 += 60_000;
    bed.send("G");
    bed.drive();
    assert_eq!(bed.due(), HEAD);
    bed.now.0 += 1000;
    bed.send("E");
    bed.drive();
    assert_eq!(bed.due(), HEAD - 1000);
}

#[test]
fn an_idle_connection_ends_silently() {
    let mut bed = Bed::new();
    bed.send(GET);
    bed.drive();
    bed.got();
    assert_eq!(bed.expire(), Step::Close);
    assert_eq!(bed.got(), "");
}

/// Each byte of a body restarts the pause, and no byte restarts the minimum rate.
#[test]
fn a_body_may_pause_but_must_keep_the_least_rate() {
    let mut bed = Bed::new();
    bed.send(post("/echo", 60_000));
    bed.drive();
    assert_eq!(bed.due(), RATE_GRACE, "nothing in ten seconds is less than the least rate");
    bed.now.0 = 9000;
    bed.send(vec![b'x'; 50_000]);
    bed.drive();
    assert_eq!(bed.due(), BODY_IDLE, "paid for 100 s: the pause counts");
    for _ in 0..2 {
        bed.now.0 += 29_999;
        bed.send("x");
        bed.drive();
        assert_eq!(bed.due(), BODY_IDLE);
    }
    bed.now.0 += 29_999;
    bed.send("x");
    bed.drive();
    assert_eq!(bed.now.0 + bed.due(), 50_003 * 2, "500 bytes for each second since the body began");
    bed.expire();
    assert!(bed.got().starts_with("HTTP/1.1 408 "));
}

#[test]
fn a_response_has_its_own_time() {
    let mut bed = Bed::new();
    bed.now.0 = 9000;
    bed.send(get("/large"));
    assert_eq!(bed.drive(), Step::Write);
    assert_eq!(bed.due(), WRITE);
    bed.now.0 += 20_000;
    assert!(!bed.got().is_empty());
    assert_eq!(bed.drive(), Step::Write);
    assert_eq!(bed.due(), WRITE, "the peer got on");
    bed.now.0 += 20_000;
    assert_eq!(bed.drive(), Step::Write);
    assert_eq!(bed.due(), WRITE - 20_000, "the peer took nothing");
    assert_eq!(bed.expire(), Step::Close);
}

/// A poller reports space only when much of the socket's buffer is free, and a slow peer may need long for that.
#[test]
fn a_peer_that_reads_a_response_slowly_keeps_its_connection() {
    let mut bed = Bed::new();
    bed.send(get("/large"));
    assert_eq!(bed.drive(), Step::Write);
    for _ in 0..3 {
        bed.take(50_000);
        assert_eq!(bed.expire(), Step::Write);
        assert_eq!(bed.due(), WRITE);
    }
    assert_eq!(bed.cx.stats().timeouts, 0);
    assert_eq!(bed.expire(), Step::Close);
    assert_eq!(bed.cx.stats().timeouts, 1);
}

/// The next request has the time that every request has.
#[test]
fn a_peer_that_takes_the_rest_of_a_response_at_the_last_moment_is_in_time() {
    let mut bed = Bed::new();
    bed.send(get("/medium").repeat(40));
    assert_eq!(bed.drive(), Step::Write);
    let mut turn = || {
        bed.got();
        bed.expire()
    };
    let after = std::iter::repeat_with(&mut turn).find(|step| *step != Step::Write);
    assert_eq!(after, Some(Step::Read));
    assert_eq!(bed.due(), IDLE);
}

/// The deadline does not move if the peer is slower than the minimum rate.
#[test]
fn a_peer_below_the_least_rate_is_disconnected() {
    let mut bed = Bed::with(Settings::default().rate_bytes_min(1 << 40));
    bed.send(get("/large"));
    assert_eq!(bed.drive(), Step::Write);
    bed.take(50_000);
    assert_eq!(bed.expire(), Step::Close);
}

/// The responses to all requests of a read leave together. After the peer has read them, its time is that of the next
/// request.
#[test]
fn the_time_of_a_response_ends_when_all_is_taken() {
    let mut bed = Bed::new();
    bed.send(get("/medium").repeat(40));
    assert_eq!(bed.drive(), Step::Write);
    bed.now.0 += 1000;
    while bed.drive() == Step::Write {
        assert!(!bed.got().is_empty());
    }
    assert_eq!(bed.due(), IDLE);
}

/// The server's own time does not count against the peer. A handler may take longer than any deadline.
#[test]
fn the_time_of_a_call_does_not_count_against_the_peer() {
    let mut bed = Bed::new();
    bed.call_takes = 100_000;
    bed.send(GET);
    assert_eq!(bed.drive(), Step::Read);
    assert_eq!(bed.due(), IDLE);
    bed.send(get("/large"));
    assert_eq!(bed.drive(), Step::Write);
    assert_eq!(bed.due(), WRITE);
}

/// The clock of a loop stands still during a cycle, even if a handler delays the loop.
#[test]
fn a_call_that_blocks_its_loop_does_not_count_against_the_peer() {
    let mut bed = Bed::new();
    bed.call_takes = 100_000;
    bed.send(GET);
    bed.conn.fill(bed.now, &mut bed.pool).unwrap();
    assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    let turn = bed.now;
    bed.call();
    let after = std::mem::replace(&mut bed.now, turn);
    assert_eq!(bed.go_on(), Step::Read);
    bed.now = after;
    assert_eq!(bed.due(), IDLE);
}

/// While the peer reads everything, it is not late, whatever time its request had. Only a TCP socket accepts enough at
/// once.
#[test]
fn a_fast_reader_of_a_late_response_is_not_disconnected() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let ours = listener.accept().unwrap().0;
    let mut bed = Bed::over(OwnedFd::from(ours).into(), OwnedFd::from(peer).into(), Settings::default());
    bed.call_takes = HEAD + 1;
    bed.send(get("/large"));
    assert_eq!(bed.drive(), Step::Write);
    assert_eq!(bed.due(), WRITE);
}

#[test]
fn an_unread_body_has_half_a_second() {
    let mut bed = Bed::with(Settings::default().body_ahead_bytes_max(10));
    bed.send(post("/ignored", 1000) + "0123456789");
    assert_eq!(bed.drive(), Step::Read);
    assert_eq!(bed.due(), DRAIN);
    bed.now.0 += 400;
    bed.send("0123456789");
    bed.drive();
    assert_eq!(bed.due(), DRAIN - 400, "a dribble does not move it");
    assert_eq!(bed.expire(), Step::Read);
    assert_eq!(bed.due(), LINGER);
    assert_eq!(bed.expire(), Step::Close);
}

/// Events without progress must not move the deadline of a response. Otherwise a peer that sends a byte now and then
/// could leave it unread forever.
#[test]
fn slow_input_does_not_extend_the_time_of_an_unread_response() {
    let whole = get("/medium");
    let samples = [
        ("G".to_owned(), whole[1..].to_owned()),
        (post("/medium", 10), "0123456789".to_owned()),
        (post("/medium", 10) + "0", "123456789".to_owned()),
    ];
    for (begin, rest) in samples {
        let mut bed = Bed::with(Settings::default().body_ahead_bytes_max(1));
        bed.send(&begin);
        while bed.drive() == Step::Read {
            bed.send(rest.clone() + &begin);
        }
        assert_eq!(bed.due(), WRITE);
        for left in (1..=5).rev() {
            bed.now.0 += 5000;
            bed.send("x");
            assert_eq!(bed.drive(), Step::Write);
            assert_eq!(bed.due(), left * 5000, "moved behind {begin:?}");
        }
    }
}

#[test]
fn settings_are_applied() {
    let short = Duration::from_millis(7);
    let mut bed = Bed::with(Settings::default().idle_timeout(short));
    bed.send(GET);
    bed.drive();
    assert_eq!(bed.due(), 7);
    let mut bed = Bed::with(Settings::default().write_timeout(short));
    bed.send(get("/large"));
    bed.drive();
    assert_eq!(bed.due(), 7);
    let mut bed = Bed::with(Settings::default().body_idle_timeout(short));
    bed.send(post("/echo", 1));
    bed.drive();
    assert_eq!(bed.due(), 7);
    let mut bed = Bed::with(Settings::default().rate_grace(short));
    bed.send(post("/echo", 1));
    bed.drive();
    assert_eq!(bed.due(), 7);
}

/// If a head has more time than the grace, the rate decides.
#[test]
fn a_long_head_must_keep_the_least_rate() {
    let long = Settings::default().head_timeout(Duration::from_secs(40)).rate_bytes_min(10);
    let mut bed = Bed::with(long.clone());
    bed.send("G");
    bed.drive();
    assert_eq!(bed.due(), RATE_GRACE);
    bed.now.0 = 9_999;
    bed.send("x".repeat(100));
    bed.drive();
    assert_eq!(bed.now.0 + bed.due(), 10_100, "101 bytes are paid for ten seconds and a bit");
    bed.now.0 += 100;
    bed.send("x".repeat(300));
    bed.drive();
    assert_eq!(bed.now.0 + bed.due(), 40_000, "all of them for 40.1 s, which is more than a head has");
    let mut bed = Bed::with(long.rate_bytes_min(0));
    bed.send("G");
    bed.drive();
    assert_eq!(bed.due(), 40_000, "no rate");
}
