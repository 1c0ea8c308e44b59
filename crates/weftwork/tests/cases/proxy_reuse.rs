//! Tests which connections to the server behind a proxy are used again, and for whom, and what that server may send.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weftwork::Running;

use super::seen_at;
use super::proxy::{before_address, read_head};
use crate::support::{Client, is_logged, keep_log};

/// A server that gives each connection to a thread of `serve`, until the last client of it has gone.
fn behind(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), serve.clone());
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Authenticates connections, as NTLM does: after a token, every request on the connection is its user's.
fn authenticates(mut stream: TcpStream) {
    let mut user = None;
    loop {
        let head = read_head(&mut stream);
        if head.is_empty() {
            return;
        }
        let mut tokens = head.lines().filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let (_, token) = value.split_once(' ')?;
            name.eq_ignore_ascii_case("authorization").then(|| token.to_owned())
        });
        user = tokens.next().or(user);
        let answer = match &user {
            Some(user) => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{user}", user.len()),
            None => "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"a\", nTLM\r\n\
                     Content-Length: 0\r\n\r\n"
                .to_owned(),
        };
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

fn gets(client: &mut Client, fields: &str) -> (u16, String) {
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let answer = client.answer();
    (answer.status, String::from_utf8(answer.body).unwrap())
}

/// RFC 4559 section 6. A client that has authenticated a connection is the only one that uses it.
#[test]
fn an_authenticated_connection_belongs_to_its_client() {
    let address = behind(authenticates);
    for token in ["NTLM ann", "negotiate ann", "Negotiate:Kerberos ann"] {
        let proxy = before_address(&address, |proxy| proxy);
        let (mut ann, mut bob) = (Client::connect(&proxy), Client::connect(&proxy));
        assert_eq!(gets(&mut ann, "").0, 401);
        assert_eq!(gets(&mut ann, &format!("Authorization: {token}\r\n")), (200, "ann".to_owned()));
        assert_eq!(gets(&mut bob, "").0, 401, "{token}");
        assert_eq!(gets(&mut ann, ""), (200, "ann".to_owned()), "the handshake holds for the connection");
        assert_eq!(gets(&mut bob, "Authorization: NTLM bob\r\n"), (200, "bob".to_owned()));
        assert_eq!(gets(&mut ann, ""), (200, "ann".to_owned()));
        drop((ann, bob));
        assert_eq!(gets(&mut Client::connect(&proxy), "").0, 401, "{token}");
    }
}

/// A token without a challenge, on a connection that was shared before.
#[test]
fn a_connection_is_not_shared_after_a_token() {
    let proxy = before_address(&behind(authenticates), |proxy| proxy);
    let mut ann = Client::connect(&proxy);
    assert_eq!(gets(&mut ann, "Authorization: Negotiate ann\r\n"), (200, "ann".to_owned()));
    assert_eq!(gets(&mut Client::connect(&proxy), "").0, 401);
}

/// Nothing in the token says that it is for the whole connection.
#[test]
fn a_connection_is_not_shared_if_the_server_says_so() {
    for said in ["Persistent-Auth: true", "WWW-Authenticate: Basic, NTLM", "Proxy-Authenticate: Negotiate"] {
        let address = behind(move |mut stream| {
            let mut status = "401 Unauthorized";
            loop {
                let head = read_head(&mut stream);
                if head.is_empty() {
                    return;
                }
                if head.contains("Bearer ann") {
                    status = "200 OK";
                }
                let answer = format!("HTTP/1.1 {status}\r\n{said}\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let proxy = before_address(&address, |proxy| proxy);
        let (mut ann, mut bob) = (Client::connect(&proxy), Client::connect(&proxy));
        assert_eq!(gets(&mut ann, "Authorization: Bearer ann\r\n").0, 200);
        assert_eq!(gets(&mut bob, "").0, 401, "{said}");
        assert_eq!(gets(&mut ann, "").0, 200, "{said}");
    }
}

/// A proxy in front may send requests of several clients on one connection.
#[test]
fn an_authenticated_connection_is_not_kept_for_a_proxy_in_front() {
    let proxy = before_address(&behind(authenticates), |proxy| proxy);
    for field in ["Via: 1.1 front\r\n", "X-Forwarded-For: 192.0.2.1\r\n", "Forwarded: for=192.0.2.1\r\n"] {
        let mut front = Client::connect(&proxy);
        assert_eq!(gets(&mut front, &format!("{field}Authorization: NTLM ann\r\n")).0, 200);
        assert_eq!(gets(&mut front, field).0, 401, "{field}");
    }
}

/// Sends `head` to the first request, and `body` to the next request on that connection. Other connections get `ok`.
fn sends_late(head: &'static str, body: &'static str) -> Running {
    let is_first = Arc::new(AtomicBool::new(true));
    let address = behind(move |mut stream| {
        read_head(&mut stream);
        if !is_first.swap(false, Ordering::SeqCst) {
            return stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
        stream.write_all(head.as_bytes()).unwrap();
        if !read_head(&mut stream).is_empty() {
            stream.write_all(body.as_bytes()).unwrap();
        }
    });
    before_address(&address, |proxy| proxy)
}

/// A body that must not be there would be the next client's response.
#[test]
fn a_body_without_a_place_reaches_nobody() {
    const BODY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    for (method, head) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("HEAD", "HTTP/1.1 404 Not Found\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 42\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 42\r\n\r\n"),
    ] {
        let proxy = sends_late(head, BODY);
        let mut client = Client::connect(&proxy);
        client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.answer_to_head();
        // A connection that is kept is there before the next request of its client is read.
        client.get("/").is(200, "ok");
    }
}

/// Caddy and Traefik forward the client's host as well, so that links, `Location` and the check of `Origin` are right. None of them
/// changes fields of responses.
#[test]
fn the_host_of_the_client_is_forwarded() {
    let address = behind(|mut stream| {
        let head = read_head(&mut stream);
        assert!(head.starts_with("GET /a "), "{head}");
        let host = head.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap();
        let fields = format!("Location: http://{host}/b\r\nContent-Location: /c\r\nContent-Length: 0");
        let answer = format!("HTTP/1.1 302 Found\r\n{fields}\r\n\r\n");
        stream.write_all(answer.as_bytes()).unwrap();
    });
    for (is_own, host) in [(false, "a.example"), (true, &*seen_at(&address))] {
        let proxy =
            before_address(&address, |proxy| {
                let proxy = proxy.strip_prefix("/app");
                if is_own { proxy.upstream_host() } else { proxy }
            });
        let mut client = Client::connect(&proxy);
        client.send("GET /app/a HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let answer = client.answer();
        assert_eq!(answer.field("location"), Some(&*format!("http://{host}/b")));
        assert_eq!(answer.field("content-location"), Some("/c"));
    }
}

/// A response with this many field lines of this size.
fn with_fields(lines: usize, bytes: usize) -> String {
    let fields: String = (0..lines).map(|n| format!("X-{n}: {}\r\n", "x".repeat(bytes))).collect();
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok")
}

#[test]
fn a_large_head_comes_through_up_to_the_limits() {
    keep_log();
    for (lines, bytes) in [(101, 10), (990, 10), (50, 4000)] {
        let answer = with_fields(lines, bytes);
        let address = behind(move |mut stream| {
            read_head(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let answer = Client::connect(&before_address(&address, |proxy| proxy)).get("/");
        assert_eq!((answer.status, &*answer.body), (200, &b"ok"[..]), "{lines} of {bytes}");
        assert_eq!(answer.field(&format!("x-{}", lines - 1)), Some(&*"x".repeat(bytes)));
        let narrow = before_address(&address, |proxy| proxy.response_fields_max(lines as u32));
        assert_eq!(Client::connect(&narrow).get("/").status, 502);
        is_logged(&["WARN", &seen_at(&address), "Proxy::response_fields_max"]);
        let size = (lines * bytes) as u32;
        let narrow = before_address(&address, |proxy| proxy.response_head_bytes_max(size));
        assert_eq!(Client::connect(&narrow).get("/").status, 502);
        is_logged(&["WARN", &seen_at(&address), "Proxy::response_head_bytes_max"]);
    }
}
