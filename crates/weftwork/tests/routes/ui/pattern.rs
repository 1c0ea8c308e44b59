//! The text of a route is invalid.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("users")]
    Relative,
    #[get("/files/{name}.json")]
    Part { name: String },
    #[get("/{*rest}/end")]
    Rest { rest: String },
    #[get("/users/{}")]
    Nameless,
    #[get("/items/:id")]
    Colon,
    #[get("/search?q")]
    Query { q: String },
    #[get(/users)]
    Unquoted,
    #[get("/a/../b")]
    Dots,
    #[get("/a#b")]
    Fragment,
    #[get("/100%")]
    Percent,
}

fn main() {}
