//! A service of gRPC with a method of each kind.

use std::pin::Pin;

use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

include!(concat!(env!("OUT_DIR"), "/weftwork.interop.Echo.rs"));

/// The message of all methods.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Text {
    /// Its text.
    #[prost(string, tag = "1")]
    pub text: String,
}

/// Returns a message.
pub fn text(text: impl Into<String>) -> Text {
    Text { text: text.into() }
}

/// The service: it repeats what it is told.
#[derive(Debug, Default)]
pub struct Repeats;

type Texts = Pin<Box<dyn Stream<Item = Result<Text, Status>> + Send>>;

#[tonic::async_trait]
impl echo_server::Echo for Repeats {
    async fn unary(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        let text = request.into_inner();
        if text.text.is_empty() {
            return Err(Status::invalid_argument("a text is needed"));
        }
        Ok(Response::new(text))
    }

    type ServerStreamStream = Texts;

    /// Counts up to the number in the text.
    async fn server_stream(&self, request: Request<Text>) -> Result<Response<Texts>, Status> {
        let count: u32 =
            request.into_inner().text.parse().map_err(|_| Status::invalid_argument("a number is needed"))?;
        let texts = tokio_stream::iter(0..count).then(|number| async move {
            tokio::task::yield_now().await;
            Ok(text(number.to_string()))
        });
        Ok(Response::new(Box::pin(texts)))
    }

    /// Joins the texts.
    async fn client_stream(&self, request: Request<Streaming<Text>>) -> Result<Response<Text>, Status> {
        let (mut texts, mut joined) = (request.into_inner(), String::new());
        while let Some(text) = texts.next().await {
            joined.push_str(&text?.text);
        }
        Ok(Response::new(text(joined)))
    }

    type BothStreamStream = Texts;

    /// Repeats each text when it comes.
    async fn both_stream(&self, request: Request<Streaming<Text>>) -> Result<Response<Texts>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}
