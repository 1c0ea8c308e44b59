//! Reads the frames of an HTTP/2 connection in pieces, at both ends, and compares requests with those of HTTP/1.1.

use http::Method;
use weftwork_wire::{
    Budget, Frame, Head, HeadEvent, Http1, Http2, Http2Fault, Http2Settings, Limits, RequestHead, Span,
};

use crate::uneven;

/// Preface and SETTINGS of a client. Inputs are what follows.
const START: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Limits that short inputs can reach.
const TIGHT: Limits =
    Limits { request_line_bytes_max: 64, head_bytes_max: 256, fields_max: 6, chunk_extension_bytes_max: 16 };
/// Limits that no request reaches that HTTP/2 accepts.
const WIDE: Limits = Limits {
    request_line_bytes_max: 1 << 20,
    head_bytes_max: 1 << 20,
    fields_max: 10_000,
    chunk_extension_bytes_max: 0,
};

/// What was read: frames with the text of their fields. The parts of a DATA frame are one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Trace {
    events: Vec<(Frame, Vec<u8>)>,
    price: u64,
    fault: Option<Http2Fault>,
}

/// An end of a connection, with all that it reads into.
struct End<'a> {
    http: Http2,
    limits: &'a Limits,
    head: Head,
    text: Vec<u8>,
    used: usize,
    trace: Trace,
}

impl End<'_> {
    /// Reads on in `bytes`, which are all bytes so far. Returns false if the connection has ended.
    fn take(&mut self, bytes: &[u8]) -> bool {
        loop {
            let given = &bytes[self.used..];
            match self.http.read(given, self.limits, &mut self.head, &mut self.text) {
                Ok((0, frame)) => {
                    assert_eq!(frame, Frame::NeedMore);
                    assert!(given.len() < Http2::BYTES_AT_ONCE_MAX, "a whole frame is read");
                    return true;
                }
                Ok((used, frame)) => {
                    self.note(frame, &given[..used]);
                    self.used += used;
                }
                Err(fault) => {
                    assert_eq!(fault.stream(), None, "faults of a stream are events");
                    let again = self.http.read(bytes, self.limits, &mut self.head, &mut self.text);
                    assert_eq!(again, Err(fault), "a fault is for ever");
                    self.trace.fault = Some(fault);
                    return false;
                }
            }
        }
    }

    fn note(&mut self, frame: Frame, given: &[u8]) {
        self.trace.price += u64::from(Budget::new(0).price(&frame));
        let text = match frame {
            Frame::Part => return,
            Frame::Data { stream, start, len, flow, padding, ends } => {
                let content = &given[start..][..len];
                if let Some((Frame::Data { stream: last, ends: ended @ false, .. }, all)) =
                    self.trace.events.last_mut()
                    && flow == 0
                    && *last == stream
                {
                    *ended = ends;
                    return all.extend_from_slice(content);
                }
                let frame = Frame::Data { stream, start: 0, len: 0, flow, padding, ends };
                return self.trace.events.push((frame, content.to_vec()));
            }
            Frame::Head { .. } => {
                self.check_head();
                self.fields()
            }
            Frame::Response { .. } | Frame::Trailers { .. } => self.fields(),
            _ => Vec::new(),
        };
        self.trace.events.push((frame, text));
    }

    fn fields(&self) -> Vec<u8> {
        let fields = self.head.fields.iter();
        fields
            .flat_map(|field| [field.name.of(&self.text), b": ", field.value.of(&self.text), b"\n"].concat())
            .collect()
    }

    /// A request keeps the limits, and HTTP/1.1 reads the same from it.
    fn check_head(&self) {
        let (head, text) = (&self.head, &self.text[..]);
        assert!(text.len() <= 2 * self.limits.head_bytes_max as usize + b"host".len(), "the text is bounded");
        // One more, if Host is made of `:authority`.
        assert!(head.fields.len() <= self.limits.fields_max as usize + 1, "the fields are few");
        if head.protocol.is_some() {
            return;
        }
        let line = [head.method.as_str().as_bytes(), b" ", head.target.of(text), b" HTTP/1.1\r\n"].concat();
        let mut bytes = line;
        for field in &head.fields {
            bytes.extend([field.name.of(text), b": ", field.value.of(text), b"\r\n"].concat());
        }
        // The target of CONNECT needs no Host field to be found, and in HTTP/1.1 it needs one all the same.
        bytes.extend_from_slice(b"\r\n");
        let mut same = Head::default();
        let read = Http1::new().read_head(&bytes, &WIDE, &mut same);
        assert_eq!(read, Ok(HeadEvent::Head(bytes.len())), "{}", bytes.escape_ascii());
        assert_eq!((same.path_in(&bytes), &same.method), (head.path_in(text), &head.method));
        let of = |span: Option<Span>, bytes: &[u8]| span.map(|span| span.of(bytes).to_vec());
        assert_eq!(of(same.query, &bytes), of(head.query, text));
        assert!(same.authority.is_some() && head.authority.is_some());
    }
}

fn trace(http: Http2, bytes: &[u8], limits: &Limits, mut next_len: impl FnMut() -> usize) -> Trace {
    let (head, text) = (Head::default(), Vec::new());
    let mut end = End { http, limits, head, text, used: 0, trace: Trace::default() };
    let mut given = 0;
    while given < bytes.len() {
        given = bytes.len().min(given + next_len().max(1));
        if !end.take(&bytes[..given]) {
            break;
        }
    }
    end.trace
}

/// A client that has sent two requests.
fn client() -> Http2 {
    let mut client = Http2::client(&Http2Settings::default());
    for _ in 0..2 {
        let head = RequestHead {
            method: &Method::GET,
            scheme: Some("http"),
            path: Some("/"),
            authority: Some("a"),
            protocol: None,
            fields: &[],
        };
        client.write_request(&head, true, &mut Vec::new());
    }
    client
}

/// Reads `input` at both ends, whole and in pieces, and checks that the result is the same.
pub fn every_way(input: &[u8]) {
    let to_server = [START, input].concat();
    let server = || Http2::server(&Http2Settings::default());
    for limits in [Limits::default(), TIGHT] {
        for (end, bytes) in [(&server as &dyn Fn() -> Http2, &to_server[..]), (&client, &to_server[24..])] {
            let whole = trace(end(), bytes, &limits, || bytes.len());
            assert_eq!(trace(end(), bytes, &limits, || 1), whole, "byte by byte");
            assert_eq!(trace(end(), bytes, &limits, uneven(bytes)), whole, "in uneven pieces");
        }
    }
}
