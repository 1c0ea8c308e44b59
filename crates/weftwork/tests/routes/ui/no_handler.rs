//! A function that is only a handler in a router, without a router.

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
