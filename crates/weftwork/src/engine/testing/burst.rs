//! A burst of clients for tests of the engines. It waits at a listener, and the handler holds its requests until all
//! have arrived.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use crate::message::{Handler, Request, Response};
use crate::settings::Settings;
use crate::transport::address::Address;
use crate::transport::context::Context;
use crate::transport::listener::Listener;
use crate::transport::socket_share::Bound;

/// Much longer than any wait here takes.
pub(in crate::engine) const TIMEOUT: Duration = Duration::from_secs(30);

pub(in crate::engine) struct Burst {
    clients: Vec<TcpStream>,
    has_entered: mpsc::Receiver<()>,
    all: Arc<Barrier>,
}

/// Parts of an engine.
pub(in crate::engine) struct Site {
    pub(in crate::engine) cx: Arc<Context>,
    pub(in crate::engine) handler: Arc<dyn Handler>,
    pub(in crate::engine) listener: Listener,
}

/// Returns a listener at a free port.
pub(in crate::engine) fn listener(backlog: u32) -> Listener {
    let address = Address::Tcp(([127, 0, 0, 1], 0).into());
    let listener = Listener::bind(&address, false, &[], &Bound::new("")).unwrap();
    listener.listen(backlog).unwrap();
    listener
}

impl Burst {
    /// Opens `size` connections, each with a request, which are not accepted yet.
    pub(in crate::engine) fn pending(size: usize) -> (Burst, Site) {
        let listener = listener(128);
        let Address::Tcp(address) = listener.address().clone() else { panic!("not a TCP address") };
        let clients = (0..size).map(|_| {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(TIMEOUT)).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            client
        });
        let clients = clients.collect();
        let all = Arc::new(Barrier::new(size + 1));
        let (enters, has_entered) = mpsc::channel();
        let held = all.clone();
        let handler = move |_: &mut Request<'_>| {
            let _ = enters.send(());
            held.wait();
            Response::text("together")
        };
        let settings = Settings::default().connections_max(1000).accepted_max(1000);
        let cx = Arc::new(Context::new(settings).unwrap());
        (Burst { clients, has_entered, all }, Site { cx, handler: Arc::new(handler), listener })
    }

    /// Waits until each request has its own thread.
    pub(in crate::engine) fn wait_until_all_run(&self) {
        for at in 0..self.clients.len() {
            self.has_entered.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("only {at} got a thread"));
        }
    }

    /// Lets the handlers return. Returns the clients, whose connections stay open until they are dropped.
    pub(in crate::engine) fn finish(mut self) -> Vec<TcpStream> {
        self.all.wait();
        for client in &mut self.clients {
            let mut answer = [0; 15];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200 OK");
        }
        self.clients
    }
}

#[track_caller]
pub(in crate::engine) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
