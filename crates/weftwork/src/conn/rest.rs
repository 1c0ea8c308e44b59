//! What is left of a response while it is sent, or is to come?

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fed::Fed;
use super::later::Pending;
use crate::message::{Part, Take};

/// What of a response is not copied into the write buffer.
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

/// A connection's. It holds what is the user's, and that may panic as it goes: with a loop many connections go at once, and two
/// panics would end the process.
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
            // It is gone either way.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(rest)));
        }
    }
}
