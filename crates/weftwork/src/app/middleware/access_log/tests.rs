//! Tests that each request has exactly one line, which is correct in all parts, and that no client can write a
//! line.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use http::StatusCode;

use super::*;
use crate::app::middleware::{HandlerExt, RequestIds, User};
use crate::message::{BodyError, BodyWriter, Handler, Problem};

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Shared {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(data);
        Ok(data.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the line for one request. Its date and duration are checked here and removed.
fn line(format: LogFormat, head: String, handler: impl Handler) -> String {
    let written = Shared::default();
    let log = AccessLog::to(format, written.clone()).unwrap();
    let mut client = crate::TestClient::new(handler.with(log));
    client.peer("192.0.2.7:1234".parse().unwrap());
    let mut connection = client.connect();
    connection.send(head);
    drop((connection, client));
    let line = written.text();
    assert_eq!(line.matches('\n').count(), 1, "{line:?}");
    line.trim_end().to_owned()
}

fn common(head: String, handler: impl Handler) -> String {
    let line = line(LogFormat::Common, head, handler);
    let (start, rest) = line.split_once(" [").unwrap();
    let (date, rest) = rest.split_once("] ").unwrap();
    assert_eq!((date.len(), &date[20..]), (26, " +0000"), "{date}");
    let (rest, seconds) = rest.rsplit_once(' ').unwrap();
    assert!(seconds.parse::<f64>().unwrap() < 10.0);
    format!("{start} {rest}")
}

fn asking(method: &str, path: &str, fields: &[(&str, &str)]) -> String {
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: here.example\r\n{fields}\r\n")
}

fn plain(path: &str) -> String {
    asking("GET", path, &[])
}

#[test]
fn a_line_says_what_happened() {
    let hello = |_: &mut Request<'_>| "hello";
    assert_eq!(common(plain("/a?b=c"), hello), r#"192.0.2.7 - - "GET /a?b=c HTTP/1.1" 200 5"#);
    let head = asking("HEAD", "/", &[]);
    assert_eq!(common(head, hello), r#"192.0.2.7 - - "HEAD / HTTP/1.1" 200 0"#);
    assert_eq!(common(plain("/"), |_: &mut Request<'_>| ()), r#"192.0.2.7 - - "GET / HTTP/1.1" 204 0"#);
    let old = "GET / HTTP/1.0\r\n\r\n".to_owned();
    assert_eq!(common(old, |_: &mut Request<'_>| "x"), r#"192.0.2.7 - - "GET / HTTP/1.0" 200 1"#);
}

/// For a response that is sent later, the line shows what was sent, and when.
#[test]
fn a_response_that_comes_later_has_its_line_then() {
    let written = Shared::default();
    let log = AccessLog::to(LogFormat::Common, written.clone()).unwrap();
    let (kept, senders) = channel();
    let handler = move |_: &mut Request<'_>| {
        let (sender, response) = Response::later(std::time::Duration::from_secs(60), StatusCode::NO_CONTENT);
        kept.send(sender).unwrap();
        response
    };
    let mut client = crate::TestClient::new(handler.with(log)).connect();
    client.send("GET /news HTTP/1.1\r\nHost: a\r\n\r\n");
    senders.recv().unwrap().send((StatusCode::CREATED, "it rains")).unwrap();
    assert_eq!(client.response().text(), "it rains");
    client.send("GET /left HTTP/1.1\r\nHost: a\r\n\r\n");
    client.reset();
    drop(client);
    let lines = written.text();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("GET /news HTTP/1.1\" 201 8 "), "{lines:?}");
    assert!(lines[1].contains("GET /left HTTP/1.1\" 499 0 "), "{lines:?}");
}

/// Also if only a head was sent, and its fallback has a body.
#[test]
fn a_head_that_comes_later_is_whole() {
    let later = |_: &mut Request<'_>| {
        let (sender, response) = Response::later(std::time::Duration::from_secs(60), "nothing new");
        sender.send(StatusCode::NO_CONTENT).unwrap();
        response
    };
    let written = Shared::default();
    let log = AccessLog::to(LogFormat::Json, written.clone()).unwrap();
    let mut client = crate::TestClient::new(later.with(log));
    assert_eq!(client.get("/").send().status, StatusCode::NO_CONTENT);
    drop(client);
    let line = written.text();
    assert!(line.contains(r#""status":204,"bytes":0,"whole":true"#), "{line}");
}

#[test]
fn the_combined_form_has_referer_and_agent() {
    let fields = [("Referer", "http://there.example/"), ("User-Agent", "a browser")];
    let full = line(LogFormat::Combined, asking("GET", "/", &fields), |_: &mut Request<'_>| "hello");
    assert!(full.contains(r#" 200 5 "http://there.example/" "a browser" 0."#), "{full}");
    let bare = line(LogFormat::Combined, plain("/"), |_: &mut Request<'_>| "hello");
    assert!(bare.contains(r#" 200 5 "-" "-" 0."#), "{bare}");
}

#[test]
fn a_stream_is_logged_when_it_is_over() {
    let stream = |_: &mut Request<'_>| Response::stream(|out| out.write_all(b"seven b"));
    assert_eq!(common(plain("/"), stream), r#"192.0.2.7 - - "GET / HTTP/1.1" 200 7"#);
    let json = line(LogFormat::Json, plain("/"), stream);
    assert!(json.contains(r#""bytes":7,"whole":true"#), "{json}");
    let json = line(LogFormat::Json, asking("HEAD", "/", &[]), stream);
    assert!(json.contains(r#""bytes":0,"whole":true"#), "{json}");
    let broken = line(LogFormat::Json, plain("/"), |_: &mut Request<'_>| {
        Response::stream(|out| {
            out.write_all(b"thre")?;
            Err(io::Error::other("as asked"))
        })
    });
    assert!(broken.contains(r#""bytes":4,"whole":false"#), "{broken}");
}

#[test]
fn a_panic_is_logged_as_the_500_that_it_becomes() {
    let handler = |_: &mut Request<'_>| -> Response { panic!("as asked") };
    assert_eq!(common(plain("/"), handler), r#"192.0.2.7 - - "GET / HTTP/1.1" 500 92"#);
}

#[test]
fn a_stream_that_does_not_begin_is_logged_with_the_status_of_its_error() {
    let status = |write: fn(&mut BodyWriter<'_>) -> io::Result<()>| {
        let line = common(plain("/"), move |_: &mut Request<'_>| Response::stream(write));
        line.rsplit_once("\" ").unwrap().1.to_owned()
    };
    assert_eq!(status(|_| Err(io::Error::other("as asked"))), "500 92");
    assert_eq!(status(|_| panic!("as asked")), "500 92");
    assert_eq!(status(|_| Err(io::Error::other(Problem::new(StatusCode::GONE)))), "410 29");
    assert_eq!(status(|_| Err(BodyError::TooLarge { limit: 1 }.into())), "413 119");
    let late = |out: &mut BodyWriter<'_>| {
        out.write_all(b"thre")?;
        panic!("as asked")
    };
    assert_eq!(status(late), "200 4");
}

#[test]
fn user_id_and_trace_are_in_the_line() {
    let named = |req: &mut Request<'_>| {
        req.extensions_mut().insert(User::new("a lice"));
        StatusCode::CREATED
    };
    assert_eq!(common(plain("/"), named), r#"192.0.2.7 - a\x20lice "GET / HTTP/1.1" 201 0"#);
    let nameless = |req: &mut Request<'_>| {
        req.extensions_mut().insert(User::new(""));
        "x"
    };
    assert_eq!(common(plain("/"), nameless), r#"192.0.2.7 - "" "GET / HTTP/1.1" 200 1"#);
    let canned = asking("GET", "/", &[("X-Request-Id", "id-7")]);
    let json: serde_json::Value =
        serde_json::from_str(&line(LogFormat::Json, canned, named.with(RequestIds::new()))).unwrap();
    assert_eq!((&json["user"], &json["request_id"]), (&"a lice".into(), &"id-7".into()));
    assert_eq!((&json["client"], &json["version"]), (&"192.0.2.7".into(), &"HTTP/1.1".into()));
    assert_eq!(json["trace_id"].as_str().unwrap().len(), 32);
    assert_eq!((&json["status"], &json["target"]), (&201.into(), &"/".into()));
}

/// Text of the program is UTF-8. Text of a client is bytes in an unknown encoding.
#[test]
fn text_of_the_program_comes_out_of_json_as_it_was() {
    let named = |req: &mut Request<'_>| {
        req.extensions_mut().insert(User::new("\u{e9}\"\u{1f980}"));
        "x"
    };
    let site = crate::Router::new().get("/caf\u{e9}", named);
    let canned = asking("GET", "/caf%C3%A9", &[("Referer", "\u{e9}")]);
    let line = line(LogFormat::Json, canned, site);
    assert!(line.contains(r#""user":"\u00e9\"\ud83e\udd80""#), "{line}");
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&json["user"], &json["route"]), (&"\u{e9}\"\u{1f980}".into(), &"/caf\u{e9}".into()));
    assert_eq!(json["referer"], "\u{c3}\u{a9}");
}

/// These are the lines in which the two ids matter most.
#[test]
fn a_panic_is_logged_with_its_user_id_and_trace() {
    let handler = |req: &mut Request<'_>| -> Response {
        req.extensions_mut().insert(User::new("alice"));
        panic!("as asked")
    };
    let canned = asking("GET", "/", &[("X-Request-Id", "id-7")]);
    let json: serde_json::Value =
        serde_json::from_str(&line(LogFormat::Json, canned, handler.with(RequestIds::new()))).unwrap();
    assert_eq!((&json["status"], &json["user"]), (&500.into(), &"alice".into()));
    assert_eq!(json["request_id"], "id-7");
    assert_eq!(json["trace_id"].as_str().map(str::len), Some(32));
}

/// CVE-2020-7694 and similar: terminals obey escape sequences, and a newline forges an entry.
#[test]
fn client_input_cannot_forge_log_lines() {
    let evil = "x\" 200 1 \"\\\u{9b}31m\u{fc}\t";
    let fields = [("User-Agent", evil), ("Referer", evil)];
    let asked = || asking("GET", "/%0a%0d'(script)", &fields);
    for format in [LogFormat::Common, LogFormat::Combined, LogFormat::Json] {
        let named = |req: &mut Request<'_>| {
            req.extensions_mut().insert(User::new("eve\n192.0.2.8 - admin \u{1b}[2J"));
            "hello"
        };
        let line = line(format, asked(), named);
        assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
        if format == LogFormat::Json {
            let json: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(json["status"], 200);
            assert!(json["agent"].as_str().unwrap().starts_with("x\" 200 1 \"\\"));
        } else {
            assert!(line.contains(r"eve\x0a192.0.2.8\x20-\x20admin\x20\x1b[2J"), "{line}");
            assert_eq!(line.matches('"').count(), if format == LogFormat::Common { 2 } else { 6 }, "{line}");
        }
    }
}

/// Blocks in its first write until the test releases it.
struct Stuck {
    entered: Sender<()>,
    go_on: Receiver<()>,
}

impl Write for Stuck {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let _ = self.entered.send(());
        let _ = self.go_on.recv();
        Ok(data.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a sink with such a writer, a channel that reports the write, and a channel that releases it.
fn stuck(lines_max: usize) -> (Sink, Receiver<()>, Sender<()>) {
    let ((entered, has_entered), (let_go, go_on)) = (channel(), channel());
    let sink = Sink::start(Box::new(Stuck { entered, go_on }), lines_max).unwrap();
    (sink, has_entered, let_go)
}

#[test]
fn a_stuck_writer_does_not_block_requests() {
    let (sink, has_entered, let_go) = stuck(10);
    sink.submit("first\n".into());
    has_entered.recv().unwrap();
    for _ in 0..15 {
        sink.submit("more\n".into());
    }
    assert_eq!(sink.dropped(), 5);
    drop(let_go);
}

/// A line may be as long as a head, and each of its bytes becomes four to six.
#[test]
fn long_lines_do_not_fill_the_memory_while_the_writer_is_stuck() {
    let (sink, has_entered, let_go) = stuck(AccessLog::LINES_MAX);
    let long = "x".repeat(100 << 10);
    sink.submit(long.clone());
    has_entered.recv().unwrap();
    let lines = AccessLog::LINES_MAX as u64;
    (0..lines).for_each(|_| sink.submit(long.clone()));
    let waiting = (lines - sink.dropped()) * long.len() as u64;
    assert!((4 << 20..=8 << 20).contains(&waiting), "{waiting} bytes wait");
    drop(let_go);
}

#[test]
fn written_lines_free_space_in_the_queue() {
    let (sink, has_entered, let_go) = stuck(AccessLog::LINES_MAX);
    let half = "x".repeat(4 << 20);
    for _ in 0..5 {
        sink.submit(half.clone());
        has_entered.recv().unwrap();
        let_go.send(()).unwrap();
    }
    assert_eq!(sink.dropped(), 0);
}

#[test]
fn lines_that_could_not_be_written_are_counted() {
    struct Broken;
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is full"))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = AccessLog::to(LogFormat::Common, Broken).unwrap();
    let handler = (|_: &mut Request<'_>| "hello").with(log.clone());
    crate::TestClient::new(handler).get("/").send();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while log.dropped() == 0 && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(log.dropped(), 1);
}

#[test]
fn a_file_is_appended_to() {
    let path = std::env::temp_dir().join(format!("weftwork-access-log-{}", std::process::id()));
    for _ in 0..2 {
        let log = AccessLog::to_file(LogFormat::Common, &path).unwrap();
        crate::TestClient::new((|_: &mut Request<'_>| "hello").with(log)).get("/").send();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    std::fs::remove_file(&path).unwrap();
    assert!(AccessLog::to_file(LogFormat::Common, path.join("none")).is_err());
}

#[test]
fn json_has_the_route_as_it_was_written() {
    let site = crate::Router::new().get("/users/{id}", |_: &mut Request<'_>| "a user");
    let json = line(LogFormat::Json, plain("/users/7"), site);
    assert!(json.contains(r#""target":"/users/7","route":"/users/{id}","version""#), "{json}");
    let json =
        line(LogFormat::Json, plain("/nobody"), crate::Router::new().get("/", |_: &mut Request<'_>| ""));
    assert!(json.contains(r#""target":"/nobody","version""#), "{json}");
}

#[cfg(feature = "compression")]
#[test]
fn a_panic_inside_decompression_is_logged_with_its_request_id() {
    let bug = |_: &mut Request<'_>| -> Response { panic!("a bug") };
    let canned = asking("POST", "/", &[("Content-Encoding", "gzip"), ("X-Request-Id", "c0ffee")]);
    let handler = bug.with(crate::middleware::Decompression::new()).with(RequestIds::new());
    let json = line(LogFormat::Json, canned, handler);
    assert!(json.contains(r#""request_id":"c0ffee""#) && json.contains(r#""status":500"#), "{json}");
}
