//! Samples of heads, by section of RFC 9112 and RFC 9110.

use super::{Head, Scan, Version};
use crate::testing::{need_more, one, refused, refused_within, talk_every_way, text};
use crate::{Fault, Http1, Limits};

/// The request line parses, with a Host field `h`; `want` is path, query and authority.
#[track_caller]
fn target(line: &str, want: (&str, Option<&str>, Option<&str>)) {
    let seen = one(format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_eq!((seen.path.as_str(), seen.query.as_deref(), seen.authority.as_deref()), want);
    assert_eq!(Some(seen.target.as_str()), line.split_once(' ').map(|(_, target)| target));
}

#[track_caller]
fn bad_line(line: &str, want: Fault) {
    refused(format!("{line}\r\nHost: h\r\n\r\n"), want);
}

#[track_caller]
fn bad_target(line: &str, want: Fault) {
    bad_line(&format!("{line} HTTP/1.1"), want);
}

/// A field line parses, and its value is this.
#[track_caller]
fn field(line: impl AsRef<[u8]>, name: &str, value: &str) {
    let bytes = [b"GET / HTTP/1.1\r\nHost: h\r\n", line.as_ref(), b"\r\n\r\n"].concat();
    assert_eq!(one(bytes).fields[1], (name.to_owned(), value.to_owned()));
}

#[track_caller]
fn bad_field(line: impl AsRef<[u8]>, want: Fault) {
    refused([b"GET / HTTP/1.1\r\nHost: h\r\n", line.as_ref(), b"\r\n\r\n"].concat(), want);
    refused([b"GET / HTTP/1.1\r\n", line.as_ref(), b"\r\nHost: h\r\n\r\n"].concat(), want);
}

/// Plain Host lines and those that are not, first or later, are read in different ways.
const HOST_LINES: [&str; 4] = ["Host: ", "HOST:\t", "hoSt:", "A: b\r\nHost: "];

#[track_caller]
fn host(value: &str, authority: Option<&str>) {
    for line in HOST_LINES {
        let seen = one(format!("GET / HTTP/1.1\r\n{line}{value}\r\n\r\n"));
        assert_eq!(seen.authority.as_deref(), authority);
        assert_eq!(seen.fields.last().map(|(_, value)| value.as_str()), Some(value));
    }
}

#[track_caller]
fn bad_host(value: &str, want: Fault) {
    for line in HOST_LINES {
        refused(format!("GET / HTTP/1.1\r\n{line}{value}\r\n\r\n"), want);
    }
}

#[test]
fn a_request_and_all_its_parts() {
    let bytes = "GET /a/b?c=d HTTP/1.1\r\nHost: example.org:80\r\nX-One:\t1 \r\n\r\n";
    let seen = one(bytes);
    assert_eq!((seen.method.as_str(), seen.version), ("GET", Version::Http11));
    assert_eq!(
        (seen.target.as_str(), seen.path.as_str(), seen.query.as_deref()),
        ("/a/b?c=d", "/a/b", Some("c=d"))
    );
    assert_eq!(seen.authority.as_deref(), Some("example.org:80"));
    assert_eq!(seen.fields, [("Host".into(), "example.org:80".into()), ("X-One".into(), "1".into())]);
    assert_eq!(seen.head_bytes as usize, bytes.len());
    assert!(seen.keep_alive && !seen.expect_continue && !seen.upgrade);
}

#[test]
fn incomplete_heads_need_more() {
    let bytes = "\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    (0..bytes.len()).for_each(|end| need_more(&bytes[..end]));
}

#[test]
fn rfc9112_2_2_line_ends() {
    refused("GET / HTTP/1.1\nHost: h\r\n\r\n", Fault::BareLineFeed);
    refused("GET / HTTP/1.1\r\nHost: h\n\r\n", Fault::BareLineFeed);
    refused("GET / HTTP/1.1\r\nHost: h\r\n\n", Fault::BareLineFeed);
    refused("GET / HTTP/1.1\rHost: h\r\n\r\n", Fault::BareCarriageReturn);
    refused("GET / HTTP/1.1\r\nHost: h\r\r\n\r\n", Fault::BareCarriageReturn);
    refused("GET / HTTP/1.1\r\nHost: h\r\n\rX", Fault::BareCarriageReturn);
    refused("GET /\n", Fault::BareLineFeed);
}

#[test]
fn rfc9112_2_2_empty_line_before_a_request() {
    let seen = one("\r\nGET /x?y HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((seen.path.as_str(), seen.query.as_deref(), seen.head_bytes), ("/x", Some("y"), 32));
    refused("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Fault::EmptyLinesBeforeRequest);
    refused("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Fault::BareLineFeed);
    refused("\r\n\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Fault::BareLineFeed);
    refused("\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", Fault::BareCarriageReturn);
}

#[test]
fn rfc9112_2_3_versions() {
    assert_eq!(one("GET / HTTP/1.0\r\n\r\n").version, Version::Http10);
    for version in ["HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/3.0", "HTTP/9.9"] {
        bad_line(&format!("GET / {version}"), Fault::VersionNotSupported);
    }
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Fault::VersionNotSupported);
    for version in ["http/1.1", "HTTP/1", "HTTP/1.", "HTTP/1.10", "HTTP/11", "HTTPS/1.1", "HTTP/a.b"] {
        bad_line(&format!("GET / {version}"), Fault::VersionMalformed);
    }
}

#[test]
fn rfc9112_3_request_line() {
    for line in ["GET  / HTTP/1.1", "GET /  HTTP/1.1", "GET / HTTP/1.1 ", "GET /", "GET", "GET / a HTTP/1.1"]
    {
        bad_line(line, Fault::RequestLineMalformed);
    }
    for line in
        ["GET\t/\tHTTP/1.1", "G@T / HTTP/1.1", "GET\0 / HTTP/1.1", "G\u{e9}T / HTTP/1.1", "GET: / HTTP/1.1"]
    {
        bad_line(line, Fault::MethodNotAToken);
    }
    for line in ["GET /\t HTTP/1.1", "GET /\0 HTTP/1.1", "GET /\x7f HTTP/1.1", "GET /\u{e9} HTTP/1.1"] {
        bad_line(line, Fault::TargetByteNotAllowed);
    }
    // Of two faults, that of the earlier byte wins.
    bad_line("GET /\u{e9} HTTP/2.0", Fault::TargetByteNotAllowed);
    refused("\x16\x03\x01", Fault::TlsInsteadOfHttp);
    refused("\0", Fault::RequestDoesNotStartWithMethod);
    refused(b"\xff", Fault::RequestDoesNotStartWithMethod);
    refused("\r\n{", Fault::RequestDoesNotStartWithMethod);
}

#[test]
fn rfc9110_9_1_unknown_methods_are_for_the_handler() {
    for method in ["GET", "BREW", "get", "M-SEARCH", "a!#$%&'*+-.^_`|~9", "AVERYVERYVERYLONGMETHODNAME"] {
        assert_eq!(one(format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n")).method, method);
    }
}

#[test]
fn rfc9112_3_2_1_origin_form() {
    target("GET /", ("/", None, Some("h")));
    target("GET /?", ("/", Some(""), Some("h")));
    target("GET /a/../b//c?d?e/f", ("/a/../b//c", Some("d?e/f"), Some("h")));
    target("GET //evil", ("//evil", None, Some("h")));
    target("GET /%00%fF;p=1:@!$&'()*+,=-._~?%20", ("/%00%fF;p=1:@!$&'()*+,=-._~", Some("%20"), Some("h")));
    // What browsers leave as it is in links.
    target(
        "GET /a[1]|^?tag[]=b|c&d={e}\\`^&f=100%&g=%zz",
        ("/a[1]|^", Some("tag[]=b|c&d={e}\\`^&f=100%&g=%zz"), Some("h")),
    );
    for byte in "\"#<>\\`{}\x7f\u{e9}".chars() {
        bad_target(&format!("GET /a{byte}"), Fault::TargetByteNotAllowed);
    }
    for byte in "\"#<>\x7f\u{e9}".chars() {
        bad_target(&format!("GET /a?b{byte}"), Fault::TargetByteNotAllowed);
    }
    for end in ["%", "%4", "%4g", "%g4", "a%%41"] {
        bad_target(&format!("GET /{end}"), Fault::PercentEncodingMalformed);
    }
}

#[test]
fn rfc9112_3_2_2_absolute_form() {
    target("GET http://a/b?c", ("/b", Some("c"), Some("a")));
    target("GET HTTPS://a:8443/b", ("/b", None, Some("a:8443")));
    target("GET http://a", ("/", None, Some("a")));
    target("GET http://a?q", ("/", Some("q"), Some("a")));
    // RFC 9110 §4.2.3: an empty path is as good as `/`, but not as the target of OPTIONS.
    target("OPTIONS http://[::1]:80", ("*", None, Some("[::1]:80")));
    target("OPTIONS http://a/", ("/", None, Some("a")));
    target("OPTIONS http://a?q", ("/", Some("q"), Some("a")));
    for end in ["", "/", "?q", ":80", "me@a/", "a:b/", "a:65536/", "[::1", "[]", "a%4/", "a|b/"] {
        bad_target(&format!("GET http://{end}"), Fault::AuthorityInvalid);
    }
    for form in ["a", "a/b", "ftp://a/", "http:/a", "http:a", "mailto:a", "?q", "a:80", "**"] {
        bad_target(&format!("GET {form}"), Fault::TargetFormUnknown);
    }
    bad_target("GET http://a#f", Fault::TargetByteNotAllowed);
    bad_target("GET http://a/#f", Fault::TargetByteNotAllowed);
}

#[test]
fn rfc9112_3_2_2_absolute_form_alone_has_a_scheme() {
    let targets = ["GET /a", "GET /?http://a", "GET //a", "OPTIONS *", "CONNECT a:1"];
    let absolute = ["GET http://a", "GET HTTPS://a/b", "OPTIONS http://a", "POST http://a?b"];
    for (line, want) in targets.map(|line| (line, false)).into_iter().chain(absolute.map(|line| (line, true)))
    {
        let bytes = format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut head = Head::default();
        Http1::new().read_head(bytes.as_bytes(), &Limits::default(), &mut head).unwrap();
        assert_eq!(head.is_absolute(), want, "{line}");
    }
}

#[test]
fn rfc9112_3_2_3_authority_form() {
    target("CONNECT a:443", ("", None, Some("a:443")));
    target("CONNECT [::1]:1", ("", None, Some("[::1]:1")));
    for form in ["/", "*", "a", "a:", ":1", "http://a/", "http://a:80/", "a:b", "me@a:80", "a:80/", "a:80?q"]
    {
        bad_target(&format!("CONNECT {form}"), Fault::ConnectWithoutAuthority);
    }
}

#[test]
fn rfc9112_3_2_4_asterisk_form() {
    target("OPTIONS *", ("*", None, Some("h")));
    bad_target("GET *", Fault::AsteriskWithoutOptions);
    bad_target("options *", Fault::AsteriskWithoutOptions);
    bad_target("OPTIONS *?q", Fault::TargetFormUnknown);
}

#[test]
fn rfc9112_3_2_host() {
    for value in [
        "h",
        "h:80",
        "h:",
        "h:9999",
        "h:10000",
        "h:65535",
        "h:00080",
        "h:000080",
        "127.0.0.1:8080",
        "[::1]",
        "[::ffff:1.2.3.4]:1",
        "[v1.a:b]",
        "a-b_c~d!$",
        "a,b",
        "%41",
    ] {
        host(value, Some(value));
    }
    for value in ["a b", "a/b", "a@b", "a?b", "a#b", "a:b", "a:65536", "a:99999", ":80", "[", "[::1"] {
        bad_host(value, Fault::HostInvalid);
    }
    for value in ["%", "%4", "a\u{e9}", "[::1]a", "[::1]:a", "http://a", "[v.a]", "[vg.a]", "[v1a]", "::1"] {
        bad_host(value, Fault::HostInvalid);
    }
    for value in ["a:100000", "a:1234a", "a:6553b", "[::g]", "[v1.]", "[v1.a@b]", "[v1.\u{e9}]"] {
        bad_host(value, Fault::HostInvalid);
    }
    refused("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", Fault::HostRepeated);
    refused("GET / HTTP/1.0\r\nHost: a\r\nHOST: b\r\n\r\n", Fault::HostRepeated);
    refused("GET / HTTP/1.1\r\nX: a\r\n\r\n", Fault::HostMissing);
    refused("GET http://a/ HTTP/1.1\r\n\r\n", Fault::HostMissing);
    refused("GET http://a/ HTTP/1.1\r\nHost: a b\r\n\r\n", Fault::HostInvalid);
    assert_eq!(one("GET / HTTP/1.0\r\nHost: a\r\n\r\n").authority.as_deref(), Some("a"));
    assert_eq!(one("GET / HTTP/1.0\r\n\r\n").authority, None);
}

#[test]
fn rfc9112_3_3_empty_host() {
    assert_eq!(one("OPTIONS * HTTP/1.1\r\nHost: \r\n\r\n").authority, None);
    bad_host("", Fault::HostEmpty);
    // §3.2.2: the target's own authority is what counts.
    for target in ["GET http://a/", "OPTIONS https://a", "CONNECT a:1"] {
        let authority = one(format!("{target} HTTP/1.1\r\nHost:\r\n\r\n")).authority;
        assert!(matches!(authority.as_deref(), Some("a" | "a:1")), "{target}");
    }
    refused("GET / HTTP/1.0\r\nHost:\r\n\r\n", Fault::HostEmpty);
}

#[test]
fn rfc9112_5_field_lines() {
    field("A:b", "A", "b");
    field("A: \t b c\t \t", "A", "b c");
    field("A:", "A", "");
    field("A:  \t", "A", "");
    field("a!#$%&'*+-.^_`|~9: \"x\":{}", "a!#$%&'*+-.^_`|~9", "\"x\":{}");
    field(b"A: \x80\xff", "A", "\u{80}\u{ff}");
    for line in ["A", "A=b", "garbage"] {
        bad_field(line, Fault::FieldWithoutColon);
    }
    for line in [": b", "A\u{e9}: b", "A(: b", "A\0: b", "A B: c", "\"A\": b"] {
        bad_field(line, Fault::FieldNameInvalid);
    }
    for line in ["A: \0", "A: b\x01c", "A: \x7f", "A: b\x0bc", "A: \x1f"] {
        bad_field(line, Fault::FieldValueInvalid);
    }
}

#[test]
fn rfc9112_5_1_no_space_before_the_colon() {
    for line in ["A : b", "A\t: b", "Content-Length : 1", "Transfer-Encoding\t : chunked"] {
        bad_field(line, Fault::SpaceBeforeColon);
    }
}

#[test]
fn rfc9112_5_2_no_line_folding() {
    for line in [" A: b", "\tA: b", "A: b\r\n c", "A: b\r\n\tc", "A:\r\n b", " ", " : "] {
        bad_field(line, Fault::LineFolding);
    }
}

#[test]
fn limits_are_exact() {
    let head = "\r\nGET /0123456789 HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n";
    let fits = Limits { request_line_bytes_max: 24, head_bytes_max: 45, fields_max: 2, ..Limits::default() };
    assert_eq!(talk_every_way(head.as_bytes(), &fits).requests.len(), 1);
    refused_within(&Limits { request_line_bytes_max: 23, ..fits }, head, Fault::TargetTooLong);
    refused_within(&Limits { head_bytes_max: 44, ..fits }, head, Fault::HeadTooLong);
    refused_within(&Limits { fields_max: 1, ..fits }, head, Fault::TooManyFields);
    refused_within(&Limits { fields_max: 0, ..fits }, head, Fault::TooManyFields);
}

#[test]
fn limits_hold_for_incomplete_heads() {
    let limits =
        Limits { request_line_bytes_max: 16, head_bytes_max: 64, fields_max: 100, ..Limits::default() };
    refused_within(&limits, "GET /aaaaaaaaaaaaaaaaaaaaaaaa", Fault::TargetTooLong);
    refused_within(&limits, format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(64)), Fault::HeadTooLong);
    refused_within(&limits, format!("GET / HTTP/1.1\r\n{}", "A:\r\n".repeat(20)), Fault::HeadTooLong);
    let head_first = Limits { request_line_bytes_max: 64, head_bytes_max: 16, ..limits };
    refused_within(&head_first, "GET /aaaaaaaaaaaaaaaaaaaaaaaa", Fault::HeadTooLong);
}

/// The limit may lie in front of the request line, too.
#[test]
fn a_limit_within_the_empty_line_before_a_head_holds() {
    for (head_bytes_max, bytes) in
        (0..4).flat_map(|max| ["\r\nG", "\r\nGET / HTTP/1.0\r\n\r\n"].map(|text| (max, text)))
    {
        refused_within(&Limits { head_bytes_max, ..Limits::default() }, bytes, Fault::HeadTooLong);
    }
}

/// The earlier fault wins, however the bytes come.
#[test]
fn limits_and_line_ends_are_found_in_order() {
    let limits = Limits { request_line_bytes_max: 16, head_bytes_max: 32, ..Limits::default() };
    for at in 5..40 {
        for end in ["\n", "\r", "\r\n", "\rx"] {
            let bytes = format!("GET /{}{end}Host: h\r\n\r\n", "a".repeat(at - 5));
            talk_every_way(bytes.as_bytes(), &limits);
            let bytes = format!("GET / HTTP/1.1\r\nA:{}{end}\r\n", "a".repeat(at - 5));
            talk_every_way(bytes.as_bytes(), &limits);
        }
    }
}

#[test]
fn any_number_of_fields_can_be_allowed() {
    for fields in [1, 100, 127, 128, 129, 1000] {
        let lines: String = (1..fields).map(|at| format!("F{at}: {at}\r\n")).collect();
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
        let limits = Limits { fields_max: fields, ..Limits::default() };
        let talk = talk_every_way(bytes.as_bytes(), &limits);
        assert_eq!(talk.requests[0].fields.len(), fields as usize);
        refused_within(&Limits { fields_max: fields - 1, ..limits }, bytes, Fault::TooManyFields);
    }
    let all = Limits { fields_max: u32::MAX, ..Limits::default() };
    assert_eq!(talk_every_way(b"GET / HTTP/1.0\r\n\r\n", &all).requests.len(), 1);
}

/// What was seen is not looked at again: the second call gets line feeds there, and takes no offence.
#[test]
fn a_head_that_arrives_byte_by_byte_is_scanned_once() {
    let mut bytes = b"GET / HTTP/1.1\r\nHost: h\r\nAccept: all\r\n\r\n".to_vec();
    let mut scan = Scan::default();
    assert_eq!(scan.find_end(&bytes[..30], 0, 100, 100), Ok(None));
    bytes[..30].fill(b'\n');
    assert_eq!(scan.find_end(&bytes, 0, 100, 100), Ok(Some(bytes.len())));
}

#[test]
fn pipelined_requests_are_read_one_by_one() {
    let bytes =
        b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi\
        \r\nGET /3 HTTP/1.1\r\nHost: h\r\n\r\n";
    let talk = talk_every_way(bytes, &Limits::default());
    let paths: Vec<_> = talk.requests.iter().map(|seen| (seen.path.as_str(), seen.body.as_str())).collect();
    assert_eq!(paths, [("/1", ""), ("/2", "hi"), ("/3", "")], "{}", text(bytes));
}
