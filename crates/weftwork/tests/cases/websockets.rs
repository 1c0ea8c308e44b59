//! Tests that messages pass both ways with an independent client, and that a socket ends as the protocol
//! requires.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message as Sent, WebSocket as Socket};
use weftwork::{
    Bytes, FeedLimits, Message, Request, Response, Running, Settings, SocketEvent, WebSocket, WebSocketHub,
    WebSocketWriter, WebSockets, websocket,
};

use super::CASE;
use crate::support::{ClientStream, Guarantee, SiteState, TIMEOUT, eventually, noise};

const HANDSHAKE: &str = "Host: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

struct Chat {
    server: Running,
    hub: WebSocketHub,
    inside: Arc<SiteState>,
    /// The writers of all sockets, as a program keeps them to broadcast.
    writers: Writers,
}

type Writers = Arc<Mutex<Vec<WebSocketWriter>>>;

fn start() -> Chat {
    start_with(|settings| settings)
}

fn start_with(change: impl FnOnce(Settings) -> Settings) -> Chat {
    let hub = WebSocketHub::new(WebSockets::new(), |hub, from, event| match event {
        SocketEvent::Message(Message::Text(text)) if text == "panic" => panic!("as asked"),
        SocketEvent::Message(Message::Text(text)) if text == "go" => hub.close(from.id, 4000, "as asked"),
        SocketEvent::Message(message) => drop(hub.send(&message)),
        SocketEvent::Joined => assert!(hub.send_to(from.id, &"welcome".into())),
        SocketEvent::Left => drop(hub.send(&"one has left".into())),
    });
    let inside = Arc::<SiteState>::default();
    let (own, shared) = (hub.clone(), inside.clone());
    let writers = Writers::default();
    let kept = writers.clone();
    let server = CASE.bind("127.0.0.1:0").settings(change).start(move |req: &mut Request| match req.path() {
        "/echo" => websocket(req, echo),
        "/split" => websocket(req, split),
        "/bye" => websocket(req, |mut socket| {
            socket.send("bye")?;
            socket.close(4001, "no more")?;
            assert!(socket.send("late").is_err());
            while socket.read()?.is_some() {}
            Ok(())
        }),
        "/done" => websocket(req, |_| Ok(())),
        "/error" => websocket(req, |_| Err(std::io::Error::other("as asked"))),
        "/few" => WebSockets::new()
            .message_bytes_max(10)
            .feed_limits(FeedLimits { bytes_max: 100, ..FeedLimits::default() })
            .accept(req, echo),
        "/panic" => websocket(req, |_| panic!("as asked")),
        "/flood" => websocket(req, flood),
        "/ended" => {
            let inside = shared.clone();
            websocket(req, move |mut socket| {
                let error = loop {
                    match socket.read() {
                        Ok(Some(_)) => {}
                        other => break other,
                    }
                };
                inside.gate.open();
                error.map(drop)
            })
        }
        "/kept" => {
            let kept = kept.clone();
            websocket(req, move |socket| {
                let (mut reader, writer) = socket.split();
                kept.lock().unwrap().push(writer);
                while reader.read()?.is_some() {}
                Ok(())
            })
        }
        "/hub" => own.join(req),
        "/later" | "/hub-later" => {
            let (sender, response) = Response::later(TIMEOUT, "too late");
            let accepted = if req.path() == "/later" { websocket(req, echo) } else { own.join(req) };
            std::thread::spawn(move || sender.send(accepted));
            response
        }
        _ => Response::text("hello"),
    });
    Chat { server: server.unwrap(), hub, inside, writers }
}

fn echo(mut socket: WebSocket) -> std::io::Result<()> {
    while let Some(message) = socket.read()? {
        socket.send(message)?;
    }
    Ok(())
}

/// Reads on this thread. Several other threads write.
fn split(socket: WebSocket) -> std::io::Result<()> {
    let (mut reader, writer) = socket.split();
    while let Some(message) = reader.read()? {
        let Message::Text(text) = message else { continue };
        let threads = (0..4).map(|number| {
            let (writer, text) = (writer.clone(), text.clone());
            std::thread::spawn(move || (0..50).try_for_each(|_| writer.send(format!("{number}{text}"))))
        });
        let threads: Vec<_> = threads.collect();
        weftwork::blocking(move || threads.into_iter().try_for_each(|thread| thread.join().unwrap()))?;
    }
    Ok(())
}

/// Sends more messages than may wait. The sender gets an error, and the server no longer waits for the client.
fn flood(socket: WebSocket) -> std::io::Result<()> {
    let (mut reader, writer) = socket.split();
    let threads = (0..2).map(|_| {
        let writer = writer.clone();
        std::thread::spawn(move || loop {
            if let Err(error) = writer.send("x".repeat(1 << 20)) {
                return error.kind();
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    assert!(matches!(reader.read(), Ok(None)));
    let kinds = weftwork::blocking(move || threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>());
    assert!(kinds.contains(&std::io::ErrorKind::QuotaExceeded), "{kinds:?}");
    Ok(())
}

type Client = Socket<ClientStream>;

impl Chat {
    #[track_caller]
    fn open(&self, path: &str) -> Client {
        let address = self.server.local_addr().unwrap();
        let stream = ClientStream(crate::support::Client::connect(&self.server));
        let request = format!("ws://{address}{path}").into_client_request().unwrap();
        tungstenite::client(request, stream).expect("a handshake").0
    }

    /// Returns a member of the hub that has read the welcome.
    #[track_caller]
    fn join(&self) -> Client {
        let mut client = self.open("/hub");
        says(&mut client, "welcome");
        client
    }

    #[track_caller]
    fn is_well(&self) {
        crate::support::Client::connect(&self.server).get("/").is(200, "hello");
        eventually("every connection ends", || self.server.stats().connections == 0);
    }
}

#[track_caller]
fn says(client: &mut Client, expected: &str) {
    assert_eq!(client.read().expect("a message"), Sent::text(expected));
}

#[track_caller]
fn closes(client: &mut Client, code: u16) {
    loop {
        match client.read() {
            Ok(Sent::Close(Some(close))) => {
                assert_eq!(u16::from(close.code), code, "{close:?}");
                break;
            }
            Ok(_) => {}
            Err(error) => panic!("instead of {code}: {error}"),
        }
    }
    let end = client.read();
    assert!(matches!(end, Err(Error::ConnectionClosed)), "{end:?}");
}

#[test]
fn messages_come_back() {
    let chat = start();
    for path in ["/echo", "/hub", "/later", "/hub-later"] {
        let mut client = chat.open(path);
        if path.starts_with("/hub") {
            says(&mut client, "welcome");
        }
        for sent in [
            Sent::text("hello"),
            Sent::text(""),
            Sent::text("h\u{e9}".repeat(40_000)),
            Sent::binary(noise(1 << 20)),
        ] {
            client.send(sent.clone()).unwrap();
            assert!(client.read().unwrap() == sent);
        }
        client.send(Sent::Ping(Bytes::from("x"))).unwrap();
        assert_eq!(client.read().unwrap(), Sent::Pong(Bytes::from("x")));
        client.close(None).unwrap();
        assert!(matches!(client.read(), Ok(Sent::Close(None))));
        assert!(matches!(client.read(), Err(Error::ConnectionClosed)));
    }
    chat.is_well();
}

#[test]
fn a_message_sent_with_the_handshake_is_not_lost() {
    let chat = start();
    for path in ["/echo", "/later"] {
        let mut client = crate::support::Client::connect(&chat.server);
        let request = format!("GET {path} HTTP/1.1\r\n{HANDSHAKE}");
        client.send([request.as_bytes(), b"\x81\x82\0\0\0\0hi"].concat());
        assert_eq!(client.answer_head().status, 101);
        assert_eq!(client.exactly(4), b"\x81\x02hi");
    }
}

/// The bytes of a long message count as activity of the client.
#[test]
fn a_client_that_sends_slowly_is_not_disconnected() {
    // A busy machine may delay the client, but not for that long.
    let chat = start_with(|settings| settings.heartbeat(Duration::from_millis(800)));
    for (path, before) in [("/echo", &b""[..]), ("/hub", b"\x81\x07welcome")] {
        let mut client = crate::support::Client::connect(&chat.server);
        client.send(format!("GET {path} HTTP/1.1\r\n{HANDSHAKE}"));
        assert_eq!(client.answer_head().status, 101);
        assert_eq!(client.exactly(before.len()), before);
        client.send(b"\x81\x83\0\0\0\0");
        for letter in b"hey" {
            assert_eq!(client.exactly(2), b"\x89\x00", "{path}");
            client.send([*letter]);
        }
        assert_eq!(client.exactly(5), b"\x81\x03hey", "{path}");
    }
}

#[test]
fn many_write_and_no_message_is_mixed() {
    let chat = start();
    let mut client = chat.open("/split");
    client.send(Sent::text("x".repeat(500))).unwrap();
    for _ in 0..200 {
        let message = client.read().unwrap().into_text().unwrap();
        assert!(message.len() == 501 && message.ends_with(&"x".repeat(500)));
    }
    drop(client);
    chat.is_well();
}

#[test]
fn a_socket_ends_with_its_code() {
    let chat = start();
    for (path, code) in [("/done", 1000), ("/error", 1011), ("/panic", 1011)] {
        closes(&mut chat.open(path), code);
    }
    let mut client = chat.open("/bye");
    says(&mut client, "bye");
    closes(&mut client, 4001);
    let mut client = chat.join();
    client.send(Sent::text("go")).unwrap();
    closes(&mut client, 4000);
    chat.is_well();
}

/// The program has closed the socket and needs its thread elsewhere, whatever the client still sends.
#[test]
fn a_client_that_does_not_answer_a_close_is_disconnected() {
    let chat = start_with(|settings| settings.linger_timeout(Duration::from_millis(100)));
    let mut client = crate::support::Client::connect(&chat.server);
    client.send(format!("GET /bye HTTP/1.1\r\n{HANDSHAKE}"));
    assert_eq!(client.answer_head().status, 101);
    assert_eq!(client.exactly(16), b"\x81\x03bye\x88\x09\x0f\xa1no more");
    let begun = Instant::now();
    while client.try_send(b"\x89\x80\0\0\0\0").is_ok() {
        assert!(begun.elapsed() < TIMEOUT, "it is heard still");
    }
    drop(client);
    chat.is_well();
}

#[test]
fn what_is_too_large_is_refused() {
    let chat = start();
    let mut client = chat.open("/few");
    client.send(Sent::text("ten bytes.")).unwrap();
    says(&mut client, "ten bytes.");
    client.send(Sent::text("eleven byte")).unwrap();
    closes(&mut client, CloseCode::Size.into());
    let mut client = chat.join();
    client.send(Sent::binary(noise((1 << 20) + 1))).unwrap();
    closes(&mut client, CloseCode::Size.into());
    chat.is_well();
}

#[test]
fn an_idle_client_gets_a_ping_and_a_lost_client_is_noticed() {
    // A busy machine may delay the answers of the client, but not for that long.
    let beat = Duration::from_millis(500);
    let chat = start_with(|settings| settings.heartbeat(beat));
    for path in ["/ended", "/hub"] {
        let mut client = chat.open(path);
        if path == "/hub" {
            says(&mut client, "welcome");
        }
        // The client answers by reading.
        assert_eq!(client.read().unwrap(), Sent::Ping(Bytes::new()));
        assert_eq!(client.read().unwrap(), Sent::Ping(Bytes::new()));
        // From here on the client answers nothing.
        std::io::copy(client.get_mut(), &mut std::io::sink()).unwrap();
    }
    chat.is_well();
}

#[test]
fn a_disconnect_without_a_close_frame_is_an_error() {
    let chat = start();
    drop(chat.open("/ended"));
    chat.inside.gate.pass();
    chat.is_well();
}

#[test]
fn a_stored_writer_does_not_keep_its_connection_open() {
    let chat = start();
    let mut client = chat.open("/kept");
    client.close(None).unwrap();
    assert!(matches!(client.read(), Ok(Sent::Close(None))));
    assert!(matches!(client.read(), Err(Error::ConnectionClosed)));
    drop(client);
    chat.is_well();
    let writers = chat.writers.lock().unwrap();
    assert!(!writers[0].is_open() && writers[0].send("late").is_err());
}

#[test]
fn a_client_that_reads_nothing_is_disconnected() {
    let chat = start();
    let client = chat.open("/flood");
    // The client stays connected, but does not read.
    chat.is_well();
    drop(client);
}

#[test]
fn a_broadcast_reaches_every_client() {
    let chat = start();
    let count = if CASE.guarantees(Guarantee::FeedsWithoutThreads) { 100 } else { 10 };
    let mut clients: Vec<Client> = (0..count).map(|_| chat.join()).collect();
    assert_eq!(chat.hub.clients(), count);
    clients[0].send(Sent::text("from one")).unwrap();
    clients.iter_mut().for_each(|client| says(client, "from one"));
    if CASE.guarantees(Guarantee::FeedsWithoutThreads) {
        eventually("the threads are free", || chat.server.threads() <= 16);
    }
    drop(clients.pop());
    clients.iter_mut().for_each(|client| says(client, "one has left"));
    // A function that panics costs the socket that it was called for.
    clients[0].send(Sent::text("panic")).unwrap();
    closes(&mut clients.remove(0), 1011);
    clients.iter_mut().for_each(|client| says(client, "one has left"));
    assert_eq!(chat.server.stats().panics, 1);
    drop(clients);
    chat.is_well();
}

#[test]
fn a_stopping_server_sends_a_close() {
    let chat = start();
    let mut clients = vec![chat.open("/echo"), chat.open("/split"), chat.join(), chat.join()];
    let server = chat.server;
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    clients.iter_mut().for_each(|client| closes(client, 1001));
    drop(clients);
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (4, 0, 0), "{report}");
}

/// Such clients had the chance to see the close, and the server does not wait for them until the drain
/// deadline.
#[test]
fn a_client_that_does_not_answer_the_close_of_a_stop_gets_the_linger_time() {
    let chat = start_with(|settings| settings.linger_timeout(Duration::from_millis(100)));
    let mut clients = Vec::new();
    for (path, before) in [("/echo", &b""[..]), ("/ended", b""), ("/hub", b"\x81\x07welcome"), ("/hub", b"\x81\x07welcome")] {
        let mut client = crate::support::Client::connect(&chat.server);
        client.send(format!("GET {path} HTTP/1.1\r\n{HANDSHAKE}"));
        assert_eq!(client.answer_head().status, 101);
        assert_eq!(client.exactly(before.len()), before, "{path}");
        clients.push(client);
    }
    let server = chat.server;
    let stopping = std::thread::spawn(move || server.shutdown(TIMEOUT));
    for client in &mut clients {
        let mut frame = client.exactly(2);
        // On a slow host, the other client of the hub leaves before this client gets its close.
        while frame == [0x81, 12] {
            assert_eq!(client.exactly(12), b"one has left");
            frame = client.exactly(2);
        }
        frame.extend(client.exactly(2));
        assert_eq!(frame, [0x88, 24, 1001_u16.to_be_bytes()[0], 1001_u16.to_be_bytes()[1]]);
    }
    // Clients of both kinds notice nothing and continue.
    for client in clients.iter_mut().skip(1).step_by(2) {
        while client.try_send(b"\x81\x85\0\0\0\0hello").is_ok() {}
    }
    let report = stopping.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (4, 0, 0), "{report}");
    assert!(report.took < TIMEOUT / 2, "{report}");
}

/// RFC 7692, over a socket, byte by byte: with a thread and in a hub.
#[test]
fn messages_may_be_compressed() {
    let chat = start();
    for path in ["/echo", "/hub"] {
        let mut client = crate::support::Client::connect(&chat.server);
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
        ));
        let answer = client.answer_head();
        assert_eq!(answer.status, 101);
        assert!(answer.field("sec-websocket-extensions").unwrap().starts_with("permessage-deflate"));
        if path == "/hub" {
            assert_eq!(client.exactly(9), b"\x81\x07welcome");
        }
        let text = "a line of text that comes again and again ".repeat(1000);
        let mut compress = flate2::Compress::new(flate2::Compression::fast(), false);
        let mut deflated = Vec::with_capacity(text.len());
        compress.compress_vec(text.as_bytes(), &mut deflated, flate2::FlushCompress::Sync).unwrap();
        deflated.truncate(deflated.len() - 4);
        let length = (deflated.len() as u16).to_be_bytes();
        // The mask is zero.
        let frame = [&[0xc1, 0x80 | 126, length[0], length[1], 0, 0, 0, 0][..], &deflated].concat();
        client.send_by(1, frame);
        let head = client.exactly(4);
        assert_eq!(head[..2], [0xc1, 126]);
        let echoed = client.exactly(usize::from(u16::from_be_bytes([head[2], head[3]])));
        let mut got = Vec::with_capacity(2 * text.len());
        let bytes = [&echoed[..], &[0, 0, 0xff, 0xff]].concat();
        let mut decompress = flate2::Decompress::new(false);
        decompress.decompress_vec(&bytes, &mut got, flate2::FlushDecompress::Sync).unwrap();
        assert!(got == text.as_bytes(), "{path}: {} bytes", got.len());
        client.send([0xc1, 0x83, 0, 0, 0, 0, 0x07, 0x07, 0x07]);
        assert_eq!(client.exactly(4)[2..], 1007u16.to_be_bytes(), "{path}");
    }
    chat.is_well();
}
