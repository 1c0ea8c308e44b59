//! Serves the API of Conduit at port 8080: `JWT_SECRET=$(openssl rand -hex 32) cargo run -p weftwork-realworld`, then
//! `curl localhost:8080/api/tags`. The library of this package says more.

use std::path::Path;

use weftwork::Server;
use weftwork_realworld::{App, ITERATIONS, in_shape, site};

fn main() -> weftwork::Result<()> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    let secret = std::env::var("JWT_SECRET").unwrap_or_default();
    let app = App::open(Path::new("conduit.sqlite"), &secret, ITERATIONS)?;
    Server::bind("127.0.0.1:8080")?.problems(in_shape).run(site(app)?)
}
