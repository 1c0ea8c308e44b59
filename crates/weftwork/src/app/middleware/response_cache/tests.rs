//! Tests that a stored response answers for the handler while it is fresh and only for its own requests, and
//! that nothing else does.

mod changed;
mod found;

use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;

use super::*;
use crate::app::middleware::{HandlerExt, User};
use crate::testing::TestResponse;
use crate::{Handler, IntoResponse, TestClient, text};

const MINUTE: HeaderValue = HeaderValue::from_static("max-age=60");

fn with(response: Response, fields: &[(&str, &str)]) -> Response {
    let value = |value: &str| HeaderValue::from_bytes(value.as_bytes()).unwrap();
    let set =
        |response: Response, (name, text): &(&str, &str)| response.with_appended_header(*name, value(text));
    fields.iter().fold(response, set)
}

/// A handler that answers with the number of its runs, after `dress` has changed the response.
fn counting(dress: impl Fn(&mut Request<'_>, Response) -> Response + Send + Sync + 'static) -> impl Handler {
    let runs = AtomicUsize::new(0);
    move |req: &mut Request<'_>| {
        let run = runs.fetch_add(1, Ordering::Relaxed) + 1;
        dress(req, text(run.to_string()))
    }
}

/// Returns a client of a cache before a handler that answers with these fields.
fn client_of(cache: ResponseCache, fields: &'static [(&str, &str)]) -> TestClient {
    TestClient::new(counting(move |_, response| with(response, fields)).with(cache))
}

fn fresh_for_a_minute() -> TestClient {
    client_of(ResponseCache::new(), &[("cache-control", "max-age=60")])
}

fn get(client: &mut TestClient, target: &str, fields: &[(&str, &str)]) -> TestResponse {
    let mut request = client.get(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.send()
}

/// Returns the number of the handler's run that made the answer.
fn run(client: &mut TestClient, target: &str, fields: &[(&str, &str)]) -> usize {
    let answer = get(client, target, fields);
    assert_eq!(answer.status, StatusCode::OK, "{target} {fields:?}");
    answer.text().parse().unwrap()
}

/// Returns true if a second request like that is answered without the handler.
#[track_caller]
fn is_kept(client: &mut TestClient, fields: &[(&str, &str)]) -> bool {
    let first = run(client, "/", fields);
    let second = run(client, "/", fields);
    assert!(second == first || second == first + 1);
    second == first
}

fn bytes_of(cache: &ResponseCache) -> u64 {
    let shown = format!("{cache:?}");
    let (_, bytes) = shown.split_once(" bytes: ").unwrap();
    bytes.split_once(',').unwrap().0.parse().unwrap()
}

#[test]
fn what_is_fresh_is_answered_without_the_handler() {
    let mut client = fresh_for_a_minute();
    let first = client.get("/").send();
    assert_eq!((first.text(), first.header("age")), ("1", None));
    for (wait, age) in [(0, "0"), (1, "1"), (58, "59")] {
        client.advance(Duration::from_secs(wait));
        let again = client.get("/").send();
        assert_eq!((again.text(), again.header("age")), ("1", Some(age)));
        for name in ["content-type", "content-length", "cache-control", "etag", "date"] {
            assert!(again.header(name).is_some() && again.header(name) == first.header(name), "{name}");
        }
    }
    client.advance(Duration::from_secs(1));
    let anew = client.get("/").send();
    assert_eq!((anew.text(), anew.header("age")), ("2", None), "after a minute it is not fresh");
    assert_eq!(run(&mut client, "/", &[]), 2);
}

#[test]
fn what_a_response_says_of_itself() {
    for (kept, fields) in [
        (true, &[("cache-control", "max-age=60")][..]),
        (true, &[("cache-control", "must-revalidate , Max-Age=60,,x")]),
        (true, &[("cache-control", "max-age=0, s-maxage=60")]),
        (true, &[("cache-control", "max-age=99999999999999999999999")]),
        (true, &[("cache-control", "max-age=60"), ("cache-control", "public")]),
        (true, &[("cache-control", "max-age=60"), ("age", "59")]),
        (true, &[("cache-control", "max-age=60"), ("vary", "accept, x-other"), ("vary", "")]),
        (true, &[("cache-control", "max-age=60"), ("expires", "0")]),
        (false, &[]),
        (false, &[("cache-control", "public")]),
        (false, &[("cache-control", "max-age=0")]),
        (false, &[("cache-control", "max-age")]),
        (false, &[("cache-control", "max-age=")]),
        (false, &[("cache-control", "max-age=-1")]),
        (false, &[("cache-control", "max-age=+60")]),
        (false, &[("cache-control", "max-age=1.5")]),
        (false, &[("cache-control", "max-age=60, s-maxage=0")]),
        (false, &[("cache-control", "max-age=60, s-maxage")]),
        (false, &[("cache-control", "max-age=60, max-age=60")]),
        (false, &[("cache-control", "max-age=60"), ("cache-control", "max-age=30")]),
        (false, &[("cache-control", "max-age=60, No-Store")]),
        (false, &[("cache-control", "max-age=60, no-cache")]),
        (false, &[("cache-control", "max-age=60"), ("cache-control", "PRIVATE")]),
        (false, &[("cache-control", "max-age=60, private=\"set-cookie\"")]),
        (false, &[("cache-control", "x=\"a, max-age=60\"")]),
        (false, &[("cache-control", "max-age=60, \u{e4}")]),
        (false, &[("expires", "Fri, 31 Dec 9999 23:59:59 GMT")]),
        (false, &[("cache-control", "max-age=60"), ("set-cookie", "a=b")]),
        (false, &[("cache-control", "max-age=60"), ("connection", "x-own")]),
        (false, &[("cache-control", "max-age=60"), ("vary", "*")]),
        (false, &[("cache-control", "max-age=60"), ("vary", "accept, *")]),
        (false, &[("cache-control", "max-age=60"), ("vary", "no field")]),
        (false, &[("cache-control", "max-age=60"), ("age", "60")]),
        (false, &[("cache-control", "max-age=60"), ("age", "young")]),
        (false, &[("cache-control", "max-age=60"), ("date", "Sun, 06 Nov 1994 08:49:37 GMT")]),
        (false, &[("cache-control", "max-age=60"), ("date", "yesterday")]),
    ] {
        assert_eq!(is_kept(&mut client_of(ResponseCache::new(), fields), &[]), kept, "{fields:?}");
    }
}

#[test]
fn only_a_whole_200_in_memory_is_kept() {
    fn kept(make: fn() -> Response) -> bool {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let handler = move |_: &mut Request<'_>| {
            counted.fetch_add(1, Ordering::Relaxed);
            make().with_header(header::CACHE_CONTROL, MINUTE)
        };
        let mut client = TestClient::new(handler.with(ResponseCache::new()));
        let statuses = [client.get("/").send().status, client.get("/").send().status];
        assert_eq!(statuses[0], statuses[1]);
        runs.load(Ordering::Relaxed) == 1
    }
    assert!(kept(|| text("x")));
    assert!(kept(|| text("")));
    assert!(!kept(|| text("x").with_status(StatusCode::NOT_FOUND)));
    assert!(!kept(|| text("x").with_status(StatusCode::PARTIAL_CONTENT)));
    assert!(!kept(|| Response::new(StatusCode::NO_CONTENT)));
    assert!(!kept(|| Response::stream(|_| Ok(()))));
    assert!(!kept(|| crate::Error::boxed("ours").into_response().with_status(StatusCode::OK)));
    assert!(!kept(Response::decline));
}

#[test]
fn a_request_with_credentials_gets_and_stores_only_public_responses() {
    const OWN: [&[(&str, &str)]; 3] =
        [&[("authorization", "Basic eA==")], &[("cookie", "a=b")], &[("Cookie", ""), ("x", "y")]];
    for own in OWN {
        let mut client = fresh_for_a_minute();
        assert!(!is_kept(&mut client, own), "{own:?}");
        let everybody = run(&mut client, "/", &[]);
        assert_eq!(run(&mut client, "/", &[]), everybody);
        assert_ne!(run(&mut client, "/", own), everybody, "what is kept for others may not be for this one");
        assert_eq!(run(&mut client, "/", &[]), everybody, "and the other way round");

        let mut client = client_of(ResponseCache::new(), &[("cache-control", "max-age=60, public")]);
        assert!(is_kept(&mut client, own));
        assert_eq!(run(&mut client, "/", &[]), 1);
    }
    let handler = counting(|_, response| response.with_header(header::CACHE_CONTROL, MINUTE));
    let known = |req: &mut Request<'_>, next: Next<'_>| {
        req.extensions_mut().insert(User::new("ada"));
        next.run(req)
    };
    let mut client = TestClient::new(handler.with(ResponseCache::new()).with(known));
    assert!(!is_kept(&mut client, &[]), "who is known by other means");
}

#[test]
fn what_a_request_wishes() {
    assert!(!is_kept(&mut fresh_for_a_minute(), &[("cache-control", "max-age=0, No-Store")]));
    for wish in ["no-cache", "max-age=0"] {
        assert!(is_kept(&mut fresh_for_a_minute(), &[("cache-control", wish)]), "{wish}");
    }
    // A request with parts outside of the key reaches the handler, even if a response is stored.
    for special in [
        ("range", "bytes=0-0"),
        ("upgrade", "websocket"),
        ("transfer-encoding", "chunked"),
        ("cache-control", "max-age=0, No-Transform"),
        ("if-match", "\"other\""),
        ("if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ] {
        let mut client = fresh_for_a_minute();
        assert_eq!(run(&mut client, "/", &[]), 1);
        let mut passed = client.connect();
        let (name, value) = special;
        passed.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{name}: {value}\r\n\r\n"));
        passed.send(if name == "transfer-encoding" { "1\r\nx\r\n0\r\n\r\n" } else { "" });
        assert_eq!(passed.response().text(), "2", "{special:?}");
        assert_eq!(run(&mut client, "/", &[]), 1, "{special:?}");
    }
    let mut client = fresh_for_a_minute();
    assert_eq!(client.get("/").body("x").send().text(), "1");
    assert_eq!(client.get("/").body("").send().text(), "2", "nothing was kept; an empty body is none");
    assert_eq!(run(&mut client, "/", &[]), 2);
}

/// The fields that announce a body are gone after it has been decoded.
#[cfg(feature = "compression")]
#[test]
fn a_decoded_body_is_a_body() {
    use crate::middleware::Decompression;
    let echo = |req: &mut Request<'_>| -> crate::Result<Response> {
        Ok(Response::bytes(req.body().bytes()?).with_header(header::CACHE_CONTROL, MINUTE))
    };
    let mut client = TestClient::new(echo.with(ResponseCache::new()).with(Decompression::new()));
    let packed = zstd::encode_all(&b"<script>"[..], 3).unwrap();
    let poison = client.get("/").header("content-encoding", "zstd").body(packed).send();
    assert_eq!(poison.text(), "<script>");
    assert_eq!(client.get("/").send().text(), "");
}

#[test]
fn head_is_answered_from_get_and_leaves_nothing() {
    let mut client = fresh_for_a_minute();
    assert_eq!(client.head("/").send().header("age"), None);
    assert_eq!(run(&mut client, "/", &[]), 2, "a HEAD has no body to keep");
    let head = client.head("/").send();
    assert_eq!((head.header("age"), head.header("content-length")), (Some("0"), Some("1")));
    assert!(head.bytes().is_empty());
}

#[test]
fn conditions_are_answered_from_what_is_kept() {
    let mut client = fresh_for_a_minute();
    let tag = client.get("/").send().header("etag").unwrap().to_owned();
    client.advance(Duration::from_secs(5));
    for known in [tag.clone(), format!("W/{tag}"), "*".into()] {
        let answer = get(&mut client, "/", &[("if-none-match", &known)]);
        assert_eq!((answer.status, answer.header("age")), (StatusCode::NOT_MODIFIED, Some("5")), "{known}");
        assert_eq!((answer.header("etag"), answer.bytes().len()), (Some(&*tag), 0));
    }
    assert_eq!(run(&mut client, "/", &[("if-none-match", "\"other\"")]), 1);

    // The first request may be conditional, too: the whole response is stored.
    let mut client = client_of(ResponseCache::new(), &[("cache-control", "max-age=60"), ("etag", "\"own\"")]);
    let first = get(&mut client, "/", &[("if-none-match", "\"own\"")]);
    assert_eq!((first.status, first.header("age")), (StatusCode::NOT_MODIFIED, None));
    assert_eq!(run(&mut client, "/", &[]), 1);
}

#[test]
fn a_panic_leaves_the_cache_as_it_was() {
    let handler = counting(|_, response| {
        assert_ne!(response.body().unwrap(), "1", "as asked");
        response.with_header(header::CACHE_CONTROL, MINUTE)
    });
    let mut client = TestClient::new(handler.with(ResponseCache::new()));
    assert_eq!(client.get("/").send().status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(is_kept(&mut client, &[]));
}

#[test]
fn a_freshness_for_those_that_say_none() {
    let for_ten = || ResponseCache::new().fresh_for(Duration::from_secs(10));
    for (kept, fields) in [
        (true, &[][..]),
        (true, &[("cache-control", "public")]),
        (false, &[("cache-control", "max-age=0")]),
        (false, &[("cache-control", "private")]),
        (false, &[("expires", "0")]),
        (false, &[("set-cookie", "a=b")]),
    ] {
        assert_eq!(is_kept(&mut client_of(for_ten(), fields), &[]), kept, "{fields:?}");
    }
    let mut client = client_of(for_ten(), &[]);
    assert_eq!(run(&mut client, "/", &[]), 1);
    client.advance(Duration::from_secs(10));
    assert_eq!(run(&mut client, "/", &[]), 2);
    assert!(!is_kept(&mut client_of(for_ten(), &[]), &[("cookie", "a=b")]));
}

/// The time that the handler takes counts as age.
#[test]
fn a_slow_answer_is_not_young() {
    let slow = counting(|_, response| {
        crate::sleep(Duration::from_secs(20));
        response.with_header(header::CACHE_CONTROL, MINUTE)
    });
    let mut client = TestClient::new(slow.with(ResponseCache::new()));
    client.get("/").send();
    assert_eq!(client.get("/").send().header("age"), Some("20"));
}

#[cfg(feature = "compression")]
#[test]
fn compression_inside_is_kept_by_coding() {
    use crate::middleware::Compression;
    let handler = |_: &mut Request<'_>| text("words ".repeat(500)).with_header(header::CACHE_CONTROL, MINUTE);
    let mut client = TestClient::new(handler.with(Compression::new()).with(ResponseCache::new()));
    for _ in 0..2 {
        for (accepted, coding) in [("gzip", Some("gzip")), ("br", Some("br")), ("identity", None)] {
            let answer = get(&mut client, "/", &[("accept-encoding", accepted)]);
            assert_eq!((answer.status, answer.header("content-encoding")), (StatusCode::OK, coding));
        }
    }
    assert_eq!(get(&mut client, "/", &[("accept-encoding", "br")]).header("age"), Some("0"));
}

#[test]
fn a_wrong_length_fails_each_time_alike() {
    let given = |length: u16| {
        let handler = counting(move |_, response| {
            response.with_header(header::CACHE_CONTROL, MINUTE).with_header(header::CONTENT_LENGTH, length)
        });
        let mut client = TestClient::new(handler.with(ResponseCache::new()));
        [client.get("/").send().status, client.get("/").send().status]
    };
    assert_eq!(given(1), [StatusCode::OK; 2]);
    assert_eq!(given(9), [StatusCode::INTERNAL_SERVER_ERROR; 2]);
}

/// The first request has no `Origin`, and the next one has.
#[test]
fn a_grant_for_any_origin_is_kept_for_all() {
    use crate::middleware::Cors;
    let handler = counting(|_, response| response.with_header(header::CACHE_CONTROL, MINUTE));
    let mut client = TestClient::new(handler.with(Cors::any_origin()).with(ResponseCache::new()));
    assert_eq!(run(&mut client, "/", &[]), 1);
    let answer = get(&mut client, "/", &[("origin", "https://app.example")]);
    assert_eq!((answer.text(), answer.header("access-control-allow-origin")), ("1", Some("*")));
}
