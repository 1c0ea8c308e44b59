//! A field is in no part of the route.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("/users/{id}")]
    User { id: u64, tab: String },
    #[get("/posts/id")]
    Post { id: u64 },
    #[get("/list?{page}")]
    #[get("/{by}/list")]
    List { page: Option<u32>, by: String },
}

fn main() {}
