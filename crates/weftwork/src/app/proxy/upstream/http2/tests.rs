//! Tests of connections without requests.

use std::thread;
use std::time::{Duration, Instant};

use weftwork_wire::Limits;

use super::super::conn::wait_readable;
use super::conn::IDLE_AGE_MAX;
use crate::app::proxy::Proxy;
use crate::app::proxy::upstream::UpstreamConn;
use crate::{Request, Running, Server};

fn start() -> (Running, Proxy) {
    let server = Server::bind("127.0.0.1:0").unwrap().settings(|settings| settings.http2_cleartext(true));
    let server = server.start(|_: &mut Request| "hello").unwrap();
    let proxy = Proxy::to(&format!("h2c://{}", server.local_addr().unwrap())).unwrap();
    (server, proxy)
}

/// Takes a place. Returns whether the connection was there before.
fn acquire(proxy: &Proxy) -> (UpstreamConn, bool) {
    proxy.upstream.acquire_http2(&Limits::default(), Duration::MAX).ok().unwrap().unwrap()
}

fn eventually(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_connection_without_requests_ends_after_a_time() {
    let (server, proxy) = start();
    assert!(!acquire(&proxy).1);
    let (place, is_reused) = acquire(&proxy);
    assert!(is_reused);
    let conn = proxy.upstream.http2.lock().conns[0].clone();
    let age = || {
        let mut state = conn.lock();
        state.idle_since = state.idle_since.checked_sub(IDLE_AGE_MAX).unwrap();
        drop(state);
        conn.driver.wake();
    };
    age();
    // The driver has looked when it has taken the signal.
    eventually(|| wait_readable(&conn.driver, Instant::now()).is_err());
    assert!(conn.is_open(), "a place is taken");
    drop(place);
    age();
    eventually(|| !conn.is_open() && server.stats().connections == 0);
    assert!(!acquire(&proxy).1, "another one is made");
}

#[test]
fn idle_connections_above_the_limit_end() {
    let (server, proxy) = start();
    let proxy = proxy.idle_connections_max(1);
    // Each of them is full.
    let places: Vec<_> = (0..250).map(|_| acquire(&proxy).0).collect();
    assert_eq!(server.stats().accepted, 3);
    drop(places);
    drop(acquire(&proxy));
    eventually(|| server.stats().connections == 1);
    drop(proxy);
    eventually(|| server.stats().connections == 0);
}
