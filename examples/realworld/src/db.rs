//! The tables, and a pool of connections.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;
use weftwork::Result;

const TABLES: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS users (
        id INTEGER PRIMARY KEY, username TEXT NOT NULL UNIQUE, email TEXT NOT NULL UNIQUE,
        password BLOB NOT NULL, bio TEXT NOT NULL DEFAULT '', image TEXT
    );
    CREATE TABLE IF NOT EXISTS follows (
        follower INTEGER NOT NULL REFERENCES users, followed INTEGER NOT NULL REFERENCES users,
        PRIMARY KEY (follower, followed)
    );
    CREATE TABLE IF NOT EXISTS articles (
        id INTEGER PRIMARY KEY, author INTEGER NOT NULL REFERENCES users, slug TEXT NOT NULL UNIQUE,
        title TEXT NOT NULL, description TEXT NOT NULL, body TEXT NOT NULL,
        created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),
        updated TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
    );
    CREATE TABLE IF NOT EXISTS tags (
        article INTEGER NOT NULL REFERENCES articles ON DELETE CASCADE, name TEXT NOT NULL,
        PRIMARY KEY (article, name)
    );
    CREATE TABLE IF NOT EXISTS favorites (
        article INTEGER NOT NULL REFERENCES articles ON DELETE CASCADE, user INTEGER NOT NULL REFERENCES users,
        PRIMARY KEY (article, user)
    );
    CREATE TABLE IF NOT EXISTS comments (
        id INTEGER PRIMARY KEY, article INTEGER NOT NULL REFERENCES articles ON DELETE CASCADE,
        author INTEGER NOT NULL REFERENCES users, body TEXT NOT NULL,
        created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
    );";

/// Connections that no request uses now. There are at most as many as requests that were handled at once.
pub(crate) struct Pool {
    file: PathBuf,
    free: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(crate) fn open(file: &Path) -> Result<Pool> {
        let pool = Pool { file: file.to_owned(), free: Mutex::default() };
        pool.get()?.execute_batch(TABLES)?;
        Ok(pool)
    }

    /// Returns a connection for one request.
    pub(crate) fn get(&self) -> Result<Pooled<'_>> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match free {
            Some(connection) => connection,
            None => {
                let connection = Connection::open(&self.file)?;
                connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL")?;
                connection
            }
        };
        Ok(Pooled { pool: self, connection: Some(connection) })
    }
}

/// Returns to its pool when dropped.
pub(crate) struct Pooled<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
}

impl Deref for Pooled<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("only drop takes it")
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).extend(self.connection.take());
    }
}
