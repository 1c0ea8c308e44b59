//! A handler whose captured values may panic when the last thread of the server drops them.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::{OneLine, panic_message};
use crate::message::drop_caught::{drop_caught, drop_payload};
use crate::message::observer::Observer;
use crate::message::{Blocking, Handler, Request, RequestLine, Response};
use crate::transport::log_queue::log_line;

/// Present until it is dropped.
pub(super) struct CaughtHandler<H>(Option<H>);

impl<H: Handler> CaughtHandler<H> {
    pub(super) fn new(handler: H) -> CaughtHandler<H> {
        CaughtHandler(Some(handler))
    }
}

impl<H: Handler> Handler for CaughtHandler<H> {
    fn call(&self, req: &mut Request<'_>) -> Response {
        self.0.as_ref().map_or_else(Response::server_error, |handler| handler.call(req))
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        self.0.as_ref().map_or(Blocking::Never, |handler| handler.blocking(line))
    }

    fn pattern(&self, line: &RequestLine<'_>) -> Option<Cow<'_, str>> {
        self.0.as_ref().and_then(|handler| handler.pattern(line))
    }

    fn normal_path(&self, line: &RequestLine<'_>) -> Option<String> {
        self.0.as_ref().and_then(|handler| handler.normal_path(line))
    }

    fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.0.as_ref().map_or_else(Vec::new, Handler::observers)
    }

    fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        self.0.as_ref().is_none_or(|handler| handler.reads_ahead(line))
    }
}

impl<H> Drop for CaughtHandler<H> {
    fn drop(&mut self) {
        if let Err(panic) = drop_caught(self.0.take()) {
            log_line!(
                Error,
                "a value of the handler panicked at the end: {}",
                OneLine(panic_message(&*panic))
            );
            drop_payload(panic);
        }
    }
}
