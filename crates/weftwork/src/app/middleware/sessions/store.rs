//! Interface of stores of sessions.

use std::sync::Arc;
use std::time::SystemTime;

use crate::error::Result;

/// A session as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionRecord {
    /// The values, as a JSON object.
    pub json: String,
    /// When the session ends.
    pub expiry: SystemTime,
}

impl SessionRecord {
    /// Returns a record that a store has read.
    pub fn new(json: impl Into<String>, expiry: SystemTime) -> SessionRecord {
        SessionRecord { json: json.into(), expiry }
    }
}

/// Keeps sessions: in memory ([`MemoryStore`](super::MemoryStore)), in a database, or in another server. The example
/// `sessions` of the repository has a store in SQLite.
///
/// The functions run in the call of the handler, and may block. An error becomes a 500 and is logged.
pub trait SessionStore: Send + Sync + 'static {
    /// Returns the session with this id. The caller checks the expiry.
    ///
    /// # Errors
    /// The store failed.
    fn load(&self, id: &str) -> Result<Option<SessionRecord>>;

    /// Stores a new session. A store without an expiry of its own also deletes expired sessions here.
    ///
    /// # Errors
    /// The store failed, or is full.
    fn create(&self, id: &str, record: &SessionRecord) -> Result<()>;

    /// Replaces the session with this id, and returns true. If the session was deleted meanwhile, does nothing and returns
    /// false: otherwise a request that began before a logout would undo the logout.
    ///
    /// # Errors
    /// The store failed.
    fn save(&self, id: &str, record: &SessionRecord) -> Result<bool>;

    /// Deletes the session with this id, if there is one.
    ///
    /// # Errors
    /// The store failed.
    fn delete(&self, id: &str) -> Result<()>;
}

impl<S: SessionStore + ?Sized> SessionStore for Arc<S> {
    fn load(&self, id: &str) -> Result<Option<SessionRecord>> {
        self.as_ref().load(id)
    }

    fn create(&self, id: &str, record: &SessionRecord) -> Result<()> {
        self.as_ref().create(id, record)
    }

    fn save(&self, id: &str, record: &SessionRecord) -> Result<bool> {
        self.as_ref().save(id, record)
    }

    fn delete(&self, id: &str) -> Result<()> {
        self.as_ref().delete(id)
    }
}
