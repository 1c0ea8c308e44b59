//! Tests of the shutdown: requests in flight finish, the report is printed, and the exit code is 0.

use std::time::Duration;

use crate::process::Weft;

pub(crate) const UPLOAD: &[u8] =
    b"POST /echo HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n";

#[test]
fn an_idle_server_ends_at_once() {
    for signal in ["-TERM", "-INT"] {
        let weft = Weft::start("--port 0");
        let mut idle = weft.connect();
        assert_eq!(idle.ask("GET /health").status, 200);
        weft.signal(signal);
        let (code, out, err) = weft.end();
        assert_eq!((code, err.as_str()), (Some(0), ""), "{signal}");
        assert!(out.starts_with("stopped in ") && out.contains(": 1 connections drained, 0 cut"), "{out}");
    }
}

#[test]
fn a_request_in_flight_finishes() {
    let mut weft = Weft::start("--port 0 --body-ahead-bytes-max 0 --log info");
    let mut client = weft.connect();
    client.send(UPLOAD);
    assert_eq!(client.head().0, 200);
    assert_eq!(client.chunk().unwrap(), b"one");
    weft.signal("-TERM");
    weft.wait_for("stopping");
    client.send(b"3\r\ntwo\r\n0\r\n\r\n");
    assert_eq!(client.chunk().unwrap(), b"two");
    assert_eq!(client.chunk(), None);
    let (code, out, _) = weft.end();
    assert_eq!(code, Some(0));
    assert!(out.contains("1 connections drained, 0 cut"), "{out}");
}

#[test]
fn the_drain_has_a_deadline() {
    let weft = Weft::start("--port 0 --body-ahead-bytes-max 0 --drain-timeout 50ms");
    let mut client = weft.connect();
    client.send(UPLOAD);
    assert_eq!(client.head().0, 200);
    weft.signal("-TERM");
    let (code, out, _) = weft.end();
    assert_eq!(code, Some(0));
    assert!(out.contains("0 connections drained, 1 cut"), "{out}");
}

/// A load balancer keeps its delay, although requests get no time after it.
#[test]
fn a_delay_is_kept_where_requests_are_cut_at_its_end() {
    let mut weft = Weft::start("--port 0 --log info --drain-delay 1h --drain-timeout 0s");
    weft.signal("-TERM");
    weft.wait_for("stopping");
    assert_eq!(weft.connect().ask("GET /health").status, 200);
}

/// The request waits in the socket for longer than the timeout of its client.
#[test]
fn what_comes_to_a_process_that_is_stopped_is_answered() {
    let check = |engine| {
        let weft = Weft::start(&format!("--port 0 --engine {engine} --idle-timeout 3s --head-timeout 3s"));
        let mut clients = [weft.connect(), weft.connect()];
        assert_eq!(clients[0].ask("GET /health").status, 200);
        weft.signal("-STOP");
        clients.iter_mut().for_each(|client| client.send(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"));
        std::thread::sleep(Duration::from_millis(3100));
        weft.signal("-CONT");
        clients.iter_mut().for_each(|client| assert_eq!(client.answer(false).status, 200, "{engine}"));
    };
    std::thread::scope(|scope| {
        for engine in ["adaptive", "reactor", "workers", "pool", "fibers"] {
            std::thread::Builder::new()
                .name(engine.into())
                .spawn_scoped(scope, move || check(engine))
                .unwrap();
        }
    });
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut weft = Weft::start("--port 0 --body-ahead-bytes-max 0 --log info --drain-timeout 1h");
    let mut client = weft.connect();
    client.send(UPLOAD);
    assert_eq!(client.head().0, 200);
    assert_eq!(client.chunk().unwrap(), b"one");
    weft.signal("-TERM");
    weft.wait_for("stopping");
    // A second signal within half a second counts as the first one.
    std::thread::sleep(Duration::from_millis(1500));
    weft.signal("-TERM");
    let (code, out, _) = weft.end();
    assert_eq!(code, Some(0));
    assert!(out.contains("0 connections drained, 1 cut"), "{out}");
}

/// `timeout` sends its signal twice: to its child, and to the process group of the child.
#[test]
fn a_signal_that_comes_twice_is_one() {
    let mut weft = Weft::start("--port 0 --body-ahead-bytes-max 0 --log info");
    let mut client = weft.connect();
    client.send(UPLOAD);
    assert_eq!((client.head().0, client.chunk().unwrap()), (200, b"one".to_vec()));
    weft.signal("-TERM");
    weft.signal("-TERM");
    weft.wait_for("stopping");
    client.send(b"0\r\n\r\n");
    assert_eq!(client.chunk(), None);
    let (_, out, _) = weft.end();
    assert!(out.contains("1 connections drained, 0 cut"), "{out}");
}
