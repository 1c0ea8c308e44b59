//! The same axum app on hyper and on Weftwork: `cargo bench --manifest-path interop/Cargo.toml`.
//!
//! - CPU a request. 64 clients ask for two seconds.
//! - Memory of 10,000 connections that are idle, and of 10,000 whose future is pending. It needs `ulimit -n 10100`.
//! - Latency of 64 quick clients, alone and beside 8 futures whose polls block for 100 ms.
//!
//! Each server is a process with one core (by `taskset`), one loop or one runtime thread.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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

/// Connections of which the memory is measured.
const HELD: usize = 10_000;
/// Clients whose futures block in their polls, and for how long.
const BLOCKERS: usize = 8;
const BLOCK: Duration = Duration::from_millis(100);

/// Futures that are pending for ever.
static PENDING: AtomicUsize = AtomicUsize::new(0);

fn app() -> Router {
    let sleep = || async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        "slept\n"
    };
    let pending = || async {
        PENDING.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<&str>().await
    };
    let block = || async {
        thread::sleep(BLOCK);
        "blocked\n"
    };
    Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/sleep", get(sleep))
        .route("/pending", get(pending))
        .route("/count", get(|| async { format!("{}\n", PENDING.load(Ordering::Relaxed)) }))
        .route("/block", get(block))
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
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
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

/// Returns a field of /proc/PID/status: a number, or KiB.
fn status(server: &Child, field: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).expect("a connection to the server (ulimit -n 10100)")
}

fn send(mut client: &TcpStream, path: &str, field: &str) {
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{field}\r\n").as_bytes()).unwrap();
}

/// Returns the last line of the answer. Both servers send a small answer as a whole, with its length.
fn receive(mut client: &TcpStream) -> String {
    let (mut bytes, mut length) = ([0; 1024], 0);
    while !bytes[..length].ends_with(b"\n") || bytes[..length].ends_with(b"\r\n") {
        match client.read(&mut bytes[length..]).unwrap() {
            0 => panic!("the connection ended early"),
            count => length += count,
        }
    }
    String::from_utf8_lossy(&bytes[..length]).lines().last().unwrap_or_default().to_owned()
}

/// Asks until the end, on one connection or on one for each request.
fn ask(address: SocketAddr, path: &str, closes: bool, is_over: &AtomicBool, mut note: impl FnMut(Duration)) {
    let field = if closes { "Connection: close\r\n" } else { "" };
    let mut kept = None;
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let client = kept.take().unwrap_or_else(|| connect(address));
        send(&client, path, field);
        receive(&client);
        note(begun.elapsed());
        kept = (!closes).then_some(client);
    }
}

fn measure(subject: &str, path: &str, closes: bool) -> f64 {
    let (mut server, address) = start(subject);
    let (answers, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let cost = thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                ask(address, path, closes, &is_over, |_| {
                    answers.fetch_add(1, Ordering::Relaxed);
                });
            });
        }
        thread::sleep(WARM_UP);
        let (cpu, count) = (cpu_seconds(&server), answers.load(Ordering::Relaxed));
        thread::sleep(TIME);
        let cost = (cpu_seconds(&server) - cpu) / (answers.load(Ordering::Relaxed) - count) as f64;
        is_over.store(true, Ordering::Relaxed);
        cost
    });
    stop(&mut server);
    cost * 1e6
}

/// Returns the bytes of an idle connection, those of a connection whose future is pending, and the threads of the server.
fn memory(subject: &str) -> [f64; 3] {
    let (mut server, address) = start(subject);
    let first = connect(address);
    let get = |client: &TcpStream, path| {
        send(client, path, "");
        receive(client)
    };
    get(&first, "/");
    let before = status(&server, "VmRSS");
    let per_connection = |server: &Child| (status(server, "VmRSS") - before) as f64 * 1024.0 / HELD as f64;
    let clients: Vec<_> = (0..HELD).map(|_| connect(address)).collect();
    clients.iter().for_each(|client| drop(get(client, "/")));
    let idle = per_connection(&server);
    clients.iter().for_each(|client| send(client, "/pending", ""));
    while get(&first, "/count") != HELD.to_string() {
        thread::sleep(Duration::from_millis(10));
    }
    let pending = per_connection(&server);
    let threads = status(&server, "Threads") as f64;
    stop(&mut server);
    [idle, pending, threads]
}

/// Returns the latency that 99 of 100 requests of the quick clients do not exceed, in microseconds.
fn latency(subject: &str, blockers: usize) -> f64 {
    let (mut server, address) = start(subject);
    let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
    let all = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..blockers {
            scope.spawn(|| ask(address, "/block", false, &is_over, drop));
        }
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut mine = Vec::new();
                ask(address, "/", false, &is_over, |took| {
                    if begun.elapsed() > WARM_UP {
                        mine.push(took);
                    }
                });
                all.lock().unwrap().extend(mine);
            });
        }
        thread::sleep(WARM_UP + TIME);
        is_over.store(true, Ordering::Relaxed);
    });
    stop(&mut server);
    let mut all = all.into_inner().unwrap();
    all.sort_unstable();
    all[all.len() * 99 / 100].as_secs_f64() * 1e6
}

fn stop(server: &mut Child) {
    server.kill().unwrap();
    server.wait().unwrap();
}

fn main() {
    if let Some(subject) = std::env::var_os(SERVER) {
        return serve(&subject.to_string_lossy());
    }
    let subjects = ["hyper", "weft"];
    println!("CPU us a request        hyper   weft  ratio");
    for (name, path, closes) in CASES {
        row(name, subjects.map(|subject| measure(subject, path, closes)));
    }
    println!("memory of {HELD}");
    let memories = subjects.map(memory);
    for (at, name) in ["bytes, idle", "bytes, pending", "threads"].into_iter().enumerate() {
        row(name, memories.map(|memory| memory[at]));
    }
    println!("p99 us of quick clients");
    let alone = subjects.map(|subject| latency(subject, 0));
    let beside = subjects.map(|subject| latency(subject, BLOCKERS));
    row("alone", alone);
    row("beside blocked polls", beside);
    println!("{:20} {:8.2} {:6.2}", "beside / alone", beside[0] / alone[0], beside[1] / alone[1]);
}

fn row(name: &str, [hyper, weft]: [f64; 2]) {
    println!("{name:20} {hyper:8.1} {weft:6.1} {:6.2}", weft / hyper);
}
