//! The part of a response that is not sent yet.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::deferred::PendingResponse;
use super::feed_body::FeedBody;
use crate::message::{BodyPart, UpgradeFn};

/// Part of a response that is not copied to the write buffer.
pub(super) enum PendingBody {
    Known { part: BodyPart, then: std::vec::IntoIter<BodyPart> },
    Deferred(Box<PendingResponse>),
    FeedBody(FeedBody),
    Upgrade(UpgradeFn),
}

impl PendingBody {
    /// Returns whether it ends when the server stops, or when the peer closes its side.
    pub(super) fn is_endless(&self) -> bool {
        match self {
            PendingBody::Known { .. } => false,
            PendingBody::Deferred(pending) => pending.is_endless(),
            PendingBody::FeedBody(fed) => fed.is_endless(),
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
#[derive(Debug, Default)]
pub(super) struct SafeDrop(Option<Box<PendingBody>>);

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
        if let Some(rest) = self.0.take() {
            // The value is dropped in any case.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(rest)));
        }
    }
}
