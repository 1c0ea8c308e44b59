//! The requests of one connection of HTTP/2, and their responses as the text of HTTP/1.1, in the order of the requests.

use std::io::{self, ErrorKind};
use std::mem;

use weftwork::http::{Method, StatusCode};
use weftwork_wire::{ErrorCode, Frame, Head, Http2, Http2Settings, Limits, RequestHead, Window};

use super::http2_exchange::{Exchange, Framing, fill_body};

/// Streams that are open at once before the server has said how many it takes.
const STREAMS_MAX: u32 = 100;

pub(super) struct Exchanges {
    http: Http2,
    limits: Limits,
    head: Head,
    fields: Vec<u8>,
    input: Vec<u8>,
    output: Vec<u8>,
    has_begun: bool,
    /// In the order of their streams.
    all: Vec<Exchange>,
    /// The first one whose response is not read.
    front: usize,
    send_window: Window,
    taken: u32,
    changes: usize,
    /// The connection ends, and the server begins no stream behind this one.
    last_begun: Option<u32>,
    /// The client has ended its side.
    has_ended: bool,
    /// A GOAWAY follows the last request. Behind a GOAWAY, the server may end the connection between two requests.
    owes_goaway: bool,
    /// What a server says that has not read which protocol it is.
    plain: Option<Vec<u8>>,
}

impl Default for Exchanges {
    fn default() -> Exchanges {
        Exchanges {
            http: Http2::client(&Http2Settings::default()),
            limits: Limits { head_bytes_max: 1 << 20, fields_max: 10_000, ..Limits::default() },
            head: Head::default(),
            fields: Vec::new(),
            input: Vec::new(),
            output: Vec::new(),
            has_begun: false,
            all: Vec::new(),
            front: 0,
            send_window: Window::default(),
            taken: 0,
            changes: 0,
            last_begun: None,
            has_ended: false,
            owes_goaway: false,
            plain: None,
        }
    }
}

impl Exchanges {
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(super) fn begin_behind(&mut self, before: &[u8]) {
        self.output.splice(..0, before.iter().copied());
    }

    /// Counts what the server has sent.
    pub(super) fn changes(&self) -> usize {
        self.changes
    }

    fn begin_connection(&mut self) {
        if !mem::replace(&mut self.has_begun, true) {
            self.http.write_preface(&mut self.output);
        }
    }

    /// Begins a request.
    pub(super) fn begin(&mut self, exchange: Exchange) {
        self.all.push(exchange);
    }

    /// Sends a part of the body of the last request.
    pub(super) fn send_body(&mut self, bytes: impl Iterator<Item = u8>, ends: bool) {
        let exchange = self.all.last_mut().expect("a request");
        exchange.body.extend(bytes);
        exchange.end = ends.then(Vec::new);
    }

    /// Ends the body of the last request with these trailers.
    pub(super) fn send_end(&mut self, trailers: Vec<u8>) {
        self.all.last_mut().expect("a request").end = Some(trailers);
    }

    /// Tells the server that no request follows.
    pub(super) fn send_goaway(&mut self) {
        self.begin_connection();
        self.owes_goaway = true;
        self.fill();
    }

    /// Ends this side. A body that is not whole never will be, except that of a tunnel.
    pub(super) fn end_sending(&mut self) {
        self.has_ended = true;
        if let Some(exchange) = self.all.last_mut().filter(|exchange| exchange.is_tunnel) {
            exchange.end = Some(Vec::new());
        }
        self.send_goaway();
        if self.all.last().is_some_and(|exchange| exchange.end.is_none()) {
            Http2::write_reset(2 * self.all.len() as u32 - 1, ErrorCode::CANCEL, &mut self.output);
        }
    }

    /// Returns the frames that can leave, and the number of bytes that cannot.
    pub(super) fn take_output(&mut self) -> (Vec<u8>, usize) {
        self.fill();
        let left = self.all.iter().map(Exchange::left).sum();
        (mem::take(&mut self.output), left)
    }

    /// Returns whether the last request has become another protocol.
    pub(super) fn is_in_tunnel(&self) -> bool {
        self.all.last().is_some_and(|exchange| exchange.is_tunnel && exchange.has_head)
    }

    /// Returns whether the server takes no more bytes of the other protocol.
    pub(super) fn has_tunnel_ended(&self) -> bool {
        self.is_in_tunnel() && self.all.last().is_some_and(|exchange| exchange.reset.is_some())
    }

    /// Returns whether a part of a body can leave.
    pub(super) fn can_send(&self) -> bool {
        let has_room = |exchange: &Exchange| {
            exchange.head.is_none() && exchange.left() > 0 && exchange.send_window.available() > 0
        };
        self.send_window.available() > 0 && self.all.iter().any(has_room)
            || self.all.iter().all(|exchange| exchange.left() == 0)
    }

    fn fill(&mut self) {
        if !self.all.is_empty() {
            self.begin_connection();
        }
        let mut open = self.all.iter().filter(|exchange| exchange.is_open()).count() as u32;
        let streams_max = self.http.peer().streams_max.min(STREAMS_MAX);
        for (at, exchange) in self.all.iter_mut().enumerate() {
            let stream = 2 * at as u32 + 1;
            if exchange.head.is_some() {
                if open >= streams_max {
                    return;
                }
                open += 1;
                let ends = exchange.body.is_empty() && exchange.end.as_ref().is_some_and(Vec::is_empty);
                exchange.has_sent_all = ends;
                exchange.send_window = Window::new(self.http.peer().window);
                let block = exchange.head.take().unwrap_or_default();
                note_stream(&mut self.http, stream);
                Http2::write_block(stream, &block, false, ends, &mut self.output);
            }
            fill_body(stream, exchange, &mut self.send_window, &mut self.output);
        }
        if mem::take(&mut self.owes_goaway) {
            Http2::write_goaway(0, ErrorCode::NO_ERROR, &mut self.output);
        }
    }

    /// Takes bytes of the server.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        if self.plain.is_some() || (self.changes == 0 && bytes.starts_with(b"HTTP/1.1 ")) {
            self.changes += 1;
            return self.plain.get_or_insert_default().extend_from_slice(bytes);
        }
        self.input.extend_from_slice(bytes);
        let input = mem::take(&mut self.input);
        let mut start = 0;
        loop {
            let bytes = &input[start..];
            let read = self.http.read(bytes, &self.limits, &mut self.head, &mut self.fields);
            let (used, frame) = read.expect("the server follows the RFC");
            start += used;
            if frame == Frame::NeedMore {
                break;
            }
            self.take(frame, bytes);
        }
        self.input = input[start..].to_vec();
    }

    fn exchange(&mut self, stream: u32) -> &mut Exchange {
        self.all.get_mut(stream as usize / 2).expect("a stream of this client")
    }

    /// Returns a stream whose response has not ended.
    fn open(&mut self, stream: u32) -> &mut Exchange {
        let exchange = self.exchange(stream);
        assert!(!exchange.is_whole && exchange.reset.is_none(), "frames follow the end of stream {stream}");
        exchange
    }

    fn take(&mut self, frame: Frame, bytes: &[u8]) {
        self.changes += 1;
        match frame {
            Frame::Response { stream, status, ends } => self.take_head(stream, status, ends),
            Frame::Trailers { stream } => {
                let trailers = self.field_lines();
                let exchange = self.open(stream);
                assert!(exchange.has_head, "trailers follow a head");
                exchange.end_text(&trailers);
            }
            Frame::Data { stream, start, len, flow, ends, .. } => {
                self.taken += flow;
                let exchange = self.open(stream);
                assert!(exchange.has_head, "DATA follows a head");
                exchange.taken += flow;
                exchange.append(&bytes[start..start + len]);
                if ends {
                    exchange.end_text("");
                }
            }
            Frame::Window { stream: 0, by } => self.send_window.add(by, 0).expect("a valid window"),
            Frame::Window { stream, by } => {
                self.exchange(stream).send_window.add(by, stream).expect("a valid window");
            }
            Frame::Settings { window_shift } => {
                for exchange in self.all.iter_mut().filter(|exchange| exchange.head.is_none()) {
                    exchange.send_window.shift(window_shift).expect("a valid window");
                }
                Http2::write_settings_ack(&mut self.output);
            }
            Frame::Reset { stream, code } => {
                self.exchange(stream).reset = Some(code);
            }
            Frame::Ping(data) => Http2::write_ping_ack(data, &mut self.output),
            Frame::GoAway { last, .. } => self.last_begun = Some(last),
            Frame::StreamError { fault, .. } => panic!("the server broke a rule: {fault:?}"),
            _ => {}
        }
    }

    fn take_head(&mut self, stream: u32, status: StatusCode, ends: bool) {
        let lines = self.field_lines();
        let has_length = lines.lines().any(|line| line.starts_with("content-length: "));
        let exchange = self.open(stream);
        assert!(!exchange.has_head, "a second head");
        let reason = status.canonical_reason().unwrap_or_default();
        let mut text = match exchange.upgrade.take().filter(|_| status.is_success()) {
            Some(upgrade) => format!("HTTP/1.1 101 Switching Protocols\r\n{upgrade}{lines}"),
            None => format!("HTTP/1.1 {} {reason}\r\n{lines}", status.as_u16()),
        };
        if !status.is_informational() {
            let has_no_body = exchange.is_head || matches!(status.as_u16(), 204 | 304);
            exchange.has_head = true;
            exchange.is_tunnel &= status.is_success();
            exchange.framing = match () {
                () if has_no_body => Framing::None,
                () if has_length || exchange.is_tunnel => Framing::Plain,
                () => Framing::Chunked,
            };
            if exchange.framing == Framing::Chunked {
                text += "transfer-encoding: chunked\r\n";
            }
        }
        text += "\r\n";
        exchange.text.extend_from_slice(text.as_bytes());
        if ends {
            exchange.end_text("");
        }
    }

    fn field_lines(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a field of text");
        let fields = self.head.fields.iter();
        fields
            .map(|field| {
                format!("{}: {}\r\n", text(field.name.of(&self.fields)), text(field.value.of(&self.fields)))
            })
            .collect()
    }

    /// Takes text of the responses, in order. Returns None if there is nothing yet.
    pub(super) fn take_text(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        if let Some(plain) = &mut self.plain {
            return take(plain, into).map(Ok);
        }
        loop {
            self.grant_connection();
            let Some(exchange) = self.all.get_mut(self.front) else {
                // HTTP/1.1 closes behind such a response.
                return self.was_reset().then_some(Ok(0));
            };
            if let Some(count) = take(&mut exchange.text, into) {
                self.grant();
                return Some(Ok(count));
            }
            if !exchange.is_whole {
                return exchange.reset.map(|code| match code {
                    // The request was not begun.
                    ErrorCode::REFUSED_STREAM => Ok(0),
                    _ => Err(ErrorKind::ConnectionReset.into()),
                });
            }
            if exchange.is_tunnel {
                return Some(Ok(0));
            }
            self.front += 1;
        }
    }

    /// Whether the server has read no further than the last response that was read.
    fn was_reset(&self) -> bool {
        self.all[..self.front].last().is_some_and(|exchange| exchange.reset.is_some())
    }

    /// Whether the server has said that it takes no more: of the connection, or of the request whose response was read.
    pub(super) fn says_end(&mut self) -> bool {
        while self.all.get(self.front).is_some_and(|exchange| exchange.is_whole && exchange.text.is_empty()) {
            self.front += 1;
        }
        self.last_begun.is_some() || self.was_reset()
    }

    /// Whether the last response that was read came before the end of its request, which the server has not reset.
    pub(super) fn is_last_cut(&self) -> bool {
        let last = self.all[..self.front].last();
        let is_cut =
            |exchange: &Exchange| !exchange.is_tunnel && !exchange.has_sent_all && exchange.reset.is_none();
        self.last_begun.is_none() && last.is_some_and(is_cut)
    }

    /// Lets the server send more to any stream: each has a window of its own.
    fn grant_connection(&mut self) {
        if self.taken > Window::DEFAULT / 2 {
            Http2::write_window_update(0, mem::take(&mut self.taken), &mut self.output);
        }
    }

    /// Lets the server send as much again as was read, when that is half of a window.
    fn grant(&mut self) {
        let stream = 2 * self.front as u32 + 1;
        let exchange = &mut self.all[self.front];
        if !exchange.is_whole && exchange.taken > Window::DEFAULT / 2 {
            Http2::write_window_update(stream, mem::take(&mut exchange.taken), &mut self.output);
        }
    }

    /// Returns what a client of HTTP/1.1 reads at the end of the connection.
    pub(super) fn end(&mut self) -> io::Result<usize> {
        assert!(self.input.is_empty(), "a part of a frame is the last: {:?}", self.input);
        if self.plain.is_some() || self.has_ended {
            return Ok(0);
        }
        // A response is missing, or a part of it is.
        let stream = 2 * self.front as u32 + 1;
        let is_begun = self.last_begun.is_none_or(|last| last >= stream);
        match self.all.get(self.front) {
            Some(exchange) if !exchange.is_whole && is_begun => Err(ErrorKind::ConnectionReset.into()),
            _ => Ok(0),
        }
    }
}

/// Takes bytes, if there are some.
fn take(from: &mut Vec<u8>, into: &mut [u8]) -> Option<usize> {
    let count = from.len().min(into.len());
    into[..count].copy_from_slice(&from[..count]);
    from.drain(..count);
    (count > 0).then_some(count)
}

/// Tells the codec that the next stream is open.
fn note_stream(http: &mut Http2, stream: u32) {
    let method = Method::GET;
    let head = RequestHead {
        method: &method,
        scheme: None,
        path: None,
        authority: None,
        protocol: None,
        fields: &[],
    };
    assert_eq!(http.write_request(&head, true, &mut Vec::new()), Some(stream));
}
