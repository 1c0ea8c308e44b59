//! A gRPC service, without a gRPC crate: `cargo run -p weftwork-examples --example grpc`, then
//! `python3 scripts/http2/grpc_client.py 127.0.0.1:8080`.
//!
//! A call of gRPC is a POST over HTTP/2. Each message has a length in front, and the status of the call is a trailer.

use std::io::{self, Write};
use std::time::Duration;

use weftwork::BodyWriter;
use weftwork::prelude::*;

/// Type of the bodies of both sides.
const GRPC: &str = "application/grpc";
/// Status codes of gRPC.
const OK: u8 = 0;
const INVALID_ARGUMENT: u8 = 3;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;

/// End of a call: a code, and a sentence for the caller.
type Status = (u8, String);

/// The caller, for any number of replies.
struct Replies<'a, 'b>(&'a mut BodyWriter<'b>);

impl Replies<'_, '_> {
    /// Sends a message at once. An error means that the caller has gone or has cancelled.
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let mut frame = vec![0];
        frame.extend((message.len() as u32).to_be_bytes());
        frame.extend(message);
        self.0.write_all(&frame)?;
        self.0.flush()
    }
}

/// Makes a handler of a method that takes one message, and sends any number.
fn method<F>(call: F) -> impl Handler
where
    F: Fn(&[u8], &mut Replies<'_, '_>) -> io::Result<Status> + Clone + Send + Sync + 'static,
{
    move |req: &mut Request| {
        if !req.header("content-type").is_some_and(|given| given.starts_with(GRPC)) {
            return text("a gRPC client is needed\n").with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        let (call, message) = (call.clone(), read_message(req));
        let answer = move |out: &mut BodyWriter<'_>| {
            let (code, says) = match message {
                Ok(message) => call(&message, &mut Replies(out))?,
                Err(status) => status,
            };
            let says = HeaderValue::try_from(escaped(&says)).map_err(io::Error::other)?;
            let code = HeaderValue::from(u16::from(code));
            let fields = [("grpc-status", code), ("grpc-message", says)];
            out.trailers(&fields.map(|(name, value)| (HeaderName::from_static(name), value)))?;
            Ok(())
        };
        Response::stream(answer).with_content_type(HeaderValue::from_static(GRPC))
    }
}

/// Reads the one message of a call.
fn read_message(req: &mut Request) -> Result<Vec<u8>, Status> {
    let body = req.body().bytes().map_err(|error| (RESOURCE_EXHAUSTED, error.to_string()))?;
    match body.split_first_chunk::<5>() {
        Some(([0, length @ ..], message)) if u32::from_be_bytes(*length) as usize == message.len() => {
            Ok(message.to_vec())
        }
        Some(([1, ..], _)) => Err((UNIMPLEMENTED, "messages may not be compressed".into())),
        _ => Err((INTERNAL, "the body is not one message".into())),
    }
}

/// Escapes what a field cannot hold.
fn escaped(text: &str) -> String {
    let as_is = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'%';
    text.bytes().map(|b| if as_is(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Returns the string in field 1 of a message of Protocol Buffers. Other fields are skipped.
fn string_in(mut message: &[u8]) -> Option<&str> {
    let mut found = "";
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let length = match key & 7 {
            0 => varint(&mut message).map(|_| 0)?,
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (value, rest) = message.split_at_checked(length)?;
        if key == 0x0a {
            found = std::str::from_utf8(value).ok()?;
        }
        message = rest;
    }
    Some(found)
}

/// Takes a number from the front, at most ten bytes.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let len = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let (number, rest) = bytes.split_at(len);
    *bytes = rest;
    Some(number.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f)))
}

/// Returns a message with this string in field 1.
fn message_with(text: &str) -> Vec<u8> {
    let (mut message, mut length) = (vec![0x0a], text.len());
    while length > 0x7f {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend(text.as_bytes());
    message
}

/// Greets once, as in `helloworld.proto` of gRPC's own examples.
fn say_hello(request: &[u8], replies: &mut Replies<'_, '_>) -> io::Result<Status> {
    let Some(name) = string_in(request).filter(|name| !name.is_empty()) else {
        return Ok((INVALID_ARGUMENT, "a name is needed – any".into()));
    };
    replies.send(&message_with(&format!("Hello, {name}!")))?;
    Ok((OK, String::new()))
}

/// Greets a thousand times. The handler blocks its thread, and no other call waits.
fn say_hello_stream_reply(request: &[u8], replies: &mut Replies<'_, '_>) -> io::Result<Status> {
    let name = string_in(request).unwrap_or("nobody");
    for number in 1..=1_000 {
        replies.send(&message_with(&format!("Hello {name}, {number}")))?;
        if number > 3 {
            weftwork::sleep(Duration::from_millis(10));
        }
    }
    Ok((OK, String::new()))
}

fn site() -> impl Handler {
    Router::new()
        .post("/helloworld.Greeter/SayHello", method(say_hello))
        .post("/helloworld.Greeter/SayHelloStreamReply", method(say_hello_stream_reply))
}

fn main() -> weftwork::Result<()> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    Server::bind("127.0.0.1:8080")?.settings(|settings| settings.http2_cleartext(true)).run(site())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;
    use std::process::Command;

    use weftwork::{Proxy, Running, TestClient};
    use weftwork_wire::{Frame, Head, Http2, Http2Settings, Limits, RequestHead};

    use super::*;

    fn start() -> Running {
        let server = Server::bind("127.0.0.1:0").unwrap().settings(|settings| settings.http2_cleartext(true));
        server.start(site()).unwrap()
    }

    fn start_proxy(server: &Running) -> Running {
        let proxy = Proxy::to(&format!("h2c://{}", server.local_addr().unwrap())).unwrap();
        let front = Server::bind("127.0.0.1:0").unwrap().settings(|settings| settings.http2_cleartext(true));
        front.start(proxy).unwrap()
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat()
    }

    /// Makes a call over HTTP/2. Returns the body, and the trailers as text.
    fn call(server: &Running, path: &str, body: &[u8]) -> (Vec<u8>, String) {
        let mut socket = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let field = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let mut http = Http2::client(&Http2Settings::default());
        let mut out = Vec::new();
        http.write_preface(&mut out);
        let head = RequestHead {
            method: &Method::POST,
            scheme: Some("http"),
            path: Some(path),
            authority: Some("a"),
            protocol: None,
            fields: &[field("content-type", GRPC), field("te", "trailers")],
        };
        let stream = http.write_request(&head, false, &mut out).unwrap();
        Http2::write_data(stream, body, true, &mut out);
        socket.write_all(&out).unwrap();
        let (mut head, mut text, mut input, mut answer) =
            (Head::default(), Vec::new(), Vec::new(), Vec::new());
        let mut part = [0; 4096];
        loop {
            let count = socket.read(&mut part).unwrap();
            assert!(count > 0, "the connection ended");
            input.extend_from_slice(&part[..count]);
            loop {
                let (used, frame) = http.read(&input, &Limits::default(), &mut head, &mut text).unwrap();
                match frame {
                    Frame::Data { start, len, .. } => answer.extend_from_slice(&input[start..start + len]),
                    Frame::Trailers { .. } => {
                        let field = |(name, value): (&str, &[u8])| {
                            format!("{name}: {}\n", String::from_utf8_lossy(value))
                        };
                        let fields = head.fields.iter().map(|it| (it.name.of(&text), it.value.of(&text)));
                        let fields = fields.map(|(name, value)| (std::str::from_utf8(name).unwrap(), value));
                        return (answer, fields.map(field).collect());
                    }
                    _ => {}
                }
                input.drain(..used);
                if frame == Frame::NeedMore {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_call_is_answered_with_a_message_and_a_status() {
        let server = start();
        calls(&server);
        calls(&start_proxy(&server));
    }

    fn calls(server: &Running) {
        let greet = |message: &[u8]| call(server, "/helloworld.Greeter/SayHello", message);
        let (answer, trailers) = greet(&framed(&message_with("Ada")));
        assert_eq!(answer, framed(&message_with("Hello, Ada!")));
        assert_eq!(trailers, "grpc-status: 0\ngrpc-message: \n");
        // An unknown field is skipped.
        let (answer, _) = greet(&framed(&[&[0x10, 0x96, 0x01][..], &message_with("Ada")].concat()));
        assert_eq!(answer, framed(&message_with("Hello, Ada!")));
        for (body, status) in [
            (framed(b""), "grpc-status: 3\ngrpc-message: a name is needed %E2%80%93 any\n"),
            (framed(&[0x0a, 9, b'a']), "grpc-status: 3\n"),
            (b"\0\0\0\0\x02a".to_vec(), "grpc-status: 13\n"),
            (b"\x01\0\0\0\0".to_vec(), "grpc-status: 12\n"),
        ] {
            let (answer, trailers) = greet(&body);
            assert!(answer.is_empty() && trailers.starts_with(status), "{body:?}: {trailers}");
        }
    }

    #[test]
    fn other_clients_are_told() {
        let mut client = TestClient::new(site());
        let response = client.post("/helloworld.Greeter/SayHello").body("name=Ada").send();
        assert_eq!(response.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }

    /// Calls it with grpcio, gRPC for Python, if that is installed: `pip install grpcio`.
    #[test]
    fn a_client_of_grpc_is_answered() {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        let is_there = Command::new(&python).args(["-c", "import grpc"]).output();
        if !is_there.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: {python} has no grpcio");
            return;
        }
        let server = start();
        let proxy = start_proxy(&server);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/http2/grpc_client.py");
        for server in [&server, &proxy] {
            let address = server.local_addr().unwrap().to_string();
            let output = Command::new(&python).args([script, &address]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
    }
}
