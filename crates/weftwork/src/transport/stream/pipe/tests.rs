//! Tests the end of a response whose stream was reset before, the limit of what waits for a connection, and
//! how the body of a request is held.

use rustix::io::Errno;

use super::*;
use crate::message::observer::{ResponseEnd, ResponseObserver};
use crate::transport::stream::Duplex;

struct EndRecorder(Arc<Mutex<Option<ResponseEnd>>>);

impl ResponseObserver for EndRecorder {
    fn on_end(self: Box<Self>, end: &ResponseEnd) {
        *self.0.lock().unwrap() = Some(*end);
    }
}

#[test]
fn a_response_behind_a_reset_has_sent_nothing() {
    let pipe = StreamPipe::new(1, &StreamHub::new(None, None));
    pipe.reset();
    let recorded = Arc::<Mutex<_>>::default();
    let end = ResponseEnd { body_bytes: 1000, ..ResponseEnd::default() };
    let response = UnsentResponse::new(vec![Box::new(EndRecorder(recorded.clone()))], end, Arc::default());
    pipe.observe(response, 1000);
    let recorded = recorded.lock().unwrap().unwrap();
    assert_eq!((recorded.body_bytes, recorded.error), (0, Some(ResponseEnd::CLIENT_GONE)));
}

#[test]
fn a_body_is_read_as_it_came_and_takes_little_more_than_its_bytes() {
    let body: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).take(500_000).collect();
    for (frame, space) in [(1, 50_000), (100, 7), (16 << 10, 20_000), (20_000, 500_000)] {
        let pipe = StreamPipe::new(1, &StreamHub::new(None, None));
        let (mut given, mut received) = (0, Vec::new());
        while received.len() < body.len() {
            for part in body[given..].chunks(frame).take(100_000 / frame) {
                pipe.give(part.len(), |to| to.extend_from_slice(part));
                given += part.len();
            }
            let held: usize = lock(&pipe.flow).to_request.iter().map(Vec::capacity).sum();
            let unread = given - received.len();
            assert!(held <= 2 * unread + 2 * PART_BYTES, "{held} bytes for {unread}, frames of {frame}");
            let mut into = Vec::with_capacity(space);
            assert!(pipe.recv(&mut into).unwrap() == into.len() && into.capacity() == space);
            received.append(&mut into);
        }
        assert!(received == body, "frames of {frame}, read by {space}");
        assert_eq!(pipe.recv(&mut Vec::with_capacity(1)), Err(Errno::AGAIN));
        assert_eq!(lock(&pipe.flow).to_request.capacity(), 0);
    }
}

#[test]
fn the_rest_of_a_field_block_is_taken_beyond_the_limit_and_no_more() {
    let pipe = StreamPipe::new(1, &StreamHub::new(None, None));
    let send = |count| pipe.send(&vec![0; count], &[]).ok();
    assert_eq!([send(RESPONSE_BYTES_MAX + 1), send(1)], [Some(RESPONSE_BYTES_MAX), None]);
    pipe.take(|_, _| (0, 1000));
    assert_eq!([send(600), send(600), send(600)], [Some(600), Some(400), None]);
    pipe.take(|bytes, _| (bytes.len(), 0));
    assert_eq!(send(RESPONSE_BYTES_MAX + 1), Some(RESPONSE_BYTES_MAX));
}

/// Otherwise a client that reads slowly and steadily would show no progress.
#[test]
fn a_writer_may_send_as_much_as_its_client_has_taken() {
    let pipe = StreamPipe::new(1, &StreamHub::new(None, None));
    let part = vec![0; WRITER_BYTES_MAX];
    assert_eq!(
        [pipe.send(b"head", &part), pipe.send(b"next", &[])],
        [Ok(WRITER_BYTES_MAX), Err(Errno::AGAIN)]
    );
    pipe.take(|_, _| (1, 0));
    assert_eq!([pipe.send(b"next", &[]), pipe.send(b"ext", &[])], [Ok(1), Err(Errno::AGAIN)]);
}
