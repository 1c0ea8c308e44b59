//! Whose request is this?

use std::fmt;
use std::sync::Arc;

/// The name of an authenticated user, put into a request's extensions by whatever middleware checked it
/// (`BasicAuth` with the feature `auth`, or one of yours). The access log writes it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(Arc<str>);

impl User {
    /// A user of that name.
    pub fn new(name: impl Into<Arc<str>>) -> User {
        User(name.into())
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
