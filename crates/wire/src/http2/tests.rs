//! Feeds tests' bytes to a connection whole, in steps, and with a tail, and expects the same events of all.

mod client;
mod cuts;
mod differential;
mod floods;
mod frames;
mod heads;
mod response;
mod stream_response;
mod windows;

use super::*;
use crate::framing::Framing;
use crate::head::{Field, Span};
use crate::hpack::encode_field;
use frame::{Header, PAYLOAD_BYTES_MAX, flag, kind};

/// A head as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenHead {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) authority: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) fields: Vec<(String, String)>,
    pub(super) framing: Framing,
    pub(super) expect_continue: bool,
}

/// An event. The parts of a DATA frame are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Head { stream: u32, ends: bool, priority: Priority, head: SeenHead },
    Response { stream: u32, status: u16, ends: bool, fields: Vec<(String, String)> },
    Trailers { stream: u32, fields: Vec<(String, String)> },
    Data { stream: u32, content: String, flow: u32, padding: u32, ends: bool },
    StreamError { fault: Http2Fault, ends: bool, is_request: bool, method: String },
    Other(Frame),
}

/// All that was read before the bytes ran out, or were refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Talk {
    pub(super) events: Vec<Seen>,
    pub(super) fault: Option<Violation>,
    pub(super) used: usize,
    pub(super) price: u32,
}

pub(super) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

fn fields(head: &Head, bytes: &[u8]) -> Vec<(String, String)> {
    let field = |field: &Field| (text(field.name.of(bytes)), text(field.value.of(bytes)));
    head.fields.iter().map(field).collect()
}

fn seen_head(head: &Head, bytes: &[u8]) -> SeenHead {
    let of = |span: Span| text(span.of(bytes));
    assert_eq!(head.version, crate::Version::Http2);
    assert_eq!(head.bytes as usize, bytes.len());
    assert!(!bytes.starts_with(OLD_TEXT), "the text is overwritten");
    assert!(head.keep_alive && !head.upgrade && !head.is_absolute() || head.method == "CONNECT");
    SeenHead {
        method: head.method.to_string(),
        target: of(head.target),
        path: text(head.path_in(bytes)),
        query: head.query.map(of),
        authority: head.authority.map(of),
        protocol: head.protocol.map(of),
        fields: fields(head, bytes),
        framing: head.framing,
        expect_continue: head.expect_continue,
    }
}

/// What an earlier head has left.
const OLD_TEXT: &[u8] = b"old text";

/// Reads `bytes`, of which `step` more arrive at a time.
pub(super) fn talk(mut http: Http2, bytes: &[u8], step: impl Fn(usize) -> usize, limits: &Limits) -> Talk {
    // What the last head left behind must not show in the next one.
    let (mut head, mut heads_text) = (Head::default(), OLD_TEXT.to_vec());
    let (mut talk, mut end) = (Talk::default(), 0);
    while end < bytes.len() {
        end = bytes.len().min(end + step(end).max(1));
        loop {
            let given = &bytes[talk.used..end];
            match http.read(given, limits, &mut head, &mut heads_text) {
                Ok((0, frame)) => {
                    assert_eq!(frame, Frame::NeedMore);
                    assert!(given.len() < Http2::BYTES_AT_ONCE_MAX, "a whole frame is read");
                    break;
                }
                Ok((used, frame)) => {
                    note(frame, &given[..used], &head, &heads_text, &mut talk);
                    talk.used += used;
                }
                Err(fault) => {
                    assert_eq!(fault.stream(), None);
                    let again = http.read(bytes, limits, &mut head, &mut heads_text);
                    assert_eq!(again, Err(fault), "a fault is for ever");
                    talk.fault = Some(fault.violation);
                    talk.used = 0;
                    return talk;
                }
            }
        }
    }
    talk
}

fn note(frame: Frame, given: &[u8], head: &Head, heads_text: &[u8], talk: &mut Talk) {
    talk.price += Budget::new(0).price(&frame);
    let seen = match frame {
        Frame::NeedMore => panic!("bytes were used"),
        Frame::Part => return,
        Frame::Head { stream, ends, priority } => {
            Seen::Head { stream, ends, priority, head: seen_head(head, heads_text) }
        }
        Frame::Response { stream, status, ends } => {
            Seen::Response { stream, status: status.as_u16(), ends, fields: fields(head, heads_text) }
        }
        Frame::Trailers { stream } => Seen::Trailers { stream, fields: fields(head, heads_text) },
        Frame::StreamError { fault, ends, is_request } => {
            Seen::StreamError { fault, ends, is_request, method: head.method.to_string() }
        }
        Frame::Data { stream, start, len, flow, padding, ends } => {
            let content = text(&given[start..][..len]);
            match talk.events.last_mut() {
                Some(Seen::Data { stream: last, content: all, ends: ended, .. })
                    if flow == 0 && *last == stream && !*ended =>
                {
                    *all += &content;
                    *ended = ends;
                    return;
                }
                _ => Seen::Data { stream, content, flow, padding, ends },
            }
        }
        frame => Seen::Other(frame),
    };
    talk.events.push(seen);
}

/// A PING to be left alone.
const TAIL: &[u8] = b"\0\0\x08\x06\0\0\0\0\0tailtail";

/// What `bytes` say after the preface and SETTINGS, in every split.
#[track_caller]
pub(super) fn talk_within(limits: &Limits, bytes: &[u8]) -> Talk {
    let bytes = [PREFACE, &frame(kind::SETTINGS, 0, 0, b"")[..], bytes].concat();
    let mut talk = every_way(|| Http2::server(&Http2Settings::default()), &bytes, limits);
    if talk.fault.is_none_or(|_| !talk.events.is_empty()) {
        let settings = talk.events.remove(0);
        assert_eq!(settings, Seen::Other(Frame::Settings { window_shift: 0 }));
        talk.price -= 5;
    }
    talk
}

#[track_caller]
pub(super) fn every_way(http: impl Fn() -> Http2, bytes: &[u8], limits: &Limits) -> Talk {
    let whole = talk(http(), bytes, |_| bytes.len(), limits);
    for step in [1, 2, 3, 7, 100] {
        let cut = talk(http(), bytes, |_| step, limits);
        assert_eq!(cut, whole, "in steps of {step}: {}", text(bytes).escape_debug());
    }
    if whole.fault.is_some() || whole.used == bytes.len() {
        let with_tail = [bytes, TAIL].concat();
        let mut tailed = talk(http(), &with_tail, |_| with_tail.len(), limits);
        assert_eq!(talk(http(), &with_tail, |_| 1, limits), tailed, "a tail byte by byte");
        if let Some(Seen::Other(Frame::Ping(_))) = tailed.events.last()
            && tailed.fault.is_none()
        {
            tailed.events.pop();
            tailed.used -= TAIL.len();
            tailed.price -= 1;
        }
        assert_eq!(tailed, whole, "with a tail: {}", text(bytes).escape_debug());
    }
    whole
}

#[track_caller]
pub(super) fn events(bytes: &[u8]) -> Vec<Seen> {
    let talk = talk_within(&Limits::default(), bytes);
    assert_eq!(talk.fault, None, "{}", text(bytes).escape_debug());
    talk.events
}

/// `bytes` end the connection, with this fault and no other.
#[track_caller]
pub(super) fn refused(bytes: &[u8], want: Violation) {
    assert_eq!(talk_within(&Limits::default(), bytes).fault, Some(want), "{}", text(bytes).escape_debug());
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header { len: payload.len() as u32, kind, flags, stream };
    [&header.bytes()[..], payload].concat()
}

pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        let value: Vec<u8> = value.chars().map(|char| char as u8).collect();
        encode_field(name, &value, &mut block);
    }
    block
}

/// HEADERS that end the stream, or not.
pub(super) fn headers(stream: u32, ends: bool, fields: &[(&str, &str)]) -> Vec<u8> {
    let flags = flag::END_HEADERS | if ends { flag::END_STREAM } else { 0 };
    frame(kind::HEADERS, flags, stream, &block(fields))
}

/// The pseudo-fields of most requests.
pub(super) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a")];

/// A small request that ends its stream.
pub(super) fn get(stream: u32) -> Vec<u8> {
    headers(stream, true, &GET)
}

/// A request whose body is to come.
pub(super) fn post(stream: u32) -> Vec<u8> {
    headers(stream, false, &[(":method", "POST"), GET[1], GET[2], GET[3]])
}

pub(super) fn data(stream: u32, ends: bool, content: &[u8]) -> Vec<u8> {
    frame(kind::DATA, if ends { flag::END_STREAM } else { 0 }, stream, content)
}
