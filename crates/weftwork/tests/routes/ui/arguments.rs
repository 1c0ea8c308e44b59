//! Types that are not arguments, and the types to use instead.

use weftwork::prelude::*;

struct Plain;

fn optional(_: Option<Plain>) {}

fn query(_: Query<Plain>) {}

fn body(_: Json<Plain>) {}

fn captures(_: Path<Plain>) {}

fn site() -> Router {
    Router::new().get("/optional", optional).get("/query", query).post("/body", body).get("/{id}", captures)
}

fn main() {}
