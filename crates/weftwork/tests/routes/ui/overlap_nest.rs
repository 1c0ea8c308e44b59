//! A nest matches all paths under its prefix.

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
enum Tenants {
    #[get("/")]
    Home,
    #[nest("/{tenant}")]
    Tenant { tenant: String, page: Admin },
    #[get("/{*path}")]
    Page { path: String },
}

#[derive(Routes)]
enum Pages {
    #[any("/pages/{*path}")]
    Page { path: String },
    #[nest("/pages/{book}")]
    Book { book: String, page: Admin },
}

/// These two match different paths, so there is no error.
#[derive(Routes)]
enum Books {
    #[nest("/{book}/pages")]
    Book { book: String, page: Admin },
    #[get("/{*path}")]
    Path { path: String },
}

#[derive(Routes)]
enum Admin {
    #[get("/")]
    Overview,
}

fn main() {}
