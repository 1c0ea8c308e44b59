//! A handler that asks a database by sqlx, whose client is async only:
//! `cargo run --manifest-path interop/Cargo.toml --example sqlx`.
//!
//! The handler is a plain function. While a query runs, its event loop serves others.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use weftwork::prelude::*;
use weftwork::{Path, Router};
use weftwork_tokio::Tokio;

/// The pool, and the runtime that drives it.
struct App {
    pool: SqlitePool,
    tokio: Tokio,
}

impl App {
    fn open(tokio: Tokio, options: SqliteConnectOptions) -> Result<App> {
        // A database in memory belongs to one connection.
        let pool = tokio.wait(|| SqlitePoolOptions::new().max_connections(1).connect_with(options))?;
        let table = "CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY, name TEXT NOT NULL)";
        tokio.wait(|| sqlx::query(table).execute(&pool))?;
        Ok(App { pool, tokio })
    }
}

fn add(State(app): State<App>, name: String) -> Result<Response> {
    let insert = || sqlx::query("INSERT INTO users (name) VALUES (?)").bind(&name).execute(&app.pool);
    let id = app.tokio.wait(insert)?.last_insert_rowid();
    Ok(text(format!("{id}\n")).with_status(StatusCode::CREATED))
}

fn show(State(app): State<App>, Path(id): Path<i64>) -> Result<String> {
    let select =
        || sqlx::query_scalar("SELECT name FROM users WHERE id = ?").bind(id).fetch_optional(&app.pool);
    let name: Option<String> = app.tokio.wait(select)?;
    Ok(name.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND).detail("no such user"))?)
}

fn site(app: App) -> Router {
    Router::new().post("/users", add).get("/users/{id}", show).state(app)
}

fn main() -> Result<()> {
    let options = SqliteConnectOptions::new().filename("users.db").create_if_missing(true);
    let app = App::open(Tokio::shared()?, options)?;
    println!("at http://127.0.0.1:8080");
    Server::bind("127.0.0.1:8080")?.run(site(app))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_added_and_found() {
        let app = App::open(Tokio::shared().unwrap(), SqliteConnectOptions::new().in_memory(true)).unwrap();
        let mut client = weftwork::TestClient::new(site(app));
        let added = client.post("/users").header("content-type", "text/plain").body("Ada").send();
        assert_eq!((added.status, added.text()), (StatusCode::CREATED, "1\n"));
        assert_eq!(client.get("/users/1").send().text(), "Ada");
        assert_eq!(client.get("/users/2").send().status, StatusCode::NOT_FOUND);
    }
}
