//! An axum app inside a site of Weftwork, on the way from one to the other:
//! `cargo run --manifest-path interop/Cargo.toml --example axum_inside`.
//!
//! Weftwork is outside: it has the listener, the limits, the logs and the shutdown. Routes that were moved are plain
//! functions, and may block. All others are still those of axum.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::get;
use weftwork::Server;
use weftwork_tower::serve_tower;

/// What both halves share.
type Notes = Arc<Mutex<Vec<String>>>;

/// A route of axum, unchanged.
async fn note(
    State(notes): State<Notes>,
    Path(number): Path<usize>,
) -> Result<String, axum::http::StatusCode> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    notes.lock().unwrap().get(number).cloned().ok_or(axum::http::StatusCode::NOT_FOUND)
}

/// A route that was moved. It needs no `async`, and no `spawn_blocking`.
fn add(weftwork::State(notes): weftwork::State<Notes>, text: String) -> weftwork::http::StatusCode {
    std::thread::sleep(Duration::from_millis(1)); // a database, for example
    notes.lock().unwrap().push(text);
    weftwork::http::StatusCode::CREATED
}

fn site() -> weftwork::Router {
    let notes = Notes::default();
    let rest = axum::Router::new().route("/notes/{number}", get(note)).with_state(notes.clone());
    weftwork::Router::new().post("/notes", add).state(notes).fallback(serve_tower(rest))
}

#[tokio::main]
async fn main() -> weftwork::Result<()> {
    let running = Server::bind("127.0.0.1:8080")?.start(site())?;
    println!("at http://127.0.0.1:8080");
    let report = running.stopped().await?;
    println!("{report}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn both_halves_see_the_same_notes() {
        let running = Server::bind("127.0.0.1:0").unwrap().start(site()).unwrap();
        let site = format!("http://{}", running.local_addr().unwrap());
        let client = reqwest::Client::new();
        let added = client.post(format!("{site}/notes")).body("milk").send().await.unwrap();
        assert_eq!(added.status(), 201);
        let note = client.get(format!("{site}/notes/0")).send().await.unwrap();
        assert_eq!(note.text().await.unwrap(), "milk");
        assert_eq!(client.get(format!("{site}/notes/1")).send().await.unwrap().status(), 404);
        assert_eq!(client.get(format!("{site}/none")).send().await.unwrap().status(), 404);
    }
}
