//! A store of sessions in memory.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::{SessionRecord, SessionStore};
use crate::error::Result;

/// Keeps sessions in memory, for one process. A restart ends them all.
///
/// The number of sessions is bounded. When the store is full, the session that would end first makes room, so clients that
/// begin many sessions end those of others. Store values only after a login, or put a [`RateLimit`](crate::middleware::RateLimit)
/// around the handler.
pub struct MemoryStore {
    sessions: Mutex<Table>,
    sessions_max: usize,
}

#[derive(Default)]
pub(super) struct Table {
    pub(super) records: HashMap<String, SessionRecord>,
    /// The same sessions, the one that ends first in front.
    pub(super) by_expiry: BTreeSet<(SystemTime, String)>,
}

impl MemoryStore {
    /// Default of [`sessions_max`](MemoryStore::sessions_max). With a user name each, they take about 30 MB.
    pub const SESSIONS_MAX: usize = 65_536;

    /// Creates an empty store.
    pub fn new() -> MemoryStore {
        MemoryStore { sessions: Mutex::default(), sessions_max: MemoryStore::SESSIONS_MAX }
    }

    /// Sets the maximum number of sessions, at least 1. Default: 65,536.
    #[must_use]
    pub fn sessions_max(self, sessions: usize) -> MemoryStore {
        MemoryStore { sessions_max: sessions.max(1), ..self }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, id: &str, record: &SessionRecord) {
        self.remove(id);
        self.by_expiry.insert((record.expiry, id.to_owned()));
        self.records.insert(id.to_owned(), record.clone());
    }

    fn remove(&mut self, id: &str) {
        if let Some(record) = self.records.remove(id) {
            self.by_expiry.remove(&(record.expiry, id.to_owned()));
        }
    }

    /// Removes the sessions that have ended, and as many others as are too many.
    fn make_room(&mut self, now: SystemTime, sessions_max: usize) {
        while let Some((expiry, id)) = self.by_expiry.first().cloned() {
            if expiry > now && self.records.len() < sessions_max {
                return;
            }
            self.remove(&id);
        }
    }
}

impl SessionStore for MemoryStore {
    fn load(&self, id: &str) -> Result<Option<SessionRecord>> {
        Ok(self.lock().records.get(id).cloned())
    }

    fn create(&self, id: &str, record: &SessionRecord) -> Result<()> {
        let mut table = self.lock();
        table.make_room(SystemTime::now(), self.sessions_max);
        table.insert(id, record);
        Ok(())
    }

    fn save(&self, id: &str, record: &SessionRecord) -> Result<bool> {
        let mut table = self.lock();
        let is_stored = table.records.contains_key(id);
        if is_stored {
            table.insert(id, record);
        }
        Ok(is_stored)
    }

    fn delete(&self, id: &str) -> Result<()> {
        self.lock().remove(id);
        Ok(())
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("sessions_max", &self.sessions_max).finish_non_exhaustive()
    }
}
