//! The session of one request.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{SessionRecord, SessionStore};
use crate::app::cookies::Key;
use crate::app::extract::Extract;
use crate::error::{Context, Error, Result};
use crate::message::Request;

/// Values that the server keeps for one browser. [`Sessions`](super::Sessions) adds it to each request. Handlers take it as
/// an argument, and other code finds it in the extensions of the request. Clones are the same session.
///
/// Values have a name and are stored as JSON. All functions fail if the store fails. They also fail after the handler
/// has returned, because the session was saved then.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn SessionStore>,
    /// When the request arrived.
    now: SystemTime,
    state: Mutex<State>,
}

struct State {
    /// The browser is to forget its cookie.
    is_destroyed: bool,
    /// Id under which the session is stored. Before the session is loaded, the id of the cookie.
    id: Option<String>,
    /// Id to delete from the store.
    old_id: Option<String>,
    /// `None` until the session is loaded.
    values: Option<Map<String, Value>>,
    /// When the stored session ends.
    expiry: Option<SystemTime>,
    is_changed: bool,
    is_over: bool,
}

/// What a request has done with its session.
pub(super) struct Used {
    /// When the request arrived.
    pub(super) now: SystemTime,
    pub(super) old_id: Option<String>,
    pub(super) id: Option<String>,
    pub(super) to_save: Option<SessionRecord>,
    /// Whether the browser is to forget its cookie.
    pub(super) is_destroyed: bool,
}

impl Session {
    pub(super) fn new(store: Arc<dyn SessionStore>, id: Option<String>, now: SystemTime) -> Session {
        let state = State {
            is_destroyed: false,
            id,
            old_id: None,
            values: None,
            expiry: None,
            is_changed: false,
            is_over: false,
        };
        Session { shared: Arc::new(Shared { store, now, state: Mutex::new(state) }) }
    }

    /// Returns the value of this name.
    ///
    /// # Errors
    /// The value has another type, or see [`Session`].
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let state = self.loaded()?;
        let value = state.values.as_ref().and_then(|values| values.get(name));
        let value = value.map(T::deserialize).transpose();
        value.with_context(|| format!("the value {name:?} of the session has another type"))
    }

    /// Sets the value of this name, and replaces an earlier one.
    ///
    /// # Errors
    /// The value cannot be serialized, or see [`Session`].
    pub fn insert(&self, name: impl Into<String>, value: impl Serialize) -> Result<()> {
        let name = name.into();
        let value = serde_json::to_value(value);
        let value = value.with_context(|| format!("the value {name:?} of the session is not JSON"))?;
        self.change(|values| drop(values.insert(name, value)))
    }

    /// Removes the value of this name.
    ///
    /// # Errors
    /// See [`Session`].
    pub fn remove(&self, name: &str) -> Result<()> {
        self.change(|values| drop(values.remove(name)))
    }

    /// Gives the session a new id and keeps its values. Call it at each login, and if the rights of a user change.
    /// Otherwise, an attacker who has planted a cookie before the login shares the session afterwards (session fixation).
    ///
    /// # Errors
    /// See [`Session`].
    pub fn regenerate_id(&self) -> Result<()> {
        let mut state = self.loaded()?;
        state.is_changed = true;
        state.leave_id();
        Ok(())
    }

    /// Deletes the session from the store and from the browser, for a logout. Values that are inserted afterwards begin a
    /// new session.
    ///
    /// # Errors
    /// See [`Session`].
    pub fn destroy(&self) -> Result<()> {
        let mut state = self.loaded()?;
        state.values = Some(Map::new());
        state.is_changed = false;
        state.is_destroyed |= state.id.is_some() || state.old_id.is_some();
        state.leave_id();
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Map<String, Value>)) -> Result<()> {
        let mut state = self.loaded()?;
        change(state.values.get_or_insert_default());
        state.is_changed = true;
        Ok(())
    }

    /// Loads the session, unless it is loaded. The lock is not held meanwhile, because a fiber may wait for the store.
    fn loaded(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.is_over {
            return Err(Error::usage(
                "the session was used after its handler returned, and is saved already",
            ));
        }
        if state.values.is_some() {
            return Ok(state);
        }
        let id = state.id.clone();
        drop(state);
        let record = id.map(|id| self.shared.store.load(&id)).transpose()?.flatten();
        let record = record.filter(|record| record.expiry > self.shared.now);
        let values = record.as_ref().map(|record| serde_json::from_str(&record.json)).transpose();
        let values = values.context("the store of sessions has a value that is not a JSON object")?;
        let mut state = self.lock();
        if state.values.is_none() {
            match &record {
                Some(record) => state.expiry = Some(record.expiry),
                // An id that the store does not know is not used again.
                None => state.id = None,
            }
            state.values = Some(values.unwrap_or_default());
        }
        Ok(state)
    }

    /// Ends the session of this request. Returns `None` if no handler has used it.
    pub(super) fn take(&self, idle_timeout: Duration) -> Option<Used> {
        let mut state = self.lock();
        state.is_over = true;
        let values = state.values.take()?;
        let is_due = state.expiry.is_some_and(|expiry| {
            let left = expiry.duration_since(self.shared.now).unwrap_or_default();
            left < idle_timeout - idle_timeout / 10
        });
        // A session without values is not begun.
        let is_wanted = state.id.is_some() || !values.is_empty();
        let is_saved = is_wanted && (state.is_changed || is_due);
        let expiry = self.shared.now.checked_add(idle_timeout).unwrap_or(self.shared.now);
        let to_save = is_saved.then(|| SessionRecord::new(Value::Object(values).to_string(), expiry));
        Some(Used {
            now: self.shared.now,
            old_id: state.old_id.take(),
            is_destroyed: state.is_destroyed,
            id: state.id.take(),
            to_save,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn leave_id(&mut self) {
        // The first id is the one that is stored.
        self.old_id = self.old_id.take().or(self.id.take());
        self.id = None;
        self.expiry = None;
    }
}

impl Extract for Session {
    fn extract(req: &mut Request<'_>) -> Result<Session> {
        let session = req.extension::<Session>().cloned();
        session.ok_or_else(|| {
            Error::internal("a handler takes a Session, and no middleware Sessions is around it")
        })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// Returns 128 random bits in hexadecimal. They are a part of a new key, because its generator is one for secrets.
pub(super) fn random_id() -> Result<String> {
    let key = Key::try_generate().context("the system has no random numbers for a session id")?;
    let bits: String = key.signing().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Ok(bits)
}
