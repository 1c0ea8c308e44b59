//! Handles a handler that panics, or that is unwound because no thread is free for its blocking call.

use std::any::Any;
use std::io;
use std::panic::resume_unwind;

use http::{StatusCode, header};
use weftwork_wire::After;

use super::{ConnExchange, log_client};
use crate::conn::Phase;
use crate::conn::refusal::{BUSY, RETRY_AFTER};
use crate::error::{OneLine, panic_message};
use crate::message::drop_caught::{drop_caught, drop_payload};
use crate::message::{IntoResponse, Payload, Problem, Response};
use crate::transport::Tick;
use crate::transport::events::{Event, ShedReason};
use crate::transport::log_queue::log_line;

impl ConnExchange<'_> {
    /// Answers a request over which code of the user has panicked. A response that was written stays as it is, because
    /// only a value of it has panicked as it was dropped.
    #[cold]
    pub(super) fn recover(&mut self, panic: Box<dyn Any + Send>, response: Option<Response>) -> Tick {
        let is_written = self.conn.phase != Phase::Ready;
        let what =
            if is_written || response.is_some() { "a value of a request or response" } else { "a handler" };
        let busy = self.note_panic(what, panic);
        if let Err(again) = drop_caught(response) {
            self.note_panic(what, again);
        }
        let now = self.wait.now();
        if let Some(slot) = self.watched.take() {
            self.note_took(now);
            slot.leave();
        }
        self.conn.handler_ran = true;
        if self.conn.phase != Phase::Ready {
            return now;
        }
        if self.streamed.take().is_some_and(|streamed| streamed.pending.is_none()) {
            // A part of the response was sent. Its end is missing, so that its client sees that.
            self.conn.phase = Phase::Send(After::Close);
            return now;
        }
        let answer = self.in_shape(busy.map_or_else(Response::server_error, Problem::into_response));
        let mut answer = self.last_of(answer);
        self.conn.timer.resume(now);
        let mut payload = std::mem::replace(&mut answer.payload, Payload::Empty);
        let after = self.whole(&answer, &mut payload, now).unwrap_or(After::Close);
        self.conn.phase = Phase::Send(after);
        now
    }

    /// Error of a streamed body's writer in place of its panic.
    #[cold]
    pub(super) fn error_of_panic(&self, panic: Box<dyn Any + Send>) -> io::Error {
        let busy = self.note_panic("a handler", panic);
        busy.map_or_else(|| io::Error::other("its writer panicked"), io::Error::other)
    }

    /// Returns a problem if the unwinding was no panic: no thread was free.
    fn note_panic(&self, what: &str, panic: Box<dyn Any + Send>) -> Option<Problem> {
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
        log_line!(Error, "{what} panicked at {line}: {}{id}", OneLine(panic_message(&*panic)));
        drop_payload(panic);
        None
    }
}
