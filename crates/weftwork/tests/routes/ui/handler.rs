//! A function that cannot be a handler.

use weftwork::prelude::*;
use weftwork::Path;

struct Mine;

fn of_mine(_: Mine) -> &'static str {
    "mine"
}

fn of_number(_: Path<u64>, req: &mut Request, _: Path<u64>) -> String {
    req.path().to_owned()
}

fn returns_number(_: Path<u64>) -> u64 {
    7
}

fn site() -> Router {
    Router::new().get("/mine", of_mine).get("/number", of_number).get("/returned", returns_number)
}

fn main() {}
