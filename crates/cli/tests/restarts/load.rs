//! Kept clients that send GET and POST with pauses, and count every request that is not answered as it should be.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 24;
/// Shortest and longest pause between two requests of a client, in milliseconds.
const PAUSE_MS: (u64, u64) = (5, 50);

/// Returns the number of requests of a run.
pub(crate) fn requests() -> usize {
    std::env::var("WEFT_TEST_REQUESTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1200)
}

pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    answered: AtomicUsize,
    connections: AtomicUsize,
    ends: AtomicBool,
    lost: Mutex<Vec<String>>,
}

impl Load {
    pub(crate) fn start(address: &str) -> Load {
        let shared = Arc::<Shared>::default();
        let threads = (1..=CLIENTS).map(|seed| {
            let (shared, address) = (shared.clone(), address.to_owned());
            std::thread::spawn(move || run(&address, &shared, seed))
        });
        Load { threads: threads.collect(), shared }
    }

    /// Returns once this many requests were answered.
    pub(crate) fn wait_for(&self, count: usize) {
        let begun = Instant::now();
        while self.shared.answered.load(Ordering::Relaxed) < count {
            let lost = self.shared.lost.lock().unwrap();
            assert!(lost.len() < 100 && begun.elapsed() < Duration::from_secs(120), "{lost:?}");
            drop(lost);
            self.go_on(Duration::from_millis(10));
        }
    }

    pub(crate) fn go_on(&self, time: Duration) {
        std::thread::sleep(time);
    }

    #[track_caller]
    pub(crate) fn end(self, what: &str) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        let lost = self.shared.lost.lock().unwrap();
        let (answered, connections) = (&self.shared.answered, &self.shared.connections);
        println!("{what}: {answered:?} answered on {connections:?} connections, {} lost", lost.len());
        assert!(lost.is_empty(), "{what}: {lost:?}");
    }
}

fn run(address: &str, shared: &Shared, seed: u64) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut kept: Option<BufReader<TcpStream>> = None;
    while !shared.ends.load(Ordering::Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        match ask(kept.take(), address, random, shared) {
            Ok(connection) => {
                shared.answered.fetch_add(1, Ordering::Relaxed);
                kept = connection;
            }
            Err(why) => shared.lost.lock().unwrap().push(why),
        }
        let (shortest, longest) = PAUSE_MS;
        std::thread::sleep(Duration::from_millis(shortest + random % (longest - shortest + 1)));
    }
}

/// Sends a request, without a retry. Returns the connection if it is kept.
fn ask(
    kept: Option<BufReader<TcpStream>>,
    address: &str,
    random: u64,
    shared: &Shared,
) -> Result<Option<BufReader<TcpStream>>, String> {
    let is_kept = kept.is_some();
    let failed =
        |what: &str, error: std::io::Error| format!("{what}, on a kept connection: {is_kept}: {error}");
    let mut connection = match kept {
        Some(kept) => kept,
        None => {
            shared.connections.fetch_add(1, Ordering::Relaxed);
            let stream = TcpStream::connect(address).map_err(|error| failed("connect", error))?;
            stream.set_nodelay(true).map_err(|error| failed("connect", error))?;
            stream
                .set_read_timeout(Some(Duration::from_secs(10)))
                .map_err(|error| failed("connect", error))?;
            BufReader::new(stream)
        }
    };
    let body = format!("{random:x}").repeat(16);
    let (request, want) = match random % 10 {
        0 => ("GET /slow?ms=20 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "blocked\n"),
        1..6 => ("GET /health HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "OK"),
        _ => {
            let length = body.len();
            (
                format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"),
                body.as_str(),
            )
        }
    };
    connection.get_mut().write_all(request.as_bytes()).map_err(|error| failed("send", error))?;
    let (status, closes, answer) = answer(&mut connection).map_err(|error| failed("answer", error))?;
    if status != 200 || answer != want.as_bytes() {
        let text = String::from_utf8_lossy(&answer).chars().take(80).collect::<String>();
        return Err(format!("{} {status}: {text}", request.lines().next().unwrap_or_default()));
    }
    Ok((!closes).then_some(connection))
}

fn answer(connection: &mut BufReader<TcpStream>) -> std::io::Result<(u16, bool, Vec<u8>)> {
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let (mut closes, mut length, mut is_chunked) = (false, 0, false);
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        let field = line.trim_end().to_ascii_lowercase();
        match field.split_once(':').map(|(name, value)| (name, value.trim())) {
            Some(("connection", value)) => closes = value == "close",
            Some(("content-length", value)) => length = value.parse().unwrap_or(0),
            Some(("transfer-encoding", _)) => is_chunked = true,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = Vec::new();
    while is_chunked {
        line.clear();
        connection.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
        let mut chunk = vec![0; size + 2];
        connection.read_exact(&mut chunk)?;
        body.extend_from_slice(&chunk[..size]);
        is_chunked = size > 0;
    }
    let start = body.len();
    body.resize(start + length, 0);
    connection.read_exact(&mut body[start..])?;
    Ok((status, closes, body))
}
