//! An invalid nest.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[nest("/")]
    Root(Admin),
    #[nest("/admin/")]
    Slash(Admin),
    #[nest("/a?{q}")]
    Query { q: String, admin: Admin },
    #[nest("/b")]
    Nothing,
    #[nest("/c")]
    Two(Admin, Admin),
    #[nest("/d/{id}")]
    Unnamed(Admin),
    #[nest("/e")]
    #[get("/e")]
    Both(Admin),
}

#[derive(Routes)]
enum Admin {
    #[get("/")]
    Overview,
}

fn main() {}
