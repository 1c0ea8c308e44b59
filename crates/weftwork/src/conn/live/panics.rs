//! What becomes of a request whose handler panics, or is unwound because there is no thread for what it does?

use std::any::Any;
use std::panic::resume_unwind;

use http::{StatusCode, header};

use super::{Live, tell};
use crate::conn::refusal::{BUSY, RETRY_AFTER};
use crate::message::{IntoResponse, Problem, Response};
use crate::transport::counters::Counters;

impl Live<'_> {
    #[cold]
    pub(super) fn answer_to_panic(&self, panic: Box<dyn Any + Send>) -> Response {
        let is_overload = self.wait.is_overload(&*panic);
        self.note_panic(panic);
        if !is_overload {
            return Response::server_error().with_close();
        }
        let said = Problem::new(StatusCode::SERVICE_UNAVAILABLE).detail(BUSY).into_response();
        said.with_header(header::RETRY_AFTER, RETRY_AFTER).with_close()
    }

    /// What became of the call, in words.
    #[cold]
    pub(super) fn note_panic(&self, panic: Box<dyn Any + Send>) -> &'static str {
        if self.wait.is_cancelled(&*panic) {
            resume_unwind(panic);
        }
        let (asked, id) = (self.conn.asked(), self.id_for_log());
        if self.wait.is_overload(&*panic) {
            Counters::count(&self.cx.counters.shed);
            let knobs = self.cx.settings.show(&["threads_max", "queue_max"]);
            tell(self.cx, format_args!("there is no thread for a blocking call ({knobs}) at {asked}{id}"));
            return "there was no thread for a blocking call";
        }
        Counters::count(&self.cx.counters.panics);
        log::error!("a handler panicked at {asked}: {}{id}", said(&*panic));
        "the writer of a streamed body panicked"
    }
}

/// What a panic said.
pub(in crate::conn) fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
