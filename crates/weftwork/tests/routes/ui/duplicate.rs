//! A duplicate name.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("/users/{id}/friends/{id}")]
    Friend { id: u64 },
    #[get("/search?{q}&q={other}")]
    Search { q: String, other: String },
}

fn main() {}
