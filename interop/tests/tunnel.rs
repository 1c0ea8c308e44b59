//! A proxy for CONNECT, as an axum app: over hyper and on every engine, with HTTP/1.1 and HTTP/2.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use weftwork_interop::start;

/// Sends each client its own bytes, until the client ends.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = client.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    address
}

/// Opens a tunnel to the authority of the request. Port 1 is refused, and port 2 is accepted without a tunnel.
async fn proxy(request: Request) -> Response {
    let Some(authority) = request.uri().authority().cloned() else {
        return (StatusCode::BAD_REQUEST, "no authority").into_response();
    };
    match authority.port_u16() {
        Some(1) => return (StatusCode::FORBIDDEN, "not this port").into_response(),
        Some(2) => return StatusCode::OK.into_response(),
        _ => {}
    }
    tokio::spawn(async move {
        let client = hyper::upgrade::on(request).await.unwrap();
        let mut server = TcpStream::connect(authority.as_str()).await.unwrap();
        let _ = copy_bidirectional(&mut TokioIo::new(client), &mut server).await;
    });
    Body::empty().into_response()
}

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello" })).fallback(|request: Request| async move {
        if *request.method() == Method::CONNECT {
            proxy(request).await
        } else {
            StatusCode::NOT_FOUND.into_response()
        }
    })
}

/// Sends a CONNECT with bytes behind it, and returns the head of the response in small letters.
async fn connect(proxy: SocketAddr, authority: &str, early: &str) -> (TcpStream, String) {
    let mut client = TcpStream::connect(proxy).await.unwrap();
    let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n{early}");
    client.write_all(head.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    (client, String::from_utf8(head).unwrap().to_ascii_lowercase())
}

/// RFC 9110 section 9.3.6
#[tokio::test(flavor = "multi_thread")]
async fn connect_opens_a_tunnel() {
    let (sites, echo) = (start(app()).await, echo().await.to_string());
    let weft = sites.weft.iter().map(|server| server.local_addr().unwrap());
    for address in [sites.hyper].into_iter().chain(weft) {
        let (client, head) = connect(address, &echo, "early").await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        for field in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::UPGRADE] {
            assert!(!head.contains(field.as_str()), "{head}");
        }
        let (mut reader, mut writer) = client.into_split();
        let sent = vec![b'x'; 3 << 20];
        let writes = tokio::spawn(async move {
            writer.write_all(&sent).await.unwrap();
            writer
        });
        let mut got = vec![0; 5 + (3 << 20)];
        reader.read_exact(&mut got).await.unwrap();
        assert!(got.starts_with(b"earlyx") && got.ends_with(b"x"));
        drop(writes.await.unwrap());
        assert_eq!(reader.read(&mut got).await.unwrap(), 0);
        let (_, head) = connect(address, "127.0.0.1:1", "").await;
        assert!(head.starts_with("http/1.1 403"), "{head}");
    }
}

/// hyper would answer 200, and the client would take the server for an open proxy.
#[tokio::test(flavor = "multi_thread")]
async fn a_connect_that_is_accepted_without_a_tunnel_is_501() {
    let sites = start(app()).await;
    for server in &sites.weft {
        let (_, head) = connect(server.local_addr().unwrap(), "127.0.0.1:2", "").await;
        assert!(head.starts_with("http/1.1 501"), "{}: {head}", server.engine());
    }
}

/// RFC 9113 section 8.5
#[tokio::test(flavor = "multi_thread")]
async fn connect_opens_a_tunnel_in_a_stream_of_http2() {
    let (sites, echo) = (start(app()).await, echo().await);
    let weft = sites.weft.iter().map(|server| server.local_addr().unwrap());
    for address in [sites.hyper].into_iter().chain(weft) {
        let socket = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut client, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), socket).await.unwrap();
        tokio::spawn(connection);
        let request = Request::connect(echo.to_string()).body(Empty::<Bytes>::new()).unwrap();
        let response = client.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200, "{address}");
        let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        for count in [1, 1000, 60_000] {
            let (sent, mut got) = (vec![b'x'; count], vec![0; count]);
            tunnel.write_all(&sent).await.unwrap();
            tunnel.read_exact(&mut got).await.unwrap();
            assert!(sent == got, "{address}: {count} bytes");
        }
    }
}
