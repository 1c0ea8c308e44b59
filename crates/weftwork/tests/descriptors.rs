//! Tests that a server survives the lack of descriptors, and returns its own. Each test runs in a process of
//! its own.
#![cfg(target_os = "linux")]

// Each test binary uses a part of it.
#[allow(dead_code)]
mod support;

use std::fs::File;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Client, ENGINES, EngineCase, Site, eventually, is_logged, keep_log};
use weftwork::{Engine, Feed, FeedLimits, FeedSender, Request, Response, Server};

const CHILD: &str = "WEFTWORK_TEST_ENGINE";
const DESCRIPTORS: u64 = 128;

#[test]
fn accept_goes_on_when_descriptors_are_free_again() {
    if let Ok(engine) = std::env::var(CHILD) {
        return use_up(engine.parse().unwrap());
    }
    on_each_engine("accept_goes_on_when_descriptors_are_free_again");
}

#[test]
fn clients_that_left_an_idle_feed_hold_no_descriptors() {
    if let Ok(engine) = std::env::var(CHILD) {
        return leave_a_feed(engine.parse().unwrap());
    }
    on_each_engine("clients_that_left_an_idle_feed_hold_no_descriptors");
}

#[test]
fn the_descriptor_table_grows_before_it_is_needed() {
    if let Ok(engine) = std::env::var(CHILD) {
        return grow_descriptor_table(engine.parse().unwrap());
    }
    on_each_engine("the_descriptor_table_grows_before_it_is_needed");
}

#[test]
fn no_child_process_inherits_them() {
    if let Ok(engine) = std::env::var(CHILD) {
        return open_every_kind(engine.parse().unwrap());
    }
    on_each_engine("no_child_process_inherits_them");
}

/// Listeners of every kind, a connection, a file and an upload are open. A child process would keep their ports.
fn open_every_kind(engine: Engine) {
    let before = inheritable();
    let path = std::env::temp_dir().join(format!("weftwork-inherited-{}.sock", std::process::id()));
    let passed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::io::fcntl_setfd(&passed, rustix::io::FdFlags::empty()).unwrap();
    assert_eq!(inheritable().len(), before.len() + 1, "a socket of a parent process is inheritable");
    let server = Server::from_listener(passed).unwrap().engine(engine);
    let server =
        server.and_bind("127.0.0.1:0").unwrap().and_bind(format!("unix:{}", path.display())).unwrap();
    let site = Site::start(server);
    let mut clients: Vec<Client> = site.running.addresses().iter().map(Client::connect_to).collect();
    clients.iter_mut().for_each(|client| client.get("/").is(200, "hello"));
    clients[0].send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    site.inside.gate.wait_for(1);
    assert_eq!(inheritable(), before);
    site.inside.gate.open();
    clients[0].answer().is(200, "passed");
}

/// Returns what a child process would inherit, without stdin, stdout and stderr.
fn inheritable() -> Vec<String> {
    const CLOEXEC: u32 = 0o2_000_000;
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().map_while(Result::ok);
    let inherited = descriptors.filter(|entry| {
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        number > 2 && flags.is_some_and(|flags| flags & CLOEXEC == 0)
    });
    inherited.map(|entry| format!("{:?} {:?}", entry.path(), std::fs::read_link(entry.path()))).collect()
}

/// Otherwise the kernel grows the table in the middle of the load, and the accepting thread waits for that.
fn grow_descriptor_table(engine: Engine) {
    let engine_case = || -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        status.lines().find_map(|line| line.strip_prefix("FDSize:"))?.trim().parse().ok()
    };
    let before = engine_case();
    let _server =
        Server::bind("127.0.0.1:0").unwrap().engine(engine).start(|_: &mut Request| "hello").unwrap();
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    assert!(
        before < Some(1024) && engine_case() >= Some(most.min(16_384)),
        "{before:?}, {:?} of {most}",
        engine_case()
    );
}

/// Nothing is ever sent, and the senders are kept, as in a quiet hub.
fn leave_a_feed(engine: Engine) {
    let senders = Arc::<Mutex<Vec<FeedSender>>>::default();
    let kept = senders.clone();
    let server = Server::bind("127.0.0.1:0").unwrap().engine(engine).start(move |_: &mut Request| {
        let (sender, feed) = Feed::new(FeedLimits::default());
        kept.lock().unwrap().push(sender);
        Response::feed(feed).endless()
    });
    let server = server.unwrap();
    let come_and_go = |count: usize| {
        let mut clients: Vec<Client> = (0..count).map(|_| Client::connect(&server)).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.answer_head().status, 200);
        }
        drop(clients);
        eventually("all have gone", || server.stats().connections == 0);
    };
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    come_and_go(20);
    let before = open();
    come_and_go(20);
    come_and_go(20);
    eventually("their descriptors are closed", || open() <= before);
    assert_eq!(senders.lock().unwrap().len(), 60);
}

fn on_each_engine(test: &str) {
    for engine in ENGINES.iter().map(Engine::to_string) {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", test, "--nocapture"]);
        let output = child.env(CHILD, &engine).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine}: {text}");
    }
}

/// Connects. The server is in the same process, and may still hold the descriptor of the previous client.
fn connect_retrying(site: &Site) -> Client {
    let mut client = None;
    eventually("a descriptor is free", || {
        client = Client::try_connect_to(&site.running.addresses()[0]).ok();
        client.is_some()
    });
    client.unwrap()
}

fn use_up(engine: Engine) {
    keep_log();
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) }).unwrap();
    let site = EngineCase { engine, lacks: &[] }.start_with(|s| s.connections_max(10_000));
    let mut old = site.client();
    old.get("/").is(200, "hello");

    let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(fillers.len() > 10, "only {} were free", fillers.len());
    // One descriptor is free for the client's end, and none for the server's.
    fillers.pop();
    let mut new = site.client();
    new.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n");
    new.send(vec![b'x'; 50_000]);
    eventually("accept fails", || site.running.stats().accept_errors > 0);
    old.get("/").is(200, "hello");

    // No descriptor becomes free: no client is left without an answer.
    let answer = new.answer();
    assert!(answer.status == 503 && answer.closes(), "{answer:?}");
    assert_eq!(answer.field("retry-after"), Some("1"));
    is_logged(&["gets 503", "RLIMIT_NOFILE", "connections_max is 10000"]);
    new.sees_end();
    // If the server had not read the bytes, its close would be a reset, which could discard the answer.
    eventually("the server has closed", || site.running.stats().connections == 1);
    new.try_send("more").expect("there was no reset");
    drop(new);
    // If several threads accept, one may get the descriptor that another has released.
    let statuses = (0..20).map(|_| {
        let mut next = connect_retrying(&site);
        next.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        next.answer().status
    });
    let (refused, served): (Vec<u16>, Vec<u16>) = statuses.partition(|status| *status == 503);
    assert!(served.iter().all(|status| *status == 200), "{served:?}");
    assert!(site.running.stats().shed > refused.len() as u64);
    old.get("/").is(200, "hello");
    assert_eq!(site.calls(), 3 + served.len());

    drop(fillers);
    // A loop that had no descriptor just before may refuse one more client.
    let mut client = site.client();
    eventually("accept goes on", || {
        let is_served = client.get("/").status == 200;
        if !is_served {
            client = site.client();
        }
        is_served
    });
    client.get("/").is(200, "hello");
}
