//! The backend of Conduit, a blog as [RealWorld](https://github.com/gothinkster/realworld) specifies it: 19 routes,
//! tokens, and SQLite.
//!
//! `JWT_SECRET=$(openssl rand -hex 32) cargo run -p weftwork-realworld` serves it at `localhost:8080/api`. The
//! database is the file `conduit.sqlite` in the current folder. `JWT_SECRET` signs the tokens, so users stay signed in
//! after a restart only if it stays the same.

mod articles;
mod auth;
mod comments;
mod db;
mod errors;
mod users;

use std::num::NonZeroU32;
use std::path::Path;

pub use auth::ITERATIONS;
pub use errors::in_shape;
use weftwork::middleware::Cors;
use weftwork::prelude::*;

/// What the handlers share.
pub struct App {
    db: db::Pool,
    tokens: auth::Tokens,
    iterations: NonZeroU32,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

impl App {
    /// Opens the database, or creates it. `secret` signs the tokens. Use [`ITERATIONS`], and fewer only in tests.
    ///
    /// # Errors
    /// The file is no database of Conduit, or the secret is shorter than 32 bytes.
    pub fn open(file: &Path, secret: &str, iterations: NonZeroU32) -> Result<App> {
        Ok(App { db: db::Pool::open(file)?, tokens: auth::Tokens::new(secret)?, iterations })
    }
}

/// Returns the API, with every route under `/api`. Its server shapes errors with [`in_shape`].
///
/// # Errors
/// Never. The names of header fields for CORS are valid.
pub fn site(app: App) -> Result<impl Handler> {
    let api = Router::new()
        .post("/users", users::register)
        .post("/users/login", users::login)
        .get("/user", users::current)
        .put("/user", users::update)
        .get("/profiles/{username}", users::profile)
        .post("/profiles/{username}/follow", users::follow)
        .delete("/profiles/{username}/follow", users::unfollow)
        .get("/articles", articles::list)
        .post("/articles", articles::create)
        .get("/articles/feed", articles::feed)
        .get("/articles/{slug}", articles::show)
        .put("/articles/{slug}", articles::update)
        .delete("/articles/{slug}", articles::delete)
        .post("/articles/{slug}/favorite", articles::favorite)
        .delete("/articles/{slug}/favorite", articles::unfavorite)
        .get("/articles/{slug}/comments", comments::list)
        .post("/articles/{slug}/comments", comments::create)
        .delete("/articles/{slug}/comments/{id}", comments::delete)
        .get("/tags", articles::tags);
    let cors = Cors::any_origin().methods([Method::GET, Method::POST, Method::PUT, Method::DELETE]);
    let cors = cors.headers(["authorization", "content-type"])?;
    Ok(Router::new().nest("/api", api.state(app)).with(cors))
}
