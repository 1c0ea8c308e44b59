//! An attribute of a variant on a field.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("/users/{id}")]
    User {
        #[blocks]
        id: u64,
    },
    #[nest("/admin")]
    Admin(#[get("/x")] Admin),
}

#[derive(Routes)]
enum Admin {
    #[get("/")]
    Overview,
}

fn main() {}
