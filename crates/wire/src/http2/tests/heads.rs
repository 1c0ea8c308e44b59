//! Heads of requests: what is read, and what is refused with which fault.

use super::*;
use crate::error::Fault::*;
use Violation::*;

#[track_caller]
fn read(ends: bool, fields: &[(&str, &str)]) -> (SeenHead, Priority) {
    match &events(&headers(1, ends, fields))[..] {
        [Seen::Head { stream: 1, ends: ended, priority, head }] if *ended == ends => {
            (head.clone(), *priority)
        }
        other => panic!("{fields:?}: {other:?}"),
    }
}

#[track_caller]
fn one(fields: &[(&str, &str)]) -> SeenHead {
    read(true, fields).0
}

/// The pseudo-fields of GET with some of them replaced, added, or removed by an empty name, and fields.
fn with<'a>(changes: &[(&'a str, &'a str)], fields: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut all: Vec<_> = GET.to_vec();
    for change in changes {
        match all.iter_mut().find(|(name, _)| *name == change.0) {
            Some(field) => *field = *change,
            None => all.push(*change),
        }
    }
    all.retain(|(_, value)| *value != "-");
    all.extend_from_slice(fields);
    all
}

#[track_caller]
fn faulty(ends: bool, fields: &[(&str, &str)], want: impl Into<Violation>) {
    let want = want.into();
    match &events(&headers(1, ends, fields))[..] {
        [Seen::StreamError { fault, ends: ended, is_request: true, .. }] => {
            assert_eq!((fault.violation, fault.stream(), *ended), (want, Some(1), ends), "{fields:?}");
        }
        other => panic!("{fields:?}: {other:?} instead of {want:?}"),
    }
}

#[test]
fn rfc9113_8_3_1_a_request() {
    let head = one(&with(&[(":path", "/a%20b?c=d")], &[("accept", "*/*"), ("x-empty", "")]));
    assert_eq!(head.method, "GET");
    assert_eq!((head.target.as_str(), head.path.as_str()), ("/a%20b?c=d", "/a%20b"));
    assert_eq!((head.query.as_deref(), head.authority.as_deref()), (Some("c=d"), Some("a")));
    assert_eq!((head.protocol, head.framing, head.expect_continue), (None, Framing::None, false));
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(head.fields, [field("accept", "*/*"), field("x-empty", ""), field("host", "a")]);
}

#[test]
fn rfc9113_8_3_pseudo_fields_in_any_order() {
    for (from, to) in [(0, 3), (1, 2), (0, 1)] {
        let mut fields = GET;
        fields.swap(from, to);
        assert_eq!(one(&fields).path, "/");
    }
    assert_eq!(one(&with(&[(":scheme", "HTTP")], &[])).path, "/");
    assert_eq!(one(&with(&[(":method", "BREW")], &[])).method, "BREW");
}

#[test]
fn rfc9113_8_3_1_host_and_authority() {
    let authority = |authority, host| one(&with(&[(":authority", authority)], &[("host", host)])).authority;
    assert_eq!(authority("a", "a").as_deref(), Some("a"));
    assert_eq!(authority("A.example", "a.EXAMPLE:443").as_deref(), Some("A.example"));
    assert_eq!(authority("-", "b:8080").as_deref(), Some("b:8080"));
    assert_eq!(authority("[::1]:80", "[::1]:80").as_deref(), Some("[::1]:80"));
    let http = &[(":scheme", "http"), (":authority", "a:80")];
    assert_eq!(one(&with(http, &[("host", "a")])).authority.as_deref(), Some("a:80"));

    faulty(true, &with(&[], &[("host", "b")]), HostDiffers);
    faulty(true, &with(&[(":authority", "a:80")], &[("host", "a")]), HostDiffers);
    faulty(true, &with(&[], &[("host", "")]), HostDiffers);
    faulty(true, &with(&[(":authority", "-")], &[]), HostMissing);
    faulty(true, &with(&[(":authority", "-")], &[("host", "")]), HostEmpty);
    faulty(true, &with(&[(":authority", "-")], &[("host", "a/b")]), HostInvalid);
    faulty(true, &with(&[], &[("host", "a"), ("host", "a")]), HostRepeated);
    for authority in ["", "a b", "me@a", "a:x", "a:65536", "a/b", "[::1", ":80", "a\r\nb"] {
        faulty(true, &with(&[(":authority", authority)], &[]), AuthorityInvalid);
    }
}

#[test]
fn rfc9113_8_3_pseudo_fields() {
    for name in [":method", ":scheme", ":path"] {
        faulty(true, &with(&[(name, "-")], &[]), PseudoFieldMissing);
    }
    for field in GET {
        faulty(true, &[&[field][..], &GET].concat(), PseudoFieldRepeated);
        faulty(true, &[&GET[..], &[("a", "b"), field]].concat(), PseudoFieldLate);
    }
    for name in [":status", ":Method", ":", ":host", ":path "] {
        faulty(true, &[&[(name, "x")][..], &GET].concat(), PseudoFieldUnknown);
    }
    faulty(true, &with(&[], &[("a", "b"), (":protocol", "x")]), PseudoFieldLate);
    faulty(true, &[], PseudoFieldMissing);
    faulty(true, &with(&[(":method", "")], &[]), MethodNotAToken);
    faulty(true, &with(&[(":method", "G T")], &[]), MethodNotAToken);
    for scheme in ["", "ftp", "https://a/", "http "] {
        faulty(true, &with(&[(":scheme", scheme)], &[]), SchemeUnknown);
    }
}

/// The same target is refused in HTTP/1.1, with the same fault.
#[test]
fn rfc9113_8_3_1_targets_are_those_of_http11() {
    let paths = [
        "/",
        "/a/b;c=d",
        "/?",
        "/?a=%2f",
        "/a%2",
        "/a%zz",
        "/a#b",
        "/a\u{7f}",
        "/ä",
        "/a b",
        "/a\r\nb",
        "*",
        "",
        "a",
        "/[x]|^",
        "/?{x}",
        "/{x}",
        "//a",
        "http://a/",
        "?a",
        "/\\",
        "/?\\",
        "/a\0",
    ];
    for path in paths {
        for method in ["GET", "OPTIONS"] {
            let bytes: Vec<u8> = path.chars().map(|char| char as u8).collect();
            let line = [method.as_bytes(), b" ", &bytes, b" HTTP/1.1\r\nhost: a\r\n\r\n"].concat();
            let talk = crate::testing::talk(&line, line.len(), &Limits::default());
            let fields = with(&[(":method", method), (":path", path)], &[]);
            // Absolute form is of HTTP/1.1 alone. A target that ends the line ends it otherwise.
            match talk.fault {
                _ if path.starts_with("http") || path.is_empty() => faulty(true, &fields, TargetFormUnknown),
                Some(RequestLineMalformed | BareCarriageReturn) => {
                    faulty(true, &fields, TargetByteNotAllowed)
                }
                Some(fault) => faulty(true, &fields, fault),
                None => {
                    let head = one(&fields);
                    assert_eq!(head.target, talk.requests[0].target);
                    assert_eq!(
                        (head.path, head.query),
                        (talk.requests[0].path.clone(), talk.requests[0].query.clone())
                    );
                }
            }
        }
    }
}

#[test]
fn rfc9113_8_5_connect() {
    let head = one(&[(":method", "CONNECT"), (":authority", "a:443")]);
    assert_eq!((head.target.as_str(), head.path.as_str()), ("a:443", ""));
    assert_eq!((head.authority.as_deref(), head.protocol), (Some("a:443"), None));
    let connect = (":method", "CONNECT");
    faulty(true, &[connect], ConnectWithoutAuthority);
    faulty(true, &[connect, (":authority", "a")], ConnectWithoutAuthority);
    faulty(true, &[connect, (":authority", "a:443"), (":path", "/")], PseudoFieldNotAllowed);
    faulty(true, &[connect, (":authority", "a:443"), (":scheme", "https")], PseudoFieldNotAllowed);
}

#[test]
fn rfc8441_4_extended_connect() {
    let changes = [(":method", "CONNECT"), (":protocol", "websocket"), (":path", "/chat?a")];
    let (head, _) = read(false, &with(&changes, &[("sec-websocket-version", "13")]));
    assert_eq!((head.target.as_str(), head.path.as_str()), ("/chat?a", "/chat"));
    assert_eq!((head.authority.as_deref(), head.protocol.as_deref()), (Some("a"), Some("websocket")));
    for protocol in ["", "a b", "a/", "a/b/c"] {
        faulty(true, &with(&[(":method", "CONNECT"), (":protocol", protocol)], &[]), FieldValueInvalid);
    }
    faulty(true, &with(&[(":protocol", "websocket")], &[]), PseudoFieldNotAllowed);
    faulty(true, &with(&[changes[0], changes[1], (":path", "-")], &[]), PseudoFieldMissing);
    faulty(true, &[&[changes[1]][..], &with(&changes, &[])].concat(), PseudoFieldRepeated);

    let settings = Http2Settings { connect_protocol: false, ..Http2Settings::default() };
    let bytes =
        [PREFACE, &frame(kind::SETTINGS, 0, 0, b""), &headers(1, true, &with(&changes, &[]))].concat();
    let talk = every_way(|| Http2::server(&settings), &bytes, &Limits::default());
    assert!(
        matches!(talk.events[1], Seen::StreamError { fault, .. } if fault.violation == PseudoFieldNotAllowed)
    );
}

#[test]
fn rfc9113_8_2_fields() {
    for name in ["A", "x-A", "Te", "Connection"] {
        faulty(true, &with(&[], &[(name, "x")]), FieldNameUpperCase);
    }
    for name in ["", " a", "a b", "a\r\nb", "ä", "a:", "a\0", "(a)"] {
        faulty(true, &with(&[], &[(name, "x")]), FieldNameInvalid);
    }
    for value in ["\0", "a\r\nb: c", "a\nb", "\u{7f}", "a\rb"] {
        faulty(true, &with(&[], &[("a", value)]), FieldValueInvalid);
        faulty(true, &with(&[], &[("user-agent", value)]), FieldValueInvalid);
    }
    for value in [" a", "a ", "\ta", "a\t", " "] {
        faulty(true, &with(&[], &[("a", value)]), FieldValuePadded);
    }
    assert_eq!(one(&with(&[], &[("a", "ä\tb c")])).fields[0].1, "ä\tb c");
    for name in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"] {
        faulty(true, &with(&[], &[(name, "close")]), ConnectionField);
    }
    assert_eq!(one(&with(&[], &[("te", "Trailers")])).fields[0].0, "te");
    for value in ["", "gzip", "trailers, gzip", "trailers;q=1"] {
        faulty(true, &with(&[], &[("te", value)]), TeInvalid);
    }
}

#[test]
fn rfc9113_8_1_1_content_length() {
    let length = |ends, value| (ends, with(&[], &[("content-length", value)]));
    let framing = |(ends, fields): (bool, Vec<_>)| read(ends, &fields).0.framing;
    assert_eq!(framing(length(false, "7")), Framing::Length(7));
    assert_eq!(framing(length(false, "0")), Framing::Length(0));
    // No end follows.
    assert_eq!(framing(length(true, "0")), Framing::None);
    assert_eq!(read(false, &GET).0.framing, Framing::Chunked);
    faulty(true, &length(true, "1").1, ContentLengthDiffers);
    faulty(false, &length(false, "+1").1, ContentLengthInvalid);
    faulty(false, &length(false, "").1, ContentLengthInvalid);
    faulty(false, &length(false, "1, 1").1, ContentLengthRepeated);
    faulty(false, &length(false, "18446744073709551616").1, ContentLengthTooLarge);
    faulty(false, &with(&[], &[("content-length", "1"), ("content-length", "1")]), ContentLengthRepeated);
}

#[test]
fn rfc9110_10_1_1_expect() {
    let expect = |ends, value| read(ends, &with(&[], &[("expect", value)])).0.expect_continue;
    assert!(expect(false, "100-continue"));
    assert!(expect(false, ", 100-Continue"));
    assert!(!expect(true, "100-continue"));
    faulty(false, &with(&[], &[("expect", "more")]), ExpectationUnknown);
}

#[test]
fn rfc9113_8_2_3_cookies_are_joined() {
    let cookie = |fields: &[(&str, &str)]| {
        let head = one(&with(&[], fields));
        let names: Vec<_> = head.fields.iter().map(|(name, _)| name.as_str().to_owned()).collect();
        let value = head.fields.into_iter().find(|(name, _)| name == "cookie").unwrap().1;
        (names.join(" "), value)
    };
    let pair = |names: &str, value: &str| (names.to_owned(), value.to_owned());
    assert_eq!(cookie(&[("cookie", "a=b")]), pair("cookie host", "a=b"));
    assert_eq!(cookie(&[("cookie", "a=b"), ("cookie", "c=d")]), pair("cookie host", "a=b; c=d"));
    let mixed = [("x", "1"), ("cookie", "a=b"), ("y", "2"), ("cookie", "c"), ("z", "3"), ("cookie", "e=f")];
    assert_eq!(cookie(&mixed), pair("x cookie y z host", "a=b; c; e=f"));
}

#[test]
fn rfc9218_5_priority() {
    let priority = |fields| read(true, &with(&[], fields)).1;
    assert_eq!(priority(&[]), Priority::default());
    assert_eq!(priority(&[("priority", "u=1, i")]), Priority { urgency: 1, incremental: true });
    let lines = &[("priority", "u=1"), ("priority", "i")];
    assert_eq!(priority(lines), Priority { urgency: 1, incremental: true });
    assert_eq!(priority(&[("priority", "?")]), Priority::default());
}

#[track_caller]
fn within(limits: &Limits, fields: &[(&str, &str)]) -> Result<(), Violation> {
    let talk = talk_within(limits, &headers(1, true, fields));
    assert_eq!(talk.fault, None);
    match &talk.events[..] {
        [Seen::Head { .. }] => Ok(()),
        [Seen::StreamError { fault, is_request: true, .. }] => Err(fault.violation),
        other => panic!("{other:?}"),
    }
}

#[test]
fn limits() {
    let limits = Limits { fields_max: 3, ..Limits::default() };
    let field = ("a", "b");
    assert_eq!(within(&limits, &with(&[], &[field; 3])), Ok(()));
    assert_eq!(within(&limits, &with(&[], &[field; 4])), Err(TooManyFields.into()));
    // A joined cookie counts once, its parts up to four times the limit.
    let crumbs = |count, fields| [vec![("cookie", "a"); count], vec![field; fields]].concat();
    assert_eq!(within(&limits, &with(&[], &crumbs(12, 2))), Ok(()));
    assert_eq!(within(&limits, &with(&[], &crumbs(12, 3))), Err(TooManyFields.into()));
    assert_eq!(within(&limits, &with(&[], &crumbs(13, 0))), Err(TooManyFields.into()));

    // Name, value and 32 of each field.
    let size = |fields: &[(&str, &str)]| fields.iter().map(|(n, v)| n.len() + v.len() + 32).sum::<usize>();
    let head_bytes_max = size(&GET) as u32;
    assert_eq!(within(&Limits { head_bytes_max, ..limits }, &GET), Ok(()));
    let less = Limits { head_bytes_max: head_bytes_max - 1, ..limits };
    assert_eq!(within(&less, &GET), Err(HeadTooLong.into()));

    // As the request line would be: `GET / HTTP/1.1`.
    let line = |bytes| Limits { request_line_bytes_max: bytes, ..limits };
    assert_eq!(within(&line(14), &GET), Ok(()));
    assert_eq!(within(&line(13), &GET), Err(TargetTooLong.into()));
}

/// The table must be as the peer thinks it is.
#[test]
fn a_refused_head_leaves_the_table_in_step() {
    // Literal with indexing: `big: xxx...`, then that entry in the next request.
    let large = "x".repeat(120);
    let mut first = block(&GET);
    first.extend_from_slice(&[0x40, 3]);
    first.extend_from_slice(b"big");
    first.push(120);
    first.extend_from_slice(large.as_bytes());
    let second = [&block(&GET)[..], &[0xbe]].concat();
    let both =
        |stream, block: &[u8]| frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, block);
    let bytes = [both(1, &first), both(3, &second)].concat();
    let limits = Limits { head_bytes_max: 200, ..Limits::default() };
    let talk = talk_within(&limits, &bytes);
    let fault = Violation::from(HeadTooLong);
    assert!(
        talk.events
            .iter()
            .all(|event| matches!(event, Seen::StreamError { fault: f, .. } if f.violation == fault))
    );
    assert_eq!((talk.events.len(), talk.fault), (2, None));
    // And when both fit.
    assert!(matches!(&events(&bytes)[1], Seen::Head { head, .. } if head.fields[0].1 == large));
    // At four times the limit the connection ends.
    let limits = Limits { head_bytes_max: 60, ..Limits::default() };
    assert_eq!(talk_within(&limits, &bytes).fault, Some(BlockTooLarge));
}

#[test]
fn the_method_of_a_refused_head_is_known() {
    let fields = [vec![(":method", "HEAD"), GET[1], GET[2], GET[3]], vec![("a", "b"); 101]].concat();
    let events = events(
        &[headers(1, true, &[(":method", "DELETE")]), headers(3, true, &fields), headers(5, true, &[])]
            .concat(),
    );
    let methods = events.iter().map(|event| match event {
        Seen::StreamError { method, .. } => method.as_str(),
        other => panic!("{other:?}"),
    });
    assert_eq!(methods.collect::<Vec<_>>(), ["DELETE", "HEAD", "GET"]);
}

#[test]
fn rfc9113_8_1_trailers() {
    let trailers = |ends, fields: &[(&str, &str)]| {
        let talk = talk_within(
            &Limits { fields_max: 2, ..Limits::default() },
            &[post(1), headers(1, ends, fields)].concat(),
        );
        match (&talk.events[1], talk.fault) {
            (Seen::Trailers { stream: 1, fields }, None) => Ok(fields.clone()),
            (Seen::StreamError { fault, is_request: false, .. }, None) => Err(fault.violation),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(trailers(true, &[]), Ok(vec![]));
    let checksum = [("checksum", "12"), ("content-digest", "x")];
    assert_eq!(trailers(true, &checksum).map(|fields| fields.len()), Ok(2));
    assert_eq!(trailers(false, &checksum), Err(TrailersNotLast));
    assert_eq!(trailers(true, &[(":path", "/")]), Err(PseudoFieldNotAllowed));
    assert_eq!(trailers(true, &[(":status", "200")]), Err(PseudoFieldNotAllowed));
    assert_eq!(trailers(true, &[("A", "b")]), Err(FieldNameUpperCase));
    assert_eq!(trailers(true, &[("a", "\n")]), Err(FieldValueInvalid.into()));
    assert_eq!(trailers(true, &[("connection", "close")]), Err(ConnectionField));
    for name in ["content-length", "host", "cookie", "authorization", "te"] {
        assert_eq!(trailers(true, &[(name, "trailers")]), Err(TrailerForbidden.into()), "{name}");
    }
    assert_eq!(trailers(true, &[("a", "b"); 3]), Err(TooManyTrailers.into()));
}

/// HEADERS of streams 1 and 3. The second block has what the first one inserted into the dynamic table.
#[track_caller]
fn twice(first: &[u8], second: &[u8], want: Option<Violation>) {
    let bytes = [frame(1, 5, 1, first), frame(1, 5, 3, second)].concat();
    let faults: Vec<_> = (events(&bytes).into_iter())
        .map(|seen| match seen {
            Seen::StreamError { fault, .. } => Some(fault.violation),
            Seen::Head { .. } => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(faults, [want, want], "{first:x?}");
}

#[test]
fn fields_of_the_dynamic_table_are_refused_each_time() {
    twice(b"\x82\x86\x84\x41\x01a\x40\x01x\x01v", b"\x82\x86\x84\xbf\xbe", None);
    twice(b"\x82\x86\x84\x41\x03a b", b"\x82\x86\x84\xbe", Some(AuthorityInvalid.into()));
    for (field, want) in [
        (&b"\x40\x01x\x01\0"[..], Violation::from(FieldValueInvalid)),
        (b"\x40\x01x\x02v ", FieldValuePadded),
        (b"\x40\x01X\x01v", FieldNameUpperCase),
        (b"\x40\x02te\x04gzip", TeInvalid),
        (b"\x40\x07upgrade\x01v", ConnectionField),
    ] {
        twice(&[b"\x82\x86\x84\x01\x01a", field].concat(), b"\x82\x86\x84\x01\x01a\xbe", Some(want));
        // In a block that is refused for an earlier field, nothing is found valid.
        let first = [b"\x82\x86\x84\x01\x01a\x00\x01x\x01\0", field].concat();
        let bytes = [frame(1, 5, 1, &first), frame(1, 5, 3, b"\x82\x86\x84\x01\x01a\xbe")].concat();
        assert!(matches!(events(&bytes)[1], Seen::StreamError { fault, .. } if fault.violation == want));
    }
}
