//! Comments on articles.

use rusqlite::{OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::json;
use weftwork::Path;
use weftwork::prelude::*;

use crate::App;
use crate::articles::article_and_author;
use crate::auth::{CurrentUser, viewer};
use crate::errors::{forbidden, not_found, required};
use crate::users::Profile;

#[derive(Deserialize)]
pub(crate) struct CommentBody {
    comment: NewComment,
}

#[derive(Deserialize)]
struct NewComment {
    body: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Comment {
    id: i64,
    created_at: String,
    updated_at: String,
    body: String,
    author: Profile,
}

fn read(row: &Row<'_>) -> rusqlite::Result<Comment> {
    // No route changes a comment.
    let (created_at, updated_at) = (row.get(1)?, row.get(1)?);
    Ok(Comment { id: row.get(0)?, created_at, updated_at, body: row.get(2)?, author: Profile::read(row, 3)? })
}

/// The comments `c` of a condition, for the viewer `?1`.
fn select(condition: &str) -> String {
    let profile = Profile::COLUMNS;
    format!(
        "SELECT c.id, c.created, c.body, {profile} FROM comments c JOIN users u ON u.id = c.author
        WHERE {condition} ORDER BY c.id DESC"
    )
}

pub(crate) fn list(app: &App, user: Result<CurrentUser>, Path(slug): Path<String>) -> Result<Response> {
    let db = app.db.get()?;
    let (article, _) = article_and_author(&db, &slug)?;
    let mut select = db.prepare_cached(&select("c.article = ?2"))?;
    let comments = select.query_map([viewer(user), article], read)?;
    let comments: Vec<Comment> = comments.collect::<rusqlite::Result<_>>()?;
    Ok(Response::json(&json!({ "comments": comments })))
}

pub(crate) fn create(
    app: &App,
    CurrentUser(user): CurrentUser,
    Path(slug): Path<String>,
    Json(CommentBody { comment }): Json<CommentBody>,
) -> Result<Response> {
    required("body", &comment.body)?;
    let db = app.db.get()?;
    let (article, _) = article_and_author(&db, &slug)?;
    let insert = "INSERT INTO comments (article, author, body) VALUES (?1, ?2, ?3) RETURNING id";
    let id: i64 = db.query_row(insert, params![article, user, comment.body], |row| row.get(0))?;
    let comment = db.query_row(&select("c.id = ?2"), [user, id], read)?;
    Ok(Response::json(&json!({ "comment": comment })))
}

pub(crate) fn delete(
    app: &App,
    CurrentUser(user): CurrentUser,
    Path((slug, id)): Path<(String, i64)>,
) -> Result<StatusCode> {
    let db = app.db.get()?;
    let (article, _) = article_and_author(&db, &slug)?;
    let select = "SELECT author FROM comments WHERE id = ?1 AND article = ?2";
    let author: Option<i64> = db.query_row(select, [id, article], |row| row.get(0)).optional()?;
    match author {
        None => Err(not_found("comment")),
        Some(author) if author != user => Err(forbidden("comment")),
        Some(_) => {
            db.execute("DELETE FROM comments WHERE id = ?1", [id])?;
            Ok(StatusCode::NO_CONTENT)
        }
    }
}
