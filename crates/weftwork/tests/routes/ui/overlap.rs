//! Two routes match the same paths.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("/users/{id}")]
    User { id: u64 },
    #[get("/users/{name}")]
    UserByName { name: String },
    #[post("/users/{name}")]
    Rename { name: String },
}

#[derive(Routes)]
enum Twice {
    #[get("/a")]
    #[get("/a")]
    A,
}

fn main() {}
