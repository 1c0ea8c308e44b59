//! Responses at the client's end: what is read, and what is refused with which fault.

use http::Method;

use super::*;
use Violation::*;

/// A client that has sent requests on the streams 1 and 3.
fn client() -> Http2 {
    let mut client = Http2::client(&Http2Settings::default());
    let head = RequestHead {
        method: &Method::GET,
        scheme: Some("http"),
        path: Some("/"),
        authority: Some("a"),
        protocol: None,
        fields: &[],
    };
    for want in [1, 3] {
        assert_eq!(client.write_request(&head, true, &mut Vec::new()), Some(want));
    }
    client
}

#[track_caller]
fn read(bytes: &[u8]) -> Result<Vec<Seen>, Violation> {
    let bytes = [&frame(kind::SETTINGS, 0, 0, b"")[..], bytes].concat();
    let talk = every_way(client, &bytes, &Limits { fields_max: 2, ..Limits::default() });
    talk.fault.map_or_else(|| Ok(talk.events[1..].to_vec()), Err)
}

#[track_caller]
fn faulty(ends: bool, fields: &[(&str, &str)], want: impl Into<Violation>) {
    match &read(&headers(1, ends, fields)).unwrap()[..] {
        [Seen::StreamError { fault, is_request: false, .. }] => {
            assert_eq!((fault.violation, fault.stream()), (want.into(), Some(1)), "{fields:?}");
        }
        other => panic!("{fields:?}: {other:?}"),
    }
}

#[test]
fn rfc9113_8_3_2_responses() {
    let ok = (":status", "200");
    let seen = read(&headers(3, false, &[ok, ("a", "b")])).unwrap();
    let fields = vec![("a".to_owned(), "b".to_owned())];
    assert_eq!(seen, [Seen::Response { stream: 3, status: 200, ends: false, fields }]);
    for status in ["", "20", "2000", "099", "600", "2 0", "+20", "101"] {
        faulty(false, &[(":status", status)], StatusInvalid);
    }
    faulty(true, &[(":status", "103")], StatusInvalid);
    faulty(true, &[ok, ok], PseudoFieldRepeated);
    faulty(true, &[("a", "b"), ok], PseudoFieldLate);
    faulty(true, &[(":path", "/")], PseudoFieldUnknown);
    faulty(false, &[("a", "b")], PseudoFieldMissing);
    faulty(true, &[ok, ("A", "b")], FieldNameUpperCase);
    faulty(true, &[ok, ("connection", "close")], ConnectionField);
    faulty(true, &[ok, ("a", "\n")], crate::Fault::FieldValueInvalid);
    faulty(true, &[ok, ("a", "b"), ("a", "b"), ("a", "b")], crate::Fault::TooManyFields);
    faulty(false, &[ok, ("content-length", "x")], crate::Fault::ContentLengthInvalid);
}

#[test]
fn trailers_that_may_be_none_are_left_out() {
    let seen = read(&headers(1, true, &[("checksum", "7"), ("content-length", "7")])).unwrap();
    assert_eq!(seen, [Seen::Trailers { stream: 1, fields: vec![("checksum".to_owned(), "7".to_owned())] }]);
}

#[test]
fn frames_that_no_server_sends() {
    assert_eq!(read(&headers(5, true, &[(":status", "200")])), Err(StreamIdle));
    assert_eq!(read(&headers(2, true, &[(":status", "200")])), Err(StreamIdle));
    assert_eq!(read(&frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, &[0, 0, 0, 2])), Err(PushNotAllowed));
    assert_eq!(read(&frame(kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 1])), Err(SettingInvalid));
    assert_eq!(read(&frame(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1])), Err(StreamIdInvalid));
}

#[test]
fn streams_run_out() {
    let mut client = client();
    let head = RequestHead {
        method: &Method::CONNECT,
        scheme: None,
        path: None,
        authority: Some("a:1"),
        protocol: None,
        fields: &[],
    };
    client.open(0x7fff_fffd);
    assert_eq!(client.write_request(&head, false, &mut Vec::new()), Some(0x7fff_ffff));
    assert_eq!(client.write_request(&head, false, &mut Vec::new()), None);
}
