//! Responses are read the same in all pieces, and ambiguous responses are rejected.

use super::*;
use crate::Fault::*;

/// What a response came to.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    statuses: Vec<u16>,
    body: Vec<u8>,
    keep_alive: bool,
    /// Bytes that were left alone.
    tail: usize,
}

fn read(bytes: &[u8], step: usize, method: &Method) -> Result<Read, ResponseFault> {
    let limits = Limits { head_bytes_max: 300, fields_max: 4, ..Limits::default() };
    let mut reader = ResponseReader::new();
    let (mut at, mut end, mut body, mut statuses) = (0, 0, Vec::new(), Vec::new());
    let mut head: Option<Received> = None;
    loop {
        end = bytes.len().min(end + step);
        loop {
            let given = &bytes[at..end];
            match &head {
                Some(received) if !received.status.is_informational() => {
                    let (used, event) = reader.read_body(given, &limits)?;
                    if let BodyEvent::Data { start, len } = event {
                        body.extend_from_slice(&given[start..start + len]);
                    }
                    at += used;
                    if event == BodyEvent::End {
                        reader.end()?;
                        let keep_alive = received.keep_alive;
                        return Ok(Read { statuses, body, keep_alive, tail: bytes.len() - at });
                    }
                    if used == 0 || event == BodyEvent::NeedMore {
                        break;
                    }
                }
                _ => match reader.read_head(given, method, &limits)? {
                    Some((used, received)) => {
                        at += used;
                        statuses.push(received.status.as_u16());
                        head = Some(received);
                    }
                    None => break,
                },
            }
        }
        if end == bytes.len() {
            break;
        }
    }
    reader.end()?;
    Ok(Read { statuses, body, keep_alive: false, tail: 0 })
}

const NEXT: &str = "HTTP/1.1 200 OK\r\n";

/// Whole, byte by byte, and with a tail that is left alone (where anything can be).
#[track_caller]
fn check(text: &str, method: Method, statuses: &[u16], body: &str, keep_alive: bool) {
    let want =
        |tail| Ok(Read { statuses: statuses.to_vec(), body: body.as_bytes().to_vec(), keep_alive, tail });
    for step in [text.len(), 1] {
        assert_eq!(read(text.as_bytes(), step, &method), want(0), "{text:?} by {step}");
    }
    if keep_alive {
        let tailed = text.to_owned() + NEXT;
        for step in [tailed.len(), 1] {
            let got = read(tailed.as_bytes(), step, &method).map(|read| Read { tail: NEXT.len(), ..read });
            assert_eq!(got, want(NEXT.len()), "{text:?} with a tail, by {step}");
        }
    }
}

#[track_caller]
fn refused(text: &str, fault: impl Into<ResponseFault>) {
    let fault = fault.into();
    assert!(!fault.to_string().contains("request"), "{fault}");
    for step in [text.len(), 1] {
        assert_eq!(read(text.as_bytes(), step, &Method::GET), Err(fault), "{text:?} by {step}");
    }
}

#[test]
fn rfc9112_6_3_bodies_end_where_the_head_says() {
    let get = Method::GET;
    check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", get.clone(), &[200], "abc", true);
    check("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", get.clone(), &[200], "", true);
    let chunked = "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n";
    check(chunked, get.clone(), &[200], "abc", true);
    check("HTTP/1.1 200 OK\r\n\r\nuntil the end", get.clone(), &[200], "until the end", false);
    check("HTTP/1.1 204 No\r\n\r\n", get.clone(), &[204], "", true);
    check("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", get.clone(), &[304], "", true);
    check("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", Method::HEAD, &[200], "", true);
    let early = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    check(early, get, &[103, 200], "x", true);
}

#[test]
fn rfc9112_6_3_a_tunnel_begins_after_the_head_regardless_of_its_fields() {
    let length = "Content-Length: 3\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    for fields in ["", length, chunked, "Content-Length: x\r\n", &[length, length, chunked].concat()] {
        for status in [200, 204, 299] {
            let text = format!("HTTP/1.1 {status} OK\r\n{fields}\r\ntunneled");
            check(&text, Method::CONNECT, &[status], "tunneled", false);
        }
    }
    let (head, limits) = (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", Limits::default());
    let (_, received) = ResponseReader::new().read_head(head, &Method::CONNECT, &limits).unwrap().unwrap();
    assert_eq!((received.length, received.keep_alive), (None, false));
    let refusal = "HTTP/1.1 407 No\r\nContent-Length: 3\r\n\r\nabc";
    check(refusal, Method::CONNECT, &[407], "abc", true);
}

#[test]
fn rfc9112_9_3_the_connection_persists_if_both_say_so() {
    let keeps = |head: &str| {
        let text = format!("{head}Content-Length: 1\r\n\r\nx");
        read(text.as_bytes(), text.len(), &Method::GET).unwrap().keep_alive
    };
    assert!(keeps("HTTP/1.1 200 OK\r\n"));
    assert!(!keeps("HTTP/1.1 200 OK\r\nConnection: x, Close\r\n"));
    assert!(!keeps("HTTP/1.0 200 OK\r\n"));
    assert!(keeps("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n"));
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    refused(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        ContentLengthAndTransferEncoding,
    );
    refused("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", ContentLengthRepeated);
    refused("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx", ContentLengthInvalid);
    refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", TransferCodingUnknown);
    refused("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", TransferEncodingInHttp10);
    refused("HTTP/1.1 200 OK\nContent-Length: 1\r\n\r\nx", BareLineFeed);
    refused("HTTP/1.1 200 OK\r\nA : 1\r\n\r\n", SpaceBeforeColon);
    refused("HTTP/1.1 200 OK\r\nA: 1\r\n b\r\n\r\n", LineFolding);
    refused("HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", FieldValueInvalid);
    refused(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: 1\r\n".repeat(5)), TooManyFields);
    refused(&format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(300)), HeadTooLong);
}

#[test]
fn rfc9112_4_a_status_line_is_one() {
    for line in [
        "HTTP/1.1  200 OK",
        "HTTP/2.0 200 OK",
        "http/1.1 200 OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 099 OK",
        "HTTP/1.1 600 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 200OK",
        "HTTP/1.1 200 \u{1}",
        "ICY 200 OK",
    ] {
        refused(&format!("{line}\r\n\r\n"), ResponseFault::StatusLineMalformed);
    }
}

#[test]
fn an_end_within_a_response_is_seen() {
    for text in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
    ] {
        let got = read(text.as_bytes(), text.len().max(1), &Method::GET);
        assert_eq!(got, Err(ResponseFault::Incomplete), "{text:?}");
    }
}

/// What follows is another protocol, and no part of the response.
#[test]
fn an_end_after_101_does_not_truncate_the_response() {
    let (mut reader, limits) = (ResponseReader::new(), Limits::default());
    let head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n";
    reader.read_head(head, &Method::GET, &limits).unwrap().unwrap();
    assert_eq!(reader.end(), Ok(()));
}

/// A kept connection may end while the next response is on its way.
#[test]
fn an_end_within_the_next_head_is_seen() {
    let (mut reader, limits) = (ResponseReader::new(), Limits::default());
    reader.read_head(b"HTTP/1.1 204 No\r\n\r\n", &Method::GET, &limits).unwrap().unwrap();
    assert_eq!(reader.end(), Ok(()));
    assert_eq!(reader.read_head(b"HTTP/1.1 2", &Method::GET, &limits), Ok(None));
    assert_eq!(reader.end(), Err(ResponseFault::Incomplete));
}

#[test]
fn trailers_are_kept_apart() {
    let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 7\r\n\r\n";
    let (mut reader, limits) = (ResponseReader::new(), Limits::default());
    let (used, received) = reader.read_head(text, &Method::GET, &limits).unwrap().unwrap();
    assert_eq!(received.length, None);
    assert_eq!(reader.read_body(&text[used..], &limits).unwrap().1, BodyEvent::End);
    assert_eq!(reader.trailers(), [(HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))]);
}

/// RFC 9112 §7.1.2. One whose form is wrong is a fault all the same.
#[test]
fn a_trailer_that_may_be_none_is_left_out() {
    let trailers = |lines: &str| {
        let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{lines}\r\n");
        let (mut reader, limits) = (ResponseReader::new(), Limits { fields_max: 3, ..Limits::default() });
        let (used, _) = reader.read_head(text.as_bytes(), &Method::GET, &limits)?.unwrap();
        assert_eq!(reader.read_body(&text.as_bytes()[used..], &limits)?.1, BodyEvent::End);
        Ok(reader.trailers().iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(trailers("Set-Cookie: a=b\r\nX-Sum: 7\r\nDate: now\r\n"), Ok(vec!["x-sum".to_owned()]));
    assert_eq!(trailers("Set-Cookie : a\r\n"), Err(ResponseFault::Message(SpaceBeforeColon)));
    assert_eq!(trailers(&"Date: now\r\n".repeat(4)), Err(ResponseFault::Message(TooManyTrailers)));
}
