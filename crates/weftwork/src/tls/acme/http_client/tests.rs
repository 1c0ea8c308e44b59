//! The client against servers that answer with given bytes.

use std::net::TcpListener;
use std::thread;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::*;
use crate::transport::tls::provider;

/// Answers one connection with `response`, and then ends it.
fn server(response: &'static [u8]) -> (String, HttpsClient, Notes) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let provider = provider::default_provider();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let client =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/new?x=1", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        let mut request = [0; 4096];
        let count = stream.read(&mut request).unwrap_or_default();
        assert!(count == 0 || request.starts_with(b"GET /new?x=1 HTTP/1.1\r\nhost: localhost:"));
        for part in response.chunks(if response.len() < 1000 { 7 } else { 8192 }) {
            if stream.write_all(part).is_err() {
                return;
            }
        }
        tls.send_close_notify();
        let _ = tls.write_tls(&mut socket);
    });
    let notes = Notes::default();
    (url, HttpsClient::new(Arc::new(client), Stop::default(), notes.clone()), notes)
}

fn get(url: &str, client: &HttpsClient) -> io::Result<(http::response::Parts, Bytes)> {
    let request = Request::builder().uri(url).body(BodyWrapper::default()).unwrap();
    let BytesResponse { parts, mut body } = client.send(request)?;
    Ok((parts, block_on(body.into_bytes())?.unwrap()))
}

#[test]
fn a_response_has_a_length_or_chunks_or_the_end_of_the_connection() {
    let responses: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nreplay-nonce: abc\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nReplay-Nonce: abc\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nReplay-Nonce: abc\r\n\r\nhello",
    ];
    for response in responses {
        let (url, client, _) = server(response);
        let (parts, body) = get(&url, &client).unwrap();
        assert_eq!((parts.status.as_u16(), &body[..]), (200, &b"hello"[..]));
        assert_eq!(parts.headers["replay-nonce"], "abc");
    }
}

#[test]
fn a_response_that_cannot_be_used_is_an_error_that_names_the_url() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "connection ended without a response"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel", "ended within the response"),
        (b"HTTP/2 200\r\n\r\n", "status line"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello", "ontent-Length"),
        (b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", "302"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 6\r\n\r\n<html>", "<html>"),
    ];
    for (response, wanted) in cases {
        let (url, client, _) = server(response);
        let error = get(&url, &client).unwrap_err().to_string();
        assert!(error.contains(&url) && error.contains(wanted), "{wanted}: {error}");
    }
}

#[test]
fn a_body_has_a_limit() {
    let mut response = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    response.resize(BODY_BYTES_MAX + 100, b'x');
    let (url, client, _) = server(response.leak());
    let error = get(&url, &client).unwrap_err().to_string();
    assert!(error.contains("1 MiB"), "{error}");
}

#[test]
fn a_server_that_cannot_be_verified_is_refused() {
    let (url, _, _) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let (_, stranger, _) = server(b"");
    let error = get(&url, &stranger).unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    let error = get(&url.replace("https:", "http:"), &stranger).unwrap_err().to_string();
    assert!(error.contains("https://"), "{error}");
}

#[test]
fn a_silent_server_ends_with_the_stop() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    let (_, client, _) = server(b"");
    let stop = client.stop.clone();
    let waiting = thread::spawn(move || get(&url, &client).map(drop).unwrap_err().to_string());
    let silent = listener.accept().unwrap();
    stop.set();
    assert!(waiting.join().unwrap().contains("the server stops"));
    drop(silent);
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let (url, client, notes) = server(
        b"HTTP/1.1 429 Busy\r\nretry-after: 120\r\ncontent-type: application/problem+json\r\ncontent-length: 2\r\n\r\n{}",
    );
    assert_eq!(get(&url, &client).unwrap().0.status.as_u16(), 429);
    assert!(notes.retry_after().is_some_and(|at| at > SystemTime::now() + Duration::from_secs(100)));
    let headers = |value: &str| HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
    let now = SystemTime::UNIX_EPOCH;
    assert_eq!(retry_after(&headers("5"), now), Some(now + Duration::from_secs(5)));
    assert_eq!(
        retry_after(&headers("Thu, 01 Jan 1970 01:00:00 GMT"), now),
        Some(now + Duration::from_secs(3600))
    );
    for bad in ["", "soon", "-1", "99999999999999999999"] {
        assert_eq!(retry_after(&headers(bad), now), None, "{bad:?}");
    }
}
