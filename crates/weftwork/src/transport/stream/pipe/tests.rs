//! Tests what the observers of a response hear if its stream was reset before.

use super::*;
use crate::message::observer::{ResponseEnd, ResponseObserver};

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
