//! Tests that a body is read completely, within its limit, and that every failure is named.

use std::io::{BufRead, Read};

use http::StatusCode;
use weftwork_wire::Fault;

use super::Canned;
use crate::message::{BodyError, BodyWriter};

#[test]
fn parts_are_joined() {
    let mut canned = Canned::with_body(&["on", "e ", "two"]);
    assert_eq!(canned.request(100).body().text().unwrap(), "one two");
    let mut canned = Canned::with_body(&[]);
    assert_eq!(canned.request(100).body().bytes().unwrap(), "");
}

/// Reading and the limit go on if the body is requested several times.
#[test]
fn a_body_goes_on_where_it_stopped() {
    let mut canned = Canned::with_body(&["first line\nsec", "ond line\nrest"]);
    let mut request = canned.request(100);
    let mut line = String::new();
    request.body().read_line(&mut line).unwrap();
    request.body().read_line(&mut line).unwrap();
    assert_eq!(line, "first line\nsecond line\n");
    let mut one = [0];
    assert_eq!((request.body().read(&mut one).unwrap(), one), (1, [b'r']));
    assert_eq!(request.body().limit(26).text().unwrap_err(), BodyError::TooLarge { limit: 26 });
    assert_eq!(request.body().limit(27).text().unwrap(), "est");
    assert_eq!(request.body().text().unwrap(), "");
}

#[test]
fn the_limit_is_exact() {
    let too_large = Err(BodyError::TooLarge { limit: 5 });
    for (parts, fits) in
        [(&["12345"][..], true), (&["123", "45"], true), (&["123456"], false), (&["123", "456"], false)]
    {
        let mut canned = Canned::with_body(parts);
        let read = canned.request(5).body().bytes();
        assert_eq!(read.is_ok(), fits, "{parts:?}");
        assert!(fits || read == too_large);
        let mut canned = Canned::with_body(parts);
        assert!(canned.request(5).body().limit(u64::MAX).bytes().is_ok());
    }
}

#[test]
fn a_request_lowers_and_raises_the_limit() {
    let mut canned = Canned::with_body(&["123456"]).promising(6);
    let mut request = canned.request(100);
    assert_eq!((request.body_bytes_max(), request.body_left()), (100, Some(6)));
    request.set_body_bytes_max(5);
    assert_eq!(request.body().bytes(), Err(BodyError::TooLarge { limit: 5 }));
    request.set_body_bytes_max(6);
    assert!(request.body().bytes().is_ok());
}

/// A declared length above the limit is rejected before the body is read.
#[test]
fn a_declared_length_is_refused_at_once() {
    let mut canned = Canned::failing(BodyError::Timeout).promising(6);
    let read = canned.request(5).body().bytes();
    assert_eq!(read, Err(BodyError::TooLarge { limit: 5 }));
}

#[test]
fn text_is_utf8() {
    let mut canned = Canned::with_body(&["ok"]);
    canned.parts.insert(0, Ok(vec![0xff]));
    assert_eq!(canned.request(100).body().text(), Err(BodyError::NotUtf8));
}

#[cfg(feature = "json")]
#[test]
fn json_that_was_read_before_is_no_fault_of_its_client() {
    let mut canned = Canned::with_body(&["[1]"]);
    let mut request = canned.request(100);
    request.body().bytes().unwrap();
    assert_eq!(request.body().json::<Vec<u8>>(), Err(BodyError::AlreadyRead));
    // An incomplete body is the client's fault, and so is its rest.
    let mut canned = Canned::with_body(&[]);
    assert_eq!(canned.request(100).body().json::<Vec<u8>>().unwrap_err().status(), StatusCode::BAD_REQUEST);
    let mut canned = Canned::with_body(&["a line\n[1]"]);
    let mut request = canned.request(100);
    request.body().read_line(&mut String::new()).unwrap();
    assert_eq!(request.body().json::<Vec<u8>>(), Ok(vec![1]));
    let mut canned = Canned::with_body(&["a line\n"]);
    let mut request = canned.request(100);
    request.body().read_line(&mut String::new()).unwrap();
    assert_eq!(request.body().json::<Vec<u8>>().unwrap_err().status(), StatusCode::BAD_REQUEST);
}

/// Errors of each kind. The match makes a new kind fail to compile until it is added here.
fn every_error() -> Vec<BodyError> {
    let fault = Fault::ChunkSizeInvalid;
    let all = vec![
        BodyError::TooLarge { limit: 7 },
        BodyError::Timeout,
        BodyError::Disconnected,
        BodyError::Malformed(fault),
        BodyError::NotUtf8,
        BodyError::NotJson("why".into()),
        BodyError::NotDecodable { coding: "gzip" },
        BodyError::ExpansionRatio { ratio_max: 7 },
        BodyError::NotMultipart,
        BodyError::MultipartMalformed("why".into()),
        BodyError::FormLimit { limit: "parts_max", value: 7 },
        BodyError::FieldTooLarge { field: "avatar".into(), limit: 7 },
        BodyError::ShuttingDown,
        BodyError::Overload,
        BodyError::AfterResponse,
        BodyError::BeforeResponse,
        BodyError::AlreadyRead,
        BodyError::Socket(std::io::ErrorKind::BrokenPipe),
    ];
    for error in &all {
        match error {
            BodyError::TooLarge { .. }
            | BodyError::Timeout
            | BodyError::Disconnected
            | BodyError::Malformed(_)
            | BodyError::NotUtf8
            | BodyError::NotJson(_)
            | BodyError::NotDecodable { .. }
            | BodyError::ExpansionRatio { .. }
            | BodyError::NotMultipart
            | BodyError::MultipartMalformed(_)
            | BodyError::FormLimit { .. }
            | BodyError::FieldTooLarge { .. }
            | BodyError::ShuttingDown
            | BodyError::Overload
            | BodyError::AfterResponse
            | BodyError::BeforeResponse
            | BodyError::AlreadyRead
            | BodyError::Socket(_) => {}
        }
    }
    all
}

#[test]
fn every_error_has_its_status() {
    let statuses: Vec<u16> = every_error().iter().map(|error| error.status().as_u16()).collect();
    assert_eq!(
        statuses,
        [413, 408, 400, 400, 400, 400, 400, 413, 415, 400, 413, 413, 503, 503, 500, 500, 500, 400]
    );
    for fault in Fault::ALL {
        assert_eq!(BodyError::Malformed(*fault).status(), fault.status());
    }
}

/// The status and the text stay the same through `Read` and `?`.
#[test]
fn every_error_keeps_its_status_on_its_way_through_io() {
    for error in every_error() {
        let mut canned = Canned::failing(error.clone());
        let mut into = String::new();
        let read = canned.request(100).body().read_to_string(&mut into).unwrap_err();
        let ours = crate::Error::from(read);
        assert_eq!(ours.status(), error.status());
        assert_eq!(ours.message(), error.to_string());
        let is_ours =
            [BodyError::AfterResponse, BodyError::BeforeResponse, BodyError::AlreadyRead].contains(&error);
        let class =
            if is_ours { crate::ErrorClass::Internal } else { crate::ErrorClass::Client(error.status()) };
        assert_eq!(crate::Error::from(error.clone()).class(), class);
    }
}

/// The client learns the limit, and never the name of the setting.
#[test]
fn errors_name_no_setting() {
    assert!(BodyError::TooLarge { limit: 7 }.to_string().contains("the 7 bytes that are allowed"));
    for error in every_error() {
        assert!(!error.to_string().contains('_'), "{error}");
    }
    assert_eq!(BodyError::ShuttingDown.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[test]
fn a_writer_copies_the_request() {
    use std::io::Write;
    let mut canned = Canned::with_body(&["one ", "two"]);
    let mut writer = BodyWriter::new(&mut canned);
    let mut part = [0; 3];
    loop {
        let count = writer.read_request(&mut part).unwrap();
        if count == 0 {
            break;
        }
        writer.write_all(&part[..count]).unwrap();
    }
    writer.flush().unwrap();
    assert_eq!(canned.sent, b"one two");
}

#[test]
fn a_writer_copies_the_request_up_to_the_free_buffer_space() {
    use std::io::Write;
    let mut canned = Canned::with_body(&["one ", "two"]);
    let mut writer = BodyWriter::new(&mut canned);
    let mut part = Vec::with_capacity(3);
    for want in [&b"one"[..], b" ", b"two", b""] {
        assert_eq!(writer.read_request_buf(&mut part).unwrap(), want.len());
        assert_eq!((part.as_slice(), part.capacity()), (want, 3));
        writer.write_all(&part).unwrap();
        part.clear();
    }
    assert_eq!(canned.sent, b"one two");
    // Existing bytes stay, and space is reserved only if the capacity is used up.
    let mut canned = Canned::with_body(&["one ", "two"]);
    let mut writer = BodyWriter::new(&mut canned);
    let mut all = Vec::from(*b"of ");
    while writer.read_request_buf(&mut all).unwrap() > 0 {}
    assert_eq!(all, b"of one two");
}
