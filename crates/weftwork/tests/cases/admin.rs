//! Tests that the side listener answers whatever the site does.

use std::sync::Arc;
use std::time::Duration;

use weftwork::prelude::StatusCode;
use weftwork::{Request, Router, Running, Settings};

use super::CASE;
use crate::support::{Client, Gate, TIMEOUT, eventually};

fn ready(req: &mut Request) -> StatusCode {
    if req.is_stopping() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}

/// A site whose handlers wait at the gate, with probes beside it.
fn start(change: impl FnOnce(Settings) -> Settings) -> (Running, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    let site = move |_: &mut Request| {
        passed.pass();
        "passed"
    };
    let probes = Router::new().get("/health", || "alive").get("/ready", ready);
    let server = CASE.bind("127.0.0.1:0").settings(change).admin("127.0.0.1:0", probes).unwrap();
    (server.start(site).unwrap(), gate)
}

fn probe(running: &Running, path: &str) -> u16 {
    Client::connect_in_clear(&running.admin_addresses()[0]).get(path).status
}

/// All threads are in handlers, all slots are taken, and more clients wait.
#[test]
fn it_answers_while_the_site_is_overloaded() {
    let (running, gate) = start(|s| s.threads_max(4).standby_kept(1).queue_max(1).connections_max(8));
    let mut clients: Vec<Client> = (0..24).map(|_| Client::connect(&running)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    gate.wait_for(1);
    for _ in 0..3 {
        assert_eq!((probe(&running, "/health"), probe(&running, "/ready")), (200, 200));
    }
    gate.open();
    drop(clients);
    assert_eq!(running.shutdown(TIMEOUT).stuck, 0);
}

/// It says that the server stops, and closes after the site has ended.
#[test]
fn it_answers_while_the_site_drains() {
    let (running, gate) = start(|settings| settings);
    let mut client = Client::connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.wait_for(1);
    let address = running.admin_addresses()[0].clone();
    let status = running.status();
    assert_eq!(probe(&running, "/ready"), 200);
    let stopping = std::thread::spawn(move || running.shutdown(TIMEOUT));
    eventually("the server stops", || status.is_stopping());
    eventually("probes are told", || Client::connect_in_clear(&address).get("/ready").status == 503);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(Client::connect_in_clear(&address).get("/health").status, 200, "behind the end of the accept queue");
    gate.open();
    client.answer().is(200, "passed");
    let report = stopping.join().unwrap();
    assert_eq!((report.cut, report.stuck), (0, 0), "{report}");
    assert!(Client::try_connect_to(&address).is_err());
}
