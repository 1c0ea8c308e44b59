//! A JSON API over SQLite. Nothing says which routes wait for the disk: the engine finds out, and `/health` stays quick.

use std::path::Path as File;
use std::sync::Mutex;

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use weftwork::prelude::*;
use weftwork::{Json, Path, Problem};

#[derive(Serialize, Deserialize)]
pub(crate) struct Note {
    id: Option<i64>,
    text: String,
}

/// Connections that wait for their next use: as many as were ever in use at once.
pub(crate) struct Notes {
    file: Box<File>,
    idle: Mutex<Vec<Connection>>,
}

impl Notes {
    /// Lends `work` a connection of its own, so that requests wait for the disk and not for each other.
    fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let idle = self.idle.lock().unwrap().pop();
        let connection = idle.map_or_else(|| Connection::open(&self.file), Ok)?;
        let done = work(&connection);
        self.idle.lock().unwrap().push(connection);
        Ok(done?)
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
    let notes = Notes { file: file.into(), idle: Mutex::default() };
    notes.with(|db| {
        db.execute_batch("CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT)")
    })?;
    let router = Router::new().post("/notes", Notes::add).get("/notes/{id}", Notes::note);
    Ok(router.get("/health", || "OK").state(notes))
}

pub(crate) fn main() -> weftwork::Result<()> {
    Server::bind("127.0.0.1:8080")?.run(site(File::new("notes.sqlite"))?)
}
