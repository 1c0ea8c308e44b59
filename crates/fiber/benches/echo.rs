//! Measures the round trips per second of an echo server with one fiber for each connection.
//!
//! `cargo bench -p weftwork-fiber --bench echo -- [connections [seconds]]`. The load comes from another thread
//! that also runs fibers. On two cores the figure is therefore that of a server with one core. Errors are
//! counted, and fail the run.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weftwork_fiber::net::{TcpListener, TcpStream};
use weftwork_fiber::{run, sleep, spawn};

const MESSAGE: &[u8; 64] = &[b'x'; 64];

#[derive(Default)]
struct ServerStats {
    round_trips: AtomicU64,
    errors: AtomicU64,
    stop: AtomicBool,
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 1_024];
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..read])?;
    }
}

fn client(address: SocketAddr, counts: &ServerStats) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut answer = [0; MESSAGE.len()];
    while !counts.stop.load(Ordering::Relaxed) {
        stream.write_all(MESSAGE)?;
        stream.read_exact(&mut answer)?;
        counts.round_trips.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn load(address: SocketAddr, connections: usize, seconds: u64, counts: &Arc<ServerStats>) {
    let theirs = Arc::clone(counts);
    run(move || {
        for _ in 0..connections {
            let counts = Arc::clone(&theirs);
            spawn(move || {
                if let Err(error) = client(address, &counts) {
                    eprintln!("client: {error}");
                    counts.errors.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        sleep(Duration::from_millis(500));
        let (before, started) = (theirs.round_trips.load(Ordering::Relaxed), Instant::now());
        sleep(Duration::from_secs(seconds));
        let trips = theirs.round_trips.load(Ordering::Relaxed) - before;
        let rate = trips as f64 / started.elapsed().as_secs_f64();
        println!("{connections} connections: {rate:.0} round trips/s");
        theirs.stop.store(true, Ordering::Relaxed);
    })
    .unwrap();
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let connections: usize = numbers.next().unwrap_or(2_000);
    let seconds = numbers.next().unwrap_or(3) as u64;
    let counts = Arc::new(ServerStats::default());
    let (sender, address) = std::sync::mpsc::channel();
    let server_counts = Arc::clone(&counts);
    let server = std::thread::spawn(move || {
        run(move || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            for _ in 0..connections {
                let (stream, _) = listener.accept().unwrap();
                let counts = Arc::clone(&server_counts);
                spawn(move || {
                    if let Err(error) = serve(stream) {
                        eprintln!("server: {error}");
                        counts.errors.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        })
        .unwrap();
    });
    load(address.recv().unwrap(), connections, seconds, &counts);
    server.join().unwrap();
    let errors = counts.errors.load(Ordering::Relaxed);
    println!("errors: {errors}");
    assert_eq!(errors, 0);
}
