//! A closure that does not say what it takes.

use weftwork::prelude::*;

fn site() -> Router {
    Router::new().get("/", |req| req.path().to_owned())
}

fn main() {}
