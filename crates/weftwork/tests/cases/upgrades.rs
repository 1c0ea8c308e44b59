//! Tests that a connection under another protocol loses no byte and ends in good order.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weftwork::http::HeaderValue;
use weftwork::{
    Feed, FeedLimits, FeedSender, UpgradeHandler, Request, Response, Running, Settings, Upgraded, blocks,
};

use super::CASE;
use crate::support::{Client, SiteState, TIMEOUT, Guarantee, eventually, noise};

const ASK: &str = "GET /PATH HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

/// The value of the lowered deadlines.
const SHORT: Duration = Duration::from_millis(250);
/// More than the kernel buffers for a client.
const FLOOD_BYTES: usize = 32 << 20;

fn start() -> (Running, Arc<SiteState>) {
    start_with(|settings| settings)
}

fn start_with(change: impl FnOnce(Settings) -> Settings) -> (Running, Arc<SiteState>) {
    let inside = Arc::<SiteState>::default();
    let shared = inside.clone();
    let server = CASE.bind("127.0.0.1:0").settings(change);
    let running = server.start(move |req: &mut Request| answer(req, &shared)).unwrap();
    (running, inside)
}

fn answer(req: &mut Request, inside: &Arc<SiteState>) -> Response {
    let echoes = HeaderValue::from_static("echo");
    let inside = inside.clone();
    match req.path() {
        "/echo" => Response::upgrade(echoes, echo),
        "/split" => Response::upgrade(echoes, split),
        "/noise" => Response::upgrade(echoes, |mut line| line.write_all(&noise(4 << 20))),
        "/flood" => Response::upgrade(echoes, |mut line| line.write_all(&noise(FLOOD_BYTES))),
        "/final-exchange" => Response::upgrade(echoes, final_exchange),
        "/bye" => Response::upgrade(echoes, |mut line| line.write_all(b"bye")),
        "/pour" => Response::upgrade(echoes, |mut line| {
            loop {
                line.write_all(b"x")?;
            }
        }),
        "/nibble" => Response::upgrade(echoes, |mut line| {
            let mut byte = [0];
            while line.read(&mut byte)? > 0 {}
            Ok(())
        }),
        "/timeout" => Response::upgrade(echoes, timeout),
        "/patient" => Response::upgrade(echoes, |line| {
            let (mut reader, writer) = line.split();
            reader.set_timeout(None);
            echo_between(reader, writer)
        }),
        "/gate" => Response::upgrade(echoes, move |mut line| {
            inside.gate.pass();
            line.write_all(b"passed")
        }),
        "/panic" => Response::upgrade(echoes, |_| panic!("as asked")),
        "/fed" => {
            let (sender, feed) = Feed::new(FeedLimits::default());
            Response::upgrade_fed(echoes, feed, Lines(sender))
        }
        path @ ("/sink" | "/sink-and-say") => {
            let (sender, feed) = Feed::new(FeedLimits::default());
            Response::upgrade_fed(echoes, feed, Sink { sender, says: path == "/sink-and-say" })
        }
        "/hoard" => {
            let (sender, feed) = Feed::new(FeedLimits::default());
            Response::upgrade_fed(echoes, feed, NeverConsumes(sender))
        }
        // The path of CONNECT is empty.
        "" => Response::tunnel(echo),
        "/tunnel" => Response::tunnel(echo),
        _ => Response::text("hello"),
    }
}

fn echo(line: Upgraded) -> std::io::Result<()> {
    let (reader, writer) = line.split();
    echo_between(reader, writer)
}

fn echo_between(mut reader: impl Read, mut writer: impl Write) -> std::io::Result<()> {
    let mut bytes = [0; 1000];
    loop {
        let count = reader.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        writer.write_all(&bytes[..count])?;
    }
}

/// Reads on this thread and writes on another.
fn split(line: Upgraded) -> std::io::Result<()> {
    let (mut reader, mut writer) = line.split();
    let (sender, brought) = std::sync::mpsc::channel::<Vec<u8>>();
    let thread = std::thread::spawn(move || brought.iter().try_for_each(|bytes| writer.write_all(&bytes)));
    let mut bytes = [0; 1000];
    loop {
        let count = reader.read(&mut bytes)?;
        if count == 0 {
            drop(sender);
            return weftwork::blocking(move || thread.join().expect("no panic"));
        }
        sender.send(bytes[..count].to_vec()).expect("the thread listens");
    }
}

/// Waits for the stop of the server, sends a line and reads one.
fn final_exchange(mut line: Upgraded) -> std::io::Result<()> {
    let mut word = [0; 2];
    line.write_all(b"ready")?;
    let error = line.read(&mut word).expect_err("the server stops before the client says anything");
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    line.write_all(b"bye")?;
    line.read_exact(&mut word)?;
    line.write_all(&word)
}

fn timeout(line: Upgraded) -> std::io::Result<()> {
    let (mut reader, mut writer) = line.split();
    reader.set_timeout(Some(Duration::from_millis(20)));
    let error = reader.read(&mut [0]).expect_err("nothing comes");
    writer.write_all(format!("{:?}", error.kind()).as_bytes())
}

/// Echoes each whole line, and ends at "end". When the server stops, the protocol waits for one more line.
struct Lines(FeedSender);

impl UpgradeHandler for Lines {
    fn on_data(&mut self,bytes: &[u8]) -> std::io::Result<usize> {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return Ok(0) };
        match &bytes[..end] {
            b"end" => self.0.close(),
            b"bad" => return Err(std::io::Error::other("as asked")),
            line => drop(self.0.send([line, b"\n"].concat())),
        }
        Ok(end + 1 + self.on_data(&bytes[end + 1..])?)
    }

    fn on_shutdown(&mut self) -> bool {
        let _ = self.0.send("say end\n");
        true
    }
}

/// Never consumes what arrives.
struct NeverConsumes(#[allow(dead_code)] FeedSender);

impl UpgradeHandler for NeverConsumes {
    fn on_data(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Ok(0)
    }
}

/// Consumes slowly, and may answer each piece.
struct Sink {
    sender: FeedSender,
    says: bool,
}

impl UpgradeHandler for Sink {
    fn on_data(&mut self,bytes: &[u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(5));
        if self.says {
            let _ = self.sender.send("taken\n");
        }
        Ok(bytes.len())
    }
}

#[track_caller]
fn upgraded(server: &Running, path: &str) -> Client {
    let mut client = Client::connect(server);
    client.send(ASK.replace("/PATH", path));
    switched(&mut client);
    client
}

#[track_caller]
fn switched(client: &mut Client) {
    let answer = client.answer_head();
    assert_eq!((answer.status, answer.field("upgrade")), (101, Some("echo")), "{answer:?}");
    assert_eq!(answer.field("connection"), Some("upgrade"), "{answer:?}");
}

#[track_caller]
fn is_well(server: &Running) {
    Client::connect(server).get("/").is(200, "hello");
    eventually("every connection ends", || server.stats().connections == 0);
}

#[test]
fn bytes_go_both_ways_and_early_ones_are_kept() {
    let (server, _) = start();
    for path in ["/echo", "/split"] {
        let whole = ASK.replace("/PATH", path) + "early";
        for by in [whole.len(), 1, ASK.len()] {
            let mut client = Client::connect(&server);
            client.send_by(by, &whole);
            switched(&mut client);
            assert_eq!(client.exactly(5), b"early");
            let sent = noise(100_000);
            let aside = client.send_aside(sent.clone());
            assert!(client.exactly(sent.len()) == sent);
            aside.join().unwrap().unwrap();
            client.half_close();
            client.ends();
        }
    }
    is_well(&server);
}

#[test]
fn an_upgrade_may_follow_a_pipelined_request() {
    let (server, _) = start();
    let mut client = Client::connect(&server);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{}early", ASK.replace("/PATH", "/echo")));
    client.answer().is(200, "hello");
    switched(&mut client);
    assert_eq!(client.exactly(5), b"early");
    drop(client);
    is_well(&server);
}

#[test]
fn a_slow_reader_gets_all() {
    let (server, _) = start();
    let mut client = upgraded(&server, "/noise");
    assert!(client.exactly(4 << 20) == noise(4 << 20));
    client.ends();
    is_well(&server);
}

/// Unread bytes must not become a reset, because a reset would discard bytes for the client.
#[test]
fn the_final_output_reaches_a_client_that_is_still_sending() {
    let (server, _) = start();
    let mut client = upgraded(&server, "/noise");
    client.send("is there more?");
    assert!(client.exactly(4 << 20) == noise(4 << 20));
    client.ends();
    is_well(&server);
}

/// Such clients do not end their side, and others wait.
#[test]
fn a_finished_upgrade_holds_no_thread() {
    let (server, _) = start_with(|s| {
        s.threads_max(4).standby_kept(1).linger_timeout(Duration::from_secs(3600)).upgrade_idle_timeout(TIMEOUT)
    });
    let done: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = upgraded(&server, "/bye");
            assert_eq!(client.exactly(3), b"bye");
            client
        })
        .collect();
    drop(done);
    is_well(&server);
}

/// Not all bytes that they still send are read.
#[test]
fn input_after_a_finished_upgrade_is_bounded() {
    let (server, _) = start_with(|s| s.linger_timeout(Duration::from_secs(3600)));
    let client = upgraded(&server, "/bye");
    let flood = client.send_aside(noise(FLOOD_BYTES));
    assert!(flood.join().unwrap().is_err(), "all of it was read");
    drop(client);
    is_well(&server);
}

#[test]
fn connect_makes_a_tunnel() {
    let (server, _) = start();
    for fields in ["", "Connection: upgrade\r\nUpgrade: echo\r\n"] {
        let mut client = Client::connect(&server);
        client.send(format!("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n{fields}\r\nearly"));
        let answer = client.answer_head();
        assert_eq!((answer.status, answer.field("content-length")), (200, None), "{answer:?}");
        assert_eq!(answer.field("connection"), None, "{answer:?}");
        assert_eq!(client.exactly(5), b"early");
        client.half_close();
        client.ends();
    }
    is_well(&server);
}

#[test]
fn an_upgrade_that_was_not_requested_is_500() {
    let (server, _) = start();
    for path in ["/echo", "/fed", "/tunnel"] {
        let mut client = Client::connect(&server);
        assert_eq!(client.get(path).status, 500, "{path}");
        client.ends();
    }
    for other in ["h2c", "echo/2", "echoes", "websocket, h2c"] {
        let mut client = Client::connect(&server);
        client.send(ASK.replace("/PATH", "/echo").replace("Upgrade: echo", &format!("Upgrade: {other}")));
        assert_eq!(client.answer().status, 500, "{other}");
        client.ends();
    }
    is_well(&server);
}

#[test]
fn an_upgrade_to_one_of_several_requested_protocols_is_allowed() {
    let (server, _) = start();
    for protocols in ["h2c, echo", "h2c\r\nUpgrade: ECHO"] {
        let mut client = Client::connect(&server);
        client.send(ASK.replace("/PATH", "/echo").replace("Upgrade: echo", &format!("Upgrade: {protocols}")));
        switched(&mut client);
        client.send("x");
        assert_eq!(client.exactly(1), b"x");
    }
    is_well(&server);
}

#[test]
fn an_idle_upgraded_client_times_out() {
    let (server, _) = start_with(|s| s.upgrade_idle_timeout(SHORT).heartbeat(SHORT / 10));
    for path in ["/echo", "/split", "/sink-and-say", "CONNECT"] {
        let mut client = match path {
            "CONNECT" => {
                let mut client = Client::connect(&server);
                client.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
                assert_eq!(client.answer_head().status, 200);
                client
            }
            path => upgraded(&server, path),
        };
        let begun = Instant::now();
        client.send("x");
        match path {
            "/sink-and-say" => assert_eq!(client.exactly(6), b"taken\n"),
            _ => assert_eq!(client.exactly(1), b"x"),
        }
        client.ends();
        let took = begun.elapsed();
        assert!(took + Duration::from_millis(2) >= SHORT && took < TIMEOUT / 2, "{path}: {took:?}");
    }
    is_well(&server);
}

#[test]
fn an_upgrade_handler_may_disable_the_idle_timeout() {
    let (server, _) = start_with(|s| s.upgrade_idle_timeout(SHORT));
    let mut client = upgraded(&server, "/patient");
    std::thread::sleep(SHORT * 2);
    client.send("x");
    assert_eq!(client.exactly(1), b"x");
    drop(client);
    is_well(&server);
}

/// The client reads a little now and then, but less than the minimum rate of a response.
#[test]
fn an_upgraded_client_that_reads_too_slowly_is_disconnected() {
    let (server, _) = start_with(|s| s.write_timeout(SHORT).rate_bytes_min(1 << 40));
    let mut client = upgraded(&server, "/flood");
    let (begun, mut taken) = (Instant::now(), 0);
    loop {
        match client.take(64 << 10) {
            0 => break,
            count => taken += count,
        }
        assert!(begun.elapsed() < TIMEOUT / 2, "it was waited for");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(taken + client.rest().len() < FLOOD_BYTES);
    is_well(&server);
}

#[test]
fn a_read_ends_at_its_timeout() {
    let (server, _) = start();
    let mut client = upgraded(&server, "/timeout");
    assert_eq!(client.exactly(8), b"TimedOut");
    client.ends();
}

#[test]
fn a_panic_costs_one_connection() {
    let (server, _) = start();
    upgraded(&server, "/panic").ends();
    eventually("it is counted", || server.stats().panics == 1);
    is_well(&server);
}

#[test]
fn a_blocking_upgrade_handler_does_not_delay_other_clients() {
    let (server, inside) = start();
    if !CASE.guarantees(crate::support::Guarantee::QuickBesideBlocked) {
        return;
    }
    let mut clients: Vec<Client> = (0..4).map(|_| upgraded(&server, "/gate")).collect();
    inside.gate.wait_for(4);
    Client::connect(&server).get("/").is(200, "hello");
    inside.gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.exactly(6), b"passed"));
    drop(clients);
    is_well(&server);
}

#[test]
fn idle_upgrades_do_not_delay_other_clients() {
    let (server, _) = start();
    let clients: Vec<Client> = (0..8).map(|_| upgraded(&server, "/echo")).collect();
    Client::connect(&server).get("/").is(200, "hello");
    drop(clients);
    is_well(&server);
}

#[test]
fn upgrade_handlers_see_that_the_server_stops() {
    let (server, _) = start();
    let mut clients: Vec<Client> = (0..4).map(|_| upgraded(&server, "/final-exchange")).collect();
    // A protocol without an end of its own ends at once.
    let plain = upgraded(&server, "/echo");
    clients.iter_mut().for_each(|client| assert_eq!(client.exactly(5), b"ready"));
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    plain.ends();
    for mut client in clients {
        assert_eq!(client.exactly(3), b"bye");
        client.send("ok");
        assert_eq!(client.exactly(2), b"ok");
        client.ends();
    }
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (5, 0, 0), "{report}");
}

#[test]
fn upgrade_handlers_that_ignore_the_stop_are_closed() {
    let (server, _) = start();
    let mut client = upgraded(&server, "/final-exchange");
    assert_eq!(client.exactly(5), b"ready");
    let report = server.shutdown(Duration::from_millis(500));
    assert_eq!((report.drained, report.cut, report.stuck), (0, 1, 0), "{report}");
    assert_eq!(client.rest(), b"bye");
}

#[test]
fn a_protocol_without_a_thread() {
    let (server, _) = start();
    let whole = ASK.replace("/PATH", "/fed") + "one\ntwo\nth";
    for by in [whole.len(), 1] {
        let mut client = Client::connect(&server);
        client.send_by(by, &whole);
        switched(&mut client);
        assert_eq!(client.exactly(8), b"one\ntwo\n");
        client.send("ree\nend\n");
        assert_eq!(client.exactly(6), b"three\n");
        client.half_close();
        client.ends();
    }
    // The client leaves, and the protocol refuses.
    drop(upgraded(&server, "/fed"));
    let mut client = upgraded(&server, "/fed");
    client.send("bad\n");
    client.ends();
    is_well(&server);
}

#[test]
fn data_left_by_a_receiver_is_bounded() {
    let (server, _) = start();
    let mut client = upgraded(&server, "/hoard");
    client.send(noise(60_000));
    let aside = client.send_aside(noise(1 << 20));
    assert_eq!(client.rest(), b"");
    let _ = aside.join().unwrap();
    is_well(&server);
}

#[test]
fn a_protocol_without_a_thread_sees_that_the_server_stops() {
    let (server, _) = start();
    let mut client = upgraded(&server, "/fed");
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    assert_eq!(client.exactly(8), b"say end\n");
    client.send("end\n");
    client.half_close();
    client.ends();
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut), (1, 0), "{report}");
}

/// The client sends faster than its receiver reads. The other connections of its loop still make progress, and
/// so does the stop.
#[test]
fn a_fed_connection_with_constant_input_does_not_keep_the_loop() {
    ["/sink", "/sink-and-say"].into_iter().for_each(constant_input_on_an_upgrade_does_not_delay_other_clients);
}

/// The same if the client already sends with its request: the thread that answered must not be kept. On a Unix
/// socket each read finds bytes, however many were read before.
#[test]
fn a_fed_connection_with_constant_input_does_not_keep_the_thread_of_its_request() {
    if !CASE.guarantees(Guarantee::FloodsTakeTurns) {
        return;
    }
    let path = super::addresses::Path::new("flood");
    let inside = Arc::<SiteState>::default();
    let server = CASE.bind(&path.address()).settings(|settings| settings.threads_max(4).standby_kept(2));
    let server = server.start(blocks(move |req: &mut Request<'_>| answer(req, &inside))).unwrap();
    let flood = [ASK.replace("/PATH", "/sink").as_bytes(), &[b'x'; FLOOD_BYTES]].concat();
    let mut flooding: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    let sent: Vec<_> = flooding.iter().map(|client| client.send_aside(flood.clone())).collect();
    flooding.iter_mut().for_each(switched);
    other_clients_are_served(server, "/sink");
    drop(flooding);
    for aside in sent {
        assert!(aside.join().unwrap().is_err(), "it is cut off long before it has sent all");
    }
}

/// The same for a connection that a thread or a fiber reads. Each read finds bytes, so it never waits.
#[test]
fn a_connection_with_constant_input_does_not_keep_its_thread() {
    constant_input_on_an_upgrade_does_not_delay_other_clients("/nibble");
}

/// The same for a connection whose client reads every byte at once.
#[test]
fn a_connection_that_reads_everything_at_once_does_not_keep_its_thread() {
    let (server, _) = start();
    let take = |client: Client| std::thread::spawn(move || client.rest());
    let taking: Vec<_> = (0..4).map(|_| take(upgraded(&server, "/pour"))).collect();
    other_clients_are_served(server, "/pour");
    taking.into_iter().for_each(|taking| drop(taking.join().unwrap()));
}

#[track_caller]
fn constant_input_on_an_upgrade_does_not_delay_other_clients(path: &str) {
    let (server, _) = start();
    let mut flooding = Vec::new();
    for _ in 0..4 {
        let client = upgraded(&server, path);
        flooding.push((client.send_aside(vec![b'x'; FLOOD_BYTES]), client));
    }
    other_clients_are_served(server, path);
    for (aside, client) in flooding {
        drop(client);
        assert!(aside.join().unwrap().is_err(), "{path}: it is cut off long before it has sent all");
    }
}

#[track_caller]
fn other_clients_are_served(server: Running, path: &str) {
    let begun = Instant::now();
    for _ in 0..5 {
        Client::connect(&server).get("/").is(200, "hello");
    }
    // A turn is 20 ms here, and each client needs two or three. A flood that owns the loop would own it for 20
    // s.
    assert!(begun.elapsed() < TIMEOUT / 2, "{path}: {:?}", begun.elapsed());
    let report = server.shutdown(SHORT);
    assert_eq!(report.stuck, 0, "{path}: {report:?}");
}
