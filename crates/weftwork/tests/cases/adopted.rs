//! Tests that connections that other code has accepted are served like those of a listener.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use weftwork::{AcceptedSocket, Address, Server};

use super::CASE;
use super::addresses::Path;
use crate::support::{Client, Site, TIMEOUT, eventually, noise, over_http2, tls};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A listener of the program.
struct Door(TcpListener);

impl Door {
    fn open() -> Door {
        Door(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn address(&self) -> Address {
        Address::Tcp(self.0.local_addr().unwrap())
    }

    fn accept(&self) -> TcpStream {
        self.0.accept().unwrap().0
    }

    fn connect(&self) -> (Client, TcpStream) {
        (Client::connect_to(&self.address()), self.accept())
    }

    fn connect_in_clear(&self) -> (Client, TcpStream) {
        (Client::connect_in_clear(&self.address()), self.accept())
    }
}

fn unbound() -> Server {
    let server = Server::unbound().engine(CASE.engine);
    tls::secure(over_http2::accept(server))
}

#[test]
fn a_tcp_connection_is_served_and_kept() {
    let site = CASE.start();
    let door = Door::open();
    for nonblocking in [false, true] {
        let (mut client, socket) = door.connect();
        socket.set_nonblocking(nonblocking).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        site.running.adopt(socket).unwrap();
        client.get("/bytes/300000").is(200, noise(300_000));
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
        client.answer().is(200, "body");
        client.get("/client").is(200, "127.0.0.1 via 127.0.0.1");
        client.get("/sleep/20").is(200, "slept");
        client.send("GET /close HTTP/1.1\r\nHost: a\r\n\r\n");
        client.answer().is(200, "last");
        client.ends();
    }
    assert_eq!(site.running.stats().accepted, 2);
    site.is_well();
}

#[test]
fn a_unix_connection_is_served_by_a_server_without_addresses() {
    let path = Path::new("adopted");
    let listener = UnixListener::bind(path.path()).unwrap();
    let site = Site::start(unbound());
    assert!(site.running.addresses().is_empty());
    let mut client = Client::connect_to(&Address::Unix(path.path().into()));
    site.running.adopt(listener.accept().unwrap().0).unwrap();
    client.get("/").is(200, "hello");
    client.get("/client").is(200, "nobody via nobody");
    drop(client);
    eventually("the connection ends", || site.running.stats().connections == 0);
}

/// The program has read the first bytes. They are a part of a request, a handshake, or a preface of HTTP/2.
#[test]
fn the_first_bytes_may_have_been_read() {
    const REQUEST: &str = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nthe body";
    let site = CASE.start();
    let door = Door::open();
    for count in 0..=REQUEST.len() {
        let (mut client, mut socket) = door.connect();
        client.send_ahead(REQUEST);
        let mut first = vec![0; count];
        socket.read_exact(&mut first).unwrap();
        site.running.adopt(AcceptedSocket::new(socket).with_bytes_read(first)).unwrap();
        client.answer().is(200, "the body");
        client.get("/").is(200, "hello");
    }
    site.is_well();
}

/// The rest arrives after the server has seen the first bytes. A plain connection needs no handshake at any server.
#[test]
fn the_rest_of_a_plain_request_may_arrive_later() {
    let site = CASE.start();
    let door = Door::open();
    let requests = [GET, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"].concat();
    for cut in 0..=requests.len() {
        let (mut client, socket) = door.connect_in_clear();
        let accepted = site.running.stats().accepted;
        let (first, rest) = requests.as_bytes().split_at(cut);
        site.running.adopt(AcceptedSocket::new(socket).with_bytes_read(first.to_vec()).plain()).unwrap();
        assert_eq!(site.running.stats().accepted, accepted + 1);
        client.send(rest);
        client.answer().is(200, "hello");
        client.answer().is(200, "body");
        client.get("/").is(200, "hello");
    }
}

/// The program has read the whole request, and the end of the client's side.
#[test]
fn a_client_that_has_closed_its_side_gets_its_response() {
    let site = CASE.start();
    let door = Door::open();
    let (mut client, mut socket) = door.connect_in_clear();
    client.send([GET, GET].concat());
    client.half_close();
    let mut requests = Vec::new();
    socket.read_to_end(&mut requests).unwrap();
    site.running.adopt(AcceptedSocket::new(socket).with_bytes_read(requests).plain()).unwrap();
    client.answer().is(200, "hello");
    client.answer().is(200, "hello");
    client.ends();
}

#[test]
fn a_full_server_gives_the_socket_back() {
    let site = CASE.start_with(|s| s.connections_max(2).accepted_max(2));
    let door = Door::open();
    let mut held: Vec<Client> = (0..2)
        .map(|_| {
            let (mut client, socket) = door.connect();
            site.running.adopt(socket).unwrap();
            client.get("/").is(200, "hello");
            client
        })
        .collect();
    let (mut refused, socket) = door.connect_in_clear();
    let error = site.running.adopt(AcceptedSocket::new(socket).with_bytes_read("first")).unwrap_err();
    assert!(error.is_full() && !error.is_stopping(), "{error}");
    assert!(error.to_string().contains("connections_max"), "{error}");
    let (socket, bytes_read) = error.into_socket().into_parts();
    assert_eq!(bytes_read, "first");
    TcpStream::from(socket).write_all(b"sorry").unwrap();
    assert_eq!(refused.exactly(5), b"sorry");
    drop(held.pop());
    let (mut next, socket) = door.connect();
    eventually("a slot is free", || site.running.adopt(socket.try_clone().unwrap()).is_ok());
    next.get("/").is(200, "hello");
}

/// Idle connections make room, as for clients that wait at a listener.
#[test]
fn idle_connections_end_for_one_that_a_full_server_cannot_adopt() {
    let site = CASE.start_with(|s| s.connections_max(1).accepted_max(1));
    let door = Door::open();
    let (mut idle, socket) = door.connect();
    site.running.adopt(socket).unwrap();
    idle.get("/").is(200, "hello");
    let (mut next, socket) = door.connect();
    eventually("the idle connection ends", || site.running.adopt(socket.try_clone().unwrap()).is_ok());
    next.get("/").is(200, "hello");
}

#[test]
fn a_socket_that_is_not_connected_comes_back() {
    let site = CASE.start();
    let door = Door::open();
    let (client, socket) = door.connect_in_clear();
    client.reset();
    // A reset socket has no peer any more, as soon as its error has been read.
    assert!((&socket).read(&mut [0]).is_err());
    let error = site.running.adopt(socket).unwrap_err();
    assert!(!error.is_full() && !error.is_stopping(), "{error}");
    assert!(error.to_string().contains("cannot be used"), "{error}");
    site.is_well();
}

#[test]
fn a_server_that_has_stopped_gives_the_socket_back() {
    let site = CASE.start();
    let adopter = site.running.adopter();
    let _ = site.running.shutdown(TIMEOUT);
    let (mut client, socket) = UnixStream::pair().unwrap();
    let error = adopter.adopt(socket).unwrap_err();
    assert!(error.is_stopping(), "{error}");
    UnixStream::from(error.into_socket().into_parts().0).write_all(b"sorry").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "sorry");
}

/// A request whose first bytes the program has read is finished, as any that has begun.
#[test]
fn a_stop_waits_for_the_rest_of_the_first_request() {
    let site = CASE.start();
    let door = Door::open();
    let (mut client, socket) = door.connect_in_clear();
    let (first, rest) = GET.as_bytes().split_at(9);
    site.running.adopt(AcceptedSocket::new(socket).with_bytes_read(first.to_vec()).plain()).unwrap();
    let adopter = site.running.adopter();
    let running = site.running;
    let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT));
    eventually("the server drains", || {
        let (_, probe) = UnixStream::pair().unwrap();
        adopter.adopt(probe).is_err_and(|error| error.is_stopping())
    });
    client.send(rest);
    let answer = client.answer();
    answer.is(200, "hello");
    assert!(answer.closes(), "{answer:?}");
    client.ends();
    let report = stopping.join().unwrap();
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
}

/// Each connection gets its response, or its socket comes back, whenever the stop begins.
#[test]
fn a_stop_loses_no_connection_that_is_being_adopted() {
    for _ in 0..5 {
        let site = CASE.start();
        let adopter = site.running.adopter();
        let adopting = std::thread::spawn(move || {
            let mut adopted = Vec::new();
            loop {
                let (client, socket) = UnixStream::pair().unwrap();
                client.set_read_timeout(Some(TIMEOUT)).unwrap();
                let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                match adopter.adopt(AcceptedSocket::new(socket).with_bytes_read(request).plain()) {
                    Ok(()) => adopted.push(client),
                    Err(error) if error.is_full() => std::thread::yield_now(),
                    Err(error) => {
                        assert!(error.is_stopping(), "{error}");
                        return adopted.into_iter().for_each(is_served);
                    }
                }
                // The responses are read here, so that descriptors do not run out.
                if adopted.len() == 64 {
                    adopted.drain(..).for_each(is_served);
                }
            }
        });
        eventually("some are served", || site.calls() > 0);
        let report = site.running.shutdown(TIMEOUT);
        assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
        adopting.join().unwrap();
    }
}

fn is_served(mut client: UnixStream) {
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("hello"), "{text:?}");
}
