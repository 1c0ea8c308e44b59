//! Tests that a test client sees the same as a client over a socket, and that its clock controls every
//! deadline.

use std::io::{BufRead, Write};

use http::{HeaderValue, Method, StatusCode, header};

use super::*;
use crate::middleware::{Deadline, RateLimit};
use crate::{HandlerExt, Request, Response, Result};

fn site(req: &mut Request) -> Result<Response> {
    let path = req.path().to_owned();
    Ok(match path.as_str() {
        "/echo" => Response::bytes(req.body().bytes()?),
        "/headers" => {
            let lines =
                req.header_lines().map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)));
            Response::text(lines.collect::<Vec<_>>().join("\n"))
        }
        "/length" => {
            let mut body = req.body();
            let mut count = 0;
            while let part @ 1.. = body.fill_buf()?.len() {
                count += part;
                body.consume(part);
            }
            Response::text(count.to_string())
        }
        "/stream" => Response::stream(|out| out.write_all(b"piece by piece")),
        "/endless" => Response::stream(|out| {
            loop {
                crate::sleep(Duration::from_secs(1));
                out.write_all(b"tick\n")?;
                out.flush()?;
            }
        }),
        "/broken" => Response::stream(|out| {
            out.write_all(b"the beginning")?;
            Err(std::io::Error::other("as asked"))
        }),
        "/large" => Response::bytes(vec![b'x'; 1 << 20]),
        "/file" => Response::file(std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))?)?,
        "/panic" => panic!("as asked"),
        "/close" => Response::text("last").with_close(),
        "/early" => {
            req.interim(StatusCode::EARLY_HINTS, &[(header::LINK, HeaderValue::from_static("</a.css>"))])?;
            Response::text("final")
        }
        "/peer" => Response::text(format!("{:?} {:?}", req.peer_addr(), req.local_addr())),
        "/query" => Response::text(req.query_value("a b").unwrap_or_default().into_owned()),
        "/sleep" => {
            crate::sleep(Duration::from_secs(3600));
            Response::text("slept")
        }
        "/blocking" => Response::text(crate::blocking(|| "done")),
        _ => Response::text(format!("{} {path}", req.method())),
    })
}

fn client() -> TestClient {
    TestClient::new(site)
}

#[test]
fn requests_share_a_connection() {
    let mut client = client();
    for path in ["/a", "/b", "/c"] {
        assert_eq!(client.get(path).send().text(), format!("GET {path}"));
    }
    assert_eq!(client.stats().accepted, 1);
    assert!(client.get("/close").send().closes());
    assert_eq!(client.stats().connections, 0);
    assert_eq!(client.get("/d").send().text(), "GET /d");
    assert_eq!(client.stats().accepted, 2);
}

/// Each is read as the answer to its own request, and a refusal as an answer with a body.
#[test]
fn answers_to_head_among_others() {
    let mut connection = client().connect();
    connection.send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\nGET /y HTTP/1.1\r\nHost: a\r\n\r\nHEAD bad\r\n\r\n");
    let answer = connection.response();
    assert_eq!((answer.header("content-length"), answer.text()), (Some("7"), ""));
    assert_eq!(connection.response().text(), "GET /y");
    let refused = connection.response();
    assert_eq!((refused.status.as_u16(), refused.text()), (400, ""));
    assert_ne!(refused.header("content-length"), Some("0"), "GET would be told why");
}

/// No handler has seen these requests.
#[test]
fn a_refusal_has_content_unless_it_is_for_head() {
    let long = "x".repeat(40_000);
    for (status, rest) in [
        (400, " / HTTP/1.1\r\nHost : a\r\n\r\n".to_owned()),
        (414, format!(" /{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
        (431, format!(" / HTTP/1.1\r\nHost: a\r\nA: {long}\r\n\r\n")),
        (400, " / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n".to_owned()),
    ] {
        for (before, method) in [("GET", "GET"), ("GET", "HEAD"), ("HEAD", "GET"), ("HEAD", "HEAD")] {
            let mut connection = client().connect();
            connection.send(format!("{before} /x HTTP/1.1\r\nHost: a\r\n\r\n{method}{rest}"));
            assert_eq!(connection.response().status, 200);
            let refused = connection.response();
            assert_eq!(refused.status, status, "{method}");
            assert_eq!(refused.bytes().is_empty(), method == "HEAD", "behind {before}: {refused:?}");
            assert!(connection.received().is_empty());
        }
    }
}

#[test]
fn the_refusal_of_half_a_head_has_content_unless_that_is_of_a_head() {
    let client = client();
    for (before, half) in [("GET", "HEAD /y"), ("HEAD", "HEAD "), ("GET", "GET /y"), ("HEAD", "HEAD")] {
        let mut connection = client.connect();
        connection.send(format!("{before} /x HTTP/1.1\r\nHost: a\r\n\r\n{half}"));
        assert_eq!(connection.response().status, 200);
        connection.advance(Duration::from_secs(10));
        let refused = connection.response();
        assert_eq!(refused.status, 408);
        assert_eq!(refused.bytes().is_empty(), half.starts_with("HEAD "), "{half}: {refused:?}");
        assert!(connection.received().is_empty());
    }
}

#[test]
fn every_method() {
    let mut client = client();
    assert_eq!(client.post("/x").send().text(), "POST /x");
    assert_eq!(client.put("/x").send().text(), "PUT /x");
    assert_eq!(client.patch("/x").send().text(), "PATCH /x");
    assert_eq!(client.delete("/x").send().text(), "DELETE /x");
    assert_eq!(client.options("/x").send().text(), "OPTIONS /x");
    assert_eq!(client.request(Method::from_bytes(b"BREW").unwrap(), "/x").send().text(), "BREW /x");
    let answer = client.head("/x").send();
    assert_eq!((answer.header("content-length"), answer.text()), (Some("7"), ""));
    assert_eq!(client.get("/x").send().text(), "GET /x", "nothing is left of the answer to HEAD");
    assert_eq!(client.stats().accepted, 1);
}

#[test]
fn bodies() {
    let mut client = client();
    assert_eq!(client.post("/echo").body("text").send().text(), "text");
    assert_eq!(client.post("/echo").body(vec![0, 255]).send().bytes().as_ref(), [0, 255]);
    assert_eq!(client.post("/echo").body("").send().text(), "");
    assert_eq!(client.post("/echo").form([("a", "1 2"), ("b&", "ä")]).send().text(), "a=1%202&b%26=%C3%A4");
    let chunks = client.post("/echo").chunks(["one ", "", "two"], Duration::from_secs(1)).send();
    assert_eq!(chunks.text(), "one two");
    assert_eq!(client.elapsed(), Duration::from_secs(3));
    let large = vec![7; 1 << 20];
    assert_eq!(client.post("/echo").body(large.clone()).send().bytes(), &large);
    assert_eq!(client.stats().accepted, 1);
}

#[cfg(feature = "json")]
#[test]
fn json() {
    let answer = client().post("/echo").json(&[1, 2]).send();
    assert_eq!(answer.json::<Vec<u32>>(), [1, 2]);
}

#[test]
fn queries_are_encoded() {
    assert_eq!(client().get("/query").query("x", "1").query("a b", "c&d=é+").send().text(), "c&d=é+");
    assert_eq!(client().get("/query?x").query("a b", "").send().text(), "");
}

#[test]
fn fields() {
    let answer = client().get("/headers").header("x-a", "1").header("x-a", "2").send();
    assert_eq!(answer.text(), "host=localhost\nx-a=1\nx-a=2");
    let answer = client().get("/headers").header(header::HOST, "example.org").send();
    assert_eq!(answer.text(), "host=example.org");
    assert_eq!(answer.header("Content-Type"), Some("text/plain; charset=utf-8"));
    assert!(answer.headers.contains_key("date"));
}

#[test]
fn answers_of_every_kind() {
    let mut client = client();
    let stream = client.get("/stream").send();
    assert_eq!((stream.text(), stream.header("transfer-encoding")), ("piece by piece", Some("chunked")));
    assert_eq!(client.get("/large").send().bytes().len(), 1 << 20);
    assert!(client.get("/file").send().text().starts_with("[package]"));
    let early = client.get("/early").send();
    assert_eq!(
        (early.interims.len(), early.interims[0].0, early.text()),
        (1, StatusCode::EARLY_HINTS, "final")
    );
    let panic = client.get("/panic").send();
    assert!(panic.status == 500 && panic.closes());
    assert_eq!(client.stats().panics, 1);
    let old = client.get("/stream").http10().send();
    assert_eq!((old.text(), old.header("transfer-encoding")), ("piece by piece", None));
    assert_eq!(client.get("/").send().text(), "GET /");
}

#[test]
fn a_body_is_sent_when_it_is_asked_for() {
    let mut client = client();
    let answer = client.post("/echo").expect_continue().body("text").send();
    assert_eq!((answer.text(), answer.interims[0].0), ("text", StatusCode::CONTINUE));
    let unasked = client.post("/x").expect_continue().body("GET /smuggled HTTP/1.1\r\n\r\n").send();
    assert_eq!((unasked.text(), unasked.interims.len()), ("POST /x", 0));
    assert!(unasked.closes());
    assert_eq!(client.get("/").send().text(), "GET /");
}

#[test]
fn a_response_that_is_cut_is_none() {
    let none = client().get("/broken").try_send().unwrap_err();
    assert_eq!(none.partial().unwrap().bytes(), "the beginning");
    assert!(!none.partial().unwrap().is_whole());
    assert!(none.to_string().contains("ended the connection before the end of the body"), "{none}");
}

#[test]
fn what_got_no_response_is_not_mixed_with_the_next_request() {
    let mut client = client();
    let half = client.post("/echo").header("content-length", "10").body("half").try_send();
    assert!(half.unwrap_err().received().is_empty());
    assert_eq!(client.post("/echo").body("whole").send().text(), "whole");
}

#[test]
fn a_client_can_leave_an_endless_response() {
    let mut client = client();
    let answer = client.get("/endless").leave_after(1000).send();
    assert!(answer.text().starts_with("tick\ntick\n") && !answer.is_whole());
    assert!(client.elapsed() >= Duration::from_secs(50), "{:?}", client.elapsed());
    assert_eq!(client.stats().connections, 0);
    assert_eq!(client.get("/").send().text(), "GET /");
}

#[test]
fn a_slow_body_is_in_time_or_not() {
    let parts = ["x"; 3];
    assert_eq!(client().post("/length").chunks(parts, Duration::from_secs(2)).send().text(), "3");
    let late = client().post("/length").chunks(parts, Duration::from_secs(31)).send();
    assert_eq!(late.status, 408);
    // The same within the handler.
    let mut at_once = client().settings(|s| s.body_ahead_bytes_max(0));
    assert_eq!(at_once.post("/length").chunks(parts, Duration::from_secs(2)).send().text(), "3");
    let late = at_once.post("/length").chunks(parts, Duration::from_secs(31)).send();
    assert_eq!(late.status, 408);
    // Nothing more is waited for after that answer.
    let least_rate = Duration::from_secs(10);
    assert_eq!(at_once.elapsed(), Duration::from_secs(8) + least_rate);
}

#[test]
fn the_clock_ends_what_it_should() {
    let mut client = client();
    client.get("/").send();
    client.advance(Duration::from_secs(74));
    client.get("/").send();
    assert_eq!(client.stats().accepted, 1);
    client.advance(Duration::from_secs(75));
    assert_eq!(client.stats().connections, 0);
    client.get("/").send();
    assert_eq!(client.stats().accepted, 2);
    assert_eq!(client.elapsed(), Duration::from_secs(149));
}

/// A request a minute, for longer than connections usually live.
#[test]
fn no_limit_on_age_is_none() {
    for (age_max, connections) in [(Settings::default().age_max, 2), (Duration::ZERO, 1)] {
        let mut client = client().settings(|s| s.age_max(age_max).handler_warn_after(Duration::ZERO));
        for _ in 0..70 {
            assert_eq!(client.get("/").send().status, 200);
            client.advance(Duration::from_secs(60));
        }
        assert_eq!((client.stats().accepted, client.stats().requests), (connections, 70), "{age_max:?}");
    }
}

#[test]
fn a_drain_delay_lasts_until_the_second_stop() {
    let mut client = TestClient::new(|req: &mut Request| req.is_stopping().to_string());
    client = client.settings(|s| s.drain_delay(Duration::from_secs(5)));
    assert_eq!(client.get("/").send().text(), "false");
    client.drain();
    let answer = client.get("/").send();
    assert_eq!((answer.text(), answer.header("connection")), ("true", Some("close")));
    assert_eq!(client.get("/").send().text(), "true", "new connections are served");
    client.drain();
    assert_eq!(client.stats().connections, 0);
}

#[test]
fn sleep_moves_the_clock() {
    let mut client = client();
    assert_eq!(client.get("/sleep").send().text(), "slept");
    assert_eq!(client.elapsed(), Duration::from_secs(3600));
    assert_eq!(client.get("/blocking").send().text(), "done");
}

#[test]
fn a_response_that_comes_later_takes_no_time() {
    let hour = Duration::from_secs(3600);
    let mut client = TestClient::new(move |req: &mut Request| match req.path() {
        "/delayed" => Response::text("delayed").with_delay(hour),
        _ => {
            let (sender, response) = Response::later(hour, StatusCode::NO_CONTENT);
            // As if another owner kept it.
            std::mem::forget(sender);
            response
        }
    });
    assert_eq!(client.get("/delayed").send().text(), "delayed");
    assert_eq!(client.elapsed(), hour);
    assert_eq!(client.get("/").send().status, StatusCode::NO_CONTENT);
    assert_eq!(client.elapsed(), 2 * hour);
    let mut connection = client.connect();
    connection.send("GET /delayed HTTP/1.1\r\nHost: x\r\n\r\n");
    connection.advance(hour - Duration::from_millis(1));
    assert!(connection.try_response().is_err());
    connection.advance(Duration::from_millis(1));
    assert_eq!(connection.response().text(), "delayed");
}

#[test]
fn requests_and_middleware_go_by_the_same_clock() {
    let slow = |req: &mut Request| {
        crate::sleep(Duration::from_millis(if req.path() == "/" { 999 } else { 1000 }));
        format!("{:?}", req.time_left().unwrap())
    };
    let mut client = TestClient::new(slow.with(Deadline::new(Duration::from_secs(1))));
    assert_eq!(client.get("/").send().text(), "1ms");
    assert_eq!(client.get("/slower").send().status, 503);

    let mut client = TestClient::new(site.with(RateLimit::new(1, Duration::from_secs(60)).unwrap()));
    let mut ask = |after: Duration| {
        client.advance(after);
        let answer = client.get("/").send();
        (answer.status.as_u16(), answer.header("retry-after").map(str::to_owned))
    };
    assert_eq!(ask(Duration::ZERO), (200, None));
    assert_eq!(ask(Duration::ZERO), (429, Some("60".into())));
    assert_eq!(ask(Duration::from_millis(59_999)), (429, Some("1".into())));
    assert_eq!(ask(Duration::from_millis(1)), (200, None));
}

#[test]
fn a_test_client_has_its_own_settings() {
    let mut client = client().settings(|s| s.body_bytes_max(3));
    assert_eq!(client.post("/echo").body("four").send().status, 413);
    assert_eq!(client.post("/echo").body("thr").send().text(), "thr");
}

#[test]
#[should_panic(expected = "invalid fields_max 0")]
fn settings_are_checked() {
    let _ = client().settings(|s| s.fields_max(0));
}

#[test]
fn the_peer_address_is_the_one_that_was_set() {
    let mut client = client();
    assert_eq!(client.get("/peer").send().text(), "Some(127.0.0.1:50000) Some(127.0.0.1:80)");
    client.peer("192.0.2.7:1".parse().unwrap());
    assert_eq!(client.get("/peer").send().text(), "Some(192.0.2.7:1) Some(127.0.0.1:80)");
}

#[test]
fn a_server_that_drains_closes() {
    let mut client = client();
    client.get("/").send();
    let mut busy = client.connect();
    busy.send("GET / HT");
    client.drain();
    assert_eq!(client.stats().connections, 2, "the idle one may send one more request");
    client.advance(Duration::from_secs(1));
    assert_eq!(client.stats().connections, 1, "the idle one has ended");
    busy.send("TP/1.1\r\nHost: a\r\n\r\n");
    assert!(busy.response().closes());
    assert!(busy.is_closed());
}

#[test]
fn bytes_of_whatever() {
    let client = client();
    let mut raw = client.connect();
    raw.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\nGET ");
    assert_eq!(raw.response().text(), "GET /a");
    assert_eq!(raw.response().text(), "GET /b");
    let none = raw.try_response().unwrap_err();
    assert!(none.to_string().contains("waits for more from the client"), "{none}");
    raw.send("/c HTTP/1.1\r\nHost: a\r\n\r\nbad\r\n\r\n");
    assert_eq!(raw.response().text(), "GET /c");
    assert_eq!(raw.response().status, 400);
    assert!(raw.is_closed());
    assert_eq!(raw.received(), b"");
}

#[test]
fn pieces_come_as_they_are_waited_for() {
    let mut raw = client().connect();
    let request = "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\ntext";
    raw.send_pieces(request.as_bytes().chunks(1));
    let answer = raw.response();
    assert_eq!((answer.text(), answer.interims.len()), ("text", 1));
}

#[test]
fn deadlines_of_a_raw_connection() {
    let client = client();
    let mut raw = client.connect();
    raw.send("GET");
    raw.advance(Duration::from_millis(9_999));
    assert!(!raw.is_closed());
    raw.advance(Duration::from_millis(1));
    assert_eq!(raw.response().status, 408);
    assert!(raw.is_closed());
    assert_eq!(client.stats().connections, 1, "it lingers");
    raw.advance(Duration::from_secs(2));
    assert_eq!(client.stats().connections, 0);
}

/// Bytes that the test has taken are no longer held.
#[test]
fn a_client_holds_so_much_and_says_so() {
    let handler = |req: &mut Request<'_>| {
        let mib = req.query().unwrap_or_default().parse::<usize>().unwrap();
        vec![b'x'; mib << 20]
    };
    let mut client = TestClient::new(handler);
    let mut raw = client.connect();
    for _ in 0..4 {
        raw.send("GET /?20 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(raw.response().bytes().len(), 20 << 20);
    }
    assert_eq!(client.get("/?63").send().bytes().len(), 63 << 20);
    let none = client.get("/?65").try_send().unwrap_err().to_string();
    assert!(none.starts_with("the test client disconnected because it holds 64 MiB"), "{none}");
}

#[test]
fn a_reader_may_be_slow() {
    let client = client();
    let mut raw = client.connect();
    raw.read_at_most(1000);
    raw.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(raw.received().len(), 1000);
    raw.advance(Duration::from_secs(29));
    raw.read_at_most(1000);
    assert_eq!(raw.received().len(), 1000);
    raw.advance(Duration::from_secs(30));
    assert!(raw.is_closed());
    assert_eq!(client.stats().timeouts, 1);
}

#[test]
fn ends_and_resets() {
    let client = client();
    let mut raw = client.connect();
    raw.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    raw.end();
    assert_eq!(raw.response().text(), "GET /a");
    assert!(raw.is_closed());
    let mut raw = client.connect();
    raw.send("GET /a HT");
    raw.reset();
    assert!(raw.is_closed());
    assert_eq!(client.stats().connections, 0);
}

#[test]
fn what_is_no_response_is_said() {
    let check = |bytes: &[u8], ended: bool, says: &str| {
        let none = response::take_response(&mut bytes.to_vec(), &Method::GET, ended).unwrap_err();
        assert!(none.to_string().starts_with(says), "{none}");
        assert_eq!(none.received().as_ref(), bytes);
    };
    check(b"HTTP/2.0 200 OK\r\n\r\n", true, "not a response: The response does not begin with a status line");
    check(b"HTTP/1.1 200OK\r\n\r\n", true, "not a response: The response does not begin with a status line");
    let malformed = |rest: &str| {
        let bytes = format!("HTTP/1.1 200 OK\r\n{rest}\r\n");
        check(bytes.as_bytes(), true, "not a response: ");
    };
    malformed("A b\r\n");
    malformed("Content-Length: x\r\n");
    malformed("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n");
    malformed("Transfer-Encoding: chunked\r\n\r\nx");
    malformed("Transfer-Encoding: chunked\r\n\r\n1\r\nab");
    check(b"HTTP/1.1 200 OK\r\n", true, "the server ended the connection before the end of the head");
    check(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", false, "the server waits");
    check(b"", true, "the server ended the connection before the end of the head");
}
