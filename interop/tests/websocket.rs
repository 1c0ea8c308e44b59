//! WebSockets of axum: an echo, a chat, a subprotocol. The client is that of tungstenite.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::Request;
use axum::response::Response;
use axum::routing::{any, get};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::Empty;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{self, Message as Sent};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use weftwork_interop::start;

type Client = WebSocketStream<MaybeTlsStream<TcpStream>>;

fn app() -> Router {
    let _ = env_logger::builder().is_test(false).filter_level("warn".parse().unwrap()).try_init();
    let (everyone, _) = broadcast::channel::<String>(100);
    Router::new()
        .route("/echo", any(|upgrade: WebSocketUpgrade| async move { upgrade.on_upgrade(echo) }))
        .route("/slow", any(slow))
        .route(
            "/kind",
            any(|upgrade: WebSocketUpgrade| async move { upgrade.protocols(["b", "a"]).on_upgrade(kind) }),
        )
        .route("/chat", get(chat))
        .with_state(everyone)
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Message::Text(_) | Message::Binary(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}

/// Decides about the upgrade after a wait, as an app that asks a database does.
async fn slow(upgrade: WebSocketUpgrade) -> Response {
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    upgrade.on_upgrade(echo)
}

async fn kind(mut socket: WebSocket) {
    let kind = socket.protocol().map(|kind| kind.to_str().unwrap().to_owned());
    let _ = socket.send(kind.unwrap_or_default().into()).await;
}

async fn chat(upgrade: WebSocketUpgrade, State(everyone): State<broadcast::Sender<String>>) -> Response {
    upgrade.on_upgrade(|socket| async move {
        let (mut sender, mut receiver) = socket.split();
        let mut heard = everyone.subscribe();
        let tells = tokio::spawn(async move {
            while let Ok(text) = heard.recv().await {
                if sender.send(text.into()).await.is_err() {
                    return;
                }
            }
        });
        while let Some(Ok(Message::Text(text))) = receiver.next().await {
            let _ = everyone.send(text.to_string());
        }
        tells.abort();
    })
}

async fn connect(address: SocketAddr, path: &str) -> Client {
    connect_async(format!("ws://{address}{path}")).await.unwrap().0
}

async fn text(client: &mut Client) -> String {
    client.next().await.unwrap().unwrap().into_text().unwrap().to_string()
}

async fn addresses() -> (weftwork_interop::Sites, Vec<SocketAddr>) {
    let sites = start(app()).await;
    let weft = sites.weft.iter().map(|server| server.local_addr().unwrap());
    let all = [sites.hyper].into_iter().chain(weft).collect();
    (sites, all)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echo_repeats_and_closes() {
    let (_sites, addresses) = addresses().await;
    for (address, path) in addresses.into_iter().flat_map(|address| [(address, "/echo"), (address, "/slow")])
    {
        let mut client = connect(address, path).await;
        for length in [0, 1, 125, 126, 70_000, 1 << 20] {
            let sent = "x".repeat(length);
            client.send(Sent::text(sent.clone())).await.unwrap();
            assert!(text(&mut client).await == sent, "{length} bytes");
        }
        client.send(Sent::Ping("p".into())).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Sent::Pong("p".into()));
        client.close(None).await.unwrap();
        assert!(matches!(client.next().await, Some(Ok(Sent::Close(_)))));
        assert!(client.next().await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subprotocol_is_agreed() {
    let (_sites, addresses) = addresses().await;
    for address in addresses {
        let mut request = format!("ws://{address}/kind").into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", "a, b".parse().unwrap());
        let (mut client, response) = connect_async(request).await.unwrap();
        let agreed = response.headers()["sec-websocket-protocol"].to_str().unwrap().to_owned();
        assert_eq!(text(&mut client).await, agreed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_room_hears_everyone() {
    let (_sites, addresses) = addresses().await;
    for address in addresses {
        let mut clients = [connect(address, "/chat").await, connect(address, "/chat").await];
        // The second one is in the room when it hears itself.
        loop {
            clients[1].send(Sent::text("here")).await.unwrap();
            if tokio::time::timeout(std::time::Duration::from_millis(200), text(&mut clients[1]))
                .await
                .is_ok()
            {
                break;
            }
        }
        clients[0].send(Sent::text("hello")).await.unwrap();
        while text(&mut clients[1]).await != "hello" {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_requests_are_refused() {
    let (sites, addresses) = addresses().await;
    sites.same(|client, site| client.get(format!("{site}/echo"))).await;
    sites.same(|client, site| client.post(format!("{site}/chat"))).await;
    for address in addresses {
        let error = connect_async(format!("ws://{address}/missing")).await.unwrap_err();
        assert!(matches!(error, tungstenite::Error::Http(response) if response.status() == 404));
    }
}

/// Opens a connection of HTTP/2 whose settings have arrived.
async fn connect_http2(address: SocketAddr) -> SendRequest<Empty<Bytes>> {
    let socket = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), socket).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{address}/missing")).body(Empty::new()).unwrap();
    assert_eq!(client.send_request(request).await.unwrap().status(), 404);
    client
}

fn extended_connect(address: SocketAddr, path: &str, protocol: &'static str) -> Request<Empty<Bytes>> {
    let request = Request::connect(format!("http://{address}{path}"));
    let request = request.header("sec-websocket-version", "13").header("sec-websocket-protocol", "a, b");
    request.extension(Protocol::from_static(protocol)).body(Empty::new()).unwrap()
}

/// RFC 8441
#[tokio::test(flavor = "multi_thread")]
async fn a_socket_of_http2_is_one_of_http1() {
    let (_sites, addresses) = addresses().await;
    for address in addresses {
        let mut http2 = connect_http2(address).await;
        for path in ["/echo", "/slow"] {
            let response = http2.send_request(extended_connect(address, path, "websocket")).await.unwrap();
            assert_eq!(response.status(), 200, "{address}");
            let stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
            let mut client = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
            for length in [0, 126, 70_000, 1 << 20] {
                let sent = "x".repeat(length);
                client.send(Sent::text(sent.clone())).await.unwrap();
                let got = client.next().await.unwrap().unwrap().into_text().unwrap();
                assert!(got.as_str() == sent, "{length} bytes");
            }
            client.close(None).await.unwrap();
            assert!(matches!(client.next().await, Some(Ok(Sent::Close(_)))));
            assert!(client.next().await.is_none());
        }
        let response = http2.send_request(extended_connect(address, "/kind", "websocket")).await.unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], "b");
        let statuses = [
            ("/echo", "other", 400), // axum wants another protocol.
            ("/missing", "websocket", 404),
            ("/chat", "websocket", 405), // It is routed by `get`.
        ];
        for (path, protocol, status) in statuses {
            let response = http2.send_request(extended_connect(address, path, protocol)).await.unwrap();
            assert_eq!(response.status(), status, "{path} {protocol}");
        }
    }
}

/// A service that answers 200 without the protocol would let the client wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_extended_connect_without_its_protocol_is_501() {
    let app = Router::new().route("/any", any(|| async { "hello" }));
    let sites = start(app).await;
    for server in &sites.weft {
        let address = server.local_addr().unwrap();
        let mut http2 = connect_http2(address).await;
        let response = http2.send_request(extended_connect(address, "/any", "websocket")).await.unwrap();
        assert_eq!(response.status(), 501, "{}", server.engine());
    }
}
