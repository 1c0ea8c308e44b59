//! actix-web: a worker for each core, `web::block` for blocking calls.

use std::net::Ipv4Addr;
use std::time::Duration;

use actix_web::http::KeepAlive;
use actix_web::{App, FromRequest, HttpRequest, HttpResponse, HttpServer, Responder, rt, web};
use bytes::Bytes;

use crate::routes;

pub fn serve(port: u16, workers: usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let app = || {
        App::new()
            .app_data(web::PayloadConfig::new(routes::ECHO_BYTES_MAX))
            .route("/health", web::get().to(async || routes::HEALTH))
            .route("/json", web::get().to(async || web::Json(routes::MESSAGE)))
            .route("/echo", web::post().to(echo))
            .route("/slow", web::get().to(slow))
            .route("/wait", web::get().to(wait))
    };
    let server = HttpServer::new(app)
        .workers(workers)
        .worker_max_blocking_threads(routes::BLOCKING_THREADS)
        .tcp_nodelay(true)
        // Each of the three would set a timer for every connection, or for every request.
        .keep_alive(KeepAlive::Os)
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(Duration::ZERO)
        .backlog(4096)
        .max_connections(100_000)
        .bind((Ipv4Addr::LOCALHOST, port))?;
    Ok(rt::System::new().block_on(server.run())?)
}

async fn echo(request: HttpRequest, payload: web::Payload) -> actix_web::Result<HttpResponse> {
    if let Some(length) = routes::goes_through(request.headers().get("content-length")) {
        return Ok(HttpResponse::Ok().no_chunking(length).streaming(payload));
    }
    let body = Bytes::from_request(&request, &mut payload.into_inner()).await?;
    Ok(HttpResponse::Ok().body(body))
}

async fn slow(request: HttpRequest) -> impl Responder {
    let time = routes::time(Some(request.query_string()));
    web::block(move || routes::block(time)).await.unwrap_or("failed\n")
}

async fn wait(request: HttpRequest) -> impl Responder {
    rt::time::sleep(routes::time(Some(request.query_string()))).await;
    "waited\n"
}
