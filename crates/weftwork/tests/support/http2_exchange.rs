//! One request of HTTP/2, and its response as the text of HTTP/1.1.

use std::collections::VecDeque;

use weftwork_wire::{ErrorCode, Http2, Window};

/// Maximum bytes of a DATA frame.
const DATA_BYTES_MAX: usize = 16_384;

/// How the body of a response is written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Framing {
    #[default]
    None,
    Plain,
    Chunked,
}

#[derive(Default)]
pub(super) struct Exchange {
    /// The field block, if it is not sent.
    pub(super) head: Option<Vec<u8>>,
    pub(super) is_head: bool,
    pub(super) is_tunnel: bool,
    /// Fields of a 101, if the request asks for one.
    pub(super) upgrade: Option<String>,
    /// Bytes of the body that are not sent. They leave at the front, and there may be many.
    pub(super) body: VecDeque<u8>,
    /// The body ends behind these bytes, with this field block of trailers.
    pub(super) end: Option<Vec<u8>>,
    pub(super) has_sent_all: bool,
    pub(super) send_window: Window,
    /// The text of the response that is not read.
    pub(super) text: Vec<u8>,
    pub(super) framing: Framing,
    pub(super) has_head: bool,
    pub(super) is_whole: bool,
    pub(super) reset: Option<ErrorCode>,
    /// Bytes that came, and that the server may not send again.
    pub(super) taken: u32,
}

impl Exchange {
    /// The server counts it as open.
    pub(super) fn is_open(&self) -> bool {
        self.head.is_none() && self.reset.is_none() && !(self.is_whole && self.has_sent_all)
    }

    /// Bytes that the case has sent and that may still leave.
    pub(super) fn left(&self) -> usize {
        if self.reset.is_some() { 0 } else { self.body.len() + self.head.as_ref().map_or(0, Vec::len) }
    }
}

impl Exchange {
    pub(super) fn append(&mut self, data: &[u8]) {
        match self.framing {
            _ if data.is_empty() => {}
            Framing::None => panic!("{} bytes of a body that cannot be", data.len()),
            Framing::Plain => self.text.extend_from_slice(data),
            Framing::Chunked => {
                self.text.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                self.text.extend_from_slice(data);
                self.text.extend_from_slice(b"\r\n");
            }
        }
    }

    pub(super) fn end_text(&mut self, trailers: &str) {
        self.is_whole = true;
        match self.framing {
            Framing::Chunked => self.text.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes()),
            _ => assert_eq!(trailers, "", "trailers behind a body with a length"),
        }
    }
}

/// Sends of a body what the windows allow.
pub(super) fn fill_body(stream: u32, exchange: &mut Exchange, window: &mut Window, output: &mut Vec<u8>) {
    if exchange.reset.is_some() || exchange.has_sent_all {
        exchange.body.clear();
        return;
    }
    loop {
        let room = window.available().min(exchange.send_window.available()) as usize;
        let count = exchange.body.len().min(room).min(DATA_BYTES_MAX);
        if count == 0 {
            break;
        }
        window.take(count as u32, 0).expect("a window");
        exchange.send_window.take(count as u32, stream).expect("a window");
        let part: Vec<u8> = exchange.body.drain(..count).collect();
        let ends = exchange.body.is_empty() && exchange.end.as_ref().is_some_and(Vec::is_empty);
        Http2::write_data(stream, &part, ends, output);
        exchange.has_sent_all = ends;
    }
    if exchange.has_sent_all || !exchange.body.is_empty() {
        return;
    }
    if let Some(trailers) = &exchange.end {
        exchange.has_sent_all = true;
        match trailers.is_empty() {
            true => Http2::write_data(stream, b"", true, output),
            false => Http2::write_block(stream, trailers, false, true, output),
        }
    }
}
