//! A session goes on if it got the right answer, and fails if it did not.

use super::*;

/// Checks what a session sends to these bytes, whole and byte by byte.
fn check(kind: Kind, bytes: &[u8], want: Result<u64, Wrong>, says: &[u8]) {
    for size in [1, bytes.len()] {
        let (mut session, mut output, mut answers) = (Session::of(kind).unwrap(), Vec::new(), Ok(0));
        for part in bytes.chunks(size) {
            answers = answers.and_then(|sum| Ok(sum + session.read(part, &mut output)?));
        }
        assert_eq!(answers, want, "{kind:?} in parts of {size}");
        if want.is_ok() {
            assert!(output == says, "{kind:?} in parts of {size}: {:?}", String::from_utf8_lossy(&output));
        }
    }
}

const CHUNKED: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn a_chunk_is_sent_when_the_last_one_is_back() {
    check(Kind::Duplex, &[CHUNKED, &chunk()].concat(), Ok(1), &chunk());
    check(Kind::Duplex, &[CHUNKED, &chunk()[..100]].concat(), Ok(0), b"");
    check(Kind::Duplex, &[CHUNKED, b"0\r\n\r\n"].concat(), Err(Wrong), b"");
    check(Kind::Duplex, b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", Err(Wrong), b"");
}

#[test]
fn a_whole_chat_is_followed_by_another() {
    let (mut session, mut output) = (Session::of(Kind::Duplex).unwrap(), Vec::new());
    session.read(CHUNKED, &mut output).unwrap();
    for at in 1..=CHUNKS {
        assert_eq!(session.read(&chunk(), &mut output), Ok(1));
        let want = if at < CHUNKS { chunk() } else { b"0\r\n\r\n".to_vec() };
        assert!(std::mem::take(&mut output) == want, "{at}");
    }
    assert_eq!(session.read(b"0\r\n\r\n", &mut output), Ok(1));
    assert!(output == session.first_bytes());
}

#[test]
fn a_download_is_compared() {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {DOWNLOAD_BYTES}\r\n\r\n").into_bytes();
    let (mut session, mut output) = (Session::of(Kind::Download).unwrap(), Vec::new());
    assert_eq!(session.read(&[head.clone(), download_body()].concat(), &mut output), Ok(1));
    assert!(output == session.first_bytes());
    assert_eq!(session.read(&[head, vec![0; DOWNLOAD_BYTES]].concat(), &mut output), Err(Wrong));
}

const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn messages_come_back() {
    let first = frame(TEXT, b"message 0");
    check(Kind::Socket, SWITCHED, Ok(0), &first);
    let both = [first.as_slice(), &frame(TEXT, b"message 1")].concat();
    check(Kind::Socket, &[SWITCHED, b"\x81\x09message 0"].concat(), Ok(1), &both);
    check(Kind::Socket, &[SWITCHED, b"\x81\x09message 1"].concat(), Err(Wrong), b"");
    check(Kind::Socket, &[SWITCHED, b"\x89\x01p"].concat(), Ok(0), &[first, frame(PONG, b"p")].concat());
    // It closes.
    check(Kind::Socket, &[SWITCHED, b"\x88\x00"].concat(), Err(Wrong), b"");
    check(Kind::Socket, b"HTTP/1.1 503 Service Unavailable\r\n\r\n", Err(Wrong), b"");
}

#[test]
fn a_frame_is_masked() {
    assert_eq!(
        frame(PONG, b"abcde"),
        [0x8a, 0x85, 1, 2, 3, 4, b'a' ^ 1, b'b' ^ 2, b'c' ^ 3, b'd' ^ 4, b'e' ^ 1]
    );
}

const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn events_are_counted() {
    let ticks = b"1c\r\nid: 1\ndata: one\n\n\r\n1c\r\nid: 2\ndata: two\n\n\r\n";
    check(Kind::Feed, &[STREAM, ticks].concat(), Ok(2), b"");
    check(Kind::Feed, &[STREAM, b"3\r\n:\n\n\r\n"].concat(), Ok(0), b"");
    check(Kind::Feed, b"HTTP/1.1 404 Not Found\r\n\r\n", Err(Wrong), b"");
    check(Kind::Feed, &[STREAM, &[b'x'; INPUT_BYTES_MAX + 1]].concat(), Err(Wrong), b"");
}
