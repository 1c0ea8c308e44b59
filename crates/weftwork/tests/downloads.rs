//! Tests that a thousand slow downloads cost no thread and little memory.
#![cfg(target_os = "linux")]

#[allow(dead_code)]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use support::{Client, TIMEOUT, Tree};
use weftwork::{Engine, Server, files};

const CLIENTS: usize = 1000;
const LENGTH: u64 = 10 << 20;
/// The maximum memory of each download in this process, which also holds the clients.
const EACH_BYTES_MAX: usize = 64 << 10;

/// Returns the resident bytes of this process.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/smaps_rollup").expect("the kernel tells");
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).expect("how much is resident");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// One test runs all of them: a second test would be measured too.
#[test]
fn a_thousand_slow_downloads_cost_no_thread_and_little_memory() {
    let engines = [
        Engine::Adaptive { loops: Some(1) },
        Engine::Reactor { loops: Some(1) },
        #[cfg(feature = "fibers")]
        Engine::Fibers { threads: Some(1) },
    ];
    for engine in engines {
        downloads_on(engine);
    }
}

fn downloads_on(engine: Engine) {
    let tree = Tree::new();
    let large = tree.write("large", "");
    fs::File::options().write(true).open(large).unwrap().set_len(LENGTH).unwrap();
    tree.write("small", "quick");
    let server = Server::bind("127.0.0.1:0").unwrap().engine(engine);
    // Raises the limit of open files as far as possible.
    let server = server.start(files(tree.path()).unwrap()).unwrap();
    if server.settings().connections_max < CLIENTS {
        println!("not checked: {} open files are too few", server.settings().connections_max);
        return;
    }
    Client::connect(&server).get("/small").is(200, "quick");
    let (threads, before) = (server.threads(), resident());
    let mut slow: Vec<TcpStream> = (0..CLIENTS).map(|_| begin(&server)).collect();
    for _ in 0..3 {
        for client in &mut slow {
            client.read_exact(&mut [0; 512]).expect("a little of a large file");
        }
        Client::connect(&server).get("/small").is(200, "quick");
    }
    let each = resident().saturating_sub(before) / CLIENTS;
    println!("{engine}: {each} bytes each, {} threads", server.threads());
    assert!(each < EACH_BYTES_MAX, "{engine}: {each} bytes for each slow download");
    // The adaptive engine starts some threads when it sees calls that block. On a slow host, those are many.
    let most = threads + CLIENTS / 20;
    assert!(server.threads() <= most, "{engine}: {} threads, {threads} before", server.threads());
    assert!(server.stats().connections >= CLIENTS, "{engine}: all of them are still there");
}

/// Returns a client that has requested the large file, and reads little at once.
fn begin(server: &weftwork::Running) -> TcpStream {
    let mut stream = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 8 << 10).unwrap();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    stream
}
