//! Responses: what is written, read back by the client's end.

use std::time::SystemTime;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::*;
use crate::{BodyLength, Date, Misuse, ResponseHead, Writing};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
const DATE: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

fn date() -> Date {
    Date::at(SystemTime::UNIX_EPOCH)
}

fn response(method: Method) -> Http2Response {
    Http2Response::new(&Http2::server(&Http2Settings::default()), 1, &method)
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
    let mut out = b"before".to_vec();
    let mut response = response(method);
    let ended = match response.write_head(head, &date(), &mut out) {
        Ok(ends) => ends,
        Err(misuse) => {
            assert_eq!((out.as_slice(), response.writing()), (&b"before"[..], Writing::Head));
            return Err(misuse);
        }
    };
    match client_reads(&out[6..]).remove(0) {
        Seen::Response { stream: 1, status, ends, fields } => {
            assert_eq!(ends, ended);
            Ok((status, fields, ends))
        }
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

    let (mut out, mut response) = (Vec::new(), response(Method::GET));
    response.write_response(&head, b"Hello, World!", &date(), &mut out).unwrap();
    let data = Seen::Data { stream: 1, content: "Hello, World!".into(), flow: 13, padding: 0, ends: true };
    assert_eq!(client_reads(&out)[1], data);
    assert_eq!(response.writing(), Writing::Whole);
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
    assert_eq!(length_of(Method::CONNECT, head(StatusCode::OK, BodyLength::Unknown)), (None, false));
    assert_eq!(length_of(Method::CONNECT, head(StatusCode::FORBIDDEN, seven)), (Some("7".into()), false));

    let mut response = response(Method::HEAD);
    assert!(!response.sends_body());
    response.write_head(&head(StatusCode::OK, seven), &date(), &mut Vec::new()).unwrap();
    assert_eq!((response.sends_body(), response.count_body(7)), (false, Ok(())));
    assert_eq!(response.finish(&[field("a", "b")], &mut Vec::new()), Ok(false));
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
    let mut response = response(Method::GET);
    response.write_head(&head, &date(), &mut Vec::new()).unwrap();
    assert!(response.closes());
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

    let mut response = response(Method::GET);
    assert!(matches!(response.count_body(0), Err(Misuse::OutOfTurn { .. })));
    let head = ResponseHead { length: BodyLength::Exact(3), ..ResponseHead::default() };
    response.write_head(&head, &date(), &mut Vec::new()).unwrap();
    assert!(matches!(response.write_head(&head, &date(), &mut Vec::new()), Err(Misuse::OutOfTurn { .. })));
    assert_eq!(response.count_body(4), Err(Misuse::TooManyBytes));
    assert_eq!((response.count_body(2), response.has_written_all()), (Ok(()), false));
    assert_eq!(response.finish(&[], &mut Vec::new()), Err(Misuse::TooFewBytes));
    assert_eq!(response.writing(), Writing::Broken);
}

#[test]
fn trailers_end_a_body_of_unknown_length() {
    let mut response = response(Method::GET);
    let (mut out, trailers) = (Vec::new(), [field("grpc-status", "0")]);
    let head = ResponseHead { length: BodyLength::Unknown, ..ResponseHead::default() };
    assert_eq!(response.write_head(&head, &date(), &mut out), Ok(false));
    assert!(response.takes_trailers());
    response.count_body(2).unwrap();
    Http2::write_data(1, b"ab", false, &mut out);
    assert_eq!(response.finish(&[field("content-length", "2")], &mut out), Err(Misuse::TrailerForbidden));
    assert_eq!(response.finish(&trailers, &mut out), Ok(true));
    let events = client_reads(&out);
    assert_eq!(events[2], Seen::Trailers { stream: 1, fields: pairs(&[("grpc-status", "0")]) });

    let mut declared = super::response::response(Method::GET);
    let head = ResponseHead { length: BodyLength::Exact(2), ..ResponseHead::default() };
    declared.write_head(&head, &date(), &mut out).unwrap();
    declared.count_body(2).unwrap();
    assert_eq!(declared.finish(&trailers, &mut out), Err(Misuse::TrailersWithoutChunks));
    assert_eq!(declared.finish(&[], &mut out), Ok(false));
}

#[test]
fn interim_responses() {
    let (mut out, mut response) = (Vec::new(), response(Method::GET));
    let link = [field("link", "</a>"), field("connection", "x")];
    response.write_interim(StatusCode::CONTINUE, &[], &mut out).unwrap();
    response.write_interim(StatusCode::EARLY_HINTS, &link, &mut out).unwrap();
    response.write_head(&ResponseHead::default(), &date(), &mut out).unwrap();
    let seen = |status, fields: &[(&str, &str)], ends| Seen::Response {
        stream: 1,
        status,
        ends,
        fields: pairs(fields),
    };
    let last = seen(200, &[("date", DATE), ("content-length", "0")], true);
    assert_eq!(client_reads(&out), [seen(100, &[], false), seen(103, &[("link", "</a>")], false), last]);
    for status in [StatusCode::SWITCHING_PROTOCOLS, StatusCode::OK] {
        let result = super::response::response(Method::GET).write_interim(status, &[], &mut out);
        assert_eq!(result, Err(Misuse::StatusNotAllowed));
    }
    assert!(matches!(
        response.write_interim(StatusCode::CONTINUE, &[], &mut out),
        Err(Misuse::OutOfTurn { .. })
    ));
}

#[test]
fn rfc8441_5_an_upgrade_is_accepted_with_200() {
    let mut text = b"/websocket".to_vec();
    let request =
        Head { protocol: Some(Span { start: 1, len: 9 }), method: Method::CONNECT, ..Head::default() };
    let fields = [
        field("upgrade", "WebSocket"),
        field("connection", "upgrade"),
        field("sec-websocket-accept", "x"),
        field("sec-websocket-protocol", "chat"),
    ];
    let status = StatusCode::SWITCHING_PROTOCOLS;
    let head =
        ResponseHead { status, fields: &fields, length: BodyLength::Exact(0), ..ResponseHead::default() };
    let (mut out, mut response) = (Vec::new(), response(Method::CONNECT));
    response.write_switch(&head, &request, &text, &date(), &mut out).unwrap();
    let want = pairs(&[("date", DATE), ("sec-websocket-protocol", "chat")]);
    assert_eq!(client_reads(&out), [Seen::Response { stream: 1, status: 200, ends: false, fields: want }]);
    assert!(response.sends_body() && !response.has_written_all() && !response.takes_trailers());
    assert_eq!((response.count_body(u64::MAX), response.finish(&[], &mut out)), (Ok(()), Ok(false)));

    text[1] = b'x';
    let mut other = super::response::response(Method::CONNECT);
    let result = other.write_switch(&head, &request, &text, &date(), &mut out);
    assert_eq!(result, Err(Misuse::UpgradeNotPossible));
    let result = other.write_switch(&ResponseHead::default(), &request, &text, &date(), &mut out);
    assert_eq!(result, Err(Misuse::StatusNotAllowed));
}

#[test]
fn a_long_head_is_cut_into_frames() {
    let value = HeaderValue::from_bytes(&[b'x'; 40_000]).unwrap();
    let fields = [(header::ETAG, value)];
    let head = ResponseHead { fields: &fields, length: BodyLength::Unknown, ..ResponseHead::default() };
    let (mut out, mut response) = (b"before".to_vec(), response(Method::HEAD));
    assert_eq!(response.write_head(&head, &date(), &mut out), Ok(true));
    let mut client = Http2::client(&Http2Settings::default());
    client.open(1);
    client.state = State::Frame;
    let (mut head, mut text, mut at) = (Head::default(), Vec::new(), 6);
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
    let mut server = Http2::server(&Http2Settings::default());
    let settings = frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
    let (mut head, mut text) = (Head::default(), Vec::new());
    for bytes in [PREFACE, &settings] {
        server.read(bytes, &Limits::default(), &mut head, &mut text).unwrap();
    }
    let mut out = Vec::new();
    let mut response = Http2Response::new(&server, 1, &Method::GET);
    let plain =
        ResponseHead { content_type: Some(&TEXT), length: BodyLength::Exact(7), ..ResponseHead::default() };
    response.write_head(&plain, &date(), &mut out).unwrap();
    assert_eq!(out[9..11], [0x20, 0x88]);
    assert!(matches!(client_reads(&out)[0], Seen::Response { status: 200, .. }));
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
