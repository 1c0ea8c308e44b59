//! Handles a handler that panics, or that is unwound because no thread is free for its blocking call.

use std::any::Any;
use std::io;
use std::panic::resume_unwind;

use http::{StatusCode, header};

use super::{ConnExchange, log_client};
use crate::conn::refusal::{BUSY, RETRY_AFTER};
use crate::error::{OneLine, panic_message};
use crate::message::{IntoResponse, Problem, Response};
use crate::transport::events::{Event, ShedReason};
use crate::transport::log_queue::log_line;

impl ConnExchange<'_> {
    #[cold]
    pub(super) fn answer_to_panic(&self, panic: Box<dyn Any + Send>) -> Response {
        let busy = self.note_panic(panic);
        busy.map_or_else(Response::server_error, Problem::into_response).with_close()
    }

    /// Error of a streamed body's writer in place of its panic.
    #[cold]
    pub(super) fn error_of_panic(&self, panic: Box<dyn Any + Send>) -> io::Error {
        let busy = self.note_panic(panic);
        busy.map_or_else(|| io::Error::other("its writer panicked"), io::Error::other)
    }

    /// Returns a problem if the unwinding was no panic: no thread was free.
    fn note_panic(&self, panic: Box<dyn Any + Send>) -> Option<Problem> {
        if self.wait.is_cancelled(&*panic) {
            resume_unwind(panic);
        }
        let (line, id) = (self.target(), self.id_for_log());
        if self.wait.is_overload(&*panic) {
            self.cx.record(Event::Shed(ShedReason::NoThread));
            let settings = self.cx.settings.show(&["threads_max", "queue_max"]);
            log_client(
                self.cx,
                format_args!("there is no thread for a blocking call ({settings}) at {line}{id}"),
            );
            let busy = Problem::new(StatusCode::SERVICE_UNAVAILABLE).detail(BUSY);
            return Some(busy.with_header(header::RETRY_AFTER, RETRY_AFTER));
        }
        self.cx.record(Event::Panicked);
        log_line!(Error, "a handler panicked at {line}: {}{id}", OneLine(panic_message(&*panic)));
        None
    }
}
