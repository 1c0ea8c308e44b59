//! Samples of framing fields, by section of RFC 9112 and RFC 9110.

use super::Framing;
use crate::Fault;
use crate::testing::{Seen, one, refused};

/// A request of this version with these lines, and a body that fits them.
fn request(version: &str, lines: &[&str], body: &str) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("POST / HTTP/{version}\r\nHost: h\r\n{lines}\r\n{body}")
}

#[track_caller]
fn framed(lines: &[&str], body: &str, want: Framing) -> Seen {
    let seen = one(request("1.1", lines, body));
    assert_eq!(seen.framing, want);
    seen
}

/// Refused, wherever among other lines the lines stand, and whichever comes first.
#[track_caller]
fn bad(lines: &[&str], want: Fault) {
    refused(request("1.1", lines, ""), want);
    refused(request("1.1", &[&["A: b"], lines, &["C: d"]].concat(), ""), want);
}

/// What `Connection` says in both versions.
#[track_caller]
fn persists(lines: &[&str], in_11: bool, in_10: bool) {
    assert_eq!(one(request("1.1", lines, "")).keep_alive, in_11);
    assert_eq!(one(request("1.0", lines, "")).keep_alive, in_10);
}

/// The two plainest lines are compared at once, all others read in parts.
#[test]
fn connection_lines_say_the_same_however_they_are_read() {
    let persistence = [("close", false, false), ("keep-alive", true, true)];
    for (option, in_11, in_10) in persistence {
        let plain = format!("Connection: {option}");
        let others = ["connection: ", "Connection:", "Connection:  ", "CONNECTION: , "];
        let others = others.map(|name| format!("{name}{option}"));
        let upper = format!("Connection: {}", option.to_uppercase());
        for line in [&plain, &upper, &format!("{plain} "), &format!("{plain}, x")].into_iter().chain(&others)
        {
            persists(&[line], in_11, in_10);
            persists(&["A: b", line, "C: d"], in_11, in_10);
        }
        let field = &one(request("1.1", &[&plain], "")).fields[1];
        assert_eq!(*field, ("Connection".to_owned(), option.to_owned()));
        // What only begins like one is another.
        persists(&[&format!("{plain}r")], true, false);
    }
    persists(&["Connection: keep-alive", "Connection: close"], false, false);
    bad(&["Connection: close x"], Fault::ConnectionInvalid);
}

#[test]
fn rfc9112_6_3_step_7_neither_field_means_no_body() {
    framed(&[], "", Framing::None);
    framed(&["Content-Type: text/plain"], "", Framing::None);
}

#[test]
fn rfc9112_6_3_step_6_content_length() {
    assert_eq!(framed(&["Content-Length: 5"], "hello", Framing::Length(5)).body, "hello");
    framed(&["content-LENGTH:\t0005 "], "hello", Framing::Length(5));
    framed(&["Content-Length: 00000000000000000005"], "hello", Framing::Length(5));
    framed(&["Content-Length: 0"], "", Framing::Length(0));
    assert_eq!(one(request("1.0", &["Content-Length: 2"], "hi")).body, "hi");
}

#[test]
fn rfc9112_6_3_step_5_invalid_content_length() {
    for value in ["", "-1", "+1", "0x1", "1 2", "1.0", "1e3", "\u{ff11}", "a", "1;", "\"1\""] {
        bad(&[&format!("Content-Length: {value}")], Fault::ContentLengthInvalid);
    }
    for value in ["18446744073709551616", "99999999999999999999", "184467440737095516150"] {
        bad(&[&format!("Content-Length: {value}")], Fault::ContentLengthTooLarge);
    }
    for value in ["1, 1", "1,1", "1,2", ",", "1,"] {
        bad(&[&format!("Content-Length: {value}")], Fault::ContentLengthRepeated);
    }
    bad(&["Content-Length: 1", "Content-Length: 1"], Fault::ContentLengthRepeated);
    bad(&["Content-Length: 1", "content-length: 2"], Fault::ContentLengthRepeated);
}

#[test]
fn rfc9112_6_3_step_4_transfer_encoding() {
    framed(&["Transfer-Encoding: chunked"], "0\r\n\r\n", Framing::Chunked);
    framed(&["transfer-encoding:CHUNKED\t"], "0\r\n\r\n", Framing::Chunked);
    for value in ["chunked, chunked", "chunked,gzip,chunked"] {
        bad(&[&format!("Transfer-Encoding: {value}")], Fault::ChunkedRepeated);
    }
    bad(&["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], Fault::ChunkedRepeated);
    bad(&["Transfer-Encoding: chunked, identity"], Fault::ChunkedNotLast);
    bad(&["Transfer-Encoding: chunked", "Transfer-Encoding: gzip"], Fault::ChunkedNotLast);
    for value in ["gzip", "gzip, chunked", "identity", "xchunked", "chunkedx", "identity, chunked"] {
        bad(&[&format!("Transfer-Encoding: {value}")], Fault::TransferCodingUnknown);
    }
    bad(&["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"], Fault::TransferCodingUnknown);
    for value in
        ["", ",", "chunked,", ",chunked", "chunked;a=b", "\"chunked\"", "chun ked", "gzip;q=1, chunked"]
    {
        bad(&[&format!("Transfer-Encoding: {value}")], Fault::TransferEncodingMalformed);
    }
}

#[test]
fn rfc9112_6_3_step_3_both_fields() {
    let both = Fault::ContentLengthAndTransferEncoding;
    bad(&["Content-Length: 5", "Transfer-Encoding: chunked"], both);
    bad(&["Transfer-Encoding: chunked", "Content-Length: 5"], both);
    bad(&["Transfer-Encoding: gzip", "Content-Length: 0"], both);
    refused(request("1.0", &["Content-Length: 5", "Transfer-Encoding: chunked"], ""), both);
}

#[test]
fn rfc9112_6_1_no_transfer_encoding_in_http10() {
    refused(request("1.0", &["Transfer-Encoding: chunked"], ""), Fault::TransferEncodingInHttp10);
    refused(request("1.0", &["Transfer-Encoding: gzip"], ""), Fault::TransferEncodingInHttp10);
}

#[test]
fn rfc9112_9_3_persistence() {
    persists(&[], true, false);
    persists(&["Connection: keep-alive"], true, true);
    persists(&["Connection: close"], false, false);
    persists(&["Connection: Keep-Alive, CLOSE"], false, false);
    persists(&["Connection: keep-alive", "Connection: close"], false, false);
    persists(&["Connection: close", "Connection: keep-alive"], false, false);
    persists(&["connection: ,foo ,\tKEEP-ALIVE, ,"], true, true);
    persists(&["Connection:"], true, false);
    persists(&["Connection: closed, keepalive"], true, false);
    persists(&["Proxy-Connection: close", "X-Connection: close"], true, false);
}

#[test]
fn rfc9110_7_6_1_connection_is_a_list_of_tokens() {
    for value in ["close;x", "a b", "\"close\"", "close\u{e9}", "a=b"] {
        bad(&[&format!("Connection: {value}")], Fault::ConnectionInvalid);
    }
}

#[test]
fn rfc9110_7_8_upgrade() {
    let upgrades = |version: &str, lines: &[&str]| one(request(version, lines, "")).upgrade;
    assert!(upgrades("1.1", &["Connection: keep-alive, Upgrade", "Upgrade: websocket"]));
    assert!(upgrades("1.1", &["Upgrade: websocket", "Connection: a", "Connection: upgrade"]));
    assert!(!upgrades("1.1", &["Upgrade: websocket"]));
    assert!(!upgrades("1.1", &["Connection: upgrade"]));
    assert!(!upgrades("1.0", &["Connection: upgrade", "Upgrade: websocket"]));
}

#[test]
fn rfc9110_10_1_1_expect() {
    let expects =
        |version: &str, lines: &[&str], body: &str| one(request(version, lines, body)).expect_continue;
    assert!(expects("1.1", &["Expect: 100-Continue", "Content-Length: 1"], "a"));
    assert!(expects("1.1", &["Expect: 100-continue", "Transfer-Encoding: chunked"], "0\r\n\r\n"));
    assert!(expects("1.1", &["Expect: 100-continue", "Expect: 100-continue", "Content-Length: 1"], "a"));
    assert!(!expects("1.1", &["Expect: 100-continue"], ""));
    assert!(!expects("1.1", &["Expect: 100-continue", "Content-Length: 0"], ""));
    assert!(!expects("1.0", &["Expect: 100-continue", "Content-Length: 1"], "a"));
    assert!(!expects("1.0", &["Expect: anything"], ""));
    // It is a list: §5.6.1.2 has its empty elements ignored.
    for value in ["100-continue,", ", ,100-Continue", "100-continue, 100-continue"] {
        assert!(expects("1.1", &[&format!("Expect: {value}"), "Content-Length: 1"], "a"), "{value}");
    }
    for value in ["", ",", ", ,"] {
        assert!(!expects("1.1", &[&format!("Expect: {value}"), "Content-Length: 1"], "a"), "{value}");
    }
    for value in ["100", "100-continue 100-continue", "100-continue, a", "100-continue;a", "200-ok"] {
        bad(&[&format!("Expect: {value}")], Fault::ExpectationUnknown);
    }
    bad(&["Expect: a", "Expect: 100-continue"], Fault::ExpectationUnknown);
    bad(&["Expect: 100-continue", "Expect: a"], Fault::ExpectationUnknown);
}
