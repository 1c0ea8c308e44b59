//! Tests that a response is what it was made of, and that no text can split it.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::message::{BodyError, IntoResponse, Payload, Response, html, text};
use crate::{Error, ErrorClass, Request, TestClient};

pub(super) fn body(response: &Response) -> &[u8] {
    match &response.payload {
        Payload::Bytes(bytes) => bytes,
        Payload::HandlerError(failed) => &failed.body,
        Payload::Empty => b"",
        Payload::File { .. } | Payload::Parts(_) | Payload::Stream(_) | Payload::LongLived(_) => {
            panic!("{response:?}")
        }
    }
}

#[track_caller]
fn check(made: impl IntoResponse, status: u16, content_type: Option<&str>, expected: &str) {
    let response = made.into_response();
    assert_eq!(response.status().as_u16(), status);
    assert_eq!(response.content_type().map(|value| value.to_str().unwrap()), content_type);
    assert_eq!(body(&response), expected.as_bytes());
}

const TEXT: Option<&str> = Some("text/plain; charset=utf-8");
const PROBLEM: Option<&str> = Some("application/problem+json");
const OCTETS: Option<&str> = Some("application/octet-stream");

#[test]
fn everything_that_a_handler_may_return() {
    check(Response::new(StatusCode::IM_A_TEAPOT), 418, None, "");
    check((), 204, None, "");
    check(StatusCode::ACCEPTED, 202, None, "");
    check("text", 200, TEXT, "text");
    check(String::from("text"), 200, TEXT, "text");
    check(Cow::Borrowed("text"), 200, TEXT, "text");
    check(Cow::<'static, str>::Owned("text".into()), 200, TEXT, "text");
    check(Bytes::from_static(b"bytes"), 200, OCTETS, "bytes");
    check(b"bytes".to_vec(), 200, OCTETS, "bytes");
    check((StatusCode::CREATED, "made"), 201, TEXT, "made");
    check(Some("here"), 200, TEXT, "here");
    check(
        None::<&str>,
        404,
        PROBLEM,
        r#"{"title":"Not Found","status":404,"detail":"there is nothing here"}"#,
    );
    check(Ok::<_, StatusCode>("good"), 200, TEXT, "good");
    check(Err::<&str, _>(StatusCode::CONFLICT), 409, None, "");
    check(text("text"), 200, TEXT, "text");
    check(html("<p>"), 200, Some("text/html; charset=utf-8"), "<p>");
}

/// The client reads about its own mistakes, and nothing about errors of the server.
#[test]
fn errors_as_answers() {
    let gone = r#"{"title":"Gone","status":410,"detail":"no such user"}"#;
    check(Error::client(StatusCode::GONE, "no such user"), 410, PROBLEM, gone);
    let ours =
        r#"{"title":"Internal Server Error","status":500,"detail":"something went wrong on the server"}"#;
    check(Error::internal("the password is 1234"), 500, PROBLEM, ours);
    let io = std::io::Error::other("the password is 1234");
    check(Error::from(io), 500, PROBLEM, ours);
    let body = r#"{"title":"Bad Request","status":400,"detail":"the request body is not UTF-8 text"}"#;
    check(BodyError::NotUtf8, 400, PROBLEM, body);
    assert_eq!(Error::from(BodyError::Timeout).class(), ErrorClass::Client(StatusCode::REQUEST_TIMEOUT));
}

#[track_caller]
fn refused(value: &str) {
    let error = Response::new(StatusCode::OK).try_with_header("x-field", value).unwrap_err();
    assert_eq!(error.status(), StatusCode::INTERNAL_SERVER_ERROR, "{value:?}");
    assert_eq!(error.to_string(), "the value of x-field: failed to parse header value", "{value:?}");
    assert!(Response::redirect(value).is_err(), "{value:?}");
}

#[test]
fn no_text_can_split_a_response() {
    refused("a\r\nSet-Cookie: b");
    refused("a\nb");
    refused("a\rb");
    refused("a\0b");
    refused("a\x7fb");
    refused("\x1b[31m");
    for name in ["", "a b", "a:b", "a\r\n", "a\0", "\u{fc}"] {
        let error = Response::new(StatusCode::OK).try_with_header(name, "value").unwrap_err();
        assert_eq!(error.to_string(), "the name of a header: invalid HTTP header name", "{name:?}");
    }
    let made = Response::new(StatusCode::OK).try_with_header("X-Field", "a\tb \u{fc}").unwrap();
    assert_eq!(made.header_lines()[0].0, "x-field");
}

#[test]
fn fields_are_added_and_the_content_type_is_replaced() {
    let field = |value| (HeaderName::from_static("x-field"), HeaderValue::from_static(value));
    let ((name, one), (_, two)) = (field("1"), field("2"));
    let made = text("text").with_header(name.clone(), one).with_appended_header(name, two);
    assert_eq!(made.header_lines(), [field("1"), field("2")]);
    let typed = made.try_with_header(header::CONTENT_TYPE, "text/css").unwrap();
    assert_eq!(typed.content_type().unwrap(), "text/css");
    assert_eq!(typed.header_lines().len(), 2);
    assert!(typed.with_status(StatusCode::CREATED).with_close().close);
}

#[test]
fn a_redirect_is_303() {
    let made = Response::redirect("/there?a=b").unwrap();
    assert_eq!(made.status(), StatusCode::SEE_OTHER);
    assert_eq!(made.header_lines(), [(header::LOCATION, HeaderValue::from_static("/there?a=b"))]);
}

#[test]
fn a_redirect_leads_to_a_url() {
    for (location, sent) in [
        ("/ü x", "/%C3%BC%20x"),
        ("/a%20b?c=%C3%BC#d", "/a%20b?c=%C3%BC#d"),
        ("https://a.example:8443/[x]?a=b&c='d'", "https://a.example:8443/[x]?a=b&c='d'"),
        ("/<a>\"|\\", "/%3Ca%3E%22%7C%5C"),
    ] {
        assert_eq!(Response::redirect(location).unwrap().header("location"), Some(sent));
    }
    for location in ["/a\r\nset-cookie: b", "/a\0", "/a\x7f"] {
        assert!(Response::redirect(location).is_err(), "{location:?}");
    }
}

#[test]
fn only_a_regular_file_can_be_sent() {
    let folder = std::fs::File::open(std::env::temp_dir()).unwrap();
    assert!(Response::file(folder).is_err());
    let this = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let length = this.metadata().unwrap().len();
    let made = Response::file(this).unwrap();
    assert!(matches!(made.payload, Payload::File { offset: 0, count, .. } if count == length));
    assert!(format!("{made:?}").contains("bytes of a file"));
}

#[test]
fn headers_are_found_replaced_and_removed() {
    let (name, other) = (HeaderName::from_static("x-field"), HeaderName::from_static("x-other"));
    let value = HeaderValue::from_static;
    let mut made = text("text");
    for (name, number) in [(&name, "1"), (&other, "2"), (&name, "3")] {
        made.append_header(name.clone(), value(number));
    }
    assert_eq!(made.header(&name), Some("1"));
    assert_eq!(made.header("X-FIELD"), Some("1"));
    assert_eq!(made.header_values(&name).collect::<Vec<_>>(), ["1", "3"]);
    made.set_header(name.clone(), value("4"));
    assert_eq!(made.header_values(&name).collect::<Vec<_>>(), ["4"]);
    assert_eq!(made.remove_header(&name), Some(value("4")));
    assert_eq!((made.remove_header(&name), made.header(&name)), (None, None));
    assert_eq!(made.header_lines(), [(other.clone(), value("2"))]);
    made.set_header(other, HeaderValue::from_bytes(b"\xff").unwrap());
    assert_eq!((made.header("x-other"), made.header_values("x-other").count()), (None, 1));
}

#[test]
fn the_content_type_is_a_header_like_others() {
    let mut made = text("text");
    assert_eq!(made.header("content-type"), TEXT);
    made.append_header(header::CONTENT_TYPE, HeaderValue::from_static("text/css"));
    assert_eq!(made.header_values(header::CONTENT_TYPE).collect::<Vec<_>>(), ["text/css"]);
    assert_eq!(made.remove_header(header::CONTENT_TYPE).unwrap(), "text/css");
    assert_eq!((made.content_type(), made.header(header::CONTENT_TYPE)), (None, None));
}

#[test]
fn the_problem_of_a_decline_has_the_status_that_is_set() {
    let gone = Response::decline().with_status(StatusCode::GONE);
    assert_eq!(gone.body().unwrap(), r#"{"title":"Gone","status":410}"#);
    assert!(!gone.is_declined());
    let page = Response::decline().with_body("nothing here").with_status(StatusCode::GONE);
    assert_eq!(page.body().unwrap(), "nothing here");
}

#[test]
fn a_body_is_looked_at_and_replaced() {
    assert_eq!(Response::new(StatusCode::OK).body_bytes(), Some(0));
    let made = text("text").with_header(header::CONTENT_LENGTH, HeaderValue::from(4));
    assert_eq!(
        (made.body_bytes(), made.body().unwrap().as_ref(), made.is_streaming()),
        (Some(4), &b"text"[..], false)
    );
    let other = made.with_body("another");
    assert_eq!((other.body_bytes(), other.header_lines()), (Some(7), &[][..]));
    let mut other = other.without_body();
    other.set_status(StatusCode::NOT_MODIFIED);
    assert_eq!((other.body_bytes(), other.body()), (Some(0), None));
    let stream = Response::stream(|_| Ok(()));
    assert_eq!((stream.body_bytes(), stream.body(), stream.is_streaming()), (None, None, true));
}

#[test]
fn a_response_has_the_parts_of_other_libraries() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("content-type", "text/csv"),
        ("content-length", "7"),
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("x-key", "value"),
    ] {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let handler =
        move |_: &mut Request<'_>| Response::from_parts(StatusCode::CREATED, headers.clone(), "all of it");
    let answer = TestClient::new(handler).get("/").send();
    assert_eq!((answer.status, answer.text()), (StatusCode::CREATED, "all of it"));
    let cookies: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
    for (name, wanted) in [
        ("content-type", Some("text/csv")),
        ("content-length", Some("9")),
        ("transfer-encoding", None),
        ("connection", None),
        ("x-key", Some("value")),
    ] {
        assert_eq!(answer.header(name), wanted, "{name}");
    }
}

#[test]
fn a_default_content_type_can_be_removed() {
    let mut response = Response::bytes("7");
    response.remove_header("content-type");
    assert_eq!(response.content_type(), None);
    let handler = |_: &mut Request<'_>| {
        let mut response = Response::text("7");
        response.remove_header("Content-Type");
        response
    };
    assert_eq!(TestClient::new(handler).get("/").send().header("content-type"), None);
}

#[test]
fn headers_are_replaced_or_appended_by_text() {
    let response = Response::text("tea").with_header("X-Cups", 2).with_header("x-cups", "3");
    let response = response.with_appended_header("link", "</a>").with_appended_header("link", "</b>");
    let response = response.with_content_type("text/csv").with_header("content-type", "text/html");
    let headers = response.headers();
    let values =
        |name: &str| headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!((values("x-cups"), values("link")), (vec!["3"], vec!["</a>", "</b>"]));
    assert_eq!((values("content-type"), headers.len()), (vec!["text/html"], 4));
}

/// The client gets no part of the value, and the log has the place.
#[test]
fn invalid_text_in_a_header_is_an_error_of_the_server() {
    let response =
        Response::text("tea").with_header("x-user", "7").with_header("x-tea", "a\r\nSet-Cookie: b");
    let error = response.error().unwrap();
    assert_eq!(error.to_string(), "the value of x-tea: failed to parse header value");
    assert!(error.location().unwrap().file().ends_with("responses.rs"));
    assert_eq!(
        (response.status().as_u16(), response.header("x-user"), response.header("x-tea")),
        (500, Some("7"), None)
    );
    let of_tuple = ([("x tea", "1")], "tea").into_response();
    assert_eq!(of_tuple.error().unwrap().message(), "the name of a header");
    assert!(Response::default().try_with_header("x-tea", "\n").is_err());
}

#[test]
fn tuples_set_headers() {
    let created =
        (StatusCode::CREATED, [("x-tea", "1"), ("x-tea", "2"), ("content-type", "text/csv")], "tea");
    let created = created.into_response();
    assert_eq!((created.status().as_u16(), created.body().unwrap().as_ref()), (201, &b"tea"[..]));
    assert_eq!(
        (created.header_values("x-tea").count(), created.header("content-type")),
        (2, Some("text/csv"))
    );
    let mut map = http::HeaderMap::new();
    map.append("x-tea", "1".parse().unwrap());
    map.append("x-tea", "2".parse().unwrap());
    map.append("x-cups", "3".parse().unwrap());
    let answer = (StatusCode::OK, map.clone(), Response::text("").with_header("x-tea", "0")).into_response();
    let mut expected = map;
    expected.insert("content-type", "text/plain; charset=utf-8".parse().unwrap());
    assert_eq!(answer.headers(), expected);
    assert_eq!((map_of("a"), map_of("b")), (Some("a".to_owned()), Some("b".to_owned())));
}

fn map_of(value: &str) -> Option<String> {
    ([(http::header::ETAG, value.to_owned())], ()).into_response().header("etag").map(str::to_owned)
}

#[test]
fn bytes_and_boxes_are_responses() {
    let bodies = [b"tea".into_response(), [b't', b'e', b'a'].into_response(), (&b"tea"[..]).into_response()];
    let boxed = Box::<str>::from("tea").into_response();
    assert_eq!(boxed.header("content-type"), Some("text/plain; charset=utf-8"));
    for response in bodies.into_iter().chain([boxed]) {
        assert_eq!(response.body().unwrap().as_ref(), b"tea");
    }
}
