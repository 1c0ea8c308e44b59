//! One of the two servers that are compared, and its clients.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use weftwork::{Error, Request, Result, Running, Server};

pub(super) const BLOCKING_CLIENTS: usize = 8;
pub(super) const QUICK_CLIENTS: usize = 2;

/// Time for which a handler blocks its thread.
const BLOCKING_TIME: Duration = Duration::from_secs(1);
/// Pause of a quick client after a response.
const PAUSE: Duration = Duration::from_millis(5);
/// Time after which a client gives up. The handlers before it in the loop take eight seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for the requests in flight at the end.
const DRAIN: Duration = Duration::from_secs(2);

const QUICK: &[u8] = b"GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n";
const BLOCKING: &[u8] = b"GET /blocking HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Body of both responses, and their last bytes.
const BODY: &str = "done.\n";

/// A server on a loopback port of its own, with its clients.
pub(super) struct Subject {
    server: Running,
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_blocking: AtomicBool,
    is_over: AtomicBool,
    quick: Mutex<Quick>,
}

#[derive(Default)]
struct Quick {
    window: Window,
    /// When each client has sent the request that waits for its response.
    sent: [Option<Instant>; QUICK_CLIENTS],
}

/// Quick requests since the last look.
#[derive(Default)]
pub(super) struct Window {
    pub(super) answered: u64,
    /// In microseconds.
    pub(super) slowest: u64,
}

impl Subject {
    pub(super) fn start(engine: &str) -> Result<Subject> {
        let shared = Arc::new(Shared::default());
        let blocks = shared.clone();
        let handler = move |req: &mut Request<'_>| {
            if req.path() == "/blocking" && blocks.is_blocking.load(Ordering::Relaxed) {
                sleep(BLOCKING_TIME);
            }
            BODY
        };
        let engine = engine.parse().map_err(|error| Error::internal(format!("{engine}: {error}")))?;
        let server = Server::bind("127.0.0.1:0")?.without_env().engine(engine).start(handler)?;
        let mut subject = Subject { server, shared, clients: Vec::new() };
        if let Err(error) = subject.add_clients() {
            subject.stop();
            return Err(Error::internal(format!("the clients of /block cannot be started: {error}")));
        }
        Ok(subject)
    }

    /// Starts a thread for each quick client, and one for all clients that block.
    fn add_clients(&mut self) -> io::Result<()> {
        let address = self.server.local_addr().ok_or(io::ErrorKind::AddrNotAvailable)?;
        for client in 0..QUICK_CLIENTS {
            let (mut stream, shared) = (connect(address)?, self.shared.clone());
            self.spawn(move || while shared.ask_quick(client, &mut stream).is_ok() {})?;
        }
        let streams: io::Result<Vec<TcpStream>> = (0..BLOCKING_CLIENTS).map(|_| connect(address)).collect();
        let (mut streams, shared) = (streams?, self.shared.clone());
        self.spawn(move || while shared.ask_blocking(&mut streams).is_ok() {})
    }

    fn spawn(&mut self, client: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.clients.push(Builder::new().name("demo-client".into()).spawn(client)?);
        Ok(())
    }

    /// Returns the quick requests since the last look, and tells the other clients whether to block.
    pub(super) fn take(&self, is_blocking: bool) -> Window {
        self.shared.is_blocking.store(is_blocking, Ordering::Relaxed);
        let mut quick = self.shared.quick();
        let mut window = std::mem::take(&mut quick.window);
        for sent in quick.sent.iter().flatten() {
            window.slowest = window.slowest.max(sent.elapsed().as_micros() as u64);
        }
        window
    }

    pub(super) fn stop(self) {
        self.shared.is_blocking.store(false, Ordering::Relaxed);
        self.shared.is_over.store(true, Ordering::Relaxed);
        // The clients end with their connections.
        self.server.shutdown(DRAIN);
        for client in self.clients {
            let _ = client.join();
        }
    }
}

impl Shared {
    fn quick(&self) -> MutexGuard<'_, Quick> {
        self.quick.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_quick(&self, client: usize, stream: &mut TcpStream) -> io::Result<()> {
        self.check()?;
        let sent = Instant::now();
        self.quick().sent[client] = Some(sent);
        stream.write_all(QUICK)?;
        read_response(stream)?;
        let us = sent.elapsed().as_micros() as u64;
        let mut quick = self.quick();
        quick.sent[client] = None;
        quick.window.answered += 1;
        quick.window.slowest = quick.window.slowest.max(us);
        drop(quick);
        sleep(PAUSE);
        Ok(())
    }

    /// Sends a request on each connection, and reads the responses.
    fn ask_blocking(&self, streams: &mut [TcpStream]) -> io::Result<()> {
        self.check()?;
        if !self.is_blocking.load(Ordering::Relaxed) {
            sleep(PAUSE);
            return Ok(());
        }
        streams.iter_mut().try_for_each(|stream| stream.write_all(BLOCKING))?;
        streams.iter_mut().try_for_each(read_response)
    }

    fn check(&self) -> io::Result<()> {
        if self.is_over.load(Ordering::Relaxed) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Reads a response, which ends with [`BODY`].
fn read_response(stream: &mut TcpStream) -> io::Result<()> {
    let mut response = Vec::with_capacity(512);
    while !response.ends_with(BODY.as_bytes()) {
        let mut part = [0; 512];
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => response.extend_from_slice(&part[..length]),
        }
    }
    Ok(())
}
