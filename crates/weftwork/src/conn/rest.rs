//! The part of a response that is not sent yet.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fed::Fed;
use super::later::Pending;
use crate::message::{Part, Take};

/// Part of a response that is not copied to the write buffer.
pub(super) enum Rest {
    Known { part: Part, then: std::vec::IntoIter<Part> },
    Later(Box<Pending>),
    Fed(Fed),
    Take(Take),
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rest::Known { .. } => "bytes or files",
            Rest::Later(_) => "a response to come",
            Rest::Fed(_) => "a feed",
            Rest::Take(_) => "another protocol",
        })
    }
}

/// Body of a connection. It holds values of the user, whose drop may panic. A loop drops many connections at once, and
/// two panics would end the process.
#[derive(Debug, Default)]
pub(super) struct Kept(Option<Box<Rest>>);

impl Deref for Kept {
    type Target = Option<Box<Rest>>;

    fn deref(&self) -> &Option<Box<Rest>> {
        &self.0
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Option<Box<Rest>> {
        &mut self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(rest) = self.0.take() {
            // The value is dropped in any case.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(rest)));
        }
    }
}
