//! The smallest server: `cargo run --example hello`, then `curl localhost:8080`.

use weftwork::prelude::*;

fn main() -> weftwork::Result<()> {
    Server::bind("127.0.0.1:8080")?.run(|req: &mut Request| format!("hello from {}\n", req.path()))
}
