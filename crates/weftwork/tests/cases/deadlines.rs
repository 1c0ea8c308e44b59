//! Tests that every deadline ends what it limits: not early, and not much late.

use std::time::{Duration, Instant};


use super::CASE;
use crate::support::{Client, TIMEOUT, Site, eventually, is_logged, keep_log};

/// The value of the lowered deadlines. Timers may be about 130 ms late, and later on a busy machine.
const SHORT: Duration = Duration::from_millis(250);

/// The clock of the server starts a moment after the test's clock, never before. It counts whole milliseconds.
#[track_caller]
fn was_in_time(begun: Instant) {
    let took = begun.elapsed();
    assert!(took + Duration::from_millis(2) >= SHORT, "too early: {took:?}");
    assert!(took < TIMEOUT / 2, "too late: {took:?}");
}

#[track_caller]
fn is_408(site: &Site, sent: &[u8], setting: &str) {
    let begun = Instant::now();
    let mut client = site.client();
    let client_name = client.name();
    client.send(sent);
    let answer = client.answer();
    was_in_time(begun);
    assert!(answer.status == 408 && answer.closes_over_http1(), "{answer:?}");
    assert!(!answer.text().contains(setting), "{answer:?}");
    is_logged(&[&client_name, &site.setting(setting)]);
    client.ends_over_http1();
    eventually("it is counted", || site.running.stats().timeouts == 1);
    assert_eq!(site.calls(), 0);
    site.is_well();
}

#[test]
fn half_a_head_gets_408() {
    keep_log();
    is_408(&CASE.start_with(|s| s.head_timeout(SHORT)), b"GET / HTTP/1.1\r\nHo", "head_timeout");
}

#[test]
fn half_a_body_gets_408() {
    keep_log();
    let site = CASE.start_with(|s| s.body_idle_timeout(SHORT));
    is_408(&site, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1234", "body_idle_timeout");
    let site = CASE.start_with(|s| s.body_idle_timeout(SHORT));
    is_408(
        &site,
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n1234",
        "body_idle_timeout",
    );
}

/// The handler waits for the body and gets the error. Its answer is 408.
#[test]
fn half_a_large_body_gets_408_from_the_handler() {
    let site = CASE.start_with(|s| s.body_idle_timeout(SHORT));
    let begun = Instant::now();
    let mut client = site.client();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    let answer = client.answer();
    was_in_time(begun);
    assert!(answer.status == 408 && answer.closes_over_http1(), "{answer:?}");
    assert!(answer.text().contains("arrived too slowly"), "{answer:?}");
    client.ends_over_http1();
    assert_eq!(site.running.stats().timeouts, 1);
    site.is_well();
}

/// Sends `begin`, then ten bytes each hundredth of a second for a while, then `end`. Returns the status of the
/// answer and the time until it arrived.
fn send_slowly(least: u64, ahead: u64, begin: &str, end: &str) -> (u16, Duration) {
    let site = CASE.start_with(|s| {
        let s = s.rate_grace(SHORT).rate_bytes_min(least);
        s.head_timeout(TIMEOUT * 3).body_idle_timeout(TIMEOUT * 3).body_ahead_bytes_max(ahead)
    });
    let begun = Instant::now();
    let mut client = site.client();
    client.send(begin);
    for _ in 0..50 {
        let _ = client.try_send("xxxxxxxxxx");
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = client.try_send(end);
    let answer = client.answer();
    let is_told = ["did not arrive in time", "arrived too slowly"].iter().any(|why| answer.text().contains(why));
    assert!(answer.status == 200 || is_told, "{answer:?}");
    (answer.status, begun.elapsed())
}

/// Tests a rate below the minimum, after the grace period: in a head, in a body that the server reads ahead,
/// and in a body that a handler reads. Above the minimum rate only the other deadlines limit the time.
#[test]
fn a_body_below_the_least_rate_gets_408_and_one_above_does_not() {
    let body = "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 600\r\n\r\n";
    let tail = &"x".repeat(100);
    for (ahead, begin, end) in [
        (1_000, "GET / HTTP/1.1\r\nHost: a\r\nX: ", "\r\n\r\n"),
        (1_000, body, tail),
        (1, body, tail),
    ] {
        let (status, took) = send_slowly(100, ahead, begin, end);
        assert!(status == 200 && took >= SHORT * 2, "{status} after {took:?}: {begin}");
        let (status, took) = send_slowly(100_000, ahead, begin, end);
        assert!(status == 408 && took + Duration::from_millis(2) >= SHORT, "{status} after {took:?}: {begin}");
    }
}

/// The result does not depend on how the kernel splits the request into segments.
#[test]
fn what_comes_with_the_head_counts_for_the_average_of_a_body() {
    let begin = "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 7510\r\n\r\n";
    for ahead in [1, 100_000] {
        let (status, _) = send_slowly(2_000, ahead, &(begin.to_owned() + &"x".repeat(7_000)), "xxxxxxxxxx");
        assert_eq!(status, 200, "{ahead} read ahead");
    }
}

/// The connection ends, and so does the rest of the request.
#[test]
fn a_handler_whose_small_body_does_not_arrive_answers_408_and_close() {
    let site = CASE.start_with(|s| s.body_idle_timeout(SHORT));
    let mut client = site.client();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer_head().status, 100);
    let answer = client.answer();
    assert!(answer.status == 408 && answer.closes_over_http1(), "{answer:?}");
    client.ends_over_http1();
}

const PAUSE: Duration = Duration::from_secs(1);

/// Reads a large answer slowly. Returns how long the client was served, at most `most`.
fn takes(least: u64, most: Duration) -> Duration {
    let site = CASE.start_with(|s| s.write_timeout(PAUSE).rate_bytes_min(least));
    let begun = Instant::now();
    let mut client = site.client();
    client.send("GET /bytes/50000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.answer_head();
    // A client that is given up is reset at once, or after it has read all bytes that had arrived.
    while begun.elapsed() < most && site.running.stats().connections > 0 && client.takes(64 << 10) {
        // The whole response would take 15 s.
        std::thread::sleep(Duration::from_millis(20));
    }
    begun.elapsed()
}

/// The client reads all the time. The kernel reports its socket as writable only when much space is free, and
/// until then more than `PAUSE` passes.
#[test]
fn a_client_that_takes_a_response_slowly_gets_all_of_it() {
    const BYTES: usize = 16 << 20;
    let site = CASE.start_with(|s| s.write_timeout(PAUSE));
    for path in ["bytes", "stream"] {
        let mut client = site.client();
        client.read_hand_to_mouth();
        client.send(format!("GET /{path}/{BYTES} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        client.answer_head();
        for _ in 0..20 {
            client.exactly(32 << 10);
            std::thread::sleep(PAUSE / 10);
        }
        let rest = client.rest().len() + 20 * (32 << 10);
        assert!(rest >= BYTES, "{rest} bytes of {path}");
    }
}

/// A response that advances below the minimum rate is given up when a pause of that length would be.
#[test]
fn a_response_that_is_read_too_slowly_is_ended() {
    assert!(takes(1_000, PAUSE * 3 / 2) >= PAUSE * 3 / 2);
    let took = takes(1_000_000_000, PAUSE * 8);
    assert!((PAUSE - Duration::from_millis(2)..PAUSE * 8).contains(&took), "{took:?}");
}

/// Sends a byte now and then, which moves no deadline.
#[track_caller]
fn send_byte_by_byte(client: &mut Client, pause: Duration, begun: Instant, is_over: impl Fn() -> bool) {
    while !is_over() {
        assert!(begun.elapsed() < TIMEOUT / 2, "dribbled on for {:?}", begun.elapsed());
        // The server may already have closed.
        let _ = client.try_send("x");
        std::thread::sleep(pause);
    }
    was_in_time(begun);
}

/// Threads that wait for one client wait for 5 ms at a time, and loops for whole milliseconds. A byte in each
/// interval must not count as a wait without delay.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

#[test]
fn a_head_sent_byte_by_byte_gets_408() {
    for pause in PAUSES {
        let site = CASE.start_with(|s| s.head_timeout(SHORT));
        let begun = Instant::now();
        let mut client = site.client();
        client.send("GET / HTTP/1.1\r\nX: ");
        send_byte_by_byte(&mut client, pause, begun, || site.running.stats().timeouts == 1);
        assert_eq!(client.answer().status, 408);
    }
}

/// The thread that the previous call blocked may be waiting for the next one.
#[test]
fn a_head_sent_byte_by_byte_after_a_blocking_call_gets_408() {
    for pause in PAUSES {
        let site = CASE.start_with(|s| s.head_timeout(SHORT));
        let mut client = site.client();
        client.get("/sleep/30").is(200, "slept");
        let begun = Instant::now();
        client.send("GET / HTTP/1.1\r\nX: ");
        send_byte_by_byte(&mut client, pause, begun, || site.running.stats().timeouts == 1);
        assert_eq!(client.answer().status, 408);
    }
}

#[test]
fn the_rest_of_a_body_sent_byte_by_byte_is_not_waited_for() {
    for pause in PAUSES {
        keep_log();
        let ahead = 10;
        let site = CASE.start_with(|s| s.unread_timeout(SHORT).linger_timeout(SHORT).body_ahead_bytes_max(ahead));
        let mut client = site.client();
        let client_name = client.name();
        let begun = Instant::now();
        client.send("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n0123456789");
        client.answer().is(200, "not read");
        send_byte_by_byte(&mut client, pause, begun, || site.running.stats().connections == 0);
        is_logged(&[&client_name, "an unread body", &site.setting("unread_timeout")]);
        site.is_well();
    }
}

#[test]
fn input_sent_byte_by_byte_after_a_refusal_is_read_for_a_bounded_time() {
    for pause in PAUSES {
        let site = CASE.start_with(|s| s.linger_timeout(SHORT));
        let mut client = site.client();
        let begun = Instant::now();
        client.send("bad\r\n\r\n");
        assert_eq!(client.answer().status, 400);
        send_byte_by_byte(&mut client, pause, begun, || site.running.stats().connections == 0);
        site.is_well();
    }
}

#[test]
fn a_silent_connection_ends_without_an_answer() {
    keep_log();
    let site = CASE.start_with(|s| s.head_timeout(SHORT));
    let begun = Instant::now();
    let client = site.client();
    let client_name = client.name();
    client.ends();
    was_in_time(begun);
    is_logged(&[&client_name, "no request arrived", &site.setting("head_timeout")]);
    eventually("it is counted", || site.running.stats().timeouts == 1);
}

/// Also if blocking calls make a connection wait on another thread.
#[test]
fn an_idle_connection_ends_without_an_answer() {
    let site = CASE.start_with(|s| s.idle_timeout(SHORT));
    for path in ["/", "/sleep/5"] {
        let mut client = site.client();
        (0..3).for_each(|_| assert_eq!(client.get(path).status, 200));
        let begun = Instant::now();
        assert_eq!(client.get(path).status, 200);
        client.ends();
        was_in_time(begun);
    }
    site.is_well();
}

/// Each request restarts the wait for the next one. The timeout is longer here, because the test must send
/// within it.
#[test]
fn a_connection_in_use_is_not_idle() {
    let longer = SHORT * 4;
    let site = CASE.start_with(|s| s.idle_timeout(longer).head_timeout(longer));
    let mut client = site.client();
    let begun = Instant::now();
    while begun.elapsed() < longer * 3 {
        client.get("/").is(200, "hello");
        std::thread::sleep(SHORT / 25);
    }
}

/// The client's deadline stops while our code runs: a handler may take longer than any deadline of the client.
/// The deadlines are longer here, because the test must send within them.
#[test]
fn the_time_of_the_handler_does_not_count_against_the_client() {
    let longer = SHORT * 2;
    let site = CASE.start_with(|s| {
        let s = s.head_timeout(longer).body_idle_timeout(longer);
        s.idle_timeout(longer).write_timeout(longer)
    });
    let mut client = site.client();
    let large = crate::support::noise(5_000_000);
    client.get("/sleep/700").is(200, "slept");
    client.get("/bytes/5000000").is(200, large);
}

#[track_caller]
fn ends_unread(path: &str) {
    keep_log();
    let site = CASE.start_with(|s| s.write_timeout(SHORT));
    let begun = Instant::now();
    let mut client = site.client();
    let client_name = client.name();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client.wait_for_bytes();
    eventually("the connection ends", || site.running.stats().connections == 0);
    was_in_time(begun);
    is_logged(&[&client_name, "the client stopped reading its response", &site.setting("write_timeout")]);
    assert_eq!(site.running.stats().timeouts, 1);
    assert!(client.rest().len() < 50_000_000);
    site.is_well();
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    ends_unread("/bytes/50000000");
    ends_unread("/stream/50000000");
}

/// Returns true if the server's socket still exists, in the process or only in the kernel.
#[cfg(target_os = "linux")]
fn is_kept(site: &Site, client: &Client) -> bool {
    let port = |name: &str| u16::from_str_radix(name.rsplit(':').next().unwrap(), 16).unwrap();
    let ends = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        (port(fields.next().unwrap()), port(fields.next().unwrap()))
    };
    let number = |name: String| name.rsplit(':').next().unwrap().parse().unwrap();
    let wanted: (u16, u16) = (number(site.running.addresses()[0].to_string()), number(client.name()));
    std::fs::read_to_string("/proc/net/tcp").unwrap().lines().skip(1).any(|line| ends(line) == wanted)
}

/// The client's kernel acknowledges segments, and the client reads nothing. Without a deadline in the kernel,
/// the kernel would keep megabytes forever, and no limit counts them.
#[test]
#[cfg(target_os = "linux")]
fn unread_output_is_not_kept_by_the_kernel() {
    let site = CASE.start_with(|s| s.write_timeout(SHORT).idle_timeout(SHORT).linger_timeout(SHORT));
    let many = |last: &str| {
        let request = "GET /bytes/10000 HTTP/1.1\r\nHost: a\r\n";
        [request, "\r\n"].concat().repeat(100) + request + last + "\r\n"
    };
    let large = "GET /bytes/50000000 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    for request in [large, many(""), many("Connection: close\r\n")] {
        let mut client = site.client();
        client.read_hand_to_mouth();
        client.send(request);
        client.wait_for_bytes();
        assert!(is_kept(&site, &client));
        eventually("the kernel has given it up", || !is_kept(&site, &client));
        eventually("so have we", || site.running.stats().connections == 0);
    }
    site.is_well();
}
