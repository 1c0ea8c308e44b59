//! A nest takes what is beneath its prefix.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[nest("/admin")]
    Admin(Admin),
    #[get("/admin/help")]
    Help,
}

#[derive(Routes)]
enum Other {
    #[get("/admin/help")]
    Help,
    #[nest("/admin")]
    Admin(Admin),
}

#[derive(Routes)]
enum Nests {
    #[nest("/users/{id}")]
    User { id: u64, page: Admin },
    #[nest("/users")]
    Users(Admin),
}

#[derive(Routes)]
enum Admin {
    #[get("/")]
    Overview,
}

fn main() {}
