//! Which URLs are servers, and which paths and fields a server sees.

use super::Proxy;
use super::forward::head;
use crate::message::Request;
use crate::message::testing::Canned;

#[track_caller]
fn sees(proxy: &Proxy, request: &str) -> Result<String, u16> {
    use crate::IntoResponse;
    let mut canned = Canned::new(request);
    let request = Request::new(&mut canned, 1 << 20);
    head(&request, &proxy.upstream, &proxy.options)
        .map(|head| String::from_utf8(head).unwrap())
        .map_err(|failure| failure.into_response().status().as_u16())
}

#[track_caller]
fn path(proxy: &Proxy, target: &str) -> Result<String, u16> {
    let head = sees(proxy, &format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))?;
    Ok(head.split(' ').nth(1).unwrap().to_owned())
}

#[test]
fn a_url_is_checked_when_it_is_given() {
    for url in ["http://127.0.0.1:1", "http://127.0.0.1", "http://[::1]:1/base/", "http://localhost/a"] {
        assert!(Proxy::to(url).is_ok(), "{url}");
    }
    for url in [
        "",
        "127.0.0.1:1",
        "https://127.0.0.1",
        "http://",
        "http:///a",
        "http://u@127.0.0.1",
        "http://127.0.0.1:x",
        "http://127.0.0.1/a?b",
        "http://127.0.0.1/a#b",
        "http://127.0.0.1/a b",
        "http://a\r\nb",
        "http://no-such-host.invalid",
    ] {
        let error = Proxy::to(url).unwrap_err().to_string();
        assert!(error.contains("http://host:port") || error.contains("not known"), "{error}");
    }
}

#[test]
fn the_path_is_passed_on() {
    let plain = Proxy::to("http://127.0.0.1:1").unwrap();
    for target in ["/", "/a/b?c=d", "/a%2Fb", "/a/../b", "/?"] {
        assert_eq!(path(&plain, target), Ok(target.to_owned()));
    }
    assert_eq!(path(&plain, "http://evil.example/a?b"), Ok("/a?b".to_owned()));
    let below = Proxy::to("http://127.0.0.1:1/base/").unwrap().strip_prefix("/api/");
    assert_eq!(path(&below, "/api/a?b"), Ok("/base/a?b".to_owned()));
    assert_eq!(path(&below, "/api"), Ok("/base/".to_owned()));
    assert_eq!(path(&below, "/api/"), Ok("/base/".to_owned()));
    assert_eq!(path(&below, "/apis"), Err(404));
    assert_eq!(path(&below, "/"), Err(404));
    for target in ["/api/../a", "/api/%2e%2E/a", "/api/a/.%2e", "/api/..%2fa", "/api/x%2F..%2Fa"] {
        assert_eq!(path(&below, target), Err(400), "{target}");
    }
}

#[test]
fn connect_is_refused() {
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    assert_eq!(sees(&proxy, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"), Err(405));
}

#[test]
fn fields_for_one_connection_stay_and_ours_are_said() {
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\
                   Keep-Alive: 5\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nVia: 1.1 before\r\n\
                   Proxy-Connection: x\r\nX-Twice: 1\r\nX-Twice: 2\r\nCookie: c\r\n\r\n";
    let head = sees(&proxy, request).unwrap();
    let expected = "GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nX-Twice: 1\r\nX-Twice: 2\r\nCookie: c\r\n\
                    X-Forwarded-Host: a.example\r\nX-Forwarded-Proto: http\r\nVia: 1.1 before\r\nVia: 1.1 weftwork\r\n";
    assert!(head.starts_with(expected), "{head}");
    let kept = sees(&proxy.keep_host(), request).unwrap();
    assert!(kept.contains("\r\nHost: a.example\r\n"), "{kept}");
}

#[test]
fn an_upgrade_is_asked_for_where_the_client_asks() {
    let proxy = Proxy::to("http://127.0.0.1:1").unwrap();
    let asks = |fields: &str| {
        sees(&proxy, &format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
            .unwrap()
            .contains("upgrade\r\nUpgrade: x\r\n")
    };
    assert!(asks("Connection: keep-alive, Upgrade\r\nUpgrade: x\r\n"));
    assert!(!asks("Upgrade: x\r\n"));
    assert!(!asks("Connection: upgrade\r\n"));
}
