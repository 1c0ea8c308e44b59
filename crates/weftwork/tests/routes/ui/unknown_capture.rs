//! A capture has no field, so it has no type.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("/users/{id}")]
    User,
    #[get("/posts/{id}")]
    Post { nr: u64 },
    #[get("/search?{q}")]
    Search {},
}

fn main() {}
