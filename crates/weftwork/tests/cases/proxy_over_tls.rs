//! Runs the tests of the proxy again, with TLS between the proxy and its server.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use weftwork::{Proxy, Running};

use super::{CASE, bodies};
use crate::support::tls;
use crate::support::tls_peer::{Authority, relay};

#[path = "proxy.rs"]
mod proxy;
#[path = "proxy_reuse.rs"]
mod proxy_reuse;
#[path = "tunnels.rs"]
mod tunnels;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);
/// The addresses of the relays, by those of the servers behind them.
static RELAYS: LazyLock<Mutex<HashMap<String, String>>> = LazyLock::new(Mutex::default);

fn seen_at(address: &str) -> String {
    let mut relays = RELAYS.lock().unwrap();
    let start = || relay(AUTHORITY.issue(&["127.0.0.1"], |_| ()).config(), address.to_owned());
    relays.entry(address.to_owned()).or_insert_with(start).clone()
}

fn proxy_to(address: &str) -> Proxy {
    let (_tree, ca) = AUTHORITY.file();
    Proxy::to(&format!("https://{}", seen_at(address))).unwrap().ca_file(ca).unwrap()
}

fn proxy_to_server(server: &Running) -> Proxy {
    let address = server.local_addr().unwrap().to_string();
    tls::proxy_to(&address).unwrap_or_else(|| proxy_to(&address))
}
