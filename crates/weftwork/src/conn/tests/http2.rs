//! Tests of one request of HTTP/2.

use std::cell::Cell;
use std::io::Write as _;
use std::time::Duration;

use http::Method;
use weftwork_wire::{ErrorCode, Http2, Http2Settings, RequestHead};

use super::*;
use crate::message::{Feed, FeedLimits, WakeConn};

struct NoLoop;

impl WakeConn for NoLoop {
    fn wake(&self, _: usize) {}
}

const GET: RequestHead<'static> = RequestHead {
    method: &Method::GET,
    scheme: Some("http"),
    path: Some("/"),
    authority: Some("a"),
    protocol: None,
    fields: &[],
};

/// Returns a bed for the only request, and its connection.
fn request(head: &RequestHead<'_>, settings: &Http2Settings) -> (Bed, Box<Conn>) {
    // No PING, because nobody answers it.
    let mut bed = Bed::with(Settings::default().http2_cleartext(true).heartbeat(Duration::from_secs(3600)));
    let (mut client, mut out) = (Http2::client(settings), Vec::new());
    client.write_preface(&mut out);
    client.write_request(head, true, &mut out).unwrap();
    bed.send(out);
    bed.conn.note_ready(false);
    let request = loop {
        match bed.conn.step(bed.now, &bed.cx) {
            Step::Read => drop(bed.conn.fill(bed.now, &mut bed.pool).unwrap()),
            Step::Write => drop(bed.conn.flush(bed.now).unwrap()),
            Step::Stream => {
                if let Some(request) = bed.conn.read_frames(bed.now, &bed.cx, &mut bed.pool) {
                    break request;
                }
            }
            other => panic!("{other:?} before the request"),
        }
    };
    let connection = std::mem::replace(&mut bed.conn, request);
    (bed, connection)
}

/// A tunnel is the only request that learns of the end of its client's side. It learns it once: otherwise it would be woken
/// without an end.
#[test]
fn a_later_response_to_a_client_that_has_ended_its_side_waits() {
    let connect = RequestHead {
        method: &Method::CONNECT,
        scheme: None,
        path: None,
        authority: Some("a:1"),
        protocol: None,
        fields: &[],
    };
    let (mut bed, _connection) = request(&connect, &Http2Settings::default());
    assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    let wait = InVain { now: bed.now };
    bed.call_with(&|_: &mut Request| Response::text("later").with_delay(Duration::from_secs(3600)), &wait);
    assert_eq!(bed.go_on(), Step::WaitFeed);
    assert!(bed.conn.watch_stream(&(Arc::new(NoLoop) as Arc<dyn WakeConn>), 0));
}

/// Wait of a handler whose client does nothing. Time passes.
struct Passes(Cell<Tick>);

impl IoWait for Passes {
    fn now(&self) -> Tick {
        self.0.get()
    }

    fn wait_ready(&self, _: BorrowedFd<'_>, _: Readiness, until: Tick, _: Stage) -> std::io::Result<()> {
        self.0.set(until);
        Err(ErrorKind::TimedOut.into())
    }
}

/// Takes the request out of its bed.
fn take_request(bed: &mut Bed) -> Box<Conn> {
    let (ours, _) = UnixStream::pair().unwrap();
    let spare = Conn::new(Stream::new(OwnedFd::from(ours)), None, bed.now, &bed.cx);
    std::mem::replace(&mut bed.conn, spare)
}

/// Makes the steps of a connection or of a request. Returns false if it has ended.
fn goes_on(bed: &mut Bed, conn: &mut Conn) -> bool {
    loop {
        match conn.step(bed.now, &bed.cx) {
            Step::Read if conn.is_read_ready() => drop(conn.fill(bed.now, &mut bed.pool)),
            Step::Read | Step::WaitFeed => return true,
            Step::Write => match conn.flush(bed.now) {
                Ok(Flushed::All) => {}
                Ok(_) => return true,
                Err(_) => return false,
            },
            Step::Stream => assert!(conn.read_frames(bed.now, &bed.cx, &mut bed.pool).is_none(), "a request"),
            Step::Close => return false,
            other => panic!("{other:?}"),
        }
    }
}

/// Gives the only request to `handler`, whose client opens no window. Returns when its stream is reset, and how.
fn reset_of_a_stalled_response(handler: &dyn Handler) -> (Tick, ErrorCode) {
    let (mut bed, mut connection) = request(&GET, &Http2Settings { window: 0, ..Http2Settings::default() });
    assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    bed.call_with(handler, &Passes(Cell::new(bed.now)));
    let mut request = Some(take_request(&mut bed));
    let (mut frames, mut part) = (Vec::new(), [0; 4096]);
    loop {
        request = request.take().and_then(|mut conn| goes_on(&mut bed, &mut conn).then_some(conn));
        assert!(goes_on(&mut bed, &mut connection), "the connection ended");
        while let Ok(count @ 1..) = bed.peer.read(&mut part) {
            frames.extend_from_slice(&part[..count]);
        }
        let mut at = 0;
        while let Some(header) = frames.get(at..at + 9) {
            let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            if header[3] == 3 {
                let code = &frames[at + 9..at + 13];
                return (bed.now, ErrorCode(u32::from_be_bytes([code[0], code[1], code[2], code[3]])));
            }
            at += 9 + len;
        }
        let due = |conn: &Conn| conn.deadline(&bed.cx);
        let next = request.as_deref().map_or(Tick(u64::MAX), due).min(due(&connection));
        bed.now = next;
        for conn in request.as_deref_mut().into_iter().chain([&mut *connection]) {
            if conn.deadline(&bed.cx) <= next {
                conn.on_timeout(next, &bed.cx);
            }
        }
        assert!(bed.now < Tick(1_000_000), "no reset");
    }
}

/// `write_timeout` is the time of the response, wherever its bytes wait: in the request, in its stream, or in its writer.
#[test]
fn a_client_that_opens_no_window_has_the_time_of_one_response() {
    let written =
        |count: usize| move |_: &mut Request| Response::stream(move |out| out.write_all(&vec![b'x'; count]));
    let whole = |count: usize| move |_: &mut Request| Response::bytes(vec![b'x'; count]);
    let resets = [
        ("short", &whole(100) as &dyn Handler),
        ("long", &whole(1 << 20)),
        ("written", &written(100)),
        ("written and left", &written(100_000)),
        ("still being written", &written(1 << 20)),
    ]
    .map(|(what, handler)| (what, reset_of_a_stalled_response(handler)));
    assert_eq!(resets, resets.map(|(what, _)| (what, (Tick(30_000), ErrorCode::CANCEL))));
}

/// The client is too slow for its feed, or is not wanted any more. Nothing in the server has failed.
#[test]
fn a_feed_that_is_cut_is_cancelled() {
    let cut = |_: &mut Request| {
        let (sender, feed) = Feed::new(FeedLimits::default());
        sender.send("message").unwrap();
        sender.cut();
        Response::feed(feed)
    };
    assert_eq!(reset_of_a_stalled_response(&cut), (Tick(0), ErrorCode::CANCEL));
}

/// Frames of a client that does not read are neither kept nor taken without a limit, and give it no more time.
#[test]
fn a_client_that_does_not_read_may_not_send_for_long() {
    let window = Http2Settings { window: 1 << 30, ..Http2Settings::default() };
    let (mut bed, mut connection) = request(&GET, &window);
    let mut frames = Vec::new();
    Http2::write_window_update(0, 1 << 30, &mut frames);
    bed.send(&frames);
    assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    let wait = InVain { now: bed.now };
    bed.call_with(&|_: &mut Request| Response::bytes(vec![b'x'; 8 << 20]), &wait);
    let mut request = take_request(&mut bed);
    connection.note_ready(false);
    // Until the kernel takes no more.
    while !connection.awaits_output_space() {
        goes_on(&mut bed, &mut request);
        assert!(goes_on(&mut bed, &mut connection));
    }
    let due = connection.deadline(&bed.cx);
    frames.clear();
    (0..2000).for_each(|_| Http2::write_ping([0; 8], &mut frames));
    for _ in 0..20 {
        let _ = bed.peer.write(&frames);
        bed.now = bed.now.after(Duration::from_millis(100));
        connection.note_ready(false);
        assert!(goes_on(&mut bed, &mut connection));
        let buffers = connection.buffers.as_deref().unwrap();
        let (kept, unsent) = (buffers.unread().len(), buffers.output.len() - buffers.sent);
        assert!(kept < 64 << 10 && unsent < 80 << 10, "{kept} bytes are kept, and {unsent} are unsent");
    }
    assert_eq!(connection.deadline(&bed.cx), due);
}

/// Returns a connection that has sent its last response, 60,000 bytes of it behind the first GOAWAY.
fn ended_behind_a_long_response() -> (Bed, Box<Conn>) {
    let (mut bed, mut connection) =
        request(&GET, &Http2Settings { window: 1 << 20, ..Http2Settings::default() });
    assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    bed.cx.begin_drain(Duration::from_secs(25));
    // The first time of a new connection is over.
    bed.now = bed.now.after(Duration::from_secs(1));
    assert!(goes_on(&mut bed, &mut connection));
    let wait = InVain { now: bed.now };
    bed.call_with(&|_: &mut Request| Response::bytes(vec![b'x'; 60_000]), &wait);
    let mut request = Some(take_request(&mut bed));
    while !connection.is_lingering() {
        request = request.take().and_then(|mut conn| goes_on(&mut bed, &mut conn).then_some(conn));
        assert!(goes_on(&mut bed, &mut connection));
        bed.now = bed.now.after(Duration::from_millis(100));
        if connection.deadline(&bed.cx) <= bed.now {
            connection.on_timeout(bed.now, &bed.cx);
        }
    }
    (bed, connection)
}

/// The client reads slowly. A WINDOW_UPDATE behind the end of the socket would reset it, and what is unread would be lost.
#[test]
fn a_connection_waits_until_its_last_ping_is_answered() {
    let (mut bed, mut connection) = ended_behind_a_long_response();
    for (ping, ends) in [(b"goaway\r\n", false), (b"the end\n", true)] {
        bed.now = bed.now.after(Duration::from_secs(5));
        assert!(connection.deadline(&bed.cx) > bed.now, "linger_timeout is over");
        let mut frames = Vec::new();
        Http2::write_window_update(0, 1000, &mut frames);
        Http2::write_ping_ack(*ping, &mut frames);
        bed.send(frames);
        connection.note_ready(false);
        assert_eq!(goes_on(&mut bed, &mut connection), !ends);
    }
}

/// So a client that sends a byte now and then holds no descriptor for ever.
#[test]
fn a_connection_does_not_wait_for_ever_for_its_last_answer() {
    for (sends, seconds) in [(false, 30), (true, 120)] {
        let (mut bed, mut connection) = ended_behind_a_long_response();
        let begun = bed.now;
        while goes_on(&mut bed, &mut connection) {
            bed.now = bed.now.after(Duration::from_secs(1));
            if sends {
                let mut frame = Vec::new();
                Http2::write_window_update(0, 1000, &mut frame);
                bed.send(frame);
                connection.note_ready(false);
            }
            if connection.deadline(&bed.cx) <= bed.now {
                connection.on_timeout(bed.now, &bed.cx);
            }
        }
        let took = begun.until(bed.now).as_secs();
        assert!(took.abs_diff(seconds) <= 1, "{took}");
    }
}

/// A client that confirms what it has read need not answer a PING.
#[test]
fn a_connection_does_not_wait_for_a_client_that_has_confirmed_its_response() {
    let (mut bed, mut connection) =
        request(&GET, &Http2Settings { window: 1 << 20, ..Http2Settings::default() });
    assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    let wait = InVain { now: bed.now };
    bed.call_with(&|_: &mut Request| Response::bytes(vec![b'x'; 60_000]), &wait);
    let mut request = take_request(&mut bed);
    while goes_on(&mut bed, &mut request) {
        assert!(goes_on(&mut bed, &mut connection));
    }
    drop(request);
    assert!(goes_on(&mut bed, &mut connection));
    let mut frame = Vec::new();
    Http2::write_window_update(0, 50_000, &mut frame);
    bed.send(frame);
    connection.note_ready(false);
    bed.cx.begin_drain(Duration::from_secs(25));
    bed.now = bed.now.after(Duration::from_secs(1));
    while goes_on(&mut bed, &mut connection) {
        bed.now = bed.now.after(Duration::from_millis(100));
        if connection.deadline(&bed.cx) <= bed.now {
            connection.on_timeout(bed.now, &bed.cx);
        }
    }
    // A round trip for the first PING, and linger_timeout.
    assert!(bed.now <= Tick(4500), "{:?}", bed.now);
}
