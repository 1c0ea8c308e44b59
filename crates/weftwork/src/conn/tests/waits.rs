//! Tests that exactly the client's own time counts while a handler waits for it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::deadlines::BODY_IDLE;
use super::*;

/// Actions of the peer while a handler waits for it, after a number of milliseconds.
pub(super) type Acts = Box<dyn FnMut(&mut UnixStream)>;

/// Wait of a handler, with a clock that handlers can move.
pub(super) struct Peer {
    now: Arc<AtomicU64>,
    stream: RefCell<UnixStream>,
    acts: RefCell<Box<dyn Iterator<Item = (u64, Acts)>>>,
}

impl Peer {
    pub(super) fn new(bed: &Bed, acts: impl Iterator<Item = (u64, Acts)> + 'static) -> Peer {
        Peer {
            now: Arc::new(AtomicU64::new(bed.now.0)),
            stream: RefCell::new(bed.peer.try_clone().unwrap()),
            acts: RefCell::new(Box::new(acts)),
        }
    }

    pub(super) fn clock(&self) -> Arc<AtomicU64> {
        self.now.clone()
    }

    fn wait(&self, until: Tick) -> std::io::Result<()> {
        let Some((after, mut act)) = self.acts.borrow_mut().next() else {
            self.now.fetch_max(until.0, Ordering::Relaxed);
            return Err(ErrorKind::TimedOut.into());
        };
        let then = self.now().0 + after;
        self.now.fetch_max(then.min(until.0), Ordering::Relaxed);
        if then > until.0 {
            return Err(ErrorKind::TimedOut.into());
        }
        act(&mut self.stream.borrow_mut());
        // Too late to be noticed.
        if then == until.0 { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl IoWait for Peer {
    fn now(&self) -> Tick {
        Tick(self.now.load(Ordering::Relaxed))
    }

    fn wait_ready(&self, _: BorrowedFd<'_>, _: Readiness, until: Tick, _: Stage) -> std::io::Result<()> {
        self.wait(until)
    }
}

pub(super) fn sends(count: usize) -> Acts {
    Box::new(move |stream| stream.write_all(&vec![b'x'; count]).unwrap())
}

/// Continues like a loop, up to the call.
pub(super) fn until_call(bed: &mut Bed) {
    bed.conn.note_ready(false);
    loop {
        match bed.conn.step(bed.now, &bed.cx) {
            Step::Call => return,
            Step::Read => drop(bed.conn.fill(bed.now, &mut bed.pool).unwrap()),
            step => panic!("{step:?}"),
        }
    }
}

fn expecting(length: usize) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n")
}

/// An earlier response is still unsent. Repeated checks of it must not give more time to a body that hardly arrives.
#[test]
fn slow_input_does_not_extend_the_time_of_an_awaited_body() {
    let mut bed = Bed::narrow();
    bed.send(get("/medium") + &expecting(2_000_000) + "x");
    until_call(&mut bed);
    bed.call();
    until_call(&mut bed);
    let peer = Peer::new(&bed, std::iter::repeat_with(|| (9_900, sends(1))));
    bed.call_with(&handler, &peer);
    assert_eq!(bed.now.0, 10_000, "two bytes in ten seconds");
}

/// The peer makes progress, but not in the phase of the deadline.
#[test]
fn spurious_events_do_not_extend_a_deadline() {
    let mut bed = Bed::new();
    bed.send(post("/echo", 100_000) + &"x".repeat(66_000));
    until_call(&mut bed);
    let peer = Peer::new(&bed, std::iter::repeat_with(|| (4_000, sends(0))));
    bed.call_with(&handler, &peer);
    assert_eq!(bed.now.0, BODY_IDLE);
}

/// Between two reads of a body, and in the queue before the first, the time is the server's.
#[test]
fn the_servers_own_delay_does_not_count_against_a_body() {
    const PART: usize = 64 << 10;
    let mut bed = Bed::new();
    bed.send(post("/", 2 * PART + 3));
    bed.send([b'x'; PART]);
    until_call(&mut bed);
    bed.send("1");
    bed.now.0 += 300_000;
    let pauses = [(BODY_IDLE - 1, sends(1)), (BODY_IDLE - 1, sends(1))];
    let peer = Peer::new(&bed, pauses.into_iter());
    let (now, more) = (peer.now.clone(), Mutex::new(bed.peer.try_clone().unwrap()));
    let slow = move |req: &mut Request| -> Response {
        let mut body = req.body();
        body.read_exact(&mut [0; PART + 1]).unwrap();
        now.fetch_add(300_000, Ordering::Relaxed);
        more.lock().unwrap().write_all(&[b'x'; PART]).unwrap();
        body.read_exact(&mut [0; PART]).unwrap();
        body.read_exact(&mut [0; 1]).unwrap();
        now.fetch_add(300_000, Ordering::Relaxed);
        let last = body.read(&mut [0; 1]).map_err(|error| error.to_string());
        Response::text(format!("{last:?}"))
    };
    bed.call_with(&slow, &peer);
    assert_eq!(bed.now.0, 900_000 + 2 * (BODY_IDLE - 1));
    bed.go_on();
    assert!(bed.got().ends_with("Ok(1)"));
}

/// Bytes read ahead and bytes that arrived since fill a handler's buffer together. What ends the second part does not
/// lose the first.
#[test]
fn free_buffer_space_is_filled_with_input_since_the_call() {
    const AHEAD: usize = 64 << 10;
    // At 500 bytes a second, the bytes read ahead are enough for 131 s, and with the rest for 211 s.
    const PAUSE: u64 = 200_000;
    for (more, is_over) in [(40_000, false), (40_000, true), (0, true)] {
        let mut bed = Bed::new();
        bed.cx.settings.body_idle_timeout = Duration::from_millis(2 * PAUSE);
        bed.send(post("/", 300_000));
        bed.send([b'x'; AHEAD]);
        until_call(&mut bed);
        bed.send(vec![b'y'; more]);
        if is_over {
            bed.half_close();
        }
        let peer = Peer::new(&bed, [(PAUSE, sends(9))].into_iter());
        let (now, said) = (peer.clock(), Arc::new(Mutex::new(Vec::new())));
        let says = said.clone();
        let slow = move |_: &mut Request| -> Response {
            let (now, says) = (now.clone(), says.clone());
            Response::stream(move |out| {
                // So long that the client would be too slow if the time counted as its own.
                now.fetch_add(1_000_000, Ordering::Relaxed);
                let mut part = Vec::with_capacity(200_000);
                let reads = [(); 2].map(|()| out.read_request_buf(&mut part).map_err(|error| error.kind()));
                assert!(part.starts_with(&[[b'x'; AHEAD].as_slice(), &vec![b'y'; more]].concat()));
                *says.lock().unwrap() = reads.to_vec();
                Ok(())
            })
        };
        bed.call_with(&slow, &peer);
        let next = if is_over { Err(ErrorKind::UnexpectedEof) } else { Ok(9) };
        assert_eq!(*said.lock().unwrap(), [Ok(AHEAD + more), next], "{more} more, over: {is_over}");
    }
}

/// A handler that works for long and checks now and then sees that the response is no longer needed.
#[test]
fn after_a_hard_stop_the_client_counts_as_gone() {
    for (stage, is_gone) in [(Stage::Running, false), (Stage::Draining, false), (Stage::Closing, true)] {
        let mut bed = Bed::new();
        bed.send(GET);
        until_call(&mut bed);
        bed.cx.enter(stage);
        let seen = Arc::new(Mutex::new(None));
        let sees = seen.clone();
        let wait = InVain { now: bed.now };
        bed.call_with(&move |req: &mut Request| *sees.lock().unwrap() = Some(req.client_gone()), &wait);
        assert_eq!(*seen.lock().unwrap(), Some(is_gone), "{stage:?}");
    }
}

/// The watchdog counts a handler's time before and between its waits, and not the waits for its client.
#[test]
fn time_spent_sending_does_not_count_as_handler_time() {
    let mut bed = Bed::new();
    bed.cx.settings.rate_bytes_min = 0;
    bed.send(expecting(100));
    until_call(&mut bed);
    let peer = Peer::new(&bed, std::iter::repeat_with(|| (5_000, sends(1))));
    let (now, slot, seen) = (peer.clock(), bed.slot.clone(), Arc::new(Mutex::new(Vec::new())));
    let sees = seen.clone();
    let slow = move |req: &mut Request| {
        for _ in 0..3 {
            now.fetch_add(20_000, Ordering::Relaxed);
            req.body().read_exact(&mut [0]).unwrap();
            sees.lock().unwrap().push(now.load(Ordering::Relaxed) - slot.begun().0);
        }
    };
    bed.call_with(&slow, &peer);
    assert_eq!((bed.now.0, &seen.lock().unwrap()[..]), (75_000, &[20_000, 40_000, 60_000][..]));
}

/// The caller continues with the time at which the writer ended, including the writer's own time.
#[test]
fn a_writer_takes_time() {
    let mut bed = Bed::new();
    bed.send(get("/"));
    until_call(&mut bed);
    let peer = Peer::new(&bed, std::iter::empty());
    let now = peer.now.clone();
    let writes = move |_: &mut Request| -> Response {
        let now = now.clone();
        Response::stream(move |out| {
            now.fetch_add(300_000, Ordering::Relaxed);
            out.write_all(b"late")
        })
    };
    bed.call_with(&writes, &peer);
    assert_eq!(bed.now.0, 300_000);
}

/// If a client has read everything, or has sent more, before the check, the server never waits for it.
#[test]
fn a_peer_that_is_always_ready_is_closed_with_the_server() {
    const PARTS: usize = 1000;
    static PART: [u8; 64 << 10] = [b'x'; 64 << 10];
    for is_upload in [true, false] {
        let mut bed = Bed::new();
        bed.send(post("/", PARTS * PART.len()));
        until_call(&mut bed);
        bed.cx.enter(Stage::Closing);
        let peer = Arc::new(Mutex::new(bed.peer.try_clone().unwrap()));
        let moved = Arc::new(AtomicU64::new(0));
        let count = moved.clone();
        let quick = move |req: &mut Request| -> Response {
            let (peer, moved) = (peer.clone(), count.clone());
            let mut part = PART;
            if is_upload {
                let mut body = req.body().limit(u64::MAX);
                for _ in 0..PARTS {
                    peer.lock().unwrap().write_all(&PART).unwrap();
                    if body.read_exact(&mut part).is_err() {
                        break;
                    }
                    moved.fetch_add(1, Ordering::Relaxed);
                }
            }
            Response::stream(move |out| {
                (0..PARTS).filter(|_| !is_upload).try_for_each(|_| {
                    out.write_all(&part)?;
                    while peer.lock().unwrap().read(&mut part).is_ok() {}
                    moved.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
            })
        };
        let wait = InVain { now: bed.now };
        bed.call_with(&quick, &wait);
        let moved = moved.load(Ordering::Relaxed);
        assert!(moved < 10, "upload: {is_upload}, {moved} parts of {PARTS}");
    }
}
