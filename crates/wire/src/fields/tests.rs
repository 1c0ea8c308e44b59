//! Tests of what the fields say, by section of RFC 9110.

use std::time::{Duration, SystemTime};

use super::Precondition::{Failed, Holds, NotModified};
use super::*;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

const NOON: u64 = 784_111_777;

#[test]
fn rfc9110_5_6_7_dates() {
    let check =
        |value: &str, want: Option<u64>| assert_eq!(date(value.as_bytes()), want.map(at), "{value:?}");
    check("Sun, 06 Nov 1994 08:49:37 GMT", Some(NOON));
    check("Sunday, 06-Nov-94 08:49:37 GMT", Some(NOON));
    check("Sun Nov  6 08:49:37 1994", Some(NOON));
    check("Fri, 31 Dec 9999 23:59:59 GMT", Some(253_402_300_799));
    check(" \tSun, 06 Nov 1994 08:49:37 GMT\t ", Some(NOON));
    // The grammar has leap seconds; nothing that is counted from 1970 has.
    check("Sun, 06 Nov 1994 08:49:60 GMT", Some(NOON + 22));
    check("Sunday, 06-Nov-94 08:49:60 GMT", Some(NOON + 22));
    check("Sun Nov  6 08:49:60 1994", Some(NOON + 22));
    for none in [
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "\u{b}Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT\u{c}",
        "Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "",
        "yesterday",
        "784111777",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 CET",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Thu, 31 Nov 1994 08:49:37 GMT",
        "Wed, 31 Dec 1969 23:59:59 GMT",
        "Sun, 06 N\u{f6}v 1994 08:49:37 GMT",
    ] {
        check(none, None);
    }
    assert_eq!(date(b"\xff"), None);
}

#[test]
fn rfc9110_8_8_3_entity_tags() {
    let one = |value: &[u8], want: Option<(bool, &[u8])>| {
        let got = EntityTag::parse(value).map(|tag| (tag.weak, tag.opaque));
        assert_eq!(got, want, "{}", value.escape_ascii());
    };
    one(b"\"a\"", Some((false, b"a")));
    one(b" W/\"a,b\"\t", Some((true, b"a,b")));
    one(b"\"\"", Some((false, b"")));
    one(b"\"\xff!\"", Some((false, b"\xff!")));
    for none in [
        &b""[..],
        b"a",
        b"\"a",
        b"a\"",
        b"w/\"a\"",
        b"W/ \"a\"",
        b"\"a b\"",
        b"\"a\x7f\"",
        b"\"a\" \"b\"",
        b"\"a\",",
        b"*",
    ] {
        one(none, None);
    }
    let list = |value: &[u8], want: &[&[u8]]| {
        let got: Vec<&[u8]> = tags(value).map(|tag| tag.opaque).collect();
        assert_eq!(got, want, "{}", value.escape_ascii());
    };
    list(b"\"a\", W/\"b\",\"c,d\"", &[b"a", b"b", b"c,d"]);
    list(b",, \"a\" ,\t,\"b\",", &[b"a", b"b"]);
    list(b"\"a\", b, \"c\"", &[b"a"]);
    list(b"\"a\" \"b\"", &[]);
    list(b"\"a\"x, \"b\"", &[]);
    list(b"", &[]);
    list(b"*", &[]);
}

#[test]
fn rfc9110_8_8_3_2_comparison() {
    let check = |one: &[u8], other: &[u8], strong: bool, weak: bool| {
        let (one, other) = (EntityTag::parse(one).unwrap(), EntityTag::parse(other).unwrap());
        assert_eq!((one.is_strongly(&other), one.is_weakly(&other)), (strong, weak), "{one:?} {other:?}");
    };
    check(b"W/\"1\"", b"W/\"1\"", false, true);
    check(b"W/\"1\"", b"W/\"2\"", false, false);
    check(b"W/\"1\"", b"\"1\"", false, true);
    check(b"\"1\"", b"\"1\"", true, true);
}

#[test]
fn rfc9110_12_5_3_accept_encoding() {
    let check = |line: &str, coding: &str, want: u16| {
        assert_eq!(quality(&[line.as_bytes()], coding), want, "{coding} in {line:?}");
    };
    check("gzip, deflate, br, zstd", "br", 1000);
    check("GZIP", "gzip", 1000);
    check("x-gzip", "gzip", 1000);
    check("gzip ; q=0.25", "gzip", 250);
    check("gzip;Q=1.000", "gzip", 1000);
    check("gzip;q=1", "gzip", 1000);
    check("gzip;q=1.", "gzip", 1000);
    check("gzip;q=0", "gzip", 0);
    check("gzip;q=0.000, *", "gzip", 0);
    check("*;q=0.1, gzip", "gzip", 1000);
    check("*;q=0.1, gzip", "br", 100);
    check("br", "gzip", 0);
    check("", "gzip", 0);
    check("br", "identity", 1);
    check("", "identity", 1);
    check("identity;q=0.5, *;q=0", "identity", 500);
    check("br, *;q=0", "identity", 0);
    check("br, identity;q=0", "identity", 0);
    for malformed in ["2", "1.1", "1.001", "0.1234", ".5", "-1", "0,5", "", "x", "0.x"] {
        check(&format!("gzip;q={malformed}"), "gzip", 0);
    }
    check("gzip;level=9", "gzip", 0);
    assert_eq!(quality(&[b"br;q=0.5", b"gzip"], "gzip"), 1000);
    assert_eq!(quality(&[], "gzip"), 0);
    assert_eq!(quality(&[], "identity"), 1);
}

#[test]
fn rfc9110_12_5_1_accept() {
    // The table of the RFC, as far as it is about types without parameters; and what clients really send.
    let ranges =
        "text/*;q=0.3, text/plain;q=0.7, text/plain;format=flowed, text/plain;format=fixed;q=0.4, */*;q=0.5";
    let old_java = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2";
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
    for (line, media_type, want) in [
        (ranges, "text/plain", 700),
        (ranges, "text/html", 300),
        (ranges, "image/jpeg", 500),
        (browser, "text/html", 1000),
        (browser, "application/xml", 900),
        (browser, "application/json", 800),
        ("application/json; charset=utf-8", "application/json", 1000),
        ("application/json; charset=utf-8; Q=0.2", "application/json", 200),
        ("a/b;x=y;q=0.9, a/b;q=0", "a/b", 0),
        ("a/b;q=0.1, a/b", "a/b", 100),
        ("TEXT/HTML", "text/html", 1000),
        ("Text/*", "text/html", 1000),
        ("text/*, text/html;q=0", "text/html", 0),
        ("*/*;q=0", "text/html", 0),
        ("*", "text/html", 0),
        ("texts/*, tex/*, /*, text/htm, text", "text/html", 0),
        ("text/html;q=2", "text/html", 1),
        ("text/html;q=", "text/html", 1),
        ("*/*;q=1.0000", "text/html", 1),
        ("text/html;q=x, */*;q=0", "text/html", 1),
        ("text/html;q=0.000", "text/html", 0),
        (old_java, "application/json", 1),
        (old_java, "image/gif", 1000),
        ("", "text/html", 1000),
        (" , ", "text/html", 1000),
        (";", "text/html", 0),
        ("text/html;q=0.5", "text/html; charset=utf-8", 500),
        ("text/*", "text/html ;charset=utf-8", 1000),
        ("text/html;level=1", "text/html;level=2", 1000),
    ] {
        assert_eq!(media_type_quality(&[line.as_bytes()], media_type), want, "{media_type} in {line:?}");
    }
    assert_eq!(media_type_quality(&[b"a/*;q=0.5", b"a/b"], "a/b"), 1000);
    assert_eq!(media_type_quality(&[], "a/b"), 1000);
}

#[track_caller]
fn asks(value: &str, length: u64, want: &[(u64, u64)]) {
    let want = want.iter().map(|&(first, last)| ByteRange { first, last }).collect();
    assert_eq!(ranges(value.as_bytes(), length), Ranges::Parts(want), "{value} of {length}");
}

#[test]
fn rfc9110_14_1_2_byte_ranges() {
    asks("bytes=0-499", 10_000, &[(0, 499)]);
    asks("bytes=500-999", 10_000, &[(500, 999)]);
    asks("bytes=-500", 10_000, &[(9500, 9999)]);
    asks("bytes=9500-", 10_000, &[(9500, 9999)]);
    asks("bytes=0-0,-1", 10_000, &[(0, 0), (9999, 9999)]);
    asks("bytes= 0-999, 4500-5499, -1000", 10_000, &[(0, 999), (4500, 5499), (9000, 9999)]);
    asks("Bytes=0-0", 10, &[(0, 0)]);
    asks("bytes=,\t0-0 ,,", 10, &[(0, 0)]);
    asks("bytes=0-99999", 10, &[(0, 9)]);
    asks("bytes=-99999", 10, &[(0, 9)]);
    asks("bytes=9-9", 10, &[(9, 9)]);
    asks("bytes=007-08", 10, &[(7, 8)]);
    asks("bytes=10-,0-0", 10, &[(0, 0)]);
    asks("bytes=-0,0-0", 10, &[(0, 0)]);
    asks("bytes=0-18446744073709551615", 10, &[(0, 9)]);
    asks("bytes=0-99999999999999999999999", 10, &[(0, 9)]);
    asks("bytes=-99999999999999999999999", 10, &[(0, 9)]);
    asks("bytes=1-", u64::MAX, &[(1, u64::MAX - 1)]);
    asks("bytes=00000000000000000007-00000000000000000008", 10, &[(7, 8)]);
    assert_eq!(ByteRange { first: 7, last: 8 }.count(), 2);
}

#[test]
fn rfc9110_14_2_what_is_no_range_is_ignored() {
    for value in [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes= ",
        "bytes=-",
        "bytes=a-b",
        "bytes=1-0",
        "bytes=0-0,5-4",
        "bytes=0-0,x",
        "bytes=+1-2",
        "bytes=1--2",
        "bytes=0x1-2",
        "bytes=0-1-2",
        "bytes=1 -2",
        "bytes =0-1",
        "lines=0-1",
        "none",
        "0-1",
        "bytes=0-1;x",
        "bytes=1.0-2",
    ] {
        assert_eq!(ranges(value.as_bytes(), 10), Ranges::Whole, "{value:?}");
    }
    for value in ["bytes=0-", "bytes=-1", "bytes=0-0", "bytes=5-"] {
        assert_eq!(ranges(value.as_bytes(), 0), Ranges::Whole, "{value:?} of nothing");
    }
}

#[test]
fn rfc9110_15_5_17_after_the_end() {
    for value in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=10-,11-,-0", "bytes=99999999999999999999-"] {
        assert_eq!(ranges(value.as_bytes(), 10), Ranges::Unsatisfiable, "{value:?}");
    }
}

/// CVE-2011-3192 and its kin: what is asked for never adds up to more than there is.
#[test]
fn rfc9110_14_2_many_and_overlapping_ranges() {
    asks("bytes=0-0,0-0,0-0", 10, &[(0, 0)]);
    asks("bytes=0-5,3-9", 10, &[(0, 9)]);
    asks("bytes=5-9,0-4", 10, &[(0, 9)]);
    asks("bytes=0-0,2-2", 10, &[(0, 2)]);
    asks("bytes=0-0,129-129", 1000, &[(0, 129)]);
    asks("bytes=0-0,130-130", 1000, &[(0, 0), (130, 130)]);
    asks("bytes=129-129,0-0", 1000, &[(0, 129)]);
    asks("bytes=130-130,0-0", 1000, &[(130, 130), (0, 0)]);
    // One in the middle brings its neighbours together, in the place of the first of them.
    asks("bytes=900-,0-0,400-400,1-399", 1000, &[(900, 999), (0, 400)]);
    let many = |count: usize| {
        let specs: Vec<String> = (0..count).map(|at| format!("{}-{}", at * 1000, at * 1000)).collect();
        ranges(format!("bytes={}", specs.join(",")).as_bytes(), 1_000_000)
    };
    assert!(matches!(many(RANGES_MAX), Ranges::Parts(parts) if parts.len() == RANGES_MAX));
    assert_eq!(many(RANGES_MAX + 1), Ranges::Whole);
    let behind = format!("bytes={}", vec!["99-"; RANGES_MAX + 1].join(","));
    assert_eq!(ranges(behind.as_bytes(), 10), Ranges::Whole);
}

const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

/// The current state: tag `"now"`, changed in the middle of a second.
fn current() -> Validators<'static> {
    let modified = Some(at(NOON) + Duration::from_millis(500));
    Validators { tag: EntityTag::parse(b"\"now\""), modified }
}

fn conditions(lines: &str) -> Conditions<'_> {
    Conditions::of(
        lines.lines().filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.as_bytes(), v.as_bytes())),
    )
}

#[test]
fn rfc9110_13_2_2_precedence() {
    let check = |lines: &str, want: Precondition| {
        assert_eq!(conditions(lines).precondition(true, &current()), want, "{lines:?}");
    };
    check("", Holds);
    // Step 1: If-Match, by strong comparison.
    check("If-Match: *", Holds);
    check("if-match: \"now\"", Holds);
    check("If-Match: \"old\", \"now\"", Holds);
    check("If-Match: \"old\"\nIf-Match: \"now\"", Holds);
    check("If-Match: W/\"now\"", Failed);
    check("If-Match: \"old\"", Failed);
    check("If-Match: now", Failed);
    // Its outcome does not depend on the date beside it.
    check(&format!("If-Match: \"now\"\nIf-Unmodified-Since: {BEFORE}"), Holds);
    check(&format!("If-Match: \"old\"\nIf-Unmodified-Since: {AFTER}"), Failed);
    // Step 2: If-Unmodified-Since, only without If-Match.
    check(&format!("If-Unmodified-Since: {AFTER}"), Holds);
    check(&format!("If-Unmodified-Since: {SAME}"), Holds);
    check(&format!("If-Unmodified-Since: {BEFORE}"), Failed);
    check("If-Unmodified-Since: yesterday", Holds);
    check(&format!("If-Unmodified-Since: {BEFORE}\nIf-Unmodified-Since: {BEFORE}"), Holds);
    // Step 3: If-None-Match, by weak comparison.
    check("If-None-Match: *", NotModified);
    check("If-None-Match: \"now\"", NotModified);
    check("If-None-Match: W/\"now\"", NotModified);
    check("If-None-Match: \"old\",W/\"now\"", NotModified);
    check("If-None-Match: \"old\"\nIf-None-Match: \"now\"", NotModified);
    check("If-None-Match: \"old\"", Holds);
    check("If-None-Match: now", Holds);
    check("If-None-Match: ", Holds);
    // Step 4: If-Modified-Since, only without If-None-Match.
    check(&format!("If-Modified-Since: {BEFORE}"), Holds);
    check(&format!("If-Modified-Since: {SAME}"), NotModified);
    check(&format!("If-Modified-Since: {AFTER}"), NotModified);
    check("If-Modified-Since: yesterday", Holds);
    check(&format!("If-Modified-Since: {AFTER}\nIf-Modified-Since: {AFTER}"), Holds);
    check(&format!("If-None-Match: \"old\"\nIf-Modified-Since: {AFTER}"), Holds);
    check(&format!("If-None-Match: \"now\"\nIf-Modified-Since: {BEFORE}"), NotModified);
    // The first two steps come before the others.
    check("If-Match: \"old\"\nIf-None-Match: \"now\"", Failed);
    check("If-Match: \"now\"\nIf-None-Match: \"now\"", NotModified);
    check(&format!("If-Unmodified-Since: {BEFORE}\nIf-Modified-Since: {AFTER}"), Failed);
    check(&format!("If-Unmodified-Since: {AFTER}\nIf-None-Match: \"old\""), Holds);
}

/// They are told apart by their lengths first.
#[test]
fn fields_whose_names_are_as_long_as_those_of_conditions_are_none() {
    for name in ["Allow", "Location", "Authorization", "Transfer-Encoding", "Content-Disposition"] {
        for value in ["*", "\"old\"", "bytes=1-2", BEFORE, AFTER] {
            let lines = format!("{name}: {value}\nRange: bytes=1-2");
            let conditions = conditions(&lines);
            assert_eq!(conditions.precondition(true, &current()), Holds, "{lines:?}");
            let part = ByteRange { first: 1, last: 2 };
            assert_eq!(conditions.ranges(&current(), 10), Ranges::Parts(vec![part]), "{lines:?}");
        }
    }
}

#[test]
fn rfc9110_13_1_2_and_3_other_methods() {
    let check = |lines: &str, want: Precondition| {
        assert_eq!(conditions(lines).precondition(false, &current()), want, "{lines:?}");
    };
    check("If-None-Match: \"now\"", Failed);
    check("If-None-Match: *", Failed);
    check("If-None-Match: \"old\"", Holds);
    // None of these is one, and none of their senders wanted to overwrite what is there.
    for stars in ["*\nIf-None-Match: *", "*, *", "*,", ",*", "\"old\"\nIf-None-Match: *", "\"old\", *"] {
        check(&format!("If-None-Match: {stars}"), Failed);
        check(&format!("If-Match: {}", stars.replace("If-None", "If")), Failed);
    }
    check("If-None-Match: \"old,*\", \"*\"", Holds);
    check(&format!("If-Modified-Since: {AFTER}"), Holds);
}

#[test]
fn rfc9110_13_1_without_validators() {
    let check = |lines: &str, want: Precondition| {
        assert_eq!(conditions(lines).precondition(true, &Validators::default()), want, "{lines:?}");
    };
    check("If-Match: \"now\"", Failed);
    check("If-Match: *", Holds);
    check("If-None-Match: \"now\"", Holds);
    check(&format!("If-Modified-Since: {AFTER}"), Holds);
    check(&format!("If-Unmodified-Since: {BEFORE}"), Holds);
}

#[test]
fn rfc9110_13_1_5_if_range() {
    let part = Ranges::Parts(vec![ByteRange { first: 1, last: 2 }]);
    let check = |lines: &str, state: &Validators<'_>, is_part: bool| {
        let want = if is_part { &part } else { &Ranges::Whole };
        assert_eq!(conditions(lines).ranges(state, 10), *want, "{lines:?}");
    };
    let now = current();
    check("Range: bytes=1-2", &now, true);
    check("", &now, false);
    check("If-Range: \"now\"", &now, false);
    check("Range: bytes=1-2\nRange: bytes=1-2", &now, false);
    check("Range: bytes=1-2\nIf-Range: \"now\"", &now, true);
    check("Range: bytes=1-2\nIf-Range: \"old\"", &now, false);
    check("Range: bytes=1-2\nIf-Range: W/\"now\"", &now, false);
    check("Range: bytes=1-2\nIf-Range: \"now\"\nIf-Range: \"now\"", &now, false);
    check("Range: bytes=1-2\nIf-Range: *", &now, false);
    check("Range: bytes=1-2\nIf-Range: nonsense", &now, false);
    check(&format!("Range: bytes=1-2\nIf-Range: {SAME}"), &now, true);
    check(&format!("Range: bytes=1-2\nIf-Range: {AFTER}"), &now, false);
    check(&format!("Range: bytes=1-2\nIf-Range: {BEFORE}"), &now, false);
    let weak = Validators { tag: EntityTag::parse(b"W/\"now\""), ..now };
    check("Range: bytes=1-2", &weak, true);
    check("Range: bytes=1-2\nIf-Range: W/\"now\"", &weak, false);
    check(&format!("Range: bytes=1-2\nIf-Range: {SAME}"), &weak, false);
    check(&format!("Range: bytes=1-2\nIf-Range: {SAME}"), &Validators::default(), false);
    check("Range: bytes=1-2\nIf-Range: nonsense", &Validators::default(), false);
}
