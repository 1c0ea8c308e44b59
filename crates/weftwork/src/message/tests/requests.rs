//! Tests of what a request shows of its head.

use http::{Method, Version};

use super::Canned;
use crate::message::SingleValue;

#[track_caller]
fn query(query: &str, name: &str, value: Option<&str>) {
    let mut canned = Canned::new(format!("GET /{query} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let request = canned.request(0);
    assert_eq!(request.query_value(name).as_deref(), value, "{query:?}");
}

#[test]
fn query_values_are_decoded() {
    query("", "a", None);
    query("?", "a", None);
    query("?a=1", "a", Some("1"));
    query("?a=1", "A", None);
    query("?a", "a", Some(""));
    query("?a=", "a", Some(""));
    query("?b=2&a=1&a=3", "a", Some("1"));
    query("?a=1=2", "a", Some("1=2"));
    query("?a=x+y%20z", "a", Some("x y z"));
    query("?a=%2B%26%3D", "a", Some("+&="));
    query("?a%20b=1", "a b", Some("1"));
    query("?a=%C3%BC", "a", Some("\u{fc}"));
    query("?a=%ff", "a", Some("\u{fffd}"));
    query("?a=%00", "a", Some("\0"));
    query("?&&a=1&", "a", Some("1"));
    query("?=1", "", Some("1"));
}

#[test]
fn a_head_is_shown_as_it_came() {
    let text = "PUT /a%20b/c?d=e HTTP/1.1\r\nHost: example.org:80\r\nX-One: 1\r\nx-one: \u{fc}\r\n\r\n";
    let mut canned = Canned::new(text);
    let request = canned.request(0);
    assert_eq!(request.method(), Method::PUT);
    assert_eq!(request.target(), "/a%20b/c?d=e");
    assert_eq!(request.path(), "/a%20b/c");
    assert_eq!(request.query(), Some("d=e"));
    assert_eq!(request.host(), Some("example.org:80"));
    assert_eq!(request.version(), Version::HTTP_11);
    assert_eq!(request.header("X-ONE"), Some("1"));
    assert_eq!(request.header("x-two"), None);
    assert_eq!(request.header_lines().count(), 3);
    assert_eq!(request.headers().get_all("x-one").iter().count(), 2);
    assert_eq!(format!("{request:?}"), r#"Request { method: PUT, target: "/a%20b/c?d=e", .. }"#);
}

#[track_caller]
fn values(lines: &[u8], only: SingleValue<'_>, elements: &[&[u8]]) {
    let mut canned = Canned::new([b"GET / HTTP/1.1\r\nHost: a\r\n", lines, b"\r\n"].concat());
    let request = canned.request(0);
    assert_eq!(request.only("X-One"), only, "{}", lines.escape_ascii());
    assert_eq!(request.elements("X-One").collect::<Vec<_>>(), elements, "{}", lines.escape_ascii());
}

#[test]
fn the_lines_of_a_field_are_one_value_or_a_list() {
    values(b"x-two: 1\r\n", SingleValue::Absent, &[]);
    values(b"x-one:\r\n", SingleValue::Value(""), &[]);
    values(b"x-one: a\r\n", SingleValue::Value("a"), &[b"a"]);
    values(b"X-ONE: a , B,,c;d=1,\r\n", SingleValue::Value("a , B,,c;d=1,"), &[b"a", b"B", b"c;d=1"]);
    values(b"x-one: a\r\nx-one: a\r\n", SingleValue::Unclear, &[b"a", b"a"]);
    values(b"x-one: \xff\r\n", SingleValue::Unclear, &[b"\xff"]);
}

#[test]
fn a_bearer_token_is_that_of_the_one_authorization() {
    let token = |values: &[&str]| {
        let fields: Vec<_> = values.iter().map(|value| ("Authorization", *value)).collect();
        let mut canned = Canned::asking("GET", "/", &fields);
        canned.request(0).bearer_token().map(str::to_owned)
    };
    for (values, wanted) in [
        (&["Bearer a.b-c_~+/="][..], Some("a.b-c_~+/=")),
        (&["bEARER   x "], Some("x")),
        (&["Bearer"], None),
        (&["Bearer "], None),
        (&["Basic eA=="], None),
        (&["Bearerx y"], None),
        (&["Bearer x", "Bearer x"], None),
        (&[], None),
    ] {
        assert_eq!(token(values).as_deref(), wanted, "{values:?}");
    }
}

#[test]
fn the_host_of_a_whole_target_wins() {
    let mut canned = Canned::new("GET http://one.example/x HTTP/1.1\r\nHost: two.example\r\n\r\n");
    let request = canned.request(0);
    assert_eq!((request.host(), request.path()), (Some("one.example"), "/x"));
    assert_eq!(request.target(), "http://one.example/x");
}

#[test]
fn extensions_are_kept() {
    let mut canned = Canned::new("GET / HTTP/1.0\r\n\r\n");
    let mut request = canned.request(0);
    assert_eq!((request.version(), request.host()), (Version::HTTP_10, None));
    request.extensions_mut().insert(7_u32);
    assert_eq!(request.extensions().get(), Some(&7_u32));
}

#[test]
fn the_earliest_deadline_applies() {
    let at = |seconds| std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let (soon, later, last) = (at(10), at(20), at(30));
    let mut canned = Canned::new("GET / HTTP/1.0\r\n\r\n");
    canned.deadline = Some(later);
    let mut request = canned.request(0);
    assert_eq!(request.deadline(), Some(later));
    request.set_deadline(last);
    assert_eq!(request.deadline(), Some(later));
    request.set_deadline(soon);
    assert_eq!(request.deadline(), Some(soon));
    request.set_deadline(last);
    assert_eq!(request.deadline(), Some(soon));
    assert!(request.time_left().is_some_and(|left| left.as_secs() < 10));
}

#[test]
fn fields_for_this_connection_are_not_passed_on() {
    let mut canned = Canned::new(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-One,\r\nX-One: 1\r\nX-Two: 2\r\nTE: trailers\r\n\
         connection: x-three\r\nX-THREE: 3\r\nKeep-Alive: 5\r\nUpgrade: x\r\nProxy-Connection: close\r\n\
         Keep_Alive: 5\r\nX_One: 1\r\nX-Two: 4\r\n\r\n",
    );
    let request = canned.request(0);
    let passed: Vec<_> = request.end_to_end_headers().collect();
    assert_eq!(passed, [("Host", &b"a"[..]), ("X-Two", b"2"), ("X-Two", b"4")]);
}

/// In any order and spelling, and repeated.
#[test]
fn each_connection_option_is_applied() {
    let spelt = |n: usize, round: usize| format!("{}{n}", ["x-", "X-", "x_"][(n + round) % 3]);
    let line = |round| (0..60).map(|n| spelt(n * 37 % 60, round)).collect::<Vec<_>>().join(", ");
    let fields: String = (0..80).map(|n| format!("{}: 1\r\n", spelt(n, 1))).collect();
    let mut canned = Canned::new(format!(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\n{fields}Connection: {}\r\n\r\n",
        line(0),
        line(2)
    ));
    let request = canned.request(0);
    let passed: Vec<&str> = request.end_to_end_headers().map(|(name, _)| name).collect();
    assert_eq!(passed[0], "Host");
    assert_eq!(passed[1..], (60..80).map(|n| spelt(n, 1)).collect::<Vec<_>>());
}

#[test]
fn headers_can_be_taken() {
    let mut canned = Canned::new("GET / HTTP/1.1\r\nHost: a\r\nX-Key: value\r\n\r\n");
    let mut request = canned.request(0);
    for _ in 0..2 {
        let headers = request.take_headers();
        assert_eq!((headers.len(), request.headers().len()), (2, 2));
        assert_eq!(headers.get("x-key").unwrap(), "value");
        assert_eq!(request.header("x-key"), Some("value"));
    }
}
