//! Which rules of HTTP/1.1 does a server leave out? Speed that comes from not reading a request is none, so
//! each contestant is asked once before the race, and what it breaks stands beside its figures.

use std::time::Duration;

use crate::failure::Result;
use crate::load::probe::talk;
use crate::load::response::ResponseParser;
use crate::subject::Subject;
use crate::workloads::Ask;

/// How long a server may be silent before it counts as waiting for more.
const PATIENCE: Duration = Duration::from_millis(300);

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
    /// What it says about a server that breaks it.
    broken: &'static str,
    needs: Ask,
    bytes: &'static [u8],
    keeps: fn(&Said) -> bool,
}

/// The rule that decides who takes part where every connection is closed.
pub(crate) const IGNORES_CLOSE: &str = "ignores Connection: close";

/// What is said of who could not be asked: whether it cheats is not known, and so it is never first.
pub(crate) const NO_ANSWER: &str = "did not answer when asked for its manners";

const RULES: &[Rule] = &[
    Rule {
        broken: IGNORES_CLOSE,
        needs: Ask::Health,
        bytes: b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        keeps: |said| said.statuses == [200] && said.ended,
    },
    Rule {
        broken: "keeps an HTTP/1.0 connection that nobody asked to keep",
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
        broken: "takes a request without Host",
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
        broken: "answers HEAD with a body",
        needs: Ask::Health,
        bytes: b"HEAD /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        keeps: |said| said.after_head == 0,
    },
    Rule {
        broken: "takes two lengths (smuggling)",
        needs: Ask::Health,
        bytes: b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 44\r\n\r\nabcd",
        keeps: |said| said.statuses.iter().all(|status| *status >= 400),
    },
    Rule {
        broken: "cannot read a chunked body",
        needs: Ask::Echo,
        bytes: b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        keeps: |said| said.statuses == [200] && said.body == b"hello",
    },
    Rule {
        broken: "goes on after two framings of one body (smuggling)",
        needs: Ask::Echo,
        bytes: b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
            0\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n",
        // RFC 9112 §6.1: it may go by the chunks, but then the connection ends with the answer.
        keeps: |said| said.statuses.len() <= 1 && said.ended && said.body != b"0\r\n\r\n",
    },
];

/// The rules that the server at `port` breaks. The floors break nearly all: they do not read.
pub(crate) fn broken(port: u16, subject: &Subject) -> Result<Vec<&'static str>> {
    let mut broken = Vec::new();
    for rule in RULES.iter().filter(|rule| subject.can(rule.needs)) {
        let mut is_kept = false;
        // Once is enough: a server that loses connections is no cheat, and the load counts what it loses.
        for _ in 0..if subject.is_floor() { 1 } else { TRIES } {
            let (bytes, ended) = talk(port, rule.bytes, PATIENCE)?;
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

#[cfg(test)]
mod tests {
    //! Does each rule tell a server that keeps it from one that does not?

    use super::*;

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
}
