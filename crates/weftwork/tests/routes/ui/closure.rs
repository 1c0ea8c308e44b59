//! A closure that does not name the types of its arguments.

use weftwork::prelude::*;

fn site() -> Router {
    Router::new().get("/", |req| req.path().to_owned())
}

fn main() {}
