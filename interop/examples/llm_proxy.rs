//! Streams the tokens of the upstream that the variable `UPSTREAM` names (an URL) to each client:
//! `cargo run --manifest-path interop/Cargo.toml --example llm_proxy`.
//!
//! A client that waits holds no thread. If the client leaves, the request to the upstream is dropped, so that it stops
//! generating. A slow client slows down its own upstream alone.

use std::future::poll_fn;

use futures_util::StreamExt;
use weftwork::http::header::CONTENT_TYPE;
use weftwork::prelude::*;
use weftwork::{Bytes, Feed, FeedLimits, FeedSender, Router};
use weftwork_tokio::Tokio;

struct App {
    upstream: String,
    client: reqwest::Client,
    tokio: Tokio,
}

fn chat(State(app): State<App>, prompt: String) -> Response {
    let request = app.client.post(&app.upstream).body(prompt);
    let tokio = app.tokio.clone();
    app.tokio.when(move || async move {
        let answer = match request.send().await.and_then(reqwest::Response::error_for_status) {
            Ok(answer) => answer,
            Err(error) => {
                return Problem::new(StatusCode::BAD_GATEWAY).detail(error.to_string()).into_response();
            }
        };
        let content_type = answer.headers().get(CONTENT_TYPE).cloned();
        let (sender, feed) = Feed::new(FeedLimits::default());
        let response = Response::feed(feed.with_source(tokio.within(move || pass_on(answer, sender))));
        match content_type {
            Some(content_type) => response.with_content_type(content_type),
            None => response,
        }
    })
}

/// Sends each token when it comes and the client has room. It is dropped when the client leaves.
async fn pass_on(answer: reqwest::Response, sender: FeedSender) {
    let mut tokens = answer.bytes_stream();
    while let Some(token) = tokens.next().await {
        let sent = match token {
            Ok(token) => send(&sender, token).await,
            // Cut, so that the client does not take the part for the whole.
            Err(_) => return sender.cut(),
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn send(sender: &FeedSender, token: Bytes) -> Result<(), weftwork::FeedClosed> {
    poll_fn(|cx| sender.poll_ready(cx)).await?;
    sender.send(token)
}

fn site(upstream: String, tokio: Tokio) -> Router {
    Router::new().post("/chat", chat).state(App { upstream, client: reqwest::Client::new(), tokio })
}

fn main() -> Result<()> {
    let upstream = std::env::var("UPSTREAM").map_err(|_| Error::internal("UPSTREAM is missing: an URL"))?;
    println!("at http://127.0.0.1:8080/chat");
    Server::bind("127.0.0.1:8080")?.run(site(upstream, Tokio::shared()?))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::State;
    use axum::routing::post;
    use tokio::sync::mpsc::{Receiver, Sender, channel};
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    /// The generator of one answer.
    type Tokens = Sender<std::io::Result<&'static str>>;

    async fn generate(State(asked): State<Sender<Tokens>>) -> Body {
        let (sender, tokens) = channel(1);
        asked.send(sender).await.unwrap();
        Body::from_stream(ReceiverStream::new(tokens))
    }

    /// Starts an upstream whose tokens come from the test. It stays silent until then.
    async fn upstream() -> (String, Receiver<Tokens>) {
        let (asked, requests) = channel(1);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/", post(generate)).with_state(asked);
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        (url, requests)
    }

    async fn ask(address: &str, requests: &mut Receiver<Tokens>) -> (reqwest::Response, Tokens) {
        let request = reqwest::Client::new().post(address).header(CONTENT_TYPE, "text/plain").body("hello");
        let answer = tokio::spawn(request.send());
        let tokens = requests.recv().await.unwrap();
        tokens.send(Ok("first")).await.unwrap();
        let mut answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.chunk().await.unwrap().unwrap(), "first");
        (answer, tokens)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tokens_are_passed_on_until_the_client_leaves() {
        let (url, mut requests) = upstream().await;
        let server =
            Server::bind("127.0.0.1:0").unwrap().start(site(url, Tokio::current().unwrap())).unwrap();
        let address = format!("http://{}/chat", server.local_addr().unwrap());
        let (mut answer, tokens) = ask(&address, &mut requests).await;
        tokens.send(Ok("second")).await.unwrap();
        assert_eq!(answer.chunk().await.unwrap().unwrap(), "second");
        drop(tokens);
        assert_eq!(answer.chunk().await.unwrap(), None);
        // The upstream learns that the client has left, although it is silent.
        let (answer, tokens) = ask(&address, &mut requests).await;
        drop(answer);
        tokens.closed().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_upstream_that_fails_is_reported() {
        let (url, mut requests) = upstream().await;
        let server =
            Server::bind("127.0.0.1:0").unwrap().start(site(url, Tokio::current().unwrap())).unwrap();
        let address = format!("http://{}/chat", server.local_addr().unwrap());
        let (mut answer, tokens) = ask(&address, &mut requests).await;
        tokens.send(Err(std::io::Error::other("on purpose"))).await.unwrap();
        assert!(answer.chunk().await.is_err());
        let nowhere = site("http://127.0.0.1:9/".to_owned(), Tokio::current().unwrap());
        let server = Server::bind("127.0.0.1:0").unwrap().start(nowhere).unwrap();
        let address = format!("http://{}/chat", server.local_addr().unwrap());
        let request = reqwest::Client::new().post(&address).header(CONTENT_TYPE, "text/plain").body("hello");
        assert_eq!(request.send().await.unwrap().status(), 502);
    }
}
