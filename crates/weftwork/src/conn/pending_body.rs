//! The part of a response that is not sent yet.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::Conn;
use super::deferred::PendingResponse;
use super::feed_body::FeedBody;
use crate::error::{OneLine, panic_message};
use crate::message::drop_caught::{drop_caught, drop_payload};
use crate::message::{BodyPart, UpgradeFn};
use crate::transport::events::{Counters, Event};
use crate::transport::log_queue::log_line;

/// Part of a response that is not copied to the write buffer.
pub(super) enum PendingBody {
    Known { part: BodyPart, then: std::vec::IntoIter<BodyPart> },
    Deferred(Box<PendingResponse>),
    FeedBody(FeedBody),
    Upgrade(UpgradeFn),
}

impl PendingBody {
    /// Returns whether it ends when the peer closes its side.
    pub(super) fn ends_with_client(&self) -> bool {
        match self {
            PendingBody::Known { .. } => false,
            PendingBody::Deferred(pending) => pending.ends_with_client(),
            PendingBody::FeedBody(fed) => fed.ends_with_client(),
            PendingBody::Upgrade(_) => true,
        }
    }
}

impl fmt::Debug for PendingBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PendingBody::Known { .. } => "bytes or files",
            PendingBody::Deferred(_) => "a response to come",
            PendingBody::FeedBody(_) => "a feed",
            PendingBody::Upgrade(_) => "another protocol",
        })
    }
}

/// Body of a connection. It holds values of the user, whose drop may panic. A loop drops many connections at once, and
/// two panics would end the process.
#[derive(Debug)]
pub(super) struct SafeDrop(Option<Box<PendingBody>>, Arc<Counters>);

impl SafeDrop {
    /// Returns the body of a connection that has nothing to send.
    pub(super) fn new(counters: &Arc<Counters>) -> SafeDrop {
        SafeDrop(None, counters.clone())
    }

    pub(super) fn take_safely(&mut self) -> SafeDrop {
        SafeDrop(self.0.take(), self.1.clone())
    }
}

impl Deref for SafeDrop {
    type Target = Option<Box<PendingBody>>;

    fn deref(&self) -> &Option<Box<PendingBody>> {
        &self.0
    }
}

impl DerefMut for SafeDrop {
    fn deref_mut(&mut self) -> &mut Option<Box<PendingBody>> {
        &mut self.0
    }
}

impl Drop for SafeDrop {
    fn drop(&mut self) {
        let Some(rest) = self.0.take() else { return };
        let at = match &*rest {
            PendingBody::Deferred(pending) => format!(" at {}", pending.request_line()),
            _ => String::new(),
        };
        if let Err(panic) = drop_caught(rest) {
            self.1.count(&Event::Panicked);
            let said = OneLine(panic_message(&*panic)).to_string();
            log_line!(Error, "a value of a response panicked{at} as its connection ended: {said}");
            drop_payload(panic);
        }
    }
}

impl Conn {
    /// Drops a part of a response that was sent. A panic of its destructor costs a line in the log.
    pub(super) fn drop_sent<T>(&self, value: T) {
        if let Err(panic) = drop_caught(value) {
            self.note_panic("a value of a response", &*panic);
            drop_payload(panic);
        }
    }

    /// Counts and logs a panic of the user's code, which was caught.
    #[cold]
    pub(super) fn note_panic(&self, what: &str, panic: &(dyn Any + Send)) {
        self.count.counters().count(&Event::Panicked);
        let (line, said) = (self.request_line(), OneLine(panic_message(panic)));
        log_line!(Error, "{what} panicked at {line}: {said}");
    }
}
