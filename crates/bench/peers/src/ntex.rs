//! ntex on its own runtime: a worker for each core, `spawn_blocking` for blocking calls.

use std::net::Ipv4Addr;

use ::ntex::SharedCfg;
use ::ntex::http::{HttpServiceConfig, KeepAlive};
use ::ntex::time::Seconds;
use ::ntex::util::Bytes;
use ::ntex::web::{self, App, FromRequest, HttpRequest, HttpResponse};
use ::ntex::{rt, time};

use crate::routes;

pub fn serve(port: u16, workers: usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let system = rt::System::build()
        .name("ntex")
        .thread_pool_limit(routes::BLOCKING_THREADS)
        .build(::ntex::rt::DefaultRuntime);
    Ok(system.block_on(run(port, workers))?)
}

async fn run(port: u16, workers: usize) -> std::io::Result<()> {
    let app = async || {
        App::new()
            .state(web::types::PayloadConfig::new(routes::ECHO_BYTES_MAX))
            .route("/health", web::get().to(async || routes::HEALTH))
            .route("/json", web::get().to(async || HttpResponse::Ok().json(&routes::MESSAGE)))
            .route("/echo", web::post().to(echo))
            .route("/slow", web::get().to(slow))
            .route("/wait", web::get().to(wait))
    };
    // Each would set a timer for every connection.
    let kept = HttpServiceConfig::new().set_keepalive(KeepAlive::Os).set_client_timeout(Seconds::ZERO);
    let server = web::server(app).config(SharedCfg::new("http").add(kept));
    let server = server.workers(workers).backlog(4096).maxconn(100_000);
    server.bind((Ipv4Addr::LOCALHOST, port))?.run().await
}

async fn echo(request: HttpRequest, payload: web::types::Payload) -> Result<HttpResponse, web::Error> {
    if let Some(length) = routes::goes_through(request.headers().get("content-length")) {
        return Ok(HttpResponse::Ok().no_chunking().content_length(length).streaming(payload));
    }
    let body =
        <Bytes as FromRequest<web::DefaultError>>::from_request(&request, &mut payload.into_inner()).await?;
    Ok(HttpResponse::Ok().body(body))
}

async fn slow(request: HttpRequest) -> &'static str {
    let time = routes::time(Some(request.query_string()));
    rt::spawn_blocking(move || routes::block(time)).await.unwrap_or("failed\n")
}

async fn wait(request: HttpRequest) -> &'static str {
    time::sleep(routes::time(Some(request.query_string()))).await;
    "waited\n"
}
