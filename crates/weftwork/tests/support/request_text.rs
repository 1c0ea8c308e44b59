//! Reads the requests that a case writes as HTTP/1.1, to send them as HTTP/2.

use tungstenite::handshake::derive_accept_key;
use weftwork_wire::hpack::encode_field;

use super::http2_exchange::Exchange;
use super::http2_exchanges::Exchanges;

/// What the next bytes are.
#[derive(Debug, Default, PartialEq)]
enum State {
    #[default]
    Head,
    /// This many bytes of a body.
    Body(usize),
    ChunkSize,
    /// This many bytes of a chunk and its line break.
    Chunk(usize),
    Trailers,
    /// Another protocol.
    Tunnel,
}

/// The text of requests that is not read yet.
#[derive(Default)]
pub(super) struct RequestText {
    bytes: Vec<u8>,
    /// How many of them are read. Removing each part from a long text would take seconds.
    used: usize,
    state: State,
}

/// The framing of a request's body.
enum Body {
    None,
    Length(usize),
    Chunked,
    Tunnel,
}

/// Fails a case that has no meaning in HTTP/2.
#[track_caller]
fn only_http1(what: &str, text: &[u8]) -> ! {
    panic!("HTTP/1.1 only, so name the case in scripts/http2/matrix.http1: {what} in {}", text.escape_ascii())
}

impl RequestText {
    /// Reads whole parts of requests.
    #[track_caller]
    pub(super) fn read(&mut self, text: &[u8], to: &mut Exchanges) {
        self.bytes.extend_from_slice(text);
        while self.read_part(to) {}
        self.bytes.drain(..self.used);
        self.used = 0;
    }

    #[track_caller]
    fn read_part(&mut self, to: &mut Exchanges) -> bool {
        match self.state {
            State::Head => {
                self.used += self.left().iter().take_while(|byte| b"\r\n".contains(byte)).count();
                let Some(head) = self.through(b"\r\n\r\n") else { return false };
                self.state = match read_head(&head, to) {
                    Body::None => State::Head,
                    Body::Length(length) => State::Body(length),
                    Body::Chunked => State::ChunkSize,
                    Body::Tunnel => State::Tunnel,
                };
            }
            State::Body(left) => {
                let bytes = self.take(left);
                let count = bytes.len();
                if count == 0 {
                    return false;
                }
                to.send_body(bytes, count == left);
                self.state = if count == left { State::Head } else { State::Body(left - count) };
            }
            State::ChunkSize => {
                let Some(line) = self.through(b"\r\n") else { return false };
                let digits = line.split(|byte| *byte == b';' || *byte == b'\r').next().unwrap_or_default();
                let size = str::from_utf8(digits).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
                self.state = match size {
                    None => only_http1("a chunk size", &line),
                    Some(0) => State::Trailers,
                    Some(size) => State::Chunk(size + 2),
                };
            }
            State::Chunk(left) if left > 2 => {
                let bytes = self.take(left - 2);
                let count = bytes.len();
                if count == 0 {
                    return false;
                }
                to.send_body(bytes, false);
                self.state = State::Chunk(left - count);
            }
            State::Chunk(_) => {
                let Some(end) = self.left().get(..2) else { return false };
                if end != b"\r\n" {
                    only_http1("the end of a chunk", self.left());
                }
                self.used += 2;
                self.state = State::ChunkSize;
            }
            State::Trailers => {
                let trailers = match self.left().starts_with(b"\r\n") {
                    true => self.through(b"\r\n"),
                    false => self.through(b"\r\n\r\n"),
                };
                let Some(trailers) = trailers else { return false };
                let mut block = Vec::new();
                for line in lines(&trailers) {
                    let (name, value) = read_field(line);
                    encode_field(&name, value, &mut block);
                }
                to.send_end(block);
                self.state = State::Head;
            }
            State::Tunnel => {
                let bytes = self.take(usize::MAX);
                if bytes.len() == 0 {
                    return false;
                }
                to.send_body(bytes, false);
            }
        }
        true
    }

    /// Returns what is not read yet.
    fn left(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Takes at most this many bytes.
    fn take(&mut self, count: usize) -> impl ExactSizeIterator<Item = u8> {
        let count = count.min(self.left().len());
        self.used += count;
        self.bytes[self.used - count..self.used].iter().copied()
    }

    /// Takes the bytes up to and including `end`, if they are there.
    fn through(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let at = self.left().windows(end.len()).position(|part| part == end)?;
        Some(self.take(at + end.len()).collect())
    }
}

/// Returns the lines that are not empty.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let at = rest.windows(2).position(|part| part == b"\r\n")?;
        let (line, behind) = rest.split_at(at);
        rest = &behind[2..];
        (!line.is_empty()).then_some(line)
    })
}

/// Reads a field. Its value may hold any byte: the server refuses those that are not valid.
#[track_caller]
fn read_field(line: &[u8]) -> (String, &[u8]) {
    let at = line.iter().position(|byte| *byte == b':').unwrap_or_else(|| only_http1("no colon", line));
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        only_http1("a folded line", line);
    }
    let name = String::from_utf8(line[..at].to_ascii_lowercase());
    let name = name.unwrap_or_else(|_| only_http1("a name that is not text", line));
    (name, line[at + 1..].trim_ascii())
}

/// Reads a head, and begins its exchange.
#[track_caller]
fn read_head(text: &[u8], to: &mut Exchanges) -> Body {
    let mut lines = lines(text);
    let line = lines.next().expect("a request line");
    let parts: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let &[method, target, b"HTTP/1.1"] = parts.as_slice() else { only_http1("this request line", line) };
    let fields: Vec<_> = lines.map(read_field).collect();
    let all = |name: &'static str| fields.iter().filter(move |field| field.0 == name).map(|field| field.1);
    let options: Vec<String> = all("connection")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|option| String::from_utf8_lossy(option.trim_ascii()).to_ascii_lowercase())
        .collect();
    // RFC 8441 has CONNECT with the name of the protocol for it.
    let protocol = all("upgrade").next().filter(|_| options.iter().any(|option| option == "upgrade"));
    let is_tunnel = method == b"CONNECT" || protocol.is_some();
    if protocol.is_some() && (method != b"GET" || all("upgrade").count() > 1) {
        only_http1("this upgrade", text);
    }
    let body = match (all("transfer-encoding").count(), all("content-length").next()) {
        (0, None) if is_tunnel => Body::Tunnel,
        (0, None) => Body::None,
        // The server refuses a length that is not valid.
        (0, Some(length)) => match str::from_utf8(length).ok().and_then(|text| text.parse().ok()) {
            None | Some(0) => Body::None,
            Some(length) => Body::Length(length),
        },
        (1, None) if all("transfer-encoding").all(|value| value.eq_ignore_ascii_case(b"chunked")) => {
            Body::Chunked
        }
        _ => only_http1("this framing", text),
    };
    let mut hosts = all("host");
    let (mut scheme, mut authority, mut path) = (&b"http"[..], hosts.next(), target);
    if method == b"CONNECT" {
        authority = Some(target);
    } else if let Some(at) = target.windows(3).position(|part| part == b"://").filter(|at| *at < 6) {
        scheme = &target[..at];
        let rest = &target[at + 3..];
        let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
        authority = Some(&rest[..end]);
        path = match &rest[end..] {
            b"" if method == b"OPTIONS" => b"*",
            b"" => b"/",
            path => path,
        };
    }
    let mut block = Vec::new();
    encode_field(":method", protocol.map_or(method, |_| b"CONNECT"), &mut block);
    if method != b"CONNECT" {
        encode_field(":scheme", scheme, &mut block);
        encode_field(":path", path, &mut block);
    }
    if let Some(authority) = authority {
        encode_field(":authority", authority, &mut block);
    }
    if let Some(protocol) = protocol {
        encode_field(":protocol", protocol, &mut block);
    }
    for more in hosts {
        encode_field("host", more, &mut block);
    }
    for (name, value) in &fields {
        // RFC 9113 §8.2.2
        let is_of_connection = match &**name {
            "te" | "host" | "upgrade" | "connection" | "keep-alive" | "transfer-encoding"
            | "proxy-connection" => true,
            _ => options.contains(name),
        };
        if !is_of_connection {
            encode_field(name, value, &mut block);
        }
    }
    let codings = all("te").flat_map(|value| value.split(|byte| *byte == b',' || *byte == b';'));
    if codings.into_iter().any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers")) {
        encode_field("te", b"trailers", &mut block);
    }
    let upgrade = protocol.map(|protocol| {
        let mut lines = format!("connection: upgrade\r\nupgrade: {}\r\n", String::from_utf8_lossy(protocol));
        if let Some(key) = all("sec-websocket-key").next() {
            lines += &format!("sec-websocket-accept: {}\r\n", derive_accept_key(key));
        }
        lines
    });
    to.begin(Exchange {
        head: Some(block),
        is_head: method == b"HEAD",
        is_tunnel,
        upgrade,
        end: matches!(body, Body::None).then(Vec::new),
        ..Exchange::default()
    });
    if options.iter().any(|option| option == "close") {
        to.send_goaway();
    }
    body
}
