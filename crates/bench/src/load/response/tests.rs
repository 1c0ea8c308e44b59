//! The parser finds the end of every kind of response, however the bytes come.

use super::*;

fn drive<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Answer>, Malformed> {
    let mut parser = ResponseParser::default();
    let mut answers = Vec::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            let (used, answer) = parser.feed(piece)?;
            answers.extend(answer);
            piece = &piece[used..];
        }
    }
    answers.extend(parser.end());
    Ok(answers)
}

fn check(bytes: &[u8], want: &[(u16, bool)]) {
    let want: Vec<_> = want.iter().map(|&(status, close)| Answer { status, close, right: true }).collect();
    assert_eq!(drive([bytes]).as_ref(), Ok(&want), "whole");
    for size in 1..bytes.len() {
        assert_eq!(drive(bytes.chunks(size)).as_ref(), Ok(&want), "in pieces of {size}");
    }
}

/// As [`check`] for one answer, and what comes after it is left alone.
fn check_tail(bytes: &[u8], status: u16, close: bool) {
    check(bytes, &[(status, close)]);
    let tail = [bytes, b"HTTP/1.1 200"].concat();
    let fed = ResponseParser::default().feed(&tail);
    assert_eq!(fed, Ok((bytes.len(), Some(Answer { status, close, right: true }))), "with a tail");
}

fn check_malformed(bytes: &[u8]) {
    assert_eq!(drive([bytes]), Err(Malformed), "whole");
    assert_eq!(drive(bytes.chunks(1)), Err(Malformed), "byte by byte");
}

#[test]
fn lengths() {
    check_tail(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, false);
    check_tail(b"HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", 200, false);
    check_tail(b"HTTP/1.1 404\r\ncontent-length: 2 \r\nx: y\r\n\r\n\r\n", 404, false);
}

#[test]
fn chunked() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = |body: &str| format!("{HEAD}{body}").into_bytes();
    check_tail(&chunked("5\r\nhello\r\n0\r\n\r\n"), 200, false);
    check_tail(&chunked("0a;name=value\r\n0123456789\r\n1\r\n\n\r\n000\r\n\r\n"), 200, false);
    check_tail(&chunked("0\r\ntrailer: x\r\n\r\n"), 200, false);
    check_malformed(&chunked("5\r\nhello!\r\n"));
    check_malformed(&chunked("\r\n"));
    check_malformed(&chunked("x\r\n"));
    check_malformed(&chunked("11111111111111111\r\n"));
    check_malformed(&chunked(&"1".repeat(CHUNK_LINE_BYTES_MAX + 1)));
}

#[test]
fn without_body() {
    check_tail(b"HTTP/1.1 204 No Content\r\n\r\n", 204, false);
    check_tail(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", 304, false);
    check_tail(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, false);
}

#[test]
fn closing() {
    check_tail(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx", 200, true);
    check_tail(b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", 200, true);
    check_tail(b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\ncontent-length: 1\r\n\r\nx", 200, false);
    check(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", &[(200, true)]);
}

#[test]
fn several() {
    const ONE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const TWO: &[u8] = b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n";
    check(&[ONE, TWO, ONE].concat(), &[(200, false), (503, false), (200, false)]);
}

#[test]
fn cut_off_is_no_answer() {
    check(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no", &[]);
    check(b"HTTP/1.1 200 OK\r\ncontent-le", &[]);
}

#[test]
fn malformed() {
    check_malformed(b"SSH-2.0-OpenSSH\r\n\r\n");
    check_malformed(b"HTTP/1.1 20\r\n\r\n");
    check_malformed(b"HTTP/1.1 2000\r\n\r\n");
    check_malformed(b"HTTP/1.1 099 Low\r\n\r\n");
    check_malformed(b"HTTP/1.1 200 OK\ncontent-length: 2\n\n");
    check_malformed(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n");
    check_malformed(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n");
    check_malformed(b"HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\n");
    check_malformed(&[b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &[b'x'; HEAD_BYTES_MAX]].concat());
}

#[test]
fn bodies_are_compared() {
    let right = |bytes: &[u8], size: usize| {
        let mut parser = ResponseParser::expecting(Some((*b"hello").into()));
        let mut right = Vec::new();
        for mut piece in bytes.chunks(size) {
            while !piece.is_empty() {
                let (used, answer) = parser.feed(piece).unwrap();
                right.extend(answer.map(|answer| answer.right));
                piece = &piece[used..];
            }
        }
        right.extend(parser.end().map(|answer| answer.right));
        right
    };
    const HEAD: &str = "HTTP/1.1 200 OK\r\n";
    for size in [1, 2, 7, 4096] {
        let two = format!("{HEAD}content-length: 5\r\n\r\nhello{HEAD}content-length: 5\r\n\r\nhullo");
        assert_eq!(right(two.as_bytes(), size), [true, false]);
        let short = format!("{HEAD}content-length: 4\r\n\r\nhell{HEAD}content-length: 0\r\n\r\n");
        assert_eq!(right(short.as_bytes(), size), [false, false]);
        let long = format!("{HEAD}content-length: 6\r\n\r\nhello!{HEAD}content-length: 5\r\n\r\nhello");
        assert_eq!(right(long.as_bytes(), size), [false, true]);
        let chunked = format!("{HEAD}transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
        assert_eq!(right(chunked.as_bytes(), size), [true]);
        assert_eq!(right(format!("{HEAD}\r\nhello").as_bytes(), size), [true]);
        assert_eq!(right(format!("{HEAD}\r\nhell").as_bytes(), size), [false]);
    }
}
