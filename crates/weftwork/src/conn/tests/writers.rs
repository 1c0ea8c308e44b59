//! Tests of the writer of a streamed body: how long it waits, whose time that is, and which bytes are kept meanwhile.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::waits::{Acts, Peer, until_call};
use super::*;
use crate::message::BodyWriter;

const WRITE: u64 = 30_000;
const LONG: u64 = 300_000;
static PART: [u8; 64 << 10] = [b'x'; 64 << 10];

/// A connection with a small kernel buffer, on which `request` has arrived.
fn requested(request: &str) -> Bed {
    let mut bed = Bed::narrow();
    bed.send(request);
    until_call(&mut bed);
    bed
}

/// Responds with the bytes of `write`, and returns its result.
fn stream<T: Send + 'static>(
    bed: &mut Bed,
    peer: &Peer,
    write: impl FnOnce(&mut BodyWriter<'_>, &AtomicU64) -> T + Send + 'static,
) -> T {
    let (said, now) = (Arc::new(Mutex::new(None)), peer.clock());
    let (says, write) = (said.clone(), Mutex::new(Some(write)));
    let handler = move |_: &mut Request| -> Response {
        let (says, now, write) = (says.clone(), now.clone(), write.lock().unwrap().take().unwrap());
        Response::stream(move |out| {
            *says.lock().unwrap() = Some(write(out, &now));
            Ok(())
        })
    };
    bed.call_with(&handler, peer);
    said.lock().unwrap().take().unwrap()
}

/// The client counts as gone, however often the writer tries again.
#[test]
fn a_client_that_timed_out_gets_no_second_timeout() {
    for request in [GET, "GET / HTTP/1.0\r\n\r\n"] {
        let mut bed = requested(request);
        let peer = Peer::new(&bed, std::iter::empty());
        let (kinds, gone) = stream(&mut bed, &peer, |out, _| {
            let mut tries = std::iter::repeat_with(|| out.write_all(&PART));
            let first = tries.find_map(io::Result::err).unwrap().kind();
            ([first, tries.next().unwrap().unwrap_err().kind()], out.client_gone())
        });
        assert_eq!((kinds, gone), ([ErrorKind::TimedOut, ErrorKind::BrokenPipe], true), "{request:?}");
        assert_eq!((bed.now.0, bed.cx.stats().timeouts), (WRITE, 1));
        assert_eq!(bed.go_on(), Step::Close, "nor with what is left when the writer is done");
    }
}

/// A wait for space ends only when there is much, and a slow client may need long for that.
#[test]
fn a_client_that_reads_slowly_keeps_its_connection() {
    let mut bed = requested(GET);
    bed.cx.settings.rate_bytes_min = 0;
    let takes = || -> (u64, Acts) {
        (WRITE, Box::new(|stream: &mut UnixStream| assert!(stream.read(&mut [0; 8 << 10]).is_ok())))
    };
    let peer = Peer::new(&bed, std::iter::repeat_with(takes).take(5));
    let kind = stream(&mut bed, &peer, |out, _| {
        std::iter::repeat_with(|| out.write_all(&PART)).find_map(io::Result::err).unwrap().kind()
    });
    assert_eq!((kind, bed.now.0, bed.cx.stats().timeouts), (ErrorKind::TimedOut, 6 * WRITE, 1));
}

/// The client will never read the bytes.
#[test]
fn a_writer_that_ignores_errors_does_not_grow_memory() {
    for request in [GET, "GET / HTTP/1.0\r\n\r\n"] {
        let mut bed = requested(request);
        let peer = Peer::new(&bed, std::iter::empty());
        let failed =
            stream(&mut bed, &peer, |out, _| (0..100).filter(|_| out.write_all(&PART).is_err()).count());
        assert!(failed > 90, "{failed} of 100 writes have failed");
        let held = bed.conn.buffers.as_deref().map_or(0, |buffers| buffers.output.capacity());
        assert!(held <= 4 * PART.len(), "{held} bytes are held for {request:?}");
        assert_eq!(bed.go_on(), Step::Close);
    }
}

/// The writer has ended, and its thread is free. A client may take its time for the end of a long part, without the
/// space of the whole part.
#[test]
fn the_end_of_a_long_part_allocates_little() {
    let mut bed = requested(GET);
    let takes =
        || -> (u64, Acts) { (1, Box::new(|stream| assert!(stream.read(&mut [0; 64 << 10]).unwrap() > 0))) };
    let peer = Peer::new(&bed, std::iter::repeat_with(takes));
    stream(&mut bed, &peer, |out, _| out.write_all(&[b'x'; 256 << 10]).unwrap());
    let buffers = bed.conn.buffers.as_deref().unwrap();
    let (left, held) = (buffers.output.len() - buffers.sent, buffers.output.capacity());
    assert!(left > 0 && held <= left + PART.len(), "{held} bytes are held for {left}");
}

/// The client was slow, and could not change that while the writer was busy.
#[test]
fn the_time_of_a_writer_does_not_count_against_its_client() {
    let mut bed = requested(GET);
    let peer = Peer::new(&bed, std::iter::empty());
    let written = stream(&mut bed, &peer, |out, now| {
        out.write_all(&PART).unwrap();
        now.fetch_add(LONG, Ordering::Relaxed);
        out.write_all(&PART).map_err(|error| error.kind())
    });
    assert_eq!((written, bed.now.0), (Err(ErrorKind::TimedOut), LONG + WRITE));
}

#[test]
fn the_time_of_a_finished_writer_does_not_count_against_its_client() {
    let mut bed = requested(GET);
    let peer = Peer::new(&bed, std::iter::empty());
    stream(&mut bed, &peer, |out, now| {
        out.write_all(&PART).unwrap();
        now.fetch_add(LONG, Ordering::Relaxed);
    });
    assert_eq!(bed.go_on(), Step::Write);
    assert_eq!((bed.now.0, bed.due()), (LONG, WRITE));
}

/// The watchdog counts the writer's own time since its last progress.
#[test]
fn a_writer_that_writes_or_waits_is_not_reported_as_stuck() {
    let mut bed = requested(GET);
    let slot = bed.slot.clone();
    let (waits, watched) = (Arc::new(Mutex::new(Vec::new())), slot.clone());
    let seen = waits.clone();
    let reads = move || -> (u64, Acts) {
        let (seen, watched) = (seen.clone(), watched.clone());
        let read = move |stream: &mut UnixStream| {
            seen.lock().unwrap().push(watched.begun().0);
            while stream.read(&mut [0; 64 << 10]).is_ok() {}
        };
        (1, Box::new(read))
    };
    let peer = Peer::new(&bed, std::iter::repeat_with(reads));
    stream(&mut bed, &peer, move |out, now| {
        let at = || now.load(Ordering::Relaxed);
        now.fetch_add(100, Ordering::Relaxed);
        out.flush().unwrap();
        assert_eq!(slot.begun().0, 100);
        out.write_all(&PART).unwrap();
        out.write_all(&PART).unwrap();
        assert!(at() > 100 && slot.begun().0 == at(), "{slot:?} at {}", at());
        out.flush().unwrap();
        let until = at() + 1_000;
        assert!(out.pause(Duration::from_secs(1)).unwrap());
        assert_eq!((at(), slot.begun().0), (until, until));
    });
    let begun = waits.lock().unwrap();
    assert!(begun.iter().all(|begun| *begun >= bed.now.0), "not before the end of a wait: {begun:?}");
}

/// A client that sends after its request is not read without end during a pause, and gets its response all the same.
#[test]
fn input_during_a_writers_pause_is_kept_up_to_a_limit() {
    const BOUND: usize = 64 << 10;
    const PIECE: usize = 8 << 10;
    let mut bed = Bed::new();
    bed.send(GET);
    until_call(&mut bed);
    let length = 2 * BOUND;
    let next = post("/echo", length) + &"y".repeat(length);
    let pieces: Vec<_> = next.as_bytes().chunks(PIECE).map(<[u8]>::to_vec).collect();
    let acts = pieces
        .into_iter()
        .map(|piece| -> (u64, Acts) { (1, Box::new(move |stream| stream.write_all(&piece).unwrap())) });
    let peer = Peer::new(&bed, acts);
    let paused = stream(&mut bed, &peer, |out, _| out.pause(Duration::from_secs(1)));
    assert!(paused.unwrap());
    let buffers = bed.conn.buffers_mut();
    let kept = buffers.input.len() - buffers.raw;
    assert!((BOUND..BOUND + 2 * PIECE).contains(&kept), "{kept} bytes");
    assert_eq!(bed.go_on(), Step::Read);
    assert!(bed.got().ends_with("yyy"), "all of it is the next request");
}

/// The server cuts its connections.
struct Cut;

impl IoWait for Cut {
    fn now(&self) -> Tick {
        Tick(0)
    }

    fn wait_ready(&self, _: BorrowedFd<'_>, _: Readiness, _: Tick, _: Stage) -> io::Result<()> {
        Err(ErrorKind::ConnectionAborted.into())
    }
}

#[test]
fn a_client_closed_by_the_server_is_not_logged_as_too_slow() {
    let mut bed = requested(GET);
    let endless = |_: &mut Request| -> Response {
        Response::stream(|out| {
            loop {
                out.write_all(&PART)?;
            }
        })
    };
    bed.call_with(&endless, &Cut);
    assert_eq!((bed.go_on(), bed.cx.stats().timeouts), (Step::Close, 0));
}

/// A panic ended the wait, as a cancellation does in a fiber. Later writes come after complete parts.
#[test]
fn a_writer_that_outlives_a_panic_writes_into_no_chunk() {
    let mut bed = requested(GET);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let taken = sent.clone();
    let panics: Acts = Box::new(|_: &mut UnixStream| panic!("the end of a wait"));
    let takes = std::iter::repeat_with(move || -> (u64, Acts) {
        let taken = taken.clone();
        (1, Box::new(move |stream: &mut UnixStream| take_all(stream, &mut taken.lock().unwrap())))
    });
    let peer = Peer::new(&bed, std::iter::once((1, panics)).chain(takes));
    stream(&mut bed, &peer, |out, _| {
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            std::iter::repeat_with(|| out.write_all(&PART)).find_map(io::Result::err)
        }));
        written.expect_err("the wait has panicked");
        out.write_all(b"behind").unwrap();
    });
    let mut sent = std::mem::take(&mut *sent.lock().unwrap());
    while bed.go_on() == Step::Write {
        take_all(&mut bed.peer, &mut sent);
    }
    take_all(&mut bed.peer, &mut sent);
    let sent = String::from_utf8(sent).unwrap();
    let (_, mut chunks) = sent.split_once("\r\n\r\n").unwrap();
    let mut last = "";
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("the size of a chunk");
        (last, chunks) = (if size == 0 { last } else { &rest[..size] }, &rest[size + 2..]);
    }
    assert_eq!((last, chunks), ("behind", ""));
}

fn take_all(stream: &mut UnixStream, all: &mut Vec<u8>) {
    assert_eq!(stream.read_to_end(all).unwrap_err().kind(), ErrorKind::WouldBlock);
}
