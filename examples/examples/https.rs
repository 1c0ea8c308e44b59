//! HTTPS with a certificate for development: `cargo run -p weftwork-examples --example https`, then
//! `curl -k https://localhost:8443`.

use weftwork::Tls;
use weftwork::prelude::*;

pub(crate) fn hello(req: &mut Request) -> String {
    let name = req.tls().and_then(|tls| tls.server_name()).unwrap_or("no name");
    format!(
        "{} asked for {name} by {}\n",
        req.peer_addr().map_or("-".into(), |peer| peer.to_string()),
        req.scheme()
    )
}

pub(crate) fn main() -> weftwork::Result<()> {
    env_logger::init();
    Server::bind("127.0.0.1:8443")?.tls(Tls::self_signed(["localhost"])?).run(hello)
}
