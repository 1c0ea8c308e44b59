//! axum twice: with the blocking call where the documentation puts it, in `spawn_blocking`, and with the
//! blocking call in the handler itself, which is what happens if the author forgets.

use ::axum::body::HttpBody;
use ::axum::extract::{DefaultBodyLimit, FromRequest, RawQuery, Request};
use ::axum::http::header::CONTENT_LENGTH;
use ::axum::response::{IntoResponse, Response};
use ::axum::routing::{get, post};
use ::axum::{Json, Router};
use ::tokio::{task, time};
use bytes::Bytes;

use crate::routes;
use crate::tokio::{listen, run};

type Result = std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

pub fn serve_asynchronous(port: u16, workers: usize) -> Result {
    serve(port, workers, Router::new().route("/slow", get(block_in_place)))
}

pub fn serve_blocking(port: u16, workers: usize) -> Result {
    serve(port, workers, Router::new().route("/slow", get(block_elsewhere)))
}

fn serve(port: u16, workers: usize, router: Router) -> Result {
    let router = router
        .route("/health", get(async || routes::HEALTH))
        .route("/json", get(async || Json(routes::MESSAGE)))
        .route("/echo", post(echo))
        .route("/wait", get(wait))
        .layer(DefaultBodyLimit::max(routes::ECHO_BYTES_MAX));
    run(workers, async move {
        Ok(::axum::serve(listen(port)?, router).await?)
    })?
}

async fn echo(request: Request) -> Response {
    let length = request.headers().get(CONTENT_LENGTH).cloned();
    let is_long = request.body().size_hint().lower() > routes::GATHERED_BYTES_MAX as u64;
    if is_long && let Some(length) = length {
        return ([(CONTENT_LENGTH, length)], request.into_body()).into_response();
    }
    match Bytes::from_request(request, &()).await {
        Ok(body) => body.into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn block_in_place(RawQuery(query): RawQuery) -> &'static str {
    routes::block(routes::time(query.as_deref()))
}

async fn block_elsewhere(RawQuery(query): RawQuery) -> &'static str {
    let time = routes::time(query.as_deref());
    task::spawn_blocking(move || routes::block(time)).await.unwrap_or("failed\n")
}

async fn wait(RawQuery(query): RawQuery) -> &'static str {
    time::sleep(routes::time(query.as_deref())).await;
    "waited\n"
}
