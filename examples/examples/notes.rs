//! A JSON API with SQLite. No route is marked as blocking: the engine learns it, and `/health` stays fast.
//! `cargo run -p weftwork-examples --example notes`, then
//! `curl localhost:8080/notes -H 'content-type: application/json' -d '{"text": "tea"}'`.

use std::path::Path as File;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use weftwork::prelude::*;
use weftwork::{Json, Path, Problem};

#[derive(Serialize, Deserialize)]
pub(crate) struct Note {
    id: Option<i64>,
    text: String,
}

/// Number of concurrent database requests. Others wait for a connection, each on a thread.
pub(crate) const CONNECTIONS: usize = 8;
/// Maximum time to wait for a connection. After that, the client gets an error.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Notes {
    pub(crate) pool: Pool,
}

impl Notes {
    pub(crate) fn open(file: &File) -> Result<Notes> {
        let create = "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT)";
        Connection::open(file)?.execute_batch(create)?;
        Ok(Notes { pool: Pool::open(file)? })
    }

    fn with<T>(&self, req: &Request, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let wait_max = req.time_left().map_or(WAIT_MAX, |left| left.min(WAIT_MAX));
        let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE).detail("the database is busy");
        Ok(self.pool.lend(wait_max, work).ok_or_else(busy)??)
    }

    fn add(&self, Json(note): Json<Note>, req: &mut Request) -> Result<(StatusCode, Json<Note>)> {
        let insert = "INSERT INTO notes (text) VALUES (?1) RETURNING id";
        let id = self.with(req, |db| db.query_row(insert, [&note.text], |row| row.get(0)))?;
        Ok((StatusCode::CREATED, Json(Note { id: Some(id), ..note })))
    }

    fn note(&self, Path(id): Path<i64>, req: &mut Request) -> Result<Json<Note>> {
        let select = "SELECT text FROM notes WHERE id = ?1";
        let text = self.with(req, |db| db.query_row(select, [id], |row| row.get(0)).optional())?;
        let note = text.map(|text| Json(Note { id: Some(id), text }));
        note.ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND).detail(format!("there is no note {id}")).into()
        })
    }
}

/// A minimal connection pool. Crates like `r2d2` have one for any database, which also replaces broken
/// connections.
pub(crate) struct Pool {
    pub(crate) free: Mutex<Vec<Connection>>,
    returned: Condvar,
}

impl Pool {
    fn open(file: &File) -> Result<Pool> {
        let free: rusqlite::Result<_> = (0..CONNECTIONS).map(|_| Connection::open(file)).collect();
        Ok(Pool { free: Mutex::new(free?), returned: Condvar::new() })
    }

    /// Calls `work` with a connection. Returns `None` if no connection is free in time.
    fn lend<T>(&self, wait_max: Duration, work: impl FnOnce(&Connection) -> T) -> Option<T> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.returned.wait_timeout_while(free, wait_max, |free| free.is_empty());
        let (mut free, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let lent = PooledConnection { pool: self, connection: free.pop() };
        drop(free);
        lent.connection.as_ref().map(work)
    }
}

/// Returns to its pool when dropped, even if `work` panics.
struct PooledConnection<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).extend(self.connection.take());
        self.pool.returned.notify_one();
    }
}

pub(crate) fn site(notes: Arc<Notes>) -> Router {
    let router = Router::new().post("/notes", Notes::add).get("/notes/{id}", Notes::note);
    router.get("/health", || "OK").state(notes)
}

pub(crate) fn main() -> weftwork::Result<()> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    Server::bind("127.0.0.1:8080")?.run(site(Arc::new(Notes::open(File::new("notes.sqlite"))?)))
}
