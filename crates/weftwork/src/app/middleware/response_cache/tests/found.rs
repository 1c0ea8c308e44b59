//! Tests that a stored response is found for all its requests, and that the cache stays within its size.

use bytes::Bytes;

use super::*;
use crate::Router;

#[test]
fn a_key_is_all_that_names_the_target() {
    let handler = counting(|_, response| response.with_header(header::CACHE_CONTROL, MINUTE));
    let router = Router::new().nest("/a", Router::new().fallback(handler));
    let mut client = TestClient::new(router.with(ResponseCache::new()))
        .settings(|s| s.trusted_proxies("127.0.0.1".parse().unwrap()));
    let requests: [(&str, &[(&str, &str)]); 10] = [
        ("/a/", &[]),
        ("/a/b", &[]),
        ("/a/b?", &[]),
        ("/a/b?x=1", &[]),
        ("/a/b?x=%31", &[]),
        ("/a/%62", &[]),
        ("/a/b", &[("host", "other.example")]),
        ("/a/b", &[("host", "other.example:81")]),
        ("/a/b", &[("x-forwarded-proto", "https")]),
        ("/a/b", &[("x-forwarded-host", "other.example")]),
    ];
    for round in 0..2 {
        for (number, (target, fields)) in requests.iter().enumerate() {
            assert_eq!(run(&mut client, target, fields), number + 1, "round {round}: {target} {fields:?}");
        }
    }
    assert_eq!(run(&mut client, "/a/b", &[("host", "OTHER.example")]), 7, "hosts have no case");
    // A handler can read the `Host` beside a whole URI, and that `Host` names nothing.
    assert_eq!(run(&mut client, "http://localhost/a/b", &[("host", "evil.example")]), 11);
    assert_eq!(run(&mut client, "/a/b", &[]), 2);
}

#[test]
fn vary_tells_requests_apart() {
    let lines = [("vary", "Accept-Language"), ("vary", "x-b"), ("cache-control", "max-age=60")];
    let handler = counting(move |_, response| with(response, &lines));
    let mut client = TestClient::new(handler.with(ResponseCache::new()));
    let requests: [&[(&str, &str)]; 7] = [
        &[],
        &[("accept-language", "en")],
        &[("accept-language", "EN")],
        &[("accept-language", "en"), ("accept-language", "fr")],
        &[("accept-language", "en"), ("accept-language", "de")],
        &[("accept-language", "en"), ("x-b", "")],
        &[("accept-language", "en"), ("x-b", "1")],
    ];
    for round in 0..2 {
        for (number, fields) in requests.iter().enumerate() {
            assert_eq!(run(&mut client, "/", fields), number + 1, "round {round}: {fields:?}");
        }
    }
    assert_eq!(run(&mut client, "/", &[("x-c", "not named")]), 1);
}

#[test]
fn the_newest_of_those_that_suit_is_sent() {
    let handler = counting(|req, response| {
        let by = req.header("x-by").unwrap_or("x-none").to_owned();
        with(response, &[("vary", &by), ("cache-control", "max-age=60")])
    });
    let mut client = TestClient::new(handler.with(ResponseCache::new()));
    assert_eq!(run(&mut client, "/", &[("x-by", "x-a"), ("x-a", "1")]), 1);
    assert_eq!(run(&mut client, "/", &[("x-by", "x-b"), ("x-b", "1")]), 2);
    assert_eq!(run(&mut client, "/", &[("x-a", "1"), ("x-b", "1")]), 2);
    assert_eq!(run(&mut client, "/", &[("x-a", "1")]), 1);
}

#[test]
fn a_client_can_fill_a_target_and_a_cache_only_so_far() {
    let vary = [("vary", "x-a"), ("cache-control", "max-age=60")];
    let handler = counting(move |_, response| with(response, &vary));
    let mut client = TestClient::new(handler.with(ResponseCache::new()));
    for value in 1..=17 {
        assert_eq!(run(&mut client, "/", &[("x-a", &value.to_string())]), value);
    }
    assert_eq!(run(&mut client, "/", &[("x-a", "2")]), 2);
    assert_eq!(run(&mut client, "/", &[("x-a", "1")]), 18, "the oldest one had to go");
}

#[test]
fn what_was_used_least_recently_goes_first() {
    let cache = Arc::new(ResponseCache::new().bytes_max(8000).response_bytes_max(2000));
    let sized = |req: &mut Request<'_>| {
        let bytes = req.query().unwrap_or_default().parse().unwrap_or(0);
        text("x".repeat(bytes)).with_header(header::CACHE_CONTROL, MINUTE)
    };
    let mut client = TestClient::new(sized.with(cache.clone()));
    let mut ask = |target: &str| client.get(target).send().header("age").is_some();
    for target in ["/a?2000", "/b?1000", "/c?1000"] {
        assert!(!ask(target) && ask(target), "{target}");
    }
    assert!(ask("/a?2000"));
    assert!(!ask("/d?2000"), "no room for four");
    assert!(ask("/a?2000") && ask("/c?1000") && ask("/d?2000") && !ask("/b?1000"));
    assert!(!ask("/e?2001") && !ask("/e?2001"), "it is too long");
    for number in 0..200 {
        ask(&format!("/{}?{}", number % 23, number * 37 % 2000));
        assert!((1..=8000).contains(&bytes_of(&cache)), "{cache:?}");
    }
    for number in 0..200 {
        let target = format!("/{}?{}", number % 23, number * 37 % 2000);
        assert!(client.post(target).send().status.is_success());
    }
    for target in ["/a?2000", "/b?1000", "/c?1000", "/d?2000"] {
        client.post(target).send();
    }
    assert_eq!(bytes_of(&cache), 0, "nothing is counted that is not there");

    let mut client = client_of(ResponseCache::new().bytes_max(100), &[("cache-control", "max-age=60")]);
    assert!(!is_kept(&mut client, &[]), "no room for one");
}

#[test]
fn all_that_is_kept_is_counted() {
    fn long() -> HeaderValue {
        HeaderValue::try_from("x".repeat(1000)).unwrap()
    }
    let bytes = |dress: fn(Response) -> Response| {
        let cache = Arc::new(ResponseCache::new());
        let handler = counting(move |_, response| dress(response.with_header(header::CACHE_CONTROL, MINUTE)));
        assert!(is_kept(&mut TestClient::new(handler.with(cache.clone())), &[]));
        bytes_of(&cache)
    };
    let plain = bytes(|response| response);
    assert!(bytes(|response| response.with_content_type(long())) > plain + 900);
    // The name occurs once in the field `Vary`, and once with its values.
    assert!(bytes(|response| response.with_header(header::VARY, long())) > plain + 2000);
}

/// Values and bodies may be slices of a larger buffer, which would be held without being counted.
#[test]
fn what_is_larger_is_not_held() {
    struct Large {
        _held: Arc<()>,
    }
    impl AsRef<[u8]> for Large {
        fn as_ref(&self) -> &[u8] {
            &[b'1'; 1000]
        }
    }
    let held = Arc::new(());
    let inside = held.clone();
    let handler = counting(move |_, response| {
        let large = Bytes::from_owner(Large { _held: inside.clone() });
        let value = || HeaderValue::from_maybe_shared(large.slice(..1)).unwrap();
        let response = response.with_body(large.slice(..1)).with_content_type(value());
        response.with_header(header::CONTENT_LANGUAGE, value()).with_header(header::CACHE_CONTROL, MINUTE)
    });
    let mut client = TestClient::new(handler.with(ResponseCache::new()));
    assert!(is_kept(&mut client, &[]));
    assert_eq!(Arc::strong_count(&held), 2, "here and in the handler");
}
