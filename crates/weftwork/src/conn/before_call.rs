//! Questions to the handler before its call. They run on the thread of a loop, which survives their panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::StatusCode;

use super::Conn;
use crate::message::drop_caught::drop_payload;
use crate::message::{Blocking, Handler, PROBLEM_JSON, Problem};
use crate::transport::context::Context;

impl Conn {
    /// Asks whether the call of the waiting request blocks. `None`: the handler has panicked, and the request is refused.
    #[inline]
    pub(crate) fn blocking(&mut self, handler: &dyn Handler, cx: &Context) -> Option<Blocking> {
        if self.is_handshaking() {
            return Some(Blocking::Always);
        }
        match catch_unwind(AssertUnwindSafe(|| handler.blocking(&self.request_line()))) {
            Ok(blocking) => Some(blocking),
            Err(panic) => self.refuse_over_panic(panic, cx),
        }
    }

    /// Asks whether the body is read before the call. `None`: see [`blocking`](Conn::blocking).
    #[inline(never)]
    pub(super) fn reads_ahead(&mut self, cx: &Context) -> Option<bool> {
        match catch_unwind(AssertUnwindSafe(|| cx.reads_ahead(&self.request_line()))) {
            Ok(ahead) => Some(ahead),
            Err(panic) => self.refuse_over_panic(panic, cx),
        }
    }

    #[cold]
    fn refuse_over_panic<T>(&mut self, panic: Box<dyn Any + Send>, cx: &Context) -> Option<T> {
        self.note_panic("a handler", &*panic);
        drop_payload(panic);
        self.observe_refusal("panic", cx);
        let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR);
        let json = problem.to_json();
        self.write_refusal(problem, &PROBLEM_JSON, &json, cx);
        None
    }
}
