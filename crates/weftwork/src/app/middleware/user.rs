//! The authenticated user of a request.

use std::fmt;
use std::sync::Arc;

/// The name of an authenticated user. The middleware that checked it adds it to the extensions of the request:
/// `BasicAuth` (feature `auth`), or your own. The access log writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(Arc<str>);

impl User {
    /// Creates a user with that name.
    pub fn new(name: impl Into<Arc<str>>) -> User {
        User(name.into())
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
