//! A JSON API over SQLite. Nothing says which routes wait for the disk: the engine finds out, and `/health` stays quick.
//! `cargo run -p weftwork-examples --example notes`, then
//! `curl localhost:8080/notes -H 'content-type: application/json' -d '{"text": "tea"}'`.

use std::path::Path as File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use weftwork::prelude::*;
use weftwork::{Json, Path, Problem};

#[derive(Serialize, Deserialize)]
pub(crate) struct Note {
    id: Option<i64>,
    text: String,
}

/// So many requests are in the database at once; the others wait for a connection, each on a thread.
const CONNECTIONS: usize = 8;

pub(crate) struct Notes {
    connections: Vec<Mutex<Connection>>,
    turn: AtomicUsize,
}

impl Notes {
    fn open(file: &File) -> Result<Notes> {
        let opened = (0..CONNECTIONS).map(|_| Connection::open(file).map(Mutex::new));
        Ok(Notes { connections: opened.collect::<rusqlite::Result<_>>()?, turn: AtomicUsize::new(0) })
    }

    /// Lends `work` the connection whose turn it is.
    fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % CONNECTIONS;
        // A panic in the middle of a statement has not harmed the connection.
        let connection = self.connections[turn].lock().unwrap_or_else(PoisonError::into_inner);
        Ok(work(&connection)?)
    }

    fn add(&self, Json(note): Json<Note>) -> Result<(StatusCode, Json<Note>)> {
        let insert = "INSERT INTO notes (text) VALUES (?1) RETURNING id";
        let id = self.with(|db| db.query_row(insert, [&note.text], |row| row.get(0)))?;
        Ok((StatusCode::CREATED, Json(Note { id: Some(id), ..note })))
    }

    fn note(&self, Path(id): Path<i64>) -> Result<Json<Note>> {
        let select = "SELECT text FROM notes WHERE id = ?1";
        let text = self.with(|db| db.query_row(select, [id], |row| row.get(0)).optional())?;
        let note = text.map(|text| Json(Note { id: Some(id), text }));
        note.ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND).detail(format!("there is no note {id}")).into()
        })
    }
}

pub(crate) fn site(file: &File) -> Result<Router> {
    let notes = Notes::open(file)?;
    notes.with(|db| {
        db.execute_batch("CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT)")
    })?;
    let router = Router::new().post("/notes", Notes::add).get("/notes/{id}", Notes::note);
    Ok(router.get("/health", || "OK").state(notes))
}

pub(crate) fn main() -> weftwork::Result<()> {
    Server::bind("127.0.0.1:8080")?.run(site(File::new("notes.sqlite"))?)
}
