//! Tests which clients are accepted, which bytes make which messages, and what is sent at the end.

use std::cell::RefCell;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;

use super::frames::{self, FrameError, FrameEvent, Incoming};
use super::{Message, SocketEvent, SocketId, WebSocketHub, WebSockets};
use crate::{Request, TestClient};

/// RFC 6455 section 1.3.
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const ACCEPT: &str = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
const ASK: &str = "Host: a.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
const VERSION: &str = "Sec-WebSocket-Version: 13\r\n";

#[track_caller]
fn answer(options: WebSockets, head: &str) -> String {
    let hub = WebSocketHub::new(options, |_, _, _| {});
    let mut connection = TestClient::new(move |req: &mut Request| hub.join(req)).connect();
    connection.send(format!("{head}\r\n"));
    String::from_utf8(connection.received()).unwrap()
}

#[track_caller]
fn is_origin_allowed(options: WebSockets, fields: &str) -> String {
    let answer = answer(options, &format!("GET / HTTP/1.1\r\n{ASK}{KEY}{VERSION}{fields}"));
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains(ACCEPT), "{answer}");
    assert!(answer.contains("upgrade: websocket\r\n"), "{answer}");
    assert!(answer.contains("Connection: upgrade\r\n"), "{answer}");
    answer
}

#[track_caller]
fn is_refused(head: &str, status: u16, word: &str) {
    let answer = answer(WebSockets::new(), head);
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head:?}: {answer}");
    assert!(answer.contains(word), "{answer}");
}

#[test]
fn a_handshake_is_answered() {
    is_origin_allowed(WebSockets::new(), "");
}

#[test]
fn a_request_that_is_no_handshake_gets_426() {
    for head in [
        format!("GET / HTTP/1.1\r\nHost: a.example\r\n{KEY}{VERSION}"),
        format!("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: h2c\r\n{KEY}{VERSION}"),
        format!("GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\n{KEY}{VERSION}"),
        format!("POST / HTTP/1.1\r\n{ASK}{KEY}{VERSION}"),
        format!("GET / HTTP/1.0\r\n{ASK}{KEY}{VERSION}"),
    ] {
        is_refused(&head, 426, "upgrade: websocket\r\n");
    }
    for version in ["", "Sec-WebSocket-Version: 8\r\n", "Sec-WebSocket-Version: 13, 8\r\n"] {
        is_refused(&format!("GET / HTTP/1.1\r\n{ASK}{KEY}{version}"), 426, "sec-websocket-version: 13\r\n");
    }
    is_refused(&format!("GET / HTTP/1.1\r\n{ASK}{KEY}{VERSION}{VERSION}"), 426, "must be 13");
}

/// The body would not be read, and after a 101 another protocol follows (RFC 9110 section 7.8).
#[test]
fn a_handshake_has_no_body() {
    // `is_refused` appends an empty line, which is the end of each.
    for body in ["Content-Length: 3\r\n\r\na", "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"] {
        is_refused(&format!("GET / HTTP/1.1\r\n{ASK}{KEY}{VERSION}{body}"), 400, "must not have a body");
    }
    is_origin_allowed(WebSockets::new(), "Content-Length: 0\r\n");
}

#[test]
fn a_key_is_sixteen_bytes_and_there_once() {
    for key in [
        "",
        "Sec-WebSocket-Key:\r\n",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j\r\n",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=!\r\n",
        &KEY.repeat(2),
    ] {
        is_refused(&format!("GET / HTTP/1.1\r\n{ASK}{key}{VERSION}"), 400, "Sec-WebSocket-Key");
    }
}

#[test]
fn handshakes_of_other_origins_are_refused() {
    let foreign = "Origin: https://evil.example\r\n";
    is_origin_allowed(WebSockets::new(), "Origin: https://a.example\r\n");
    is_origin_allowed(WebSockets::new().allow_any_origin(), foreign);
    is_origin_allowed(WebSockets::new().allow_origin("https://evil.example").unwrap(), foreign);
    for origin in [
        foreign,
        "Origin: null\r\n",
        "Origin: https://a.example.evil.example\r\n",
        "Origin: https://a.example:8443\r\n",
        "Origin: https://a.example\r\nOrigin: https://a.example\r\n",
        "Origin: \u{e9}\r\n",
    ] {
        is_refused(&format!("GET / HTTP/1.1\r\n{ASK}{KEY}{VERSION}{origin}"), 403, "origin");
    }
}

/// RFC 9110 section 4.2.3. Programs that write an `Origin` may include the port in `Host`, too.
#[test]
fn the_default_port_is_no_other_origin() {
    let asks = |port: u16, origin: &str| {
        let ask = ASK.replace("a.example", &format!("a.example:{port}"));
        format!("GET / HTTP/1.1\r\n{ask}{KEY}{VERSION}Origin: {origin}\r\n")
    };
    for (port, origin) in [(80, "http://a.example"), (443, "https://a.example")] {
        let answer = answer(WebSockets::new(), &asks(port, origin));
        assert!(answer.starts_with("HTTP/1.1 101 "), "{origin}: {answer}");
    }
    for (port, origin) in [(443, "http://a.example"), (80, "https://a.example"), (8080, "http://a.example")] {
        is_refused(&asks(port, origin), 403, "origin");
    }
}

/// Such an origin would admit no client, and its author would learn that from users.
#[test]
fn what_no_browser_writes_is_no_origin() {
    for origin in [
        "",
        "*",
        "null",
        "app.example",
        "https://app.example/",
        "https://app.example/chat",
        "https://App.example",
        "https://app.example:443",
    ] {
        let error = WebSockets::new().allow_origin(origin).unwrap_err().to_string();
        assert!(error.contains("https://host") && error.contains(origin), "{error}");
        assert!(WebSockets::new().allow_any_origin().allow_origin(origin).is_err(), "{origin}");
    }
}

#[test]
fn the_server_chooses_the_sub_protocol() {
    let options = || WebSockets::new().protocols(&["best", "good"][..]);
    let chosen = "sec-websocket-protocol: ";
    assert!(!is_origin_allowed(options(), "").contains(chosen));
    assert!(!is_origin_allowed(options(), "Sec-WebSocket-Protocol: bad, Best\r\n").contains(chosen));
    let both =
        is_origin_allowed(options(), "Sec-WebSocket-Protocol: bad, good\r\nSec-WebSocket-Protocol: best\r\n");
    assert!(both.contains("sec-websocket-protocol: best\r\n"), "{both}");
    let one = is_origin_allowed(options(), "Sec-WebSocket-Protocol: good\r\n");
    assert!(one.contains("sec-websocket-protocol: good\r\n"), "{one}");
}

/// Returns a client's frame, with a mask that changes the bytes.
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut bytes = vec![first];
    match payload.len() {
        short @ ..126 => bytes.push(0x80 | short as u8),
        long => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(long as u16).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Returns the same with `bytes` zeros as payload, more than two bytes can count.
fn long_frame(first: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![first, 0x80 | 127];
    frame.extend_from_slice(&(bytes as u64).to_be_bytes());
    frame.resize(frame.len() + 4 + bytes, 0);
    frame
}

/// Bytes in parts, then nothing for now.
struct Parts<'b>(Vec<&'b [u8]>);

impl Read for Parts<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(part) = self.0.first_mut() else { return Err(io::ErrorKind::WouldBlock.into()) };
        let count = part.read(into)?;
        if part.is_empty() {
            self.0.remove(0);
        }
        Ok(count)
    }
}

pub(super) fn read(parts: Vec<&[u8]>) -> (Vec<FrameEvent>, FrameError) {
    let mut incoming = Incoming::new(1000, 16, false);
    let mut parts = Parts(parts);
    let mut all = Vec::new();
    loop {
        match incoming.next(&mut parts) {
            Ok(event) => all.push(event),
            Err(failed) => return (all, failed),
        }
    }
}

/// Checks that the bytes give these events: whole, byte by byte, and with half a frame after them.
#[track_caller]
fn gives(bytes: &[u8], expected: &[FrameEvent]) {
    let tail = [bytes, &[0x81, 0x85, 1]].concat();
    for parts in [vec![bytes], bytes.chunks(1).collect(), vec![&tail[..]]] {
        let (all, failed) = read(parts);
        assert_eq!(all, expected);
        assert!(
            matches!(&failed, FrameError::Io(error) if error.kind() == io::ErrorKind::WouldBlock),
            "{failed:?}"
        );
    }
}

#[track_caller]
fn fails(bytes: &[u8], expected: u16) {
    for parts in [vec![bytes], bytes.chunks(1).collect()] {
        match read(parts).1 {
            FrameError::Protocol(code, _) => assert_eq!(code, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn frames_make_messages() {
    let text = |text: &str| FrameEvent::Message(Message::Text(text.to_owned()));
    gives(&frame(0x81, b"hello"), &[text("hello")]);
    gives(&frame(0x81, b""), &[text("")]);
    gives(&frame(0x82, &[0; 300]), &[FrameEvent::Message(Message::Binary(Bytes::from(vec![0; 300])))]);
    gives(&frame(0x89, b"x"), &[FrameEvent::Ping(Bytes::from("x"))]);
    gives(&frame(0x8a, b"x"), &[FrameEvent::Pong]);
    // A ping between the parts of a message, one of which ends within a character.
    let parts = [frame(0x01, b"h\xc3"), frame(0x89, b""), frame(0x80, b"\xa9")].concat();
    gives(&parts, &[FrameEvent::Ping(Bytes::new()), text("h\u{e9}")]);
}

#[test]
fn faults_have_their_codes() {
    fails(&frame(0x81, b"\xff"), frames::CLOSE_TEXT);
    fails(&frame(0x82, &[0; 1001]), frames::CLOSE_TOO_LARGE);
    fails(&[frame(0x02, &[0; 600]), frame(0x80, &[0; 600])].concat(), frames::CLOSE_TOO_LARGE);
    // Not masked, reserved bits, an unknown opcode, a continuation without a start, a ping in parts.
    fails(b"\x81\x01x", frames::CLOSE_PROTOCOL);
    fails(&frame(0xc1, b"x"), frames::CLOSE_PROTOCOL);
    fails(&frame(0x83, b"x"), frames::CLOSE_PROTOCOL);
    fails(&frame(0x80, b"x"), frames::CLOSE_PROTOCOL);
    fails(&frame(0x09, b"x"), frames::CLOSE_PROTOCOL);
}

fn hello() -> FrameEvent {
    FrameEvent::Message(Message::Text("hello".to_owned()))
}

/// Buffers of a large message are released later, for one frame and for several.
#[test]
fn a_large_message_is_not_paid_for_afterwards() {
    let mut parts = vec![long_frame(0x02, 400_000), long_frame(0x00, 400_000), frame(0x80, b"end")];
    for large in [vec![long_frame(0x82, 1 << 20)], std::mem::take(&mut parts)] {
        let bytes = [large.concat(), frame(0x81, b"hello")].concat();
        let mut incoming = Incoming::new(1 << 20, 128, false);
        let mut source = Parts(bytes.chunks(10_000).collect());
        assert!(matches!(incoming.next(&mut source), Ok(FrameEvent::Message(Message::Binary(_)))));
        assert_eq!(incoming.next(&mut source).unwrap(), hello());
        assert!(incoming.next(&mut source).is_err());
        assert!(incoming.footprint() <= 2048, "{} bytes are held", incoming.footprint());
    }
}

/// Only received bytes make a server allocate memory.
#[test]
fn a_length_that_is_only_declared_takes_no_memory() {
    let bytes = &long_frame(0x82, 1 << 20)[..20];
    let mut incoming = Incoming::new(1 << 20, 128, false);
    assert!(incoming.next(&mut Parts(vec![bytes])).is_err());
    assert!(incoming.footprint() <= 1024, "{} bytes are held", incoming.footprint());
}

/// Space is zeroed before it is read into. A long frame in small parts must not cost its whole length for each
/// part.
#[test]
fn a_long_frame_in_small_parts_has_little_room_made_for_each() {
    struct Widest<'b>(Parts<'b>, usize);
    impl Read for Widest<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = self.1.max(into.len());
            self.0.read(into)
        }
    }
    let bytes = long_frame(0x82, 1 << 20);
    let mut incoming = Incoming::new(1 << 20, 128, false);
    let mut source = Widest(Parts(bytes.chunks(1 << 10).collect()), 0);
    assert!(
        matches!(incoming.next(&mut source), Ok(FrameEvent::Message(Message::Binary(event))) if event.len() == 1 << 20)
    );
    // Less space would need more system calls than large frames should.
    assert_eq!(source.1, 16 << 10);
}

#[test]
fn nothing_is_read_after_a_fault_or_a_close() {
    for end in [frame(0x83, b"x"), frame(0x88, b"")] {
        let (all, _) = read(vec![&[frame(0x81, b"hello"), end, frame(0x81, b"hello")].concat()]);
        assert_eq!(all.iter().filter(|event| **event == hello()).count(), 1, "{all:?}");
    }
}

/// A hub identifies its sockets by the value that they were accepted with.
#[test]
fn a_message_reaches_the_sockets_of_its_room() {
    let rooms =
        WebSocketHub::<String>::new(WebSockets::new().protocols(&["talk"][..]), |hub, from, event| {
            let what = match event {
                SocketEvent::Joined => "joined",
                SocketEvent::Left => "left",
                SocketEvent::Message(_) => "spoke",
            };
            let said = format!("{} of {} {what} {:?}", from.id, from.value, from.protocol);
            hub.send_where(&said.into(), |socket| socket.value == from.value);
        });
    let own = rooms.clone();
    let mut client = TestClient::new(move |req: &mut Request| own.join_as(req, req.path().to_owned()));
    let mut one = client.get("/a").header("sec-websocket-protocol", "talk").websocket();
    let (mut two, mut other) = (client.websocket("/a"), client.websocket("/b"));
    two.send("hello");
    let mut names: Vec<String> = rooms.sockets().iter().map(|socket| socket.value.clone()).collect();
    names.sort();
    assert_eq!(names, ["/a", "/a", "/b"]);
    drop(two);
    for said in
        ["1 of /a joined Some(\"talk\")", "2 of /a joined None", "2 of /a spoke None", "2 of /a left None"]
    {
        assert_eq!(one.read(), Some(Message::from(said)));
    }
    assert_eq!(other.read(), Some(Message::from("3 of /b joined None")));
    assert_eq!((one.read(), other.read()), (None, None));
}

/// An unresponsive client gets a ping and is then disconnected, however much is sent to it in between.
#[test]
fn a_client_that_does_not_read_is_disconnected_while_the_hub_sends() {
    let left = Arc::new(AtomicBool::new(false));
    let note = left.clone();
    let hub = WebSocketHub::new(WebSockets::new(), move |_, _, event| {
        note.fetch_or(event == SocketEvent::Left, Relaxed);
    });
    let own = hub.clone();
    let mut connection = TestClient::new(move |req: &mut Request| own.join(req)).connect();
    connection.send(format!("GET / HTTP/1.1\r\n{ASK}{KEY}{VERSION}\r\n"));
    assert!(connection.received().starts_with(b"HTTP/1.1 101 "));
    let (mut talk, mut pings) = (Vec::new(), 0);
    for _ in 0..12 {
        hub.send(&"x".into());
        connection.advance(Duration::from_secs(5));
        let sent = connection.received();
        pings += sent.windows(2).filter(|two| *two == b"\x89\x00").count();
        talk.extend(sent);
    }
    assert_eq!((pings, left.load(Relaxed)), (1, true), "{talk:?}");
    assert!(connection.is_closed());
}

/// Received bytes count as activity, also a part of a frame.
#[test]
fn a_client_that_sends_gets_no_ping() {
    let hub = WebSocketHub::new(WebSockets::new(), |_, _, _| {});
    let own = hub.clone();
    let mut connection = TestClient::new(move |req: &mut Request| own.join(req)).connect();
    connection.send(format!("GET / HTTP/1.1\r\n{ASK}{KEY}{VERSION}\r\n"));
    connection.received();
    for byte in frame(0x81, b"hello") {
        connection.advance(Duration::from_secs(10));
        connection.send([byte]);
    }
    assert!(connection.received().is_empty());
    assert_eq!(hub.clients(), 1);
}

/// The server sends a close when it stops, and nothing after: RFC 6455 section 5.5.1.
#[test]
fn no_frame_follows_a_close() {
    let hub = WebSocketHub::new(WebSockets::new(), |_, _, _| {});
    let own = hub.clone();
    let mut client = TestClient::new(move |req: &mut Request| own.join(req));
    let mut connection = client.connect();
    connection.send(format!("GET / HTTP/1.1\r\n{ASK}{KEY}{VERSION}\r\n"));
    connection.received();
    client.drain();
    assert!(connection.received().starts_with(b"\x88\x18\x03\xe9the server is stopping"));
    connection.send(frame(0x89, b"ping"));
    hub.send(&"late".into());
    connection.advance(Duration::from_secs(20));
    assert_eq!(connection.received(), b"");
    connection.send(frame(0x88, b"\x03\xe9"));
    assert_eq!((connection.received(), connection.is_closed()), (Vec::new(), true));
}

/// A sender that has checked the sockets before may send after.
#[test]
fn no_frame_follows_a_close_that_came_between() {
    let hub = WebSocketHub::new(WebSockets::new(), |_, _, event| {
        assert!(!matches!(event, SocketEvent::Message(_)), "as asked");
    });
    type Closing = fn(&WebSocketHub<()>, &mut TestClient, SocketId);
    let closings: [(Closing, &[u8]); 3] = [
        (|_, client, _| client.drain(), b"\x88\x18\x03\xe9the server is stopping"),
        (|hub, _, id| hub.close(id, 1000, ""), b"\x88\x02\x03\xe8"),
        (|hub, _, _| hub.close_all(1000, ""), b"\x88\x02\x03\xe8"),
    ];
    for (closing, said) in closings {
        let own = hub.clone();
        let client = RefCell::new(TestClient::new(move |req: &mut Request| own.join(req)));
        let connection = RefCell::new(client.borrow_mut().connect());
        connection.borrow_mut().send(format!("GET / HTTP/1.1\r\n{ASK}{KEY}{VERSION}\r\n"));
        connection.borrow_mut().received();
        let reached = hub.send_where(&"late".into(), |socket| {
            closing(&hub, &mut client.borrow_mut(), socket.id);
            assert_eq!(connection.borrow_mut().received(), said);
            true
        });
        assert_eq!(reached, 0);
        // Nor if the hub's function panics after it.
        connection.borrow_mut().send(frame(0x81, b"message"));
        assert_eq!(connection.borrow_mut().received(), b"");
    }
}

/// RFC 6455 section 5.5: a control frame has up to 125 bytes, and is not a message.
#[test]
fn the_limit_on_messages_is_none_on_control_frames() {
    let connect = || {
        let hub = WebSocketHub::new(WebSockets::new().message_bytes_max(100), |_, _, _| {});
        let mut connection = TestClient::new(move |req: &mut Request| hub.join(req)).connect();
        connection.send(format!("GET / HTTP/1.1\r\n{ASK}{KEY}{VERSION}\r\n"));
        connection.received();
        connection
    };
    let mut connection = connect();
    connection.send(frame(0x89, &[b'x'; 125]));
    assert_eq!(connection.received(), [&b"\x8a\x7d"[..], &[b'x'; 125]].concat());
    connection.send(frame(0x82, &[0; 100]));
    assert_eq!(connection.received(), b"");
    connection.send(frame(0x88, &[&b"\x03\xe8"[..], &[b'x'; 123]].concat()));
    assert_eq!(connection.received(), b"\x88\x02\x03\xe8");
    for long in [frame(0x81, &[b'x'; 101]), frame(0x01, &[b'x'; 101]), frame(0x81, &[b'x'; 126])] {
        let mut connection = connect();
        connection.send(long);
        let answer = connection.received();
        assert!(answer.starts_with(b"\x88") && answer[2..].starts_with(b"\x03\xf1"), "{answer:?}");
    }
}

#[test]
fn codes_that_must_not_be_sent_are_not() {
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000] {
        assert_eq!(frames::close(code, ""), b"\x88\x02\x03\xf3", "{code}");
    }
    for code in [1000, 1013, 1014, 3000, 4000, 4999] {
        assert_eq!(frames::close(code, "")[2..], code.to_be_bytes(), "{code}");
    }
}

#[test]
fn a_close_ends_it() {
    for (payload, said) in [
        (&b""[..], None),
        (b"\x03\xe8", Some((1000, String::new()))),
        (b"\x03\xe9bye", Some((1001, "bye".to_owned()))),
        // Codes that must not be sent are answered as a protocol error.
        (b"\x03\xed", Some((1002, "Protocol violation".to_owned()))),
    ] {
        let (all, failed) = read(vec![&frame(0x88, payload)]);
        assert_eq!(all, [FrameEvent::Close(said)]);
        assert!(matches!(failed, FrameError::Eof), "{failed:?}");
    }
    assert!(matches!(read(vec![b""]).1, FrameError::Eof));
}

#[test]
fn what_a_server_sends_is_not_masked() {
    assert_eq!(frames::message(&"hi".into(), None), b"\x81\x02hi");
    assert_eq!(frames::message(&Bytes::from("hi").into(), None), b"\x82\x02hi");
    let long = frames::message(&Message::Binary(Bytes::from(vec![7; 70_000])), None);
    assert_eq!((&long[..10], long.len()), (&[0x82, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70][..], 70_010));
    assert_eq!(frames::ping(), b"\x89\x00");
    assert_eq!(frames::pong(Bytes::from("x")), b"\x8a\x01x");
    assert_eq!(frames::close(1000, "bye"), b"\x88\x05\x03\xe8bye");
    assert_eq!(frames::close_reply(None), b"\x88\x00");
    assert_eq!(frames::close_reply(Some(&(1001, "x".into()))), b"\x88\x02\x03\xe9");
    // Cut between characters: a control frame has 125 bytes.
    assert_eq!(frames::close(1000, &"\u{e9}".repeat(100)).len(), 2 + 2 + 122);
}
