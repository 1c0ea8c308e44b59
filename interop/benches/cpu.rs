//! CPU of the same axum app on hyper and on Weftwork, a request: `cargo bench --manifest-path interop/Cargo.toml`.
//!
//! Each server is a process with one core (by `taskset`), one loop or one runtime thread. 64 clients ask for two seconds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use weftwork::Server;
use weftwork_tower::serve_tower;

const SERVER: &str = "WEFTWORK_BENCH_SERVER";
const CLIENTS: usize = 64;
const WARM_UP: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_secs(2);
/// Ticks of /proc/PID/stat a second. Linux has no other value for programs (proc(5)).
const TICKS: f64 = 100.0;
/// Name, path, and whether each request has a connection of its own.
const CASES: [(&str, &str, bool); 3] =
    [("kept", "/", false), ("closed", "/", true), ("pending 1 ms", "/sleep", false)];

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello\n" })).route(
        "/sleep",
        get(|| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            "slept\n"
        }),
    )
}

fn serve(subject: &str) {
    if subject == "hyper" {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            println!("{}", listener.local_addr().unwrap());
            axum::serve(listener, app()).await.unwrap();
        });
    }
    let server = Server::bind("127.0.0.1:0").unwrap().engine("adaptive:1".parse().unwrap());
    let running = server.start(serve_tower(app())).unwrap();
    println!("{}", running.local_addr().unwrap());
    loop {
        thread::park();
    }
}

fn start(subject: &str) -> (Child, SocketAddr) {
    let mut server = Command::new("taskset");
    server.args(["-c", "0"]).arg(std::env::current_exe().unwrap()).env(SERVER, subject);
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (server, line.trim().parse().unwrap())
}

fn cpu_seconds(server: &Child) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = |at: usize| fields.split(' ').nth(at).unwrap().parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / TICKS
}

/// Asks until the end, on one connection or on one for each request.
fn ask(address: SocketAddr, path: &str, closes: bool, answers: &AtomicU64, is_over: &AtomicBool) {
    let field = if closes { "Connection: close\r\n" } else { "" };
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{field}\r\n");
    let mut kept = None;
    while !is_over.load(Ordering::Relaxed) {
        let mut client = kept.take().unwrap_or_else(|| TcpStream::connect(address).unwrap());
        client.write_all(request.as_bytes()).unwrap();
        let (mut bytes, mut length) = ([0; 1024], 0);
        // Both servers send a small answer as a whole, with its length.
        while !bytes[..length].ends_with(b"\n") || bytes[..length].ends_with(b"\r\n") {
            match client.read(&mut bytes[length..]).unwrap() {
                0 => panic!("the connection ended early"),
                count => length += count,
            }
        }
        answers.fetch_add(1, Ordering::Relaxed);
        kept = (!closes).then_some(client);
    }
}

fn measure(subject: &str, path: &str, closes: bool) -> f64 {
    let (mut server, address) = start(subject);
    let (answers, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let cost = thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| ask(address, path, closes, &answers, &is_over));
        }
        thread::sleep(WARM_UP);
        let (cpu, count) = (cpu_seconds(&server), answers.load(Ordering::Relaxed));
        thread::sleep(TIME);
        let cost = (cpu_seconds(&server) - cpu) / (answers.load(Ordering::Relaxed) - count) as f64;
        is_over.store(true, Ordering::Relaxed);
        cost
    });
    server.kill().unwrap();
    server.wait().unwrap();
    cost * 1e6
}

fn main() {
    if let Some(subject) = std::env::var_os(SERVER) {
        return serve(&subject.to_string_lossy());
    }
    println!("CPU us a request        hyper   weft  ratio");
    for (name, path, closes) in CASES {
        let [hyper, weft] = ["hyper", "weft"].map(|subject| measure(subject, path, closes));
        println!("{name:20} {hyper:8.1} {weft:6.1} {:6.2}", weft / hyper);
    }
}
