//! Tests of what there is only over TLS: handshakes that are slow, fail, or are not TLS. The rest of the matrix runs over
//! TLS too.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::CASE;
use crate::support::{Guarantee, Site, TIMEOUT, eventually, is_logged, keep_log, tls};

const CLIENTS: usize = 500;
/// The value of `standby_kept`.
const STANDBY: usize = 8;
/// Start of a ClientHello of 512 bytes.
const HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

fn raw(site: &Site) -> TcpStream {
    let stream = TcpStream::connect(site.running.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

#[test]
fn a_request_in_clear_is_told_so() {
    if !tls::is_on() {
        return;
    }
    let site = CASE.start();
    let mut stream = raw(&site);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
    site.is_well();
    let stats = site.running.stats();
    assert_eq!((stats.tls_handshakes, stats.tls_handshake_errors), (1, 1));
}

/// No thread waits for a handshake, and each has its deadline however slowly it goes on.
#[test]
fn slow_hellos() {
    if !tls::is_on() {
        return;
    }
    keep_log();
    let costs_no_thread = CASE.guarantees(Guarantee::ClientsCostNoThread);
    let timeout = Duration::from_secs(if costs_no_thread { 2 } else { 1 });
    let site = CASE.start_with(|s| s.tls_handshake_timeout(timeout).threads_max(128));
    site.client().get("/").is(200, "hello");
    let idle = site.running.threads();
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| raw(&site)).collect();
    for byte in HELLO.chunks(1) {
        clients.iter_mut().for_each(|client| drop(client.write_all(byte)));
        if costs_no_thread {
            let begun = Instant::now();
            site.client().get("/").is(200, "hello");
            assert!(begun.elapsed() < timeout, "{:?}", begun.elapsed());
            // A busy machine may keep a leader off its core for so long that it counts as blocked.
            let threads = site.running.threads();
            assert!(threads <= idle + STANDBY, "{threads} threads, {idle} at idle");
        }
    }
    eventually("all of them are ended", || site.running.stats().timeouts >= CLIENTS as u64);
    for mut client in clients {
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    }
    is_logged(&["a TLS handshake failed", &site.setting("tls_handshake_timeout")]);
    site.is_well();
    assert!(site.running.stats().tls_handshake_errors >= CLIENTS as u64);
}

/// A client that says nothing only checks the port.
#[test]
fn a_client_that_says_nothing_is_no_failure() {
    if !tls::is_on() {
        return;
    }
    let site = CASE.start();
    drop(raw(&site));
    let mut begun = raw(&site);
    begun.write_all(HELLO).unwrap();
    eventually("both are accepted", || site.running.stats().accepted == 2);
    drop(begun);
    eventually("both have left", || site.running.stats().connections == 0);
    assert_eq!(site.running.stats().tls_handshake_errors, 1);
    site.is_well();
}

/// The handshake of a client that has begun it is finished, and its request is answered.
#[test]
fn a_stop_does_not_cut_a_handshake() {
    if !tls::is_on() {
        return;
    }
    let site = CASE.start();
    // A connection that is silent ends at once, and is the sign that the server drains.
    let mut silent = raw(&site);
    let mut begun = raw(&site);
    begun.write_all(HELLO).unwrap();
    eventually("both are accepted", || site.running.stats().accepted == 2);
    // The time in which a first request may still be on its way.
    std::thread::sleep(Duration::from_millis(300));
    let running = site.running;
    let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT));
    assert!(matches!(silent.read(&mut [0]), Ok(0) | Err(_)));
    begun.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let kind = begun.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(kind, Err(std::io::ErrorKind::WouldBlock), "it waits for the rest");
    drop(begun);
    let report = stopping.join().unwrap();
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
}
