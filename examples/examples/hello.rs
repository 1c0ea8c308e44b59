//! The smallest server: `cargo run -p weftwork-examples --example hello`, then `curl localhost:8080`.

use weftwork::prelude::*;

pub(crate) fn hello(req: &mut Request) -> String {
    format!("hello from {}\n", req.path())
}

pub(crate) fn main() -> weftwork::Result<()> {
    Server::bind("127.0.0.1:8080")?.run(hello)
}
