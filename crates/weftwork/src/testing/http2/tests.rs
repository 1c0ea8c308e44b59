//! Tests that a client of HTTP/2 in memory sees what one of HTTP/1.1 sees.

use std::io::Write;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode, Version, header};

use crate::{Request, Response, Result, Router, TestClient};

const SECOND: Duration = Duration::from_secs(1);

fn site() -> Router {
    Router::new()
        .get("/", |req: &mut Request| {
            format!("{:?} {} {}", req.version(), req.scheme(), req.host().unwrap_or("nobody"))
        })
        .post("/echo", |req: &mut Request| -> Result<Response> {
            Ok(Response::bytes(req.body().limit(u64::MAX).bytes()?))
        })
        .post("/ignore", |_: &mut Request| "not read")
        .get("/stream/{count}", |req: &mut Request| {
            let count: usize = req.param("count").unwrap().parse().unwrap();
            Response::stream(move |out| (0..count).try_for_each(|_| out.write_all(&[b'x'; 1000])))
        })
        .get("/endless", |_: &mut Request| {
            Response::stream(|out| {
                loop {
                    out.write_all(&[b'x'; 1000])?;
                }
            })
        })
        .get("/breaks", |_: &mut Request| {
            Response::stream(|out| {
                out.write_all(b"the beginning")?;
                Err(std::io::Error::other("as asked"))
            })
        })
        .get("/later", |_: &mut Request| Response::text("late").with_delay(SECOND * 60))
        .get("/sleep", |_: &mut Request| {
            crate::sleep(SECOND * 60);
            "slept"
        })
        .get("/early", |req: &mut Request| -> Result<&'static str> {
            let link = (HeaderName::from_static("link"), HeaderValue::from_static("</a.css>; rel=preload"));
            req.interim(StatusCode::EARLY_HINTS, &[link])?;
            Ok("final")
        })
        .get("/close", |_: &mut Request| Response::text("last").with_close())
        .get("/trailers", |_: &mut Request| {
            Response::stream(|out| {
                out.write_all(b"body")?;
                let field = (HeaderName::from_static("x-sum"), HeaderValue::from(7));
                out.trailers(std::slice::from_ref(&field)).map(drop)
            })
        })
}

fn client() -> TestClient {
    TestClient::new(site()).http2()
}

#[test]
fn handlers_see_http2_on_one_connection() {
    let mut client = client();
    for _ in 0..250 {
        let answer = client.get("/").send();
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, "HTTP/2.0 http localhost"));
        assert_eq!(answer.header("content-length"), Some("23"));
    }
    assert_eq!(client.stats().connections, 1);
    assert_eq!(client.get("/").header("host", "a.example").send().text(), "HTTP/2.0 http a.example");
    assert_eq!(client.get("/missing").send().status, StatusCode::NOT_FOUND);
    assert_eq!(client.head("/").send().text(), "");
}

#[cfg(feature = "_tls")]
#[test]
fn handlers_see_tls() {
    assert_eq!(client().secured().get("/").send().text(), "HTTP/2.0 https localhost");
}

#[test]
fn bodies_of_every_size_go_both_ways() {
    let mut client = client();
    for size in [0, 1, 16_384, 65_535, 65_536, 3_000_000] {
        let body: Vec<u8> = (0..size).map(|at| at as u8).collect();
        assert!(client.post("/echo").body(body.clone()).send().bytes() == &body, "{size}");
        assert_eq!(client.post("/ignore").body(body).send().text(), "not read", "{size}");
    }
    assert_eq!(client.post("/echo").chunks(["one", "two"], SECOND).send().text(), "onetwo");
    assert_eq!(client.elapsed(), SECOND * 3);
    assert_eq!(client.get("/stream/5000").send().bytes().len(), 5_000_000);
}

#[test]
fn interim_responses_and_trailers_arrive() {
    let mut client = client();
    let answer = client.get("/early").send();
    assert_eq!((answer.interims[0].0, answer.text()), (StatusCode::EARLY_HINTS, "final"));
    let answer = client.post("/echo").expect_continue().body("body").send();
    assert_eq!((answer.interims[0].0, answer.text()), (StatusCode::CONTINUE, "body"));
    let answer = client.get("/trailers").header(header::TE, "trailers").send();
    assert_eq!((answer.text(), answer.trailers.get("x-sum").unwrap().as_bytes()), ("body", &b"7"[..]));
}

#[test]
fn time_is_the_clients() {
    let mut client = client();
    assert_eq!(client.get("/later").send().text(), "late");
    assert_eq!(client.get("/sleep").send().text(), "slept");
    assert_eq!(client.elapsed(), SECOND * 120);
}

/// Late responses and large uploads hold up no other request of their connection.
#[test]
fn several_requests_are_sent_at_once() {
    let mut client = client();
    let late: Vec<_> = (0..50).map(|_| client.get("/later").begin()).collect();
    let upload = client.post("/echo").body(vec![b'x'; 3_000_000]).begin();
    for _ in 0..3 {
        assert_eq!(client.get("/").send().status, StatusCode::OK);
    }
    assert_eq!(client.finish(upload).bytes().len(), 3_000_000);
    assert_eq!(client.elapsed(), Duration::ZERO);
    for late in late.into_iter().rev() {
        assert_eq!(client.finish(late).text(), "late");
    }
    assert_eq!((client.elapsed(), client.stats().connections), (SECOND * 60, 1));
}

#[test]
#[should_panic(expected = "the connection of this request has ended")]
fn a_request_of_another_connection_has_no_response() {
    let mut client = client();
    let late = client.get("/later").begin();
    assert_eq!(client.get("/close").send().text(), "last");
    client.advance(SECOND * 3600);
    assert_eq!(client.get("/").send().status, StatusCode::OK);
    client.finish(late);
}

#[test]
fn an_idle_connection_is_replaced() {
    let mut client = client();
    assert_eq!(client.get("/").send().status, StatusCode::OK);
    client.advance(SECOND * 3600);
    assert_eq!(client.get("/").send().status, StatusCode::OK);
}

#[test]
fn a_body_that_stops_is_a_timeout() {
    let mut client = client();
    let answer = client.post("/echo").chunks(["one", "two"], SECOND * 3600).send();
    assert_eq!((answer.status, client.stats().timeouts), (StatusCode::REQUEST_TIMEOUT, 1));
}

#[test]
fn a_response_that_breaks_off_is_an_error() {
    let mut client = client();
    let none = client.get("/breaks").try_send().unwrap_err();
    assert!(none.to_string().contains("reset the stream"), "{none}");
    assert_eq!(none.partial().unwrap().text(), "the beginning");
    let part = client.get("/endless").leave_after(10_000).send();
    assert!(!part.is_whole() && part.bytes().len() >= 9_000, "{part:?}");
    assert_eq!(client.get("/").send().status, StatusCode::OK);
}

#[test]
fn a_connection_that_ends_is_replaced() {
    let mut client = client();
    assert_eq!(client.get("/close").send().text(), "last");
    assert_eq!(client.get("/").send().status, StatusCode::OK);
    let mut client = client.settings(|settings| settings.body_bytes_max(4));
    assert_eq!(client.post("/echo").body("four").send().text(), "four");
    assert_eq!(client.get("/").send().text().split(' ').next(), Some(&*format!("{:?}", Version::HTTP_2)));
}

#[test]
#[should_panic(expected = "a client of HTTP/2 sends no HTTP/1.0")]
fn http_10_is_refused() {
    client().get("/").http10().send();
}
