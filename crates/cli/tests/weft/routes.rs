//! Tests of every route of the demo, over real connections.

use std::io::Write;
use std::time::Instant;

use crate::process::Weft;

#[test]
fn plain_routes() {
    let weft = Weft::start("demo --port 0");
    let mut client = weft.connect();
    let health = client.ask("GET /health");
    assert_eq!((health.status, health.text()), (200, "OK"));
    assert!(health.field("content-type").unwrap().starts_with("text/plain"));
    assert_eq!(health.field("content-length"), Some("2"));
    let json = client.ask("GET /json?any=query");
    assert_eq!((json.status, json.text()), (200, r#"{"message":"Hello, World!"}"#));
    assert_eq!(json.field("content-type"), Some("application/json"));
    let none = client.ask("GET /nocontent");
    assert_eq!((none.status, none.body.len(), none.field("content-length")), (204, 0, None));
    for (query, length) in [("?n=3", 3), ("?n=0", 0), ("", 1 << 20), ("?n=9999999", 1 << 20)] {
        let bytes = client.ask(&format!("GET /bytes{query}"));
        assert_eq!((bytes.status, bytes.body.len()), (200, length), "{query}");
    }
    let fields = client.ask("GET /headers\nX-Twice: one\nx-twice: two");
    assert_eq!(fields.text(), "Host: here\nX-Twice: one\nx-twice: two\n");
}

#[test]
fn the_page_shows_what_runs() {
    let variables = [("WEFT_FIELDS_MAX", "64")];
    let weft = Weft::start_with("--port 0 --engine adaptive:1 --idle-timeout 7s", &variables);
    let page = weft.connect().ask("GET /");
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    let text = page.text();
    for part in [
        "<dt>engine<dd>adaptive:1<",
        "<dt>event loops<dd>1<",
        "<dt>threads that serve<dd>",
        "<dt>connections open<dd>1<",
        "<dt>connections accepted<dd>1<",
        "<code>fields_max</code><td class=\"value\">64<td>environment<td>most field lines",
        "<code>idle_timeout</code><td class=\"value\">7s<td>set<",
        "<code>backlog</code><td class=\"value\">4096<td>default<",
        "value=\"/slow?ms=1000\"",
        "<form data-method=\"POST\"",
        // The code is the source of this program.
        "fn echo(req: &amp;mut Request&lt;&#39;_&gt;) -&gt; Response {",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let policy = page.field("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
    let mut client = weft.connect();
    for part in ["/demo.js", "/demo.css", "/dashboard", "/dashboard?script", "/dashboard?style"] {
        let part = client.ask(&format!("GET {part}"));
        for external in ["src=\"http", "<script>", "<style>", "@import", "url(http"] {
            assert!(!text.contains(external) && !part.text().contains(external), "{external}");
        }
    }
}

#[test]
fn one_run_of_block_at_a_time() {
    let weft = Weft::start("--port 0");
    let mut client = weft.connect();
    assert_eq!(client.ask("GET /block.svg").status, 404);
    for field in ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Origin: null"] {
        client.send(
            format!("POST /block HTTP/1.1\r\nHost: here\r\n{field}\r\nContent-Length: 0\r\n\r\n").as_bytes(),
        );
        assert_eq!(client.answer(false).status, 403, "{field}");
    }
    client.send(b"POST /block?wait=true HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n");
    let mut events = weft.connect();
    events.send(b"GET /block/events HTTP/1.1\r\nHost: here\r\n\r\n");
    assert_eq!(events.head().0, 200);
    let mut told = String::new();
    while !told.contains("event: sample") {
        told += std::str::from_utf8(&events.chunk().unwrap()).unwrap();
    }
    assert_eq!(weft.connect().ask("POST /block").status, 409);
    let picture = client.answer(false);
    assert_eq!((picture.status, picture.field("content-type")), (200, Some("image/svg+xml")));
    assert!(
        picture.text().contains("reactor:1: ") && picture.text().ends_with("</svg>\n"),
        "{}",
        picture.text()
    );
    assert_eq!(client.ask("GET /block.svg").text(), picture.text());
}

#[test]
fn head_works_where_get_does() {
    let weft = Weft::start("--port 0");
    let mut client = weft.connect();
    for path in ["/health", "/json", "/headers", "/", "/slow?ms=0"] {
        let answer = client.ask(&format!("HEAD {path}"));
        assert_eq!(answer.status, 200, "{path}");
        assert_ne!(answer.field("content-length"), Some("0"), "{path}");
    }
    assert_eq!(client.ask("HEAD /nocontent").status, 204);
    assert_eq!(client.ask("GET /health").text(), "OK", "no body was in between");
}

#[test]
fn other_paths_and_methods() {
    let weft = Weft::start("--port 0");
    let mut client = weft.connect();
    for path in ["/nothing", "/health/", "/Health", "//"] {
        let answer = client.ask(&format!("GET {path}"));
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.text().contains(" / "), "{}", answer.text());
    }
    for path in ["/", "/health", "/json", "/headers", "/nocontent", "/slow"] {
        let answer = client.ask(&format!("DELETE {path}"));
        assert_eq!((answer.status, answer.field("allow")), (405, Some("GET, HEAD, OPTIONS")), "{path}");
    }
    let echo = client.ask("GET /echo");
    assert_eq!((echo.status, echo.field("allow")), (405, Some("POST, OPTIONS")));
    assert!(echo.text().contains(r#""detail":"/echo allows POST, OPTIONS, not GET""#), "{}", echo.text());
}

#[test]
fn echo_keeps_type_and_bytes() {
    let weft = Weft::start("--port 0");
    let mut client = weft.connect();
    for (length, body) in [(0, ""), (5, "hello")] {
        let head = "POST /echo HTTP/1.1\r\nHost: here\r\nContent-Type: text/x-some";
        client.send(format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes());
        let answer = client.answer(false);
        assert_eq!((answer.status, answer.text()), (200, body));
        assert_eq!(answer.field("content-type"), Some("text/x-some"));
    }
    assert_eq!(client.ask("GET /health").text(), "OK");
}

#[test]
fn echo_has_no_limit() {
    let weft = Weft::start("--port 0");
    let mut client = weft.connect();
    let body: Vec<u8> = (0..5_000_000u32).map(|i| (i % 251) as u8).collect();
    let mut writer = client.writer();
    let sent = body.clone();
    let sender = std::thread::spawn(move || {
        let head = format!("POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n", sent.len());
        writer.write_all(head.as_bytes()).unwrap();
        writer.write_all(&sent).unwrap();
    });
    let answer = client.answer(false);
    sender.join().unwrap();
    assert_eq!((answer.status, answer.field("content-length")), (200, Some("5000000")));
    assert!(answer.body == body, "{} of {} bytes came back", answer.body.len(), body.len());
}

#[test]
fn echo_answers_each_chunk() {
    // Otherwise the loop reads the start of the body before it calls the handler.
    let weft = Weft::start("--port 0 --body-ahead-bytes-max 0");
    let mut client = weft.connect();
    client.send(b"POST /echo HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
    assert_eq!(client.head().0, 200);
    assert_eq!(client.chunk().unwrap(), b"one");
    client.send(b"3\r\ntwo\r\n");
    assert_eq!(client.chunk().unwrap(), b"two");
    client.send(b"0\r\n\r\n");
    assert_eq!(client.chunk(), None);
    assert_eq!(client.ask("GET /health").text(), "OK");
}

#[test]
fn echo_asks_for_a_body_that_waits() {
    let weft = Weft::start("--port 0");
    let mut client = weft.connect();
    client.send(b"POST /echo HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.head(), (100, Vec::new()));
    client.send(b"hello");
    assert_eq!(client.answer(false).text(), "hello");
}

#[test]
fn slow_does_not_block_other_clients() {
    let weft = Weft::start("--port 0 --engine adaptive:1");
    let mut slow = weft.connect();
    slow.send(b"GET /slow?ms=4000 HTTP/1.1\r\nHost: here\r\n\r\n");
    for _ in 0..5 {
        assert_eq!(weft.connect().ask("GET /health").text(), "OK");
    }
    assert!(slow.is_silent(), "five quick requests took longer than a slow one");
    assert_eq!(slow.answer(false).text(), "blocked\n");
}

#[test]
fn slow_reads_its_parameter() {
    let weft = Weft::start("--port 0");
    let mut client = weft.connect();
    let mut took_ms = |request: &str, text: &str| {
        let start = Instant::now();
        assert_eq!(client.ask(request).text(), text);
        start.elapsed().as_millis()
    };
    for (path, text) in [("/slow", "blocked\n"), ("/wait", "waited\n")] {
        assert!(took_ms(&format!("GET {path}"), text) >= 100);
        assert!(took_ms(&format!("GET {path}?ms="), text) >= 100, "a form that was left empty");
        assert!(took_ms(&format!("GET {path}?ms=150"), text) >= 150);
        // On a busy machine, some of the requests may be late.
        assert!((0..20).any(|_| took_ms(&format!("GET {path}?ms=0"), text) < 100));
    }
    assert!(took_ms("GET /slow?us=150000", "blocked\n") >= 150);
    assert!((0..20).any(|_| took_ms("GET /slow?us=300", "blocked\n") < 100));
    for value in ["soon", "-1", "1.5"] {
        let answer = client.ask(&format!("GET /slow?ms={value}"));
        assert_eq!(answer.status, 400, "{value}");
        assert!(answer.text().contains("`ms` is"), "{}", answer.text());
    }
}
