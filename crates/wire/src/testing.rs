//! Feeds tests' bytes to a connection whole, byte by byte, and with a tail, and expects the same result of all
//! three.

use std::time::SystemTime;

use crate::{
    After, BodyEvent, Date, Fault, Field, Framing, Head, HeadEvent, Http1, Limits, ResponseHead, Span,
    Version,
};

/// What follows a sample, to be left alone.
const TAIL: &[u8] = b"GET /next HTTP/1.1\r\nHost: tail\r\n\r\n";

/// A request as a connection saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) authority: Option<String>,
    pub(crate) version: Version,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    pub(crate) expect_continue: bool,
    pub(crate) upgrade: bool,
    pub(crate) head_bytes: u32,
    pub(crate) body: String,
    pub(crate) trailers: Vec<(String, String)>,
    /// Its body was read to its end.
    pub(crate) is_whole: bool,
}

/// All that was read before the bytes ran out, or were refused, or the connection ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Talk {
    pub(crate) requests: Vec<Seen>,
    pub(crate) fault: Option<Fault>,
    /// Bytes used, except for those of an incomplete head. 0 after a fault.
    pub(crate) used: usize,
}

/// A text of one byte a character: tests compare bytes, and print them.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

/// Reads `bytes`, of which `step` more arrive at a time, and answers each request.
pub(crate) fn talk(bytes: &[u8], step: usize, limits: &Limits) -> Talk {
    let (mut http, mut head, mut talk) = (Http1::new(), Head::default(), Talk::default());
    let mut is_in_body = false;
    for end in (0..bytes.len()).step_by(step).map(|start| bytes.len().min(start + step)) {
        loop {
            let given = &bytes[talk.used..end];
            let result = if is_in_body {
                body_step(&mut http, given, limits, &mut talk)
            } else {
                head_step(&mut http, given, limits, &mut head, &mut talk)
            };
            match result {
                Ok(Step::NeedMore) => break,
                Ok(Step::Go) => is_in_body = true,
                Ok(Step::End) if answer(&mut http) == After::Next => is_in_body = false,
                Ok(Step::End) => return talk,
                Err(fault) => {
                    assert_eq!(http.read_head(bytes, limits, &mut head), Err(fault), "a fault is for ever");
                    assert_eq!(http.read_body(bytes, limits), Err(fault), "a fault is for ever");
                    assert_eq!(answer(&mut http), After::Linger);
                    talk.fault = Some(fault);
                    talk.used = 0;
                    return talk;
                }
            }
        }
    }
    talk
}

enum Step {
    NeedMore,
    Go,
    End,
}

fn head_step(
    http: &mut Http1,
    given: &[u8],
    limits: &Limits,
    head: &mut Head,
    talk: &mut Talk,
) -> Result<Step, Fault> {
    let HeadEvent::Head(used) = http.read_head(given, limits, head)? else { return Ok(Step::NeedMore) };
    talk.used += used;
    talk.requests.push(seen(head, given));
    Ok(Step::Go)
}

fn body_step(http: &mut Http1, given: &[u8], limits: &Limits, talk: &mut Talk) -> Result<Step, Fault> {
    let (used, event) = http.read_body(given, limits)?;
    talk.used += used;
    let Some(request) = talk.requests.last_mut() else { return Ok(Step::End) };
    match event {
        BodyEvent::NeedMore => {
            assert_eq!(used, given.len(), "a body keeps no bytes waiting");
            return Ok(Step::NeedMore);
        }
        BodyEvent::Data { start, len } => {
            assert!(len > 0 && start + len == used);
            request.body += &text(&given[start..start + len]);
        }
        BodyEvent::End => {
            assert!(http.request_is_read());
            assert_eq!(http.body_left(), Some(0));
            let trailers = http.trailers().iter();
            request.trailers = trailers.map(|(n, v)| (n.to_string(), text(v.as_bytes()))).collect();
            request.is_whole = true;
            return Ok(Step::End);
        }
    }
    Ok(Step::Go)
}

fn answer(http: &mut Http1) -> After {
    let mut out = Vec::new();
    let date = Date::at(SystemTime::UNIX_EPOCH);
    http.write_head(&ResponseHead::default(), &date, &mut out).unwrap();
    let after = http.finish(&[], &mut out).unwrap();
    http.next_request();
    after
}

fn seen(head: &Head, bytes: &[u8]) -> Seen {
    let of = |span: Span| text(span.of(bytes));
    let field = |field: &Field| (of(field.name), of(field.value));
    Seen {
        method: head.method.to_string(),
        target: of(head.target),
        path: text(head.path_in(bytes)),
        query: head.query.map(of),
        authority: head.authority.map(of),
        version: head.version,
        fields: head.fields.iter().map(field).collect(),
        framing: head.framing,
        keep_alive: head.keep_alive,
        expect_continue: head.expect_continue,
        upgrade: head.upgrade,
        head_bytes: head.bytes,
        body: String::new(),
        trailers: Vec::new(),
        is_whole: false,
    }
}

/// What `bytes` say in every split, with limits of one's own.
#[track_caller]
pub(crate) fn talk_every_way(bytes: &[u8], limits: &Limits) -> Talk {
    let whole = talk(bytes, bytes.len().max(1), limits);
    for step in [1, 2, 3, 7] {
        assert_eq!(talk(bytes, step, limits), whole, "in steps of {step}: {}", text(bytes).escape_debug());
    }
    let mut with_tail = bytes.to_vec();
    with_tail.extend_from_slice(TAIL);
    let mut tailed = talk(&with_tail, with_tail.len(), limits);
    assert_eq!(talk(&with_tail, 1, limits), tailed, "a tail byte by byte: {}", text(bytes).escape_debug());
    if whole.fault.is_none() && whole.used == bytes.len() && tailed.requests.len() > whole.requests.len() {
        let next = tailed.requests.pop().unwrap();
        assert_eq!((next.path.as_str(), next.fields[0].1.as_str()), ("/next", "tail"));
        tailed.used -= TAIL.len();
    }
    if whole.fault.is_some() || whole.used == bytes.len() {
        assert_eq!(tailed, whole, "with a tail: {}", text(bytes).escape_debug());
    }
    whole
}

/// The one request that `bytes` are, whole.
#[track_caller]
pub(crate) fn one(bytes: impl AsRef<[u8]>) -> Seen {
    let bytes = bytes.as_ref();
    let talk = talk_every_way(bytes, &Limits::default());
    assert_eq!(talk.fault, None, "{}", text(bytes).escape_debug());
    assert_eq!(talk.used, bytes.len(), "{}", text(bytes).escape_debug());
    assert_eq!(talk.requests.len(), 1);
    let request = talk.requests[0].clone();
    assert!(request.is_whole);
    request
}

/// `bytes` are refused, with this fault and no other.
#[track_caller]
pub(crate) fn refused(bytes: impl AsRef<[u8]>, want: Fault) {
    refused_within(&Limits::default(), bytes, want);
}

#[track_caller]
pub(crate) fn refused_within(limits: &Limits, bytes: impl AsRef<[u8]>, want: Fault) {
    let bytes = bytes.as_ref();
    assert_eq!(talk_every_way(bytes, limits).fault, Some(want), "{}", text(bytes).escape_debug());
}

/// `bytes` are not enough to say anything.
#[track_caller]
pub(crate) fn need_more(bytes: impl AsRef<[u8]>) {
    for step in [usize::MAX, 1] {
        let talk = talk(bytes.as_ref(), step.min(bytes.as_ref().len().max(1)), &Limits::default());
        assert_eq!(talk.fault, None);
        assert!(talk.requests.iter().all(|request| !request.is_whole));
    }
}
