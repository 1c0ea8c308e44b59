//! What becomes of a request whose handler panics, or is unwound because there is no thread for what it does?

use std::any::Any;
use std::panic::resume_unwind;

use http::{StatusCode, header};

use super::Live;
use crate::conn::refusal::RETRY_AFTER;
use crate::message::Response;
use crate::transport::counters::Counters;

impl Live<'_> {
    #[cold]
    pub(super) fn answer_to_panic(&self, panic: Box<dyn Any + Send>) -> Response {
        let is_overload = self.wait.is_overload(&*panic);
        self.note_panic(panic);
        if !is_overload {
            let said = Response::text("the handler panicked\n");
            return said.with_status(StatusCode::INTERNAL_SERVER_ERROR).with_close();
        }
        let knobs = self.cx.settings.show(&["threads_max", "queue_max"]);
        let said =
            Response::text(format!("all threads are busy and too many calls wait for one ({knobs})\n"));
        let said = said.with_status(StatusCode::SERVICE_UNAVAILABLE).with_close();
        said.with_header(header::RETRY_AFTER, RETRY_AFTER)
    }

    /// What became of the call, in words.
    #[cold]
    pub(super) fn note_panic(&self, panic: Box<dyn Any + Send>) -> &'static str {
        if self.wait.is_cancelled(&*panic) {
            resume_unwind(panic);
        }
        if self.wait.is_overload(&*panic) {
            Counters::count(&self.cx.counters.shed);
            log::info!("there is no thread for a blocking call at {}", self.conn.asked());
            return "there was no thread for a blocking call";
        }
        Counters::count(&self.cx.counters.panics);
        log::error!("a handler panicked at {}: {}", self.conn.asked(), said(&*panic));
        "the writer of a streamed body panicked"
    }
}

/// What a panic said.
pub(in crate::conn) fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
