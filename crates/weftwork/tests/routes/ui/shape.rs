//! Not an enum of routes.

use weftwork::prelude::*;

#[derive(Routes)]
struct Site;

#[derive(Routes)]
enum Empty {}

#[derive(Routes)]
enum Borrowed<'a> {
    #[get("/{name}")]
    Name { name: &'a str },
}

#[derive(Routes)]
enum Some {
    #[get("/")]
    Home,
    Forgotten,
    #[get("/users/{id}")]
    Unnamed(u64),
}

#[derive(Routes)]
#[nest("/admin")]
#[blocks]
enum Admin {
    #[get("/")]
    Overview,
}

fn main() {}
