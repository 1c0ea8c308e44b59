//! Tests of kept connections, and of the requests that are sent on them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::super::Proxy;
use super::idle::IDLE_AGE_MAX;
use crate::TestClient;

/// Returns a proxy that keeps `count` connections, and their other ends.
fn keeping(count: usize) -> (Proxy, TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let conns: Vec<_> =
        (0..count).map(|_| proxy.upstream.acquire(None, Duration::MAX).ok().unwrap().0).collect();
    let ends = conns.iter().map(|_| listener.accept().unwrap().0).collect();
    for conn in conns {
        proxy.upstream.idle_pool().put_back(conn, None);
    }
    (proxy, listener, ends)
}

/// Reads a head, sends `answer`, and ends the connection. If `resets`, it ends by a reset, because a byte is
/// left unread.
fn end_behind(mut stream: TcpStream, answer: &str, resets: bool) -> usize {
    let (mut head, mut byte) = (Vec::new(), [0]);
    let end = if resets { &b"\r\n\r"[..] } else { b"\r\n\r\n" };
    while !head.ends_with(end) && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    // If no request came, the connection has already ended.
    let requests = usize::from(!head.is_empty());
    if requests > 0 {
        stream.write_all(answer.as_bytes()).unwrap();
    }
    requests
}

/// RFC 9110 section 9.2.2: a request that was repeated automatically is not repeated again.
#[test]
fn a_request_is_sent_twice_at_most() {
    for (method, resets) in [("GET", false), ("GET", true), ("DELETE", false), ("PUT", true)] {
        let (proxy, listener, idle) = keeping(5);
        let idle: Vec<_> =
            idle.into_iter().map(|end| thread::spawn(move || end_behind(end, "", resets))).collect();
        let fresh = thread::spawn(move || end_behind(listener.accept().unwrap().0, "", resets));
        let mut client = TestClient::new(proxy);
        assert_eq!(client.request(method.parse().unwrap(), "/").send().status.as_u16(), 502);
        // The unused kept connections end with it.
        drop(client);
        let requests: usize = idle.into_iter().map(|end| end.join().unwrap()).sum();
        assert_eq!((requests, fresh.join().unwrap()), (1, 1), "{method}, resets: {resets}");
    }
}

/// A server that has begun to answer has the request.
#[test]
fn a_request_of_which_something_was_said_is_not_sent_again() {
    for resets in [false, true] {
        let (proxy, listener, mut idle) = keeping(1);
        let end = idle.remove(0);
        let behind = thread::spawn(move || end_behind(end, "HTTP/1.1 20", resets));
        // The server of the repeated request sends nothing.
        let proxy = proxy.response_timeout(Duration::from_secs(3));
        let answer = TestClient::new(proxy).get("/").send();
        assert_eq!((answer.status.as_u16(), behind.join().unwrap()), (502, 1), "resets: {resets}");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "resets: {resets}");
    }
}

/// Newer connections are above them in the stack, and may be the only ones that are used.
#[test]
fn connections_that_are_too_old_are_closed() {
    let closes = |end: &mut TcpStream| {
        end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        matches!(end.read(&mut [0]), Ok(0))
    };
    let is_open = |end: &TcpStream| {
        end.set_nonblocking(true).unwrap();
        end.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    let age = |proxy: &Proxy, ages: &[bool]| {
        let mut idle = proxy.upstream.idle.lock();
        assert_eq!(idle.len(), ages.len());
        for (kept, _) in idle.iter_mut().zip(ages).filter(|(_, is_old)| **is_old) {
            kept.since = kept.since.checked_sub(IDLE_AGE_MAX).unwrap();
        }
    };
    // When a connection is taken.
    let (proxy, _listener, mut ends) = keeping(3);
    age(&proxy, &[true, true, false]);
    let (conn, is_reused) = proxy.upstream.acquire(None, Duration::MAX).ok().unwrap();
    assert!(is_reused && ends[..2].iter_mut().all(closes) && is_open(&ends[2]));
    // When a connection is kept, and takes their place.
    let (mut proxy, _listener, mut ends) = keeping(2);
    proxy.upstream.idle_max = 2;
    age(&proxy, &[true, true]);
    proxy.upstream.idle_pool().put_back(conn, None);
    assert!(ends.iter_mut().all(closes));
    assert_eq!(proxy.upstream.idle.lock().len(), 1);
}

/// Returns a proxy to a name, which resolves as `resolve` says and is looked up for each request.
fn named(resolve: fn(&str) -> io::Result<Vec<SocketAddr>>, first: SocketAddr) -> Proxy {
    let mut proxy = Proxy::to("http://localhost:1").unwrap().lookup_age_max(Duration::ZERO);
    proxy.upstream.addresses.resolve = resolve;
    proxy.upstream.addresses.set(vec![first]);
    proxy
}

fn peer(proxy: &Proxy) -> SocketAddr {
    let (conn, _) = proxy.upstream.acquire(None, Duration::MAX).ok().unwrap();
    let peer = conn.address;
    proxy.upstream.idle_pool().put_back(conn, None);
    peer
}

/// The old server still answers, also on a kept connection.
#[test]
fn a_server_that_has_moved_is_found_while_the_old_one_answers() {
    static NOW_AT: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());
    let servers = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [old, new] = servers.each_ref().map(|server| server.local_addr().unwrap());
    let proxy = named(|_| Ok(NOW_AT.lock().unwrap().clone()), old);
    *NOW_AT.lock().unwrap() = vec![old];
    assert_eq!((peer(&proxy), peer(&proxy)), (old, old));
    *NOW_AT.lock().unwrap() = vec![new];
    assert_eq!((peer(&proxy), peer(&proxy)), (new, new));
    // The address that answered last stays the first one.
    *NOW_AT.lock().unwrap() = vec![old, new];
    assert_eq!((peer(&proxy), proxy.upstream.addresses.known()), (new, vec![new, old]));
}

#[test]
fn a_look_up_that_fails_or_hangs_changes_nothing() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let proxy = named(
        |_| match CALLS.fetch_add(1, Ordering::SeqCst) {
            0 => Err(io::ErrorKind::NotFound.into()),
            _ => loop {
                thread::park();
            },
        },
        address,
    );
    assert_eq!((peer(&proxy), CALLS.load(Ordering::SeqCst)), (address, 1));
    for _ in 0..3 {
        assert_eq!((peer(&proxy), CALLS.load(Ordering::SeqCst)), (address, 2), "it is asked once at a time");
    }
}

/// The default is a minute. A URL with an address needs no look-up.
#[test]
fn a_name_is_not_looked_up_before_its_time() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let young = Proxy::to("http://localhost:1").unwrap();
    assert_eq!(young.upstream.addresses.age_max, Duration::from_secs(60));
    young.upstream.addresses.set(vec![address]);
    let literal = Proxy::to(&format!("http://{address}")).unwrap().lookup_age_max(Duration::ZERO);
    for mut proxy in [young, literal] {
        proxy.upstream.addresses.resolve = |_| panic!("not to be called");
        assert_eq!(peer(&proxy), address);
    }
}
