//! A client of HTTP/2 that has many requests on one connection. It reads strictly, and each of its waits has a timeout.

mod tunnel;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use weftwork::http::{HeaderName, HeaderValue, Method, StatusCode};
use weftwork::{Address, Running};
use weftwork_wire::{ErrorCode, Frame, Head, Http2, Http2Settings, Limits, RequestHead, Window};

use super::TIMEOUT;
use super::answer::Answer;

pub(crate) use tunnel::Tunnel;

/// Number of a GOAWAY that only announces another.
pub(crate) const ANNOUNCED: u32 = 0x7fff_ffff;

const READ_BYTES: usize = 64 << 10;

pub(crate) struct Http2Client {
    socket: TcpStream,
    http: Http2,
    pub(crate) limits: Limits,
    head: Head,
    text: Vec<u8>,
    input: Vec<u8>,
    streams: HashMap<u32, Exchange>,
    /// Bytes that the server takes on the connection.
    send_window: Window,
    /// Bytes that were read, and that the server may not send again.
    taken: u32,
    /// Bytes that the server may send on a new stream.
    window: u32,
    /// Whether the client lets the server send more as it reads. On streams without a window at first, the test does.
    pub(crate) grants: bool,
    /// A stream on which it lets the server send no more.
    pub(crate) withholds: Option<u32>,
    /// Bytes of a read.
    pub(crate) read_bytes: usize,
    /// Whether the client answers PING.
    pub(crate) answers_pings: bool,
    pub(crate) goaways: Vec<(u32, ErrorCode)>,
    pub(crate) pings: Vec<[u8; 8]>,
    pongs: usize,
    has_ended: bool,
}

/// A request, and what has come for it.
struct Exchange {
    interim: Vec<Answer>,
    answer: Option<Answer>,
    is_head: bool,
    /// Bytes of the body that the server takes.
    send_window: Window,
    /// Bytes that were read, and that the server may not send again.
    taken: u32,
    has_ended: bool,
    reset: Option<ErrorCode>,
}

impl Http2Client {
    pub(crate) fn connect(server: &Running) -> Http2Client {
        Http2Client::connect_with(server, &Http2Settings::default())
    }

    pub(crate) fn connect_with(server: &Running, settings: &Http2Settings) -> Http2Client {
        Http2Client::connect_at(&server.addresses()[0], settings)
    }

    pub(crate) fn connect_at(address: &Address, settings: &Http2Settings) -> Http2Client {
        let Address::Tcp(address) = address else { panic!("a TCP address") };
        let socket = TcpStream::connect_timeout(address, TIMEOUT).expect("the server takes connections");
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.set_write_timeout(Some(TIMEOUT)).unwrap();
        let http = Http2::client(settings);
        let mut preface = Vec::new();
        http.write_preface(&mut preface);
        let mut client = Http2Client {
            socket,
            http,
            limits: Limits::default(),
            head: Head::default(),
            text: Vec::new(),
            input: Vec::new(),
            streams: HashMap::new(),
            send_window: Window::default(),
            taken: 0,
            window: settings.window,
            grants: true,
            withholds: None,
            read_bytes: READ_BYTES,
            answers_pings: true,
            goaways: Vec::new(),
            pings: Vec::new(),
            pongs: 0,
            has_ended: false,
        };
        client.send(&preface);
        client
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server takes bytes");
    }

    /// Sends a request without a body.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> u32 {
        self.request("GET", path, &[], true)
    }

    /// Sends several requests without a body in one write.
    #[track_caller]
    pub(crate) fn get_all<'a>(&mut self, paths: impl IntoIterator<Item = &'a str>) -> Vec<u32> {
        let mut out = Vec::new();
        let sent =
            paths.into_iter().map(|path| self.write_request("GET", path, &[], true, &mut out)).collect();
        self.send(&out);
        sent
    }

    /// Sends the head of a request.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, path: &str, fields: &[(&str, &str)], ends: bool) -> u32 {
        let mut out = Vec::new();
        let stream = self.write_request(method, path, fields, ends, &mut out);
        self.send(&out);
        stream
    }

    fn write_request(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        ends: bool,
        out: &mut Vec<u8>,
    ) -> u32 {
        let fields: Vec<_> = fields.iter().map(|(name, value)| field(name, value)).collect();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let head = RequestHead {
            method: &method,
            scheme: Some("http"),
            path: Some(path),
            authority: Some("a"),
            protocol: None,
            fields: &fields,
        };
        self.write_head(&head, ends, out)
    }

    fn write_head(&mut self, head: &RequestHead<'_>, ends: bool, out: &mut Vec<u8>) -> u32 {
        let stream = self.http.write_request(head, ends, out).expect("a stream");
        let exchange = Exchange {
            interim: Vec::new(),
            answer: None,
            is_head: *head.method == Method::HEAD,
            send_window: Window::new(self.http.peer().window),
            taken: 0,
            has_ended: false,
            reset: None,
        };
        self.streams.insert(stream, exchange);
        stream
    }

    /// Sends a request with a body, as fast as the server takes it.
    #[track_caller]
    pub(crate) fn post(&mut self, path: &str, body: &[u8], has_length: bool) -> u32 {
        let length = body.len().to_string();
        let fields = [("content-length", length.as_str())];
        let stream = self.request("POST", path, if has_length { &fields } else { &[] }, false);
        self.send_body(stream, body);
        stream
    }

    /// Sends a request and its short body in one write.
    #[track_caller]
    pub(crate) fn post_at_once(&mut self, path: &str, fields: &[(&str, &str)], body: &[u8]) -> u32 {
        let mut out = Vec::new();
        let stream = self.write_request("POST", path, fields, false, &mut out);
        Http2::write_data(stream, body, true, &mut out);
        self.send(&out);
        stream
    }

    /// Sends a whole body, or as much of it as the server takes before it resets the stream.
    #[track_caller]
    pub(crate) fn send_body(&mut self, stream: u32, body: &[u8]) {
        let mut rest = body;
        loop {
            let count = self.space(stream).min(rest.len());
            let (part, left) = rest.split_at(count);
            rest = left;
            self.send_data(stream, part, rest.is_empty());
            if rest.is_empty() || self.reset_of(stream).is_some() {
                return;
            }
            self.wait("the server takes more of a body", |client| {
                client.space(stream) > 0 || client.reset_of(stream).is_some()
            });
        }
    }

    /// Sends a part of a body, which the windows must allow.
    #[track_caller]
    pub(crate) fn send_data(&mut self, stream: u32, data: &[u8], ends: bool) {
        let exchange = self.streams.get_mut(&stream).expect("a stream of this client");
        exchange.send_window.take(data.len() as u32, stream).expect("a window");
        self.send_window.take(data.len() as u32, 0).expect("a window");
        let mut out = Vec::new();
        Http2::write_data(stream, data, ends, &mut out);
        self.send(&out);
    }

    /// Sends a part of a body with padding, which the windows must allow too.
    #[track_caller]
    pub(crate) fn send_padded(&mut self, stream: u32, data: &[u8], padding: u8, ends: bool) {
        let length = 1 + data.len() + usize::from(padding);
        let exchange = self.streams.get_mut(&stream).expect("a stream of this client");
        exchange.send_window.take(length as u32, stream).expect("a window");
        self.send_window.take(length as u32, 0).expect("a window");
        let mut out = (length as u32).to_be_bytes()[1..].to_vec();
        // DATA with PADDED, and END_STREAM.
        out.extend_from_slice(&[0, 8 | u8::from(ends)]);
        out.extend_from_slice(&stream.to_be_bytes());
        out.push(padding);
        out.extend_from_slice(data);
        out.resize(9 + length, 0);
        self.send(&out);
    }

    #[track_caller]
    pub(crate) fn send_trailers(&mut self, stream: u32, fields: &[(&str, &str)]) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| field(name, value)).collect();
        let mut out = Vec::new();
        self.http.write_trailers(stream, &fields, &mut out);
        self.send(&out);
    }

    #[track_caller]
    pub(crate) fn reset(&mut self, stream: u32) {
        let mut out = Vec::new();
        Http2::write_reset(stream, ErrorCode::CANCEL, &mut out);
        self.send(&out);
    }

    /// Lets the server send more, on a stream or on the connection (0).
    #[track_caller]
    pub(crate) fn grant(&mut self, stream: u32, by: u32) {
        let mut out = Vec::new();
        Http2::write_window_update(stream, by, &mut out);
        self.send(&out);
    }

    /// Returns how many bytes of the body the server takes now.
    pub(crate) fn space(&self, stream: u32) -> usize {
        self.streams[&stream].send_window.available().min(self.send_window.available()) as usize
    }

    pub(crate) fn reset_of(&self, stream: u32) -> Option<ErrorCode> {
        self.streams[&stream].reset
    }

    /// Returns how many bytes of the response have come.
    pub(crate) fn received(&self, stream: u32) -> usize {
        self.streams[&stream].answer.as_ref().map_or(0, |answer| answer.body.len())
    }

    /// Returns whether the whole response has come.
    pub(crate) fn has_answer(&self, stream: u32) -> bool {
        self.streams[&stream].has_ended
    }

    pub(crate) fn interim(&self, stream: u32) -> Vec<u16> {
        self.streams[&stream].interim.iter().map(|answer| answer.status).collect()
    }

    /// Waits for the response, and takes it.
    #[track_caller]
    pub(crate) fn answer(&mut self, stream: u32) -> Answer {
        self.wait("a response", |client| {
            client.streams[&stream].has_ended || client.reset_of(stream).is_some()
        });
        let exchange = self.streams.get_mut(&stream).expect("a stream");
        assert!(exchange.has_ended, "stream {stream} was reset: {:?}, {:?}", exchange.reset, exchange.answer);
        let answer = exchange.answer.take().expect("an end without a head");
        if let Some(length) =
            answer.field("content-length").filter(|_| !exchange.is_head && answer.status != 304)
        {
            assert_eq!(length, answer.body.len().to_string(), "{answer:?}");
        }
        answer
    }

    /// Waits until this many bytes of the response have come.
    #[track_caller]
    pub(crate) fn wait_for_bytes(&mut self, stream: u32, count: usize) {
        self.wait("bytes of a response", |client| client.received(stream) >= count);
    }

    /// Waits until the head of the response has come.
    #[track_caller]
    pub(crate) fn wait_for_head(&mut self, stream: u32) {
        self.wait("the head of a response", |client| client.streams[&stream].answer.is_some());
    }

    /// Waits until the server has reset the stream.
    #[track_caller]
    pub(crate) fn wait_for_reset(&mut self, stream: u32) -> ErrorCode {
        self.wait("a reset", |client| client.reset_of(stream).is_some());
        self.reset_of(stream).expect("a reset")
    }

    /// Returns when the server has read everything that was sent so far.
    #[track_caller]
    pub(crate) fn ping(&mut self) {
        let mut out = Vec::new();
        Http2::write_ping(*b"8 bytes.", &mut out);
        let pongs = self.pongs;
        self.send(&out);
        self.wait("the answer to a PING", |client| client.pongs > pongs);
    }

    /// Waits until the server has sent this many GOAWAY.
    #[track_caller]
    pub(crate) fn wait_for_goaways(&mut self, count: usize) {
        self.wait("GOAWAY", |client| client.goaways.len() >= count);
    }

    /// Reads until `is_so`.
    #[track_caller]
    pub(crate) fn wait(&mut self, what: &str, is_so: impl Fn(&Http2Client) -> bool) {
        while !is_so(self) {
            assert!(self.read_more(), "the connection ended before {what}, goaways {:?}", self.goaways);
        }
    }

    /// Expects that the server ends the connection, and has sent whole frames before. Then ends it too, as clients do.
    #[track_caller]
    pub(crate) fn ends(&mut self) {
        while self.read_more() {}
        assert!(self.input.is_empty(), "a part of a frame is the last: {:?}", self.input);
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Ends the connection in both directions, without a word.
    pub(crate) fn vanish(self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Reads once. Returns false if the server has ended its side.
    #[track_caller]
    fn read_more(&mut self) -> bool {
        if self.has_ended {
            return false;
        }
        let mut bytes = [0; READ_BYTES];
        match self.socket.read(&mut bytes[..self.read_bytes]) {
            Ok(0) => {
                self.has_ended = true;
                return false;
            }
            Ok(count) => self.input.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing came for {TIMEOUT:?}"),
            Err(error) => panic!("{error}, goaways {:?}", self.goaways),
        }
        self.read_frames();
        true
    }

    #[track_caller]
    fn read_frames(&mut self) {
        let input = std::mem::take(&mut self.input);
        let (mut start, mut out) = (0, Vec::new());
        loop {
            let bytes = &input[start..];
            let read = self.http.read(bytes, &self.limits, &mut self.head, &mut self.text);
            let (used, frame) = read.expect("the server follows the RFC");
            start += used;
            if frame == Frame::NeedMore {
                break;
            }
            self.take(frame, bytes, &mut out);
        }
        self.input = input[start..].to_vec();
        if !out.is_empty() {
            // The server may have ended the connection meanwhile.
            let _ = self.socket.write_all(&out);
        }
    }

    #[track_caller]
    fn take(&mut self, frame: Frame, bytes: &[u8], out: &mut Vec<u8>) {
        match frame {
            Frame::Response { stream, status, ends } => self.take_head(stream, status, ends),
            Frame::Trailers { stream } => {
                let trailers = self.fields();
                let exchange = self.open(stream);
                exchange.answer.as_mut().expect("trailers follow a head").trailers = trailers;
                exchange.has_ended = true;
            }
            Frame::Data { stream, start, len, flow, ends, .. } => {
                let exchange = self.open(stream);
                exchange
                    .answer
                    .as_mut()
                    .expect("DATA follows a head")
                    .body
                    .extend(&bytes[start..start + len]);
                exchange.has_ended = ends;
                exchange.taken += flow;
                self.taken += flow;
                if self.grants {
                    self.grant_taken(stream, out);
                }
            }
            Frame::Window { stream: 0, by } => self.send_window.add(by, 0).expect("a valid window"),
            Frame::Window { stream, by } => {
                let exchange = self.streams.get_mut(&stream).expect("a stream of this client");
                exchange.send_window.add(by, stream).expect("a valid window");
            }
            Frame::Settings { window_shift } => {
                for exchange in self.streams.values_mut() {
                    exchange.send_window.shift(window_shift).expect("a valid window");
                }
                Http2::write_settings_ack(out);
            }
            Frame::Reset { stream, code } => {
                self.streams.get_mut(&stream).expect("a stream of this client").reset = Some(code);
            }
            Frame::Ping(data) => {
                self.pings.push(data);
                if self.answers_pings {
                    Http2::write_ping_ack(data, out);
                }
            }
            Frame::PingAcked(_) => self.pongs += 1,
            Frame::GoAway { last, code } => self.goaways.push((last, code)),
            Frame::StreamError { fault, .. } => panic!("the server broke a rule: {fault:?}"),
            _ => {}
        }
    }

    /// Lets the server send as much again as was read, when that is half of a window.
    fn grant_taken(&mut self, stream: u32, out: &mut Vec<u8>) {
        if self.taken > Window::DEFAULT / 2 {
            Http2::write_window_update(0, std::mem::take(&mut self.taken), out);
        }
        let exchange = self.streams.get_mut(&stream).expect("a stream of this client");
        let is_withheld = self.withholds == Some(stream);
        if !exchange.has_ended && !is_withheld && self.window > 0 && exchange.taken > self.window / 2 {
            Http2::write_window_update(stream, std::mem::take(&mut exchange.taken), out);
        }
    }

    #[track_caller]
    fn take_head(&mut self, stream: u32, status: StatusCode, ends: bool) {
        let answer = Answer::of_http2(status.as_u16(), self.fields());
        let exchange = self.open(stream);
        assert!(exchange.answer.is_none(), "a second head: {answer:?}");
        if answer.is_interim() {
            exchange.interim.push(answer);
        } else {
            exchange.answer = Some(answer);
        }
        exchange.has_ended = ends;
    }

    /// Returns a stream that has not ended.
    #[track_caller]
    fn open(&mut self, stream: u32) -> &mut Exchange {
        let exchange = self.streams.get_mut(&stream).expect("a stream of this client");
        assert!(!exchange.has_ended && exchange.reset.is_none(), "frames follow the end of stream {stream}");
        exchange
    }

    fn fields(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a field of text");
        let fields = self.head.fields.iter();
        fields.map(|field| (text(field.name.of(&self.text)), text(field.value.of(&self.text)))).collect()
    }
}

fn field(name: &str, value: &str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
}
