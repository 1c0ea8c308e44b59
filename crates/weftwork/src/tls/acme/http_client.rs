//! A blocking HTTPS client for the requests to the certificate authority: one connection a request, all sizes and
//! times bounded.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, Uri};
use instant_acme::{BodyWrapper, BytesResponse, Error as AcmeError, HttpClient};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use weftwork_wire::{BodyEvent, Limits, ResponseReader};

use super::block_on;
use super::client::Notes;
use super::stop::Stop;

/// Time for a whole request. Let's Encrypt answers within a few seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a wait for the server looks whether the work has to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum size of a response body. Certificate chains have about 8 KiB.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Characters of an unexpected response that an error shows.
const SHOWN_MAX: usize = 200;

const AGENT: &str = concat!("weftwork/", env!("CARGO_PKG_VERSION"), " (ACME)");

/// Sends the requests of `instant-acme`. It blocks: the futures are ready when they are returned.
#[derive(Clone)]
pub(super) struct HttpsClient {
    config: Arc<ClientConfig>,
    stop: Stop,
    notes: Notes,
}

impl HttpsClient {
    pub(super) fn new(config: Arc<ClientConfig>, stop: Stop, notes: Notes) -> HttpsClient {
        HttpsClient { config, stop, notes }
    }

    fn send(&self, request: Request<BodyWrapper<Bytes>>) -> io::Result<BytesResponse> {
        let (mut parts, body) = request.into_parts();
        self.notes.set_retry_after(None);
        // What is a body is read by the conversion to a response.
        let mut body = BytesResponse::from(Response::new(body)).body;
        let body = block_on(body.into_bytes())?.map_err(io::Error::other)?;
        parts.headers.insert(USER_AGENT, http::HeaderValue::from_static(AGENT));
        let response = self
            .exchange(&parts.method, &parts.uri, &parts.headers, &body)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", parts.uri)))?;
        self.notes.set_retry_after(retry_after(response.headers(), SystemTime::now()));
        check_status(&parts.uri, &response)?;
        let (parts, body) = response.into_parts();
        Ok(BytesResponse { parts, body: Box::new(body) })
    }

    /// One request on a connection of its own.
    fn exchange(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: &[u8],
    ) -> io::Result<Response<Bytes>> {
        if uri.scheme_str() != Some("https") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the URL does not begin with https://"));
        }
        let authority = uri.authority().ok_or_else(|| malformed("the URL names no host"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let until = Instant::now() + REQUEST_TIMEOUT;
        let mut socket = self.connect(host, uri.port_u16().unwrap_or(443), until)?;
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| malformed("the host is no valid name"))?;
        let mut tls = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut head =
            format!("{method} {path} HTTP/1.1\r\n{HOST}: {authority}\r\nconnection: close\r\n").into_bytes();
        for (name, value) in headers {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        if !body.is_empty() || method == Method::POST {
            head.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        head.extend_from_slice(body);
        stream.write_all(&head)?;
        stream.flush()?;
        let response = read_response(&mut stream, method);
        tls.send_close_notify();
        let _ = tls.write_tls(&mut socket);
        let _ = socket.tcp.shutdown(Shutdown::Both);
        response
    }

    fn connect(&self, host: &str, port: u16, until: Instant) -> io::Result<Socket> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (host, port).to_socket_addrs()? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stop.is_set() {
                break;
            }
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT.min(left)) {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    return Ok(Socket { tcp, until, stop: self.stop.clone() });
                }
                Err(error) => failed = io::Error::new(error.kind(), format!("{address}: {error}")),
            }
        }
        Err(failed)
    }
}

impl HttpClient for HttpsClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, AcmeError>> + Send>> {
        let response = self.send(request).map_err(|error| AcmeError::Other(Box::new(error)));
        Box::pin(std::future::ready(response))
    }
}

/// A response other than success has to be a problem document (RFC 8555 section 6.7). Anything else comes from a
/// server between, or from one that does not speak ACME.
fn check_status(uri: &Uri, response: &Response<Bytes>) -> io::Result<()> {
    let is_json = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|kind| kind.to_ascii_lowercase().contains("json"));
    let status = response.status();
    if status.is_success() || (is_json && (status.is_client_error() || status.is_server_error())) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(response.body());
    let shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    Err(io::Error::other(format!(
        "{uri}: the response is {status}, without a reason that ACME knows: {shown:?}"
    )))
}

fn read_response(stream: &mut impl Read, method: &Method) -> io::Result<Response<Bytes>> {
    let (mut reader, limits) = (ResponseReader::new(), Limits::default());
    let (mut input, mut chunk) = (Vec::new(), [0; 8 << 10]);
    let received = loop {
        match reader.read_head(&input, method, &limits).map_err(malformed)? {
            Some((used, received)) => {
                input.drain(..used);
                if !received.status.is_informational() {
                    break received;
                }
            }
            None => {
                let count = stream.read(&mut chunk)?;
                if count == 0 {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the connection ended without a response",
                    ));
                }
                input.extend_from_slice(&chunk[..count]);
            }
        }
    };
    let mut body = Vec::new();
    loop {
        let (used, event) = reader.read_body(&input, &limits).map_err(malformed)?;
        match event {
            BodyEvent::Data { start, len } => body.extend_from_slice(&input[start..start + len]),
            BodyEvent::End => break,
            BodyEvent::NeedMore => {}
        }
        if body.len() > BODY_BYTES_MAX {
            return Err(malformed("the response has more than 1 MiB"));
        }
        input.drain(..used);
        if input.is_empty() || event == BodyEvent::NeedMore {
            let count = stream.read(&mut chunk)?;
            if count == 0 {
                reader.end().map_err(malformed)?;
                break;
            }
            input.extend_from_slice(&chunk[..count]);
        }
    }
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = received.status;
    for (name, value) in received.fields {
        response.headers_mut().append(name, value);
    }
    Ok(response)
}

/// Seconds or a date (RFC 9110 section 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<SystemTime> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match value.parse::<u64>() {
        Ok(seconds) => now.checked_add(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(value).ok(),
    }
}

fn malformed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A socket with a deadline. Its waits end when the work has to stop.
struct Socket {
    tcp: TcpStream,
    until: Instant,
    stop: Stop,
}

impl Socket {
    fn wait<T>(&self, mut call: impl FnMut(&TcpStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 30 seconds"));
            }
            if self.stop.is_set() {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server stops"));
            }
            let slice = Some(STOP_INTERVAL.min(left));
            self.tcp.set_read_timeout(slice)?;
            self.tcp.set_write_timeout(slice)?;
            match call(&self.tcp) {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                    ) => {}
                done => return done,
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait(|mut tcp| tcp.read(into))
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|mut tcp| tcp.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
