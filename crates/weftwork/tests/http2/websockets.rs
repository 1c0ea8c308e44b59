//! Tests that WebSockets of HTTP/2 (RFC 8441) are those of HTTP/1.1, with an independent client of their frames.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Error, Message as Sent, WebSocket as Socket};
use weftwork::http::Version;
use weftwork::{
    FeedLimits, Message, Proxy, Request, Response, Router, Running, Settings, SocketEvent, WebSocketHub, WebSockets,
    websocket,
};
use weftwork_wire::ErrorCode;

use super::CASE;
use crate::support::{Http2Client, TIMEOUT, Tunnel, eventually, noise};

const VERSION: (&str, &str) = ("sec-websocket-version", "13");

struct Chat {
    server: Running,
    hub: WebSocketHub,
    left: Arc<AtomicUsize>,
}

fn echo(mut socket: weftwork::WebSocket) -> std::io::Result<()> {
    while let Some(message) = socket.read()? {
        socket.send(message)?;
    }
    Ok(())
}

fn start() -> Chat {
    start_with(|settings| settings)
}

fn start_with(change: impl FnOnce(Settings) -> Settings) -> Chat {
    let left = Arc::<AtomicUsize>::default();
    let own = left.clone();
    let limits = FeedLimits { bytes_max: 1 << 20, ..FeedLimits::default() };
    let options = WebSockets::new().message_bytes_max(8 << 20).feed_limits(limits);
    let hub = WebSocketHub::new(options.clone(), move |hub, from, event| match event {
        SocketEvent::Message(Message::Text(text)) if text == "go" => hub.close(from.id, 4000, "as asked"),
        SocketEvent::Message(message) => drop(hub.send(&message)),
        SocketEvent::Joined => assert!(hub.send_to(from.id, &"welcome".into())),
        SocketEvent::Left => drop(own.fetch_add(1, Ordering::SeqCst)),
    });
    let joined = hub.clone();
    let chosen = options.clone().protocols(&["chat.v2", "chat.v1"][..]);
    let routes = Router::new()
        .get("/hub", move |req: &mut Request| joined.join(req))
        .get("/echo", move |req: &mut Request| {
            assert_eq!((req.version(), req.method().as_str()), (Version::HTTP_2, "GET"));
            chosen.accept(req, echo)
        })
        .get("/any", |req: &mut Request| websocket(req, echo))
        .get("/bye", |req: &mut Request| {
            websocket(req, |mut socket| {
                socket.send("bye")?;
                socket.close(4001, "no more")?;
                while socket.read()?.is_some() {}
                Ok(())
            })
        })
        .get("/error", |req: &mut Request| websocket(req, |_| Err(std::io::Error::other("as asked"))))
        .get("/", || Response::text("hello"));
    let server = CASE.bind(change).start(routes).expect("the server starts");
    Chat { server, hub, left }
}

type Shared = Rc<RefCell<Http2Client>>;
type Client = Socket<Tunnel>;

impl Chat {
    fn connect(&self) -> Shared {
        Rc::new(RefCell::new(Http2Client::connect(&self.server)))
    }

    #[track_caller]
    fn is_well(&self) {
        eventually("every connection ends", || {
            let stats = self.server.stats();
            (stats.connections, self.hub.clients()) == (0, 0)
        });
    }
}

#[track_caller]
fn open_with(client: &Shared, path: &str, fields: &[(&str, &str)]) -> (crate::support::Answer, Client) {
    let stream = client.borrow_mut().connect_protocol("websocket", path, fields, false);
    let head = client.borrow_mut().head(stream);
    assert_eq!((head.status, head.field("sec-websocket-accept")), (200, None), "{head:?}");
    let config = WebSocketConfig::default();
    (head, Socket::from_raw_socket(Tunnel::new(client, stream), Role::Client, Some(config)))
}

#[track_caller]
fn open(client: &Shared, path: &str) -> Client {
    let mut socket = open_with(client, path, &[VERSION]).1;
    if path == "/hub" {
        says(&mut socket, "welcome");
    }
    socket
}

#[track_caller]
fn says(client: &mut Client, expected: &str) {
    assert_eq!(client.read().expect("a message"), Sent::text(expected));
}

/// Expects a close frame, and then the end of the server's side.
#[track_caller]
fn closes(client: &mut Client, code: u16) {
    match client.read() {
        Ok(Sent::Close(Some(close))) => assert_eq!(u16::from(close.code), code, "{close:?}"),
        other => panic!("instead of {code}: {other:?}"),
    }
    let end = client.read();
    assert!(matches!(end, Err(Error::ConnectionClosed)), "{end:?}");
    client.get_mut().ends();
}

#[test]
fn messages_come_back() {
    let chat = start();
    let client = chat.connect();
    for path in ["/echo", "/hub"] {
        let mut socket = open(&client, path);
        for sent in [
            Sent::text("hello"),
            Sent::text(""),
            Sent::text("h\u{e9}".repeat(40_000)),
            Sent::binary(noise(3 << 20)),
        ] {
            socket.send(sent.clone()).unwrap();
            let came = socket.read().unwrap();
            assert!(came == sent, "{path}: {} bytes of {}", came.len(), sent.len());
        }
        socket.send(Sent::Ping("x".into())).unwrap();
        assert_eq!(socket.read().unwrap(), Sent::Pong("x".into()));
        socket.close(None).unwrap();
        assert!(matches!(socket.read(), Ok(Sent::Close(None))));
        assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
        socket.get_mut().ends();
        let hello = client.borrow_mut().get("/");
        client.borrow_mut().answer(hello).is(200, "hello");
    }
    drop(client);
    chat.is_well();
}

#[test]
fn a_hub_sends_to_all_streams_and_connections() {
    let chat = start();
    let (first, second) = (chat.connect(), chat.connect());
    let mut sockets: Vec<_> = [&first, &first, &first, &second].map(|client| open(client, "/hub")).into();
    for round in 0..10 {
        let text = format!("round {round}");
        sockets[round % 4].send(Sent::text(text.clone())).unwrap();
        sockets.iter_mut().for_each(|socket| says(socket, &text));
    }
    assert_eq!(chat.hub.send(&"all".into()), 4);
    sockets.iter_mut().for_each(|socket| says(socket, "all"));
    sockets[0].send(Sent::text("go")).unwrap();
    closes(&mut sockets[0], 4000);
    // A client that leaves its stream, and one that leaves its connection.
    sockets[1].get_mut().reset();
    sockets[2].get_mut().end();
    sockets[2].get_mut().ends();
    drop(sockets.pop());
    drop(second);
    eventually("all have left", || chat.left.load(Ordering::SeqCst) == 4 && chat.hub.clients() == 0);
    drop((sockets, first));
    chat.is_well();
}

#[test]
fn a_socket_ends_with_its_code() {
    let chat = start();
    let client = chat.connect();
    closes(&mut open(&client, "/error"), 1011);
    let mut socket = open(&client, "/bye");
    says(&mut socket, "bye");
    closes(&mut socket, 4001);
}

/// The subprotocol and compression are negotiated as in HTTP/1.1.
#[test]
fn a_handshake_is_negotiated() {
    let chat = start();
    let client = chat.connect();
    let fields = [
        VERSION,
        ("sec-websocket-protocol", "chat.v1, chat.v2"),
        ("sec-websocket-extensions", "permessage-deflate; client_max_window_bits"),
        ("origin", "http://a"),
    ];
    let (head, mut socket) = open_with(&client, "/echo", &fields);
    assert_eq!(head.field("sec-websocket-protocol"), Some("chat.v2"));
    let extension = head.field("sec-websocket-extensions").expect("compression is accepted");
    assert!(extension.starts_with("permessage-deflate"), "{extension}");
    // "Hello" compressed (RFC 7692 section 7.2.3.1), with a mask of zeros.
    use std::io::{Read, Write};
    socket.get_mut().write_all(b"\xc1\x87\0\0\0\0\xf2\x48\xcd\xc9\xc9\x07\x00").unwrap();
    let mut frame = [0; 7];
    socket.get_mut().read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"\x81\x05Hello");
    let (head, _) = open_with(&client, "/echo", &[VERSION]);
    assert_eq!((head.field("sec-websocket-protocol"), head.field("sec-websocket-extensions")), (None, None));
}

#[test]
fn what_is_no_handshake_is_refused() {
    let chat = start();
    let client = chat.connect();
    let refused = [
        ("websocket", vec![], 400),
        ("websocket", vec![("sec-websocket-version", "8")], 400),
        ("websocket", vec![VERSION, ("origin", "http://elsewhere")], 403),
        ("other", vec![VERSION], 501),
        ("connect-udp", vec![], 501),
    ];
    for path in ["/echo", "/hub"] {
        for (protocol, fields, status) in &refused {
            let stream = client.borrow_mut().connect_protocol(protocol, path, fields, false);
            let answer = client.borrow_mut().answer(stream);
            assert_eq!(answer.status, *status, "{protocol} {fields:?}: {answer:?}");
            let says_version = answer.field("sec-websocket-version") == Some("13");
            assert_eq!(says_version, *status == 400, "{answer:?}");
        }
        let stream = client.borrow_mut().get(path);
        let answer = client.borrow_mut().answer(stream);
        assert_eq!((answer.status, answer.field("sec-websocket-version")), (400, Some("13")), "{answer:?}");
    }
    let stream = client.borrow_mut().connect_protocol("websocket", "/nowhere", &[VERSION], false);
    assert_eq!(client.borrow_mut().answer(stream).status, 404);
    let mut socket = open(&client, "/hub");
    socket.send(Sent::text("still here")).unwrap();
    says(&mut socket, "still here");
}

/// A client that reads nothing is disconnected, and the other sockets of its connection go on.
#[test]
fn a_slow_client_loses_its_socket_alone() {
    let chat = start();
    let slow = chat.connect();
    let mut quick = open(&slow, "/hub");
    let stream = slow.borrow_mut().connect_protocol("websocket", "/hub", &[VERSION], false);
    let mut stuck = Tunnel::new(&slow, stream);
    slow.borrow_mut().wait_for_bytes(stream, 9);
    let message = Message::from(weftwork::Bytes::from(noise(400_000)));
    slow.borrow_mut().withholds = Some(stream);
    let mut sent = 0;
    while chat.hub.clients() == 2 {
        sent += chat.hub.send(&message);
        assert!(quick.read().unwrap().into_data() == noise(400_000));
        assert!(sent < 100, "it is not disconnected");
    }
    assert_eq!(stuck.reset_code(), ErrorCode::CANCEL);
    chat.hub.send(&"still here".into());
    says(&mut quick, "still here");
}

/// The server behind gets the handshake of HTTP/1.1, with a key.
#[test]
fn a_proxy_passes_sockets_on() {
    let chat = start();
    let proxy = Proxy::to(&format!("http://{}", chat.server.local_addr().unwrap())).unwrap();
    let server = CASE.bind(|settings| settings).start(proxy).unwrap();
    let client = Rc::new(RefCell::new(Http2Client::connect(&server)));
    let fields = [VERSION, ("origin", "http://a"), ("sec-websocket-protocol", "chat.v1")];
    for path in ["/any", "/hub"] {
        let (_, mut socket) = open_with(&client, path, &fields);
        if path == "/hub" {
            says(&mut socket, "welcome");
        }
        for sent in [Sent::text("hello"), Sent::binary(noise(300_000))] {
            socket.send(sent.clone()).unwrap();
            assert!(socket.read().unwrap() == sent);
        }
        socket.close(None).unwrap();
        assert!(matches!(socket.read(), Ok(Sent::Close(None))));
        assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
        socket.get_mut().ends();
        socket.get_mut().end();
    }
    let stream = client.borrow_mut().connect_protocol("websocket", "/any", &[], false);
    assert_eq!(client.borrow_mut().answer(stream).status, 426);
    let stream = client.borrow_mut().connect_protocol("other", "/", &[], false);
    assert_eq!(client.borrow_mut().answer(stream).status, 501);
    drop(client);
    eventually("every connection ends", || server.stats().connections == 0);
    chat.is_well();
}

#[test]
fn a_stop_closes_every_socket() {
    let chat = start();
    let client = chat.connect();
    let mut sockets: Vec<_> = ["/hub", "/echo", "/hub", "/echo"].map(|path| open(&client, path)).into();
    let server = chat.server;
    let stop = std::thread::spawn(move || server.shutdown(TIMEOUT));
    sockets.iter_mut().for_each(|socket| closes(socket, 1001));
    client.borrow_mut().ends();
    let report = stop.join().unwrap();
    assert_eq!((report.drained, report.cut, report.stuck), (1, 0, 0), "{report}");
}

/// A client that does not answer the close frame is not waited for.
#[test]
fn a_client_that_does_not_close_is_left() {
    let chat = start_with(|settings| settings.linger_timeout(Duration::from_millis(50)));
    let client = chat.connect();
    let mut bye = open(&client, "/bye");
    assert_eq!(bye.get_mut().reset_code(), ErrorCode::CANCEL);
    let mut hub = open(&client, "/hub");
    chat.hub.close_all(4000, "all go");
    assert_eq!(hub.get_mut().reset_code(), ErrorCode::NO_ERROR);
    eventually("the hub is empty", || chat.hub.clients() == 0);
}

#[test]
fn an_idle_client_gets_a_ping() {
    let chat = start_with(|settings| settings.heartbeat(Duration::from_millis(100)));
    let client = chat.connect();
    for path in ["/echo", "/hub"] {
        let mut socket = open(&client, path);
        assert_eq!(socket.read().unwrap(), Sent::Ping("".into()));
        assert_eq!(socket.read().unwrap(), Sent::Ping("".into()));
        socket.get_mut().reset();
    }
    drop(client);
    chat.is_well();
}
