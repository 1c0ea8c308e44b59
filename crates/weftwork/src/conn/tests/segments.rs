//! Tests that long responses leave in full segments, and of when the rest follows.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::tcp_cork;
use rustix::net::{RecvFlags, recv};

use super::waits::{Acts, Peer, sends, until_call};
use super::*;
use crate::message::BodyWriter;

const PART: usize = 100_000;

/// Over TCP, because the simulated sockets of other tests have no segments.
fn requested(request: &str) -> Bed {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    let mut bed = Bed::over(OwnedFd::from(ours).into(), OwnedFd::from(peer).into(), Settings::default());
    bed.send(request);
    await_bytes(&bed.conn.stream, request.len());
    until_call(&mut bed);
    bed
}

/// Reads until this many bytes have arrived.
fn await_bytes(socket: impl AsFd, count: usize) {
    let mut into = vec![0; count];
    let flags = RecvFlags::PEEK | RecvFlags::WAITALL;
    assert_eq!(recv(socket, &mut into[..], flags).unwrap().0, count);
}

/// Returns whether the kernel keeps bytes that do not fill a segment.
fn keeps(socket: impl AsFd) -> bool {
    tcp_cork(socket).unwrap()
}

/// Responds with the bytes of `write`. The client runs `acts` while the writer waits.
fn stream(
    bed: &mut Bed,
    acts: Acts,
    response: Response,
    write: impl FnOnce(&mut BodyWriter<'_>, &OwnedFd) + Send + 'static,
) {
    let peer = Peer::new(bed, std::iter::once((5, acts)));
    // A panic in it is caught and becomes an error page.
    let has_run = Arc::new(AtomicBool::new(false));
    let runs = has_run.clone();
    let parts = Mutex::new(Some((response, write, bed.conn.stream.as_fd().try_clone_to_owned().unwrap())));
    let handler = move |req: &mut Request| {
        req.set_body_bytes_max(u64::MAX);
        let (runs, (response, write, socket)) = (runs.clone(), parts.lock().unwrap().take().unwrap());
        let written = Response::stream(move |out| {
            write(out, &socket);
            runs.store(true, Relaxed);
            Ok(())
        });
        Response { payload: written.payload, ..response }
    };
    bed.call_with(&handler, &peer);
    assert!(has_run.load(Relaxed), "the writer has panicked");
}

fn of_length(length: usize) -> Response {
    Response::default().with_header(http::header::CONTENT_LENGTH, length)
}

fn no_acts() -> Acts {
    Box::new(|_| unreachable!("it does not wait"))
}

#[test]
fn what_does_not_fill_a_segment_follows_at_a_flush_and_when_all_is_written() {
    let mut bed = requested(GET);
    stream(&mut bed, no_acts(), of_length(2 * PART), |out, socket| {
        assert!(!keeps(socket), "nothing is written");
        out.write_all(&[b'x'; PART]).unwrap();
        assert!(keeps(socket), "more may follow");
        out.flush().unwrap();
        assert!(!keeps(socket), "flushed");
        out.write_all(&[b'x'; PART - 1]).unwrap();
        assert!(keeps(socket), "more may follow");
        out.flush().unwrap();
        out.write_all(b"x").unwrap();
    });
    let mut bed = requested(GET);
    stream(&mut bed, no_acts(), of_length(PART), |out, socket| {
        out.write_all(&[b'x'; PART]).unwrap();
        assert!(!keeps(socket), "nothing can follow, whatever the writer does next");
    });
}

/// Nothing is left for a loop to flush.
#[test]
fn what_does_not_fill_a_segment_follows_when_its_writer_is_done() {
    let mut bed = requested("GET / HTTP/1.0\r\n\r\n");
    stream(&mut bed, no_acts(), Response::default(), |out, socket| {
        out.write_all(&[b'x'; PART]).unwrap();
        assert!(keeps(socket), "its end is that of the connection");
    });
    assert_eq!(bed.conn.unsent(), 0);
    assert!(!keeps(&bed.conn.stream));
}

/// The end of the connection sends the bytes that the kernel keeps.
#[test]
fn the_end_of_a_connection_leaves_with_what_does_not_fill_a_segment() {
    let mut bed = requested(GET);
    stream(&mut bed, no_acts(), Response::default().with_close(), |out, _| {
        out.write_all(&[b'x'; PART]).unwrap();
    });
    assert_ne!(bed.go_on(), Step::Close, "it lingers");
    assert!(keeps(&bed.conn.stream), "one packet for both");
    bed.peer.set_nonblocking(false).unwrap();
    let mut got = Vec::new();
    bed.peer.read_to_end(&mut got).unwrap();
    assert!(got.ends_with(b"x\r\n0\r\n\r\n"));
}

/// The client may wait for its part of the response before it sends more.
#[test]
fn what_does_not_fill_a_segment_follows_before_a_wait_for_the_client() {
    // If a body is too long for the default limit, and the handler sets none, nothing is read ahead.
    let mut bed = requested(&post("/", 1 << 40));
    bed.send([b'x'; 10]);
    await_bytes(&bed.conn.stream, 10);
    let socket = bed.conn.stream.as_fd().try_clone_to_owned().unwrap();
    let mut send = sends(3);
    let acts: Acts = Box::new(move |peer| {
        assert!(!keeps(&socket), "it waits for its client");
        send(peer);
        await_bytes(&socket, 3);
    });
    stream(&mut bed, acts, of_length(PART + 1), |out, socket| {
        out.write_all(&[b'x'; PART]).unwrap();
        assert_eq!(out.read_request(&mut [0; 16]).unwrap(), 10);
        assert!(keeps(socket), "there was no need to wait");
        assert_eq!(out.read_request(&mut [0; 16]).unwrap(), 3);
        out.write_all(b"x").unwrap();
    });
}

#[test]
fn a_long_file_leaves_in_full_segments_and_whole() {
    let file = File::from(memfd_create("long", MemfdFlags::CLOEXEC).unwrap());
    let count = 8 << 20;
    file.set_len(count).unwrap();
    let file = Arc::new(file);
    let mut bed = requested(GET);
    let handler = move |_: &mut Request| {
        let payload = Payload::File { file: file.clone(), offset: 0, count, read: None };
        Response { payload, ..Response::default() }
    };
    let wait = InVain { now: bed.now };
    bed.call_with(&handler, &wait);
    bed.go_on();
    assert!(
        bed.conn.pending_body.is_some() && keeps(&bed.conn.stream),
        "there is more than is sent at a time"
    );
    let mut got = Vec::new();
    let mut part = vec![0; 1 << 16];
    while bed.conn.pending_body.is_some() {
        while let Ok(count @ 1..) = bed.peer.read(&mut part) {
            got.extend_from_slice(&part[..count]);
        }
        assert_ne!(bed.go_on(), Step::Close);
    }
    assert!(!keeps(&bed.conn.stream), "all is sent");
    let head = got.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    bed.peer.set_nonblocking(false).unwrap();
    let mut rest = vec![0; head + count as usize - got.len()];
    bed.peer.read_exact(&mut rest).unwrap();
    assert!(got[head..].iter().chain(&rest).all(|byte| *byte == 0));
}
