//! Tests that a tunnel through a proxy relays both directions, and ends when it must.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weftwork::http::HeaderValue;
use weftwork::{Request, Response, Running, Upgraded};

use super::{CASE, proxy_to_server};
use super::proxy::before;
use crate::support::{tls, Client, Gate, TIMEOUT, eventually, noise};

#[test]
fn an_upgrade_is_a_tunnel() {
    let upstream = CASE.bind("127.0.0.1:0").start(|_: &mut Request| {
        Response::upgrade(HeaderValue::from_static("echo"), |mut line| {
            line.write_all(b"welcome ")?;
            let mut bytes = [0; 1000];
            loop {
                let count = line.read(&mut bytes)?;
                if count == 0 {
                    return line.write_all(b" bye");
                }
                line.write_all(&bytes[..count])?;
            }
        })
    });
    let upstream = upstream.unwrap();
    // The server does not see protocols that are not allowed.
    let strict = before(&upstream, |proxy| proxy);
    let mut client = Client::connect(&strict);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.answer().status, 500);
    let proxy = before(&upstream, |proxy| proxy.allow_upgrade("echo"));
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly ");
    let answer = client.answer_head();
    assert_eq!((answer.status, answer.field("upgrade")), (101, Some("echo")));
    assert_eq!(client.exactly(14), b"welcome early ");
    let sent = noise(1 << 20);
    let aside = client.send_aside(sent.clone());
    assert!(client.exactly(sent.len()) == sent);
    aside.join().unwrap().unwrap();
    client.half_close();
    assert_eq!(client.rest(), b" bye");
    // A client that disconnects without a close leaves no tunnel, and a stopped proxy has no tunnels.
    let mut other = asks_for_echo(&proxy);
    assert_eq!(other.exactly(8), b"welcome ");
    eventually("the first tunnel is forgotten", || proxy.stats().connections == 1);
    let report = proxy.shutdown(Duration::from_millis(50));
    assert_eq!((report.drained, report.cut, report.stuck), (0, 1, 0), "{report}");
    eventually("every upstream connection ends", || upstream.stats().connections == 0);
}

/// Returns a client of a tunnel.
#[track_caller]
fn asks_for_echo(proxy: &Running) -> Client {
    let mut client = Client::connect(proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.answer_head().status, 101);
    client
}

/// The value of the lowered deadlines.
const SHORT: Duration = Duration::from_millis(250);

/// A server whose upgraded connections go to `take`, and a proxy in front of it with this tunnel timeout.
fn impatient(
    silence: Duration,
    take: fn(&Gate, Upgraded) -> std::io::Result<()>,
) -> (Running, Running, Arc<Gate>) {
    let gate = Arc::<Gate>::default();
    let shared = gate.clone();
    let upstream = CASE.bind("127.0.0.1:0").start(move |_: &mut Request| {
        let gate = shared.clone();
        Response::upgrade(HeaderValue::from_static("echo"), move |line| take(&gate, line))
    });
    let upstream = upstream.unwrap();
    let proxy = proxy_to_server(&upstream).allow_upgrade("echo");
    let server = CASE.bind("127.0.0.1:0").settings(|s| s.upgrade_idle_timeout(silence));
    (upstream, server.start(proxy).unwrap(), gate)
}

fn read_all(_: &Gate, mut line: Upgraded) -> std::io::Result<()> {
    std::io::copy(&mut line, &mut std::io::sink()).map(drop)
}

fn hold(gate: &Gate, _line: Upgraded) -> std::io::Result<()> {
    gate.pass();
    Ok(())
}

#[test]
fn a_tunnel_in_which_nothing_moves_ends() {
    let (upstream, proxy, _) = impatient(SHORT, read_all);
    let begun = Instant::now();
    // Over TLS without a close_notify, because neither end has ended it.
    let client = asks_for_echo(&proxy);
    if tls::is_on() { assert_eq!(client.rest(), b"") } else { client.ends() }
    let took = begun.elapsed();
    assert!(took > SHORT / 2 && took < TIMEOUT / 2, "{took:?}");
    eventually("every upstream connection ends", || upstream.stats().connections == 0);
}

/// The client has sent everything, and the server sends nothing.
#[test]
fn an_idle_half_closed_tunnel_ends() {
    let (_upstream, proxy, gate) = impatient(SHORT, hold);
    let client = asks_for_echo(&proxy);
    client.half_close();
    assert_eq!(client.rest(), b"");
    eventually("the tunnel has ended", || proxy.stats().connections == 0);
    gate.open();
}

/// The client has more to send, and the server reads nothing of it.
#[test]
fn a_tunnel_whose_upstream_reads_nothing_ends() {
    let (_upstream, proxy, gate) = impatient(SHORT, hold);
    let aside = asks_for_echo(&proxy).send_aside(vec![0; 64 << 20]);
    eventually("the tunnel has ended", || proxy.stats().connections == 0);
    assert!(aside.join().unwrap().is_err());
    gate.open();
}

#[test]
fn traffic_in_one_direction_keeps_a_tunnel_open() {
    // The pauses are far shorter than the timeout, because a busy machine makes them longer.
    let (_upstream, proxy, _) = impatient(SHORT * 8, |_, mut line| {
        (0..50).try_for_each(|_| {
            std::thread::sleep(SHORT / 5);
            line.write_all(b"x")
        })
    });
    assert_eq!(asks_for_echo(&proxy).exactly(50), [b'x'; 50]);
}

/// The two ends may close in their own way until the drain deadline.
#[test]
fn a_tunnel_outlives_the_start_of_a_drain() {
    let upstream = CASE.bind("127.0.0.1:0").start(|_: &mut Request| {
        Response::upgrade(HeaderValue::from_static("echo"), |line| {
            let (mut reader, mut writer) = line.split();
            std::io::copy(&mut reader, &mut writer).map(drop)
        })
    });
    let upstream = upstream.unwrap();
    let proxy = before(&upstream, |proxy| proxy.allow_upgrade("echo"));
    let mut idle: Vec<Client> = (0..8).map(|_| Client::connect(&proxy)).collect();
    let mut client = asks_for_echo(&proxy);
    eventually("all are accepted", || proxy.stats().accepted == 9);
    let stopping = std::thread::spawn(move || proxy.shutdown(TIMEOUT));
    eventually("the proxy drains", || idle.iter_mut().any(Client::has_ended));
    for word in ["still", "there"] {
        client.send(word);
        assert_eq!(client.exactly(5), word.as_bytes());
    }
    client.half_close();
    client.ends();
    let report = stopping.join().unwrap();
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
}

/// The server reads nothing, and the proxy is stopped at once.
#[test]
fn a_tunnel_whose_upstream_reads_nothing_ends_with_the_proxy() {
    let (_upstream, proxy, gate) = impatient(TIMEOUT, hold);
    let aside = asks_for_echo(&proxy).send_aside(vec![0; 64 << 20]);
    gate.wait_for(1);
    let begun = Instant::now();
    let report = proxy.shutdown(SHORT);
    assert_eq!((report.cut, report.stuck), (1, 0), "{report}");
    assert!(aside.join().unwrap().is_err());
    assert!(begun.elapsed() < TIMEOUT / 2, "{report}");
    gate.open();
}
