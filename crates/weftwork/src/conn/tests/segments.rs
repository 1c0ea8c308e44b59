//! Long responses leave in full segments. When does the rest of what was written follow?

use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::tcp_cork;

use super::waits::{Acts, Peer, sends, until_call};
use super::*;
use crate::message::BodyWriter;

const PART: usize = 100_000;

/// Over TCP: what stands for its ends elsewhere knows no segments.
fn asked(request: &str) -> Bed {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    let mut bed = Bed::over(OwnedFd::from(ours).into(), OwnedFd::from(peer).into(), Settings::default());
    bed.send(request);
    bed
}

/// Whether the kernel keeps what does not fill a segment.
fn keeps(socket: &OwnedFd) -> bool {
    tcp_cork(socket).unwrap()
}

/// Answers with what `write` writes, and returns the socket. The client does what `acts` says while the writer waits for it.
fn stream(
    request: &str,
    acts: impl FnOnce(Arc<OwnedFd>) -> Acts,
    write: impl FnOnce(&mut BodyWriter<'_>, &OwnedFd) + Send + 'static,
) -> Arc<OwnedFd> {
    let mut bed = asked(request);
    until_call(&mut bed);
    let socket = Arc::new(bed.conn.stream.as_fd().try_clone_to_owned().unwrap());
    let peer = Peer::new(&bed, std::iter::once((5, acts(socket.clone()))));
    let write = Mutex::new(Some((write, socket.clone())));
    let handler = move |_: &mut Request| {
        let (write, socket) = write.lock().unwrap().take().unwrap();
        let response = Response::stream(move |out| {
            write(out, &socket);
            Ok(())
        });
        response.with_header(http::header::CONTENT_LENGTH, (2 * PART).into())
    };
    bed.call_with(&handler, &peer);
    assert_eq!(bed.conn.unsent(), 0, "a loop would not flush");
    socket
}

fn no_acts(_: Arc<OwnedFd>) -> Acts {
    Box::new(|_| unreachable!("it does not wait"))
}

#[test]
fn what_does_not_fill_a_segment_follows_at_a_flush_and_at_the_end() {
    let socket = stream(GET, no_acts, |out, socket| {
        assert!(!keeps(socket), "nothing is written");
        out.write_all(&[b'x'; PART]).unwrap();
        assert!(keeps(socket), "more may follow");
        out.flush().unwrap();
        assert!(!keeps(socket), "flushed");
        out.write_all(&[b'x'; PART]).unwrap();
        assert!(keeps(socket), "the writer may go on");
    });
    assert!(!keeps(&socket), "all is written");
}

/// The client may send on only when it has its part of the answer.
#[test]
fn what_does_not_fill_a_segment_follows_before_a_wait_for_the_client() {
    // More than is read ahead of the call.
    let come = 70_000;
    let request = post("/", come + 3) + &"x".repeat(come);
    let acts = |socket: Arc<OwnedFd>| -> Acts {
        let mut send = sends(3);
        Box::new(move |peer| {
            assert!(!keeps(&socket), "it waits for its client");
            send(peer);
        })
    };
    let socket = stream(&request, acts, move |out, socket| {
        let mut body = Vec::with_capacity(come);
        out.write_all(&[b'x'; PART]).unwrap();
        while body.len() < come {
            out.read_request_buf(&mut body).unwrap();
            assert!(keeps(socket), "there was no need to wait");
        }
        assert_eq!(out.read_request(&mut [0; 8]).unwrap(), 3);
        out.write_all(&[b'x'; PART]).unwrap();
    });
    assert!(!keeps(&socket));
}

#[test]
fn a_long_file_leaves_in_full_segments_and_whole() {
    let file = File::from(memfd_create("long", MemfdFlags::CLOEXEC).unwrap());
    let count = 8 << 20;
    file.set_len(count).unwrap();
    let file = Arc::new(file);
    let mut bed = asked(GET);
    until_call(&mut bed);
    let handler = move |_: &mut Request| {
        let payload = Payload::File { file: file.clone(), offset: 0, count, read: None };
        Response { payload, ..Response::default() }
    };
    let wait = InVain { now: bed.now };
    bed.call_with(&handler, &wait);
    let socket = bed.conn.stream.as_fd().try_clone_to_owned().unwrap();
    bed.go_on();
    assert!(bed.conn.rest.is_some() && keeps(&socket), "there is more than is sent at a time");
    let mut got = Vec::new();
    let mut part = vec![0; 1 << 16];
    while bed.conn.rest.is_some() {
        while let Ok(count) = bed.peer.read(&mut part) {
            got.extend_from_slice(&part[..count]);
        }
        bed.go_on();
    }
    assert!(!keeps(&socket), "all is sent");
    bed.peer.set_nonblocking(false).unwrap();
    let head = got.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    while got.len() < head + count as usize {
        let count = bed.peer.read(&mut part).unwrap();
        got.extend_from_slice(&part[..count]);
    }
    assert!(got.len() == head + count as usize && got[head..].iter().all(|byte| *byte == 0));
}
