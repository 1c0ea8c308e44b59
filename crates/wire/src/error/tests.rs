//! One sample for every fault: a new variant does not compile until it has one.

use http::StatusCode;

use super::Fault;
use crate::testing::refused_within;
use crate::{Fault::*, Limits};

/// The limits of the samples: the smallest that most of them fit in.
const LIMITS: Limits =
    Limits { request_line_bytes_max: 48, head_bytes_max: 160, fields_max: 5, chunk_extension_bytes_max: 8 };

fn request(line: &str) -> String {
    format!("{line}\r\nHost: a\r\n\r\n")
}

fn field(line: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n")
}

fn chunks(body: &str) -> String {
    field("Transfer-Encoding: chunked") + body
}

fn sample(fault: Fault) -> String {
    match fault {
        TlsInsteadOfHttp => "\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03".into(),
        RequestDoesNotStartWithMethod => " GET / HTTP/1.1".into(),
        EmptyLinesBeforeRequest => "\r\n\r\nGET".into(),
        BareLineFeed => "GET / HTTP/1.1\n".into(),
        BareCarriageReturn => "GET / HTTP/1.1\rHost".into(),
        TargetTooLong => format!("GET /{}", "a".repeat(48)),
        HeadTooLong => format!("GET / HTTP/1.1\r\nHost: {}", "a".repeat(160)),
        TooManyFields => field("A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5"),
        RequestLineMalformed => request("GET /  HTTP/1.1"),
        MethodNotAToken => request("G{T / HTTP/1.1"),
        VersionMalformed => request("GET / http/1.1"),
        VersionNotSupported => request("GET / HTTP/2.0"),
        TargetByteNotAllowed => request("GET /a#b HTTP/1.1"),
        PercentEncodingMalformed => request("GET /%4 HTTP/1.1"),
        TargetFormUnknown => request("GET ftp://a/ HTTP/1.1"),
        AsteriskWithoutOptions => request("GET * HTTP/1.1"),
        ConnectWithoutAuthority => request("CONNECT / HTTP/1.1"),
        AuthorityInvalid => request("GET http://me@a/ HTTP/1.1"),
        LineFolding => field("A: 1\r\n 2"),
        FieldWithoutColon => field("A"),
        SpaceBeforeColon => field("A : 1"),
        FieldNameInvalid => field("A(): 1"),
        FieldValueInvalid => field("A: \0"),
        HostMissing => "GET / HTTP/1.1\r\n\r\n".into(),
        HostRepeated => field("Host: a"),
        HostEmpty => "GET / HTTP/1.1\r\nHost:\r\n\r\n".into(),
        HostInvalid => "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(),
        ContentLengthInvalid => field("Content-Length: +1"),
        ContentLengthTooLarge => field("Content-Length: 18446744073709551616"),
        ContentLengthRepeated => field("Content-Length: 1\r\nContent-Length: 1"),
        ContentLengthAndTransferEncoding => field("Content-Length: 1\r\nTransfer-Encoding: chunked"),
        TransferEncodingInHttp10 => "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
        TransferEncodingMalformed => field("Transfer-Encoding: chunked;a=b"),
        TransferCodingUnknown => field("Transfer-Encoding: gzip, chunked"),
        ChunkedNotLast => field("Transfer-Encoding: chunked, gzip"),
        ChunkedRepeated => field("Transfer-Encoding: chunked, chunked"),
        ConnectionInvalid => field("Connection: close;now"),
        ExpectationUnknown => field("Expect: the-unexpected"),
        ChunkSizeInvalid => chunks("x\r\n"),
        ChunkSizeTooLong => chunks("00000000000000001\r\n"),
        ChunkExtensionInvalid => chunks("1;=\r\n"),
        ChunkExtensionsTooLong => chunks("1;a=b\r\na\r\n1;a=bc\r\n"),
        ChunkEndMissing => chunks("1\r\nab"),
        TrailersTooLong => chunks(&format!("0\r\nA: {}", "a".repeat(160))),
        TooManyTrailers => chunks("0\r\nA:\r\nB:\r\nC:\r\nD:\r\nE:\r\nF:\r\n\r\n"),
        TrailerForbidden => chunks("0\r\nContent-Length: 1\r\n\r\n"),
    }
}

#[test]
fn every_fault_has_a_sample() {
    for &fault in Fault::ALL {
        refused_within(&LIMITS, sample(fault), fault);
    }
}

#[test]
fn every_fault_explains_itself() {
    for (at, &fault) in Fault::ALL.iter().enumerate() {
        let text = fault.to_string();
        assert!(text.ends_with('.') && text.len() > 20, "{fault:?}: {text}");
        assert!(fault.rule().starts_with("RFC ") && fault.rule().contains('§'), "{fault:?}");
        assert!(fault.status().is_client_error() || fault.status().is_server_error());
        assert!(Fault::ALL[..at].iter().all(|other| other.to_string() != text), "{fault:?} is said twice");
    }
}

/// And no fault does that is not about one.
#[test]
fn every_fault_of_a_limit_names_it() {
    let settings: Vec<_> =
        Fault::ALL.iter().filter_map(|fault| fault.setting().map(|setting| (*fault, setting))).collect();
    let want = [
        (TargetTooLong, "request_line_bytes_max"),
        (HeadTooLong, "head_bytes_max"),
        (TooManyFields, "fields_max"),
        (ChunkExtensionsTooLong, "chunk_extension_bytes_max"),
        (TrailersTooLong, "head_bytes_max"),
        (TooManyTrailers, "fields_max"),
    ];
    assert_eq!(settings, want);
}

#[test]
fn rfc9110_15_statuses() {
    let status_of = |fault: Fault| fault.status().as_u16();
    assert_eq!(status_of(TargetTooLong), 414);
    for fault in [HeadTooLong, TooManyFields, TrailersTooLong, TooManyTrailers] {
        assert_eq!(status_of(fault), 431);
    }
    assert_eq!(status_of(ChunkExtensionsTooLong), 413);
    assert_eq!(status_of(ExpectationUnknown), 417);
    assert_eq!(status_of(TransferCodingUnknown), 501);
    assert_eq!(status_of(VersionNotSupported), 505);
    let bad_requests = Fault::ALL.iter().filter(|fault| fault.status() == StatusCode::BAD_REQUEST);
    assert_eq!(bad_requests.count(), Fault::ALL.len() - 9);
}
