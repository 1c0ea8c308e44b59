//! Tests that every malformed request is refused end to end: its status, the rule it names, and that nothing
//! after it runs.

use weftwork_wire::Fault;

use super::CASE;
use crate::support::{Client, Site, keep_log, logged};

const BEHIND: &str = "GET /behind HTTP/1.1\r\nHost: a\r\n\r\n";

/// Requests, each with its fault. Requests above a limit are in `limits`.
const HEADS: &[(&str, Fault)] = &[
    ("\x16\x03\x01\x02\0\x01\0\x01\u{7f}\x03\x03", Fault::TlsInsteadOfHttp),
    ("{\"json\": 1}\r\n\r\n", Fault::RequestDoesNotStartWithMethod),
    ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Fault::EmptyLinesBeforeRequest),
    ("GET / HTTP/1.1\nHost: a\r\n\r\n", Fault::BareLineFeed),
    ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Fault::RequestLineMalformed),
    ("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", Fault::MethodNotAToken),
    ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Fault::RequestLineMalformed),
    ("GET / http/1.1\r\nHost: a\r\n\r\n", Fault::VersionMalformed),
    ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Fault::VersionNotSupported),
    ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", Fault::TargetByteNotAllowed),
    ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", Fault::PercentEncodingMalformed),
    ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Fault::TargetFormUnknown),
    ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", Fault::AsteriskWithoutOptions),
    ("CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", Fault::ConnectWithoutAuthority),
    ("GET http://a@b:c/ HTTP/1.1\r\nHost: a\r\n\r\n", Fault::AuthorityInvalid),
    ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", Fault::LineFolding),
    ("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", Fault::FieldWithoutColon),
    ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Fault::SpaceBeforeColon),
    ("GET / HTTP/1.1\r\nHost: a\r\nX(: a\r\n\r\n", Fault::FieldNameInvalid),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", Fault::FieldValueInvalid),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", Fault::BareCarriageReturn),
    ("GET / HTTP/1.1\r\n\r\n", Fault::HostMissing),
    ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Fault::HostRepeated),
    ("GET / HTTP/1.1\r\nHost:\r\n\r\n", Fault::HostEmpty),
    ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Fault::HostInvalid),
    ("GET / HTTP/1.1\r\nHost: a\r\nConnection: a b\r\n\r\n", Fault::ConnectionInvalid),
    ("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Fault::TransferEncodingInHttp10),
];

/// Header fields of a request with a body.
const FRAMING: &[(&str, Fault)] = &[
    ("Content-Length: +5", Fault::ContentLengthInvalid),
    ("Content-Length: ", Fault::ContentLengthInvalid),
    ("Content-Length: 99999999999999999999", Fault::ContentLengthTooLarge),
    ("Content-Length: 5\r\nContent-Length: 5", Fault::ContentLengthRepeated),
    ("Content-Length: 5, 5", Fault::ContentLengthRepeated),
    ("Content-Length: 5\r\nTransfer-Encoding: chunked", Fault::ContentLengthAndTransferEncoding),
    ("Transfer-Encoding: chunked\r\nContent-Length: 5", Fault::ContentLengthAndTransferEncoding),
    ("Transfer-Encoding: chunked;a=b", Fault::TransferEncodingMalformed),
    ("Transfer-Encoding: gzip", Fault::TransferCodingUnknown),
    ("Transfer-Encoding: gzip, chunked", Fault::TransferCodingUnknown),
    ("Transfer-Encoding: chunked, gzip", Fault::ChunkedNotLast),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Fault::ChunkedRepeated),
    ("Expect: a miracle", Fault::ExpectationUnknown),
];

/// Bodies in chunks.
const CHUNKS: &[(&str, Fault)] = &[
    ("x\r\n", Fault::ChunkSizeInvalid),
    ("-1\r\n", Fault::ChunkSizeInvalid),
    ("0x1\r\na\r\n", Fault::ChunkSizeInvalid),
    ("00000000000000001\r\na\r\n", Fault::ChunkSizeTooLong),
    ("1\na\r\n", Fault::BareLineFeed),
    ("1 ;a\r\na\r\n", Fault::ChunkSizeInvalid),
    ("1;a b\r\na\r\n", Fault::ChunkExtensionInvalid),
    ("1\r\nab\r\n", Fault::ChunkEndMissing),
    ("0\r\nContent-Length: 5\r\n\r\n", Fault::TrailerForbidden),
    ("0\r\nHost: b\r\n\r\n", Fault::TrailerForbidden),
];

#[track_caller]
fn check(site: &Site, sample: &str, fault: Fault) {
    let (calls, faults) = (site.calls(), site.running.stats().faults);
    let mut client = site.client();
    client.send(format!("{sample}{BEHIND}"));
    let answer = client.answer();
    assert!(answer.status == fault.status() && answer.closes(), "{sample:?}: {answer:?}");
    let says = format!("{fault} ({})", fault.rule());
    assert!(answer.text().contains(&says), "{sample:?}: {says} {answer:?}");
    client.ends();
    assert_eq!(site.calls(), calls, "{sample:?} or what is behind it was run");
    assert_eq!(site.running.stats().faults, faults + 1, "{sample:?}");
}

#[test]
fn heads() {
    let site = CASE.start();
    HEADS.iter().for_each(|(sample, fault)| check(&site, sample, *fault));
}

#[test]
fn framing() {
    let site = CASE.start();
    for (fields, fault) in FRAMING {
        check(&site, &format!("POST /echo HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"), *fault);
    }
}

#[test]
fn chunks() {
    let site = CASE.start();
    for (body, fault) in CHUNKS {
        let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&site, &format!("{head}{body}"), *fault);
    }
}

#[test]
fn no_fault_is_without_a_sample() {
    let samples = || HEADS.iter().chain(FRAMING).chain(CHUNKS);
    for fault in Fault::ALL.iter().filter(|fault| fault.setting().is_none()) {
        assert!(samples().any(|(_, sampled)| sampled == fault), "{fault:?}");
    }
}

/// Answers to valid requests before the fault are sent first.
#[test]
fn a_fault_after_valid_requests() {
    let site = CASE.start();
    let mut client = site.client();
    client.send(format!("{BEHIND}GET / HTTP/1.1\r\nHost: a\r\n\r\nbad\r\n\r\n{BEHIND}"));
    assert_eq!(client.answer().status, 404);
    client.answer().is(200, "hello");
    let answer = client.answer();
    assert!(answer.status == 400 && answer.closes(), "{answer:?}");
    client.ends();
    assert_eq!(site.calls(), 2);
}

/// The handler reads a chunk that is invalid after 64 KiB. The handler gets the error, and the client gets the
/// status.
#[test]
fn a_fault_found_by_the_handler() {
    let site = CASE.start();
    let mut client = site.client();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n");
    client.send(vec![b'x'; 0x20000]);
    client.send(format!("\r\nxyz\r\n{BEHIND}"));
    let answer = client.answer();
    assert!(answer.status == 400 && answer.closes(), "{answer:?}");
    assert!(answer.text().contains("does not start with its size"), "{answer:?}");
    client.ends();
    assert_eq!(site.calls(), 1);
}

/// Clients may send faults as often as they like, and the log must not grow with them.
#[test]
fn the_log_has_a_few_lines_a_second_of_faults() {
    keep_log();
    const FAULTS: usize = 100;
    let began = std::time::Instant::now();
    let server = CASE.bind("127.0.0.1:0").settings(|s| s.fields_max(3)).start(|_: &mut weftwork::Request| "hello").unwrap();
    // All tests share the log. The client's address tells the lines apart.
    let mut clients = Vec::new();
    for _ in 0..FAULTS {
        let mut client = Client::connect(&server);
        let address = client.name();
        client.send("GET / HTTP/1.1\r\nHost: a\r\na: b\r\na: b\r\na: b\r\n\r\n");
        assert_eq!(client.answer().status, 431);
        clients.push(format!("{address} gets 431"));
    }
    assert_eq!(server.stats().faults, FAULTS as u64);
    let lines = clients.iter().filter(|line| !logged(&[line]).is_empty()).count();
    let seconds = began.elapsed().as_secs() as usize + 2;
    assert!(lines >= 10 && lines <= 10 * seconds, "{lines} lines in {seconds} s");
}
