//! Responses: what is written, read back by the client's end.

use std::time::SystemTime;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::stream_response::StreamResponse;
use super::*;
use crate::{BodyLength, Date, Misuse, ResponseHead, Segment};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
const DATE: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

fn date() -> Date {
    Date::at(SystemTime::UNIX_EPOCH)
}

fn response(method: Method) -> StreamResponse {
    StreamResponse::new(1, method)
}

fn field(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), HeaderValue::from_static(value))
}

/// What a client reads that has sent one request.
#[track_caller]
fn client_reads(bytes: &[u8]) -> Vec<Seen> {
    let client = || {
        let mut client = Http2::client(&Http2Settings::default());
        let head = RequestHead {
            method: &Method::GET,
            scheme: Some("http"),
            path: Some("/"),
            authority: Some("a"),
            protocol: None,
            fields: &[],
        };
        assert_eq!(client.write_request(&head, true, &mut Vec::new()), Some(1));
        client
    };
    let mut bytes = [frame(kind::SETTINGS, 0, 0, b""), bytes.to_vec()].concat();
    let talk = every_way(client, &bytes, &Limits::default());
    assert_eq!(talk.fault, None, "{}", text(&bytes).escape_debug());
    bytes.clear();
    talk.events.into_iter().skip(1).collect()
}

/// Status, fields, and whether the head ends the stream.
type Written = (u16, Vec<(String, String)>, bool);

/// The head of the response to this method: its fields after the status, and whether it ends the stream.
#[track_caller]
fn written(method: Method, head: &ResponseHead<'_>) -> Result<Written, Misuse> {
    let mut response = response(method);
    if let Err(misuse) = response.write(|http, out| http.write_head(head, &date(), out)) {
        // Another head may be tried.
        assert!(response.frames().is_empty());
        let other = ResponseHead::default();
        response.write(|http, out| http.write_head(&other, &date(), out)).unwrap();
        return Err(misuse);
    }
    match client_reads(&response.frames()).remove(0) {
        Seen::Response { stream: 1, status, ends, fields } => Ok((status, fields, ends)),
        other => panic!("{other:?}"),
    }
}

fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_plain_response() {
    let head =
        ResponseHead { content_type: Some(&TEXT), length: BodyLength::Exact(13), ..ResponseHead::default() };
    let fields = pairs(&[("date", DATE), ("content-type", "text/plain"), ("content-length", "13")]);
    assert_eq!(written(Method::GET, &head), Ok((200, fields, false)));

    let mut response = response(Method::GET);
    response.write(|http, out| http.write_response(&head, b"Hello, World!", &date(), out)).unwrap();
    let data = Seen::Data { stream: 1, content: "Hello, World!".into(), flow: 13, padding: 0, ends: true };
    assert_eq!(client_reads(&response.frames())[1], data);
    assert!(matches!(response.http.write_body(b"", &mut Vec::new()), Err(Misuse::OutOfTurn { .. })));
}

#[test]
fn content_lengths() {
    for length in [0, 9, 10, 9_999, 10_000, u64::MAX] {
        let head = ResponseHead { length: BodyLength::Exact(length), ..ResponseHead::default() };
        let fields = pairs(&[("date", DATE), ("content-length", &length.to_string())]);
        assert_eq!(written(Method::GET, &head), Ok((200, fields, length == 0)));
    }
    let unknown = ResponseHead { length: BodyLength::Unknown, ..ResponseHead::default() };
    assert_eq!(written(Method::GET, &unknown), Ok((200, pairs(&[("date", DATE)]), false)));
}

#[test]
fn rfc9110_6_4_responses_without_content() {
    let text = TEXT;
    let head = |status, length| ResponseHead {
        status,
        length,
        content_type: Some(&text),
        ..ResponseHead::default()
    };
    let length_of = |method, head| {
        let (_, fields, ends) = written(method, &head).unwrap();
        (fields.into_iter().find(|(name, _)| name == "content-length").map(|(_, value)| value), ends)
    };
    let seven = BodyLength::Exact(7);
    assert_eq!(length_of(Method::HEAD, head(StatusCode::OK, seven)), (Some("7".into()), true));
    assert_eq!(length_of(Method::HEAD, head(StatusCode::OK, BodyLength::Unknown)), (None, true));
    assert_eq!(length_of(Method::GET, head(StatusCode::NO_CONTENT, BodyLength::Exact(0))), (None, true));
    assert_eq!(length_of(Method::GET, head(StatusCode::NOT_MODIFIED, seven)), (Some("7".into()), true));
    assert_eq!(length_of(Method::GET, head(StatusCode::RESET_CONTENT, seven)), (Some("0".into()), true));
    assert_eq!(length_of(Method::CONNECT, head(StatusCode::FORBIDDEN, seven)), (Some("7".into()), false));

    let mut response = response(Method::HEAD);
    assert!(!response.http.sends_body());
    response.write(|http, out| http.write_head(&head(StatusCode::OK, seven), &date(), out)).unwrap();
    let body = response.write(|http, out| http.write_body(b"1234567", out));
    assert_eq!((response.http.sends_body(), body), (false, Ok(())));
    response.write(|http, out| http.finish(&[field("a", "b")], out)).unwrap();
    assert!(matches!(client_reads(&response.frames())[..], [Seen::Response { ends: true, .. }]));
}

#[test]
fn rfc9113_8_2_2_fields_of_a_connection_are_left_out() {
    let fields = [
        field("connection", "close, x"),
        field("keep-alive", "1"),
        field("proxy-connection", "close"),
        field("upgrade", "h2c"),
        field("te", "gzip"),
        field("vary", "x"),
    ];
    let head = ResponseHead { fields: &fields, length: BodyLength::Unknown, ..ResponseHead::default() };
    assert_eq!(written(Method::GET, &head).unwrap().1, pairs(&[("date", DATE), ("vary", "x")]));
    let mut segments = Vec::new();
    response(Method::GET).http.write_head(&head, &date(), &mut segments).unwrap();
    assert!(matches!(Segment::read(&segments), Some((_, Segment::Head { closes: true, .. }))));
}

#[test]
fn given_fields_are_kept() {
    let fields = [
        field("set-cookie", "a=b"),
        field("date", "Fri, 02 Jan 1970 00:00:00 GMT"),
        field("content-type", "text/html"),
        field("content-length", "3"),
        field("x-request-id", "7"),
    ];
    let length = BodyLength::Exact(3);
    let head = ResponseHead { fields: &fields, content_type: Some(&TEXT), length, ..ResponseHead::default() };
    let want = pairs(&[
        ("set-cookie", "a=b"),
        ("date", "Fri, 02 Jan 1970 00:00:00 GMT"),
        ("content-type", "text/html"),
        ("x-request-id", "7"),
        ("content-length", "3"),
    ]);
    assert_eq!(written(Method::GET, &head).unwrap().1, want);
    // A clock that is ahead: RFC 9110 §8.8.2.1.
    let fields = [field("last-modified", "Fri, 02 Jan 1970 00:00:00 GMT")];
    let head = ResponseHead { fields: &fields, length: BodyLength::Unknown, ..ResponseHead::default() };
    assert_eq!(written(Method::GET, &head).unwrap().1, pairs(&[("date", DATE), ("last-modified", DATE)]));
}

/// An extended CONNECT was accepted, or a plain one: the protocol follows the head.
#[test]
fn rfc8441_5_a_switch_is_a_200_before_a_tunnel() {
    let text = b"upgradewebsocket";
    let span = |start, len| Span { start, len };
    let upgrade = crate::head::Field { name: span(0, 7), value: span(7, 9) };
    let request = Head {
        version: crate::head::Version::Http2,
        upgrade: true,
        protocol: Some(span(7, 9)),
        fields: vec![upgrade],
        ..Head::default()
    };
    let fields = [field("upgrade", "websocket"), field("sec-websocket-accept", "x"), field("a", "b")];
    let head =
        ResponseHead { status: StatusCode::SWITCHING_PROTOCOLS, fields: &fields, ..ResponseHead::default() };
    let mut response = StreamResponse::of(1, &request);
    assert!(response.http.is_connect());
    let wrong = ResponseHead { fields: &fields[1..], ..head };
    let refused = response.write(|http, out| http.write_switch(&wrong, &request, text, &date(), out));
    assert_eq!(refused, Err(Misuse::UpgradeNotPossible));
    response.write(|http, out| http.write_switch(&head, &request, text, &date(), out)).unwrap();
    response.write(|_, out| out.extend_from_slice(b"frames"));
    let fields = pairs(&[("date", DATE), ("a", "b")]);
    let head = Seen::Response { stream: 1, status: 200, ends: false, fields };
    let data = Seen::Data { stream: 1, content: "frames".into(), flow: 6, padding: 0, ends: false };
    assert_eq!(client_reads(&response.frames()), [head, data]);
    assert_eq!(written(Method::CONNECT, &ResponseHead::default()).unwrap().1, pairs(&[("date", DATE)]));
}

/// A response that HTTP/1.1 refuses is refused here.
#[test]
fn misuses_are_those_of_http11() {
    let status = |status| ResponseHead { status, ..ResponseHead::default() };
    let lengths = [field("content-length", "3"), field("content-length", "3")];
    let coding = [field("transfer-encoding", "chunked")];
    let with = |fields| ResponseHead { fields, ..ResponseHead::default() };
    assert_eq!(written(Method::GET, &status(StatusCode::CONTINUE)), Err(Misuse::StatusNotAllowed));
    assert_eq!(
        written(Method::GET, &status(StatusCode::SWITCHING_PROTOCOLS)),
        Err(Misuse::UpgradeNotPossible)
    );
    assert_eq!(written(Method::GET, &with(&lengths)), Err(Misuse::ContentLengthInvalid));
    assert_eq!(written(Method::GET, &with(&lengths[..1])), Err(Misuse::ContentLengthInvalid));
    assert_eq!(written(Method::GET, &with(&coding)), Err(Misuse::TransferEncodingGiven));

    let (mut http, mut out) = (response(Method::GET).http, Vec::new());
    assert!(matches!(http.write_body(b"", &mut out), Err(Misuse::OutOfTurn { .. })));
    let head = ResponseHead { length: BodyLength::Exact(3), ..ResponseHead::default() };
    http.write_head(&head, &date(), &mut out).unwrap();
    assert!(matches!(http.write_head(&head, &date(), &mut out), Err(Misuse::OutOfTurn { .. })));
    assert_eq!(http.write_body(b"1234", &mut out), Err(Misuse::TooManyBytes));
    assert_eq!((http.write_body(b"12", &mut out), http.has_written_all()), (Ok(()), false));
    assert_eq!(http.finish(&[], &mut out), Err(Misuse::TooFewBytes));
    assert!(matches!(http.finish(&[], &mut out), Err(Misuse::OutOfTurn { .. })));
}

#[test]
fn trailers_end_a_body_of_unknown_length() {
    let (mut response, trailers) = (response(Method::GET), [field("grpc-status", "0")]);
    let head = ResponseHead { length: BodyLength::Unknown, ..ResponseHead::default() };
    response.write(|http, out| http.write_head(&head, &date(), out)).unwrap();
    assert!(response.http.sends_chunks());
    response.write(|http, out| http.write_body(b"ab", out)).unwrap();
    let forbidden = response.write(|http, out| http.finish(&[field("content-length", "2")], out));
    assert_eq!(forbidden, Err(Misuse::TrailerForbidden));
    response.write(|http, out| http.finish(&trailers, out)).unwrap();
    let data = Seen::Data { stream: 1, content: "ab".into(), flow: 2, padding: 0, ends: false };
    let last = Seen::Trailers { stream: 1, fields: pairs(&[("grpc-status", "0")]) };
    assert_eq!(client_reads(&response.frames())[1..], [data, last]);

    let (mut http, mut out) = (super::response::response(Method::GET).http, Vec::new());
    let head = ResponseHead { length: BodyLength::Exact(2), ..ResponseHead::default() };
    http.write_head(&head, &date(), &mut out).unwrap();
    http.write_body(b"ab", &mut out).unwrap();
    assert_eq!(http.finish(&trailers, &mut out), Err(Misuse::TrailersWithoutChunks));
    http.finish(&[], &mut out).unwrap();
}

#[test]
fn interim_responses() {
    let mut response = response(Method::GET);
    let link = [field("link", "</a>"), field("connection", "x")];
    response.write(|http, out| http.write_interim(StatusCode::CONTINUE, &[], out)).unwrap();
    response.write(|http, out| http.write_interim(StatusCode::EARLY_HINTS, &link, out)).unwrap();
    response.write(|http, out| http.write_head(&ResponseHead::default(), &date(), out)).unwrap();
    let seen = |status, fields: &[(&str, &str)], ends| Seen::Response {
        stream: 1,
        status,
        ends,
        fields: pairs(fields),
    };
    let last = seen(200, &[("date", DATE), ("content-length", "0")], true);
    let hints = seen(103, &[("link", "</a>")], false);
    assert_eq!(client_reads(&response.frames()), [seen(100, &[], false), hints, last]);
    let mut out = Vec::new();
    for status in [StatusCode::SWITCHING_PROTOCOLS, StatusCode::OK] {
        let result = super::response::response(Method::GET).http.write_interim(status, &[], &mut out);
        assert_eq!(result, Err(Misuse::StatusNotAllowed));
    }
    let late = response.http.write_interim(StatusCode::CONTINUE, &[], &mut out);
    assert!(matches!(late, Err(Misuse::OutOfTurn { .. })) && out.is_empty());
}

#[test]
fn a_long_head_is_cut_into_frames() {
    let value = HeaderValue::from_bytes(&[b'x'; 40_000]).unwrap();
    let fields = [(header::ETAG, value)];
    let head = ResponseHead { fields: &fields, length: BodyLength::Unknown, ..ResponseHead::default() };
    let mut response = response(Method::HEAD);
    response.write(|http, out| http.write_head(&head, &date(), out)).unwrap();
    let out = response.frames();
    let mut client = Http2::client(&Http2Settings::default());
    client.open(1);
    client.state = State::Frame;
    let (mut head, mut text, mut at) = (Head::default(), Vec::new(), 0);
    let limits = Limits { head_bytes_max: 50_000, ..Limits::default() };
    let mut frames = Vec::new();
    while at < out.len() {
        let (used, frame) = client.read(&out[at..], &limits, &mut head, &mut text).unwrap();
        at += used;
        frames.push(frame);
    }
    let last = Frame::Response { stream: 1, status: StatusCode::OK, ends: true };
    assert_eq!(frames, [Frame::Part, Frame::Part, last]);
    assert_eq!(head.fields[1].value.len, 40_000);
}

/// RFC 7541 §4.2, §6.3: a peer that has lowered the size of the table waits for us to confirm it.
#[test]
fn a_smaller_table_is_confirmed() {
    for len in [1, PAYLOAD_BYTES_MAX - 1, PAYLOAD_BYTES_MAX, 2 * PAYLOAD_BYTES_MAX] {
        let (mut block, mut out) = (vec![0x88], Vec::new());
        block.resize(len, 0x86);
        Http2::write_block(1, &block, true, true, &mut out);
        assert_eq!(out[9..11], [0x20, 0x88]);
        assert!(
            out[..9]
                == Header {
                    len: (len + 1).min(PAYLOAD_BYTES_MAX) as u32,
                    kind: kind::HEADERS,
                    flags: out[4],
                    stream: 1
                }
                .bytes()
        );
        assert_eq!(out[4] & flag::END_HEADERS != 0, len < PAYLOAD_BYTES_MAX);
    }
    let mut client = Http2::client(&Http2Settings::default());
    let settings = frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
    client.read(&settings, &Limits::default(), &mut Head::default(), &mut Vec::new()).unwrap();
    let mut out = Vec::new();
    client.write_trailers(1, &[field("a", "b")], &mut out);
    assert_eq!(out[9], 0x20);
}

#[test]
fn data_is_cut_into_frames() {
    let mut out = Vec::new();
    Http2::write_data(1, b"", false, &mut out);
    assert!(out.is_empty());
    Http2::write_data(1, &[b'x'; 2 * PAYLOAD_BYTES_MAX], true, &mut out);
    assert_eq!(out.len(), 2 * (PAYLOAD_BYTES_MAX + 9));
    assert_eq!((out[4], out[9 + PAYLOAD_BYTES_MAX + 4]), (0, flag::END_STREAM));
    out.clear();
    Http2::write_data(1, b"", true, &mut out);
    assert_eq!(out, data(1, true, b""));
}

#[test]
fn frames_of_the_connection() {
    let mut out = Vec::new();
    Http2::write_ping(*b"12345678", &mut out);
    Http2::write_ping_ack(*b"12345678", &mut out);
    Http2::write_window_update(0, 7, &mut out);
    Http2::write_window_update(1, 8, &mut out);
    Http2::write_reset(1, ErrorCode::CANCEL, &mut out);
    Http2::write_goaway(0x7fff_ffff, ErrorCode::NO_ERROR, &mut out);
    Http2::write_settings_ack(&mut out);
    let want = [
        Frame::Ping(*b"12345678"),
        Frame::PingAcked(*b"12345678"),
        Frame::Window { stream: 0, by: 7 },
        Frame::Window { stream: 1, by: 8 },
        Frame::Reset { stream: 1, code: ErrorCode::CANCEL },
        Frame::GoAway { last: 0x7fff_ffff, code: ErrorCode::NO_ERROR },
        Frame::SettingsAcked,
    ];
    assert_eq!(client_reads(&out), want.map(Seen::Other));
}
