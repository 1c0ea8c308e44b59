//! Tests that a body reaches the server behind a proxy, whatever that server sends meanwhile, and that a client
//! is not asked for a body that no server wants.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::proxy::{before_address, read_head};
use crate::support::{Client, Gate, TIMEOUT, chunks, eventually, noise};

/// The server sends an interim response before it has the body, and waits for the rest.
#[test]
fn an_interim_response_does_not_end_an_upload() {
    let sent = noise(3 << 20);
    let framed = [chunks(&sent, 100_000), b"0\r\n\r\n".to_vec()].concat();
    for (framing, body) in [(format!("Content-Length: {}", sent.len()), &sent), ("Transfer-Encoding: chunked".into(), &framed)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let expected = sent.clone();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let head = read_head(&mut stream);
            for interim in ["103 Early Hints\r\nLink: </a>", "100 Continue", "102 Processing"] {
                stream.write_all(format!("HTTP/1.1 {interim}\r\n\r\n").as_bytes()).unwrap();
            }
            let whole = if head.contains("chunked") { read_chunks(&mut stream) } else { read_body(&mut stream, expected.len()) };
            stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            assert_eq!(read_head(&mut stream), "", "nothing follows the body");
            whole == expected
        });
        let proxy = before_address(&address, |proxy| proxy.response_timeout(TIMEOUT));
        let mut client = Client::connect(&proxy);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        let aside = client.send_aside(body.clone());
        let mut statuses = vec![client.answer_head().status];
        while statuses.last().is_some_and(|status| *status < 200) {
            statuses.push(client.answer_head().status);
        }
        assert_eq!(statuses, [103, 102, 103, 200], "{framing}");
        assert_eq!(client.exactly(2), b"ok");
        aside.join().unwrap().unwrap();
        drop((client, proxy));
        assert!(server.join().unwrap(), "{framing}");
    }
}

/// The server has begun to answer, and waits for the rest of the body in the middle of a line.
#[test]
fn half_a_line_does_not_end_an_upload() {
    for (early, late) in [
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 20", "0 OK\r\nContent-Length: 8\r\n\r\nonehello"),
        ("HTTP/1.1 20", "0 OK\r\nContent-Length: 8\r\n\r\nonehello"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n5", "\r\nhello\r\n0\r\n\r\n"),
    ] {
        let sent = noise(8 << 20);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let expected = sent.clone();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_head(&mut stream);
            stream.write_all(early.as_bytes()).unwrap();
            let whole = read_body(&mut stream, expected.len()) == expected;
            stream.write_all(late.as_bytes()).unwrap();
            whole
        });
        let proxy = before_address(&address, |proxy| proxy);
        let mut client = Client::connect(&proxy);
        client.send(format!("POST / HTTP/1.0\r\nHost: a\r\nContent-Length: {}\r\n\r\n", sent.len()));
        let aside = client.send_aside(sent);
        client.answer().is(200, "onehello");
        aside.join().unwrap().unwrap();
        assert!(server.join().unwrap(), "{early}");
    }
}

/// The server has sent its whole answer and reads on. The client has the answer and continues to send.
#[test]
fn a_whole_answer_does_not_end_an_upload() {
    for (method, answer, body) in [
        ("POST", "200 OK\r\nContent-Length: 0\r\n\r\n", ""),
        ("PUT", "204 No Content\r\n\r\n", ""),
        ("PUT", "205 Reset Content\r\nContent-Length: 0\r\n\r\n", ""),
        ("POST", "200 OK\r\nContent-Length: 2\r\n\r\nok", "ok"),
        ("POST", "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "2\r\nok\r\n"),
    ] {
        let sent = noise(3 << 20);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = before_address(&listener.local_addr().unwrap().to_string(), |proxy| proxy);
        let (expected, answered) = (sent.len(), Arc::<Gate>::default());
        let has_answer = answered.clone();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_head(&mut stream);
            stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).unwrap();
            has_answer.pass();
            let got = read_body(&mut stream, expected);
            // The connection continues with the next request.
            assert!(read_head(&mut stream).starts_with("GET /next "));
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext").unwrap();
            got
        });
        let mut client = Client::connect(&proxy);
        client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: {expected}\r\n\r\n"));
        let aside = client.send_aside(sent.clone());
        assert_eq!(client.answer_head().status.to_string(), answer[..3], "{answer}");
        assert_eq!(client.exactly(body.len()), body.as_bytes(), "{answer}");
        answered.open();
        aside.join().unwrap().unwrap();
        if answer.contains("chunked") {
            assert_eq!(client.chunk(), b"");
        }
        client.get("/next").is(200, "next");
        assert!(server.join().unwrap() == sent, "{answer}");
    }
}

/// The server reads nothing of the upload until the client has the whole answer, whose end is late.
#[test]
fn the_end_of_an_answer_does_not_wait_for_the_upload() {
    let sent = noise(30_000_000);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = before_address(&listener.local_addr().unwrap().to_string(), |proxy| proxy);
    let (expected, gates) = (sent.len(), <[Arc<Gate>; 2]>::default());
    let [has_head, has_end] = gates.clone();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").unwrap();
        has_head.pass();
        stream.write_all(b"ok").unwrap();
        has_end.pass();
        read_body(&mut stream, expected)
    });
    let mut client = Client::connect(&proxy);
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {expected}\r\n\r\n"));
    let aside = client.send_aside(sent.clone());
    assert_eq!(client.answer_head().status, 200);
    gates[0].open();
    assert_eq!(client.exactly(2), b"ok");
    gates[1].open();
    aside.join().unwrap().unwrap();
    assert!(server.join().unwrap() == sent);
}

/// The body of a HEAD request has no meaning, but to lose it would have one.
#[test]
fn an_answer_to_head_does_not_end_an_upload() {
    let sent = noise(3 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = before_address(&listener.local_addr().unwrap().to_string(), |proxy| proxy);
    let expected = sent.len();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n").unwrap();
        read_body(&mut stream, expected)
    });
    let mut client = Client::connect(&proxy);
    client.send(format!("HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: {expected}\r\n\r\n"));
    let aside = client.send_aside(sent.clone());
    let answer = client.answer_to_head();
    assert_eq!((answer.status, answer.field("content-length")), (200, Some("7")));
    aside.join().unwrap().unwrap();
    assert!(server.join().unwrap() == sent);
}

/// A server that has answered and closed its side, refuses, or stops reading is not sent the rest of the
/// client's body.
#[test]
fn an_upload_that_the_upstream_does_not_read_ends() {
    for (status, ends) in [("200 OK", true), ("200 OK", false), ("413 Content Too Large", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let idle_timeout = if ends { TIMEOUT } else { Duration::from_secs(1) };
        let proxy = before_address(&address, |proxy| proxy.idle_timeout(idle_timeout));
        let over = Arc::<Gate>::default();
        let is_over = over.clone();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_head(&mut stream);
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
            if ends {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            is_over.pass();
        });
        let mut client = Client::connect(&proxy);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n");
        let aside = client.send_aside(noise(30_000_000));
        assert_eq!(client.answer_head().status.to_string(), status[..3]);
        eventually("the connection ends", || proxy.stats().connections == 0);
        over.open();
        let _ = aside.join().unwrap();
        server.join().unwrap();
    }
}

/// A body that was read cannot be sent again, so the request must not be repeated.
#[test]
fn a_request_with_a_body_is_not_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        let second = read_head(&mut stream);
        read_body(&mut stream, 3);
        drop(stream);
        (listener, second)
    });
    let proxy = before_address(&address, |proxy| proxy.response_timeout(TIMEOUT));
    let mut client = Client::connect(&proxy);
    client.get("/").is(200, "ok");
    client.send("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none");
    assert_eq!(client.answer().status, 502);
    let (listener, second) = server.join().unwrap();
    assert!(second.contains("Content-Length: 3"), "{second}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody has tried again");
}

/// Reads a body of this many bytes.
fn read_body(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Returns the content of a chunked body.
fn read_chunks(stream: &mut TcpStream) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim_end(), 16).unwrap();
        whole.extend(read_body(stream, size));
        assert_eq!(read_body(stream, 2), b"\r\n");
        if size == 0 {
            return whole;
        }
    }
}
