//! Tests that CONNECT opens other protocols on streams (RFC 8441), and that they end as TCP connections do.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weftwork::http::HeaderValue;
use weftwork::{Feed, FeedLimits, FeedSender, Request, Response, Running, UpgradeHandler, Upgraded};
use weftwork_wire::{ErrorCode, Http2Settings};

use super::CASE;
use crate::support::{Http2Client, TIMEOUT, Tunnel, eventually, noise};

/// A server of other protocols, and what their handlers have seen.
struct Protocols {
    server: Running,
    ended: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    /// Bytes that a handler could write.
    taken: Arc<AtomicUsize>,
}

/// Sends back what it reads, without a thread.
struct FedEcho(FeedSender, Arc<AtomicUsize>);

impl UpgradeHandler for FedEcho {
    fn on_data(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match bytes {
            b"fail" => return Err(std::io::Error::other("as asked")),
            b"close" => self.0.close(),
            bytes => drop(self.0.send(bytes.to_vec())),
        }
        Ok(bytes.len())
    }
}

impl Drop for FedEcho {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

fn echo(mut line: Upgraded) -> std::io::Result<()> {
    let mut bytes = [0; 10_000];
    loop {
        match line.read(&mut bytes)? {
            0 => return Ok(()),
            count => line.write_all(&bytes[..count])?,
        }
    }
}

fn start() -> Protocols {
    start_with(|settings| settings)
}

fn start_with(change: impl FnOnce(weftwork::Settings) -> weftwork::Settings) -> Protocols {
    let (ended, failed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let taken = Arc::<AtomicUsize>::default();
    let (own_ended, own_failed, own_taken) = (ended.clone(), failed.clone(), taken.clone());
    let name = HeaderValue::from_static("echo");
    let server = CASE.bind(change).start(move |req: &mut Request| {
        let (ended, failed) = (own_ended.clone(), own_failed.clone());
        let counted = move |take: fn(Upgraded) -> std::io::Result<()>| {
            move |line: Upgraded| {
                let result = take(line);
                let counter = if result.is_ok() { ended } else { failed };
                counter.fetch_add(1, Ordering::SeqCst);
                result
            }
        };
        match req.path() {
            "/echo" => {
                assert_eq!((req.method().as_str(), req.header("upgrade")), ("GET", Some("echo")));
                Response::upgrade(name.clone(), counted(echo))
            }
            // Goes on after the client has ended its side.
            "/bye" => Response::upgrade(name.clone(), counted(|mut line| {
                std::io::copy(&mut line, &mut std::io::sink())?;
                line.write_all(b"bye")
            })),
            // Ends its side first.
            "/first" => Response::upgrade(name.clone(), counted(|line| {
                let (mut reader, mut writer) = line.split();
                writer.write_all(b"first")?;
                writer.shutdown();
                assert!(writer.write_all(b"more").is_err());
                let mut rest = String::new();
                reader.read_to_string(&mut rest)?;
                assert_eq!(rest, "last");
                Ok(())
            })),
            "/cut" => Response::upgrade(name.clone(), counted(|line| {
                let (mut reader, mut writer) = line.split();
                writer.write_all(b"not all of this arrives")?;
                writer.cut();
                assert!(reader.read(&mut [0; 1]).is_err() && writer.write(b"x").is_err());
                Ok(())
            })),
            "/flood" => {
                let (taken, failures) = (own_taken.clone(), own_failed.clone());
                Response::upgrade(name.clone(), move |mut line| {
                    let failed = loop {
                        match line.write(&[b'x'; 1 << 20]) {
                            Ok(count) => taken.fetch_add(count, Ordering::SeqCst),
                            Err(error) => break error,
                        };
                    };
                    failures.fetch_add(1, Ordering::SeqCst);
                    Err(failed)
                })
            }
            "/fed" => {
                let (sender, feed) = Feed::new(FeedLimits::default());
                Response::upgrade_fed(name.clone(), feed, FedEcho(sender, own_ended.clone()))
            }
            // The target of CONNECT has no path.
            "" if req.target() == "tunnel:1" => {
                Response::tunnel(counted(echo))
            }
            "/fed-later" => {
                let (sender, feed) = Feed::new(FeedLimits::default());
                let fed = Response::upgrade_fed(name.clone(), feed, FedEcho(sender, own_ended.clone()));
                let (sender, response) = Response::later(TIMEOUT, "too late");
                std::thread::spawn(move || sender.send(fed));
                response
            }
            "/later" => Response::text("later").with_delay(Duration::from_millis(1)),
            _ => Response::text("hello"),
        }
    });
    Protocols { server: server.expect("the server starts"), ended, failed, taken }
}

impl Protocols {
    fn connect(&self) -> Rc<RefCell<Http2Client>> {
        Rc::new(RefCell::new(Http2Client::connect(&self.server)))
    }

    #[track_caller]
    fn is_well(&self) {
        eventually("every connection ends", || self.server.stats().connections == 0);
    }
}

#[track_caller]
fn open(client: &Rc<RefCell<Http2Client>>, path: &str) -> Tunnel {
    let stream = client.borrow_mut().connect_protocol("echo", path, &[], false);
    let head = client.borrow_mut().head(stream);
    assert_eq!((head.status, head.field("content-length")), (200, None), "{head:?}");
    Tunnel::new(client, stream)
}

#[track_caller]
fn exactly(tunnel: &mut Tunnel, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    tunnel.read_exact(&mut bytes).expect("bytes of a tunnel");
    bytes
}

#[test]
fn bytes_pass_both_ways() {
    let protocols = start();
    let client = protocols.connect();
    let mut tunnels: Vec<_> = ["/echo", "/fed", "/echo", "/fed"].map(|path| open(&client, path)).into();
    for round in 0..10_u8 {
        for tunnel in &mut tunnels {
            tunnel.write_all(&[round; 3]).unwrap();
            assert_eq!(exactly(tunnel, 3), [round; 3]);
        }
    }
    // Longer than every window.
    let sent = noise(300_000);
    for tunnel in &mut tunnels {
        for part in sent.chunks(30_000) {
            tunnel.write_all(part).unwrap();
            assert!(exactly(tunnel, part.len()) == part);
        }
    }
    let hello = client.borrow_mut().get("/");
    client.borrow_mut().answer(hello).is(200, "hello");
    for tunnel in &mut tunnels {
        tunnel.end();
        tunnel.ends();
    }
    eventually("every handler returns", || protocols.ended.load(Ordering::SeqCst) == 4);
    drop((tunnels, client));
    protocols.is_well();
}

/// Bytes before the response are bytes of the protocol.
#[test]
fn early_bytes_are_not_lost() {
    let protocols = start();
    let client = protocols.connect();
    for path in ["/echo", "/fed"] {
        let stream = client.borrow_mut().connect_protocol("echo", path, &[], false);
        client.borrow_mut().send_data(stream, b"early", false);
        let mut tunnel = Tunnel::new(&client, stream);
        assert_eq!(exactly(&mut tunnel, 5), b"early");
    }
}

#[test]
fn each_side_ends_by_itself() {
    let protocols = start();
    let client = protocols.connect();
    let mut bye = open(&client, "/bye");
    bye.write_all(b"some").unwrap();
    bye.end();
    assert_eq!(exactly(&mut bye, 3), b"bye");
    bye.ends();
    let mut first = open(&client, "/first");
    assert_eq!(exactly(&mut first, 5), b"first");
    first.ends();
    client.borrow_mut().ping();
    assert_eq!(client.borrow().reset_of(first.stream), None, "the client's side is open");
    first.write_all(b"last").unwrap();
    first.end();
    eventually("both handlers return", || protocols.ended.load(Ordering::SeqCst) == 2);
    // No side is open at all.
    let stream = client.borrow_mut().connect_protocol("echo", "/echo", &[], true);
    client.borrow_mut().answer(stream).is(200, "");
    client.borrow_mut().ping();
    for stream in [bye.stream, first.stream, stream] {
        assert_eq!(client.borrow().reset_of(stream), None);
    }
}

/// The feed of a protocol without a thread was closed.
#[test]
fn a_feed_ends_its_protocol() {
    let protocols = start_with(|settings| settings.linger_timeout(Duration::from_millis(50)));
    let client = protocols.connect();
    let mut fed = open(&client, "/fed");
    fed.write_all(b"close").unwrap();
    fed.ends();
    fed.end();
    eventually("its receiver is dropped", || protocols.ended.load(Ordering::SeqCst) == 1);
    // A client that does not end its side is not waited for.
    let mut fed = open(&client, "/fed");
    fed.write_all(b"close").unwrap();
    fed.ends();
    assert_eq!(fed.reset_code(), ErrorCode::NO_ERROR);
}

#[test]
fn a_reset_reaches_the_other_side() {
    let protocols = start();
    let client = protocols.connect();
    for (path, seen) in [("/echo", &protocols.failed), ("/fed", &protocols.ended)] {
        let mut tunnel = open(&client, path);
        tunnel.reset();
        eventually("the handler sees it", || seen.load(Ordering::SeqCst) == 1);
    }
    // Bytes that were not sent by then are lost, also those of the head.
    let stream = client.borrow_mut().connect_protocol("echo", "/cut", &[], false);
    assert_eq!(client.borrow_mut().wait_for_reset(stream), ErrorCode::CANCEL);
    let mut fed = open(&client, "/fed");
    fed.write_all(b"fail").unwrap();
    assert_eq!(fed.reset_code(), ErrorCode::CANCEL);
    let hello = client.borrow_mut().get("/");
    client.borrow_mut().answer(hello).is(200, "hello");
    // The client leaves with everything.
    let left = [open(&client, "/echo"), open(&client, "/fed")];
    drop((fed, left, client));
    protocols.is_well();
}

/// A client that reads nothing is reset after `write_timeout`, and holds little meanwhile.
#[test]
fn a_client_that_reads_nothing_is_reset() {
    let protocols = start_with(|settings| settings.write_timeout(Duration::from_millis(100)));
    let settings = Http2Settings { window: 1000, ..Http2Settings::default() };
    let client = Rc::new(RefCell::new(Http2Client::connect_with(&protocols.server, &settings)));
    client.borrow_mut().grants = false;
    let mut flood = open(&client, "/flood");
    client.borrow_mut().wait_for_bytes(flood.stream, 1000);
    eventually("its handler is told", || protocols.failed.load(Ordering::SeqCst) == 1);
    assert_eq!(flood.reset_code(), ErrorCode::CANCEL);
    let taken = protocols.taken.load(Ordering::SeqCst);
    assert!(taken <= 1000 + (64 << 10), "{taken} bytes were taken");
    let mut fed = open(&client, "/fed");
    for _ in 0..100 {
        if fed.write_all(&[b'x'; 2000]).is_err() {
            break;
        }
    }
    assert_eq!(fed.reset_code(), ErrorCode::CANCEL);
    assert_eq!(client.borrow().received(flood.stream), 1000);
}

/// RFC 9113 section 8.5
#[test]
fn a_protocol_has_no_trailers() {
    let protocols = start();
    let client = protocols.connect();
    let mut tunnel = open(&client, "/echo");
    client.borrow_mut().send_trailers(tunnel.stream, &[("a", "b")]);
    assert_eq!(tunnel.reset_code(), ErrorCode::PROTOCOL_ERROR);
}

/// As in HTTP/1.1: a handler opens the tunnel, and nothing else does.
#[test]
fn a_plain_connect_is_refused_without_a_tunnel() {
    let protocols = start();
    let client = protocols.connect();
    let stream = client.borrow_mut().connect_to("tunnel:1");
    assert_eq!(client.borrow_mut().head(stream).status, 200);
    let mut tunnel = Tunnel::new(&client, stream);
    tunnel.write_all(b"through").unwrap();
    assert_eq!(exactly(&mut tunnel, 7), b"through");
    tunnel.end();
    tunnel.ends();
    let stream = client.borrow_mut().connect_to("other:1");
    let answer = client.borrow_mut().answer(stream);
    assert_eq!(answer.status, 501);
    assert!(answer.text().contains("this server opens no tunnels"), "{answer:?}");
}

/// After a 2xx, the client would take the response for bytes of its protocol.
#[test]
fn a_protocol_that_no_handler_speaks_is_refused() {
    let protocols = start();
    let client = protocols.connect();
    for path in ["/", "/later"] {
        let stream = client.borrow_mut().connect_protocol("other", path, &[], false);
        let answer = client.borrow_mut().answer(stream);
        assert_eq!(answer.status, 501, "{answer:?}");
        assert!(answer.text().contains("the requested protocol is not spoken here"), "{answer:?}");
        assert_eq!(client.borrow_mut().wait_for_reset(stream), ErrorCode::NO_ERROR);
    }
    // The handler switches to another protocol than the client requests.
    for (path, ends) in [("/fed", true), ("/fed", false), ("/fed-later", true), ("/fed-later", false)] {
        let stream = client.borrow_mut().connect_protocol("other", path, &[], ends);
        assert_eq!(client.borrow_mut().answer(stream).status, 500);
    }
    // The client requests no protocol.
    let stream = client.borrow_mut().get("/fed");
    assert_eq!(client.borrow_mut().answer(stream).status, 500);
    // CONNECT has no body.
    let fields = [("content-length", "4")];
    let stream = client.borrow_mut().connect_protocol("echo", "/echo", &fields, false);
    assert_eq!(client.borrow_mut().answer(stream).status, 400);
    let stream = client.borrow_mut().connect_protocol("echo", "/echo", &[("content-length", "0")], false);
    assert_eq!(client.borrow_mut().head(stream).status, 200);
}

#[test]
fn a_stop_waits_for_protocols() {
    let protocols = start();
    let client = protocols.connect();
    let mut echo = open(&client, "/bye");
    let server = protocols.server;
    let stop = std::thread::spawn(move || server.shutdown(TIMEOUT));
    client.borrow_mut().wait_for_goaways(2);
    // The read of the handler fails once, and the protocol ends.
    echo.ends();
    client.borrow_mut().ends();
    let report = stop.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (1, 0, 0), "{report}");
}
