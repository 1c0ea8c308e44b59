//! Tests that a server can listen at every kind of address, and reports why it cannot.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use weftwork::{Address, Server};

use super::CASE;
use crate::support::{Client, Site, noise, over_http2, tls};

/// Path of a Unix socket that only this test uses.
pub(super) struct Path(PathBuf);

impl Path {
    pub(super) fn new(name: &str) -> Path {
        let file =
            format!("weftwork-{}-{}-{name}.sock", std::process::id(), module_path!().replace("::", "-"));
        Path(std::env::temp_dir().join(file))
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.0
    }

    pub(super) fn address(&self) -> String {
        format!("unix:{}", self.0.display())
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_unix_socket_serves_and_is_removed() {
    let path = Path::new("serves");
    let site = Site::start(CASE.bind(&path.address()));
    assert_eq!(site.running.local_addr(), None);
    let mut client = site.client();
    client.get("/bytes/300000").is(200, noise(300_000));
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody");
    client.answer().is(200, "body");
    client.ends();
    drop(site);
    assert!(!path.0.exists(), "the socket is removed at the end");
}

/// A killed server leaves its socket file behind. A running server keeps its address.
#[test]
fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
    let path = Path::new("stale");
    drop(UnixListener::bind(&path.0).unwrap());
    assert!(path.0.exists());
    let site = Site::start(CASE.bind(&path.address()));
    let error = Server::bind(path.address()).unwrap_err().to_string();
    assert!(error.contains("another program listens there"), "{error}");
    site.client().get("/").is(200, "hello");
}

/// The file looks like a stale socket to a client, because nothing listens there.
#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let path = Path::new("file");
    std::fs::write(&path.0, "keep me").unwrap();
    let error = Server::bind(path.address()).unwrap_err().to_string();
    assert!(error.contains("a file that is not a socket is there"), "{error}");
    assert_eq!(std::fs::read(&path.0).unwrap(), b"keep me");
}

#[test]
fn a_bound_path_is_not_replaced_before_its_server_starts() {
    let path = Path::new("bound");
    let server = CASE.bind(&path.address());
    let error = Server::bind(path.address()).unwrap_err().to_string();
    assert!(error.contains("another program listens there"), "{error}");
    let mut early = Client::connect_to(&Address::Unix(path.0.clone()));
    let site = Site::start(server);
    early.get("/").is(200, "hello");
    site.client().get("/").is(200, "hello");
}

#[test]
fn a_path_that_a_successor_has_taken_is_left_to_it() {
    let path = Path::new("successor");
    let old = Site::start(CASE.bind(&path.address()));
    std::fs::remove_file(&path.0).unwrap();
    let new = Site::start(CASE.bind(&path.address()));
    drop(old);
    new.client().get("/").is(200, "hello");
    drop(new);
    assert!(!path.0.exists(), "the socket is removed at the end");
}

fn has_ipv6() -> bool {
    let tried = TcpListener::bind("[::1]:0");
    if let Err(why) = &tried {
        println!("not checked: this machine has no ::1: {why}");
    }
    tried.is_ok()
}

#[test]
fn ipv6() {
    if !has_ipv6() {
        return;
    }
    let site = Site::start(CASE.bind("[::1]:0"));
    assert!(site.running.local_addr().unwrap().is_ipv6());
    site.client().get("/").is(200, "hello");
}

#[test]
fn several_listeners_lead_to_one_server() {
    let path = Path::new("several");
    let server = CASE.bind("127.0.0.1:0").and_bind("127.0.0.1:0").unwrap();
    let site = Site::start(server.and_bind(path.address()).unwrap());
    let addresses = site.running.addresses().to_vec();
    assert_eq!(addresses.len(), 3);
    let mut clients: Vec<Client> = addresses.iter().map(Client::connect_to).collect();
    for client in &mut clients {
        client.get("/").is(200, "hello");
    }
    assert_eq!(site.running.stats().accepted, 3);
}

#[test]
fn port_0_is_a_free_port() {
    let server = CASE.bind("127.0.0.1:0");
    let Address::Tcp(bound) = server.addresses()[0].clone() else { panic!("a TCP address") };
    assert_ne!(bound.port(), 0);
    let site = Site::start(server);
    assert_eq!(site.running.local_addr(), Some(bound));
}

#[test]
fn a_name_with_several_addresses_has_one_port() {
    let site = Site::start(CASE.bind("localhost:0"));
    let addresses = site.running.addresses().to_vec();
    let mut ports: Vec<u16> = addresses.iter().filter_map(port).collect();
    ports.dedup();
    assert_eq!(ports.len(), 1, "{addresses:?}");
    addresses.iter().for_each(|address| Client::connect_to(address).get("/").is(200, "hello"));
}

#[test]
fn any_address_takes_ipv4_too() {
    let site = Site::start(CASE.bind(":0"));
    let port = port(&site.running.addresses()[0]).unwrap();
    Client::connect_to(&Address::Tcp(([127, 0, 0, 1], port).into())).get("/").is(200, "hello");
}

/// `[::]` also accepts IPv4, unless that address is already in use.
#[test]
fn any_address_of_both_families_is_one_server_in_either_order() {
    if !has_ipv6() {
        return;
    }
    for (first, second, count) in [("[::]", "0.0.0.0", 1), ("0.0.0.0", "[::]", 2)] {
        let server = CASE.bind(&format!("{first}:0"));
        let port = port(&server.addresses()[0]).unwrap();
        let site = Site::start(server.and_bind(format!("{second}:{port}")).unwrap());
        assert_eq!(site.running.addresses().len(), count, "{first} first");
        for loopback in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
            Client::connect_to(&Address::Tcp(loopback.parse().unwrap())).get("/").is(200, "hello");
        }
    }
}

fn port(address: &Address) -> Option<u16> {
    match address {
        Address::Tcp(address) => Some(address.port()),
        _ => None,
    }
}

/// As under systemd: the address outlives the server. The next server serves the clients that connected in
/// between.
#[test]
fn sockets_that_are_given_are_left_as_they_are() {
    let path = Path::new("given");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path.0).unwrap();
    let start = || {
        let server = Server::from_listener(tcp.try_clone().unwrap()).unwrap();
        let server = server.and_listener(unix.try_clone().unwrap()).unwrap();
        Site::start(over_http2::accept(tls::secure(server.engine(CASE.engine))))
    };
    let site = start();
    let addresses = site.running.addresses().to_vec();
    assert_eq!(addresses, [Address::Tcp(tcp.local_addr().unwrap()), Address::Unix(path.0.clone())]);
    addresses.iter().for_each(|address| Client::connect_to(address).get("/").is(200, "hello"));
    let report = site.running.shutdown(crate::support::TIMEOUT);
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
    assert!(path.0.exists(), "the path is not ours to remove");
    let between: Vec<Client> = addresses.iter().map(Client::connect_to).collect();
    let _again = start();
    between.into_iter().for_each(|mut client| client.get("/").is(200, "hello"));
}

#[test]
fn what_is_no_listener_is_refused() {
    let error = Server::from_listener(std::fs::File::open("/dev/null").unwrap()).unwrap_err().to_string();
    assert!(error.contains("the given socket"), "{error}");
}

#[test]
fn an_occupied_port_is_an_error_with_a_cure() {
    let site = CASE.start();
    let address = site.running.local_addr().unwrap();
    let server = Server::bind(address).map(|server| server.engine(CASE.engine));
    let error =
        server.and_then(|server| server.start(|_: &mut weftwork::Request| "never")).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
    assert!(error.contains("stop it or choose another port"), "{error}");
}
