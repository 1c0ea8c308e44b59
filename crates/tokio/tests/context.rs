//! Timers and sockets of tokio in handlers, on each engine and each runtime.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use weftwork::prelude::*;
use weftwork_tokio::Tokio;

const PATIENCE: Duration = Duration::from_secs(20);

fn site(tokio: Tokio) -> Router {
    Router::new()
        .get("/wait", |State(tokio): State<Tokio>| {
            tokio.wait(|| tokio::time::sleep(Duration::from_millis(5)));
            "waited"
        })
        .get("/when", |State(tokio): State<Tokio>| {
            tokio.when(|| async {
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_millis(5)).await;
                tokio::spawn(async { "waited" }).await.unwrap()
            })
        })
        .get("/late", |State(tokio): State<Tokio>| {
            let late = StatusCode::GATEWAY_TIMEOUT;
            tokio.when_within(Duration::from_millis(5), late, || tokio::time::sleep(PATIENCE * 10))
        })
        .get("/socket", |State(tokio): State<Tokio>, req: &mut Request| {
            let own = req.local_addr().unwrap();
            tokio
                .wait(move || async move { tokio::net::TcpStream::connect(own).await.map(|_| "connected") })
                .unwrap_or("refused")
        })
        .state(tokio)
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    text
}

fn check(tokio: &Tokio) {
    for engine in ["adaptive:1", "reactor:1", "workers:1", "pool:1", "fibers:1"] {
        let server = Server::bind("127.0.0.1:0").unwrap().engine(engine.parse().unwrap());
        let server = server.start(site(tokio.clone())).unwrap();
        let address = server.local_addr().unwrap();
        for (path, wanted) in [("/wait", "waited"), ("/when", "waited"), ("/socket", "connected")] {
            let answer = get(address, path);
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.ends_with(wanted),
                "{engine}: {path}: {answer}"
            );
        }
        assert!(get(address, "/late").starts_with("HTTP/1.1 504"), "{engine}");
    }
}

#[test]
fn the_shared_runtime_serves_and_ends_with_its_last_user() {
    let tokio = Tokio::shared().unwrap();
    check(&tokio);
    let (ended, is_ended) = std::sync::mpsc::channel();
    tokio.handle().spawn(async move {
        // Dropped with the runtime.
        let _ended: std::sync::mpsc::Sender<()> = ended;
        std::future::pending::<()>().await;
    });
    drop(tokio);
    assert_eq!(is_ended.recv_timeout(PATIENCE), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn a_runtime_of_the_program_serves() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    check(&runtime.handle().clone().into());
    runtime.block_on(async {
        let tokio = Tokio::current().unwrap();
        tokio::task::spawn_blocking(move || check(&tokio)).await.unwrap();
    });
    let error = Tokio::current().unwrap_err().to_string();
    assert!(error.contains("Tokio::shared"), "{error}");
}

#[test]
fn a_driven_current_thread_runtime_serves() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tokio = Tokio::current().unwrap();
        tokio::task::spawn_blocking(move || check(&tokio)).await.unwrap();
    });
}

static LOGGED: Mutex<String> = Mutex::new(String::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        *LOGGED.lock().unwrap() += &format!("{}\n", record.args());
    }

    fn flush(&self) {}
}

#[test]
fn a_runtime_that_no_thread_drives_is_reported() {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _tokio = Tokio::new(runtime.handle().clone());
    let begun = Instant::now();
    while !LOGGED.lock().unwrap().contains("stopped().await") {
        assert!(begun.elapsed() < PATIENCE, "no line");
        std::thread::sleep(Duration::from_millis(20));
    }
}
