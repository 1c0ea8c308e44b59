//! Accounts and profiles.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::json;
use weftwork::Path;
use weftwork::prelude::*;

use crate::App;
use crate::auth::{CurrentUser, hash_password, is_password, no_user, viewer};
use crate::errors::{invalid, not_found, optional, required, taken};

/// The body of a request: one member, whose name says what it is.
#[derive(Deserialize)]
pub(crate) struct UserBody<T> {
    user: T,
}

#[derive(Deserialize)]
pub(crate) struct Registration {
    username: String,
    email: String,
    password: String,
}

#[derive(Deserialize)]
pub(crate) struct Login {
    email: String,
    password: String,
}

#[derive(Deserialize)]
pub(crate) struct Changes {
    username: Option<String>,
    email: Option<String>,
    password: Option<String>,
    bio: Option<String>,
    image: Option<String>,
}

/// A user, as others see it.
#[derive(Serialize)]
pub(crate) struct Profile {
    username: String,
    bio: String,
    image: Option<String>,
    following: bool,
}

impl Profile {
    /// The columns of a profile, for a user `u` and the viewer `?1`.
    pub(crate) const COLUMNS: &str = "u.username, u.bio, u.image, \
        EXISTS (SELECT 1 FROM follows WHERE follower = ?1 AND followed = u.id)";

    /// Reads the columns, the first of which is `first`.
    pub(crate) fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Profile> {
        Ok(Profile {
            username: row.get(first)?,
            bio: row.get(first + 1)?,
            image: row.get(first + 2)?,
            following: row.get(first + 3)?,
        })
    }
}

pub(crate) fn register(
    app: &App,
    Json(UserBody { user }): Json<UserBody<Registration>>,
) -> Result<(StatusCode, Response)> {
    let Registration { username, email, password } = user;
    required("username", &username)?;
    required("email", &email)?;
    required("password", &password)?;
    let hash = hash_password(&password, app.iterations)?;
    let db = app.db.get()?;
    let insert = "INSERT INTO users (username, email, password) VALUES (?1, ?2, ?3) RETURNING id";
    let id = db.query_row(insert, params![username, email, hash], |row| row.get(0)).map_err(taken)?;
    Ok((StatusCode::CREATED, account(app, &db, id)?))
}

pub(crate) fn login(app: &App, Json(UserBody { user }): Json<UserBody<Login>>) -> Result<Response> {
    let Login { email, password } = user;
    required("email", &email)?;
    required("password", &password)?;
    let db = app.db.get()?;
    let select = "SELECT id, password FROM users WHERE email = ?1";
    let found: Option<(i64, Vec<u8>)> =
        db.query_row(select, [&email], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let is_right = is_password(&password, found.as_ref().map(|(_, hash)| &hash[..]), app.iterations);
    match found {
        Some((id, _)) if is_right => account(app, &db, id),
        _ => Err(invalid("email or password", "is invalid")),
    }
}

pub(crate) fn current(app: &App, CurrentUser(id): CurrentUser) -> Result<Response> {
    account(app, &*app.db.get()?, id)
}

pub(crate) fn update(
    app: &App,
    CurrentUser(id): CurrentUser,
    Json(UserBody { user: changes }): Json<UserBody<Changes>>,
) -> Result<Response> {
    optional("username", changes.username.as_ref())?;
    optional("email", changes.email.as_ref())?;
    optional("password", changes.password.as_ref())?;
    let hash = changes.password.as_deref().map(|new| hash_password(new, app.iterations)).transpose()?;
    let db = app.db.get()?;
    let update = "UPDATE users SET username = coalesce(?2, username), email = coalesce(?3, email),
        password = coalesce(?4, password), bio = coalesce(?5, bio), image = coalesce(?6, image) WHERE id = ?1";
    let values = params![id, changes.username, changes.email, hash, changes.bio, changes.image];
    db.execute(update, values).map_err(taken)?;
    account(app, &db, id)
}

/// Returns the user with a new token.
fn account(app: &App, db: &Connection, id: i64) -> Result<Response> {
    let token = app.tokens.sign(id)?;
    let user = |row: &Row<'_>| {
        let (email, username): (String, String) = (row.get(0)?, row.get(1)?);
        let (bio, image): (String, Option<String>) = (row.get(2)?, row.get(3)?);
        Ok(json!({ "email": email, "token": token, "username": username, "bio": bio, "image": image }))
    };
    let select = "SELECT email, username, bio, image FROM users WHERE id = ?1";
    match db.query_row(select, [id], user).optional()? {
        Some(user) => Ok(Response::json(&json!({ "user": user }))),
        None => Err(no_user("is of a user who is gone")),
    }
}

pub(crate) fn profile(app: &App, user: Result<CurrentUser>, Path(name): Path<String>) -> Result<Response> {
    profile_for(&*app.db.get()?, viewer(user), &name)
}

pub(crate) fn follow(app: &App, CurrentUser(id): CurrentUser, Path(name): Path<String>) -> Result<Response> {
    let db = app.db.get()?;
    let insert = "INSERT OR IGNORE INTO follows SELECT ?1, id FROM users WHERE username = ?2";
    db.execute(insert, params![id, name])?;
    profile_for(&db, id, &name)
}

pub(crate) fn unfollow(
    app: &App,
    CurrentUser(id): CurrentUser,
    Path(name): Path<String>,
) -> Result<Response> {
    let db = app.db.get()?;
    let delete = "DELETE FROM follows WHERE follower = ?1
        AND followed = (SELECT id FROM users WHERE username = ?2)";
    db.execute(delete, params![id, name])?;
    profile_for(&db, id, &name)
}

fn profile_for(db: &Connection, viewer: i64, name: &str) -> Result<Response> {
    let select = format!("SELECT {} FROM users u WHERE u.username = ?2", Profile::COLUMNS);
    let found = db.query_row(&select, params![viewer, name], |row| Profile::read(row, 0)).optional()?;
    let profile = found.ok_or_else(|| not_found("profile"))?;
    Ok(Response::json(&json!({ "profile": profile })))
}
