//! Tests of one request of HTTP/2.

use std::time::Duration;

use http::Method;
use weftwork_wire::{Http2, Http2Settings, RequestHead};

use super::*;
use crate::message::WakeConn;

struct NoLoop;

impl WakeConn for NoLoop {
    fn wake(&self, _: usize) {}
}

/// Returns a bed for the only request, and its connection.
fn request(head: &RequestHead<'_>) -> (Bed, Box<Conn>) {
    let mut bed = Bed::with(Settings::default().http2_cleartext(true));
    let (mut client, mut out) = (Http2::client(&Http2Settings::default()), Vec::new());
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
    let (mut bed, _connection) = request(&connect);
    assert_eq!(bed.conn.step(bed.now, &bed.cx), Step::Call);
    let wait = InVain { now: bed.now };
    bed.call_with(&|_: &mut Request| Response::text("later").with_delay(Duration::from_secs(3600)), &wait);
    assert_eq!(bed.go_on(), Step::WaitFeed);
    assert!(bed.conn.watch_stream(&(Arc::new(NoLoop) as Arc<dyn WakeConn>), 0));
}
