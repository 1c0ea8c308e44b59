//! Articles, the lists of them, favorites and tags.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::json;
use weftwork::Path;
use weftwork::prelude::*;

use crate::App;
use crate::auth::{CurrentUser, viewer};
use crate::errors::{forbidden, invalid, not_found, optional, required, taken};
use crate::users::Profile;

const LIMIT: u32 = 20;
const LIMIT_MAX: u32 = 100;

/// The body of a request, as `UserBody`.
#[derive(Deserialize)]
pub(crate) struct ArticleBody<T> {
    article: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewArticle {
    title: String,
    description: String,
    body: String,
    #[serde(default)]
    tag_list: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct Changes {
    title: Option<String>,
    description: Option<String>,
    body: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Filter {
    tag: Option<String>,
    author: Option<String>,
    favorited: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Page {
    limit: Option<u32>,
    offset: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Article {
    slug: String,
    title: String,
    description: String,
    /// Lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    tag_list: Vec<String>,
    created_at: String,
    updated_at: String,
    favorited: bool,
    favorites_count: u64,
    author: Profile,
}

/// The columns of an article, for the viewer `?1`. A profile follows.
const COLUMNS: &str = "a.slug, a.title, a.description, a.body, a.created, a.updated,
    (SELECT json_group_array(name) FROM (SELECT name FROM tags WHERE article = a.id ORDER BY name)),
    EXISTS (SELECT 1 FROM favorites WHERE article = a.id AND user = ?1),
    (SELECT count(*) FROM favorites WHERE article = a.id)";

/// The articles of a list. `?2` is whether it is the feed of the viewer.
const LISTED: &str = "FROM articles a JOIN users u ON u.id = a.author
    WHERE (NOT ?2 OR EXISTS (SELECT 1 FROM follows WHERE follower = ?1 AND followed = a.author))
    AND (?3 IS NULL OR EXISTS (SELECT 1 FROM tags WHERE article = a.id AND name = ?3))
    AND (?4 IS NULL OR u.username = ?4)
    AND (?5 IS NULL OR EXISTS (SELECT 1 FROM favorites f JOIN users v ON v.id = f.user
        WHERE f.article = a.id AND v.username = ?5))";

fn read(row: &Row<'_>) -> rusqlite::Result<Article> {
    let tags: String = row.get(6)?;
    Ok(Article {
        slug: row.get(0)?,
        title: row.get(1)?,
        description: row.get(2)?,
        body: row.get(3)?,
        tag_list: serde_json::from_str(&tags).unwrap_or_default(),
        created_at: row.get(4)?,
        updated_at: row.get(5)?,
        favorited: row.get(7)?,
        favorites_count: row.get(8)?,
        author: Profile::read(row, 9)?,
    })
}

pub(crate) fn list(
    app: &App,
    user: Result<CurrentUser>,
    Query(filter): Query<Filter>,
    Query(page): Query<Page>,
) -> Result<Response> {
    listed(app, viewer(user), false, filter, page)
}

pub(crate) fn feed(app: &App, CurrentUser(id): CurrentUser, Query(page): Query<Page>) -> Result<Response> {
    listed(app, id, true, Filter { tag: None, author: None, favorited: None }, page)
}

fn listed(app: &App, viewer: i64, is_feed: bool, filter: Filter, page: Page) -> Result<Response> {
    let db = app.db.get()?;
    let Filter { tag, author, favorited } = filter;
    let count = format!("SELECT count(*) {LISTED}");
    let values = params![viewer, is_feed, tag, author, favorited];
    let count: u64 = db.query_row(&count, values, |row| row.get(0))?;
    let profile = Profile::COLUMNS;
    let select = format!("SELECT {COLUMNS}, {profile} {LISTED} ORDER BY a.id DESC LIMIT ?6 OFFSET ?7");
    let (limit, offset) = (page.limit.unwrap_or(LIMIT).min(LIMIT_MAX), page.offset.unwrap_or(0));
    let mut select = db.prepare_cached(&select)?;
    let values = params![viewer, is_feed, tag, author, favorited, limit, offset];
    let articles = select.query_map(values, |row| Ok(Article { body: None, ..read(row)? }))?;
    let articles: Vec<Article> = articles.collect::<rusqlite::Result<_>>()?;
    Ok(Response::json(&json!({ "articles": articles, "articlesCount": count })))
}

pub(crate) fn show(app: &App, user: Result<CurrentUser>, Path(slug): Path<String>) -> Result<Response> {
    article(&*app.db.get()?, viewer(user), &slug)
}

fn article(db: &Connection, viewer: i64, slug: &str) -> Result<Response> {
    let profile = Profile::COLUMNS;
    let select = format!(
        "SELECT {COLUMNS}, {profile} FROM articles a JOIN users u ON u.id = a.author WHERE a.slug = ?2"
    );
    let found = db.query_row(&select, params![viewer, slug], read).optional()?;
    let article = found.ok_or_else(|| not_found("article"))?;
    Ok(Response::json(&json!({ "article": article })))
}

pub(crate) fn create(
    app: &App,
    CurrentUser(id): CurrentUser,
    Json(ArticleBody { article: sent }): Json<ArticleBody<NewArticle>>,
) -> Result<(StatusCode, Response)> {
    let NewArticle { title, description, body, tag_list } = sent;
    required("description", &description)?;
    required("body", &body)?;
    let slug = slug_of(&title)?;
    let db = app.db.get()?;
    let transaction = db.unchecked_transaction()?;
    let insert = "INSERT INTO articles (author, slug, title, description, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    transaction.execute(insert, params![id, slug, title, description, body]).map_err(taken)?;
    let article_id = transaction.last_insert_rowid();
    for tag in tag_list {
        transaction.execute("INSERT OR IGNORE INTO tags VALUES (?1, ?2)", params![article_id, tag])?;
    }
    transaction.commit()?;
    Ok((StatusCode::CREATED, article(&db, id, &slug)?))
}

pub(crate) fn update(
    app: &App,
    CurrentUser(id): CurrentUser,
    Path(slug): Path<String>,
    Json(ArticleBody { article: sent }): Json<ArticleBody<Changes>>,
) -> Result<Response> {
    let Changes { title, description, body } = sent;
    optional("description", description.as_ref())?;
    optional("body", body.as_ref())?;
    let new_slug = title.as_deref().map(slug_of).transpose()?.unwrap_or_else(|| slug.clone());
    let db = app.db.get()?;
    let article_id = own_article(&db, id, &slug)?;
    let update =
        "UPDATE articles SET slug = ?2, title = coalesce(?3, title), description = coalesce(?4, description),
        body = coalesce(?5, body), updated = strftime('%Y-%m-%dT%H:%M:%fZ') WHERE id = ?1";
    db.execute(update, params![article_id, new_slug, title, description, body]).map_err(taken)?;
    article(&db, id, &new_slug)
}

pub(crate) fn delete(
    app: &App,
    CurrentUser(id): CurrentUser,
    Path(slug): Path<String>,
) -> Result<StatusCode> {
    let db = app.db.get()?;
    db.execute("DELETE FROM articles WHERE id = ?1", [own_article(&db, id, &slug)?])?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) fn favorite(
    app: &App,
    CurrentUser(id): CurrentUser,
    Path(slug): Path<String>,
) -> Result<Response> {
    let db = app.db.get()?;
    let insert = "INSERT OR IGNORE INTO favorites VALUES (?1, ?2)";
    db.execute(insert, params![article_and_author(&db, &slug)?.0, id])?;
    article(&db, id, &slug)
}

pub(crate) fn unfavorite(
    app: &App,
    CurrentUser(id): CurrentUser,
    Path(slug): Path<String>,
) -> Result<Response> {
    let db = app.db.get()?;
    let delete = "DELETE FROM favorites WHERE article = ?1 AND user = ?2";
    db.execute(delete, params![article_and_author(&db, &slug)?.0, id])?;
    article(&db, id, &slug)
}

pub(crate) fn tags(app: &App) -> Result<Response> {
    let db = app.db.get()?;
    let mut select = db.prepare_cached("SELECT name FROM tags GROUP BY name ORDER BY count(*) DESC, name")?;
    let tags = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    Ok(Response::json(&json!({ "tags": tags })))
}

/// Returns the ids of the article and of its author.
pub(crate) fn article_and_author(db: &Connection, slug: &str) -> Result<(i64, i64)> {
    let select = "SELECT id, author FROM articles WHERE slug = ?1";
    let found = db.query_row(select, [slug], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    found.ok_or_else(|| not_found("article"))
}

fn own_article(db: &Connection, user: i64, slug: &str) -> Result<i64> {
    match article_and_author(db, slug)? {
        (id, author) if author == user => Ok(id),
        _ => Err(forbidden("article")),
    }
}

/// Returns the title in lower case, with a hyphen between words.
fn slug_of(title: &str) -> Result<String> {
    let words = title.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    match words.collect::<Vec<_>>().join("-").to_lowercase() {
        slug if slug.is_empty() => Err(invalid("title", "can't be blank")),
        // The path of the feed.
        slug if slug == "feed" => Err(invalid("title", "is reserved")),
        slug => Ok(slug),
    }
}
