//! The table of servers tells the truth about the rules of HTTP/1.1 that each breaks. Speed that comes from not reading a request counts
//! for nothing, so these rules stand beside the figures.

use std::env;
use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

use weftwork::http::StatusCode;
use weftwork::prelude::*;

use crate::args::{CoreArgs, ServerArgs};
use crate::failure::Result;
use crate::interrupt;
use crate::load::probe::connect;
use crate::load::response::ResponseParser;
use crate::peers::table::*;
use crate::peers::{Peers, build};
use crate::procs::pin::{Cores, Span};
use crate::subject::Subject;
use crate::workloads::{Ask, QUICK};

/// How long a server may be silent before it counts as waiting for more.
const SILENCE: Duration = Duration::from_millis(300);

const TRIES: usize = 3;

/// What came back for the bytes of one rule.
#[derive(Debug, Default, PartialEq)]
struct Said {
    statuses: Vec<u16>,
    /// The body of the last answer.
    body: Vec<u8>,
    /// The server ended the connection.
    ended: bool,
    /// Bytes behind the first head.
    after_head: usize,
    has_date: bool,
}

struct Rule {
    /// The words about a server that breaks it.
    broken: &'static str,
    needs: Ask,
    bytes: &'static [u8],
    keeps: fn(&Said) -> bool,
}

const RULES: &[Rule] = &[
    Rule {
        broken: IGNORES_CLOSE,
        needs: Ask::Health,
        bytes: b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        keeps: |said| said.statuses == [200] && said.ended,
    },
    Rule {
        broken: KEEPS_1_0,
        needs: Ask::Health,
        bytes: b"GET /health HTTP/1.0\r\nHost: a\r\n\r\n",
        keeps: |said| said.ended,
    },
    Rule {
        broken: "loses pipelined requests",
        needs: Ask::Health,
        bytes: b"GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n",
        keeps: |said| said.statuses == [200, 200],
    },
    Rule {
        broken: NO_HOST,
        needs: Ask::Health,
        bytes: b"GET /health HTTP/1.1\r\n\r\n",
        keeps: |said| said.statuses == [400] || said.statuses.is_empty() && said.ended,
    },
    Rule {
        broken: "sends no Date",
        needs: Ask::Health,
        bytes: b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
        keeps: |said| said.has_date,
    },
    Rule {
        broken: HEAD_BODY,
        needs: Ask::Health,
        bytes: b"HEAD /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        keeps: |said| said.after_head == 0,
    },
    Rule {
        broken: TWO_LENGTHS,
        needs: Ask::Health,
        bytes: b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 44\r\n\r\nabcd",
        keeps: |said| said.statuses.iter().all(|status| *status >= 400),
    },
    Rule {
        broken: NO_CHUNKED,
        needs: Ask::Echo,
        bytes: b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        keeps: |said| said.statuses == [200] && said.body == b"hello",
    },
    Rule {
        broken: TWO_FRAMINGS,
        needs: Ask::Echo,
        bytes: b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
            0\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n",
        // RFC 9112 §6.1: it may go by the chunks, but then the connection ends with the answer.
        keeps: |said| said.statuses.len() <= 1 && said.ended && said.body != b"0\r\n\r\n",
    },
];

/// Returns the rules that the server at `port` breaks. The floors break nearly all: they do not read.
fn broken(port: u16, subject: &Subject) -> Result<Vec<&'static str>> {
    let mut broken = Vec::new();
    for rule in RULES.iter().filter(|rule| subject.can(rule.needs)) {
        let mut is_kept = false;
        // Once is enough: a server that loses connections is no cheat, and the load counts what it loses.
        for _ in 0..TRIES {
            let (bytes, ended) = talk(port, rule.bytes)?;
            is_kept |= (rule.keeps)(&said(&bytes, ended));
            if is_kept {
                break;
            }
        }
        broken.extend((!is_kept).then_some(rule.broken));
    }
    Ok(broken)
}

fn said(bytes: &[u8], ended: bool) -> Said {
    let head_end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let head = String::from_utf8_lossy(&bytes[..head_end]).to_ascii_lowercase();
    let mut said = Said {
        ended,
        after_head: bytes.len() - head_end,
        has_date: head.contains("\r\ndate:"),
        ..Said::default()
    };
    let mut parser = ResponseParser::keeping();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Ok((used, answer)) = parser.feed(rest) else { break };
        said.statuses.extend(answer.map(|answer| answer.status));
        rest = &rest[used..];
    }
    if ended {
        said.statuses.extend(parser.end().map(|answer| answer.status));
    }
    said.body = parser.into_body();
    said
}

/// All that comes back for `bytes` until the server ends the connection, or says nothing for a while, and whether it ended it.
fn talk(port: u16, bytes: &[u8]) -> Result<(Vec<u8>, bool)> {
    let mut stream = connect(port, Ipv4Addr::LOCALHOST)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.write_all(bytes)?;
    let mut said = Vec::new();
    let mut input = [0; 4096];
    loop {
        match stream.read(&mut input) {
            Ok(0) => return Ok((said, true)),
            Ok(received) => said.extend_from_slice(&input[..received]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok((said, false));
            }
            // Reset: ended, and rudely.
            Err(_) => return Ok((said, true)),
        }
    }
}

fn answer(req: &mut Request<'_>) -> Response {
    match req.path() {
        "/echo" => req.body().bytes().map_or(Response::new(StatusCode::BAD_REQUEST), Response::bytes),
        _ => Response::text("OK"),
    }
}

#[test]
fn weft_keeps_all_rules() {
    let running = Server::bind("127.0.0.1:0").unwrap().start(answer).unwrap();
    let port = running.local_addr().unwrap().port();
    assert_eq!(broken(port, &"weft".parse().unwrap()).unwrap(), [""; 0]);
    running.shutdown(Duration::from_secs(1));
}

/// Starts nginx, h2o and lighttpd if they are installed. With WEFTWORK_BENCH_PEERS=PATH, the servers that have to be built too.
#[test]
fn every_peer_breaks_the_rules_that_the_table_names() {
    interrupt::install().unwrap();
    let one = Span::one(0);
    let cores = CoreArgs { cores: Cores { server: one, load: one } };
    let args = ServerArgs { cores, ..ServerArgs::default() };
    let has_all = env::var_os("WEFTWORK_BENCH_PEERS").is_some();
    let takes_part = |peer: &&Peer| has_all || matches!(peer.build, build::Build::Installed(_));
    let all: Vec<Subject> = PEERS.iter().filter(takes_part).map(Subject::Peer).collect();
    let mut peers = Peers::new(&args, &all, &[], 1024).unwrap();
    for subject in peers.subjects.clone() {
        let server = peers.start(&subject, &QUICK[0]).unwrap();
        assert_eq!(broken(server.port, &subject).unwrap(), subject.breaks(), "{subject}");
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 2\r\n\r\nOK";
const BAD: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";

fn check(broken: &str, answer: &str, ended: bool, keeps: bool) {
    let rule = RULES.iter().find(|rule| rule.broken.contains(broken)).unwrap();
    assert_eq!((rule.keeps)(&said(answer.as_bytes(), ended)), keeps, "{broken}: {answer:?}");
}

#[test]
fn rules() {
    check(IGNORES_CLOSE, OK, true, true);
    check(IGNORES_CLOSE, OK, false, false);
    check("HTTP/1.0", OK, false, false);
    check("pipelined", &OK.repeat(2), false, true);
    check("pipelined", OK, false, false);
    check("without Host", BAD, true, true);
    check("without Host", OK, false, false);
    check("Date", OK, false, true);
    check("Date", BAD, false, false);
    check("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", true, true);
    check("HEAD", OK, true, false);
    check("two lengths", BAD, true, true);
    check("two lengths", OK, false, false);
}

#[test]
fn rules_of_bodies() {
    let hello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    check("chunked body", hello, false, true);
    check("chunked body", OK, false, false);
    check("two framings", BAD, true, true);
    check("two framings", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true, true);
    check("two framings", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", true, false);
    check("two framings", &OK.repeat(2), false, false);
}
