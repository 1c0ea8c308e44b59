//! TLS in the tests: the variable `WEFT_TEST_TLS` makes every server of the matrix speak TLS, and its clients too.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use weftwork::{Proxy, Server};

use super::{TIMEOUT, Tree};

/// Time that a send waits for the handshake. A server may be busy, and the test may be about that.
const HANDSHAKE_WAIT: Duration = Duration::from_millis(200);

/// Returns whether the servers of the matrix speak TLS.
pub(crate) fn is_on() -> bool {
    static ON: LazyLock<bool> = LazyLock::new(|| std::env::var_os("WEFT_TEST_TLS").is_some());
    *ON
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Configs {
    server: weftwork::Tls,
    client: Arc<ClientConfig>,
    pem: String,
}

static CONFIGS: LazyLock<Configs> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    #[cfg(feature = "tls")]
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(not(feature = "tls"))]
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = weftwork::Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Configs { server, client: Arc::new(client), pem: made.cert.pem() }
});

/// Makes the server speak TLS, if the matrix does.
pub(crate) fn secure(server: Server) -> Server {
    if is_on() { server.tls(CONFIGS.server.clone()) } else { server }
}

/// Returns a proxy to the server of the matrix at this address, if the matrix speaks TLS. It speaks HTTP/1.1, as it does
/// in clear: the tests count connections.
pub(crate) fn proxy_to(address: &str) -> Option<Proxy> {
    if !is_on() {
        return None;
    }
    let tree = Tree::new();
    let proxy = Proxy::to(&format!("https://{address}")).unwrap().server_name("a.example").unwrap();
    let proxy = proxy.http2(false);
    Some(proxy.ca_file(tree.write("ca.pem", &CONFIGS.pem)).unwrap())
}

fn take_records(conn: &mut ClientConnection) -> io::Result<Vec<u8>> {
    let mut records = Vec::new();
    while conn.wants_write() {
        conn.write_tls(&mut records)?;
    }
    Ok(records)
}

struct Session {
    conn: ClientConnection,
    /// What was decrypted and not read.
    plain: Vec<u8>,
    is_open: bool,
    error: Option<(ErrorKind, String)>,
}

/// A client's session over any socket. Clones share it.
#[derive(Clone)]
pub(crate) struct TlsSession {
    session: Arc<(Mutex<Session>, Condvar)>,
    /// Held while records are written, so that they keep their order.
    wire: Arc<Mutex<()>>,
    /// Bytes in clear that leave together with the first records.
    before: Arc<Mutex<Vec<u8>>>,
    has_begun: Arc<std::sync::atomic::AtomicBool>,
}

impl TlsSession {
    pub(crate) fn new() -> TlsSession {
        let name = ServerName::try_from("a.example").unwrap();
        let mut conn = ClientConnection::new(CONFIGS.client.clone(), name).unwrap();
        conn.set_buffer_limit(None);
        let session = Session { conn, plain: Vec::new(), is_open: false, error: None };
        TlsSession {
            session: Arc::new((Mutex::new(session), Condvar::new())),
            wire: Arc::default(),
            before: Arc::default(),
            has_begun: Arc::default(),
        }
    }

    /// Begins the handshake on a thread. `socket` makes a copy of the socket.
    fn begin<S: Read + Write + Send + 'static>(&self, socket: impl FnOnce() -> S) {
        if self.has_begun.swap(true, std::sync::atomic::Ordering::SeqCst) {
            return;
        }
        let (own, mut socket) = (self.clone(), socket());
        std::thread::spawn(move || {
            let shaken = own.shake(&mut socket);
            let _wire = lock(&own.wire);
            let mut session = lock(&own.session.0);
            session.is_open = true;
            session.error = shaken.err().map(|error| (error.kind(), error.to_string()));
            let records = take_records(&mut session.conn);
            own.session.1.notify_all();
            drop(session);
            let _ = records.and_then(|records| socket.write_all(&records));
        });
    }

    /// Lets the handshake begin behind these bytes, which are in clear.
    pub(crate) fn begin_behind(&self, before: &[u8]) {
        lock(&self.before).extend_from_slice(before);
    }

    /// Gives bytes to a session that has not begun, and does not wait for its handshake.
    pub(crate) fn write_ahead<S: Read + Write + Send + 'static>(
        &self,
        bytes: &[u8],
        socket: impl FnOnce() -> S,
    ) {
        lock(&self.session.0).conn.writer().write_all(bytes).unwrap();
        self.begin(socket);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn shake(&self, socket: &mut (impl Read + Write)) -> io::Result<()> {
        let mut bytes = vec![0; 16 << 10];
        while lock(&self.session.0).conn.is_handshaking() {
            self.flush(socket)?;
            let count = socket.read(&mut bytes)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.give(&bytes[..count])?;
        }
        Ok(())
    }

    fn give(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut session = lock(&self.session.0);
        let Session { conn, plain, .. } = &mut *session;
        while !bytes.is_empty() {
            conn.read_tls(&mut bytes)?;
            let failed = |error| io::Error::new(ErrorKind::InvalidData, error);
            let count = conn.process_new_packets().map_err(failed)?.plaintext_bytes_to_read();
            let start = plain.len();
            plain.resize(start + count, 0);
            conn.reader().read_exact(&mut plain[start..])?;
        }
        Ok(())
    }

    fn flush(&self, socket: &mut impl Write) -> io::Result<()> {
        let _wire = lock(&self.wire);
        let mut records = std::mem::take(&mut *lock(&self.before));
        records.append(&mut take_records(&mut lock(&self.session.0).conn)?);
        socket.write_all(&records)
    }

    /// Waits for the handshake. Returns false if it takes longer.
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let (session, changed) = &*self.session;
        let waits = |session: &mut Session| !session.is_open;
        let waited = changed.wait_timeout_while(lock(session), timeout, waits);
        let session = waited.unwrap_or_else(PoisonError::into_inner).0;
        match &session.error {
            Some((kind, why)) => Err(io::Error::new(*kind, why.clone())),
            None => Ok(session.is_open),
        }
    }

    pub(crate) fn write<S: Read + Write + Send + 'static>(
        &self,
        bytes: &[u8],
        clone: impl Fn() -> S,
        socket: &mut S,
    ) -> io::Result<()> {
        self.begin(&clone);
        self.wait(HANDSHAKE_WAIT)?;
        let mut session = lock(&self.session.0);
        if !session.is_open {
            // The thread of the handshake sends it.
            return session.conn.writer().write_all(bytes);
        }
        drop(session);
        // A reader must find nothing to send, or it would wait for a server that does not read. So each piece becomes
        // records and leaves the session under one lock.
        let _wire = lock(&self.wire);
        for piece in bytes.chunks(64 << 10) {
            let records = {
                let mut session = lock(&self.session.0);
                session.conn.writer().write_all(piece)?;
                take_records(&mut session.conn)?
            };
            socket.write_all(&records)?;
        }
        Ok(())
    }

    pub(crate) fn read<S: Read + Write + Send + 'static>(
        &self,
        into: &mut [u8],
        clone: impl Fn() -> S,
        socket: &mut S,
    ) -> io::Result<usize> {
        self.begin(&clone);
        if !self.wait(TIMEOUT)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut bytes = vec![0; into.len().max(1)];
        loop {
            let mut session = lock(&self.session.0);
            let count = session.plain.len().min(into.len());
            if count > 0 {
                into[..count].copy_from_slice(&session.plain[..count]);
                session.plain.drain(..count);
                return Ok(count);
            }
            match session.conn.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            drop(session);
            match socket.read(&mut bytes)? {
                0 => return Err(io::Error::new(ErrorKind::UnexpectedEof, "an end without close_notify")),
                count => self.give(&bytes[..count])?,
            }
            if lock(&self.session.0).conn.wants_write() {
                // On a thread, because another one may have left megabytes to send, and the server waits for this one
                // to read.
                let (own, mut socket) = (self.clone(), clone());
                std::thread::spawn(move || own.flush(&mut socket));
            }
        }
    }

    pub(crate) fn close<S: Read + Write + Send + 'static>(&self, clone: impl Fn() -> S, socket: &mut S) {
        self.begin(&clone);
        let _ = self.wait(TIMEOUT);
        lock(&self.session.0).conn.send_close_notify();
        let _ = self.flush(socket);
    }
}
