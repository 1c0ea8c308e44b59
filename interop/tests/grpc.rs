//! A service of tonic on the HTTP/2 of Weftwork, called by a client of tonic.

use std::process::Command;

use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Channel;
use weftwork::{Running, Server};
use weftwork_interop::grpc::echo_client::EchoClient;
use weftwork_interop::grpc::echo_server::EchoServer;
use weftwork_interop::grpc::{Repeats, text};
use weftwork_interop::{PATIENCE, engines};
use weftwork_tower::serve_tower;

fn start(engine: weftwork::Engine) -> Running {
    let service = serve_tower(EchoServer::new(Repeats));
    Server::bind("127.0.0.1:0")
        .unwrap()
        .engine(engine)
        .set("http2_cleartext", "true")
        .unwrap()
        .start(service)
        .unwrap()
}

async fn connect(server: &Running) -> EchoClient<Channel> {
    let address = format!("http://{}", server.local_addr().unwrap());
    let channel = Channel::from_shared(address).unwrap().timeout(PATIENCE).connect().await.unwrap();
    EchoClient::new(channel)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unary_call_is_answered() {
    for engine in engines() {
        let server = start(engine);
        let mut client = connect(&server).await;
        assert_eq!(client.unary(text("hello")).await.unwrap().into_inner(), text("hello"), "{engine}");
        let long = "x".repeat(300 << 10);
        assert_eq!(client.unary(text(long.clone())).await.unwrap().into_inner(), text(long), "{engine}");
        let refused = client.unary(text("")).await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::InvalidArgument, "a text is needed"),
            "{engine}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_streams() {
    for engine in engines() {
        let server = start(engine);
        let mut client = connect(&server).await;
        let mut texts = client.server_stream(text("100")).await.unwrap().into_inner();
        for number in 0..100 {
            assert_eq!(texts.next().await.unwrap().unwrap(), text(number.to_string()), "{engine}");
        }
        assert!(texts.next().await.is_none(), "{engine}");
        let refused = client.server_stream(text("many")).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{engine}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_streams() {
    for engine in engines() {
        let server = start(engine);
        let mut client = connect(&server).await;
        let texts = tokio_stream::iter(["a", "b", "c"].map(text));
        assert_eq!(client.client_stream(texts).await.unwrap().into_inner(), text("abc"), "{engine}");
        let many = tokio_stream::iter((0..3000).map(|_| text("0123456789".repeat(10))));
        let joined = client.client_stream(many).await.unwrap().into_inner();
        assert_eq!(joined.text.len(), 300_000, "{engine}");
    }
}

/// Each text is sent after the reply to the one before.
#[tokio::test(flavor = "multi_thread")]
async fn both_stream() {
    for engine in engines() {
        let server = start(engine);
        let mut client = connect(&server).await;
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let texts = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let mut replies = client.both_stream(texts).await.unwrap().into_inner();
        for number in 0..20 {
            sender.send(text(number.to_string())).await.unwrap();
            assert_eq!(replies.next().await.unwrap().unwrap(), text(number.to_string()), "{engine}");
        }
        drop(sender);
        assert!(replies.next().await.is_none(), "{engine}");
    }
}

/// Calls each method with grpcio, gRPC for Python, if that is installed: `pip install grpcio`.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_grpcio_is_answered() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let is_there = Command::new(&python).args(["-c", "import grpc"]).output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} has no grpcio");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpcio_client.py");
    for engine in engines() {
        let server = start(engine);
        let address = server.local_addr().unwrap().to_string();
        let output = Command::new(&python).args([script, &address]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine}: {said}");
    }
}
