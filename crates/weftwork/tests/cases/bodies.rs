//! Tests that bodies arrive whole in both directions, with every framing and size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weftwork::Request;

use super::CASE;
use crate::support::{Client, chunks, eventually, noise, over_http2};

const MIB: usize = 1 << 20;

fn post(path: &str, framing: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")
}

fn with_length(path: &str, body: &[u8]) -> Vec<u8> {
    [post(path, &format!("Content-Length: {}", body.len())).as_bytes(), body].concat()
}

fn chunked(path: &str, body: &[u8], size: usize) -> Vec<u8> {
    [post(path, "Transfer-Encoding: chunked").as_bytes(), &chunks(body, size), b"0\r\n\r\n"].concat()
}

#[test]
fn every_size_around_the_buffers_comes_back() {
    let site = CASE.start();
    let mut client = site.client();
    for size in [0, 1, 8191, 8192, 8193, 65_535, 65_536, 65_537, 200_000] {
        let body = noise(size);
        client.send(with_length("/echo", &body));
        client.answer().is(200, &body);
        client.send(chunked("/echo", &body, 1000));
        client.answer().is(200, &body);
    }
}

#[test]
fn chunks_of_every_size_are_joined() {
    let site = CASE.start();
    let mut client = site.client();
    let body = noise(20_000);
    for size in [1, 2, 15, 16, 17, 4096, 20_000] {
        client.send(chunked("/echo", &body, size));
        client.answer().is(200, &body);
    }
}

#[test]
fn extensions_are_passed_over_and_trailers_are_kept_apart() {
    let site = CASE.start();
    let mut client = site.client();
    let head = post("/trailers", "Transfer-Encoding: chunked\r\nTrailer: X-Sum");
    let good = "4;name=value;q=\"a b\"\r\nwith\r\n0;last\r\nX-Sum: 7\r\nX-Two: b\r\n\r\n";
    client.send(format!("{head}{good}"));
    client.answer().is(200, "with|x-sum=7|x-two=b");
    client.send_by(1, format!("{head}{good}"));
    client.answer().is(200, "with|x-sum=7|x-two=b");
    client.get("/").is(200, "hello");
}

#[test]
fn a_large_body_comes_byte_by_byte() {
    let site = CASE.start();
    let mut client = site.client();
    let body = noise(3000);
    client.send_by(1, with_length("/echo", &body));
    client.answer().is(200, &body);
    client.send_by(1, chunked("/echo", &body, 7));
    client.answer().is(200, &body);
}

#[test]
fn ten_mebibytes_go_up_and_down() {
    let site = CASE.start();
    let mut client = site.client();
    let body = noise(10 * MIB);
    client.send(with_length("/echo-any", &body));
    client.answer().is(200, &body);
    let sent = client.send_aside(chunked("/echo-any", &body, 50_000));
    client.answer().is(200, &body);
    sent.join().unwrap().unwrap();
    client.get("/").is(200, "hello");
}

/// Both sides send at once: the handler writes the bytes that it has read before the rest arrives.
#[test]
fn a_streamed_echo_reads_and_writes_in_turns() {
    let site = CASE.start();
    let mut client = site.client();
    let body = noise(10 * MIB);
    for request in [with_length("/echo-stream", &body), chunked("/echo-stream", &body, 3000)] {
        let sent = client.send_aside(request);
        client.answer().is(200, &body);
        sent.join().unwrap().unwrap();
    }
    client.get("/").is(200, "hello");
}

#[test]
fn a_streamed_answer_is_chunked_or_of_declared_length() {
    let site = CASE.start();
    let mut client = site.client();
    for size in [0, 1, 16_384, 100_000, 3 * MIB] {
        let streamed = client.get(&format!("/stream/{size}"));
        assert_eq!(streamed.field("transfer-encoding"), Some("chunked"));
        streamed.is(200, noise(size));
        let declared = client.get(&format!("/declared/{size}"));
        assert_eq!(declared.field("content-length"), Some(size.to_string().as_str()));
        declared.is(200, noise(size));
    }
    client.get("/bytes/10000000").is(200, noise(10_000_000));
    // The writer of a stream does not count as a second request.
    assert_eq!(site.running.stats().requests, site.calls() as u64);
}

/// HTTP/1.0 has no chunked coding: the end of the connection is the end of the body, whatever the client
/// requested.
#[test]
fn a_streamed_answer_to_http_10_ends_with_the_connection() {
    let site = CASE.start();
    for fields in ["", "Connection: keep-alive\r\n"] {
        let mut client = site.client();
        client.send(format!("GET /stream/100000 HTTP/1.0\r\n{fields}\r\n"));
        let answer = client.answer();
        assert_eq!(answer.field("transfer-encoding"), None);
        assert_eq!(answer.field("connection"), Some("close"));
        answer.is(200, noise(100_000));
        client.ends();
    }
}

/// This is the only sign to the client that the body is incomplete (RFC 9112 section 8).
#[test]
fn a_stream_that_breaks_its_promise_ends_the_connection() {
    let site = CASE.start();
    for path in ["/too-short/5000", "/too-long/5000"] {
        let mut client = site.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        if over_http2::is_on() && path == "/too-long/5000" {
            // The length that was declared has arrived, and the stream has ended before the writer wrote more.
            client.answer().is(200, noise(5000));
            continue;
        }
        let text = client.rest();
        let body = text.windows(4).position(|part| part == b"\r\n\r\n").expect("a head") + 4;
        assert!(text.len() - body <= 5000, "no byte more than declared: {}", text.len() - body);
    }
    site.is_well();
}

/// Echoes each part of the request at once.
pub(crate) fn talk(_: &mut weftwork::Request) -> weftwork::Response {
    use std::io::Write;
    weftwork::Response::stream(|out| {
        let mut part = [0; 100];
        loop {
            let count = out.read_request(&mut part)?;
            if count == 0 {
                return Ok(());
            }
            out.write_all(&part[..count])?;
            out.flush()?;
        }
    })
}

/// The client waits for the answer to each part before it sends the next one.
#[test]
fn a_handler_may_respond_while_the_upload_continues() {
    let running = CASE.bind("127.0.0.1:0").start(weftwork::unbuffered(talk)).unwrap();
    let mut client = crate::support::Client::connect(&running);
    client.send(post("/", "Transfer-Encoding: chunked"));
    for _ in 0..3 {
        client.send("4\r\nping\r\n");
        client.wait_for_bytes();
    }
    client.send("0\r\n\r\n");
    client.answer().is(200, "pingpingping");
    // A body that arrives with its head passes as well.
    client.send(with_length("/", b"body"));
    client.answer().is(200, "body");
}

/// The client reads each part of the answer whole before it sends more. Bytes that the kernel had no space for
/// must not be held back until the client sends.
#[test]
fn unsent_output_follows_while_the_handler_waits_for_the_body() {
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use weftwork::{Request, Response, unbuffered};
    const TURNS: usize = 4;
    let path = super::addresses::Path::new("slack");
    for part in [220_000, 250_000, 280_000] {
        let written = Arc::new(AtomicUsize::new(0));
        let has_written = written.clone();
        let talk = unbuffered(move |_: &mut Request| {
            let written = written.clone();
            Response::stream(move |out| {
                while out.read_request(&mut [0])? > 0 {
                    out.write_all(&vec![b'x'; part])?;
                    written.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        });
        let settings = |s: weftwork::Settings| s.body_idle_timeout(std::time::Duration::from_secs(3));
        let running = CASE.bind(&path.address()).settings(settings).start(talk).unwrap();
        let mut client = crate::support::Client::connect(&running);
        client.send(format!("POST / HTTP/1.0\r\nContent-Length: {TURNS}\r\n\r\n"));
        for turn in 0..TURNS {
            client.send("a");
            if turn == 0 {
                assert_eq!(client.answer_head().status, 200);
            }
            crate::support::eventually("nearly all is in the kernel", || {
                has_written.load(Ordering::Relaxed) > turn || part > 250_000
            });
            assert_eq!(client.exactly(part).len(), part, "turn {turn}");
        }
        client.ends();
    }
}

/// The writer reads the body in between. The client sends more than the server buffers for a handler that does
/// not read yet.
#[test]
fn a_writer_may_pause_while_the_body_comes() {
    use std::io::Write;
    use std::time::Duration;
    use weftwork::{Request, Response};
    const BODY_BYTES: usize = 1_000_000;
    let slow = |_: &mut Request| {
        Response::stream(|out| {
            for _ in 0..3 {
                out.write_all(b"working\n")?;
                assert!(out.pause(Duration::from_millis(50))?);
            }
            let (mut all, mut part) = (0, vec![0; 16 << 10]);
            while let count @ 1.. = out.read_request(&mut part)? {
                all += count;
            }
            writeln!(out, "{all}")
        })
    };
    let running = CASE.bind("127.0.0.1:0").start(slow).unwrap();
    let mut client = crate::support::Client::connect(&running);
    let sent = client.send_aside(with_length("/", &vec![b'x'; BODY_BYTES]));
    client.answer().is(200, format!("{}{BODY_BYTES}\n", "working\n".repeat(3)));
    sent.join().unwrap().unwrap();
    client.send(with_length("/", b"body"));
    client.answer().is(200, format!("{}4\n", "working\n".repeat(3)));
}

/// If connections share threads, the server treats a request that is still arriving differently from a complete
/// request. Each client sends both kinds, and all of them are answered.
#[test]
fn long_and_short_requests_take_turns() {
    use std::io::Write;
    use std::time::Duration;
    use weftwork::{Request, Response};
    let echo = |_: &mut Request| {
        std::thread::sleep(Duration::from_millis(1));
        Response::stream(|out| {
            let mut part = Vec::with_capacity(32 << 10);
            while out.read_request_buf(&mut part)? > 0 {
                out.write_all(&part)?;
                part.clear();
            }
            Ok(())
        })
    };
    let running = CASE.bind("127.0.0.1:0").start(echo).unwrap();
    let ask_in_turns = |first: usize| {
        let mut client = crate::support::Client::connect(&running);
        for round in 0..12 {
            let body = noise([300_000, 10, 0, 150_000, 200_000][(first + round) % 5]);
            let sending = client.send_aside(with_length("/", &body));
            client.answer().is(200, &body);
            sending.join().unwrap().unwrap();
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..10).map(|first| scope.spawn(move || ask_in_turns(first))).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}

/// Bytes that are read into a buffer of the handler end with the body. Bytes that are written from the buffer
/// arrive whole, with every framing.
#[test]
fn long_bodies_go_through_the_buffers_of_a_handler() {
    use std::io::Write;
    use weftwork::{Request, Response};
    let through = |req: &mut Request| {
        let engine_case = req.path().trim_start_matches('/').parse().unwrap();
        Response::stream(move |out| {
            let mut part = Vec::with_capacity(engine_case);
            while out.read_request_buf(&mut part)? > 0 {
                out.write_all(&part)?;
                part.clear();
            }
            Ok(())
        })
    };
    let running = CASE.bind("127.0.0.1:0").start(through).unwrap();
    for engine_case in [1000, 16 << 10, 100_000, 256 << 10, 2 * MIB] {
        let (long, short) = (noise(MIB + 7), noise(70_000));
        let path = format!("/{engine_case}");
        let mut client = crate::support::Client::connect(&running);
        let sending = client.send_aside([with_length(&path, &long), with_length(&path, &short)].concat());
        client.answer().is(200, &long);
        client.answer().is(200, &short);
        sending.join().unwrap().unwrap();
    }
}

#[test]
fn a_handler_knows_whether_the_body_has_arrived() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handler = move |req: &mut Request| {
        let is_here = req.body_is_here();
        counted.fetch_add(1, Ordering::SeqCst);
        let length = req.body().bytes()?.len();
        Ok::<_, weftwork::Error>(format!("{is_here} {length}"))
    };
    let server = CASE.bind("127.0.0.1:0").start(handler).unwrap();
    let mut client = Client::connect(&server);
    client.get("/").is(200, "true 0");
    client.send(with_length("/", b"hello"));
    client.answer().is(200, "true 5");
    client.send(chunked("/", b"hello", 2));
    client.answer().is(200, "true 5");
    // More than is read ahead of a handler.
    let long = with_length("/", &noise(200_000));
    let (first, rest) = long.split_at(100_000);
    client.send(first);
    eventually("the handler is called", || calls.load(Ordering::SeqCst) == 4);
    client.send(rest);
    client.answer().is(200, "false 200000");
}
