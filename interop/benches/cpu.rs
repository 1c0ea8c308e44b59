//! The same axum app on hyper and on Weftwork: `cargo bench --manifest-path interop/Cargo.toml`.
//!
//! - CPU a request, and requests a second. 64 clients ask in turn for two seconds. Medians of three rounds.
//! - CPU an event of a stream that 10,000 clients read.
//! - Memory of 10,000 connections that are idle, and of 10,000 whose future is pending.
//! - Latency of 64 quick clients, alone and beside 8 futures whose polls block for 100 ms.
//!
//! Each server is a process with one core (by `taskset`), one loop or one runtime thread. The clients have the other cores.
//! 10,000 clients need `ulimit -n 10100`.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use axum::extract::Query;
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::stream;
use tokio::sync::broadcast;
use weftwork::Server;
use weftwork_tower::serve_tower;

const SERVER: &str = "WEFTWORK_BENCH_SERVER";
const CLIENTS: usize = 64;
const WARM_UP: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_secs(2);
/// The longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Ticks of /proc/PID/stat a second. Linux has no other value for programs (proc(5)).
const TICKS: f64 = 100.0;
const ROUNDS: usize = 3;
const CASES: [Case; 5] = [
    Case { name: "kept", path: "/", end: "hello\n", closes: false },
    Case { name: "closed", path: "/", end: "hello\n", closes: true },
    Case { name: "JSON", path: "/json", end: "\"}", closes: false },
    Case { name: "pending 1 ms", path: "/sleep", end: "slept\n", closes: false },
    Case { name: "blocked 1 ms", path: "/block?ms=1", end: "blocked\n", closes: false },
];
/// Events that each client of a stream reads.
const EVENTS: usize = 20;

/// Connections of which the memory is measured.
const HELD: usize = 10_000;
/// Clients whose futures block in their polls.
const BLOCKERS: usize = 8;

/// Futures that are pending for ever.
static PENDING: AtomicUsize = AtomicUsize::new(0);

struct Case {
    name: &'static str,
    path: &'static str,
    /// What the answer ends with.
    end: &'static str,
    /// Whether each request has a connection of its own.
    closes: bool,
}

impl Case {
    fn field(&self) -> &str {
        if self.closes { "Connection: close\r\n" } else { "" }
    }
}

#[derive(serde::Deserialize)]
struct Time {
    ms: u64,
}

fn app() -> Router {
    let sleep = || async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        "slept\n"
    };
    let pending = || async {
        PENDING.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<&str>().await
    };
    let block = |Query(time): Query<Time>| async move {
        thread::sleep(Duration::from_millis(time.ms));
        "blocked\n"
    };
    let (publisher, _) = broadcast::channel(EVENTS);
    let subscriber = publisher.clone();
    let events = || async move {
        let next = |mut events: broadcast::Receiver<&'static str>| async {
            let text = events.recv().await.ok()?;
            Some((Ok::<_, Infallible>(Event::default().data(text)), events))
        };
        Sse::new(stream::unfold(subscriber.subscribe(), next))
    };
    let publish = || async move {
        publisher.send("news").unwrap();
        "published\n"
    };
    Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/json", get(|| async { Json(serde_json::json!({ "message": "hello" })) }))
        .route("/sleep", get(sleep))
        .route("/pending", get(pending))
        .route("/count", get(|| async { format!("{} pending\n", PENDING.load(Ordering::Relaxed)) }))
        .route("/block", get(block))
        .route("/events", get(events))
        .route("/publish", get(publish))
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
    let client = TcpStream::connect(address).expect("a connection to the server (ulimit -n 10100)");
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client
}

fn send(mut client: &TcpStream, path: &str, field: &str) {
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{field}\r\n").as_bytes()).unwrap();
}

/// Reads an answer, or a part of one, that ends so.
fn receive(mut client: &TcpStream, end: &str) -> String {
    let (mut bytes, mut length) = ([0; 1024], 0);
    while !bytes[..length].ends_with(end.as_bytes()) {
        match client.read(&mut bytes[length..]).unwrap() {
            0 => panic!("the connection ended early"),
            count => length += count,
        }
    }
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// Asks until the end on one connection.
fn ask(address: SocketAddr, path: &str, end: &str, is_over: &AtomicBool, mut note: impl FnMut(Duration)) {
    let client = connect(address);
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        send(&client, path, "");
        receive(&client, end);
        note(begun.elapsed());
    }
}

/// Returns the CPU of a request in microseconds, and the requests a second.
fn measure(subject: &str, case: &Case) -> [f64; 2] {
    let (mut server, address) = start(subject);
    let ask = || {
        let client = connect(address);
        send(&client, case.path, case.field());
        client
    };
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| ask()).collect();
    let mut count_for = |time| {
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < time {
            for client in &mut clients {
                receive(client, case.end);
                if case.closes {
                    *client = ask();
                } else {
                    send(client, case.path, case.field());
                }
            }
            count += CLIENTS;
        }
        count as f64 / begun.elapsed().as_secs_f64()
    };
    count_for(WARM_UP);
    let (begun, cpu) = (Instant::now(), cpu_seconds(&server));
    let rate = count_for(TIME);
    let busy = (cpu_seconds(&server) - cpu) / begun.elapsed().as_secs_f64();
    stop(&mut server);
    [busy / rate * 1e6, rate]
}

/// Returns the CPU in microseconds of an event that each of many clients gets.
fn events(subject: &str) -> f64 {
    let (mut server, address) = start(subject);
    let publisher = connect(address);
    let clients: Vec<_> = (0..HELD).map(|_| connect(address)).collect();
    for client in &clients {
        send(client, "/events", "");
        receive(client, "\r\n\r\n");
    }
    let cpu = cpu_seconds(&server);
    for _ in 0..EVENTS {
        send(&publisher, "/publish", "");
        receive(&publisher, "published\n");
        clients.iter().for_each(|client| drop(receive(client, "\n\n\r\n")));
    }
    let cost = (cpu_seconds(&server) - cpu) / (HELD * EVENTS) as f64;
    stop(&mut server);
    cost * 1e6
}

/// Returns the bytes of an idle connection, those of a connection whose future is pending, and the threads of the server.
fn memory(subject: &str) -> [f64; 3] {
    let (mut server, address) = start(subject);
    let first = connect(address);
    let get = |client: &TcpStream, path, end: &str| {
        send(client, path, "");
        receive(client, end)
    };
    get(&first, "/", "hello\n");
    let before = status(&server, "VmRSS");
    let per_connection = |server: &Child| (status(server, "VmRSS") - before) as f64 * 1024.0 / HELD as f64;
    let clients: Vec<_> = (0..HELD).map(|_| connect(address)).collect();
    clients.iter().for_each(|client| drop(get(client, "/", "hello\n")));
    let idle = per_connection(&server);
    clients.iter().for_each(|client| send(client, "/pending", ""));
    while !get(&first, "/count", "pending\n").contains(&format!("\n{HELD} pending")) {
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
            scope.spawn(|| ask(address, "/block?ms=100", "blocked\n", &is_over, drop));
        }
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut mine = Vec::new();
                ask(address, "/", "hello\n", &is_over, |took| {
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
    // The clients keep off the core of the servers.
    let others = format!("1-{}", thread::available_parallelism().unwrap().get() - 1);
    let myself = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["-cp", &others, &myself]).stdout(Stdio::null()).status();
    assert!(pinned.unwrap().success(), "two cores are needed");
    let subjects = ["hyper", "weft"];
    println!("CPU us a request        hyper   weft  ratio");
    let rates = CASES.map(|case| {
        let rounds: Vec<_> = (0..ROUNDS).map(|_| subjects.map(|subject| measure(subject, &case))).collect();
        let medians = |value: usize| {
            [0, 1].map(|subject| median(rounds.iter().map(|round: &[[f64; 2]; 2]| round[subject][value])))
        };
        row(case.name, medians(0));
        (case.name, medians(1))
    });
    row("event of a stream", subjects.map(events));
    println!("requests a second");
    rates.into_iter().for_each(|(name, rates)| row(name, rates));
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

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row(name: &str, [hyper, weft]: [f64; 2]) {
    println!("{name:20} {hyper:8.1} {weft:8.1} {:6.2}", weft / hyper);
}
