//! A link to a value that is not a route.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("/users/{id}")]
    User { id: u64 },
}

fn page() -> String {
    Site::Usr { id: 7 }.link("a user") + &Site::User { id: "seven" }.link("another")
}

fn main() {}
