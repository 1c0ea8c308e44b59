//! What is no router is mounted.

use weftwork::prelude::*;

fn guard(req: &mut Request, next: Next) -> Response {
    next.run(req)
}

fn site() -> Router {
    let api = Router::new().get("/teas", || "Assam");
    Router::new().nest("/api", api.with(guard)).nest("/health", || "OK")
}

fn main() {}
