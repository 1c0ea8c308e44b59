//! What is no handler by itself, where no router makes it one.

use weftwork::prelude::*;

fn typed(_: Query<Vec<(String, u32)>>) -> &'static str {
    "typed"
}

fn guard(req: &mut Request, next: Next) -> Response {
    next.run(req)
}

fn served() -> Result<()> {
    Server::bind("127.0.0.1:0")?.run("hello")
}

fn guarded() -> Router {
    Router::new().get("/", typed.with(guard))
}

fn main() {}
